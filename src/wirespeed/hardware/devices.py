"""Kinds of devices with their table, the one function that parses their names, and faults of simulated ones.
Another package adds a kind by an entry point of the group ``wirespeed.devices`` that names a ``DeviceKind``.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..errors import MachineError
from ..model import Engine, MemoryKind
from ..units import format_size

if TYPE_CHECKING:
    from importlib import metadata


class DeviceRecord:
    """Base of the records that describe one device in a Machine: frozen dataclasses.

    Attributes:
        prefix: Name of its kind, and the beginning of its own: ``gpu``.
        index: Number of the device.
        memory_bytes: Size of its memory.
    """

    prefix: ClassVar[str]
    index: int
    memory_bytes: int

    @property
    def name(self) -> str:
        """Name of its Memory and its Executor: ``gpu0``."""
        return f"{self.prefix}{self.index}"

    @property
    def about(self) -> str:
        """What distinguishes it, in a few words: its model."""
        return self.name

    @property
    def node(self) -> int | None:
        """Index of the NUMA node to which it is attached; None if unknown, or if it is one."""
        return None


@dataclass(frozen=True)
class Picture:
    """How drawings of a machine show a device of a kind.

    Attributes:
        width, height: Maximum width and height of its box, in pixels.
        radius: Radius of the corners, in pixels.
        css: CSS classes of the box.
    """

    width: float = 190.0
    height: float = 62.0
    radius: float = 9.0
    css: str = "box"


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device.

    Attributes:
        name: Name of the kind, of lower-case letters; the names of its devices are this and a number:
            ``gpu0``. All of its devices are ``gpus`` in the language of transfers.
        words: What people call one of its devices, and several.
        record: Class of the records of its devices in a Machine, and in its JSON.
        memories: How its memory is allocated; the default first.
        engines: Engines of its executors, the default first; empty if it executes no transfers.
        key_figures: Testcases whose typical value is the key figure of its memory; the first group that was
            measured counts.
        testcases: Prefixes of the names of the testcases of its memory; empty for those that every kind has.
        ranks: Whether a process of a job can own one.
        picture: How drawings show it.
    """

    name: str
    words: tuple[str, str]
    record: type[DeviceRecord]
    memories: tuple[MemoryKind, ...]
    engines: tuple[Engine, ...]
    key_figures: tuple[tuple[str, ...], ...]
    testcases: tuple[str, ...] = ()
    ranks: bool = False
    picture: Picture = Picture()

    @property
    def is_host(self) -> bool:
        """Whether its memory belongs to CPUs, which are its executors."""
        return Engine.CPU in self.engines


@dataclass(frozen=True)
class Gpu(DeviceRecord):
    """A GPU.

    Attributes:
        index: Number of the GPU.
        model: Name of the product.
        bus_id: PCI bus ID.
        memory_bytes: Size of the memory.
        numa: Index of the nearest NUMA node.
        multiprocessors: Number of streaming multiprocessors.
        compute_capability: CUDA compute capability, e.g. ``9.0``.
        peers: Names of the GPUs whose memory it can access.
        backend: Backend that discovered and measures it; empty if it was described by hand.
        uuid: UUID, as ``nvidia-smi -L`` shows it; empty if unknown.
    """

    prefix: ClassVar[str] = "gpu"
    index: int
    model: str
    bus_id: str = ""
    memory_bytes: int = 0
    numa: int = 0
    multiprocessors: int = 0
    compute_capability: str = ""
    peers: tuple[str, ...] = ()
    backend: str = ""
    uuid: str = ""

    @property
    def has_bulk_copy(self) -> bool:
        """Whether its kernels support bulk asynchronous copies (compute capability 9.0 and later)."""
        major = self.compute_capability.partition(".")[0]
        return major.isdecimal() and int(major) >= 9

    @property
    def about(self) -> str:
        return self.model.removeprefix("NVIDIA ")

    @property
    def node(self) -> int:
        return self.numa


GPU = DeviceKind(
    name="gpu",
    words=("GPU", "GPUs"),
    record=Gpu,
    memories=(MemoryKind.DEVICE,),
    engines=(Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT),
    key_figures=(("device_stream_triad",), ("device_stream_copy",), ("device_local_copy",)),
    testcases=("device_local", "device_stream", "device_saxpy"),
    ranks=True,
)


@dataclass(frozen=True)
class NumaNode(DeviceRecord):
    """A NUMA node.

    Attributes:
        index: Number of the node.
        cpus: Logical CPUs that this process may use; first one per physical core, then the others.
        threads_per_core: Hardware threads per physical core; of cores with unequal numbers, the largest.
        memory_bytes, free_bytes: Size of the memory and its free part.
        distances: ACPI SLIT distances to all nodes.
        core_count: Number of physical cores, if they have unequal numbers of usable threads; else 0.
        allowed: Whether this process may use the memory.
    """

    prefix: ClassVar[str] = "numa"
    index: int
    cpus: tuple[int, ...] = ()
    threads_per_core: int = 1
    memory_bytes: int = 0
    free_bytes: int = 0
    distances: tuple[int, ...] = ()
    core_count: int = 0
    allowed: bool = True

    @property
    def cores(self) -> tuple[int, ...]:
        """One logical CPU per physical core."""
        count = self.core_count or len(self.cpus) // max(1, self.threads_per_core)
        return self.cpus[: max(1, count)] if self.cpus else ()

    @property
    def about(self) -> str:
        return f"{len(self.cores)} cores, {format_size(self.memory_bytes)}"


NUMA = DeviceKind(
    name="numa",
    words=("NUMA node", "NUMA nodes"),
    record=NumaNode,
    memories=(MemoryKind.PAGEABLE, MemoryKind.PINNED),
    engines=(Engine.CPU,),
    key_figures=(("host_stream_triad",), ("host_stream_copy",), ("numa_to_numa_memcpy_read_cpu",)),
    testcases=("numa_", "all_nodes", "host_"),
    ranks=True,
)


@dataclass(frozen=True)
class Storage(DeviceRecord):
    """A folder on a storage device, which a run was asked to measure.

    Attributes:
        index: Number of the device.
        folder: The folder.
        filesystem: Type of its file system, such as ``ext4``.
        model: Names of the products below it; empty if unknown.
        layers: What is between the file system and the devices: ``encrypted``, ``RAID 0``, ``LVM``, ...
        past_cache: Whether calls bypass the page cache. If not, the page cache gives the values.
        memory_bytes: Size of the file that a run may create.
        numa: Index of the nearest NUMA node; -1 if unknown.
    """

    prefix: ClassVar[str] = "storage"
    index: int
    folder: str = ""
    filesystem: str = ""
    model: str = ""
    layers: tuple[str, ...] = ()
    past_cache: bool = True
    memory_bytes: int = 0
    numa: int = -1

    @property
    def about(self) -> str:
        cache = () if self.past_cache else ("page cache",)
        return ", ".join(filter(None, (self.model, self.filesystem, *self.layers, *cache)))

    @property
    def node(self) -> int | None:
        return None if self.numa < 0 else self.numa


STORAGE = DeviceKind(
    name="storage",
    words=("storage device", "storage devices"),
    record=Storage,
    memories=(MemoryKind.FILE,),
    engines=(),
    key_figures=(("storage_read",), ("storage_write",)),
    testcases=("storage_",),
    picture=Picture(width=150.0, height=58.0, radius=3.0),
)
_NAME = re.compile(r"([a-z]+)(\d+)", re.ASCII)
#: Groups of entry points, each for one kind of addition.
BACKENDS, DEVICES = "wirespeed.backends", "wirespeed.devices"


def registered(group: str) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of a group: what other packages add to wirespeed."""
    if group not in _entry_points(tuple(sys.path)):
        return ()
    from importlib import metadata  # it takes tens of ms, and few systems have such packages

    return tuple(metadata.entry_points(group=group))


@lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> str:
    """The descriptions of the entry points of all installed packages."""
    texts = []
    for folder in map(Path, path):
        with suppress(OSError):  # not a folder
            for about in folder.iterdir():
                if about.name.endswith("-info"):
                    with suppress(OSError):
                        texts.append((about / "entry_points.txt").read_text(errors="replace"))
    return "\n".join(texts)


#: The kinds of devices of this package.
KINDS = (NUMA, GPU, STORAGE)


def kinds() -> tuple[DeviceKind, ...]:
    """All kinds of devices: of this package, then of other packages by name."""
    return *KINDS, *_registered(tuple(sys.path))


def added() -> tuple[DeviceKind, ...]:
    """The kinds whose devices are in ``Machine.others``: all but NUMA nodes and GPUs."""
    return tuple(kind for kind in kinds() if kind not in (NUMA, GPU))


@lru_cache(maxsize=1)
def _registered(path: tuple[str, ...]) -> tuple[DeviceKind, ...]:
    del path  # part of the cache key
    loaded: list[DeviceKind] = [point.load() for point in registered(DEVICES)]
    return tuple(sorted(loaded, key=lambda kind: kind.name))


def parse(name: str) -> tuple[DeviceKind, int] | None:
    """The kind and the number of a device; None if it is the name of no device.

    Args:
        name: Name of a device, without its rank or host: ``gpu0``.
    """
    match = _NAME.fullmatch(name)
    kind = next((kind for kind in kinds() if match and kind.name == match[1]), None)
    return (kind, int(match[2])) if match and kind else None


def _parsed(name: str) -> tuple[DeviceKind, int]:
    parsed = parse(name)
    if parsed is None:
        known = ", ".join(f"{kind.name}0" for kind in kinds())
        raise MachineError(f"{name!r} is not the name of a device; names of devices are such as {known}")
    return parsed


def kind_of(name: str) -> DeviceKind:
    """The kind of a device by its name.

    Raises:
        MachineError: If no kind has such a name.
    """
    return _parsed(name)[0]


def number_of(name: str) -> int:
    """The number of a device by its name: 3 of ``gpu3``.

    Raises:
        MachineError: If no kind has such a name.
    """
    return _parsed(name)[1]


def is_host(name: str) -> bool:
    """Whether a NUMA node has this name, or another device whose memory belongs to CPUs."""
    parsed = parse(name)
    return parsed is not None and parsed[0].is_host


class FaultKind(StrEnum):
    """Kinds of faults of a simulated machine."""

    CORRUPT = "corrupt"  #: a destination gets wrong data
    ERROR = "error"  #: a call fails
    LOST = "lost"  #: the device is lost
    HANG = "hang"  #: a call hangs until it is cancelled
    STUCK = "stuck"  #: a call hangs forever
    SPEED = "speed"  #: the speed of links is multiplied by a factor
    DOWN = "down"  #: links are missing
    BUSY = "busy"  #: another process uses the machine
    GONE = "gone"  #: a GPU is on the PCI bus, but the driver does not show it
    FULL = "full"  #: another process uses all of a GPU's memory, or leaves a number of bytes
    NOISE = "noise"  #: times vary between samples, rounds or runs, or slowly
    DROPPED = "dropped"  #: what a GPU writes to the memory of another vanishes without an error
    LATE = "late"  #: data that a GPU writes to another arrives after its flag
    UNSEEN = "unseen"  #: flags that a GPU sets in the memory of another are never seen
    BOTH_WAYS = "both-ways"  #: data between two GPUs is lost if both write at once
    MECHANISM = "mechanism"  #: one mechanism of peer access does not work
    SLOW = "slow"  #: the speed of copies from one GPU to another is multiplied by a factor
    NO_PEERS = "no-peers"  #: the driver offers no peer access
    CAUSE = "cause"  #: a cause of slow paths, with what the system then reports

    @property
    def of_pairs(self) -> bool:
        """Whether the fault is one of peer access between two GPUs."""
        return self in _OF_PAIRS

    @property
    def of_links(self) -> bool:
        """Whether the fault is one of links, not of transfers."""
        return self in (FaultKind.SPEED, FaultKind.DOWN)


_OF_PAIRS = (
    FaultKind.DROPPED, FaultKind.LATE, FaultKind.UNSEEN, FaultKind.BOTH_WAYS, FaultKind.SLOW,
    FaultKind.NO_PEERS, FaultKind.MECHANISM,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A fault of a simulated machine. Its description, and so the expected ranges, stay the same.

    Attributes:
        kind: Kind of the fault.
        where: Prefix of the text of the affected transfers (``gpu0->gpu1``); for a fault of links, a text as
            in ``Machine.links_at``; of pairs, ``gpu0->gpu1``, ``gpu0-gpu1`` (both directions), ``gpu0`` (all
            pairs with it) or empty; for a cause, its place; for a GPU that is gone, its PCI address; for
            noise, its level.
        factor: Factor of the speed of links or copies; for a cause, its amount; for a full memory, its free
            bytes; for noise, its relative standard deviation.
        cause: Name of a cause, or of a mechanism of peer access.
    """

    kind: FaultKind
    where: str = ""
    factor: float = 1.0
    cause: str = ""

    def concerns(self, source: str, destination: str) -> bool:
        """Whether a fault of pairs is one of a GPU that accesses the memory of another."""
        a, b = source, destination
        return self.where in ("", a, b, f"{a}->{b}", f"{a}-{b}", f"{b}-{a}")
