"""Machine: devices, NUMA nodes, peer access, links and ranks, as plain data; to and from JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from .errors import MachineError
from .files import read
from .model import Access, Engine, Executor, Memory
from .tabular import Tabular
from .terminal import brief
from .units import MIB, many

#: Maximum number of GPUs and of NUMA nodes: reports show all pairs.
_MOST_DEVICES = 1024


class LinkKind(StrEnum):
    """Kind of a link. A ``memory`` link connects a Memory to itself and carries all its reads and writes."""

    MEMORY = "memory"
    NVLINK = "nvlink"
    PCIE = "pcie"
    C2C = "c2c"
    SOCKET = "socket"
    NETWORK = "network"


@dataclass(frozen=True)
class Link:
    """A directed link between two vertices (devices, NUMA nodes, ranks' devices, switches).

    Parameters
    ----------
    source, destination : str
        Vertices that the link connects.
    kind : LinkKind
        Kind of the link.
    capacity : float or None
        Line rate in B/s; None if unknown.
    origin : str
        Origin of the capacity.
    latency : float or None
        Round-trip time that the link adds to a dependent load, in s; None if unknown.
    assumed : bool
        Whether the capacity is that of a data sheet or of another machine, and was not read from this one.
    """

    source: str
    destination: str
    kind: LinkKind
    capacity: float | None = None
    origin: str = ""
    latency: float | None = None
    assumed: bool = False


@dataclass(frozen=True)
class Cache:
    """A cache of a core.

    Parameters
    ----------
    level : int
        1 is closest to the core.
    type : str
        Kind of its content, e.g. ``Data`` or ``Unified``.
    bytes : int
        Size of one instance.
    shared_by : int
        Number of logical CPUs that share an instance.
    latency : float or None
        Time of a dependent load, in s; None if unknown.
    """

    level: int
    type: str
    bytes: int
    shared_by: int = 1
    latency: float | None = None


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node.

    Parameters
    ----------
    index : int
        Number of the node.
    cpus : tuple[int, ...]
        Logical CPUs that this process may use; first one per physical core, then the others.
    threads_per_core : int
        Hardware threads per physical core.
    memory_bytes, free_bytes : int
        Size of the memory and its free part.
    distances : tuple[int, ...]
        ACPI SLIT distances to all nodes.
    """

    index: int
    cpus: tuple[int, ...] = ()
    threads_per_core: int = 1
    memory_bytes: int = 0
    free_bytes: int = 0
    distances: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of its Memory and its Executor: ``numa0``."""
        return f"numa{self.index}"

    @property
    def cores(self) -> tuple[int, ...]:
        """One logical CPU per physical core."""
        return self.cpus[: max(1, len(self.cpus) // max(1, self.threads_per_core))] if self.cpus else ()


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Parameters
    ----------
    index : int
        Number of the GPU.
    model : str
        Name of the product.
    bus_id : str
        PCI bus ID.
    memory_bytes : int
        Size of the memory.
    numa : int
        Index of the nearest NUMA node.
    multiprocessors : int
        Number of streaming multiprocessors.
    compute_capability : str
        CUDA compute capability, e.g. ``9.0``.
    peers : tuple[str, ...]
        Names of the GPUs whose memory it can access.
    backend : str
        Backend that discovered and measures it; empty if it was described by hand.
    uuid : str
        UUID, as ``nvidia-smi -L`` shows it; empty if unknown.
    """

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
    def name(self) -> str:
        """Name of its Memory and its Executor: ``gpu0``."""
        return f"gpu{self.index}"

    @property
    def has_bulk_copy(self) -> bool:
        """Whether its kernels support bulk asynchronous copies (compute capability 9.0 and later)."""
        major = self.compute_capability.partition(".")[0]
        return major.isdecimal() and int(major) >= 9


@dataclass(frozen=True)
class Rank:
    """A process of a job.

    Parameters
    ----------
    index : int
        Number of the rank.
    host : str
        Name of its host.
    device : str
        Device whose memory it owns: ``gpu0``, ``numa0``.
    cpus : tuple[int, ...]
        CPUs of its threads, if the device is host memory.
    model, bus_id, uuid : str
        Product, PCI bus ID and UUID of its GPU; empty if unknown.
    """

    index: int
    host: str
    device: str
    cpus: tuple[int, ...] = ()
    model: str = ""
    bus_id: str = ""
    uuid: str = ""


@dataclass(frozen=True)
class EngineRate:
    """How an engine uses links of one kind.

    Parameters
    ----------
    engine : Engine
        The engine.
    link : LinkKind
        Kind of the links.
    access : Access or None
        Access that the record is for; None for any.
    efficiency : float
        Payload over line rate.
    reverse : float
        Bytes on the opposite link (requests, acknowledgements) per byte of payload.
    cap : float or None
        Maximum rate of one executor over such a link, in B/s; for ``cpu``, per thread.
    block_cap : float or None
        Maximum rate of one block of a kernel, in B/s.
    source : str
        Source of the values.
    """

    engine: Engine
    link: LinkKind
    access: Access | None = None  # None: any
    efficiency: float = 1.0
    reverse: float = 0.0
    cap: float | None = None
    block_cap: float | None = None
    source: str = ""


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
    CAUSE = "cause"  #: a cause of slow paths, with what the system then reports

    @property
    def of_links(self) -> bool:
        """Whether the fault is one of links, not of transfers."""
        return self in (FaultKind.SPEED, FaultKind.DOWN)


@dataclass(frozen=True)
class Fault:
    """A fault of a simulated machine. Its description, and so the expected ranges, stay the same.

    Parameters
    ----------
    kind : FaultKind
        Kind of the fault.
    where : str
        Prefix of the text of the affected transfers (``gpu0->gpu1``); for a fault of links, a text as in
        ``Machine.links_at``; for a cause, its place; for a GPU that is gone, its PCI address; for noise, its
        level.
    factor : float
        Factor of the speed of links; for a cause, its amount; for a full memory, its free bytes; for noise,
        its relative standard deviation.
    cause : str
        Name of a cause.
    """

    kind: FaultKind
    where: str = ""
    factor: float = 1.0
    cause: str = ""


@dataclass(frozen=True)
class Machine(Tabular):
    """All that is known about a machine before a measurement.

    Parameters
    ----------
    name : str
        Name of the machine.
    host : str
        Host name.
    cpu : str
        Name of the CPU.
    architecture : str
        Instruction set, e.g. ``x86_64``.
    kernel : str
        Version of the operating system's kernel.
    simulated : bool
        Whether the machine exists only as this description.
    driver : str
        Version of the GPU driver.
    cuda : int
        CUDA version of the driver, e.g. 13000 for 13.0.
    confidential : bool
        Whether the GPUs are in confidential computing mode.
    page_bytes, huge_page_bytes : int
        Sizes of pages and huge pages.
    transparent_huge_pages : str
        Setting of transparent huge pages.
    caches : tuple[Cache, ...]
        Caches of a core.
    numa : tuple[NumaNode, ...]
        NUMA nodes.
    gpus : tuple[Gpu, ...]
        GPUs.
    links : tuple[Link, ...]
        Directed links.
    ranks : tuple[Rank, ...]
        Ranks of a job of several processes.
    rates : tuple[EngineRate, ...]
        How the engines of a simulated machine use its links.
    noise : float
        Relative noise of simulated samples.
    faults : tuple[Fault, ...]
        Faults of a simulated machine.
    notes : tuple[str, ...]
        What could not be determined, and why.
    """

    name: str
    host: str = ""
    cpu: str = ""
    architecture: str = ""
    kernel: str = ""
    simulated: bool = False
    driver: str = ""
    cuda: int = 0
    confidential: bool = False
    page_bytes: int = 4096
    huge_page_bytes: int = 0
    transparent_huge_pages: str = ""
    caches: tuple[Cache, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    ranks: tuple[Rank, ...] = ()
    rates: tuple[EngineRate, ...] = ()
    noise: float = 0.0
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line; ``wirespeed machine`` shows everything."""
        counts = {"NUMA node": self.numa, "GPU": self.gpus, "link": self.links, "rank": self.ranks}
        parts = [many(len(found), what) for what, found in counts.items() if found]
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Machine {self.name}{kind}: {', '.join(parts) or 'empty'}")

    def vertex(self, end: Memory | Executor) -> str:
        """Return the vertex of the link graph for a Memory or an Executor.

        In a job of several processes, the vertex of a device includes its rank. A device named without a rank
        belongs to this process, which runs on the host of the first rank.
        """
        if end.rank is None:
            for rank in self.ranks:
                if rank.host == self.ranks[0].host and rank.device == end.device:
                    return f"{rank.index}/{end.device}"
        return str(end)

    def links_at(self, where: str) -> tuple[int, ...]:
        """Return the indices of the links that a text names; empty if there are none.

        ``gpu0-gpu1``: both directions between two vertices (``gpu0-gpu0``: the memory of ``gpu0``),
        ``gpu0->gpu1``: one direction, ``gpu0``: all links at a vertex, including its memory.
        """
        return tuple(
            i
            for i, x in enumerate(self.links)
            if where
            in (
                x.source,
                x.destination,
                f"{x.source}->{x.destination}",
                f"{x.source}-{x.destination}",
                f"{x.destination}-{x.source}",
            )
        )

    def only(self, devices: Collection[int]) -> Machine:
        """Return the Machine with only these GPUs.

        Links and faults of the other GPUs go with them, and so do switches that then lead nowhere.

        Parameters
        ----------
        devices : Collection[int]
            Indices of the GPUs to keep.

        Returns
        -------
        Machine
            A machine without the other GPUs.

        Raises
        ------
        MachineError
            If a GPU does not exist.
        """
        present = {gpu.index for gpu in self.gpus}
        if absent := sorted(set(devices) - present):
            there = ", ".join(map(str, sorted(present))) or "none"
            raise MachineError(f"GPU {absent[0]} does not exist; GPUs of this machine: {there}")
        kept = {gpu.name for gpu in self.gpus if gpu.index in devices}
        gpus = tuple(
            replace(gpu, peers=tuple(peer for peer in gpu.peers if peer in kept))
            for gpu in self.gpus
            if gpu.name in kept
        )
        ends = {gpu.name for gpu in gpus} | {node.name for node in self.numa}
        gone = _dead_ends(self.links, {gpu.name for gpu in self.gpus} - ends, ends)
        links = tuple(link for link in self.links if gone.isdisjoint((link.source, link.destination)))
        faults = tuple(fault for fault in self.faults if gone.isdisjoint(re.split("->?", fault.where)))
        return replace(self, gpus=gpus, links=links, faults=faults)

    @property
    def unknown_memories(self) -> tuple[str, ...]:
        """NUMA nodes whose memory has no known capacity."""
        nodes = {node.name for node in self.numa}
        return tuple(
            link.source
            for link in self.links
            if link.source == link.destination and link.source in nodes and link.capacity is None
        )

    def with_host_memory(self, capacity: float) -> Machine:
        """Return the Machine with this capacity of host memory, in B/s, for each NUMA node without one."""
        unknown = [(name, name) for name in self.unknown_memories]
        links = tuple(
            replace(link, capacity=capacity, origin="given")
            if (link.source, link.destination) in unknown
            else link
            for link in self.links
        )
        return replace(self, links=links)

    def last_cache_bytes(self) -> int:
        """Total size of the last cache level that the CPUs of the largest node share, in bytes.

        32 MiB if no cache is known.
        """
        last = max((c for c in self.caches if c.type != "instruction"), key=lambda c: c.level, default=None)
        if last is None:
            return 32 * MIB
        most = max((len(node.cpus) for node in self.numa), default=1)
        return last.bytes * max(1, -(-most // max(1, last.shared_by)))

    def to_json(self) -> bytes:
        """Return the description as indented JSON, for ``load``."""
        import msgspec

        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def _dead_ends(links: Iterable[Link], removed: set[str], devices: set[str]) -> set[str]:
    """Return the removed vertices with the switches that connect nothing any more without them."""
    near: dict[str, set[str]] = {}
    for link in links:
        near.setdefault(link.source, set()).add(link.destination)
        near.setdefault(link.destination, set()).add(link.source)
    gone, added = set(removed), set(removed)
    while added:
        beside = set().union(*(near.get(name, set()) for name in added)) - gone - devices
        added = {name for name in beside if len(near[name] - gone) < 2}
        gone |= added
    return gone


def load(path: str | Path) -> Machine:
    """Load a Machine from a JSON file.

    Raises
    ------
    MachineError
        If the file cannot be read or is not a valid description; the message names the field.
    """
    import msgspec

    try:
        return check(msgspec.json.decode(read(path), type=Machine))
    except OSError as error:
        raise MachineError(f"cannot read the machine file {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(
            f"{path} is not a valid machine file: {error}; "
            "`wirespeed machine --format json` writes one that you can edit"
        ) from error


def check(machine: Machine) -> Machine:
    """Return a Machine from a file; reject impossible values, so that no other code needs to check them.

    Raises
    ------
    MachineError
        If a value is impossible; the message names the first.
    """
    names = {gpu.name for gpu in machine.gpus}
    problems = [
        *(f"link {x.source}->{x.destination} has capacity {x.capacity}" for x in machine.links
          if x.capacity is not None and not 0 < x.capacity < 1e18),
        *(f"link {x.source}->{x.destination} has latency {x.latency}" for x in machine.links
          if x.latency is not None and not 0 <= x.latency < 1),
        *(f"{x.engine} over {x.link} has efficiency {x.efficiency}, reverse {x.reverse}, cap {x.cap}"
          for x in machine.rates
          if not 0 < x.efficiency <= 1 or not 0 <= x.reverse < 10 or (x.cap is not None and x.cap <= 0)),
        *_duplicates("NUMA node", (node.index for node in machine.numa)),
        *_duplicates("GPU", (gpu.index for gpu in machine.gpus)),
        *(f"{gpu.name} has the peer {peer}, which does not exist"
          for gpu in machine.gpus for peer in gpu.peers if peer not in names),
    ]  # fmt: skip
    if max(len(machine.gpus), len(machine.numa)) > _MOST_DEVICES:
        problems.append(f"it has {len(machine.gpus)} GPUs and {len(machine.numa)} NUMA nodes")
    if [rank.index for rank in machine.ranks] != list(range(len(machine.ranks))):
        problems.append("ranks are not numbered 0, 1, 2, ...")
    if not 0 <= machine.noise < 0.5:
        problems.append(f"noise is {machine.noise}")
    if problems:
        raise MachineError(f"machine {machine.name!r} is invalid: {problems[0]}")
    return machine


def _duplicates(what: str, numbers: Iterable[int]) -> list[str]:
    seen: set[int] = set()
    return [f"duplicate {what} {n}" for n in numbers if n in seen or seen.add(n)]  # type: ignore[func-returns-value]
