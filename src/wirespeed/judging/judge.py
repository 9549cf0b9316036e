"""Judge a run: does every value reach what the hardware can do? Pure and deterministic."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from msgspec.structs import replace as struct_replace

from ..document import Document, Status, TestcaseResult
from ..errors import UsageError
from ..features import functions
from ..hardware.topology import LinkKind, Machine
from ..measurement import Unit
from ..results.baseline import BaselineCell
from ..results.cells import Key, Placed, busy_devices, placed
from ..results.overrides import check_links
from ..statistics import grouped
from ..tables import BUSBW
from ..testcases.host import STREAM
from ..thresholds.causes import ACQUITTAL_MARGIN
from ..thresholds.values import ABOVE_LIMIT
from .baseline_use import baseline_use
from .cells_seen import Observation, comparable
from .check import Check
from .confidential import by_other_gpus
from .criteria import BY_LIMITS, Criteria
from .dips import Dip, dips
from .hardware_changes import hardware_changes
from .inventory import missing
from .localise import accept, defects, localise, without_fast, wrong_data
from .nccl_settings import disabling
from .omissions import doubts
from .other_ways import by_other_ways, slow_pairs
from .path_kinds import uncovered
from .published import References, bounded_by_nics, by_other_direction, tightened
from .qualification_verdict import verdict_of
from .replanned import renewed
from .single_value import Alone, Scatter, without_value
from .small_buffers import too_small
from .suspects import Culprit, of_expected
from .unconfirmed_limits import far_below, limiting_links, slowest_possible, unconfirmed, without_peers
from .usual_ranges import UsualRanges
from .verdict import BELOW_PEERS, BELOW_RANGE, Judgement, Verdict, worst

#: Why the value of a size gets a warning, whatever its limit is.
_BELOW_NEIGHBOUR = "far slower than a neighbouring size"
#: Why a value that is within a wide range gets a warning.
_FAR_BELOW = "less than half of the typical value, within a range that is wide"
#: Lowest share of a limit; lower ones are rounded to 0, which nothing can be relative to.
_LOWEST = 1e-12
#: Testcases in which CPUs reach the full rate of their memory.
_STREAM = {case.name for case in STREAM}


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
    #: Values of which the baseline says what is expected.
    final = {i for i, (key, *_) in enumerate(cells) if key in entries and entries[key].judges}
    judged = _by_criteria(document, cells, entries, final, small, by)
    if document.imported:
        _warn_of_bridges(judged, cells)
    slower = by_other_ways(judged, cells, final, machine)
    for i, judgement in slower.items():
        judged[i] = judgement
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
    of_features = (problems(document, wrong) for problems in functions("judging", "problems"))
    verdicts = grouped((judgement.key.testcase, judgement.verdict) for judgement in judged)
    return Check(
        tuple(judged),
        {result.name: _of_testcase(result, verdicts.get(result.name, ())) for result in document.testcases},
        tuple(culprits),
        accepted,
        {r.name: changes for r in document.testcases if (changes := tuple(hardware_changes(r, machine)))},
        wrong,
        doubts(document),
        baseline_use(entries, cells) if entries else None,
        document.simulated,
        tuple(defects(document)),
        missing=(*chain.from_iterable(of_features), *lacking),
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
    entries: Mapping[Key, BaselineCell],
    final: Collection[int],
    small: Mapping[Key, str],
    by: Criteria,
) -> list[Judgement]:
    """The judgements on cells by limits, ranges, baseline, busy devices and assumed capacities."""
    machine = document.machine
    published, scatter = References(document), Scatter(cells)
    alone = Alone(machine, _measured_memories(cells, machine), UsualRanges(document), by.tolerance, scatter)
    judged = [alone.of(measured, entries.get(measured.key)) for measured in cells]
    judged = [
        replace(one, why=small[one.key]) if one.verdict is Verdict.NOT_JUDGED and one.key in small else one
        for one in judged
    ]
    by_other_gpus(judged, cells, machine)
    for changed in functions("judging", "judgement"):
        judged = [changed(one, document) for one in judged]
    if not by.ignore_busy:
        judged = [_unless_busy(one, measured, machine) for one, measured in zip(judged, cells, strict=True)]
    for i, (why, above) in unconfirmed(machine, cells, ABOVE_LIMIT).items():
        if judged[i].why == BELOW_RANGE or judged[i].verdict is Verdict.IMPLAUSIBLE:
            judged[i] = replace(judged[i], verdict=Verdict.WARN, why=why, faster_than=above)
    for i, measured in enumerate(cells):
        if judged[i].verdict.is_judged and i not in final:
            reference = published.of(measured)
            judged[i] = tightened(judged[i], reference, scatter.of(measured)) if reference else judged[i]
    for i in far_below(judged, cells) if document.imported else ():
        if (cell := cells[i].cell).shared:
            judged[i] = alone.by_memories(judged[i], cell.value or 0.0, cell)
        else:
            judged[i] = replace(judged[i], verdict=Verdict.WARN, why=_FAR_BELOW)
    return [one if i in final else bounded_by_nics(one, cells[i], machine) for i, one in enumerate(judged)]


def _warn_of_bridges(judged: list[Judgement], cells: Sequence[Placed]) -> None:
    """Warn of copies of a log that are low for their links, if nothing else of it would be judged.

    Their hosts may limit them. But a log of copies that pass must not lose its verdict if all are slower.
    """
    if any(judgement.verdict.is_judged for judgement in judged):
        return
    for i, (judgement, (_, cell, _, result)) in enumerate(zip(judged, cells, strict=True)):
        is_low = judgement.verdict is Verdict.NOT_JUDGED and cell.shared and cell.expected and cell.value
        if is_low and result.collective is None:
            why = f"low for its links: {judgement.why}"
            judged[i] = replace(judgement, verdict=Verdict.WARN, why=why)


def _by_dips(judged: list[Judgement], document: Document) -> list[Dip]:
    """The dips of curves; values that would pass, or are not judged, get a warning."""
    found = {dip.key: dip for dip in dips(document)}
    for i, judgement in enumerate(judged):
        if judgement.key in found and judgement.verdict in (Verdict.PASS, Verdict.NOT_JUDGED):
            judged[i] = replace(
                judgement, verdict=Verdict.WARN, why=_BELOW_NEIGHBOUR, least=None, normal=None
            )
    return list(found.values())


def _unless_busy(judgement: Judgement, measured: Placed, machine: Machine) -> Judgement:
    """The judgement on a cell, or that another process used its device.

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
    """The rate that the CPUs reached in each memory: link index -> bytes read and written, in B/s."""
    rates: dict[int, float] = {}
    for measured in cells:
        if measured.result.name in _STREAM and measured.cell.value and len(measured.cell.links) == 1:
            ((link, *_),) = measured.cell.links
            if machine.links[link].kind is LinkKind.MEMORY:
                rates[link] = max(rates.get(link, 0.0), measured.cell.value)
    return rates


def _of_testcase(result: TestcaseResult, verdicts: Collection[Verdict]) -> Verdict:
    """The verdict on a testcase from those on its cells; one that ended early is no pass."""
    verdict = worst(verdicts or (Verdict.WAIVED,))
    if result.status.good:
        return verdict
    lacks_memory = result.status is Status.NO_MEMORY and Verdict.BUSY in verdicts
    ended = Verdict.BUSY if lacks_memory else without_value(result)
    return min(verdict, ended, key=lambda verdict: verdict.rank)


def _blame(
    judged: list[Judgement], cells: Sequence[Placed], exempt: set[int], machine: Machine, *, imported: bool
) -> list[Culprit]:
    """Find the culprits and record them with the cells; cells that would pass get a warning.

    Of a log, a link that another value shows to be fast is none: its values may be of different runs.
    """
    indices, observations = [], []
    good: list[tuple[Hashable, float, list[int]]] = []
    group_of, alone = comparable(machine), without_peers(machine)
    for i, (judgement, measured) in enumerate(zip(judged, cells, strict=True)):
        cell = measured.cell
        if i in exempt or not cell.value or not cell.limit or not cell.expected:
            continue
        if judgement.verdict is Verdict.BUSY or (cell.shared and judgement.verdict is not Verdict.PASS):
            continue  # another activity explains the value
        group = group_of(measured, cell.expected[1])
        if judgement.verdict is Verdict.PASS and cell.value >= cell.expected[1] * (1 - ACQUITTAL_MARGIN):
            good.append((group, cell.value, limiting_links(cell)))
        is_alone = any(link in alone for link, _, _ in cell.links)
        if judgement.verdict is Verdict.PASS and is_alone:
            continue
        normal = (judgement.normal or cell.expected[1]) / cell.limit
        low = judgement.verdict is Verdict.FAIL
        indices.append(i)
        reached = max(cell.value / cell.limit, _LOWEST)
        observations.append(Observation(group, reached, normal, cell.links, low, cell.value, cell.limit))
    best = {
        group: max(values) for group, values in grouped((group, value) for group, value, _ in good).items()
    }
    least = 1 - ACQUITTAL_MARGIN  # of the best of its peers, which may be faster than links typically are
    fast = {link for group, value, links in good if value >= best[group] * least for link in links}
    shares = {k: seen.ratio / seen.normal for k, seen in enumerate(observations) if seen.low}
    culprits = [of_expected(culprit, shares) for culprit in localise(machine, observations)]
    culprits = list(without_fast(culprits, machine, fast)) if imported else culprits
    for culprit in culprits:
        for observation in culprit.cells:
            i = indices[observation]
            judged[i] = replace(judged[i], culprit=culprit)
            if judged[i].verdict is Verdict.PASS:
                judged[i] = replace(judged[i], verdict=Verdict.WARN, why=BELOW_PEERS)
    return culprits


def _failures(document: Document) -> Iterator[Judgement]:
    """Yield the judgements on testcases that failed or ended early, and on an interrupted run."""
    for result in (result for result in document.testcases if not result.status.good):
        why, verdict = f"{result.status}: {result.reason}", without_value(result)
        yield Judgement(Key(result.name, "", "", ""), Unit.RATE, verdict, why=why)
    if document.interrupted:
        why = f"run interrupted: {document.interrupted}"
        yield Judgement(Key("", "", "", ""), Unit.RATE, Verdict.INTERRUPTED, why=why)
