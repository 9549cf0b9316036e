"""The predefined simulated machines, built from ``data/machines.toml``, where each rate has its origin."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import product
from typing import Any

import msgspec

from ... import data
from ...hardware.devices import STORAGE, Gpu, NumaNode, Storage
from ...hardware.topology import Cache, EngineRate, Link, LinkKind, Machine, Rank
from ...model import FILE_ENGINES, Access, Engine
from ...units import GIB, MIB, NANO

#: 1 GB/s in B/s.
_GBPS = 1e9
_READ, _WRITE, _LOCAL = Access.READ, Access.WRITE, Access.LOCAL
#: Rate of one block over a link between GPUs, in B/s: bulk copies need few blocks.
_BLOCK_CAPS = {Engine.SM: 8 * _GBPS, Engine.SM_BULK: 45 * _GBPS}
#: Time that a link between sockets adds to the round trip of a load, in ns.
_SOCKET_NS = 70

#: Rate in GB/s, its origin, and the time in ns that it adds to the round trip of a load.
_Speed = tuple[float, str, float]
#: Payload over line rate, and bytes on the opposite link per byte of payload.
_Use = tuple[float, float]


class _Sockets(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``sockets``; the comments of the file describe the fields, as for the other tables."""

    count: int
    cores: int
    gib: int
    memory: _Speed
    between: tuple[float, str] | None = None


class _Uses(msgspec.Struct, forbid_unknown_fields=True):
    """A table of ``use``."""

    link: LinkKind
    source: str
    ce: tuple[_Use, _Use]
    sm: tuple[_Use, _Use]
    split: _Use | None = None
    ce_read_cap: float | None = None


class _More(msgspec.Struct, forbid_unknown_fields=True):
    """A further use of a link by some engines; two efficiencies are those of reads and writes."""

    engines: tuple[Engine, ...]
    link: LinkKind
    efficiency: float | tuple[float, float]
    source: str
    reverse: float = 0.0
    cap: float | None = None


class _Pairs(msgspec.Struct, forbid_unknown_fields=True):
    """Pairs of GPUs with equal links."""

    speed: _Speed
    gpus: tuple[tuple[int, int], ...]


class _Gpus(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``gpus``."""

    count: int
    model: str
    mib: int
    capability: str
    multiprocessors: int
    memory: _Speed
    wires: tuple[tuple[str, int, LinkKind, _Speed], ...]
    uses: tuple[str, ...]
    local: tuple[float, float, float, str]
    peers: bool = True
    switches: tuple[int, _Speed] | None = None
    pairs: tuple[_Pairs, ...] = ()
    more: tuple[_More, ...] = ()


class _Description(msgspec.Struct, forbid_unknown_fields=True):
    """The table of a machine."""

    machine: dict[str, Any]
    caches: tuple[dict[str, Any], ...]
    sockets: _Sockets
    cpus: tuple[float, float, str, float]
    noise: float
    gpus: _Gpus | None = None
    hosts: int = 1
    storage: int = 0


def _both(a: str, b: str, kind: LinkKind, speed: _Speed) -> tuple[Link, Link]:
    """Two links, one per direction."""
    rate, origin, latency = speed
    link = Link(a, b, kind, rate * _GBPS, origin, latency * NANO)
    return link, replace(link, source=b, destination=a)


def _memory(vertex: str, speed: _Speed) -> Link:
    return _both(vertex, vertex, LinkKind.MEMORY, speed)[0]


def _nodes(sockets: _Sockets) -> tuple[tuple[NumaNode, ...], list[Link]]:
    """NUMA nodes with their memory, connected pairwise."""
    count, cores, size = sockets.count, sockets.cores, sockets.gib * GIB
    nodes = tuple(
        NumaNode(i, tuple(range(i * cores, (i + 1) * cores)), 1, size, size * 9 // 10,
                 tuple(10 if i == j else 20 for j in range(count)))
        for i in range(count)
    )  # fmt: skip
    links = [_memory(node.name, sockets.memory) for node in nodes]
    for i in range(count if sockets.between else 0):
        for j in range(i):
            speed = (*(sockets.between or (0, "")), _SOCKET_NS)
            links += _both(f"numa{j}", f"numa{i}", LinkKind.SOCKET, speed)
    return nodes, links


def _links(gpus: _Gpus, vertices: Sequence[str], sockets: int) -> list[Link]:
    """The links of GPUs, of which those behind the first host have none to its sockets."""
    links = []
    for i, vertex in enumerate(vertices):
        links.append(_memory(vertex, gpus.memory))
        for end, count, kind, speed in gpus.wires:
            if i < gpus.count or "numa" not in end:
                ends = end.format(i * count // gpus.count), vertex
                links += _both(*(ends[::-1] if kind is LinkKind.NVLINK else ends), kind, speed)
    switches, speed = gpus.switches or (0, (0, "", 0))
    for i in range(switches):
        links += _both(f"numa{i * sockets // switches}", f"pcie{i}", LinkKind.PCIE, speed)
    for (a, b), speed in sorted((pair, group.speed) for group in gpus.pairs for pair in group.gpus):
        links += _both(vertices[a], vertices[b], LinkKind.NVLINK, speed)
    return links


def _rates(uses: _Uses) -> list[EngineRate]:
    """How copy engines and kernels use links, for reads and writes, and kernels for both ways at once."""
    rows = [((Engine.CE,), uses.ce), ((Engine.SM, Engine.SM_BULK), uses.sm)]
    rows += [((Engine.SM_SPLIT,), (uses.split, uses.split))] if uses.split else []
    cap = uses.ce_read_cap and uses.ce_read_cap * _GBPS
    return [
        EngineRate(engine, uses.link, access, *use, cap if (engine, access) == (Engine.CE, _READ) else None,
                   _BLOCK_CAPS.get(engine), uses.source)
        for engines, of_accesses in rows
        for access, use in zip((_READ, _WRITE), of_accesses, strict=True)
        for engine in engines
    ]  # fmt: skip


def _more_rates(more: _More) -> list[EngineRate]:
    each: Mapping[Access | None, float] = (
        dict(zip((_READ, _WRITE), more.efficiency, strict=True))
        if isinstance(more.efficiency, tuple)
        else {None: more.efficiency}
    )
    cap = more.cap and more.cap * _GBPS
    return [
        EngineRate(engine, more.link, access, efficiency, more.reverse, cap, source=more.source)
        for engine in more.engines
        for access, efficiency in each.items()
    ]


def _rates_of(gpus: _Gpus) -> list[EngineRate]:
    """How GPUs use links, and their own memory; the rate of copies there does not bound remote traffic."""
    rates = [rate for name in gpus.uses for rate in _rates(_USES[name])]
    rates += [rate for more in gpus.more for rate in _more_rates(more)]
    ce, sm, bulk, source = gpus.local
    engines = ((Engine.CE, ce), (Engine.SM, sm), (Engine.CUBLAS, sm), (Engine.SM_BULK, bulk))
    local = [EngineRate(e, LinkKind.MEMORY, _LOCAL, share, source=source) for e, share in engines]
    return rates + local


def _cpu_rates(core: float, remote: float, source: str, efficiency: float) -> list[EngineRate]:
    """How host threads use memory: ``core`` GB/s of copies per thread, ``remote`` between sockets."""
    return [
        EngineRate(Engine.CPU, LinkKind.MEMORY, None, efficiency, cap=core * _GBPS, source=source),
        EngineRate(Engine.CPU, LinkKind.SOCKET, None, 0.80, 0.1, remote * _GBPS, source=source),
    ]


def _uuid(host: int, gpu: int) -> str:
    return f"GPU-{host:08x}-0000-0000-0000-{gpu:012x}"


def _with_gpus(machine: Machine, gpus: _Gpus, hosts: int) -> Machine:
    """A machine with its GPUs; of several hosts, each GPU belongs to a rank."""
    names, sockets = [f"gpu{i}" for i in range(gpus.count)], len(machine.numa)
    devices = tuple(
        Gpu(i, gpus.model, f"00000000:{i + 1:02x}:00", gpus.mib * MIB, i * sockets // gpus.count,
            gpus.multiprocessors, gpus.capability, tuple(n for n in names if n != name) if gpus.peers else (),
            uuid=_uuid(0, i))
        for i, name in enumerate(names)
    )  # fmt: skip
    ranks = tuple(
        Rank(rank, f"node{host:02d}", gpu.name, (), gpu.model, gpu.bus_id, _uuid(host, gpu.index))
        for rank, (host, gpu) in enumerate(product(range(hosts), devices))
    )
    vertices = [f"{rank.index}/{rank.device}" for rank in ranks] if hosts > 1 else names
    links, rates = (*machine.links, *_links(gpus, vertices, sockets)), (*_rates_of(gpus), *machine.rates)
    machine = replace(machine, gpus=devices, links=links, rates=rates)
    return replace(machine, host=ranks[0].host, ranks=ranks) if hosts > 1 else machine


def _with_nvme(machine: Machine, count: int) -> Machine:
    """A machine with NVMe devices of PCIe 4 at its first socket."""
    devices = tuple(
        Storage(i, f"/mnt/nvme{i}", "xfs", "NVMe SSD", (), True, 4 * GIB, 0) for i in range(count)
    )
    links = [*machine.links, *(_memory(device.name, (7, "assumed", 80_000)) for device in devices)]
    for device in devices:
        links += _both("numa0", device.name, LinkKind.PCIE, (4 * 1.969, "PCIe 4 x4", 1000))
    rates = [EngineRate(e, LinkKind.PCIE, efficiency=0.87, source="assumed") for e in FILE_ENGINES]
    others = {STORAGE.name: devices}
    return replace(machine, others=others, links=tuple(links), rates=(*machine.rates, *rates))


def _built(name: str) -> Machine:
    """The machine of a name."""
    table = _DESCRIPTIONS[name]
    nodes, links = _nodes(table.sockets)
    caches, rates = tuple(Cache(**cache) for cache in table.caches), tuple(_cpu_rates(*table.cpus))
    machine = Machine(
        name, host=name, caches=caches, numa=nodes, links=tuple(links), rates=rates, noise=table.noise,
        simulated=True, **table.machine,
    )  # fmt: skip
    machine = _with_gpus(machine, table.gpus, table.hosts) if table.gpus else machine
    return _with_nvme(machine, table.storage) if table.storage else machine


_FILE = tomllib.loads(files(data).joinpath("machines.toml").read_text())
_LIKE: Mapping[str, Any] = _FILE.pop("like")
_USES = msgspec.convert(_FILE.pop("use"), dict[str, _Uses])


def _complete(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the entries of the one that it is like."""
    name = table.get("like")
    return _joined(_complete(_LIKE.get(name) or _FILE[name]), table) if name else dict(table)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of two tables and of those in them, of which the second replace the first."""
    both = {
        key: _joined(first[key], value) if isinstance(value, dict) and key in first else value
        for key, value in second.items()
    }
    return {**first, **both}


_DESCRIPTIONS = {
    name: msgspec.convert({k: v for k, v in _complete(table).items() if k != "like"}, _Description)
    for name, table in _FILE.items()
}
#: Name -> function that builds the machine.
MACHINES: dict[str, Callable[[], Machine]] = {name: partial(_built, name) for name in _FILE}
