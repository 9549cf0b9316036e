"""Machine: devices, peer access, links and ranks, as plain data; to and from JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import MachineError
from ..files import read
from ..model import Access, Engine, Executor, Memory
from ..terminal import Tabular, brief, neutral_json, unknown_name
from ..units import MIB, many
from .devices import GPU, NUMA, DeviceKind, DeviceRecord, Fault, Gpu, NumaNode, added, parse

#: Maximum number of devices of a kind: reports show all pairs.
_MOST_DEVICES = 1024
#: Model of the GPUs of a log that does not name them.
UNKNOWN_GPU = "GPU of unknown model"


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

    Attributes:
        source, destination: Vertices that the link connects.
        kind: Kind of the link.
        capacity: Line rate in B/s; None if unknown.
        origin: Origin of the capacity.
        latency: Round-trip time that the link adds to a dependent load, in s; None if unknown.
        assumed: Whether the capacity is that of a data sheet or of another machine, and was not read from
            this one.
    """

    source: str
    destination: str
    kind: LinkKind
    capacity: float | None = None
    origin: str = ""
    latency: float | None = None
    assumed: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """Source and destination."""
        return self.source, self.destination


@dataclass(frozen=True)
class Cache:
    """A cache of a core.

    Attributes:
        level: 1 is closest to the core.
        type: Kind of its content, e.g. ``Data`` or ``Unified``.
        bytes: Size of one instance.
        shared_by: Number of logical CPUs that share an instance.
        latency: Time of a dependent load, in s; None if unknown.
    """

    level: int
    type: str
    bytes: int
    shared_by: int = 1
    latency: float | None = None


@dataclass(frozen=True)
class Rank:
    """A process of a job.

    Attributes:
        index: Number of the rank.
        host: Name of its host.
        device: DeviceRecord whose memory it owns: ``gpu0``, ``numa0``.
        cpus: CPUs of its threads, if the device is host memory.
        model, bus_id, uuid: Product, PCI bus ID and UUID of its GPU; empty if unknown.
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

    Attributes:
        engine: The engine.
        link: Kind of the links.
        access: Access that the record is for; None for any.
        efficiency: Payload over line rate.
        reverse: Bytes on the opposite link (requests, acknowledgements) per byte of payload.
        cap: Maximum rate of one executor over such a link, in B/s; for ``cpu``, per thread.
        block_cap: Maximum rate of one block of a kernel, in B/s.
        source: Source of the values.
    """

    engine: Engine
    link: LinkKind
    access: Access | None = None  # None: any
    efficiency: float = 1.0
    reverse: float = 0.0
    cap: float | None = None
    block_cap: float | None = None
    source: str = ""


#: CPUs with HBM, whose nodes have no CPUs. Distance of a GPU's memory from CPUs that share its addresses: 80
#: on Grace Hopper and POWER9, where sockets are 40 apart (SLIT of GH200: bytedance/xpu-perf issue 129).
_WITH_HBM, _OF_GPU = "Xeon(R) CPU Max", 80


@dataclass(frozen=True)
class Machine(Tabular):
    """All that is known about a machine before a measurement.

    Attributes:
        name: Name of the machine.
        host: Host name.
        cpu: Name of the CPU.
        architecture: Instruction set, e.g. ``x86_64``.
        kernel: Version of the operating system's kernel.
        simulated: Whether the machine exists only as this description.
        driver: Version of the GPU driver.
        cuda: CUDA version of the driver, e.g. 13000 for 13.0.
        confidential: Whether the GPUs are in confidential computing mode.
        page_bytes, huge_page_bytes: Sizes of pages and huge pages.
        transparent_huge_pages: Setting of transparent huge pages.
        caches: Caches of a core.
        numa: NUMA nodes.
        gpus: GPUs.
        others: Kind -> its devices, of the kinds that other packages add.
        links: Directed links.
        ranks: Ranks of a job of several processes.
        rates: How the engines of a simulated machine use its links.
        noise: Relative noise of simulated samples.
        faults: Faults of a simulated machine.
        notes: What could not be determined, and why.
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
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    links: tuple[Link, ...] = ()
    ranks: tuple[Rank, ...] = ()
    rates: tuple[EngineRate, ...] = ()
    noise: float = 0.0
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Turn decoded devices of other kinds into their records."""
        if not all(isinstance(device, DeviceRecord) for device in chain(*self.others.values())):
            object.__setattr__(self, "others", _recorded(self.others))

    @property
    def attached(self) -> tuple[DeviceRecord, ...]:
        """All devices except NUMA nodes, which are the host itself: GPUs, then other kinds."""
        return *self.gpus, *chain(*self.others.values())

    @property
    def devices(self) -> tuple[DeviceRecord, ...]:
        """All devices: NUMA nodes, GPUs, and other kinds."""
        return *self.numa, *self.attached

    @property
    def counts(self) -> dict[DeviceKind, str]:
        """Number of devices of each kind that the machine has, in words."""
        return {kind: many(len(devices), *kind.words) for kind, devices in _by_kind(self) if devices}

    def __repr__(self) -> str:
        """One line; ``wirespeed machine`` shows everything."""
        parts = list(self.counts.values())
        parts += [
            many(len(items), noun) for noun, items in (("link", self.links), ("rank", self.ranks)) if items
        ]
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Machine {self.name}{kind}: {', '.join(parts) or 'empty'}")

    def vertex(self, end: Memory | Executor) -> str:
        """The vertex of the link graph for a Memory or an Executor.

        In a job of several processes, the vertex of a device includes its rank. A device named without a rank
        belongs to this process, which runs on the host of the first rank.
        """
        if end.rank is None:
            for rank in self.ranks:
                if rank.host == self.ranks[0].host and rank.device == end.device:
                    return f"{rank.index}/{end.device}"
        return str(end)

    def links_at(self, where: str) -> tuple[int, ...]:
        """The indices of the links that a text names; empty if there are none.

        ``gpu0-gpu1``: both directions between two vertices (``gpu0-gpu0``: the memory of ``gpu0``),
        ``gpu0->gpu1``: one direction, ``gpu0``: all links at a vertex, including its memory.
        """
        return tuple(
            i
            for i, link in enumerate(self.links)
            if where in (*link.ends, "->".join(link.ends), "-".join(link.ends), "-".join(link.ends[::-1]))
        )

    def only(self, devices: Collection[int]) -> Machine:
        """The Machine with only these GPUs.

        Links and faults of the other GPUs go with them, and so do switches that then lead nowhere.

        Args:
            devices: Indices of the GPUs to keep.

        Returns:
            A machine without the other GPUs.

        Raises:
            MachineError: If a GPU does not exist.
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
        removed = {gpu.name for gpu in self.gpus} - kept
        gone = _dead_ends(self.links, removed, {device.name for device in self.devices} - removed)
        links = tuple(link for link in self.links if gone.isdisjoint(link.ends))
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
        """The Machine with this capacity of host memory, in B/s, for each NUMA node without one."""
        unknown = [(name, name) for name in self.unknown_memories]
        links = tuple(
            replace(link, capacity=capacity, origin="given") if link.ends in unknown else link
            for link in self.links
        )
        return replace(self, links=links)

    def nearest_cores(self, node: NumaNode) -> NumaNode | None:
        """The node itself if it has CPUs, else the nearest one that has; None if none has."""
        if node.cpus:
            return node
        known = len(node.distances) == len(self.numa)
        away = dict(zip(self.numa, node.distances, strict=True)) if known else {}
        return min(
            (other for other in self.numa if other.cpus),
            key=lambda other: (away.get(other, 0), abs(other.index - node.index)),
            default=None,
        )

    def unusual_nodes(self) -> list[str]:
        """The NUMA nodes without CPUs or memory, and what is measured of them."""
        texts: dict[str, list[str]] = {}
        for node in self.numa:
            if node.memory_bytes and node.cpus and node.allowed:
                continue
            near = self.nearest_cores(node)
            if node.memory_bytes and not node.allowed:
                text = "memory that this process may not use (cpuset): not measured"
            elif node.cpus:
                text = "CPUs and no memory: only latencies of other memory are measured from there"
            elif not node.memory_bytes:
                text = "neither CPUs nor memory: not measured"
            elif near is None:
                text = "memory, and no node has CPUs: not measured"
            else:
                kind = self._without_cpus(node, near)
                text = f"{kind} and no usable CPUs: measured from the nearest cores, and not judged"
            texts.setdefault(text, []).append(node.name)
        return [f"{', '.join(names)}: {text}" for text, names in texts.items()]

    def _without_cpus(self, node: NumaNode, near: NumaNode) -> str:
        """What the memory of a node without usable CPUs is, as far as CPU and firmware tell."""
        away = dict(zip((other.index for other in self.numa), node.distances, strict=False)).get(
            near.index, 0
        )
        if away >= _OF_GPU:
            return "memory of a GPU"
        is_late = 2 * self.numa.index(node) >= len(self.numa)  # the nodes of the CPUs come first
        return "HBM" if _WITH_HBM in (self.cpu or "") and is_late else "memory"

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
        """The description as indented JSON, for ``load``."""
        import msgspec

        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def _dead_ends(links: Iterable[Link], removed: set[str], devices: set[str]) -> set[str]:
    """The removed vertices with the switches that connect nothing any more without them."""
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

    Raises:
        MachineError: If the file cannot be read or is not a valid description; the message names the field.
    """
    import msgspec

    try:
        data = neutral_json(read(path))
        if wrong := unknown_name(msgspec.json.decode(data), Machine):
            raise msgspec.ValidationError(str(wrong))
        return check(msgspec.json.decode(data, type=Machine))
    except OSError as error:
        raise MachineError(f"cannot read the machine file {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(
            f"{path} is not a valid machine file: {error}; "
            "`wirespeed machine --format json` writes one that you can edit"
        ) from error


def check(machine: Machine) -> Machine:
    """Reject impossible values of a Machine from a file, so that no other code needs to check them.

    Raises:
        MachineError: If a value is impossible; the message names the first.
    """
    names = {gpu.name for gpu in machine.gpus}
    problems = [
        *(f"link {link.source}->{link.destination} has capacity {link.capacity}" for link in machine.links
          if link.capacity is not None and not 0 < link.capacity < 1e18),
        *(f"link {link.source}->{link.destination} has latency {link.latency}" for link in machine.links
          if link.latency is not None and not 0 <= link.latency < 1),
        *(f"{rate.engine} over {rate.link} has efficiency {rate.efficiency}, reverse {rate.reverse}, "
          f"cap {rate.cap}"
          for rate in machine.rates
          if not 0 < rate.efficiency <= 1 or not 0 <= rate.reverse < 10
          or (rate.cap is not None and rate.cap <= 0)),
        *(f"duplicate {kind.words[0]} {index}" for kind, devices in _by_kind(machine)
          for index, count in Counter(device.index for device in devices).items() if count > 1),
        *(f"{gpu.name} has the peer {peer}, which does not exist"
          for gpu in machine.gpus for peer in gpu.peers if peer not in names),
    ]  # fmt: skip
    problems += _ends_nowhere(machine)
    problems += [f"it has {len(devices)} {kind.words[1]}" for kind, devices in _by_kind(machine)
                 if len(devices) > _MOST_DEVICES]  # fmt: skip
    problems += [f"rank {rank.index} owns {rank.device!r}, which no process can own"
                 for rank in machine.ranks
                 if not ((owned := parse(rank.device)) and owned[0].ranks)]  # fmt: skip
    if [rank.index for rank in machine.ranks] != list(range(len(machine.ranks))):
        problems.append("ranks are not numbered 0, 1, 2, ...")
    if not 0 <= machine.noise < 0.5:
        problems.append(f"noise is {machine.noise}")
    if problems:
        raise MachineError(f"machine {machine.name!r} is invalid: {problems[0]}")
    return machine


def _ends_nowhere(machine: Machine) -> Iterator[str]:
    """Yield links that end at neither a device nor a switch, which links enter and leave."""
    between = [link for link in machine.links if link.source != link.destination]
    both = {link.source for link in between} & {link.destination for link in between}
    devices = {device.name for device in machine.devices}
    owners = {f"{rank.index}/" for rank in machine.ranks} | {f"{rank.host}:" for rank in machine.ranks}
    for name in {end for link in machine.links for end in link.ends} - devices:
        device = re.split("[/:]", name)[-1]
        owner = name.removesuffix(device)
        if parse(device) and (owner in owners or (machine.ranks and not owner)):
            devices.add(name)  # of a job, only the links name what other ranks and hosts have
        elif parse(device):
            both.discard(name)
    for link in machine.links:
        is_memory = link.kind is LinkKind.MEMORY
        if is_memory is not (link.source == link.destination):
            yield f"{link.kind} link {link.source}->{link.destination} is not that of one memory"
        for end in link.ends:
            if end not in devices and (is_memory or end not in both):
                yield f"link {link.source}->{link.destination} ends at {end!r}, which does not exist"


def _by_kind(machine: Machine) -> Iterator[tuple[DeviceKind, Sequence[DeviceRecord]]]:
    yield NUMA, machine.numa
    yield GPU, machine.gpus
    for kind in added() if machine.others else ():
        yield kind, machine.others.get(kind.name, ())


def _recorded(others: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[DeviceRecord, ...]]:
    """Devices of other kinds as records of their kind.

    Raises:
        ValueError: If no installed package has the kind, or a field is invalid.
    """
    import msgspec

    known = {kind.name: kind for kind in added()}
    if unknown := sorted(others.keys() - known.keys()):
        raise ValueError(f"no installed package knows devices of the kind {unknown[0]!r}")
    return {
        name: tuple(msgspec.convert(device, known[name].record) for device in devices)
        for name, devices in others.items()
    }
