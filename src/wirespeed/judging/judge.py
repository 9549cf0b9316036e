"""Judge a run: does every value reach what the hardware can do? Pure and deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as struct_replace

from ..data import measured_memory
from ..document import Document, Status, TestcaseResult
from ..errors import ExitCode, UsageError
from ..features import functions
from ..hardware.topology import LinkKind, Machine
from ..measurement import Expectation, Unit
from ..results.baseline import DEVIATIONS, Entry
from ..results.cells import Key, Placed, busy_devices, placed
from ..results.overrides import Override, check_links
from ..statistics import SCATTER_SAMPLES, grouped
from ..tables import BUSBW, Cell
from ..terminal import Tabular, brief
from ..testcases.host import LEAST_PART, STREAM
from ..units import GB, format_time
from .assumed_capacities import far_below, limiting_links, slowest_possible, unconfirmed, without_peers
from .baseline_use import BaselineUse, baseline_use
from .cells_seen import ComparableCells
from .confidential import by_other_gpus
from .criteria import BY_LIMITS, Criteria
from .dips import Dip, dips
from .gates import GateComparison, GateSetName, compare_gates, load
from .hardware_changes import hardware_changes
from .inventory import Missing, missing
from .localise import (
    Observation,
    WrongData,
    accept,
    defects,
    localise,
    without_fast,
    wrong_data,
)  # fmt: skip
from .nccl_settings import disabling
from .omissions import doubts
from .other_ways import by_other_ways, slow_pairs
from .path_kinds import Uncovered, uncovered
from .published import References, by_other_direction, tightened
from .qualification_verdict import verdict_of
from .replanned import renewed
from .small_buffers import too_small
from .suspects import Culprit, of_expected
from .thresholds import ACQUITTAL_MARGIN
from .usual_ranges import SIZES, UsualRange, UsualRanges
from .verdict import BELOW_PEERS, BELOW_RANGE, Judgement, Verdict, worst

#: A value above the limit by at most this fraction is not implausible: clocks are not exact.
IMPLAUSIBLE = 0.01
#: A value that passes by less than this fraction gets a warning.
WARN = 0.05
#: Why the value of a size gets a warning, whatever its limit is.
_BELOW_NEIGHBOUR = "far slower than a neighbouring size"
#: Why a value that is within a wide range gets a warning.
_FAR_BELOW = "less than half of the typical value, within a range that is wide"
#: Lowest share of a limit; lower ones are rounded to 0, which nothing can be relative to.
_LOWEST = 1e-12
#: Testcases in which CPUs reach the full rate of their memory.
_STREAM = {case.name for case in STREAM}


@dataclass(frozen=True)
class Check(Tabular):
    """All verdicts on a Document.

    Attributes:
        judgements: One per cell, the worst first.
        testcases: Testcase name -> the worst verdict of its cells.
        culprits: Devices and links that explain low cells.
        accepted: Override -> number of cells that it accepts.
        causes: Testcase name -> states of the hardware that may explain low values.
        wrong: Devices and paths that delivered wrong data.
        doubts: Why values that are as expected are no pass: what was not verified, or requested and not
            measured.
        baseline: What the baseline was compared with; None without one.
        simulated: Whether no hardware was measured.
        defects: What the facts show to be wrong, and where.
        gates: Comparisons with published gates.
        missing: What should be there and is not, the worst first.
        nodes: Verdict on the nodes of a qualification; None for other runs.
        dips: Sizes of curves that are far slower than a neighbouring one.
        stale: Why the run is not judged at all: its age; empty if it is.
        uncovered: Kinds of paths that were measured, and of which no value was judged.
    """

    judgements: tuple[Judgement, ...]
    testcases: Mapping[str, Verdict]
    culprits: tuple[Culprit, ...] = ()
    accepted: Mapping[Override, int] = field(default_factory=dict)
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: tuple[WrongData, ...] = ()
    doubts: tuple[str, ...] = ()
    baseline: BaselineUse | None = None
    simulated: bool = False
    defects: tuple[str, ...] = ()
    gates: tuple[GateComparison, ...] = ()
    missing: tuple[Missing, ...] = ()
    nodes: Verdict | None = None
    dips: tuple[Dip, ...] = ()
    stale: str = ""
    uncovered: tuple[Uncovered, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(judgement.verdict for judgement in self.judgements)
        cells = ", ".join(f"{counts[verdict]} {verdict.word}" for verdict in Verdict if counts[verdict])
        causes = "".join(f"; likely cause: {culprit}" for culprit in self.culprits)
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Check{kind}: {self.verdict.word}; values: {cells or 'none'}{causes}")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that ``wirespeed check`` would end with: a pass of a simulated run proves nothing."""
        code = self.verdict.exit_code
        return ExitCode.NOT_JUDGED if self.simulated and code is ExitCode.PASS else code

    @property
    def ok(self) -> bool:
        """Whether the verdict on a machine is pass, without warnings; never of a simulated one."""
        return self.exit_code is ExitCode.PASS

    @property
    def verdict(self) -> Verdict:
        """Verdict on the run: fail, warn, busy, interrupted or pass; unknown if nothing was judged.

        A failed gate, or what is missing, fails the run; a defect that the facts show is at least a warning.
        If no value of a kind of path was judged, the run is not judged, and a log is a warning. With
        ``doubts``, values that are as expected are a warning; if none was compared with a set of gates,
        nothing is known.
        """
        if self.stale:
            return Verdict.UNKNOWN
        of_run = (judgement.verdict for judgement in self.judgements if not judgement.key.testcase)
        values = self.nodes or worst((*self.testcases.values(), *of_run))
        absent = {missing.verdict for missing in self.missing}
        if values.is_failure or Verdict.FAIL in absent or any(compared.failed for compared in self.gates):
            return Verdict.FAIL
        if values is Verdict.WARN or Verdict.WARN in absent or self.defects:
            return Verdict.WARN
        if values is not Verdict.PASS:
            return Verdict.UNKNOWN if values is Verdict.WAIVED else values
        if self.uncovered:
            return worst(lost.of_run for lost in self.uncovered)
        if self.doubts:
            return Verdict.WARN
        return Verdict.PASS if all(compared.compared for compared in self.gates) else Verdict.UNKNOWN


def judge(document: Document, by: Criteria = BY_LIMITS) -> Check:
    """The verdicts on a run by its values, without what causes low ones (see ``Judged.check``).

    If several transfers share a memory of unknown capacity, the rate that the CPUs reached in the same run
    replaces the capacity.

    Args:
        document: The run.
        by: What its values are judged by; its age and gates are compared by ``Judged``.

    Raises:
        UsageError: If an override matches no cell, or the baseline is for a different kind of machine.
    """
    if document.qualification:
        if by.overrides or by.baseline:
            raise UsageError(
                "a qualification compares nodes with each other, not with overrides or a baseline"
            )
        verdict = verdict_of(document.qualification, document.interrupted)
        return Check((), {}, simulated=document.simulated, nodes=verdict)
    document = renewed(document)
    machine = document.machine
    check_links(by.overrides, machine)
    lacking = missing(document, by.expected, by.baseline.inventory(machine) if by.baseline else None)
    is_lesser = any(absent.verdict is Verdict.FAIL and absent.expected is not None for absent in lacking)
    entries = by.baseline.entries(machine, is_lesser=is_lesser) if by.baseline else {}
    cells = [  # of a collective, only the bus bandwidth is judged
        measured
        for measured in placed(document)
        if measured.key in entries or measured.result.collective is None or measured.key.table == BUSBW
    ]
    if document.imported:
        cells = [_of_slowest_product(measured, machine) for measured in cells]
    small = too_small(document, cells)
    judged = _by_criteria(document, cells, entries, small, by)
    if document.imported:
        _warn_of_bridges(judged, cells)
    slower = _by_other_ways(judged, cells, entries, machine)
    for i, judgement in by_other_direction(judged, cells, machine):
        judged[i] = judgement
    found = _by_dips(judged, document)
    accepted, exempt = accept(judged, cells, by.overrides, machine)
    unseen = uncovered(judged, cells, small, machine, is_log=bool(document.imported))
    slower = {i: judgement for i, judgement in slower.items() if i not in exempt}
    disabled = {result.name for result in document.testcases if disabling(document, result)}
    exempt |= {i for i, (key, *_) in enumerate(cells) if key.testcase in disabled}
    culprits = _blame(judged, cells, exempt | slower.keys(), machine, imported=bool(document.imported))
    culprits += slow_pairs(slower, cells, machine)
    warned = {judgement.key for judgement in judged if judgement.why == _BELOW_NEIGHBOUR}
    judged += _failures(document)
    judged.sort(key=lambda j: (j.verdict.rank, j.severity, j.key))
    wrong = wrong_data(cells, machine)
    return Check(
        tuple(judged),
        _of_testcases(document, judged),
        tuple(culprits),
        accepted,
        {r.name: changes for r in document.testcases if (changes := tuple(hardware_changes(r, machine)))},
        wrong,
        doubts(document),
        baseline_use(entries, cells) if entries else None,
        document.simulated,
        tuple(defects(document)),
        missing=(*_problems(document, wrong), *lacking),
        uncovered=unseen,
        dips=tuple(dip for dip in found if dip.key in warned),
    )


def _of_slowest_product(measured: Placed, machine: Machine) -> Placed:
    """A cell with the range of the slowest product that its GPU's name stands for."""
    share, expected = slowest_possible(machine, measured.cell), measured.cell.expected
    if share == 1.0 or expected is None:
        return measured
    low, typical = (rate * share for rate in expected)
    return measured._replace(cell=struct_replace(measured.cell, expected=(low, typical)))


def _by_criteria(
    document: Document,
    cells: Sequence[Placed],
    entries: Mapping[Key, Entry],
    small: Mapping[Key, str],
    by: Criteria,
) -> list[Judgement]:
    """The judgements on cells by limits, ranges, baseline, busy devices and assumed capacities."""
    machine = document.machine
    published = References(document)
    alone = _Alone(machine, _measured_memories(cells, machine), UsualRanges(document), by.tolerance)
    judged = [alone.of(measured, entries.get(measured.key)) for measured in cells]
    judged = [
        replace(one, why=small[one.key]) if one.verdict is Verdict.UNKNOWN and one.key in small else one
        for one in judged
    ]
    by_other_gpus(judged, cells, machine)
    for changed in functions("judging", "judgement"):
        judged = [changed(one, document) for one in judged]
    if not by.ignore_busy:
        judged = [_unless_busy(one, measured, machine) for one, measured in zip(judged, cells, strict=True)]
    for i, (why, above) in unconfirmed(machine, cells, IMPLAUSIBLE).items():
        if judged[i].why == BELOW_RANGE or judged[i].verdict is Verdict.IMPLAUSIBLE:
            judged[i] = replace(judged[i], verdict=Verdict.WARN, why=why, faster_than=above)
    for i, measured in enumerate(cells):
        if judged[i].verdict.is_judged and not _is_final(measured, entries):
            reference = published.of(measured)
            judged[i] = tightened(judged[i], reference) if reference else judged[i]
    for i in far_below(judged, cells) if document.imported else ():
        if (cell := cells[i].cell).shared:
            judged[i] = alone.by_memories(judged[i], cell.value or 0.0, cell)
        else:
            judged[i] = replace(judged[i], verdict=Verdict.WARN, why=_FAR_BELOW)
    return judged


def _warn_of_bridges(judged: list[Judgement], cells: Sequence[Placed]) -> None:
    """Warn of copies of a log that are low for their links, if nothing else of it would be judged.

    Their hosts may limit them. But a log of copies that pass must not lose its verdict if all are slower.
    """
    if any(judgement.verdict.is_judged for judgement in judged):
        return
    for i, (judgement, (_, cell, _, result)) in enumerate(zip(judged, cells, strict=True)):
        is_low = judgement.verdict is Verdict.UNKNOWN and cell.shared and cell.expected and cell.value
        if is_low and result.collective is None:
            why = f"low for its links: {judgement.why}"
            judged[i] = replace(judgement, verdict=Verdict.WARN, why=why)


def _by_other_ways(
    judged: list[Judgement], cells: Sequence[Placed], entries: Mapping[Key, Entry], machine: Machine
) -> dict[int, Judgement]:
    """The judgements on copies that are slower than other ways between the same ends, by index.

    What the user or a baseline expects of a value is final. The judgements are replaced.
    """
    final = {i for i, measured in enumerate(cells) if _is_final(measured, entries)}
    slower = by_other_ways(judged, cells, final, machine)
    for i, judgement in slower.items():
        judged[i] = judgement
    return slower


def _is_final(measured: Placed, entries: Mapping[Key, Entry]) -> bool:
    """Whether the user or a baseline says what is expected of a value."""
    entry = entries.get(measured.key)
    return measured.cell.expect is not None or (entry is not None and entry.judges)


def _by_dips(judged: list[Judgement], document: Document) -> list[Dip]:
    """The dips of curves; values that would pass, or are not judged, get a warning."""
    found = {dip.key: dip for dip in dips(document)}
    for i, judgement in enumerate(judged):
        if judgement.key in found and judgement.verdict in (Verdict.PASS, Verdict.UNKNOWN):
            judged[i] = replace(
                judgement, verdict=Verdict.WARN, why=_BELOW_NEIGHBOUR, least=None, normal=None
            )
    return list(found.values())


def _of_testcases(document: Document, judged: Sequence[Judgement]) -> dict[str, Verdict]:
    """The worst verdict on the cells of each testcase."""
    verdicts = grouped((judgement.key.testcase, judgement.verdict) for judgement in judged)
    return {result.name: _of_testcase(result, verdicts.get(result.name, ())) for result in document.testcases}


def gates(document: Document, name: GateSetName | str | Path, check: Check | None = None) -> GateComparison:
    """Compare a run with published gates.

    Args:
        document: The run.
        name: Name of a set that wirespeed contains, or the path of a TOML file.
        check: The verdicts on the run; None for those of ``judge(document)``.

    Raises:
        UsageError: If there is no such set or file, or the file is invalid.
    """
    return compare_gates(load(str(name)), document, (check or judge(document)).judgements)


def _unless_busy(judgement: Judgement, measured: Placed, machine: Machine) -> Judgement:
    """Return the judgement on a cell, or that another process used its device.

    Many machines have some processes on their CPUs, which can only lower a value: one that is as expected
    although they ran is normal. They take no memory of the host, but those on a device may take all of its.
    """
    busy, nodes = measured.result.busy, {node.name for node in machine.numa}
    if busy and measured.result.status is Status.NO_MEMORY and measured.cell.value is None:
        uses = {device: how for device, how in busy.items() if device not in nodes}
    else:
        uses = busy_devices(measured, machine) if busy else {}
    if not uses or (uses.keys() <= nodes and judgement.verdict is Verdict.PASS):
        return judgement
    why = "; ".join(f"{device} is {how}" for device, how in uses.items())
    return Judgement(
        measured.key, measured.unit, Verdict.BUSY, measured.cell.value, measured.cell.limit, why=why
    )


def _measured_memories(cells: Sequence[Placed], machine: Machine) -> dict[int, float]:
    """Return the rate that the CPUs reached in each memory: link index -> bytes read and written, in B/s."""
    rates: dict[int, float] = {}
    for measured in cells:
        if measured.result.name in _STREAM and measured.cell.value and len(measured.cell.links) == 1:
            ((link, *_),) = measured.cell.links
            if machine.links[link].kind is LinkKind.MEMORY:
                rates[link] = max(rates.get(link, 0.0), measured.cell.value)
    return rates


@dataclass(frozen=True)
class _Alone:
    """Judges cells independently of each other.

    Attributes:
        machine: The machine.
        memories: Index of the link of a memory -> rate that the CPUs reached in it, in B/s.
        usual: What is usual for values that no known link limits.
        tolerance: A value fails if it is below its baseline by more than this fraction.
    """

    machine: Machine
    memories: Mapping[int, float]
    usual: UsualRanges
    tolerance: float

    def of(self, measured: Placed, entry: Entry | None) -> Judgement:
        """The judgement on a cell, for which a baseline may have an entry."""
        cell, value = measured.cell, measured.cell.value
        if value is None:
            if measured.result.status is Status.PASSED and not cell.reason:
                return Judgement(measured.key, measured.unit, Verdict.FAIL, why="no value, and no reason why")
            return Judgement(measured.key, measured.unit, _without_value(measured.result), why=cell.reason)
        passed = Judgement(measured.key, measured.unit, Verdict.PASS, value, cell.limit)
        if _has_few_samples(measured):
            why = f"fewer than {SCATTER_SAMPLES} samples: a single call may take longer than the others"
            return replace(passed, verdict=Verdict.UNKNOWN, why=why)
        peak = cell.peak or cell.limit
        if cell.expected and peak and value > peak * (1 + IMPLAUSIBLE):
            why = f"{value / peak - 1:.0%} above the limit: the value or a link capacity is wrong"
            least, normal = cell.expected
            return replace(
                passed, verdict=Verdict.IMPLAUSIBLE, limit=peak, least=least, normal=normal, why=why
            )
        if cell.expect:
            ranged = _by_expectation(passed, value, cell.limit, cell.expect)
        elif cell.expected:
            ranged = self._by_range(passed, value, cell)
        elif known := None if entry and entry.judges else self.usual.of(measured):
            ranged = _by_usual_range(passed, value, known)
        else:
            ranged = replace(passed, verdict=Verdict.UNKNOWN, why=_unjudged(measured, self.machine))
        if entry is None:
            return ranged
        if not entry.judges:
            why = "the runs of the baseline differ too much"
            return replace(ranged, why=why) if ranged.verdict is Verdict.UNKNOWN else ranged
        compared = _by_baseline(passed, value, entry, self.tolerance)
        only_tightens = compared.verdict is Verdict.PASS and ranged.verdict.is_worse
        return ranged if only_tightens else compared

    def _by_range(self, passed: Judgement, value: float, cell: Cell) -> Judgement:
        assert cell.expected
        least, normal = cell.expected
        if value >= least * (1 + WARN):
            return replace(passed, least=least, normal=normal)
        if cell.shared:
            return self.by_memories(passed, value, cell)
        low_end = Verdict.WARN, "at the low end of the expected range"
        verdict, why = low_end if value >= least else (Verdict.FAIL, BELOW_RANGE)
        return replace(passed, verdict=verdict, least=least, normal=normal, why=why)

    def by_memories(self, judgement: Judgement, value: float, cell: Cell) -> Judgement:
        """Judge a value that is low for its links, but whose transfers share memories of unknown capacity.

        The rate of the CPUs is only an estimate of the capacity, so a low value is at most a warning.
        """
        assert cell.expected
        low, typical = measured_memory()
        least, normal = cell.expected
        for link, carried in cell.shared:
            where = self.machine.links[link].source
            if not carried or link not in self.memories:
                why = f"several transfers pass through the host bridges of {where}, whose capacity is unknown"
                if carried:
                    why = f"several transfers share the memory of {where}, whose capacity is unknown; "
                    why += "measure host_stream_copy in the same run"
                return replace(judgement, verdict=Verdict.UNKNOWN, why=why)
            least = min(least, self.memories[link] * low / carried)
            normal = min(normal, self.memories[link] * typical / carried)
        links = self.machine.links
        rates = ", ".join(f"{links[i].source} {self.memories[i] / 1e9:.0f} GB/s" for i, _ in cell.shared)
        basis = f"transfers share host memory; the CPUs reached {rates} in this run"
        if value < least:
            return replace(judgement, verdict=Verdict.WARN, least=least, normal=normal, why=f"low; {basis}")
        return replace(judgement, least=least, normal=normal, basis=basis)


def _problems(document: Document, wrong: Sequence[WrongData]) -> Iterator[Missing]:
    """What features find wrong besides values."""
    for problems in functions("judging", "problems"):
        yield from problems(document, wrong)


def _has_few_samples(measured: Placed) -> bool:
    """Return whether a block list has too few samples to judge it: its time contains the submission."""
    n = measured.cell.statistics.n if measured.cell.statistics else 0
    key = measured.key
    return 0 < n < SCATTER_SAMPLES and any(
        alike(key.testcase, key.table) is not None for alike in functions("judging", "alike")
    )


def _without_value(result: TestcaseResult) -> Verdict:
    """Return the verdict on what has no value."""
    if result.status is Status.NO_MEMORY:
        return Verdict.UNKNOWN
    if result.status is Status.INTERRUPTED:
        return Verdict.INTERRUPTED
    return Verdict.WAIVED if result.status.good else Verdict.FAIL


def _of_testcase(result: TestcaseResult, verdicts: Collection[Verdict]) -> Verdict:
    """Return the verdict on a testcase from those on its cells; one that ended early is no pass."""
    verdict = worst(verdicts or (Verdict.WAIVED,))
    if result.status.good:
        return verdict
    lacks_memory = result.status is Status.NO_MEMORY and Verdict.BUSY in verdicts
    ended = Verdict.BUSY if lacks_memory else _without_value(result)
    return min(verdict, ended, key=lambda verdict: verdict.rank)


def _by_expectation(
    judgement: Judgement, value: float, limit: float | None, expect: Expectation
) -> Judgement:
    """Judge a value by what the user expects of it, in place of the expected range."""
    if expect.of_limit and limit is None:
        why = f"expected {expect.of_limit:.0%} of the limit, but no limit is known"
        return replace(judgement, verdict=Verdict.UNKNOWN, why=why)
    least = max(expect.least or 0.0, (expect.of_limit or 0.0) * (limit or 0.0)) or None
    low, high = least is not None and value < least, expect.most is not None and value > expect.most
    bound = expect.most if high else least
    text = format_time(bound or 0.0) if judgement.unit is Unit.TIME else f"{(bound or 0.0) / GB:.4g} GB/s"
    origin = f"by {expect.origin}" if expect.origin else "of it"
    why = f"{'below' if low else 'above'} the {text} that are expected {origin}" if low or high else ""
    verdict = Verdict.FAIL if low or high else Verdict.PASS
    return replace(judgement, verdict=verdict, least=least or expect.most, why=why)


def _by_usual_range(judgement: Judgement, value: float, known: UsualRange) -> Judgement:
    """Judge a value that no known link limits by what is usual."""
    verdict, why = known.verdict(value, judgement.unit, IMPLAUSIBLE)
    limit = known.most if verdict is Verdict.IMPLAUSIBLE else judgement.limit or known.limit
    return replace(judgement, verdict=verdict, limit=limit, least=known.bound, normal=known.usual, why=why,
                   basis=known.basis)  # fmt: skip


def _by_baseline(judgement: Judgement, value: float, entry: Entry, tolerance: float) -> Judgement:
    allowed = max(tolerance, DEVIATIONS * entry.spread)
    if judgement.unit.more_is_better:
        least, change = entry.median * (1 - allowed), 1 - value / entry.median
        failed, side = value < least, "below"
    else:
        least, change = entry.median * (1 + allowed), value / entry.median - 1
        failed, side = value > least, "above"
    why = f"{change:.1%} {side} the baseline of {entry.runs} run{'s' * (entry.runs > 1)}" if failed else ""
    verdict = Verdict.FAIL if failed else Verdict.PASS
    return replace(judgement, verdict=verdict, least=least, normal=entry.median, why=why)


def _unjudged(measured: Placed, machine: Machine) -> str:
    """Return why a cell with a value cannot be judged."""
    cpuless = {node.name for node in machine.numa if node.memory_bytes and not node.cpus}
    if not cpuless.isdisjoint({measured.key.row, measured.key.column}):
        return "memory of NUMA nodes without CPUs, such as HBM or CXL: its capacity is unknown"
    if measured.unit is Unit.TIME:
        return "latency needs a baseline"
    if (run := measured.result.collective) is not None and run.ranks == 1:
        nothing = "nothing: its bus bandwidth is 0 by definition"
        return f"one rank sends {'only to itself' if measured.cell.value else nothing}"
    if run is not None and not run.ranks:
        return "the number of ranks is unknown"
    if measured.cell.limit is not None:
        return "not limited by link bandwidth"
    unknown = [link for i, *_ in measured.cell.links if (link := machine.links[i]).capacity is None]
    cores = max((len(node.cores) for node in machine.numa), default=1)
    if measured.result.name == SIZES and measured.cell.bytes < LEAST_PART * cores:
        return "copy too small: thread start-up dominates"
    kinds = {LinkKind.MEMORY: "memory"}
    nouns = dict.fromkeys(kinds.get(link.kind, f"{link.kind} links") for link in unknown)
    return f"unknown capacity of {' and '.join(nouns)}" if nouns else "no limit is known"


def _blame(
    judged: list[Judgement], cells: Sequence[Placed], exempt: set[int], machine: Machine, *, imported: bool
) -> list[Culprit]:
    """Find the culprits and record them with the cells; cells that would pass get a warning.

    Of a log, a link that another value shows to be fast is none: its values may be of different runs.
    """
    indices, observations = [], []
    good: list[tuple[Hashable, float, list[int]]] = []
    peers, alone = ComparableCells(machine), without_peers(machine)
    for i, (judgement, measured) in enumerate(zip(judged, cells, strict=True)):
        cell = measured.cell
        if i in exempt or not cell.value or not cell.limit or not cell.expected:
            continue
        if judgement.verdict is Verdict.BUSY or (cell.shared and judgement.verdict is not Verdict.PASS):
            continue  # another activity explains the value
        group = peers.group(measured, cell.expected[1])
        if judgement.verdict is Verdict.PASS and cell.value >= cell.expected[1] * (1 - ACQUITTAL_MARGIN):
            good.append((group, cell.value, limiting_links(cell)))
        is_alone = any(link in alone for link, _, _ in cell.links)
        if judgement.verdict is Verdict.PASS and is_alone:
            continue
        normal = (judgement.normal or cell.expected[1]) / cell.limit
        low = judgement.verdict is Verdict.FAIL
        if low and cell.expect:
            if not judgement.least or cell.value >= judgement.least:
                continue  # too high
            normal = judgement.least / cell.limit
        indices.append(i)
        reached = max(cell.value / cell.limit, _LOWEST)
        observations.append(Observation(group, reached, normal, cell.links, low, cell.value, cell.limit))
    best = {
        group: max(values) for group, values in grouped((group, value) for group, value, _ in good).items()
    }
    least = (
        1 - ACQUITTAL_MARGIN
    )  # of the best of its peers, which may be faster than what is typical of links
    fast = {link for group, value, links in good if value >= best[group] * least for link in links}
    shares = {k: seen.ratio / seen.normal for k, seen in enumerate(observations) if seen.low}
    culprits = [of_expected(culprit, shares) for culprit in localise(machine, observations)]
    culprits = list(without_fast(culprits, machine, fast)) if imported else culprits
    for culprit in culprits:
        for observation in culprit.cells:
            i = indices[observation]
            judged[i] = replace(judged[i], culprits=culprit.suspects)
            if judged[i].verdict is Verdict.PASS:
                judged[i] = replace(judged[i], verdict=Verdict.WARN, why=BELOW_PEERS)
    return culprits


def _failures(document: Document) -> Iterator[Judgement]:
    """Yield the judgements on testcases that failed or ended early, and on an interrupted run."""
    for result in (result for result in document.testcases if not result.status.good):
        why, verdict = f"{result.status}: {result.reason}", _without_value(result)
        yield Judgement(Key(result.name, "", "", ""), Unit.RATE, verdict, why=why)
    if document.interrupted:
        why = f"run interrupted: {document.interrupted}"
        yield Judgement(Key("", "", "", ""), Unit.RATE, Verdict.INTERRUPTED, why=why)
