"""Apply the expected ranges of this version to a saved run, by repeating its plan.

A Document keeps the ranges of the version that measured it, and a newer version may know better. Machine,
options and testcase names determine the plan, so plan and limits can be derived again.

What a judgement did not cover: data that was not verified, what was not measured or not compared, and
values that are not judged only because of the size of their buffers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from ..collectives.data_types import BY_NAME
from ..collectives.operations import OPERATIONS, Setting
from ..data import efficiencies
from ..document import REQUESTED, Document, Status, TestcaseResult
from ..errors import UsageError, WirespeedError
from ..features import functions
from ..hardware.limits import JUDGED_BYTES, Allowance, allowances, by_transport
from ..hardware.network import Network
from ..hardware.topology import LinkKind, Machine
from ..measurement import Measurement, Unit
from ..model import Collective, Engine, Transfer, Work
from ..options import PlanOptions, Tier, declared
from ..results.baseline import Entry
from ..results.cells import Key, Placed, key_of
from ..results.imported_limits import allowed, with_cores
from ..tables import BUSBW, Cell
from ..terminal import one_line
from ..testcases.collectives import collective, members
from ..testcases.selections import COVERING
from ..testcases.table import TABLE, Testcase
from ..units import format_size, format_time, many, some
from ..version import __version__


def renewed(document: Document) -> Document:
    """Return a Document of another version with the limits and expected ranges of this version.

    Cells that are not in today's plan (sweeps, collectives, testcases of other packages) are unchanged.
    """
    return document if document.version == __version__ else _limited(document)


def with_host_memory(document: Document, capacity: float) -> Document:
    """Return a saved run with this capacity of host memory, in B/s, for each NUMA node without one.

    The limits and expected ranges of all cells follow from it.
    """
    machine = document.machine.with_host_memory(capacity)
    return document if machine == document.machine else _limited(replace(document, machine=machine))


def _limited(document: Document) -> Document:
    """Return a Document with the limits and expected ranges that follow from its machine."""
    network, plans = Network(document.machine), planned(document)
    allow = allowed if document.imported else _measured
    bounds = cache(lambda measurement, name: allow(network, measurement, name))  # one for all its cells
    return replace(
        document, testcases=tuple(_renewed(result, plans, bounds) for result in document.testcases)
    )


#: Returns what links allow for each Place of a Measurement, from the Measurement and its testcase.
_Bounds = Callable[[Measurement, str], list[Allowance]]


def _measured(network: Network, measurement: Measurement, _: str) -> list[Allowance]:
    return allowances(network, measurement, efficiencies())


#: Key of a cell, without its size -> its Measurement, and the index of its Place.
Plans = Mapping[Key, tuple[Measurement, int]]


def planned(document: Document) -> Plans:
    """Return how each cell of a run was measured, by making its plan again."""
    options = plan_options(document)
    machine = with_cores(document.machine) if document.imported else document.machine
    cases = []
    for result in document.testcases:
        case = _swept(result, machine, bool(document.imported)) or tested(result)
        if case is None or not result.tables:
            continue
        with suppress(WirespeedError):  # the recorded machine is no longer a valid description
            sized = _sized(machine, result, case, options) if document.imported else options
            cases.append(_of_feature(result, case, sized))
    # The plan does not depend on most of what differs between nodes of one model.
    gpus = tuple(dataclasses.replace(gpu, uuid="") for gpu in machine.gpus)
    alike = dataclasses.replace(machine, host="", kernel="", driver="", gpus=gpus, faults=(), notes=())
    return _planned(alike, tuple(dict.fromkeys(cases)))


def _of_feature(result: TestcaseResult, case: Testcase, options: PlanOptions) -> tuple[Testcase, PlanOptions]:
    """A testcase of a feature with the sizes of its tables; others as they are."""
    found = (repeated(result, case, options) for repeated in functions("judging", "planned"))
    return next((plan for plan in found if plan is not None), (case, options))


@lru_cache(maxsize=2)
def _planned(machine: Machine, cases: tuple[tuple[Testcase, PlanOptions], ...]) -> Plans:
    """Plan testcases, each with its options; of many saved runs, most have the same plan."""
    plans: dict[Key, tuple[Measurement, int]] = {}
    for case, options in cases:
        with suppress(WirespeedError):
            plan = case.plan(machine, options)
            labels = {layout.key: (layout.rows.labels, layout.columns.labels) for layout in plan.tables}
            for whole in plan.measurements:
                for measurement in whole.separate() if whole.independent else (whole,):
                    for i, place in enumerate(measurement.places):
                        rows, columns = labels[place.table]
                        key = Key(case.name, place.table, rows[place.row], columns[place.column])
                        plans[key] = measurement, i
    return plans


def _sized(machine: Machine, result: TestcaseResult, case: Testcase, options: PlanOptions) -> PlanOptions:
    """Return the options of an imported testcase: each log has its own buffer size."""
    plan = case.plan(machine, options)
    counted = {place.table: m.counted(place) for m in plan.measurements for place in m.places}
    planned_size = next((t.bytes for m in plan.measurements for t in m.transfers), 0)
    for table in result.tables:
        logged_size = next((cell.bytes for cell in table.cells if cell.bytes), 0)
        if logged_size and counted.get(table.key):
            return dataclasses.replace(options, size=round(planned_size * logged_size / counted[table.key]))
    return options


def _swept(result: TestcaseResult, machine: Machine, is_imported: bool) -> Testcase | None:
    """Return the testcase of a collective over the sizes of a result; None if it is no known collective."""
    info = result.collective
    columns = next((table.columns for table in result.tables if table.key == BUSBW), None)
    if not info or not columns or info.operation not in OPERATIONS or info.type not in BY_NAME:
        return None
    every = tuple(range(len(members(machine))))
    fits = len(every) == info.ranks if is_imported else len(every) >= info.ranks
    among = info.members or (every[: info.ranks] if fits else ())
    arguments = info.operation, info.type, info.operator, info.root
    # Of an unknown number of ranks, nothing is judged.
    return _collective(arguments, result.name, info.ranks or 1, among, tuple(map(int, columns.values)))


@lru_cache(maxsize=64)  # equal ones for `_planned`
def _collective(
    arguments: tuple[str, str, str, int],
    name: str,
    ranks: int,
    among: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Testcase:
    operation, type, operator, root = arguments
    setting = Setting(OPERATIONS[operation], BY_NAME[type], operator, root)
    case = collective(setting, name, ranks=ranks, among=among)
    assert case.swept is not None
    return dataclasses.replace(case, pattern=case.swept(sizes))


def tested(result: TestcaseResult) -> Testcase | None:
    """Return the testcase of a result, with the engine that it used; None if this version has none."""
    case = next((case for case in TABLE if case.name == result.name), None)
    if case and case.engine is Engine.SM and result.engine == Engine.SM_BULK:
        return dataclasses.replace(case, engine=Engine.SM_BULK)
    return case


def plan_options(document: Document) -> PlanOptions:
    """Return the options that changed the plan; what is wrong in the Document has its default."""
    options = PlanOptions()
    for field, about in declared(PlanOptions):
        value: Any = document.options.get(field.name)
        if value is not None and (about.parse or isinstance(value, bool)):
            with suppress(UsageError):
                options = dataclasses.replace(options, **{field.name: value})
    return options


def _renewed(result: TestcaseResult, plans: Plans, bounds: _Bounds) -> TestcaseResult:
    """Return a result with new limits for the cells that a plan measures in the same way."""
    tables = []
    for table in result.tables:
        cells = []
        for cell in table.cells:
            there = plans.get(key_of(result, table, cell)._replace(bytes=0))
            if there and there[0].transfers and is_of(cell, *there):
                with suppress(WirespeedError):
                    measurement, index = there
                    bound = bounds(measurement, result.name)[index]
                    bound = by_transport(bound, measurement, measurement.places[index], cell.means)
                    cell = replace(cell, **vars(bound))
            cells.append(cell)
        tables.append(replace(table, cells=tuple(cells)))
    return replace(result, tables=tuple(tables))


def is_of(cell: Cell, measurement: Measurement, index: int) -> bool:
    """Return whether a cell was measured with the buffers of a Measurement's place.

    A copy by a kernel may make several passes over the buffer.
    """
    place = measurement.places[index]
    if measurement.collective:
        return cell.bytes in (0, measurement.collective.counted)
    size = measurement.counted(place)
    return cell.bytes > 0 and cell.bytes % size == 0 if size else cell.bytes == 0


#: Maximum number of testcases that a text names.
_NAMED = 2


@dataclass(frozen=True)
class BaselineUse:
    """How a baseline was used.

    Attributes:
        compared: Number of values that were compared with it.
        absent: Testcase -> number of values that the baseline lacks.
        uncertain: Testcase -> number of values for which the runs of the baseline differ too much.
        unmeasured: Testcase -> number of values of the baseline that the run lacks.
    """

    compared: int
    absent: Mapping[str, int]
    uncertain: Mapping[str, int]
    unmeasured: Mapping[str, int]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not compared, for people; empty if everything was."""
        return tuple(
            f"{many(sum(counts.values()), 'value')} not compared, {why}: {_named(counts)}"
            for counts, why in (
                (self.absent, "not in the baseline"),
                (self.uncertain, "the runs of the baseline differ too much"),
                (self.unmeasured, "not in this run"),
            )
            if counts
        )


def baseline_use(entries: Mapping[Key, Entry], cells: Iterable[Placed]) -> BaselineUse:
    """Return how a baseline was used.

    Args:
        entries: What the baseline says about the model of the machine.
        cells: The cells of the run that are judged.

    Raises:
        UsageError: If no value of the run could be compared.
    """
    measured = {placed.key for placed in cells if placed.cell.value is not None}
    compared = sum(key in entries and entries[key].judges for key in measured)
    use = BaselineUse(
        compared,
        _counted(key for key in measured if key not in entries),
        _counted(key for key in measured if key in entries and not entries[key].judges),
        _counted(key for key in entries if key not in measured),
    )
    if not compared:
        why = _why(use, entries, measured)
        raise UsageError(f"no value of this run can be compared with the baseline: {why}")
    return use


def _why(use: BaselineUse, entries: Mapping[Key, Entry], measured: set[Key]) -> str:
    if not measured:
        return "the run has no values"
    if use.uncertain:
        return f"its runs differ too much in {_named(use.uncertain)}; make one from runs that agree"
    sizes = sorted({key.bytes for key in entries if key.bytes} - {0})
    same = {key.testcase for key in entries} & {key.testcase for key in measured}
    if same and sizes:
        return f"it has {', '.join(same)} with other sizes ({format_size(sizes[0])} ...)"
    return f"it has {_named(use.unmeasured)}, the run has {_named(use.absent)}"


def _counted(keys: Iterable[Key]) -> dict[str, int]:
    """Return the number of values of each testcase, by name."""
    counts = Counter(key.testcase for key in keys)
    return {name: counts[name] for name in sorted(counts)}


def _named(counts: Mapping[str, int]) -> str:
    """Return some testcases, and the number of the others."""
    return one_line(some([*counts], _NAMED)) or "nothing"


def doubts(document: Document) -> tuple[str, ...]:
    """Return why values that are as expected are no pass.

    The data were not verified, a requested testcase was not measured, the time limit ended the run before
    all that was requested was measured, or each device once, or an imported log may lack values.
    """
    reasons = [UNVERIFIED] if is_verified(document) is False else []
    several = len({log.file for log in document.imported}) > 1
    of_logs = [
        (f"{log.file}: " if several else "", doubt) for log in document.imported for doubt in log.doubts
    ]
    reasons += dict.fromkeys(file + doubt for file, doubt in of_logs)
    reasons += _not_measured(document)
    omissions, requested = left_out(document), _requested(document)
    if requested:
        values = {result.name for result in document.testcases if _has_value(result)}
        wanted = {name for pattern in requested for name in values if _fits(name, pattern)}
        reason = "not all that was requested was measured"
    else:
        wanted, reason = set(COVERING), "not every device was measured"
    if counts := {name: n for name, n in omissions.items() if name in wanted}:
        reasons.append(f"{reason}: {_no_time(document, counts)}")
    return tuple(reasons)


def left_out(document: Document) -> dict[str, int]:
    """Return the number of values of each testcase for which the time limit of the run left no time."""
    return {result.name: result.left_out for result in document.testcases if result.left_out > 0}


def omitted(document: Document) -> str:
    """Return what the time limit of the run left out, for people; empty if nothing."""
    return _no_time(document, counts) if (counts := left_out(document)) else ""


def _no_time(document: Document, counts: Mapping[str, int]) -> str:
    within = document.options.get("within")
    limit = f" within {format_time(within)}" if isinstance(within, int | float) else ""
    values, cases = many(sum(counts.values()), "value"), many(len(counts), "testcase")
    return f"no time was left{limit} for {values} of {cases}: {_named(counts)}"


#: Said of a run without verification.
UNVERIFIED = "the data was not verified"


def is_verified(document: Document, result: TestcaseResult | None = None) -> bool | None:
    """Return whether the data was verified, of one testcase or of all; None if another tool does not say."""
    verify = document.options.get("verify")
    if isinstance(verify, bool):
        return verify
    if result is None:
        verified = {is_verified(document, tested) for tested in document.testcases if _has_value(tested)}
        return False if False in verified else verified == {True} or None
    if result.collective is None:
        return None
    if any(cell.wrong is not None for table in result.tables for cell in table.cells):
        return True
    return False if document.options.get("checks") == 0 else None


def measurable(document: Document) -> tuple[Testcase, ...]:
    """Return the testcases of the quick tier that have a plan for the machine of a run."""
    return tuple(_planned_again(document, (case for case in TABLE if case.tier == "quick")))


def unmeasured(document: Document) -> int:
    """Return how many testcases have no value for lack of time, or are of the quick tier and not in the run.

    Those that this machine does not support are not counted.
    """
    lacking = _planned_again(document, not_run(document))
    late = [result for result in document.testcases if result.left_out > 0 and not _has_value(result)]
    return len(lacking) + len(late)


def not_run(document: Document, tier: Tier = "quick") -> list[Testcase]:
    """Return the testcases of a tier that a run lacks."""
    done = {result.name for result in document.testcases}
    return [case for case in TABLE if case.tier == tier and case.name not in done]


def _planned_again(document: Document, cases: Iterable[Testcase]) -> list[Testcase]:
    options, plannable = plan_options(document), []
    for case in cases:
        with suppress(WirespeedError):
            plannable += [case] if case.plan(document.machine, options).measurements else []
    return plannable


def _not_measured(document: Document) -> Iterator[str]:
    """Yield the requested testcases that have no value, by reason; all of a log that has no value."""
    by_reason: dict[str, dict[str, int]] = {}
    patterns = _requested(document)
    if document.imported and not any(map(_has_value, document.testcases)):
        patterns = tuple(result.name for result in document.testcases)
    for pattern in patterns:
        results = [result for result in document.testcases if _fits(result.name, pattern)]
        # A Document may have only some of its testcases; one that Ctrl-C ended says so itself.
        ended = any(result.status is Status.INTERRUPTED for result in results)
        if results and not ended and not any(map(_has_value, results)):
            reason = next((result.reason for result in results if result.reason), "")
            by_reason.setdefault(reason, {})[pattern] = 1
    for reason, named in by_reason.items():
        yield f"{_named(named)} measured nothing" + (f": {reason}" if reason else "")


def _requested(document: Document) -> tuple[str, ...]:
    """Return the requested testcases: names, or prefixes and ``*``; none if all of a tier were."""
    requested = document.options.get(REQUESTED)
    return tuple(dict.fromkeys(requested)) if isinstance(requested, list) else ()


def _fits(name: str, pattern: str) -> bool:
    """Return whether a testcase was requested by a name, or by a prefix and ``*``."""
    prefix = pattern.removesuffix("*")
    return name == pattern or (prefix != pattern and name.startswith(prefix))


def _has_value(result: TestcaseResult) -> bool:
    return any(cell.value is not None for table in result.tables for cell in table.cells)


#: Why they are not judged: within a memory, and between memories.
CACHED = "buffers too small: a cache may keep them"
_STARTED = "buffers too small: starting a copy takes longer than moving its bytes"


def too_small(document: Document, cells: Iterable[Placed]) -> dict[Key, str]:
    """Return the rates without a range that would have one with larger buffers, and why.

    The plan of a testcase says what its links would allow. Outside the plan, as in a sweep over sizes, a
    buffer is too small if it is smaller than another one of the testcase that has a range.

    Args:
        document: The run.
        cells: Its cells.
    """
    rated = [one for one in cells if one.unit is Unit.RATE and one.cell.value is not None and one.cell.limit]
    open_ = [one for one in rated if one.cell.expected is None and one.cell.bytes]
    if not open_:
        return {}
    names = {measured.key.testcase for measured in open_}
    results = tuple(result for result in document.testcases if result.name in names)
    plans, network = planned(replace(document, testcases=results)), Network(document.machine)
    ranged: dict[str, int] = {}
    for measured in rated:
        if measured.cell.expected:
            name, size = measured.key.testcase, measured.cell.bytes
            ranged[name] = min(size, ranged.get(name, size))
    reasons: dict[Key, str] = {}
    for measured in open_:
        key, cell = measured.key, measured.cell
        there = plans.get(key._replace(bytes=0))
        if there and is_of(cell, *there):
            would = _would_be_judged(network, *there, is_log=bool(document.imported), name=key.testcase)
        else:
            would = cell.bytes < ranged.get(key.testcase, 0)
        if would:
            kinds = {network.links[link].kind for link, *_ in cell.links}
            cached = measured.result.engine == Engine.CPU or kinds == {LinkKind.MEMORY}
            reasons[key] = CACHED if cached and measured.result.collective is None else _STARTED
    return reasons


def _would_be_judged(
    network: Network, measurement: Measurement, index: int, *, is_log: bool, name: str
) -> bool:
    """Whether a place of a Measurement has a range with buffers that are large enough for every rule."""
    least = max(2 * JUDGED_BYTES, 2 * network.machine.last_cache_bytes())
    works = tuple(_enlarged(work, least) for work in measurement.works)
    larger = dataclasses.replace(measurement, works=works)
    bounds = allowed(network, larger, name) if is_log else _measured(network, larger, name)
    return bounds[index].expected is not None


def _enlarged(work: Work, least: int) -> Work:
    """A work with buffers of at least some bytes."""
    if not isinstance(work, Collective | Transfer) or work.bytes >= least:
        return work
    counted = work.counted
    if isinstance(work, Collective):  # whose counted bytes grow with the array
        counted = round(counted * least / max(1, work.bytes))
    return dataclasses.replace(work, bytes=least, counted=counted)
