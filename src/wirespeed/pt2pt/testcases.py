"""What ``pt2pt`` and ``overalloc`` measure, as testcases of a Run."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Axis, Unit
from ..results.document import Cell, Status, Table, TestcaseResult
from ..statistics import summarise
from ..units import format_size
from . import messages, phases
from .base import WITH, WITHOUT, pattern, verify
from .job import MPI, NCCL, Keep, Run

_REPEATS_DOES = "the first rank's buffer is opened by the last one, which copies a part of it"
_SENT_DOES = "the first rank sends a part of its buffer to the last one"


def pt2pt(run: Run, over: str, memory: str, sizes: Sequence[int]) -> None:
    """Measure messages over their size."""
    name = f"pt2pt_{over}_{memory}"
    does = f"messages between the first and the last rank by {over.upper()}, from {memory} memory"

    def measure(keep: Keep) -> None:
        wire = run.site.wire(over, memory)
        found: list[messages.Measured] = []

        def result() -> TestcaseResult:
            return TestcaseResult(name, Status.PASSED, engine=over, tables=messages.tables(sizes, found))

        for size in sizes:
            found.append(messages.measure(run.ends, run.site.place(memory), wire, size, run.at))
            keep(result)

    run.testcase(name, does, messages.COUNTS, measure)


def sweep(
    run: Run, means: str, memory: str, buffer: int, copied: int, over: Sequence[int], repeats: int
) -> None:
    """Measure the phases of sharing a buffer with more or less over-allocated."""
    name = f"overalloc_{means.replace('-', '_')}_{memory}"
    does = _SENT_DOES if means in (MPI, NCCL) else _REPEATS_DOES

    def measure(keep: Keep) -> None:
        place = run.site.place(memory)
        wire = run.site.wire(means, memory) if means in (MPI, NCCL) else None
        sharing = None if means in (MPI, NCCL) else place.sharing(means)

        def once(size: int) -> dict[str, float]:
            one = phases.Round(run.ends, place, size, copied, run.at)
            return one.shared(sharing) if sharing is not None else one.sent(wire)

        once(copied)  # what is set up once is no part of any phase
        times = [phases.Times() for _ in over]

        def result() -> TestcaseResult:
            table = phases.table(over, times)
            return TestcaseResult(
                name, Status.PASSED, engine=means, tables=(table,), warnings=phases.warnings(name, table)
            )

        for _ in range(repeats):  # all of them in turn, so that what drifts looks like no effect of any
            for more, found in zip(over, times, strict=True):
                found.add(once(buffer + more))
            keep(result)

    run.testcase(name, does, f"{format_size(copied)} of a buffer of {format_size(buffer)}", measure)


def reproducer(
    run: Run, memory: str, iterations: int, repeats: int, copied: int, buffer: int, more: int
) -> None:
    """Send from new buffers with something over-allocated, then from ones without."""
    name = f"overalloc_{MPI}_{memory}"
    warm = Axis("allocation", ("-1",))
    rows = Axis("allocation", tuple(map(str, range(iterations))))
    columns = Axis("message", tuple(map(str, range(repeats))))

    def measure(keep: Keep) -> None:
        wire = run.site.wire(MPI, memory)
        place = run.site.place(memory)
        cells: dict[str, list[Cell]] = {"warm-up": [], WITH: [], WITHOUT: []}

        def result() -> TestcaseResult:
            texts = {
                "warm-up": ("a small buffer", warm, Axis("message", ("0",))),
                WITH: (f"a buffer of {buffer + more} bytes (with overalloc)", rows, columns),
                WITHOUT: (f"a buffer of {buffer} bytes (without overalloc)", rows, columns),
            }
            tables = tuple(
                Table(key, title, Unit.TIME, its_rows, its_columns, tuple(cells[key]))
                for key, (title, its_rows, its_columns) in texts.items()
            )
            return TestcaseResult(name, Status.PASSED, engine=MPI, tables=tables)

        def send(key: str, i: int, size: int, count: int) -> None:
            run.at(f"allocating a buffer of {format_size(size)}")
            address = place.allocate(size) if wire else 0
            if wire:
                place.write(address, pattern(copied, 0 if run.ends.first else 1))
            for j in range(count):
                run.at(f"sending {format_size(copied)} from a buffer of {format_size(size)}")
                mine = wire.one(address, copied) if wire else 0.0
                seconds = run.ends.report([mine], "timing a message")[1][0]
                s = summarise((seconds,))
                cells[key].append(Cell(i, j, seconds, copies=1, statistics=s, samples=(seconds,)))
            if wire:
                if run.ends.last:
                    verify(place, address, copied, 0, f"a message from a buffer of {format_size(size)}")
                place.free(address)
            keep(result)

        send("warm-up", 0, copied, 1)
        for key, size in ((WITH, buffer + more), (WITHOUT, buffer)):
            for i in range(iterations):
                send(key, i, size, repeats)

    run.testcase(name, _SENT_DOES, f"{format_size(copied)} of a buffer of {format_size(buffer)}", measure)
