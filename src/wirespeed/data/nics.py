"""Published latencies of GPUs, in ``latencies.toml``.

The data sheets of GPUs in ``gpus.toml``.

The networks of machines in ``nics.toml``.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..hardware.topology import LinkKind
from ..units import GB, NANO
from . import READING


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


@lru_cache(maxsize=1)
def _read() -> _Latencies:
    with READING:
        return msgspec.convert(
            tomllib.loads(files(__package__).joinpath("latencies.toml").read_text()), _Latencies
        )


def fail_factor() -> float:
    """Return the factor above the warning at which a latency fails."""
    return _read().factors.fail


def paths() -> tuple[PathLatency, ...]:
    """All tables of ``latencies.toml``."""
    return _read().path


def path_latency(ends: str, link: LinkKind, capability: str) -> PathLatency | None:
    """Return the latency of a path; None if nothing is known of it.

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
            if path.ends == ends and path.link is link and path.capability in (None, _number(major))
        ),
        None,
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else -1


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

    def nvlinks(self, count: int) -> float:
        """Return the line rate of some NVLinks together, in B/s."""
        return count * self.nvlink * GB


@lru_cache(maxsize=1)
def gpu_sheets() -> dict[str, GpuSheet]:
    """Return the data sheets by the name of their machines."""
    text = files(__package__).joinpath("gpus.toml").read_text()
    with READING:
        parts = msgspec.convert(tomllib.loads(text), dict[Literal["server", "desktop"], dict[str, GpuSheet]])
    return parts["server"] | {name: replace(sheet, desktop=True) for name, sheet in parts["desktop"].items()}


@lru_cache(maxsize=1)
def _by_model() -> dict[str, str]:
    """Return the name of the data sheet of each model, in lower case."""
    return {model.lower(): name for name, sheet in gpu_sheets().items() for model in sheet.models}


def gpu_sheet(model: str) -> tuple[str, GpuSheet] | None:
    """Return name and data sheet for a model as drivers and tools print it; None if there is none.

    Parts of a GPU, such as those of MIG, have none.
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


class _Networks(msgspec.Struct, forbid_unknown_fields=True):
    network: tuple[MachineNetwork, ...]


@lru_cache(maxsize=1)
def networks() -> tuple[MachineNetwork, ...]:
    """All tables of ``nics.toml``."""
    text = files(__package__).joinpath("nics.toml").read_text()
    with READING:
        return msgspec.convert(tomllib.loads(text), _Networks).network


def of_platform(platform: str, model: str, count: int) -> MachineNetwork | None:
    """Return the network of a machine of AWS; None if it is unknown, or several have different NICs.

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
    """Return the network of a machine with NICs of these names and GPUs of a model; None if it is unknown."""
    sheet = (gpu_sheet(model) or ("", None))[0]
    if not names:
        return None
    fitting = (network for network in networks() if network.nic and sheet in network.gpus)
    return next((n for n in fitting if all(name.startswith(n.nic) for name in names)), None)
