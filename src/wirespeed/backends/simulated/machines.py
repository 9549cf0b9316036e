"""The predefined simulated machines. Link rates are per direction, in B/s; each value has its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ...hardware.devices import STORAGE, Gpu, NumaNode, Storage
from ...hardware.topology import Cache, EngineRate, Link, LinkKind, Machine, Rank
from ...model import FILE_ENGINES, Access, Engine
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
#: Caches of Grace, whose cores are Neoverse V2: sizes from the data sheet, latencies assumed.
_GRACE_CACHES = (
    Cache(1, "data", 64 * KIB, 1, 1.2 * NANO),
    Cache(1, "instruction", 64 * KIB, 1),
    Cache(2, "unified", 1 * MIB, 1, 3.5 * NANO),
    Cache(3, "unified", 114 * MIB, 72, 38 * NANO),
)


def _memory(vertex: str, rate: float, origin: str, latency: float) -> Link:
    return Link(vertex, vertex, _MEMORY, rate, origin, latency)


def _both(a: str, b: str, kind: LinkKind, rate: float, origin: str, latency: float) -> tuple[Link, Link]:
    """Two links, one per direction; each adds ``latency`` to the round trip of a load."""
    return Link(a, b, kind, rate, origin, latency), Link(b, a, kind, rate, origin, latency)


def _sockets(count: int, cores: int, memory_bytes: int, rate: float, latency: float,
             between: float = 0.0, origin: str = "memory channels x transfer rate",
             origin_between: str = "socket links x rate",
             ) -> tuple[tuple[NumaNode, ...], list[Link]]:  # fmt: skip
    """NUMA nodes with their memory, connected pairwise if there is a rate between them."""
    nodes = tuple(
        NumaNode(i, tuple(range(i * cores, (i + 1) * cores)), 1, memory_bytes, memory_bytes * 9 // 10,
                 tuple(10 if i == j else 20 for j in range(count)))
        for i in range(count)
    )  # fmt: skip
    links = [_memory(node.name, rate, origin, latency) for node in nodes]
    for i in range(count if between else 0):
        for j in range(i):
            links += _both(f"numa{j}", f"numa{i}", _SOCKET, between, origin_between, 70 * NANO)
    return nodes, links


def _gpus(count: int, model: str, memory_bytes: int, capability: str, multiprocessors: int,
          numa: Callable[[int], int], peers: bool) -> tuple[Gpu, ...]:  # fmt: skip
    names = [f"gpu{i}" for i in range(count)]
    return tuple(
        Gpu(i, model, f"00000000:{i + 1:02x}:00", memory_bytes, numa(i), multiprocessors, capability,
            tuple(n for n in names if n != f"gpu{i}") if peers else (), uuid=_uuid(0, i))
        for i in range(count)
    )  # fmt: skip


def _uuid(host: int, gpu: int) -> str:
    return f"GPU-{host:08x}-0000-0000-0000-{gpu:012x}"


def _cpu_rates(core: float, remote: float, source: str, efficiency: float = 0.85) -> list[EngineRate]:
    """How host threads use memory: ``core`` B/s of copies per thread, ``remote`` between sockets."""
    return [
        EngineRate(Engine.CPU, _MEMORY, efficiency=efficiency, cap=core, source=source),
        EngineRate(Engine.CPU, _SOCKET, efficiency=0.80, reverse=0.1, cap=remote, source=source),
    ]


#: Rate of one block over a link between GPUs, in B/s: bulk copies need few blocks.
_BLOCK_CAPS = {Engine.SM: 8 * _GBPS, Engine.SM_BULK: 45 * _GBPS}


def _rates(kind: LinkKind, source: str, rows: Iterable[tuple[Sequence[Engine], Access, float, float]],
           caps: dict[tuple[Engine, Access], float] | None = None) -> list[EngineRate]:  # fmt: skip
    """Records for the rows (engines, access, efficiency, reverse)."""
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
    """Rates of local copies, below the memory's line rate; it does not bound remote traffic."""
    return [
        EngineRate(Engine.CE, _MEMORY, _LOCAL, ce, source=source),
        EngineRate(Engine.SM, _MEMORY, _LOCAL, sm, source=source),
        EngineRate(Engine.CUBLAS, _MEMORY, _LOCAL, sm, source=source),
        EngineRate(Engine.SM_BULK, _MEMORY, _LOCAL, bulk, source=source),
    ]


#: Origin of what was measured on H200, and that of machines with the same links.
_H200 = "nvbandwidth 0.8 on two H200s"
_LIKE_H200 = f"as H200: {_H200}"


def _h200_nvlink(source: str) -> list[EngineRate]:
    """How an H200 uses NVLink."""
    return _rates(_NVLINK, source, [
        (_CE, _READ, 0.824, 0.0143), (_CE, _WRITE, 0.829, 0.0145),
        (_SMS, _READ, 0.787, 0.141), (_SMS, _WRITE, 0.774, 0.0148),
    ])  # fmt: skip


def _h200_pcie(source: str) -> list[EngineRate]:
    """How an H200 uses PCIe 5."""
    return _rates(_PCIE, source, [
        (_CE, _READ, 0.860, 0.109), (_CE, _WRITE, 0.860, 0.316),
        (_SMS, _READ, 0.814, 0.109), (_SMS, _WRITE, 0.834, 0.316),
        (_SPLIT, _READ, 0.860, 0.323), (_SPLIT, _WRITE, 0.860, 0.323),
    ])  # fmt: skip


def hgx_h200_2() -> Machine:
    """Two H200s linked by NVLink, with PCIe 5; behaves as measured with nvbandwidth."""
    nodes, links = _sockets(1, 32, 256 * GIB, 460 * _GBPS, 110 * NANO)
    for i in range(2):
        links.append(_memory(f"gpu{i}", 4814 * _GBPS, "3201 MHz x 2 x 6016 bit", 430 * NANO))
        links += _both("numa0", f"gpu{i}", _PCIE, 63.0 * _GBPS, "PCIe 5 x16", 1085 * NANO)
    links += _both("gpu0", "gpu1", _NVLINK, 478.1 * _GBPS, "18 links x 26.562 GB/s", 399 * NANO)
    rates = [
        *_h200_nvlink(_H200),
        *_h200_pcie(_H200),
        *_gpu_memory(0.871, 0.863, 0.834, _H200),
        *_cpu_rates(14 * _GBPS, 8 * _GBPS, "assumed"),
    ]
    gpus = _gpus(2, "NVIDIA H200", 141 * GIB, "9.0", 132, lambda _: 0, True)
    return Machine("hgx-h200-2", "hgx-h200-2", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.001)  # fmt: skip


def dgx_a100_8() -> Machine:
    """Eight A100s on NVSwitch with two sockets; pairs of GPUs share a PCIe switch."""
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
    """Eight accelerators with one or two links between each pair, as in sailbandwidth's guide.

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


def _workstation(name: str, count: int, model: str, memory: tuple[int, float, str], capability: str,
                 pcie: tuple[float, str], cpu: str, *, peers: bool = True) -> Machine:  # fmt: skip
    """GPUs without NVLink, each below a root port of one socket; ``memory`` has GiB, GB/s and its origin."""
    nodes, links = _sockets(1, 16, 128 * GIB, 83 * _GBPS, 95 * NANO)
    for i in range(count):
        links.append(_memory(f"gpu{i}", memory[1] * _GBPS, memory[2], 500 * NANO))
        links += _both("numa0", f"gpu{i}", _PCIE, pcie[0] * _GBPS, pcie[1], 900 * NANO)
    rates = [
        *_rates(_PCIE, "assumed", [
            (_CE, _READ, 0.82, 0.1), (_CE, _WRITE, 0.83, 0.3),
            (_SMS, _READ, 0.79, 0.1), (_SMS, _WRITE, 0.82, 0.3),
            (_SPLIT, _READ, 0.82, 0.3), (_SPLIT, _WRITE, 0.82, 0.3),
        ]),
        *_gpu_memory(0.88, 0.87, 0.87, "assumed"),
        *_cpu_rates(18 * _GBPS, 18 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(count, model, memory[0] * GIB, capability, 142, lambda _: 0, peers)
    return Machine(name, name, cpu, "x86_64", "", True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes,
                   gpus=gpus, links=tuple(links), rates=tuple(rates), noise=0.003)  # fmt: skip


_PCIE_4, _PCIE_5 = (31.5, "PCIe 4 x16"), (63.0, "PCIe 5 x16")
_AMD, _INTEL = "simulated AMD workstation", "simulated Intel workstation"
#: Workstations with GPUs as people have them: memory from data sheets, all else assumed.
_WORKSTATIONS = (
    ("pcie-2-no-p2p", 2, "simulated workstation GPU", (48, 960, "10000 MHz x 2 x 384 bit"), "8.9", _PCIE_4,
     "simulated x86 workstation", False),
    ("rtx3090-4", 4, "NVIDIA GeForce RTX 3090", (24, 936, "9751 MHz x 2 x 384 bit"), "8.6", _PCIE_4, _AMD,
     True),
    ("rtx4090-2", 2, "NVIDIA GeForce RTX 4090", (24, 1008, "10501 MHz x 2 x 384 bit"), "8.9", _PCIE_4, _INTEL,
     True),
    ("rtx5090-4", 4, "NVIDIA GeForce RTX 5090", (32, 1792, "28 GT/s x 512 bit"), "12.0", _PCIE_5, _AMD, True),
    ("rtxpro6000-4", 4, "NVIDIA RTX PRO 6000 Blackwell", (96, 1792, "28 GT/s x 512 bit"), "12.0", _PCIE_5,
     _INTEL, True),
)  # fmt: skip


def cpu_2_sockets() -> Machine:
    """Two sockets of 32 cores without a GPU."""
    nodes, links = _sockets(2, 32, 256 * GIB, 307 * _GBPS, 105 * NANO, 62 * _GBPS)
    return Machine("cpu-2-sockets", "cpu-2-sockets", "simulated x86 server", "x86_64", "",
                   True, huge_page_bytes=2 * MIB, transparent_huge_pages="madvise",
                   caches=_SERVER_CACHES, numa=nodes, links=tuple(links),
                   rates=tuple(_cpu_rates(12 * _GBPS, 6 * _GBPS, "assumed")), noise=0.004)  # fmt: skip


def _with_nvme(server: Machine, name: str) -> Machine:
    """A server with two NVMe devices of PCIe 4 at its first socket."""
    devices = tuple(Storage(i, f"/mnt/nvme{i}", "xfs", "NVMe SSD", (), True, 4 * GIB, 0) for i in range(2))
    links = [*server.links, *(_memory(device.name, 7 * _GBPS, "assumed", 80e-6) for device in devices)]
    for device in devices:
        links += _both("numa0", device.name, _PCIE, 4 * 1.969 * _GBPS, "PCIe 4 x4", 1e-6)
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


def nvl72() -> Machine:
    """Eighteen hosts of four GB200s in one NVLink domain: 72 ranks, one GPU each."""
    hosts, per_host = 18, 4
    nodes, links = _graces()
    ranks = []
    for rank in range(hosts * per_host):
        device = f"gpu{rank % per_host}"
        vertex = f"{rank}/{device}"
        host, gpu = divmod(rank, per_host)
        ranks.append(Rank(rank, f"node{host:02d}", device, (), "NVIDIA GB200", f"00000000:{gpu + 1:02x}:00",
                          _uuid(host, gpu)))  # fmt: skip
        links.append(_memory(vertex, 7672 * _GBPS, "3996 MHz x 2 x 7680 bit", 450 * NANO))
        links += _both(vertex, "nvswitch", _NVLINK, 900 * _GBPS, "18 links x 50 GB/s", 250 * NANO)
        if rank < per_host:
            links += _both(f"numa{rank // 2}", vertex, LinkKind.C2C, 225 * _GBPS,
                           "NVLink-C2C data sheet, half for each GPU", 350 * NANO)  # fmt: skip
    gpus = _gpus(per_host, "NVIDIA GB200", 189471 * MIB, "10.0", 148, lambda i: i // 2, True)
    return Machine("nvl72", "node00", "simulated arm64 server", "aarch64", "",
                   True, "580.159", 13000, page_bytes=64 * KIB, caches=_GRACE_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), ranks=tuple(ranks), rates=_gb200_rates(), noise=0.002)  # fmt: skip


def gh200_1() -> Machine:
    """One GH200: a Grace and a Hopper, joined by NVLink-C2C.

    The memory of Grace limits copies over C2C: 375 GB/s to the GPU, 297 to the host, 166 each way at once.
    """
    seen = "published for GH200: 375 GB/s to the GPU and 297 to the host, 160 each in both directions"
    nodes, links = _sockets(1, 72, 480 * GIB, 512 * _GBPS, 200 * NANO, origin="LPDDR5X data sheet")
    links.append(_memory("gpu0", 4023 * _GBPS, "2619 MHz x 2 x 6144 bit", 430 * NANO))
    links += _both("numa0", "gpu0", LinkKind.C2C, 450 * _GBPS, "NVLink-C2C data sheet", 350 * NANO)
    rates = [
        *_rates(LinkKind.C2C, "assumed", [
            (_CE, _READ, 0.85, 0.05), (_CE, _WRITE, 0.85, 0.05),
            (_SMS, _READ, 0.80, 0.05), (_SMS, _WRITE, 0.80, 0.05),
            (_SPLIT, _READ, 0.80, 0.1), (_SPLIT, _WRITE, 0.80, 0.1),
        ]),
        *(
            EngineRate(engine, _MEMORY, access, efficiency, source=seen)
            for engine in (Engine.CE, Engine.SM, Engine.SM_BULK)
            for access, efficiency in ((_READ, 0.733), (_WRITE, 0.580))
        ),
        EngineRate(Engine.SM_SPLIT, _MEMORY, efficiency=0.65, source=seen),
        *_gpu_memory(0.86, 0.845, 0.845, "published for GH200: STREAM reaches 3.4 TB/s; copies assumed"),
        *_cpu_rates(16 * _GBPS, 8 * _GBPS, "published for GH200: STREAM reaches 486 GB/s", 0.95),
    ]  # fmt: skip
    gpus = _gpus(1, "NVIDIA GH200 480GB", 97871 * MIB, "9.0", 132, lambda _: 0, True)
    return Machine("gh200-1", "gh200-1", "simulated arm64 server", "aarch64", "",
                   True, "580.159", 13000, page_bytes=64 * KIB, caches=_GRACE_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.002)  # fmt: skip


def dgx_spark() -> Machine:
    """One DGX Spark: 20 cores and a GB10 that share 128 GiB of LPDDR5X, joined by NVLink-C2C."""
    nodes, links = _sockets(1, 20, 128 * GIB, 273 * _GBPS, 200 * NANO, origin="LPDDR5X data sheet")
    links.append(_memory("gpu0", 273 * _GBPS, "LPDDR5X data sheet", 430 * NANO))
    links += _both("numa0", "gpu0", LinkKind.C2C, 300 * _GBPS, "assumed", 350 * NANO)
    rates = [
        *_rates(LinkKind.C2C, "assumed", [
            (_CE, _READ, 0.85, 0.05), (_CE, _WRITE, 0.85, 0.05),
            (_SMS, _READ, 0.80, 0.05), (_SMS, _WRITE, 0.80, 0.05),
            (_SPLIT, _READ, 0.80, 0.1), (_SPLIT, _WRITE, 0.80, 0.1),
        ]),
        *_gpu_memory(0.86, 0.845, 0.845, "assumed"),
        *_cpu_rates(16 * _GBPS, 8 * _GBPS, "assumed", 0.9),
    ]  # fmt: skip
    gpus = _gpus(1, "NVIDIA GB10", 122880 * MIB, "12.1", 48, lambda _: 0, True)
    return Machine("dgx-spark", "dgx-spark", "simulated arm64 workstation", "aarch64", "",
                   True, "580.159", 13000, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.002)  # fmt: skip


def _graces() -> tuple[tuple[NumaNode, ...], list[Link]]:
    return _sockets(
        2, 72, 480 * GIB, 512 * _GBPS, 200 * NANO, 150 * _GBPS, "LPDDR5X data sheet", "published for GB300"
    )


def _gb200_rates() -> tuple[EngineRate, ...]:
    seen = "published for four GB200s: nvbandwidth"
    return (
        *_rates(_NVLINK, f"{seen}, reads of 765 GB/s; others assumed", [
            (_CE, _READ, 0.86, 0.015), (_CE, _WRITE, 0.86, 0.015),
            (_SMS, _READ, 0.79, 0.13), (_SMS, _WRITE, 0.78, 0.015),
        ]),
        *_rates(LinkKind.C2C, f"{seen}, 201 GB/s to the GPU and 193 to the host; others assumed", [
            (_CE, _READ, 0.893, 0.05), (_CE, _WRITE, 0.858, 0.05),
            (_SMS, _READ, 0.85, 0.05), (_SMS, _WRITE, 0.82, 0.05),
            (_SPLIT, _READ, 0.82, 0.1), (_SPLIT, _WRITE, 0.82, 0.1),
        ]),
        *(
            EngineRate(engine, _MEMORY, access, 0.85, source="assumed")
            for engine in (Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)
            for access in (_READ, _WRITE)
        ),
        *_gpu_memory(0.86, 0.85, 0.85, "assumed"),
        *_cpu_rates(16 * _GBPS, 8 * _GBPS, "published for two Graces: STREAM triad reaches 763 GB/s", 0.745),
    )  # fmt: skip


def gb200_4() -> Machine:
    """One host of two GB200 superchips: two Graces and four B200s on NVSwitch.

    Each Grace shares its C2C between two GPUs.
    """
    nodes, links = _graces()
    for i in range(4):
        links.append(_memory(f"gpu{i}", 7672 * _GBPS, "3996 MHz x 2 x 7680 bit", 450 * NANO))
        links += _both(f"gpu{i}", "nvswitch", _NVLINK, 900 * _GBPS, "18 links x 50 GB/s", 250 * NANO)
        links += _both(f"numa{i // 2}", f"gpu{i}", LinkKind.C2C, 225 * _GBPS,
                       "NVLink-C2C data sheet, half for each GPU", 350 * NANO)  # fmt: skip
    gpus = _gpus(4, "NVIDIA GB200", 189471 * MIB, "10.0", 148, lambda i: i // 2, True)
    return Machine("gb200-4", "gb200-4", "simulated arm64 server", "aarch64", "",
                   True, "580.159", 13000, page_bytes=64 * KIB, caches=_GRACE_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=_gb200_rates(), noise=0.002)  # fmt: skip


def hgx_b200_8() -> Machine:
    """Eight B200s on NVSwitch with two sockets; each GPU has a PCIe link to a socket."""
    nodes, links = _sockets(
        2, 56, 1024 * GIB, 358 * _GBPS, 120 * NANO, 160 * _GBPS,
        "8 channels x 5600 MT/s x 8 byte", "4 links x 40 GB/s",
    )  # fmt: skip
    for i in range(8):
        links.append(_memory(f"gpu{i}", 7672 * _GBPS, "3996 MHz x 2 x 7680 bit", 450 * NANO))
        links += _both(f"gpu{i}", "nvswitch", _NVLINK, 900 * _GBPS, "18 links x 50 GB/s", 250 * NANO)
        links += _both(f"numa{i // 4}", f"gpu{i}", _PCIE, 63.0 * _GBPS, "PCIe 5 x16", 1085 * NANO)
    rates = [
        *_rates(_NVLINK, "published for four GB200s: nvbandwidth, reads of 765 GB/s; others assumed", [
            (_CE, _READ, 0.86, 0.015), (_CE, _WRITE, 0.86, 0.015),
            (_SMS, _READ, 0.79, 0.13), (_SMS, _WRITE, 0.78, 0.015),
        ]),
        *_h200_pcie(_LIKE_H200),
        *_gpu_memory(0.86, 0.85, 0.85, "assumed"),
        *_cpu_rates(12 * _GBPS, 6 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(8, "NVIDIA B200", 183359 * MIB, "10.0", 148, lambda i: i // 4, True)
    return Machine("hgx-b200-8", "hgx-b200-8", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.002)  # fmt: skip


def l40s_8() -> Machine:
    """Eight L40Ss without NVLink: four on the root complex of each of two sockets, on PCIe 4."""
    seen = "published for six A6000s without NVLink: nvbandwidth, 26.3 GB/s within a socket; others assumed"
    far = "published for six A6000s without NVLink: nvbandwidth, 21.8 to 22.7 GB/s between sockets"
    nodes, links = _sockets(
        2, 48, 384 * GIB, 460.8 * _GBPS, 110 * NANO, 192 * _GBPS,
        "12 channels x 4800 MT/s x 8 byte", "3 links x 64 GB/s",
    )  # fmt: skip
    for i in range(8):
        links.append(_memory(f"gpu{i}", 864 * _GBPS, "9001 MHz x 2 x 384 bit", 500 * NANO))
        links += _both(f"numa{i // 4}", f"gpu{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 900 * NANO)
    rates = [
        *_rates(_PCIE, seen, [
            (_CE, _READ, 0.836, 0.23), (_CE, _WRITE, 0.836, 0.48),
            (_SMS, _READ, 0.800, 0.23), (_SMS, _WRITE, 0.820, 0.48),
            (_SPLIT, _READ, 0.820, 0.48), (_SPLIT, _WRITE, 0.820, 0.48),
        ]),
        *(
            EngineRate(engine, _SOCKET, efficiency=0.6, reverse=0.1, cap=22.2 * _GBPS, source=far)
            for engine in (Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)
        ),
        *_gpu_memory(0.86, 0.85, 0.85, "assumed"),
        *_cpu_rates(12 * _GBPS, 6 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(8, "NVIDIA L40S", 46068 * MIB, "8.9", 142, lambda i: i // 4, True)
    return Machine("l40s-8", "l40s-8", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.003)  # fmt: skip


def pcie_4_switched() -> Machine:
    """Four GPUs on PCIe 4 below two switches, with peer access and without NVLink."""
    nodes, links = _sockets(1, 32, 256 * GIB, 204 * _GBPS, 100 * NANO)
    for i in range(4):
        links.append(_memory(f"gpu{i}", 960 * _GBPS, "10000 MHz x 2 x 384 bit", 500 * NANO))
        links += _both(f"pcie{i // 2}", f"gpu{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 450 * NANO)
    for i in range(2):
        links += _both("numa0", f"pcie{i}", _PCIE, 31.5 * _GBPS, "PCIe 4 x16", 450 * NANO)
    rates = [
        *_rates(_PCIE, "assumed", [
            (_CE, _READ, 0.83, 0.15), (_CE, _WRITE, 0.83, 0.35),
            (_SMS, _READ, 0.80, 0.15), (_SMS, _WRITE, 0.82, 0.35),
            (_SPLIT, _READ, 0.82, 0.35), (_SPLIT, _WRITE, 0.82, 0.35),
        ]),
        *_gpu_memory(0.88, 0.87, 0.87, "assumed"),
        *_cpu_rates(14 * _GBPS, 14 * _GBPS, "assumed"),
    ]  # fmt: skip
    gpus = _gpus(4, "simulated workstation GPU", 48 * GIB, "8.9", 142, lambda _: 0, True)
    return Machine("pcie-4-switched", "pcie-4-switched", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.003)  # fmt: skip


def h100_nvl_2() -> Machine:
    """Two H100 NVLs on PCIe 5, joined by NVLink bridges with twelve of their eighteen links."""
    nodes, links = _sockets(1, 48, 384 * GIB, 460.8 * _GBPS, 110 * NANO,
                            origin="12 channels x 4800 MT/s x 8 byte")  # fmt: skip
    for i in range(2):
        links.append(_memory(f"gpu{i}", 3939 * _GBPS, "2619 MHz x 2 x 6016 bit", 430 * NANO))
        links += _both("numa0", f"gpu{i}", _PCIE, 63.0 * _GBPS, "PCIe 5 x16", 1085 * NANO)
    links += _both("gpu0", "gpu1", _NVLINK, 318.7 * _GBPS, "12 links x 26.562 GB/s", 399 * NANO)
    rates = [
        *_h200_nvlink(_LIKE_H200),
        *_h200_pcie(_LIKE_H200),
        *_gpu_memory(0.87, 0.86, 0.83, _LIKE_H200),
        *_cpu_rates(12 * _GBPS, 6 * _GBPS, "assumed"),
    ]
    gpus = _gpus(2, "NVIDIA H100 NVL", 95830 * MIB, "9.0", 132, lambda _: 0, True)
    return Machine("h100-nvl-2", "h100-nvl-2", "simulated x86 server", "x86_64", "",
                   True, "580.159", 13000, caches=_SERVER_CACHES, numa=nodes, gpus=gpus,
                   links=tuple(links), rates=tuple(rates), noise=0.001)  # fmt: skip


#: Name -> function that builds it.
MACHINES: dict[str, Callable[[], Machine]] = {
    "hgx-h200-2": hgx_h200_2,
    "dgx-a100-8": dgx_a100_8,
    "ppu-8": ppu_8,
    **{row[0]: partial(_workstation, *row[:-1], peers=row[-1]) for row in _WORKSTATIONS},
    "cpu-2-sockets": cpu_2_sockets,
    "nvme-2": nvme_2,
    "h200-2-nvme-2": h200_2_nvme_2,
    "nvl72": nvl72,
    "gh200-1": gh200_1,
    "dgx-spark": dgx_spark,
    "gb200-4": gb200_4,
    "hgx-b200-8": hgx_b200_8,
    "l40s-8": l40s_8,
    "pcie-4-switched": pcie_4_switched,
    "h100-nvl-2": h100_nvl_2,
}
