"""The kinds of paths that data moves along, their testcases, and the kinds of which no value was judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from ..document import Document, Status
from ..hardware.devices import GPU, NUMA, DeviceKind, added
from ..hardware.link_graph import MachineVertices
from ..hardware.topology import Machine
from ..measurement import Unit
from ..results.cells import Key, Placed
from ..statistics import grouped
from .verdict import Judgement, Verdict, worst


@dataclass(frozen=True)
class PathKind:
    """What data moves along.

    Attributes:
        name: Name for programs.
        title: Name in texts.
        prefixes: Prefixes of the names of its testcases.
        key_figures: Testcases of its key figure; the first group that was measured counts. Empty without a
            key figure.
        device: Kind of the devices at its ends; empty if it uses all at once.
    """

    name: str
    title: str
    prefixes: tuple[str, ...] = ()
    key_figures: tuple[tuple[str, ...], ...] = ()
    device: str = ""

    def __str__(self) -> str:
        return self.title


HOST_GPU = PathKind(
    "host_gpu",
    "host ↔ GPU",
    ("host_to_device", "device_to_host", "all_to_host", "host_to_all", "host_device",
     "blocks_host_to_device", "blocks_device_to_host", "blocks_both_ways", "blocks_host_to_all",
     "blocks_all_to_host", "blocks_sm_scaling"),
    (("host_to_device_memcpy_ce", "device_to_host_memcpy_ce"),
     ("host_to_device_memcpy_sm", "device_to_host_memcpy_sm")),
    GPU.name,
)  # fmt: skip
GPU_GPU = PathKind(
    "gpu_gpu",
    "GPU ↔ GPU",
    ("device_to_device", "all_to_one", "one_to_all", "blocks_device_to_device"),
    (("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"),
     ("device_to_device_memcpy_read_sm", "device_to_device_memcpy_write_sm")),
    GPU.name,
)  # fmt: skip
GPU_MEMORY = PathKind("gpu_memory", "GPU memory", GPU.testcases, GPU.key_figures, GPU.name)
HOST_MEMORY = PathKind(
    "host_memory", "host memory", (*NUMA.testcases, "blocks_host"), NUMA.key_figures, NUMA.name
)
COLLECTIVES = PathKind(
    "collectives", "collectives", (), (("all_reduce",), ("all_gather",), ("reduce_scatter",), ("alltoall",))
)
PROCESSES = PathKind(
    "processes",
    "between processes",
    ("multinode", "message", "sharing"),
    (("multinode_device_to_device_memcpy_read_ce", "multinode_device_to_device_memcpy_write_ce"),),
    GPU.name,
)
OTHER = PathKind("other", "other")


def path_kinds() -> tuple[PathKind, ...]:
    """All kinds of paths, in the order in which people see them."""
    of_added = [path for kind in added() for path in _paths_of(kind)]
    return HOST_GPU, GPU_GPU, GPU_MEMORY, HOST_MEMORY, COLLECTIVES, PROCESSES, *of_added, OTHER


def _paths_of(kind: DeviceKind) -> tuple[PathKind, ...]:
    """The paths of a kind of device: with the host, and its memory if it executes transfers."""
    if not kind.engines:
        title = f"host ↔ {kind.words[0]}"
        return (PathKind(f"host_{kind.name}", title, kind.testcases, kind.key_figures, kind.name),)
    with_host = (f"{kind.name}_from_host", f"{kind.name}_to_host")
    prefixes = kind.testcases or (f"{kind.name}_",)
    return (
        PathKind(f"host_{kind.name}", f"host ↔ {kind.words[0]}", with_host, (with_host,), kind.name),
        PathKind(f"{kind.name}_memory", f"{kind.words[0]} memory", prefixes, kind.key_figures, kind.name),
    )


@lru_cache(maxsize=1024)
def path_kind(testcase: str, *, collective: bool = False) -> PathKind:
    """The kind of path of a testcase, by its name."""
    if collective:
        return COLLECTIVES
    fitting = (kind for kind in path_kinds() if kind.prefixes and testcase.startswith(kind.prefixes))
    return next(fitting, OTHER)


#: Kinds of paths of GPUs -> number of GPUs of a machine that has them.
_GPUS_OF = {HOST_GPU: 1, GPU_GPU: 2, GPU_MEMORY: 1, COLLECTIVES: 2}


def skipped(document: Document) -> Iterator[tuple[PathKind, str]]:
    """Yield the kinds of paths that the machine has, of which every testcase was skipped, with the reason."""
    by_kind = grouped(
        (path_kind(result.name, collective=result.collective is not None), result)
        for result in document.testcases
    )
    for kind, least in _GPUS_OF.items():
        results = by_kind.get(kind, [])
        if results and len(document.machine.gpus) >= least and all(
            result.status is Status.WAIVED for result in results
        ):  # fmt: skip
            yield kind, Counter(result.reason for result in results).most_common(1)[0][0]


@dataclass(frozen=True)
class Uncovered:
    """A kind of path of some devices of which no rate was judged, although a rate can be.

    Attributes:
        kind: The kind.
        devices: The devices at its ends; empty for the whole kind.
        verdict: Why not: busy, or unknown.
        why: The same in words.
        of_size: Whether larger buffers would be judged.
        of_run: The verdict on a run whose other values are as expected.
    """

    kind: PathKind
    devices: tuple[str, ...]
    verdict: Verdict
    why: str
    of_size: bool = False
    of_run: Verdict = Verdict.NOT_JUDGED

    def __str__(self) -> str:
        return f"{self.kind} of {', '.join(self.devices)}" if self.devices else str(self.kind)


def uncovered(
    judged: Sequence[Judgement],
    cells: Sequence[Placed],
    small: Container[Key],
    machine: Machine,
    *,
    is_log: bool = False,
) -> tuple[Uncovered, ...]:
    """The kinds of paths, and devices, of which no rate was judged, although a rate can be.

    A rate can be judged if only a device in use, a lack of memory or the size of the buffers prevents it. One
    that nothing on this machine limits, such as that of host memory of unknown capacity, cannot. Nobody chose
    what a log contains, or sees what it lacks: there, every kind of path with rates counts, as a whole.

    Args:
        judged: The judgements on the cells.
        cells: The cells, in the same order.
        small: The cells whose buffers are too small to judge them.
        machine: The machine.
        is_log: Whether the values are of a log of another tool.
    """
    covered: dict[tuple[PathKind, str], bool] = {}
    lost: dict[tuple[PathKind, str], list[tuple[Judgement, Placed]]] = {}
    vertices = MachineVertices(machine)

    @cache
    def kind_name(name: str) -> str:
        """The name of the kind of a device; empty for other vertices and labels."""
        return found.name if (found := vertices.kind(name)) else ""

    for judgement, measured in zip(judged, cells, strict=True):
        kind = path_kind(measured.key.testcase, collective=measured.result.collective is not None)
        if judgement.unit is not Unit.RATE or (is_log and kind == OTHER):
            continue
        ends = {end for index, *_ in measured.cell.links for end in machine.links[index].ends}
        ends |= {measured.key.row, measured.key.column}
        # A kind of path of no particular devices is one place.
        by_device = bool(kind.device) and not is_log
        for device in sorted(end for end in ends if by_device and kind_name(end) == kind.device) or [""]:
            place = kind, device
            if judgement.verdict.is_judged or (judgement.verdict is Verdict.WAIVED and judgement.value):
                covered[place] = True
            elif _is_lost(judgement, measured, small) or (
                is_log and judgement.verdict is Verdict.NOT_JUDGED and judgement.value is not None
            ):
                lost.setdefault(place, []).append((judgement, measured))
    groups: dict[tuple[PathKind, Verdict, str, bool], list[str]] = {}
    for (kind, device), values in lost.items():
        if (kind, device) not in covered:
            first, measured = min(values, key=lambda value: value[0].verdict.rank)
            size = measured.key in small
            key = kind, worst(one.verdict for one, _ in values), first.why or measured.result.reason, size
            groups.setdefault(key, []).append(device)
    whole = {kind for kind, _ in covered}
    return tuple(
        Uncovered(
            kind,
            tuple(filter(None, devices)) if kind in whole else (),
            verdict,
            why,
            of_size,
            Verdict.WARN if is_log else verdict,
        )
        for (kind, verdict, why, of_size), devices in groups.items()
    )


def _is_lost(judgement: Judgement, measured: Placed, small: Container[Key]) -> bool:
    """Whether a value would have been judged on an idle machine, with other buffers or more memory."""
    if judgement.verdict is Verdict.BUSY or measured.result.status is Status.NO_MEMORY:
        return judgement.verdict.is_unjudged
    return judgement.verdict is Verdict.NOT_JUDGED and measured.key in small
