"""Readers of the data tables, which have their sources: how engines use links in ``efficiencies.toml``, data
sheets of CPUs in ``cpus.toml`` and of GPUs in ``gpus.toml``, networks of machines in ``nics.toml``, and
published latencies of GPUs in ``latencies.toml``.
"""

from __future__ import annotations

import re
import threading
import tomllib
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ..hardware.topology import EngineRate, LinkKind
from ..model import Access, Engine
from ..units import GB, MB, NANO


class _Range(msgspec.Struct, forbid_unknown_fields=True):
    """One table of ``efficiencies.toml``; the comments there describe the fields."""

    link: LinkKind
    engines: tuple[Engine, ...]
    lowest: float
    typical: float
    source: str
    access: Access | None = None
    reverse: float = 0.0
    reverse_lowest: float | None = None
    caps: tuple[float, float] | None = None


class _Shared(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``measured_memory``."""

    lowest: float
    typical: float
    source: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    range: tuple[_Range, ...]
    measured_memory: _Shared


T = TypeVar("T")
#: The first use of a type by msgspec in several threads at once can crash the process.
_READING = threading.Lock()


@lru_cache(maxsize=8)
def _read(name: str, kind: type[T]) -> T:
    """Read a file of this folder."""
    content = tomllib.loads(files(__package__).joinpath(name).read_text())
    with _READING:
        return msgspec.convert(content, kind)


def measured_memory() -> tuple[float, float]:
    """The minimum and typical rate of transfers that share a memory, over the CPUs' rate."""
    shares = _read("efficiencies.toml", _File).measured_memory
    return shares.lowest, shares.typical


@lru_cache(maxsize=1)
def efficiencies() -> tuple[tuple[EngineRate, ...], tuple[EngineRate, ...]]:
    """How engines use links on a good machine: at the low end of the range, and typically."""
    ranges = _read("efficiencies.toml", _File).range

    def rates(typical: bool) -> tuple[EngineRate, ...]:
        return tuple(
            EngineRate(
                engine,
                row.link,
                row.access,
                row.typical if typical else row.lowest,
                row.reverse if typical or row.reverse_lowest is None else row.reverse_lowest,
                row.caps[typical] if row.caps else None,
                source=row.source,
            )
            for row in ranges
            for engine in row.engines
        )

    return rates(False), rates(True)


#: Bytes of a memory channel, and of a module.
CHANNEL_BYTES = 8
#: A virtual machine with more than this part of a socket's CPUs may have been given parts of two.
_LARGE = 4
#: Names of the models that QEMU imitates, whatever the host is. Source: target/i386/cpu.c of QEMU.
_IMITATED = re.compile(r"QEMU|KVM processor|EPYC-[A-Z]|^Intel (?!\(R\)).*Processor \(|^Westmere|^Intel Xeon")


class CpuSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``cpus.toml``; the comments there describe the fields."""

    names: tuple[str, ...]
    channels: int
    transfers: tuple[int, int]
    cpus: int
    second_kib: int
    nanoseconds: Annotated[tuple[float, ...], msgspec.Meta(min_length=5, max_length=5)]
    source: str
    vendor: str = ""
    family: int = 0
    models: tuple[int, ...] = ()
    several: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it is of one design, not the widest of several."""
        return not self.several

    @property
    def slowest(self) -> float:
        """Rate of a socket's memory with the slowest common modules, in B/s."""
        return self.channels * self.transfers[0] * MB * CHANNEL_BYTES

    @property
    def fastest(self) -> float:
        """Rate of a socket's memory with the fastest supported modules, in B/s."""
        return self.channels * self.transfers[1] * MB * CHANNEL_BYTES

    def cache(self, level: int) -> float | None:
        """The typical time of a dependent load from a cache, in s; None for an unknown level."""
        return self.nanoseconds[level - 1] * NANO if 1 <= level <= 3 else None

    def sockets(self, cpus: int) -> int:
        """How many sockets some CPUs of a virtual machine may be spread over without showing it."""
        return 2 if cpus > self.cpus / _LARGE else 1

    @property
    def local(self) -> float:
        """Typical time of a dependent load from the memory of the own socket, in s."""
        return self.nanoseconds[3] * NANO

    @property
    def remote(self) -> float:
        """Typical time of a dependent load from the memory of another socket, in s."""
        return self.nanoseconds[4] * NANO


class Factors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``factors`` of ``cpus.toml``; rates are in GB/s there."""

    warn: float
    fail: float
    loaded: float
    virtual: float
    lowest_share: float
    lowest_line: float
    typical_share: float
    lowest_core: float
    typical_core: float
    lowest_remote: float
    lowest_link: float
    source: str

    def core(self, *, typical: bool = False) -> float:
        """The lowest or typical rate of one CPU, in B/s."""
        return (self.typical_core if typical else self.lowest_core) * GB

    def remote(self, cpus: float) -> float:
        """The lowest rate of some CPUs that copy between sockets, in B/s."""
        return min(cpus * self.lowest_remote, self.lowest_link) * GB


@lru_cache(maxsize=1)
def _tables() -> tuple[Factors, dict[str, CpuSheet]]:
    text = tomllib.loads(files(__package__).joinpath("cpus.toml").read_text())
    with _READING:
        factors = msgspec.convert(text.pop("factors"), Factors)
        return factors, msgspec.convert(text, dict[str, CpuSheet])


def factors() -> Factors:
    """How ranges follow from typical values: the table ``factors`` of ``cpus.toml``."""
    return _tables()[0]


def cpu_sheets() -> dict[str, CpuSheet]:
    """The data sheets by the name of the design."""
    return _tables()[1]


def cpu_sheet(name: str, design: str = "") -> tuple[str, CpuSheet] | None:
    """Name and data sheet of a CPU's design; None if there is none.

    Args:
        name: Name of the CPU, as the kernel reports it.
        design: Vendor, family and model of an x86 CPU; empty if unknown. Where they are known, a name counts
            only for designs that they do not tell apart.
    """
    if _IMITATED.search(name):
        return None
    fitting = (
        (title, sheet)
        for title, sheet in cpu_sheets().items()
        if any(fnmatchcase(name, pattern) for pattern in sheet.names)
    )
    named = next(fitting, None)
    if not design or (named and not named[1].vendor and named[1].is_exact):
        return named
    exact = (
        (title, sheet)
        for title, sheet in cpu_sheets().items()
        for model in sheet.models
        if design == f"{sheet.vendor} {sheet.family} {model}"
    )
    return next(exact, None)


class PathLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``latencies.toml``; the comments there describe the fields."""

    ends: Literal["host", "gpu", "flag"]
    link: LinkKind
    nanoseconds: tuple[float, float]
    source: str
    capability: int | None = None

    @property
    def typical(self) -> float:
        """Typical time of a dependent load, in s."""
        return self.nanoseconds[0] * NANO

    @property
    def most(self) -> float:
        """Time above which it is a warning, in s."""
        return self.nanoseconds[1] * NANO


class _LatencyFactors(msgspec.Struct, forbid_unknown_fields=True):
    fail: float


class _Latencies(msgspec.Struct, forbid_unknown_fields=True):
    factors: _LatencyFactors
    path: tuple[PathLatency, ...]


def fail_factor() -> float:
    """The factor above the warning at which a latency fails."""
    content: _Latencies = _read("latencies.toml", _Latencies)
    return content.factors.fail


def paths() -> tuple[PathLatency, ...]:
    """All tables of ``latencies.toml``."""
    content: _Latencies = _read("latencies.toml", _Latencies)
    return content.path


def path_latency(ends: str, link: LinkKind, capability: str) -> PathLatency | None:
    """The latency of a path; None if nothing is known of it.

    Args:
        ends: Where the memory is that a GPU reads: ``host`` or ``gpu``; ``flag`` for a flag that it sets on
            another GPU, which answers.
        link: Kind of the slowest link on the way.
        capability: Compute capability of the GPU, e.g. ``9.0``.
    """
    major = capability.partition(".")[0]
    return next(
        (
            path
            for path in paths()
            if path.ends == ends and path.link is link and str(path.capability or major) == major
        ),
        None,
    )


#: Maximum numbers of links between two GPUs of which the largest is that of a GPU: a part for each of three
#: others, or all for one. More are of cube meshes, which clouds divide, and of names that say no form.
_FORMS = 2
#: Words before the model that not every driver and tool prints.
_VENDORS = ("nvidia", "tesla", "geforce", "quadro", "hgx")


class GpuSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of ``gpus.toml``; the comments there describe the fields."""

    models: tuple[str, ...]
    memory_mib: int
    capability: str
    source: str
    multiprocessors: int = 0
    memory: tuple[float, ...] = ()
    nvlink: float = 0.0
    links: tuple[int, ...] = ()
    switch: bool = False
    all_links: tuple[int, ...] = ()
    many_hosts: bool = False
    pcie: int = 0
    lanes: int = 16
    c2c: tuple[float, ...] = ()
    desktop: bool = False

    @property
    def memory_rates(self) -> tuple[float, ...]:
        """Possible line rates of the memory in B/s, in ascending order; empty if unknown."""
        return tuple(rate * GB for rate in self.memory)

    @property
    def links_of_gpu(self) -> int:
        """The number of NVLinks of a GPU; of models whose forms use different numbers, the smallest."""
        return max(self.links, default=0) if len(self.links) <= _FORMS else min(self.links)

    def nvlinks(self, count: int) -> float:
        """The line rate of some NVLinks together, in B/s."""
        return count * self.nvlink * GB


@lru_cache(maxsize=1)
def gpu_sheets() -> dict[str, GpuSheet]:
    """The data sheets by the name of their machines."""
    parts: dict[str, dict[str, GpuSheet]] = _read(
        "gpus.toml", dict[Literal["server", "desktop"], dict[str, GpuSheet]]
    )
    return parts["server"] | {name: replace(sheet, desktop=True) for name, sheet in parts["desktop"].items()}


@lru_cache(maxsize=1)
def _by_model() -> dict[str, str]:
    """The name of the data sheet of each model, in lower case."""
    return {model.lower(): name for name, sheet in gpu_sheets().items() for model in sheet.models}


def gpu_sheet(model: str) -> tuple[str, GpuSheet] | None:
    """Name and data sheet for a model as drivers and tools print it; None if there is none.

    Parts of a GPU, as MIG makes them, have none.
    """
    words = model.lower().split()
    while words and words[0] in _VENDORS:
        del words[0]
    name = _by_model().get(" ".join(words))
    return (name, gpu_sheets()[name]) if name else None


class MachineNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``nics.toml``; the comments there describe the fields."""

    gpus: tuple[str, ...]
    count: int
    gbits: float
    source: str
    platform: str = ""
    nic: str = ""


_Networks = dict[Literal["network"], tuple[MachineNetwork, ...]]


def networks() -> tuple[MachineNetwork, ...]:
    """All tables of ``nics.toml``."""
    content: _Networks = _read("nics.toml", _Networks)
    return content["network"]


def of_platform(platform: str, model: str, count: int) -> MachineNetwork | None:
    """The network of a machine of AWS; None if it is unknown, or several have different NICs.

    Args:
        platform: Name of the machine, such as ``p5.48xlarge``; empty if unknown.
        model: Name of its GPUs.
        count: Number of its NICs; 0 if unknown.
    """
    family = platform.lower().partition(".")[0]
    sheet = (gpu_sheet(model) or ("", None))[0]
    fitting = [
        network
        for network in networks()
        if network.platform
        and (network.platform == family if family else sheet in network.gpus and network.count >= count)
    ]
    fitting = [network for network in fitting if network.count == count] or fitting
    return fitting[0] if len({network.gbits for network in fitting}) == 1 else None


def of_nics(names: set[str], model: str) -> MachineNetwork | None:
    """The network of a machine with NICs of these names and GPUs of a model; None if it is unknown."""
    sheet = (gpu_sheet(model) or ("", None))[0]
    if not names:
        return None
    fitting = (network for network in networks() if network.nic and sheet in network.gpus)
    return next((n for n in fitting if all(name.startswith(n.nic) for name in names)), None)
