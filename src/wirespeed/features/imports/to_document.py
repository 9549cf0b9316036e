"""From what importers read to a Document: each value gets the limits that a measured one would have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from msgspec.structs import replace as struct_replace

from ...collectives.data_types import BY_NAME
from ...collectives.operations import OPERATIONS, Setting
from ...document import Status, TestcaseResult
from ...driver.partial_result import PartialResult
from ...errors import WirespeedError
from ...hardware.limits import Allowance
from ...hardware.link_graph import Network
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce, Sample, Unit, value_of
from ...model import Access, Engine
from ...options import PlanOptions
from ...results.imported_limits import allowed, between_hosts, of_collective, of_nics, with_cores
from ...statistics import summarise
from ...tables import BUSBW, LATE, Cell, Half, Table
from ...testcases.collectives import PLACES, collective, names
from ...testcases.table import TABLE, Plan, Testcase
from ...thresholds.values import ABOVE_LIMIT
from ...units import Nics, many
from . import scan
from .gpu_sets import alike, members_of, widened
from .log import FoundCollective, FoundLog, FoundTable
from .log_parts import curve

#: Description of what no testcase measures.
_NOT_COMPARABLE = "not comparable with a testcase of wirespeed"
#: Description of rates that the line rate of a NIC limits.
_BY_NIC = "RDMA between two hosts; one NIC limits its rate"
#: Name of the result that says why a run failed, if its testcases did not.
_RUN = "the run"
_TESTCASES = {case.name: case for case in TABLE}
#: Runs of one kernel on a GPU differ by at most this fraction: eleven checks of two H200s each did by 0.5 %,
#: and versions of a program by a few per cent.
_ALIKE = 0.1
#: A plan, and what the links allow for each Measurement.
_Planned = tuple[Plan, list[list[Allowance]]]
#: Returns the plan of a testcase for a buffer size in bytes, 0 for the default, with or without local copies;
#: None if there is none.
_Plans = Callable[[str, int, bool], _Planned | None]


def results(
    machine: Machine, logs: Sequence[FoundLog], nics: Nics | None = None
) -> tuple[list[TestcaseResult], int]:
    """The results of all testcases, and the number of values that are not comparable."""
    network = Network(with_cores(machine))
    plans = _plans_on(network)
    _choose(logs, plans)
    placed: list[tuple[TestcaseResult, int]] = []
    first: dict[tuple[str, Status], int] = {}  # index of the first result of a testcase with tables
    for log in logs:
        for result, strange in _of_log(network, plans, log, nics):
            result = struct_replace(result, settings=log.settings) if log.settings else result
            place = (result.name, result.status)
            if result.tables and (i := first.setdefault(place, len(placed))) < len(placed):
                present, before = placed[i]
                tables = (*present.tables, *result.tables)
                if len({table.key for table in tables}) == len(tables):
                    placed[i] = struct_replace(present, tables=tables), before + strange
                    continue
            placed.append((result, strange))
    return _numbered(placed), sum(strange for _, strange in placed)


def _numbered(placed: Sequence[tuple[TestcaseResult, int]]) -> list[TestcaseResult]:
    """The results of all runs; of a testcase, the first that can be judged has its name, others a number."""
    taken: dict[str, int] = {}
    named = [result for result, _ in placed]
    for i in sorted(range(len(placed)), key=lambda i: placed[i][1] > 0):
        name = named[i].name
        taken[name] = taken.get(name, 0) + 1
        if (again := taken[name]) > 1:
            named[i] = struct_replace(named[i], name=f"{name}_{again}")
    return named


def _choose(logs: Sequence[FoundLog], plans: _Plans) -> None:
    """Of several runs of a kernel, such as over numbers of threads, judge the best that is possible.

    Copies between devices depend on where a run was placed, so that each run is judged.
    """
    rivals: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for i, log in enumerate(logs):
        for j, table in enumerate(log.tables):
            if log.partial and not table.why_not and not table.positions and len(table.cells) == 1:
                ((_, _, value),) = table.cells
                rivals.setdefault((table.testcase, table.key), []).append((value, i, j))
    for (name, _), own in rivals.items():
        if len(own) < 2 or name not in _TESTCASES or _TESTCASES[name].access is not Access.LOCAL:
            continue
        possible = [
            (value, i, j) for value, i, j in own if value <= _most(plans, _TESTCASES[name], logs[i].tables[j])
        ]
        best = max(possible or own)
        if _TESTCASES[name].engine is not Engine.CPU and min(own)[0] < best[0] * (1 - _ALIKE):
            low, i, j = min(own)
            which = f"run {own.index((low, i, j)) + 1} of {len(own)} of {logs[i].tables[j].title or name}"
            note = f"{which} reaches {low / best[0]:.0%} of the fastest"
            logs[i].warnings += [] if note in logs[i].warnings else [note]
        for _, i, j in set(own) - {best}:
            logs[i].tables[j] = replace(logs[i].tables[j], why_not="another run of this kernel is judged")


def _most(plans: _Plans, case: Testcase, table: FoundTable) -> float:
    """The highest possible rate of a table with one value, in B/s."""
    planned = plans(case.name, table.bytes, False)
    limits = [bound.limit for bounds in planned[1] for bound in bounds] if planned else []
    return max((limit * (1 + ABOVE_LIMIT) for limit in limits if limit), default=math.inf)


def _plans_on(network: Network) -> _Plans:
    """What returns the plans of testcases on a machine; logs repeat the same testcases."""

    @cache
    def planned(name: str, size: int, local: bool) -> _Planned | None:
        case = _TESTCASES[name]
        try:
            plan = case.plan(network.machine, PlanOptions(size=size or None, local_copy=local))
            return plan, [allowed(network, measurement, name) for measurement in plan.measurements]
        except WirespeedError:
            return None

    return planned


def _of_log(
    network: Network, plans: _Plans, log: FoundLog, nics: Nics | None
) -> Iterator[tuple[TestcaseResult, int]]:
    """Yield the results of a log, and how many of their values are not comparable.

    If the run failed, so did its testcases, unless each has its own status.
    """
    results = [*_tables(network.machine, plans, log, nics), *_collectives(network, log, nics), *_failed(log)]
    if not log.failures:
        yield from results
        return
    reason, status = log.failures[0], scan.status_of(log.failures[0])
    for result, alien in results:
        failed = result.status is Status.PASSED and not log.independent
        yield struct_replace(result, status=status, reason=reason) if failed else result, alien
    if log.independent or not results:
        yield TestcaseResult(_RUN if log.independent else log.tool, status, reason=reason), 0


def _tables(
    machine: Machine, plans: _Plans, log: FoundLog, nics: Nics | None
) -> Iterator[tuple[TestcaseResult, int]]:
    """Yield the result of each testcase of a log, and how many of its values are not comparable."""
    groups: list[list[FoundTable]] = []
    for table in log.tables:
        last = groups[-1] if groups else []
        same = last and (last[0].testcase, bool(last[0].why_not)) == (table.testcase, bool(table.why_not))
        if same and table.key not in [present.key for present in last]:
            last.append(table)
        else:
            groups.append([table])
    gpus, same = len(machine.gpus), alike(machine)
    for tables in groups:
        is_some = tables[0].columns[:1] == ("gpu0",) and len(tables[0].columns) < gpus
        partial = log.partial or (is_some and same)
        if partial:
            tables = [widened(table, gpus) for table in tables]
        case = None if tables[0].why_not else _TESTCASES.get(tables[0].testcase)
        status, reason = log.outcomes.pop(tables[0].testcase, (Status.PASSED, ""))
        if status is Status.WAIVED:  # it has values
            status, reason = Status.PASSED, ""
        planned = _plan(plans, case, tables) if case else None
        if case is None or planned is None:
            # The labels of messages say enough, although the machine lacks ranks.
            fits = case is not None and case.name.startswith("message_")
            result, count = _unplaced(tables, case, status, reason, fits)
            limited = [of_nics(machine, result.name, table, nics) for table in result.tables] if nics else []
            if nics and limited != [*result.tables]:
                text = result.description if fits else _BY_NIC
                result, count = struct_replace(result, tables=tuple(limited), description=text), 0
            yield result, 0 if fits else count
            continue
        cells, plan = _cells(planned, tables, partial=partial), planned[0]
        outcome = PartialResult({key: dict(own) for key, own in cells.items()})
        shown = tuple(table for table in outcome.tables(plan.tables) if table.cells)
        engines = {str(t.engine) for m in plan.measurements for t in m.transfers}
        about = _about(case) | ({"engine": engines.pop()} if len(engines) == 1 else {})
        yield TestcaseResult(case.name, status, reason=reason, tables=shown, **about), 0


def _plan(plans: _Plans, case: Testcase, tables: Sequence[FoundTable]) -> _Planned | None:
    """The plan of a testcase on the machine; None if the tables do not fit it."""
    local = any(i == j for table in tables if table.rows == table.columns for i, j, _ in table.cells)
    planned = plans(case.name, max(table.bytes for table in tables), local)
    if planned is None or any(measurement.collective for measurement in planned[0].measurements):
        return None  # or of a size that the table does not contain
    plan = planned[0]
    shapes = {layout.key: (len(layout.rows.labels), len(layout.columns.labels)) for layout in plan.tables}
    for table in tables:
        rows, columns = shapes.get(table.key, (0, 0))
        if not 0 < len(table.values) <= rows or len(table.values[0]) != columns:
            return None
    return planned


def _cells(
    planned: _Planned, tables: Sequence[FoundTable], *, partial: bool
) -> dict[str, dict[tuple[int, int], Cell]]:
    """The cells of each table by row and column, with their limits.

    A ``partial`` log has no cells of the devices that its tool did not measure.
    """
    plan, allowed = planned
    values = {table.key: table.values for table in tables}
    sized = all(table.bytes for table in tables)
    cells: dict[str, dict[tuple[int, int], Cell]] = {layout.key: {} for layout in plan.tables}
    for table in tables:
        cells[table.key] |= {(i, j): Cell(i, j, value) for i, j, value in table.cells}
    for waived in plan.waived:
        at = (waived.row, waived.column)
        if waived.table in values and at not in cells[waived.table]:
            cells[waived.table][at] = Cell(*at, reason=waived.reason)
    for measurement, bounds in zip(plan.measurements, allowed, strict=True):
        for place, bound in zip(measurement.places, bounds, strict=True):
            at, key = (place.row, place.column), place.table
            if key not in values:
                continue
            if at not in cells[key]:
                own = values[key][place.row : place.row + 1]
                of_column = [row[place.column] for row in values[key]]
                if partial and any(set(line) <= {None} for line in (of_column, *own)):
                    continue
                ended = place.row >= len(values[key])
                why = "the log ends before this value" if ended else "no value in the log"
                cells[key][at] = Cell(*at, reason=why)
                continue
            if not sized:
                bound = replace(bound, expected=None)
            size = measurement.counted(place)
            cells[key][at] = Cell(*at, cells[key][at].value, **vars(bound), bytes=size)
    return cells


def _unplaced(
    tables: Sequence[FoundTable], case: Testcase | None, status: Status, reason: str, fits: bool = False
) -> tuple[TestcaseResult, int]:
    """The result of tables that are kept without limits, and the number of values."""
    kept = []
    for table in tables:
        rows, columns = len(table.values), max(map(len, table.values), default=0)
        labels = [
            labels if len(labels) == count else tuple(map(str, range(count)))
            for labels, count in ((table.rows, rows), (table.columns, columns))
        ]
        sizes = [*map(int, table.positions)] or [table.bytes] * columns
        # What has no value may be in another table.
        cells = tuple(Cell(i, j, value, bytes=sizes[j]) for i, j, value in table.cells)
        row_axis, column_axis = (Axis(name, own) for name, own in zip(table.axes, labels, strict=True))
        if table.positions:
            column_axis = replace(column_axis, values=table.positions, unit="B")
        title = table.title or table.testcase
        kept.append(Table(table.key, title, table.unit, row_axis, column_axis, cells))
    why = next((table.why_not for table in tables if table.why_not), "")
    if not why:
        why = "the table does not fit the machine" if case else "no such testcase"
        if case and tables[0].testcase.startswith("multinode"):
            why = "the ranks are not those of the machine"
    description = case.description if case and fits else f"{_NOT_COMPARABLE}: {why}"
    about = _about(case) | {"description": description, "index": None}
    result = TestcaseResult(tables[0].testcase, status, reason=reason, tables=tuple(kept), **about)
    return result, sum(len(table.cells) for table in tables)


def _about(case: Testcase | None) -> dict[str, Any]:
    """What a result says of its testcase; nothing if none is known."""
    if case is None:
        return {}
    engine = str(case.engine)
    return {"description": case.description, "index": case.index, "engine": engine, "counts": case.counts}


def _failed(log: FoundLog) -> Iterator[tuple[TestcaseResult, int]]:
    """Yield the testcases of a log that have no values."""
    for name, (status, reason) in log.outcomes.items():
        yield TestcaseResult(name, status, reason=reason, **_about(_TESTCASES.get(name))), 0


def _collectives(network: Network, log: FoundLog, nics: Nics | None) -> Iterator[tuple[TestcaseResult, int]]:
    """Yield the result of each collective."""
    known = [r for r in log.collectives if r.info.operation in OPERATIONS and r.info.type in BY_NAME]
    infos = (run.info for run in known)
    settings = [Setting(OPERATIONS[i.operation], BY_NAME[i.type], i.operator, i.root) for i in infos]
    own_names = names(settings) if known else []
    for run, setting, name in zip(known, settings, own_names, strict=True):
        yield _collective(network, run, setting, name, log, nics), 0
    for run in log.collectives:
        if run not in known:
            yield _unknown_collective(run)


def _collective(
    network: Network, run: FoundCollective, setting: Setting, name: str, log: FoundLog, nics: Nics | None
) -> TestcaseResult:
    """The result of a collective, with limits if the GPUs of all ranks or the network are known."""
    ranks = tuple(log.ranks)
    skip = int(log.options.get("skip") or 0)  # type: ignore[arg-type]
    halves = [half for pair in run.points.values() for half in pair if half]
    processes = min((len(half.by_process) for half in halves), default=0)
    info, among = run.info, members_of(network.machine, log, run.info.ranks)
    if len(among) < len(network.machine.gpus):
        info = struct_replace(info, members=among)
    case = collective(setting, name, ranks=info.ranks or 1, among=among, lateness=processes)
    assert case.swept is not None
    sizes = tuple(run.points)
    plan = replace(case, pattern=case.swept(sizes)).plan(network.machine)
    cells: dict[str, dict[tuple[int, int], Cell]] = {layout.key: {} for layout in plan.tables}
    wrong, too_large = 0, ""
    for measurement in plan.measurements:
        bounds = of_collective(network, measurement)
        for place, bound in zip(measurement.places, bounds, strict=True):
            lateness = place.reduce is Reduce.LATENESS
            half = run.points[sizes[place.column]][LATE.index(place.table) if lateness else place.row]
            if half is None:
                continue
            laps = _laps(half)
            if lateness:
                if cell := _late(place, measurement, laps, skip):
                    cells[place.table][place.row, place.column] = cell
                continue
            value = {"time": half.seconds, "algbw": half.algorithm, "busbw": half.bus}[place.table]
            bad = half.wrong if place.table == "time" else None
            why = f"wrong data, an error of {half.error:.0e}, more than allowed" if half.error else ""
            why = (why or many(bad, "wrong element")) if bad else ""
            wrong += bad or 0
            too_large = too_large or (why if half.error else "")
            assert measurement.collective is not None
            if place.table == BUSBW and not among:
                size = measurement.collective.bytes
                bound = between_hosts(network.machine, ranks, info, size, nics or _found(log)) or bound
            cells[place.table][place.row, place.column] = Cell(
                place.row, place.column, value, **vars(bound),
                bytes=0 if place.table == "time" else measurement.collective.counted,
                reason=why, wrong=bad,
                **_samples([value_of(place, measurement, lap) for lap in laps], skip),
            )  # fmt: skip
    return TestcaseResult(
        case.name, Status.FAILED if wrong else Status.PASSED, case.description,
        f"{too_large or many(wrong, 'wrong element')} in the log" if wrong else "", engine=str(Engine.NCCL),
        counts=case.counts, tables=PartialResult(cells).tables(plan.tables), collective=info,
    )  # fmt: skip


def _found(log: FoundLog) -> Nics | None:
    """The NICs of a host, as a log names them."""
    return Nics(log.nics.rate, log.nics.count) if log.nics and log.nics.rate else None


def _laps(half: Half) -> list[Sample]:
    """The iterations of a result."""
    rows = half.by_process if all(len(row) == len(half.iterations) for row in half.by_process) else ()
    processes = zip(*rows, strict=True) if rows else ((),) * len(half.iterations)
    return [
        Sample((seconds, seconds), (1.0, 1.0), seconds, by_process=tuple(of_processes))
        for seconds, of_processes in zip(half.iterations, processes, strict=True)
        if seconds > 0
    ]


def _samples(values: Sequence[float], skip: int) -> dict[str, Any]:
    """The fields of a cell for the values of its iterations; statistics are without the first ``skip``."""
    counting = values[skip:]
    return {"samples": tuple(values), "statistics": summarise(counting)} if counting else {}


def _late(place: Place, measurement: Measurement, laps: Sequence[Sample], skip: int) -> Cell | None:
    """How late a process comes to a collective, with its times; None if they are not known."""
    counting = [lap for lap in laps[skip:] if lap.by_process]
    if not counting:
        return None
    value = value_of(place, measurement, Sample((), (), 0.0, iterations=tuple(counting)))
    times = [lap.by_process[place.transfers[0]] for lap in laps]
    return Cell(place.row, place.column, value, **_samples(times, skip))


def _unknown_collective(run: FoundCollective) -> tuple[TestcaseResult, int]:
    """A collective that is not known, as tables without limits."""
    info = run.info
    name = " ".join(filter(None, (info.operation or "collective", info.type, info.operator)))
    why = f"no collective {name!r} is known" if info.operation else "the log does not name the operation"
    if " or " in info.operation:
        why = f"the log does not name the operation, which is {info.operation}"
    tables = []
    for key, field, title, unit in (
        ("time", "seconds", "time", Unit.TIME), ("algbw", "algorithm", "algorithm bandwidth", Unit.RATE),
        (BUSBW, "bus", "bus bandwidth", Unit.RATE),
    ):  # fmt: skip
        rows = {
            place: {size: getattr(halves[i], field, None) for size, halves in run.points.items()}
            for i, place in enumerate(PLACES)
        }
        case = f"nccl-tests {info.operation}".strip()
        tables.append(curve(case, key, f"{name}: {title}", rows, unit, "buffers", why, "size"))
    result, count = _unplaced(tables, None, Status.PASSED, "")
    return (
        struct_replace(result, collective=info) if info.ranks <= 1 else result
    ), count  # why it has no limit
