"""The predefined simulated machines. Link rates are per direction, in B/s; each value has its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...model import Access, Engine
from ...topology import Cache, EngineRate, Gpu, Link, LinkKind, Machine, NumaNode, Rank
from ...units import GIB, KIB, MIB, NANO

#: 1 GB/s in B/s.
_GBPS = 1e9
_READ, _WRITE, _LOCAL = Access.READ, Access.WRITE, Access.LOCAL
_PCIE, _NVLINK, _MEMORY, _SOCKET = LinkKind.PCIE, LinkKind.NVLINK, LinkKind.MEMORY, LinkKind.SOCKET

_SERVER_CACHES = (
    Cache(1, "data", 32 * KIB, 1, 1.3 * NANO),
    Cache(1, "instruction", 32 * KIB, 1),
    Cache(2, "unified", 1 * MIB, 1, 4 * NANO),
    Cache(3, "unified", 32 * MIB, 8, 13 * NANO),
)


def _memory(vertex: str, rate: float, origin: str, latency: float) -> Link:
    return Link(vertex, vertex, _MEMORY, rate, origin, latency)


def _both(a: str, b: str, kind: LinkKind, rate: float, origin: str, latency: float) -> tuple[Link, Link]:
    """Return two links, one per direction; each adds ``latency`` to the round trip of a load."""
    return Link(a, b, kind, rate, origin, latency), Link(b, a, kind, rate, origin, latency)


def _sockets(count: int, cores: int, memory_bytes: int, rate: float, latency: float,
             between: float = 0.0) -> tuple[tuple[NumaNode, ...], list[Link]]:  # fmt: skip
    """Return NUMA nodes with their memory, connected pairwise if there is a rate between them."""
    nodes = tuple(
        NumaNode(i, tuple(range(i * cores, (i + 1) * cores)), 1, memory_bytes, memory_bytes * 9 // 10,
                 tuple(10 if i == j else 20 for j in range(count)))
        for i in range(count)
    )  # fmt: skip
    links = [_memory(node.name, rate, "memory channels x transfer rate", latency) for node in nodes]
    for i in range(count if between else 0):
        for j in range(i):
            links += _both(f"numa{j}", f"numa{i}", _SOCKET, between, "socket links x rate", 70 * NANO)
    return nodes, links


def _gpus(count: int, model: str, memory_bytes: int, capability: str, multiprocessors: int,
          numa: Callable[[int], int], peers: bool) -> tuple[Gpu, ...]:  # fmt: skip
    names = [f"gpu{i}" for i in range(count)]
    return tuple(
        Gpu(i, model, f"00000000:{i + 1:02x}:00", memory_bytes, numa(i), multiprocessors, capability,
            tuple(n for n in names if n != f"gpu{i}") if peers else ())
        for i in range(count)
    )  # fmt: skip


def _cpu_rates(core: float, remote: float, source: str) -> list[EngineRate]:
    """Return how host threads use memory: ``core`` B/s of copies per thread, ``remote`` between sockets."""
    return [
        EngineRate(Engine.CPU, _MEMORY, efficiency=0.85, cap=core, source=source),
        EngineRate(Engine.CPU, _SOCKET, efficiency=0.80, reverse=0.1, cap=remote, source=source),
    ]


#: Rate of one block over a link between GPUs, in B/s: bulk copies need few blocks.
_BLOCK_CAPS = {Engine.SM: 8 * _GBPS, Engine.SM_BULK: 45 * _GBPS}


def _rates(kind: LinkKind, source: str, rows: Iterable[tuple[Sequence[Engine], Access, float, float]],
           caps: dict[tuple[Engine, Access], float] | None = None) -> list[EngineRate]:  # fmt: skip
    """Return records for the rows (engines, access, efficiency, reverse)."""
    return [
        EngineRate(
            engine,
            kind,
            access,
            efficiency,
            reverse,
            (caps or {}).get((engine, access)),
            _BLOCK_CAPS.get(engine),
            source,
        )
        for engines, access, efficiency, reverse in rows
        for engine in engines
    ]


_CE, _SMS, _SPLIT = (Engine.CE,), (Engine.SM, Engine.SM_BULK), (Engine.SM_SPLIT,)


def _gpu_memory(ce: float, sm: float, bulk: float, source: str) -> list[EngineRate]:
    """Return rates of local copies, below the memory's line rate; it does not bound remote traffic."""
    return [
        EngineRate(Engine.CE, _MEMORY, _LOCAL, ce, source=source),
        EngineRate(Engine.SM, _MEMORY, _LOCAL, sm, source=source),
        EngineRate(Engine.SM_BULK, _MEMORY, _LOCAL, bulk, source=source),
    ]


def hgx_h200_2() -> Machine:
    """Return two H200s linked by NVLink, with PCIe 5; behaves as measured with nvbandwidth."""
    seen = "nvbandwidth 0.8 on two H200s"
    nodes, links = _sockets(1, 32, 256 * GIB, 460 * _GBPS, 110 * NANO)
    for i in range(2):
        links.append(_memory(f"gpu{i}", 4814 * _GBPS, "3201 MHz x 2 x 6016 bit", 430 * NANO))
        links += _both("numa0", f"gpu{i}", _PCIE, 63.0 * _GBPS, "PCIe 5 x16", 1085 * NANO)
    links += _both("gpu0", "gpu1", _NVLINK, 478.1 * _GBPS, "18 links x 26.562 GB/s", 399 * NANO)
    rates = [
        *_rates(_NVLINK, seen, [
            (_CE, _READ, 0.824, 0.0143), (_CE, _WRITE, 0.829, 0.0145),
            (_SMS, _READ, 0.787, 0.141), (_SMS, _WRITE, 0.774, 0.0148),
        ]),
        *_rates(_PCIE, seen, [
            (_CE, _READ, 0.860, 0.109), (_CE, _WRITE, 0.860, 0.316),
            (_SMS, _READ, 0.814, 0.109), (_SMS, _WRITE, 0.834, 0.316),
            (_SPLIT, _READ, 0.860, 0.323), (_SPLIT, _WRITE, 0.860, 0.323),
        ]),
        *_gpu_memory(0.871, 0.863, 0.834, seen),
        *_cpu_rates(14 * _GBPS, 8 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(2, "NVIDIA H200", 141 * GIB, "9.0", 132, lambda _: 0, True)
    return Machine("hgx-h200-2", "hgx-h200-2", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.001)  # fmt: skip


def dgx_a100_8() -> Machine:
    """Return eight A100s on NVSwitch with two sockets; pairs of GPUs share a PCIe switch."""
    seen = "nvbandwidth's published example on eight A100s"
    nodes, links = _sockets(2, 64, 512 * GIB, 190 * _GBPS, 110 * NANO, 64 * _GBPS)
    for i in range(8):
        switch = f"pcie{i // 2}"
        links.append(_memory(f"gpu{i}", 1555 * _GBPS, "1215 MHz x 2 x 5120 bit", 470 * NANO))
        links += _both(switch, f"gpu{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 500 * NANO)
        links += _both(f"gpu{i}", "nvswitch", _NVLINK, 300 * _GBPS, "12 links x 25 GB/s", 230 * NANO)
    for i in range(4):
        links += _both(f"numa{i // 2}", f"pcie{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 500 * NANO)
    rates = [
        *_rates(_NVLINK, seen, [
            (_CE, _READ, 0.920, 0.012), (_CE, _WRITE, 0.921, 0.012),
            (_SMS, _READ, 0.900, 0.13), (_SMS, _WRITE, 0.870, 0.015),
        ]),
        *_rates(_PCIE, seen, [
            (_CE, _READ, 0.825, 0.23), (_CE, _WRITE, 0.810, 0.48),
            (_SMS, _READ, 0.800, 0.23), (_SMS, _WRITE, 0.810, 0.48),
            (_SPLIT, _READ, 0.810, 0.48), (_SPLIT, _WRITE, 0.810, 0.48),
        ]),
        *_gpu_memory(0.842, 0.84, 0.84, seen),
        *_cpu_rates(11 * _GBPS, 6 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(8, "NVIDIA A100-SXM4-40GB", 40 * GIB, "8.0", 108, lambda i: i // 4, True)
    return Machine("dgx-a100-8", "dgx-a100-8", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.002)  # fmt: skip


#: GPUs of ``ppu-8`` that are connected by two links; other pairs have one.
_TWO_LINKS = {(0, 4), (0, 5), (0, 7), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6), (2, 7), (3, 4), (3, 6), (3, 7)}
_PPU_NEAR = {(0, 6), (1, 7), (2, 4), (3, 5)}


def ppu_8() -> Machine:
    """Return eight accelerators with one or two links between each pair, as in sailbandwidth's guide.

    Pairs behave as in the guide; a common limit of all links of a device is not modelled.
    """
    seen = "the tables of sailbandwidth's guide"
    nodes, links = _sockets(2, 64, 512 * GIB, 300 * _GBPS, 110 * NANO, 64 * _GBPS)
    for i in range(8):
        links.append(_memory(f"gpu{i}", 2300 * _GBPS, "assumed, from a local copy of 1055 GB/s", 400 * NANO))
        links += _both(f"pcie{i // 2}", f"gpu{i}", _PCIE, 63.0 * _GBPS, "PCIe 5 x16", 440 * NANO)
    for i in range(4):
        links += _both(f"numa{i // 2}", f"pcie{i}", _PCIE, 80.0 * _GBPS, "from all_to_host", 440 * NANO)
    for i in range(8):
        for j in range(i + 1, 8):
            count = 2 if (i, j) in _TWO_LINKS else 1
            wait = 742 if count == 2 else 310 if (i, j) in _PPU_NEAR else 342
            links += _both(
                f"gpu{i}", f"gpu{j}", _NVLINK, count * 50 * _GBPS, f"{count} x 50 GB/s", wait * NANO
            )
    rates = [
        *_rates(_NVLINK, seen, [
            (_CE, _READ, 0.940, 0.04), (_CE, _WRITE, 0.940, 0.04),
            (_SMS, _READ, 0.9634, 0.156), (_SMS, _WRITE, 0.934, 0.034),
        ], {(Engine.CE, _READ): 46.8 * _GBPS}),
        *_rates(_PCIE, seen, [
            (_CE, _READ, 0.714, 0.10), (_CE, _WRITE, 0.902, 0.42),
            (_SMS, _READ, 0.516, 0.10), (_SMS, _WRITE, 0.835, 0.42),
            (_SPLIT, _READ, 0.60, 0.64), (_SPLIT, _WRITE, 0.60, 0.64),
        ]),
        *_gpu_memory(0.918, 0.918, 0.918, seen),
        *_cpu_rates(11 * _GBPS, 6 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(8, "simulated PPU", 96 * GIB, "9.0", 64, lambda i: i // 4, True)
    return Machine("ppu-8", "ppu-8", "simulated x86 server", "x86_64", "",
                   True, "2.1.0", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.001)  # fmt: skip


def pcie_2_no_p2p() -> Machine:
    """Return two GPUs on PCIe 4 without access to each other's memory."""
    nodes, links = _sockets(1, 16, 128 * GIB, 83 * _GBPS, 95 * NANO)
    for i in range(2):
        links.append(_memory(f"gpu{i}", 960 * _GBPS, "10000 MHz x 2 x 384 bit", 500 * NANO))
        links += _both("numa0", f"gpu{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 900 * NANO)
    rates = [
        *_rates(_PCIE, "assumed", [
            (_CE, _READ, 0.82, 0.1), (_CE, _WRITE, 0.83, 0.3),
            (_SMS, _READ, 0.79, 0.1), (_SMS, _WRITE, 0.82, 0.3),
            (_SPLIT, _READ, 0.82, 0.3), (_SPLIT, _WRITE, 0.82, 0.3),
        ]),
        *_gpu_memory(0.88, 0.87, 0.87, "assumed"),
        *_cpu_rates(18 * _GBPS, 18 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(2, "simulated workstation GPU", 48 * GIB, "8.9", 142, lambda _: 0, False)
    return Machine("pcie-2-no-p2p", "pcie-2-no-p2p", "simulated x86 workstation", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.003)  # fmt: skip


def cpu_2_sockets() -> Machine:
    """Return two sockets of 32 cores without a GPU."""
    nodes, links = _sockets(2, 32, 256 * GIB, 307 * _GBPS, 105 * NANO, 62 * _GBPS)
    return Machine("cpu-2-sockets", "cpu-2-sockets", "simulated x86 server", "x86_64", "",
                   True, huge_page_bytes=2 * MIB, transparent_huge_pages="madvise",
                   caches=_SERVER_CACHES, numa=nodes, links=tuple(links),
                   rates=tuple(_cpu_rates(12 * _GBPS, 6 * _GBPS, "assumed")), noise=0.004)  # fmt: skip


def nvl72() -> Machine:
    """Return eighteen hosts of four GB200s in one NVLink domain: 72 ranks, one GPU each."""
    hosts, per_host = 18, 4
    nodes, links = _sockets(2, 72, 480 * GIB, 512 * _GBPS, 130 * NANO, 300 * _GBPS)
    ranks = []
    for rank in range(hosts * per_host):
        device = f"gpu{rank % per_host}"
        vertex = f"{rank}/{device}"
        ranks.append(Rank(rank, f"node{rank // per_host:02d}", device))
        links.append(_memory(vertex, 8000 * _GBPS, "HBM3e data sheet", 450 * NANO))
        links += _both(vertex, "nvswitch", _NVLINK, 900 * _GBPS, "18 links x 50 GB/s", 250 * NANO)
        if rank < per_host:
            links += _both(f"numa{rank // 2}", vertex, LinkKind.C2C, 450 * _GBPS, "NVLink-C2C data sheet",
                           350 * NANO)  # fmt: skip
    rates = [
        *_rates(_NVLINK, "assumed", [
            (_CE, _READ, 0.84, 0.015), (_CE, _WRITE, 0.85, 0.015),
            (_SMS, _READ, 0.79, 0.13), (_SMS, _WRITE, 0.78, 0.015),
        ]),
        *_rates(LinkKind.C2C, "assumed", [
            (_CE, _READ, 0.85, 0.05), (_CE, _WRITE, 0.85, 0.05),
            (_SMS, _READ, 0.80, 0.05), (_SMS, _WRITE, 0.80, 0.05),
            (_SPLIT, _READ, 0.80, 0.1), (_SPLIT, _WRITE, 0.80, 0.1),
        ]),
        *_gpu_memory(0.86, 0.85, 0.85, "assumed"),
        *_cpu_rates(16 * _GBPS, 8 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(per_host, "NVIDIA GB200", 186 * GIB, "10.0", 148, lambda i: i // 2, True)
    return Machine("nvl72", "node00", "simulated arm64 server", "aarch64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), ranks=tuple(ranks), rates=tuple(rates), noise=0.002)  # fmt: skip


#: Name -> function that builds it.
MACHINES: dict[str, Callable[[], Machine]] = {
    "hgx-h200-2": hgx_h200_2,
    "dgx-a100-8": dgx_a100_8,
    "ppu-8": ppu_8,
    "pcie-2-no-p2p": pcie_2_no_p2p,
    "cpu-2-sockets": cpu_2_sockets,
    "nvl72": nvl72,
}
