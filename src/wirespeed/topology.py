"""Machine: devices, NUMA nodes, peer access, links and ranks, as plain data; to and from JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from .errors import MachineError
from .model import Access, Engine, Executor, Memory
from .units import MIB, many


class LinkKind(StrEnum):
    """What a link is made of. ``memory`` joins a Memory to itself: all that is read and written."""

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
    capacity
        Line rate in B/s; None where unknown.
    origin
        Where the capacity comes from.
    latency
        What the link adds to a dependent load there and back, in s; None where unknown.
    """

    source: str
    destination: str
    kind: LinkKind
    capacity: float | None = None
    origin: str = ""
    latency: float | None = None


@dataclass(frozen=True)
class Cache:
    """One cache of a core. ``bytes`` is the size of one instance, ``shared_by`` its logical CPUs."""

    level: int
    type: str
    bytes: int
    shared_by: int = 1
    latency: float | None = None


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node. ``cpus`` are those that this process may use, one per physical core first."""

    index: int
    cpus: tuple[int, ...] = ()
    threads_per_core: int = 1
    memory_bytes: int = 0
    free_bytes: int = 0
    distances: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of its Memory and of its Executor: ``numa0``."""
        return f"numa{self.index}"

    @property
    def cores(self) -> tuple[int, ...]:
        """One logical CPU of each physical core."""
        return self.cpus[: max(1, len(self.cpus) // max(1, self.threads_per_core))] if self.cpus else ()


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Parameters
    ----------
    peers
        Names of the GPUs whose memory it can reach.
    backend
        Backend that discovered it, and that measures it; empty where it was described by hand.
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

    @property
    def name(self) -> str:
        """The name of its Memory and of its Executor: ``gpu0``."""
        return f"gpu{self.index}"

    @property
    def has_bulk_copy(self) -> bool:
        """Whether its kernels can copy in bulk, asynchronously (compute capability 9.0 and later)."""
        major = self.compute_capability.partition(".")[0]
        return major.isdecimal() and int(major) >= 9


@dataclass(frozen=True)
class Rank:
    """A process of a job: its number, its host, the device whose memory it owns.

    ``cpus`` are those of its threads where that is host memory.
    """

    index: int
    host: str
    device: str
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class EngineRate:
    """How an engine uses links of one kind.

    Parameters
    ----------
    efficiency
        Payload over line rate.
    reverse
        Bytes on the opposite link (requests, acknowledgements) per byte of payload.
    cap
        The most that one executor reaches over such a link, in B/s; for ``cpu``, per thread.
    block_cap
        The most that one block of a kernel reaches, in B/s.
    source
        Where the figures come from.
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
    """What can be made to go wrong on a simulated machine."""

    CORRUPT = "corrupt"  #: a destination gets wrong data
    ERROR = "error"  #: a call fails
    LOST = "lost"  #: the device is gone
    HANG = "hang"  #: nothing comes back until it is cancelled
    STUCK = "stuck"  #: nothing comes back at all
    SPEED = "speed"  #: links are so many times as fast as they are described
    DOWN = "down"  #: links are not there
    BUSY = "busy"  #: something else uses the machine

    @property
    def of_links(self) -> bool:
        """Whether it is a fault of links, not of transfers."""
        return self in (FaultKind.SPEED, FaultKind.DOWN)


@dataclass(frozen=True)
class Fault:
    """A fault in every transfer whose text starts with ``where`` (``gpu0->gpu1``).

    For a fault of links ``where`` is what ``Machine.links_at`` reads; ``factor`` is what the speed
    is multiplied by. The description of the machine, and with it what is expected, stays the same.
    """

    kind: FaultKind
    where: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Machine:
    """Everything that is known of a machine before anything is measured.

    ``notes`` say what could not be found out, and why. ``simulated`` machines exist only as this
    description; ``rates``, ``noise`` and ``faults`` say how they behave. ``confidential``: its GPUs are
    in confidential computing mode.
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
        """One line; ``wirespeed machine`` shows the whole."""
        counts = {"NUMA node": self.numa, "GPU": self.gpus, "link": self.links, "rank": self.ranks}
        parts = [many(len(found), what) for what, found in counts.items() if found]
        return f"<Machine {self.name}: {', '.join(parts) or 'nothing is known of it'}>"

    def vertex(self, end: Memory | Executor) -> str:
        """Return the vertex of the graph of links at which a Memory or an Executor is.

        In a job of several processes a device's vertex carries its rank; a device named without
        one is this process's, which runs on the host of the first rank.
        """
        if end.rank is None:
            for rank in self.ranks:
                if rank.host == self.ranks[0].host and rank.device == end.device:
                    return f"{rank.index}/{end.device}"
        return str(end)

    def links_at(self, where: str) -> tuple[int, ...]:
        """Return the indices of the links that a text names; none where there is no such link.

        ``gpu0-gpu1``: both ways between two vertices (``gpu0-gpu0``: the memory of ``gpu0``),
        ``gpu0->gpu1``: one way, ``gpu0``: all links at a vertex, its memory too.
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
        """Return the Machine with these GPUs alone.

        Raises
        ------
        MachineError
            If one of them is not there.
        """
        present = {gpu.index for gpu in self.gpus}
        if absent := sorted(set(devices) - present):
            there = ", ".join(map(str, sorted(present))) or "none"
            raise MachineError(f"there is no GPU {absent[0]}; GPUs here: {there}")
        kept = {gpu.name for gpu in self.gpus if gpu.index in devices}
        gpus = tuple(
            replace(gpu, peers=tuple(peer for peer in gpu.peers if peer in kept))
            for gpu in self.gpus
            if gpu.name in kept
        )
        return replace(self, gpus=gpus)

    def last_cache_bytes(self) -> int:
        """Size of the last cache level, all instances that the CPUs of the largest node share.

        32 MiB where nothing is known.
        """
        last = max((c for c in self.caches if c.type != "instruction"), key=lambda c: c.level, default=None)
        if last is None:
            return 32 * MIB
        most = max((len(node.cpus) for node in self.numa), default=1)
        return last.bytes * max(1, -(-most // max(1, last.shared_by)))

    def to_json(self) -> bytes:
        """Return the description as indented JSON, which ``load`` reads back."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def load(path: str | Path) -> Machine:
    """Read a Machine from a JSON file.

    Raises
    ------
    MachineError
        If the file cannot be read or does not describe a Machine; the message names the field.
    """
    try:
        return _check(msgspec.json.decode(Path(path).read_bytes(), type=Machine))
    except OSError as error:
        raise MachineError(f"cannot read the machine file {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(
            f"{path} does not describe a machine: {error}; "
            "`wirespeed machine --format json` writes one to start from"
        ) from error


def _check(machine: Machine) -> Machine:
    """Refuse figures that no machine can have, so that nothing below needs to."""
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
    ]  # fmt: skip
    if [rank.index for rank in machine.ranks] != list(range(len(machine.ranks))):
        problems.append("ranks are not numbered 0, 1, 2, ...")
    if not 0 <= machine.noise < 0.5:
        problems.append(f"noise is {machine.noise}")
    if problems:
        raise MachineError(f"machine {machine.name!r} cannot be: {problems[0]}")
    return machine


def _duplicates(what: str, numbers: Iterable[int]) -> list[str]:
    seen: set[int] = set()
    return [f"{what} {n} is there twice" for n in numbers if n in seen or seen.add(n)]  # type: ignore[func-returns-value]
