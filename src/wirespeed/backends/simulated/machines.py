"""The predefined simulated machines. Link rates are per direction, in B/s; each value has its origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

from ...hardware.devices import STORAGE, Gpu, NumaNode, Storage
from ...hardware.topology import Cache, EngineRate, Link, LinkKind, Machine, Rank
from ...model import FILE_ENGINES, Access, Engine
from ...units import GIB, KIB, MIB, NANO

#: 1 GB/s in B/s.
_GBPS = 1e9
_READ, _WRITE, _LOCAL = Access.READ, Access.WRITE, Access.LOCAL
_PCIE, _NVLINK, _C2C = LinkKind.PCIE, LinkKind.NVLINK, LinkKind.C2C
_MEMORY, _SOCKET = LinkKind.MEMORY, LinkKind.SOCKET

_SERVER_CACHES = (
    Cache(1, "data", 32 * KIB, 1, 1.3 * NANO),
    Cache(1, "instruction", 32 * KIB, 1),
    Cache(2, "unified", 1 * MIB, 1, 4 * NANO),
    Cache(3, "unified", 32 * MIB, 8, 13 * NANO),
)
#: Caches of Grace, whose cores are Neoverse V2: sizes from the data sheet, latencies assumed.
_GRACE_CACHES = (
    Cache(1, "data", 64 * KIB, 1, 1.2 * NANO),
    Cache(1, "instruction", 64 * KIB, 1),
    Cache(2, "unified", 1 * MIB, 1, 3.5 * NANO),
    Cache(3, "unified", 114 * MIB, 72, 38 * NANO),
)


#: Rate in GB/s, its origin, and the time in ns that it adds to the round trip of a load.
Speed = tuple[float, str, float]
#: Payload over line rate, and bytes on the opposite link per byte of payload.
Use = tuple[float, float]


def _link(source: str, destination: str, kind: LinkKind, speed: Speed) -> Link:
    rate, origin, latency = speed
    return Link(source, destination, kind, rate * _GBPS, origin, latency * NANO)


def _memory(vertex: str, speed: Speed) -> Link:
    return _link(vertex, vertex, _MEMORY, speed)


def _both(a: str, b: str, kind: LinkKind, speed: Speed) -> tuple[Link, Link]:
    """Two links, one per direction."""
    return _link(a, b, kind, speed), _link(b, a, kind, speed)


def _wired(vertices: Sequence[str], memory: Speed, *wires: tuple[str, int, LinkKind, Speed]) -> list[Link]:
    """The links of GPUs: to their memory, and of each to one of some ends, e.g. to one of two ``numa{}``."""
    links = []
    for i, vertex in enumerate(vertices):
        links.append(_memory(vertex, memory))
        for end, count, kind, speed in wires:
            ends = end.format(i * count // len(vertices)), vertex
            links += _both(*(ends[::-1] if kind is _NVLINK else ends), kind, speed)
    return links


def _names(count: int) -> list[str]:
    return [f"gpu{i}" for i in range(count)]


def _sockets(
    count: int,
    cores: int,
    memory_bytes: int,
    speed: Speed,
    between: tuple[float, str] | None = None,
) -> tuple[tuple[NumaNode, ...], list[Link]]:
    """NUMA nodes with their memory, connected pairwise if there is a rate between them, in GB/s."""
    nodes = tuple(
        NumaNode(i, tuple(range(i * cores, (i + 1) * cores)), 1, memory_bytes, memory_bytes * 9 // 10,
                 tuple(10 if i == j else 20 for j in range(count)))
        for i in range(count)
    )  # fmt: skip
    links = [_memory(node.name, speed) for node in nodes]
    for i in range(count if between else 0):
        for j in range(i):
            links += _both(f"numa{j}", f"numa{i}", _SOCKET, (*(between or (0, "")), 70))
    return nodes, links


def _uuid(host: int, gpu: int) -> str:
    return f"GPU-{host:08x}-0000-0000-0000-{gpu:012x}"


def _cpu_rates(core: float, remote: float, source: str, efficiency: float) -> list[EngineRate]:
    """How host threads use memory: ``core`` GB/s of copies per thread, ``remote`` between sockets."""
    return [
        EngineRate(Engine.CPU, _MEMORY, None, efficiency, cap=core * _GBPS, source=source),
        EngineRate(Engine.CPU, _SOCKET, None, 0.80, 0.1, remote * _GBPS, source=source),
    ]


#: Rate of one block over a link between GPUs, in B/s: bulk copies need few blocks.
_BLOCK_CAPS = {Engine.SM: 8 * _GBPS, Engine.SM_BULK: 45 * _GBPS}


def _rates(
    kind: LinkKind,
    source: str,
    ce: tuple[Use, Use],
    sm: tuple[Use, Use],
    split: Use | None = None,
    ce_read_cap: float | None = None,
) -> list[EngineRate]:
    """How copy engines and kernels use links, for reads and writes, and kernels for both ways at once."""
    rows = [((Engine.CE,), ce), ((Engine.SM, Engine.SM_BULK), sm)]
    rows += [((Engine.SM_SPLIT,), (split, split))] if split else []
    return [
        EngineRate(
            engine, kind, access, *use, ce_read_cap if (engine, access) == (Engine.CE, _READ) else None,
            _BLOCK_CAPS.get(engine), source,
        )
        for engines, uses in rows
        for access, use in zip((_READ, _WRITE), uses, strict=True)
        for engine in engines
    ]  # fmt: skip


def _gpu_memory(ce: float, sm: float, bulk: float, source: str) -> list[EngineRate]:
    """Rates of local copies, below the memory's line rate; it does not bound remote traffic."""
    engines = ((Engine.CE, ce), (Engine.SM, sm), (Engine.CUBLAS, sm), (Engine.SM_BULK, bulk))
    return [EngineRate(engine, _MEMORY, _LOCAL, share, source=source) for engine, share in engines]


#: What x86 and arm64 servers have in common.
_X86 = Machine(
    "", "", "simulated x86 server", "x86_64", "", True, "580.159", 13000, caches=_SERVER_CACHES
)  # fmt: skip
_ARM = replace(
    _X86, cpu="simulated arm64 server", architecture="aarch64", page_bytes=64 * KIB, caches=_GRACE_CACHES
)


def _built(
    like: Machine,
    name: str,
    sockets: tuple[tuple[NumaNode, ...], list[Link]],
    gpus: tuple[int, str, int, str, int],
    links: Sequence[Link],
    rates: Sequence[EngineRate],
    local: tuple[float, float, float, str],
    cpus: tuple[float, float, str, float],
    noise: float,
    *,
    peers: bool = True,
    **more: Any,
) -> Machine:
    """A machine.

    Args:
        like: What it has in common with others.
        name: Its name.
        sockets: Its NUMA nodes with their links.
        gpus: Number, model, bytes of memory, compute capability and multiprocessors of its GPUs.
        links: Further links.
        rates: How GPUs use links.
        local: How GPUs copy in their own memory: arguments of ``_gpu_memory``.
        cpus: How CPUs use memory: arguments of ``_cpu_rates``.
        noise: Its noise.
        peers: Whether GPUs access each other's memory.
        more: Further fields.
    """
    nodes, below = sockets
    count, model, memory_bytes, capability, multiprocessors = gpus
    names = _names(count)
    devices = tuple(
        Gpu(i, model, f"00000000:{i + 1:02x}:00", memory_bytes, i * len(nodes) // count, multiprocessors,
            capability, tuple(n for n in names if n != name) if peers else (), uuid=_uuid(0, i))
        for i, name in enumerate(names)
    )  # fmt: skip
    fields: dict[str, Any] = {
        "name": name, "host": name, "numa": nodes, "gpus": devices, "links": (*below, *links),
        "rates": (*rates, *_gpu_memory(*local), *_cpu_rates(*cpus)), "noise": noise,
    }  # fmt: skip
    return replace(like, **fields | more)


#: Origin of what was measured on H200, and that of machines with the same links.
_H200 = "nvbandwidth 0.8 on two H200s"
_LIKE_H200 = f"as H200: {_H200}"
_H200_NVLINK = ((0.824, 0.0143), (0.829, 0.0145)), ((0.787, 0.141), (0.774, 0.0148))
_H200_PCIE = ((0.860, 0.109), (0.860, 0.316)), ((0.814, 0.109), (0.834, 0.316)), (0.860, 0.323)
_CHANNELS, _SOCKET_LINKS = "memory channels x transfer rate", "socket links x rate"


def hgx_h200_2() -> Machine:
    """Two H200s linked by NVLink, with PCIe 5; behaves as measured with nvbandwidth."""
    pcie = ("numa0", 1, _PCIE, (63.0, "PCIe 5 x16", 1085))
    links = _wired(_names(2), (4814, "3201 MHz x 2 x 6016 bit", 430), pcie)
    links += _both("gpu0", "gpu1", _NVLINK, (478.1, "18 links x 26.562 GB/s", 399))
    return _built(
        _X86, "hgx-h200-2", _sockets(1, 32, 256 * GIB, (460, _CHANNELS, 110)),
        (2, "NVIDIA H200", 141 * GIB, "9.0", 132), links,
        _rates(_NVLINK, _H200, *_H200_NVLINK) + _rates(_PCIE, _H200, *_H200_PCIE),
        (0.871, 0.863, 0.834, _H200), (14, 8, "assumed", 0.85), 0.001,
    )  # fmt: skip


def _switches(count: int, sockets: int, speed: Speed) -> list[Link]:
    """The links of PCIe switches to sockets."""
    return [
        link for i in range(count) for link in _both(f"numa{i * sockets // count}", f"pcie{i}", _PCIE, speed)
    ]


def dgx_a100_8() -> Machine:
    """Eight A100s on NVSwitch with two sockets; pairs of GPUs share a PCIe switch."""
    seen, pcie = "nvbandwidth's published example on eight A100s", (31.5, "PCIe 4 x16", 500)
    links = _wired(
        _names(8), (1555, "1215 MHz x 2 x 5120 bit", 470), ("pcie{}", 4, _PCIE, pcie),
        ("nvswitch", 1, _NVLINK, (300, "12 links x 25 GB/s", 230)),
    )  # fmt: skip
    rates = _rates(_NVLINK, seen, ((0.920, 0.012), (0.921, 0.012)), ((0.900, 0.13), (0.870, 0.015)))
    rates += _rates(
        _PCIE, seen, ((0.825, 0.23), (0.810, 0.48)), ((0.800, 0.23), (0.810, 0.48)), (0.810, 0.48)
    )
    return _built(
        _X86, "dgx-a100-8", _sockets(2, 64, 512 * GIB, (190, _CHANNELS, 110), (64, _SOCKET_LINKS)),
        (8, "NVIDIA A100-SXM4-40GB", 40 * GIB, "8.0", 108), links + _switches(4, 2, pcie), rates,
        (0.842, 0.84, 0.84, seen), (11, 6, "assumed", 0.85), 0.002,
    )  # fmt: skip


#: GPUs of ``ppu-8`` that are connected by two links; other pairs have one.
_TWO_LINKS = {(0, 4), (0, 5), (0, 7), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6), (2, 7), (3, 4), (3, 6), (3, 7)}
_PPU_NEAR = {(0, 6), (1, 7), (2, 4), (3, 5)}


def ppu_8() -> Machine:
    """Eight accelerators with one or two links between each pair, as in sailbandwidth's guide.

    Pairs behave as in the guide; a common limit of all links of a device is not modelled.
    """
    seen, memory = "the tables of sailbandwidth's guide", "assumed, from a local copy of 1055 GB/s"
    links = _wired(_names(8), (2300, memory, 400), ("pcie{}", 4, _PCIE, (63.0, "PCIe 5 x16", 440)))
    links += _switches(4, 2, (80.0, "from all_to_host", 440))
    for i, j in combinations(range(8), 2):
        count = 2 if (i, j) in _TWO_LINKS else 1
        wait = 742 if count == 2 else 310 if (i, j) in _PPU_NEAR else 342
        links += _both(f"gpu{i}", f"gpu{j}", _NVLINK, (count * 50, f"{count} x 50 GB/s", wait))
    rates = _rates(
        _NVLINK, seen, ((0.940, 0.04), (0.940, 0.04)), ((0.9634, 0.156), (0.934, 0.034)),
        ce_read_cap=46.8 * _GBPS,
    )  # fmt: skip
    rates += _rates(_PCIE, seen, ((0.714, 0.10), (0.902, 0.42)), ((0.516, 0.10), (0.835, 0.42)), (0.60, 0.64))
    return _built(
        _X86, "ppu-8", _sockets(2, 64, 512 * GIB, (300, _CHANNELS, 110), (64, _SOCKET_LINKS)),
        (8, "simulated PPU", 96 * GIB, "9.0", 64), links, rates, (0.918, 0.918, 0.918, seen),
        (11, 6, "assumed", 0.85), 0.001, driver="2.1.0",
    )  # fmt: skip


_PCIE_4, _PCIE_5 = (31.5, "PCIe 4 x16", 900), (63.0, "PCIe 5 x16", 900)


def _workstation(
    name: str, count: int, model: str, memory: tuple[int, Speed], capability: str, pcie: Speed, cpu: str,
    peers: bool,
) -> Machine:  # fmt: skip
    """GPUs without NVLink, each below a root port of one socket; ``memory`` with its GiB."""
    return _built(
        _X86, name, _sockets(1, 16, 128 * GIB, (83, _CHANNELS, 95)),
        (count, model, memory[0] * GIB, capability, 142),
        _wired(_names(count), memory[1], ("numa0", 1, _PCIE, pcie)),
        _rates(_PCIE, "assumed", ((0.82, 0.1), (0.83, 0.3)), ((0.79, 0.1), (0.82, 0.3)), (0.82, 0.3)),
        (0.90, 0.87, 0.87, "published for RTX 3090 and 4090: copies reach 0.89 to 0.91"),
        (18, 18, "assumed", 0.85), 0.003, peers=peers, cpu=cpu,
    )  # fmt: skip


_AMD, _INTEL = "simulated AMD workstation", "simulated Intel workstation"
#: Workstations with GPUs as people have them: memory from data sheets, all else assumed.
_WORKSTATIONS = (
    ("pcie-2-no-p2p", 2, "simulated workstation GPU", (48, (960, "10000 MHz x 2 x 384 bit", 500)), "8.9",
     _PCIE_4, "simulated x86 workstation", False),
    ("rtx3090-4", 4, "NVIDIA GeForce RTX 3090", (24, (936, "9751 MHz x 2 x 384 bit", 500)), "8.6", _PCIE_4,
     _AMD, True),
    ("rtx4090-2", 2, "NVIDIA GeForce RTX 4090", (24, (1008, "10501 MHz x 2 x 384 bit", 500)), "8.9", _PCIE_4,
     _INTEL, True),
    ("rtx5090-4", 4, "NVIDIA GeForce RTX 5090", (32, (1792, "28 GT/s x 512 bit", 500)), "12.0", _PCIE_5, _AMD,
     True),
    ("rtxpro6000-4", 4, "NVIDIA RTX PRO 6000 Blackwell", (96, (1792, "28 GT/s x 512 bit", 500)), "12.0",
     _PCIE_5, _INTEL, True),
)  # fmt: skip


def cpu_2_sockets() -> Machine:
    """Two sockets of 32 cores without a GPU."""
    nodes, links = _sockets(2, 32, 256 * GIB, (307, _CHANNELS, 105), (62, _SOCKET_LINKS))
    return replace(
        _X86, name="cpu-2-sockets", host="cpu-2-sockets", driver="", cuda=0, huge_page_bytes=2 * MIB,
        transparent_huge_pages="madvise", numa=nodes, links=tuple(links),
        rates=tuple(_cpu_rates(12, 6, "assumed", 0.85)), noise=0.004,
    )  # fmt: skip


def _with_nvme(server: Machine, name: str) -> Machine:
    """A server with two NVMe devices of PCIe 4 at its first socket."""
    devices = tuple(Storage(i, f"/mnt/nvme{i}", "xfs", "NVMe SSD", (), True, 4 * GIB, 0) for i in range(2))
    links = [*server.links, *(Link(d.name, d.name, _MEMORY, 7 * _GBPS, "assumed", 80e-6) for d in devices)]
    for device in devices:
        ends = "numa0", device.name
        links += [Link(*way, _PCIE, 4 * 1.969 * _GBPS, "PCIe 4 x4", 1e-6) for way in (ends, ends[::-1])]
    rates = *server.rates, *(EngineRate(e, _PCIE, efficiency=0.87, source="assumed") for e in FILE_ENGINES)
    return replace(
        server, name=name, host=name, others={STORAGE.name: devices}, links=tuple(links), rates=rates
    )


def nvme_2() -> Machine:
    """One socket with two NVMe devices of PCIe 4."""
    server = cpu_2_sockets()
    return _with_nvme(replace(server, numa=server.numa[:1], links=server.links[:1]), "nvme-2")


def h200_2_nvme_2() -> Machine:
    """Two H200s and two NVMe devices of PCIe 4."""
    return _with_nvme(hgx_h200_2(), "h200-2-nvme-2")


_GRACE_MEMORY = (512, "LPDDR5X data sheet", 200)
_B200_MEMORY = (7672, "3996 MHz x 2 x 7680 bit", 450)
_B200_NVLINK = ("nvswitch", 1, _NVLINK, (900, "18 links x 50 GB/s", 250))
_GB200_C2C = ("numa{}", 2, _C2C, (225, "NVLink-C2C data sheet, half for each GPU", 350))
_GB200 = "published for four GB200s: nvbandwidth"
_B200_NVLINK_RATES = _rates(
    _NVLINK, f"{_GB200}, reads of 765 GB/s; others assumed", ((0.86, 0.015), (0.86, 0.015)),
    ((0.79, 0.13), (0.78, 0.015)),
)  # fmt: skip
#: How the only GPU of a host uses NVLink-C2C.
_C2C_RATES = _rates(_C2C, "assumed", ((0.85, 0.05), (0.85, 0.05)), ((0.80, 0.05), (0.80, 0.05)), (0.80, 0.1))
#: Engines that a link or memory limits in remote copies of GPUs.
_REMOTE = (Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)


def _gb200s(name: str, links: Sequence[Link], **more: Any) -> Machine:
    """Hosts of two Graces and four GB200s each."""
    rates = _B200_NVLINK_RATES + _rates(
        _C2C, f"{_GB200}, 201 GB/s to the GPU and 193 to the host; others assumed",
        ((0.893, 0.05), (0.858, 0.05)), ((0.85, 0.05), (0.82, 0.05)), (0.82, 0.1),
    )  # fmt: skip
    rates += [
        EngineRate(engine, _MEMORY, access, 0.85, source="assumed")
        for engine in _REMOTE
        for access in (_READ, _WRITE)
    ]
    return _built(
        _ARM, name, _sockets(2, 72, 480 * GIB, _GRACE_MEMORY, (150, "published for GB300")),
        (4, "NVIDIA GB200", 189471 * MIB, "10.0", 148), links, rates, (0.86, 0.85, 0.85, "assumed"),
        (16, 8, "published for two Graces: STREAM triad reaches 763 GB/s", 0.745), 0.002, **more,
    )  # fmt: skip


def nvl72() -> Machine:
    """Eighteen hosts of four GB200s in one NVLink domain: 72 ranks, one GPU each."""
    ranks = tuple(
        Rank(rank, f"node{host:02d}", f"gpu{gpu}", (), "NVIDIA GB200", f"00000000:{gpu + 1:02x}:00",
             _uuid(host, gpu))
        for rank, (host, gpu) in enumerate(product(range(18), range(4)))
    )  # fmt: skip
    vertices = [f"{rank.index}/{rank.device}" for rank in ranks]
    links = _wired(vertices[:4], _B200_MEMORY, _B200_NVLINK, _GB200_C2C)
    links += _wired(vertices[4:], _B200_MEMORY, _B200_NVLINK)
    return _gb200s("nvl72", links, host="node00", ranks=ranks)


def gh200_1() -> Machine:
    """One GH200: a Grace and a Hopper, joined by NVLink-C2C.

    The memory of Grace limits copies over C2C: 375 GB/s to the GPU, 297 to the host, 166 each way at once.
    """
    seen = "published for GH200: 375 GB/s to the GPU and 297 to the host, 160 each in both directions"
    c2c = ("numa0", 1, _C2C, (450, "NVLink-C2C data sheet", 350))
    links = _wired(["gpu0"], (4023, "2619 MHz x 2 x 6144 bit", 430), c2c)
    rates = _C2C_RATES + [
        EngineRate(engine, _MEMORY, access, efficiency, source=seen)
        for engine in _REMOTE[:3]
        for access, efficiency in ((_READ, 0.733), (_WRITE, 0.580))
    ]
    rates.append(EngineRate(Engine.SM_SPLIT, _MEMORY, efficiency=0.65, source=seen))
    return _built(
        _ARM, "gh200-1", _sockets(1, 72, 480 * GIB, _GRACE_MEMORY),
        (1, "NVIDIA GH200 480GB", 97871 * MIB, "9.0", 132), links, rates,
        (0.86, 0.845, 0.845, "published for GH200: STREAM reaches 3.4 TB/s; copies assumed"),
        (16, 8, "published for GH200: STREAM reaches 486 GB/s", 0.95), 0.002,
    )  # fmt: skip


def dgx_spark() -> Machine:
    """One DGX Spark: 20 cores and a GB10 that share 128 GiB of LPDDR5X, joined by NVLink-C2C."""
    return _built(
        _ARM, "dgx-spark", _sockets(1, 20, 128 * GIB, (273, "LPDDR5X data sheet", 200)),
        (1, "NVIDIA GB10", 122880 * MIB, "12.1", 48),
        _wired(["gpu0"], (273, "LPDDR5X data sheet", 430), ("numa0", 1, _C2C, (300, "assumed", 350))),
        _C2C_RATES, (0.86, 0.845, 0.845, "assumed"), (16, 8, "assumed", 0.9), 0.002,
        cpu="simulated arm64 workstation", page_bytes=4 * KIB, caches=(),
    )  # fmt: skip


def gb200_4() -> Machine:
    """One host of two GB200 superchips: two Graces and four B200s on NVSwitch.

    Each Grace shares its C2C between two GPUs.
    """
    return _gb200s("gb200-4", _wired(_names(4), _B200_MEMORY, _B200_NVLINK, _GB200_C2C))


def hgx_b200_8() -> Machine:
    """Eight B200s on NVSwitch with two sockets; each GPU has a PCIe link to a socket."""
    memory, between = (358, "8 channels x 5600 MT/s x 8 byte", 120), (160, "4 links x 40 GB/s")
    pcie = ("numa{}", 2, _PCIE, (63.0, "PCIe 5 x16", 1085))
    return _built(
        _X86, "hgx-b200-8", _sockets(2, 56, 1024 * GIB, memory, between),
        (8, "NVIDIA B200", 183359 * MIB, "10.0", 148), _wired(_names(8), _B200_MEMORY, _B200_NVLINK, pcie),
        _B200_NVLINK_RATES + _rates(_PCIE, _LIKE_H200, *_H200_PCIE), (0.86, 0.85, 0.85, "assumed"),
        (12, 6, "assumed", 0.85), 0.002,
    )  # fmt: skip


_DDR5_4800 = (460.8, "12 channels x 4800 MT/s x 8 byte", 110)


def l40s_8() -> Machine:
    """Eight L40Ss without NVLink: four on the root complex of each of two sockets, on PCIe 4."""
    seen = "published for six A6000s without NVLink: nvbandwidth, 26.3 GB/s within a socket; others assumed"
    far = "published for six A6000s without NVLink: nvbandwidth, 21.8 to 22.7 GB/s between sockets"
    rates = _rates(_PCIE, seen, ((0.836, 0.23), (0.836, 0.48)), ((0.800, 0.23), (0.820, 0.48)), (0.820, 0.48))
    rates += [EngineRate(e, _SOCKET, None, 0.6, 0.1, 22.2 * _GBPS, source=far) for e in _REMOTE]
    return _built(
        _X86, "l40s-8", _sockets(2, 48, 384 * GIB, _DDR5_4800, (192, "3 links x 64 GB/s")),
        (8, "NVIDIA L40S", 46068 * MIB, "8.9", 142),
        _wired(_names(8), (864, "9001 MHz x 2 x 384 bit", 500), ("numa{}", 2, _PCIE, _PCIE_4)), rates,
        (0.86, 0.85, 0.85, "assumed"), (12, 6, "assumed", 0.85), 0.003,
    )  # fmt: skip


def pcie_4_switched() -> Machine:
    """Four GPUs on PCIe 4 below two switches, with peer access and without NVLink."""
    pcie = (31.5, "PCIe 4 x16", 450)
    links = _wired(_names(4), (960, "10000 MHz x 2 x 384 bit", 500), ("pcie{}", 2, _PCIE, pcie))
    return _built(
        _X86, "pcie-4-switched", _sockets(1, 32, 256 * GIB, (204, _CHANNELS, 100)),
        (4, "simulated workstation GPU", 48 * GIB, "8.9", 142), links + _switches(2, 1, pcie),
        _rates(_PCIE, "assumed", ((0.83, 0.15), (0.83, 0.35)), ((0.80, 0.15), (0.82, 0.35)), (0.82, 0.35)),
        (0.88, 0.87, 0.87, "assumed"), (14, 14, "assumed", 0.85), 0.003,
    )  # fmt: skip


def h100_nvl_2() -> Machine:
    """Two H100 NVLs on PCIe 5, joined by NVLink bridges with twelve of their eighteen links."""
    pcie = ("numa0", 1, _PCIE, (63.0, "PCIe 5 x16", 1085))
    links = _wired(_names(2), (3939, "2619 MHz x 2 x 6016 bit", 430), pcie)
    links += _both("gpu0", "gpu1", _NVLINK, (318.7, "12 links x 26.562 GB/s", 399))
    return _built(
        _X86, "h100-nvl-2", _sockets(1, 48, 384 * GIB, _DDR5_4800),
        (2, "NVIDIA H100 NVL", 95830 * MIB, "9.0", 132), links,
        _rates(_NVLINK, _LIKE_H200, *_H200_NVLINK) + _rates(_PCIE, _LIKE_H200, *_H200_PCIE),
        (0.87, 0.86, 0.83, _LIKE_H200), (12, 6, "assumed", 0.85), 0.001,
    )  # fmt: skip


#: Name -> function that builds it.
MACHINES: dict[str, Callable[[], Machine]] = {
    **{build.__name__.replace("_", "-"): build for build in (hgx_h200_2, dgx_a100_8, ppu_8)},
    **{row[0]: partial(_workstation, *row) for row in _WORKSTATIONS},
    **{
        build.__name__.replace("_", "-"): build
        for build in (
            cpu_2_sockets, nvme_2, h200_2_nvme_2, nvl72, gh200_1, dgx_spark, gb200_4, hgx_b200_8, l40s_8,
            pcie_4_switched, h100_nvl_2,
        )
    },
}  # fmt: skip
