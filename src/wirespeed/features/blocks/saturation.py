"""How many multiprocessors a kernel takes that moves block lists as fast as the link allows: a testcase that
measures one list over the number of thread blocks, each of which occupies one multiprocessor, and the curves
of a run. Servers want few, because the others compute meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...document import Document
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce, Unit
from ...model import BlockList, Engine, Method, Transfer
from ...testcases.base import Layout, Plan, PlanOptions, Testcase, WaivedCell, count_axis
from ...testcases.patterns import NO_GPU
from ...thresholds.values import SATURATED
from ...units import KIB
from .testcases import PREFIX, BlockPath, with_host

NAME = f"{PREFIX}sm_scaling"
#: Blocks of the list, which servers move by kernels, in bytes, and their number: some ms on one link.
BLOCK, _BLOCKS = 16 * KIB, 8192
#: Numbers of thread blocks, as far as the GPU has multiprocessors. Servers take 2 to 16.
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
#: Direction -> whether blocks go to the GPU.
_TO = {"host_to_device": True, "device_to_host": False}
_KERNELS = (Method.KERNEL, Method.KERNEL_BULK)


@dataclass(frozen=True)
class Saturation:
    """The rates of kernels over the number of thread blocks on one path.

    Attributes:
        direction, path: Key of the direction, and source and destination: ``numa0->gpu0``.
        rates: Kernel -> number of thread blocks -> rate in B/s.
    """

    direction: str
    path: str
    rates: Mapping[Method, Mapping[int, float]]

    @property
    def saturating(self) -> dict[Method, int]:
        """The smallest number of thread blocks with which each kernel saturates the link, if it does."""
        fastest = max(max(curve.values()) for curve in self.rates.values())
        enough = {
            kernel: [count for count, rate in curve.items() if rate >= SATURATED * fastest]
            for kernel, curve in self.rates.items()
        }
        return {kernel: min(counts) for kernel, counts in enough.items() if counts}


def saturations(document: Document) -> Iterator[Saturation]:
    """Yield the curves of a run."""
    for table in (table for result in document.testcases if result.name == NAME for table in result.tables):
        direction, _, path = table.key.partition(" ")
        rates: dict[Method, dict[int, float]] = {}
        for cell in table.cells:
            label, count = table.rows.labels[cell.row], table.columns.labels[cell.column]
            if cell.value and not cell.corrupted and label in set(_KERNELS) and count.isdecimal():
                rates.setdefault(Method(label), {})[int(count)] = cell.value
        if rates and direction in _TO:
            yield Saturation(direction, path, rates)


def _pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
    """A table for each direction and the first GPU of each model: kernels x thread blocks."""
    del case
    first = {gpu.model: gpu for gpu in reversed(machine.gpus)}.values()
    layouts, measurements, waived = list[Layout](), list[Measurement](), list[WaivedCell]()
    for direction, to in _TO.items():
        for path in with_host(to=to)(machine):
            (gpu,) = (g for g in machine.gpus if g.name == path.executor(Method.KERNEL).device)
            if gpu not in first:
                continue
            key = f"{direction} {path}"
            counts = [n for n in _COUNTS if n <= (gpu.multiprocessors or max(_COUNTS))]
            title = f"blocks {path} by kernels, over thread blocks"
            rows, columns = Axis("kernel", tuple(map(str, _KERNELS))), count_axis("thread blocks", counts)
            layouts.append(Layout(key, title, rows, columns, Unit.RATE))
            for i, kernel in enumerate(_KERNELS):
                for j, count in enumerate(counts):
                    if lacking := path.methods[kernel]:
                        waived.append(WaivedCell(key, i, j, lacking))
                    else:
                        place = Place(key, i, j, Reduce.FIRST, (0,))
                        measurements.append(Measurement(_list(path, kernel, count, options), (place,)))
    if not layouts:
        return Plan.waive(NO_GPU)
    return Plan(tuple(layouts), tuple(measurements), tuple(waived))


def _list(path: BlockPath, kernel: Method, count: int, options: PlanOptions) -> tuple[Transfer, ...]:
    """The list by a kernel with this number of thread blocks."""
    blocks = max(1, min(_BLOCKS, path.most // BLOCK))
    (transfer,) = path.transfers(BlockList(kernel, BLOCK, blocks, options.block_layout))
    return (replace(transfer, executor=replace(transfer.executor, blocks=count)),)


TESTCASES = (
    Testcase(
        NAME,
        f"scattered blocks of {BLOCK // KIB} KiB between host and GPU by kernels, over thread blocks",
        _pattern,
        "blocks over thread blocks",
        Engine.SM,
        size=BLOCK * _BLOCKS,
        fixed_size=True,
        tier="full",
    ),
)
