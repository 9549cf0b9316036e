"""The judgement on one value by itself: by its links, the usual range, a baseline and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, median

from ..data import measured_memory
from ..document import Status, TestcaseResult
from ..features import functions
from ..hardware.topology import LinkKind, Machine
from ..measurement import Unit
from ..results.baseline import BaselineCell
from ..results.cells import Placed
from ..statistics import SCATTER_SAMPLES
from ..tables import Cell
from ..testcases.host import LEAST_PART
from ..thresholds.changes import DEVIATIONS
from ..thresholds.values import ABOVE_LIMIT, CHANCE_ERRORS, MOST_CHANCE, NEAR_LOWEST
from .usual_ranges import SIZES, UsualRange, UsualRanges
from .verdict import BELOW_RANGE, Judgement, Verdict

#: Standard error of a median over that of a mean, for a normal distribution.
_OF_MEDIAN = 1.2533


class Scatter:
    """How far chance moves the values of a run, from how much the samples of each testcase vary."""

    def __init__(self, cells: Iterable[Placed]) -> None:
        squares: dict[str, list[float]] = {}
        for measured in cells:
            known = measured.cell.statistics
            if known and known.n > 1:
                squares.setdefault(measured.key.testcase, []).append(known.cv**2)
        self._deviations = {name: math.sqrt(fmean(ones)) for name, ones in squares.items()}
        #: Of testcases whose values have one sample each.
        self._typical = median(self._deviations.values()) if squares else 0.0

    def of(self, measured: Placed) -> float:
        """The fraction by which a value may be too high or too low; 0 if it has no samples."""
        known = measured.cell.statistics
        if not known or not known.n:
            return 0.0
        deviation = self._deviations.get(measured.key.testcase, self._typical)
        error = deviation / math.sqrt(known.n)
        return min(MOST_CHANCE, CHANCE_ERRORS * _OF_MEDIAN * error)


@dataclass(frozen=True)
class Alone:
    """Judges cells independently of each other.

    Attributes:
        machine: The machine.
        memories: Index of the link of a memory -> rate that the CPUs reached in it, in B/s.
        usual: What is usual for values that no known link limits.
        tolerance: A value fails if it is below its baseline by more than this fraction.
        scatter: How far chance moves the values.
    """

    machine: Machine
    memories: Mapping[int, float]
    usual: UsualRanges
    tolerance: float
    scatter: Scatter

    def of(self, measured: Placed, entry: BaselineCell | None) -> Judgement:
        """The judgement on a cell, for which a baseline may have an entry."""
        cell, value = measured.cell, measured.cell.value
        if value is None:
            if measured.result.status is Status.PASSED and not cell.reason:
                return Judgement(measured.key, measured.unit, Verdict.FAIL, why="no value, and no reason why")
            return Judgement(measured.key, measured.unit, without_value(measured.result), why=cell.reason)
        passed = Judgement(measured.key, measured.unit, Verdict.PASS, value, cell.limit)
        if _has_few_samples(measured):
            why = f"fewer than {SCATTER_SAMPLES} samples: a single call may take longer than the others"
            return replace(passed, verdict=Verdict.NOT_JUDGED, why=why)
        peak = cell.peak or cell.limit
        chance = 1 + self.scatter.of(measured)
        if cell.expected and peak and value > peak * (1 + ABOVE_LIMIT) * chance:
            why = f"{value / peak - 1:.0%} above the limit: the value or a link capacity is wrong"
            least, normal = cell.expected
            return replace(
                passed, verdict=Verdict.IMPLAUSIBLE, limit=peak, least=least, normal=normal, why=why
            )
        if cell.expected:
            ranged = self._by_range(passed, value, cell, chance)
        elif known := None if entry and entry.judges else self.usual.of(measured):
            ranged = _by_usual_range(passed, value, known)
        else:
            ranged = replace(passed, verdict=Verdict.NOT_JUDGED, why=_unjudged(measured, self.machine))
        if entry is None:
            return ranged
        if not entry.judges:
            why = "the runs of the baseline differ too much"
            return replace(ranged, why=why) if ranged.verdict is Verdict.NOT_JUDGED else ranged
        compared = _by_baseline(passed, value, entry, self.tolerance)
        only_tightens = compared.verdict is Verdict.PASS and ranged.verdict.is_worse
        return ranged if only_tightens else compared

    def _by_range(self, passed: Judgement, value: float, cell: Cell, chance: float) -> Judgement:
        assert cell.expected
        least, normal = cell.expected
        if value * chance >= least * (1 + NEAR_LOWEST):
            return replace(passed, least=least, normal=normal)
        if cell.shared:
            return self.by_memories(passed, value, cell)
        low_end = Verdict.WARN, "at the low end of the expected range"
        verdict, why = low_end if value * chance >= least else (Verdict.FAIL, BELOW_RANGE)
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
                return replace(judgement, verdict=Verdict.NOT_JUDGED, why=why)
            least = min(least, self.memories[link] * low / carried)
            normal = min(normal, self.memories[link] * typical / carried)
        links = self.machine.links
        rates = ", ".join(f"{links[i].source} {self.memories[i] / 1e9:.0f} GB/s" for i, _ in cell.shared)
        basis = f"transfers share host memory; the CPUs reached {rates} in this run"
        if value < least:
            return replace(judgement, verdict=Verdict.WARN, least=least, normal=normal, why=f"low; {basis}")
        return replace(judgement, least=least, normal=normal, basis=basis)


def _has_few_samples(measured: Placed) -> bool:
    """Whether a block list has too few samples to judge it: its time contains the submission."""
    n = measured.cell.statistics.n if measured.cell.statistics else 0
    key = measured.key
    return 0 < n < SCATTER_SAMPLES and any(
        alike(key.testcase, key.table) is not None for alike in functions("judging", "alike")
    )


def _by_usual_range(judgement: Judgement, value: float, known: UsualRange) -> Judgement:
    """Judge a value that no known link limits by what is usual."""
    verdict, why = known.verdict(value, judgement.unit, ABOVE_LIMIT)
    limit = known.most if verdict is Verdict.IMPLAUSIBLE else judgement.limit or known.limit
    return replace(judgement, verdict=verdict, limit=limit, least=known.bound, normal=known.usual, why=why,
                   basis=known.basis)  # fmt: skip


def _by_baseline(judgement: Judgement, value: float, entry: BaselineCell, tolerance: float) -> Judgement:
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
    """Why a cell with a value cannot be judged."""
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


def without_value(result: TestcaseResult) -> Verdict:
    """The verdict on what has no value."""
    if result.status is Status.NO_MEMORY:
        return Verdict.NOT_JUDGED
    if result.status is Status.INTERRUPTED:
        return Verdict.INTERRUPTED
    return Verdict.WAIVED if result.status.good else Verdict.FAIL
