"""From times to a Document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..limits import JUDGED_BYTES
from ..model import Axis, Unit
from ..results.document import Cell, CollectiveInfo, Status, Table, TestcaseResult
from ..statistics import median, summarise
from ..units import format_size
from .base import Setting

PLACES = ("out-of-place", "in-place")


@dataclass(frozen=True)
class Measured:
    """One loop: seconds of one operation.

    Parameters
    ----------
    processes
        Of each process, the times of all iterations, where that was asked for.
    wrong
        How many elements were wrong; None: not checked.
    """

    seconds: float
    cpu: float
    processes: tuple[tuple[float, ...], ...] = ()
    wrong: int | None = None

    @property
    def iterations(self) -> tuple[float, ...]:
        """Of each iteration, the time of the slowest process."""
        return tuple(max(times) for times in zip(*self.processes, strict=True))


@dataclass
class Outcome:
    """What was found of a setting.

    Attributes
    ----------
    loops
        (index of the size, in place) -> a loop for each cycle.
    waived
        Size -> why it was not measured.
    refused
        Why nothing was measured.
    """

    setting: Setting
    loops: dict[tuple[int, bool], list[Measured]] = field(default_factory=dict)
    waived: dict[int, str] = field(default_factory=dict)
    refused: str = ""

    def add(self, size: int, in_place: bool, measured: Measured, cycle: int) -> None:
        """Note a loop."""
        loops = self.loops.setdefault((size, in_place), [])
        del loops[cycle:]
        loops.append(measured)

    def at(self, size: int) -> Outcome:
        """Return what the last cycle found of one size alone."""
        found = {
            (0, place): self.loops[size, place][-1:] for place in (False, True) if (size, place) in self.loops
        }
        return Outcome(self.setting, found, self.waived, self.refused)


@dataclass(frozen=True)
class Frame:
    """What the tables of a run have in common.

    Parameters
    ----------
    name
        Of the testcase.
    limit
        What the slowest link of the ranks allows, in B/s.
    normal
        The least bus bandwidth that is normal for large arrays, and the typical, in B/s.
    operations
        In one loop.
    cpu_time
        Whether times are those until all was enqueued.
    """

    name: str
    provider: str
    sizes: tuple[int, ...]
    ranks: int
    limit: float | None
    normal: tuple[float, float] | None
    operations: int
    cpu_time: bool = False
    skip: int = 0


def result(
    outcome: Outcome, frame: Frame, started: str = "", failure: tuple[Status, str] | None = None
) -> TestcaseResult:
    """Return what is known of a setting as a testcase with its curves over the size.

    Parameters
    ----------
    failure
        What ended the run, where it was in this setting.
    """
    status, reason = failure or (Status.PASSED, "")
    wrong = [
        (frame.sizes[j], in_place, loop.wrong)
        for (j, in_place), loops in sorted(outcome.loops.items())
        for loop in loops
        if loop.wrong
    ]
    if outcome.refused:
        status, reason = Status.WAIVED, outcome.refused
    elif wrong:
        size, in_place, count = wrong[0]
        status = Status.FAILED
        reason = f"{count} elements are wrong at {format_size(size)}, {PLACES[in_place]}"
    elif outcome.waived and len(outcome.waived) == len(set(frame.sizes)):
        status, reason = Status.WAIVED, next(iter(outcome.waived.values()))
    setting, operation = outcome.setting, outcome.setting.operation
    return TestcaseResult(
        frame.name,
        status,
        f"{operation.does}; bus bandwidth: {operation.why}",
        reason,
        engine=frame.provider,
        counts="the array once (algorithm bandwidth), what passes each link (bus bandwidth)",
        tables=() if outcome.refused else _tables(outcome, frame),
        started=started,
        warnings=_warnings(outcome, frame),
        collective=CollectiveInfo(
            operation.name, setting.type.name, frame.ranks, setting.operator, setting.root
        ),
    )


def _tables(outcome: Outcome, frame: Frame) -> tuple[Table, ...]:
    setting = outcome.setting
    columns = Axis("size", tuple(map(format_size, frame.sizes)), tuple(map(float, frame.sizes)), "B")
    rows = Axis("buffers", PLACES)
    kinds = {"time": Unit.TIME, "algbw": Unit.RATE, "busbw": Unit.RATE}
    titles = {
        "time": "CPU time" if frame.cpu_time else "time",
        "algbw": "algorithm bandwidth",
        "busbw": "bus bandwidth",
    }
    cells: dict[str, list[Cell]] = {key: [] for key in kinds}
    for in_place in (False, True):
        for j, size in enumerate(frame.sizes):
            for key in kinds:
                cells[key].append(_cell(outcome, frame, key, j, size, in_place))
    tables = [
        Table(key, f"{setting}: {titles[key]}", unit, rows, columns, tuple(cells[key]))
        for key, unit in kinds.items()
    ]
    return (*tables, *_by_process(outcome, frame, columns))


def moved(setting: Setting, size: int, ranks: int) -> int:
    """Return the bytes that the algorithm bandwidth counts."""
    operation, width = setting.operation, setting.type.bytes
    return operation.moved(operation.counts(size // width, width, ranks), width, ranks)


def _cell(outcome: Outcome, frame: Frame, key: str, j: int, size: int, in_place: bool) -> Cell:
    loops = outcome.loops.get((j, in_place))
    if not loops:
        return Cell(row=int(in_place), column=j, reason=outcome.waived.get(size, "not measured"))
    setting = outcome.setting
    counted = moved(setting, size, frame.ranks)
    factor = setting.operation.factor(frame.ranks) if key == "busbw" else 1.0
    per_iteration = [t for loop in loops for t in loop.iterations]
    counting = [t for loop in loops for t in loop.iterations[frame.skip :]]

    def value(seconds: float) -> float:
        return seconds if key == "time" else counted * factor / seconds

    means = sorted(value(loop.cpu if frame.cpu_time and key == "time" else loop.seconds) for loop in loops)
    samples = tuple(value(t) for t in per_iteration) or tuple(means)
    counts = [loop.wrong for loop in loops if loop.wrong is not None] if key == "time" else []
    wrong = sum(counts) if counts else None
    effective = setting.operation.effective
    judged = key == "busbw" and size >= JUDGED_BYTES and setting.operation.judged
    return Cell(
        row=int(in_place),
        column=j,
        value=median(means),
        limit=frame.limit if key == "busbw" else None,
        peak=frame.limit * effective if frame.limit and judged and effective > 1 else None,
        expected=frame.normal if judged else None,
        reason=f"{wrong} elements are wrong" if wrong else "",
        bytes=counted,
        copies=frame.operations,
        wrong=wrong,
        statistics=summarise(tuple(map(value, counting)) or samples),
        samples=samples,
    )


def _by_process(outcome: Outcome, frame: Frame, columns: Axis) -> list[Table]:
    """With the times of iterations: how late each process came, and its own times as samples.

    All leave a collective at about the same time. The one that comes last waits least: it is late
    by what the longest time exceeds its own.
    """
    tables = []
    for in_place in (False, True):
        cells = []
        for j in range(len(frame.sizes)):
            processes = [loop.processes for loop in outcome.loops.get((j, in_place), ()) if loop.processes]
            if not processes or len(processes[-1]) < 2:
                continue
            times = processes[-1]
            longest = [max(column) for column in zip(*times, strict=True)]
            for rank, row in enumerate(times):
                late = [a - b for a, b in zip(longest, row, strict=True)][frame.skip :]
                mean = sum(late) / len(late)
                cells.append(
                    Cell(row=rank, column=j, value=mean, copies=1, statistics=summarise(row), samples=row)
                )
        if cells:
            count = 1 + max(cell.row for cell in cells)
            rows = Axis("process", tuple(f"process {rank}" for rank in range(count)))
            title = (
                f"{outcome.setting} {PLACES[in_place]}: how late each process comes (samples: its own times)"
            )
            tables.append(Table(f"late-{PLACES[in_place]}", title, Unit.TIME, rows, columns, tuple(cells)))
    return tables


def _warnings(outcome: Outcome, frame: Frame) -> tuple[str, ...]:
    """Say where the bus bandwidth is above the link, and which process is late."""
    factor = outcome.setting.operation.factor(frame.ranks)
    found: list[str] = []
    above = [
        frame.sizes[j]
        for (j, _), loops in sorted(outcome.loops.items())
        if frame.limit
        and moved(outcome.setting, frame.sizes[j], frame.ranks)
        * factor
        / median(sorted(m.seconds for m in loops))
        > frame.limit
    ]
    if above:
        found.append(
            f"the bus bandwidth at {format_size(above[0])} is above the slowest link's "
            f"{(frame.limit or 0) / 1e9:.0f} GB/s: it is effective, the switch reduces on the way"
        )
    late = [
        (cell.value or 0.0, cell.row, frame.sizes[cell.column], table.key)
        for table in _by_process(outcome, frame, Axis("", ()))
        for cell in table.cells
    ]
    if late:
        seconds, rank, size, key = max(late)
        typical = median(
            sorted(m.seconds for m in outcome.loops[frame.sizes.index(size), key == "late-in-place"])
        )
        if seconds > max(_LATE * typical, 5e-6):
            found.append(
                f"process {rank} comes {seconds * 1e6:.1f} µs late on average at {format_size(size)}"
            )
    return tuple(found)


#: From which share of the operation's time on a late process is worth a line.
_LATE = 0.1


def names(settings: Sequence[Setting]) -> list[str]:
    """Return the names of the testcases: the operation's, and what else differs."""
    if len(settings) == 1:  # the usual case
        return [settings[0].operation.name]
    return ["_".join(str(setting).replace("root ", "root").split()) for setting in settings]
