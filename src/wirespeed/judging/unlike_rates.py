"""Pairs of GPUs, and runs of the same test, whose rates in one log differ much."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

from ..document import Document, TestcaseResult
from ..measurement import Unit
from ..results.cells import without_number
from ..statistics import grouped
from ..tables import BUSBW, Table
from ..thresholds.causes import UNLIKE, UNLIKE_BYTES
from ..units import GB, format_size
from .path_kinds import COLLECTIVES, GPU_GPU, HOST_GPU, PROCESSES, path_kind

_KINDS = (COLLECTIVES, PROCESSES, HOST_GPU, GPU_GPU)
#: Place of a value in a result: table, row, column.
_Place = tuple[str, str, str]


def unlike(document: Document) -> Iterator[str]:
    """Yield the slowest and the fastest run of a test, and pair of a matrix, if they differ.

    Args:
        document: An imported run; others are compared with their limits and with other runs.
    """
    if not document.imported:
        return
    results = _rated(document)
    for several in _runs(results):
        yield from _of_runs(several)
    for result in results:
        for table in result.tables:
            yield from _of_pairs(result, table)


def by_settings(document: Document) -> tuple[frozenset[str], frozenset[str]]:
    """The settings that make a run of a log faster, and the names of the runs that others make slower.

    Each is a run of a test that the log has with other settings, too.
    """
    helping, slowed = set[str](), set[str]()
    for several in _runs(_rated(document)) if document.imported else ():
        for (low, _, slow), (high, _, fast) in combinations(_ordered(several), 2):
            if low < UNLIKE * high:
                helping |= {*fast.settings} - {*slow.settings}
                slowed |= {slow.name} if {*slow.settings} - {*fast.settings} else set()
    return frozenset(helping), frozenset(slowed)


def _rated(document: Document) -> list[TestcaseResult]:
    """The results of which links or processes are compared."""
    return [result for result in document.testcases if result.status.good and _kind(result) in _KINDS]


def _runs(results: list[TestcaseResult]) -> Collection[list[TestcaseResult]]:
    """The runs of each test."""
    names = {result.name for result in results}
    return grouped(
        ((base if (base := without_number(result.name)) in names else result.name, result.collective), result)
        for result in results
    ).values()


def _kind(result: TestcaseResult) -> object:
    return path_kind(result.name, collective=result.collective is not None)


def _ordered(results: list[TestcaseResult]) -> list[tuple[float, int, TestcaseResult]]:
    """The rates of runs of a test at the largest size that they have in common, the slowest first.

    The runs of a testcase without a sweep have one size each, in bytes.
    """
    values = [_rates(result) for result in results]
    common = set[_Place]().union(*values).intersection(*values)
    if len(values) < 2 or not common:
        return []
    place = max(common, key=lambda place: (values[0][place][0], place))
    rates = ((*own[place][::-1], result) for own, result in zip(values, results, strict=True))
    return sorted(rates, key=lambda rate: rate[0])


def _of_runs(results: list[TestcaseResult]) -> Iterator[str]:
    """Yield how runs of a test differ at the largest size that they have in common."""
    ordered = _ordered(results)
    if not ordered:
        return
    (low, size, slow), (high, other, fast) = ordered[0], ordered[-1]
    if low < UNLIKE * high:
        at = f" at {format_size(size)}" if size else ""
        of_other = f" ({format_size(other)})" if other != size else ""
        if slow.settings != fast.settings:
            slower, faster = (_called(result, other) for result, other in ((slow, fast), (fast, slow)))
            times = f"{high / GB:.4g} ({high / low:.3g} times as much)"
            yield f"{slower} reaches {low / GB:.4g} GB/s{at}, {faster}{of_other} {times}"
        else:
            yield f"{slow.name} reaches {_compared(low, fast.name + of_other, high, at)}"


def _called(result: TestcaseResult, other: TestcaseResult) -> str:
    """The name of a run, with the settings that another one does not have."""
    own = [setting for setting in result.settings if setting not in other.settings]
    return " with ".join(filter(None, (result.name, ", ".join(own))))


def _rates(result: TestcaseResult) -> dict[_Place, tuple[int, float]]:
    """The rates of a result by their place, with the size of their buffers, in bytes; 0 if it is unknown."""
    return {
        (table.key, table.rows.labels[cell.row], table.columns.labels[cell.column]): (size, cell.value)
        for table in result.tables
        if table.unit is Unit.RATE and (result.collective is None or table.key == BUSBW)
        for cell in table.cells
        if cell.value and (size := _size(table, cell.column, cell.bytes)) not in range(1, int(UNLIKE_BYTES))
    }


def _size(table: Table, column: int, size: int) -> int:
    return int(table.columns.values[column]) if table.columns.unit == "B" else size


def _of_pairs(result: TestcaseResult, table: Table) -> Iterator[str]:
    """Yield how two pairs of a matrix differ, if links are not what judges them."""
    if table.rows.labels != table.columns.labels or table.unit is not Unit.RATE:
        return
    pairs = [
        (cell.value, f"{table.rows.labels[cell.row]} → {table.columns.labels[cell.column]}")
        for cell in table.cells
        if cell.value and cell.row != cell.column and (cell.shared or not cell.expected)
    ]
    (low, slow), (high, fast) = min(pairs, default=(1.0, "")), max(pairs, default=(1.0, ""))
    if low < UNLIKE * high:
        yield f"{result.name}: {slow} reaches {_compared(low, fast, high)}"


def _compared(low: float, fast: str, high: float, at: str = "") -> str:
    return f"{low / GB:.4g} GB/s{at}, {fast} {high / GB:.4g} ({1 - low / high:.0%} less)"
