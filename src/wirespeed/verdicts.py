"""Verdicts: is every value what the hardware can do? A view of a Document, pure and deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .data import measured_memory
from .errors import UsageError
from .expectations import renewed
from .localise import Culprit, Observation, localise
from .model import Engine, Unit
from .results.baseline import Baseline, Entry
from .results.cells import Key, Placed, placed
from .results.document import BUSBW, THROTTLED, Cell, Document, Status, TestcaseResult
from .results.overrides import Override, check_links
from .topology import LinkKind, Machine

#: A value may be so much above what is possible before it is called impossible: clocks are not exact.
IMPLAUSIBLE = 0.01
#: From the least that is normal to so much above it, a value is warned of, as fleets do.
WARN = 0.05
#: A value fails so far under its baseline, or so many of the baseline's deviations if that is more.
TOLERANCE, DEVIATIONS = 0.05, 3


class Verdict(StrEnum):
    """Whether a value is normal; the worst first."""

    IMPLAUSIBLE = "implausible"  #: more than the links allow
    FAIL = "fail"
    WARN = "warn"
    BUSY = "busy"  #: not judged: something else used the device
    UNKNOWN = "unknown"  #: it cannot be judged
    PASS = "pass"
    WAIVED = "waived"  #: not possible on this machine, or accepted by an override

    @property
    def rank(self) -> int:
        """Its place in the order, 0 is the worst."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Judgement:
    """The verdict on one cell; or, with no row and column, on a testcase that failed as a whole.

    Parameters
    ----------
    limit
        What the links allow, in the unit of the value.
    least
        The value that just passes; for a latency the most.
    normal
        The typical value.
    why
        Says why it is not a pass.
    culprit
        The device or link that explains a low value; empty where none does.
    basis
        What the range rests on, where that is not the links: what was measured in the same run.
    """

    key: Key
    unit: Unit
    verdict: Verdict
    value: float | None = None
    limit: float | None = None
    least: float | None = None
    normal: float | None = None
    why: str = ""
    culprit: str = ""
    basis: str = ""

    @property
    def margin(self) -> float:
        """Value over the least that passes, turned round for a latency; 0 where there is none."""
        if not self.value or not self.least:
            return 0.0
        return self.value / self.least if self.unit.more_is_better else self.least / self.value


@dataclass(frozen=True)
class Check:
    """All that was judged.

    Parameters
    ----------
    judgements
        The worst first.
    testcases
        The worst verdict of the cells of each.
    accepted
        Override -> the number of cells that it accepts.
    causes
        Testcase -> what the state of the hardware says that may explain a low value.
    corrupted
        Way (``gpu0->gpu1``) that delivered wrong data -> the testcases in which it did.
    """

    judgements: tuple[Judgement, ...]
    testcases: Mapping[str, Verdict]
    culprits: tuple[Culprit, ...] = ()
    accepted: Mapping[Override, int] = field(default_factory=dict)
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    corrupted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line; ``wirespeed check`` shows the whole."""
        counts = Counter(judgement.verdict for judgement in self.judgements)
        cells = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        slow = "".join(f"; slow: {culprit}" for culprit in self.culprits)
        return f"<Check: {self.verdict}; cells: {cells or 'none'}{slow}>"

    @property
    def verdict(self) -> Verdict:
        """The verdict on the machine: fail, warn, busy or pass; unknown where nothing could be judged."""
        found = {judgement.verdict for judgement in self.judgements}
        for verdict, such in (
            (Verdict.FAIL, {Verdict.IMPLAUSIBLE, Verdict.FAIL}),
            (Verdict.WARN, {Verdict.WARN}),
            (Verdict.BUSY, {Verdict.BUSY}),
            (Verdict.PASS, {Verdict.PASS}),
        ):
            if found & such:
                return verdict
        return Verdict.PASS if any(self.accepted.values()) else Verdict.UNKNOWN


def judge(
    document: Document,
    overrides: Sequence[Override] = (),
    baseline: Baseline | None = None,
    tolerance: float = TOLERANCE,
    ignore_busy: bool = False,
) -> Check:
    """Return the verdict on every cell of a Document, and who is to blame for low ones.

    A rate is held against what the links allow, and against the range that is normal for them or,
    where there is one, the baseline; a latency against the baseline. Where several transfers share a memory
    of unknown capacity, what the CPUs reached in the same run stands for it.

    Parameters
    ----------
    ignore_busy
        Whether cells of devices that something else used are judged all the same.

    Raises
    ------
    UsageError
        If an override matches nothing, or the baseline is not of such machines.
    """
    document = renewed(document)
    machine = document.machine
    check_links(overrides, machine)
    entries = baseline.entries(machine) if baseline else {}
    cells = [one for one in placed(document) if one.key in entries or not _restated(one)]
    memories = _measured_memories(cells, machine)
    judged = [
        (None if ignore_busy else _busy(one, machine))
        or _judge(one, machine, memories, entries.get(one.key), tolerance)
        for one in cells
    ]
    accepted, exempt = _accept(judged, cells, overrides, machine)
    culprits = _blame(judged, cells, exempt, machine)
    judged += _failures(document)
    testcases: dict[str, Verdict] = {result.name: Verdict.WAIVED for result in document.testcases}
    for judgement in judged:
        name = judgement.key.testcase
        if name in testcases:
            testcases[name] = min(testcases[name], judgement.verdict, key=lambda v: v.rank)
    return Check(
        tuple(sorted(judged, key=lambda j: (j.verdict.rank, j.margin, j.key))),
        testcases,
        tuple(culprits),
        accepted,
        {result.name: found for result in document.testcases if (found := _causes(result, machine))},
        _corrupted(cells),
    )


def _restated(one: Placed) -> bool:
    """Whether the bus bandwidth of a collective says the same, and is what is judged."""
    return one.result.collective is not None and one.key.table != BUSBW


def _corrupted(cells: Iterable[Placed]) -> dict[str, tuple[str, ...]]:
    """Return the ways that delivered wrong data, and in which testcases, the most frequent first."""
    found: dict[str, dict[str, None]] = {}
    for one in cells:
        if one.cell.corrupted:
            found.setdefault(one.cell.corrupted, {})[one.result.name] = None
    return {way: tuple(found[way]) for way in sorted(found, key=lambda way: -len(found[way]))}


def _busy(one: Placed, machine: Machine) -> Judgement | None:
    """Return the judgement on a cell of a device that something else used; None for the others."""
    busy = one.result.busy
    if not busy or one.cell.value is None:
        return None
    ends = {
        end for i, *_ in one.cell.links for end in (machine.links[i].source, machine.links[i].destination)
    }
    devices = ends | {one.key.row, one.key.column}
    if one.result.engine != Engine.CPU:  # busy CPUs take the cores, not the copy engines
        devices -= {node.name for node in machine.numa}
    why = "; ".join(f"{device} is {how}" for device, how in busy.items() if device in devices)
    if not why:
        return None
    return Judgement(one.key, one.unit, Verdict.BUSY, one.cell.value, one.cell.limit, why=why)


def _measured_memories(cells: Sequence[Placed], machine: Machine) -> dict[int, float]:
    """Return what the CPUs reached in each memory: index of its link -> bytes read and written, in B/s."""
    found: dict[int, float] = {}
    for one in cells:
        if one.result.name.startswith("host_stream_") and one.cell.value and len(one.cell.links) == 1:
            ((link, *_),) = one.cell.links
            if machine.links[link].kind is LinkKind.MEMORY:
                found[link] = max(found.get(link, 0.0), one.cell.value)
    return found


def _judge(
    one: Placed, machine: Machine, memories: Mapping[int, float], entry: Entry | None, tolerance: float
) -> Judgement:
    """Judge one cell on its own."""
    cell, value = one.cell, one.cell.value
    if value is None:
        verdict = Verdict.WAIVED if one.result.status.good else Verdict.FAIL
        return Judgement(one.key, one.unit, verdict, why=cell.reason)
    judgement = Judgement(one.key, one.unit, Verdict.PASS, value, cell.limit)
    peak = cell.peak or cell.limit
    if cell.expected and peak and value > peak * (1 + IMPLAUSIBLE):
        why = f"{value / peak - 1:.0%} above what the links allow: the value or a capacity is wrong"
        least, normal = cell.expected
        return replace(
            judgement, verdict=Verdict.IMPLAUSIBLE, limit=peak, least=least, normal=normal, why=why
        )
    if entry:
        return _by_baseline(judgement, value, entry, tolerance)
    if not cell.expected:
        return replace(judgement, verdict=Verdict.UNKNOWN, why=_unjudged(one, machine))
    least, normal = cell.expected
    if cell.shared and value < least * (1 + WARN):
        return _by_memories(judgement, value, cell, machine, memories)
    verdict = Verdict.FAIL if value < least else Verdict.WARN if value < least * (1 + WARN) else Verdict.PASS
    why = {Verdict.FAIL: "less than is normal", Verdict.WARN: "barely normal"}.get(verdict, "")
    return replace(judgement, verdict=verdict, least=least, normal=normal, why=why)


def _by_memories(
    judgement: Judgement, value: float, cell: Cell, machine: Machine, memories: Mapping[int, float]
) -> Judgement:
    """Judge a value that is low for its links, but whose transfers share memories of unknown capacity.

    What the CPUs reach in a memory says roughly what it can carry, so that a low value is warned of at most.
    """
    assert cell.expected
    low, typical = measured_memory()
    least, normal = cell.expected
    for link, carried in cell.shared:
        where = machine.links[link].source
        if not carried:
            why = f"several transfers pass through the host bridges of {where}, whose capacity is not known"
            return replace(judgement, verdict=Verdict.UNKNOWN, why=why)
        if link not in memories:
            why = (
                f"several transfers share the memory of {where}, whose capacity is not known; "
                "measure host_stream_copy in the same run"
            )
            return replace(judgement, verdict=Verdict.UNKNOWN, why=why)
        least = min(least, memories[link] * low / carried)
        normal = min(normal, memories[link] * typical / carried)
    measured = ", ".join(f"{machine.links[i].source} {memories[i] / 1e9:.0f} GB/s" for i, _ in cell.shared)
    basis = f"transfers share host memory, which the CPUs used at {measured} in this run"
    if value < least:
        return replace(judgement, verdict=Verdict.WARN, least=least, normal=normal, why=f"low; {basis}")
    return replace(judgement, least=least, normal=normal, basis=basis)


def _by_baseline(judgement: Judgement, value: float, entry: Entry, tolerance: float) -> Judgement:
    allowed = max(tolerance, DEVIATIONS * entry.spread)
    if judgement.unit.more_is_better:
        least, change = entry.median * (1 - allowed), 1 - value / entry.median
        failed, side = value < least, "under"
    else:
        least, change = entry.median * (1 + allowed), value / entry.median - 1
        failed, side = value > least, "above"
    why = f"{change:.1%} {side} the baseline of {entry.runs} run{'s' * (entry.runs > 1)}" if failed else ""
    verdict = Verdict.FAIL if failed else Verdict.PASS
    return replace(judgement, verdict=verdict, least=least, normal=entry.median, why=why)


def _unjudged(one: Placed, machine: Machine) -> str:
    """Say why a cell that has a value cannot be judged."""
    if one.unit is Unit.TIME:
        return "a latency: only a baseline judges it"
    if one.cell.limit is not None:
        return "small buffers, or a pace, shape or kind of memory of its own: the links alone do not say"
    unknown = [link for i, *_ in one.cell.links if (link := machine.links[i]).capacity is None]
    kinds = {LinkKind.MEMORY: "memory"}
    what = dict.fromkeys(kinds.get(link.kind, f"{link.kind} links") for link in unknown)
    return f"the capacity of the {' and '.join(what)} is not known" if what else "no limit is known"


def _accept(
    judged: list[Judgement], cells: Sequence[Placed], overrides: Sequence[Override], machine: Machine
) -> tuple[dict[Override, int], set[int]]:
    """Waive what overrides accept, the first that fits counts.

    Returns
    -------
    accepted
        Override -> the number of cells that it waives.
    exempt
        The cells that may be slow, waived or not: they are not held against their peers.
    """
    accepted: dict[Override, int] = {}
    exempt: set[int] = set()
    for override in overrides:
        fitting = [
            i for i, one in enumerate(cells) if judged[i].value and override.fits(one.key, one.cell, machine)
        ]
        if not fitting:
            raise UsageError(f"the override of {override} matches nothing that was measured")
        bad = [i for i in fitting if _is_accepted(override, judged[i])]
        exempt.update(bad, (i for i in fitting if judged[i].verdict is Verdict.PASS))
        for i in bad:
            judged[i] = replace(judged[i], verdict=Verdict.WAIVED, why=override.reason)
        accepted[override] = len(bad)
    return accepted, exempt


def _is_accepted(override: Override, judgement: Judgement) -> bool:
    if override.accept is None:
        return judgement.verdict in (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN)
    return judgement.verdict in (Verdict.FAIL, Verdict.WARN) and judgement.margin >= override.accept


def _blame(
    judged: list[Judgement], cells: Sequence[Placed], exempt: set[int], machine: Machine
) -> list[Culprit]:
    """Find out who is slow, and note it with the cells; those that pass else are warned of."""
    indices, observations = [], []
    for i, (judgement, one) in enumerate(zip(judged, cells, strict=True)):
        cell = one.cell
        if i in exempt or not cell.value or not cell.limit or not cell.expected:
            continue
        if judgement.verdict is Verdict.BUSY or (cell.shared and judgement.verdict is not Verdict.PASS):
            continue  # what else is going on explains it
        kinds = tuple(sorted({machine.links[link].kind for link, *_ in cell.links}))
        normal = (judgement.normal or cell.expected[1]) / cell.limit
        low = judgement.verdict is Verdict.FAIL
        group = (one.key.testcase, one.key.table, kinds, f"{cell.limit:.3g}", f"{cell.expected[1]:.3g}")
        indices.append(i)
        observations.append(Observation(group, cell.value / cell.limit, normal, cell.links, low))
    culprits = localise(machine, observations)
    for culprit in culprits:
        for observation in culprit.cells:
            i = indices[observation]
            judged[i] = replace(judged[i], culprit=str(culprit))
            if judged[i].verdict is Verdict.PASS:
                judged[i] = replace(judged[i], verdict=Verdict.WARN, why="less than its peers")
    return culprits


def _failures(document: Document) -> list[Judgement]:
    """What failed as a whole: testcases whose data was wrong or that broke off, a run that ended early."""
    found = [
        Judgement(Key(r.name, "", "", ""), Unit.RATE, Verdict.FAIL, why=f"{r.status}: {r.reason}")
        for r in document.testcases
        if not r.status.good
    ]
    if document.interrupted:
        why = f"the run ended early: {document.interrupted}"
        found.append(Judgement(Key("", "", "", ""), Unit.RATE, Verdict.FAIL, why=why))
    return found


#: So many values of a quantity that changes are told.
_TOLD = 4
#: What ``clocks held back by`` says of a GPU that nothing holds back.
_HARMLESS = {"nothing", "idle"}


def _causes(result: TestcaseResult, machine: Machine) -> tuple[str, ...]:
    """Return what in the state of the hardware may explain a low value.

    Quantities with a unit (temperatures, clocks) always move; what says more is a text, a counter
    or a link that changed, and what holds clocks back.
    """
    if result.status is Status.WAIVED:
        return ()
    gpus = {gpu.name for gpu in machine.gpus}
    found = []
    states = [result.state_before, *(reading.state for reading in result.readings), result.state_after]
    for name in dict.fromkeys(name for state in states for name in state):
        values = [state[name] for state in states if name in state]
        course = [value for i, value in enumerate(values) if i == 0 or value != values[i - 1]]
        of_gpu = name.partition(" ")[0] in gpus
        if "[" in name or not (of_gpu or isinstance(course[0], str)):
            continue
        if "PCIe generation" in name and course == sorted(course, key=float):
            continue  # an idle link wakes up
        if len(course) > 1:
            found.append(f"{name}: " + ", then ".join(_plain(value) for value in course[:_TOLD]))
        elif of_gpu and name.endswith(THROTTLED) and course[0] not in _HARMLESS:
            found.append(f"{name}: {course[0]}")
    return tuple(found)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
