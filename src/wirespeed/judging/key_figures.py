"""The key figure of each kind of path: its slowest path, which stands for the kind in every report; if a
value of the kind failed, the path of that value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..document import Document, TestcaseResult
from ..measurement import Unit
from ..statistics import grouped
from ..units import format_size
from .check import Check
from .path_kinds import COLLECTIVES, GPU_GPU, HOST_MEMORY, PathKind, path_kind, path_kinds
from .small_buffers import CACHED
from .verdict import Judgement, Verdict, share, worst

#: The row of a table of copies within a memory.
_LOCAL = "local"


@dataclass(frozen=True)
class KeyFigure:
    """The slowest path of a kind, and the typical rate.

    Attributes:
        kind: The kind.
        verdict: The worst verdict of all its values, and fail if wrong data arrived or a testcase failed;
            values that cannot be judged or measured count only if there are no others.
        typical: The median value, with its limit and expected range; of curves over sizes, that of the
            largest size.
        slowest: Of the values that ``typical`` is the median of, without those that are accepted, that with
            the smallest share of what is expected; without shares, the smallest.
        worst: Of the bad values, that with the smallest share of what is expected; of those above their
            limit, that with the largest share of it.
        bad: Number of values that are below what is expected, or above their limit.
        failed: Places of which there is no value, because a call failed or wrong data arrived.
        testcases: Testcases of these values, sorted.
        size: Size of the buffers in bytes, if there are values of several; else 0.
    """

    kind: PathKind
    verdict: Verdict
    typical: Judgement
    slowest: Judgement
    worst: Judgement | None = None
    bad: int = 0
    failed: tuple[str, ...] = ()
    testcases: tuple[str, ...] = ()
    size: int = 0

    @property
    def lead(self) -> Judgement:
        """The value that stands for the kind everywhere: the worst bad one, else the slowest."""
        return self.worst or self.slowest

    @property
    def place(self) -> str:
        """Where the leading value is; empty for a collective, which uses all devices."""
        key = self.lead.key
        if self.kind == COLLECTIVES:
            return ""
        return key.column if key.row == _LOCAL else f"{key.row} → {key.column}"

    @property
    def title(self) -> str:
        """The name of a collective or of the kind of path; with the size if there are several."""
        is_one = self.kind == COLLECTIVES and not self.failed
        name = self.lead.key.testcase.replace("_", "-") if is_one else self.kind.title
        return f"{name} {format_size(self.size)}" if self.size else name


def key_figures(document: Document, check: Check) -> tuple[KeyFigure, ...]:
    """A key figure for each kind of path that has a rate."""
    collectives = {result.name for result in document.testcases if result.collective}
    wrong = {
        (result.name, table.rows.labels[cell.row], table.columns.labels[cell.column])
        for result in document.testcases for table in result.tables for cell in table.cells if cell.is_wrong
    }  # fmt: skip
    by_kind = grouped(
        (path_kind(judgement.key.testcase, collective=judgement.key.testcase in collectives), judgement)
        for judgement in check.judgements if judgement.value is not None and judgement.key.column
        and (judgement.key.testcase, judgement.key.row, judgement.key.column) not in wrong
    )  # fmt: skip
    cache = document.machine.last_cache_bytes()
    figures = (_key_figure(kind, by_kind.get(kind, []), cache) for kind in path_kinds() if kind.key_figures)
    failed = () if check.stale else failures(document)
    unseen = {lost.kind: lost.verdict for lost in check.uncovered}
    broken = {path_kind(result.name, collective=result.name in collectives) for result in failed}
    lost = {} if check.stale else _failed(document, check, collectives, wrong)
    return tuple(
        replace(figure, verdict=Verdict.FAIL, failed=lost.get(figure.kind, ()))
        if figure.kind in {*broken, *lost}
        else replace(figure, verdict=unseen[figure.kind])
        if figure.kind in unseen and not figure.verdict.is_bad and not check.stale
        else figure
        for figure in figures
        if figure is not None
    )


def _failed(
    document: Document, check: Check, collectives: Collection[str], wrong: Collection[tuple[str, str, str]]
) -> dict[PathKind, tuple[str, ...]]:
    """The places of each kind of path without a right value, the places of most values first."""
    places: dict[PathKind, Counter[str]] = {}
    for judgement in check.judgements:
        key = judgement.key
        is_failed = judgement.value is None and judgement.verdict.is_failure
        if key.column and (is_failed or (key.testcase, key.row, key.column) in wrong):
            is_collective = key.testcase in collectives
            place = key.testcase if is_collective else f"{key.row} → {key.column}"
            places.setdefault(path_kind(key.testcase, collective=is_collective), Counter())[place] += 1
    unusable = document.peers.unusable if document.peers else {}
    for (a, b), verdict in (document.peers.bad() if document.peers else {}).items():
        if verdict.is_broken and not {a, b} & unusable.keys():
            places.setdefault(GPU_GPU, Counter())[f"{a} → {b}"] += 1
    return {kind: tuple(place for place, _ in counts.most_common()) for kind, counts in places.items()}


def _key_figure(kind: PathKind, judgements: Sequence[Judgement], cache: float) -> KeyFigure | None:
    """The key figure of a kind of path; None if it has no rate.

    Rates of buffers that a cache may keep, such as the ``cache`` of the CPUs, in bytes, are not those of a
    memory.
    """
    rates = [j for j in judgements if j.unit is Unit.RATE and j.why != CACHED]
    of_path = [j for j in rates if kind != HOST_MEMORY or not 0 < j.key.bytes < cache]
    if not of_path and not any(judgement.verdict.is_bad for judgement in rates):
        return None
    groups = (
        [j for j in of_path if j.key.testcase in names and j.key.table in ("", "busbw")]
        for names in kind.key_figures
    )
    chosen = next(filter(None, groups), of_path or rates)
    # Small messages and devices in use have no range, and are not typical.
    ranged = [judgement for judgement in chosen if judgement.least]
    is_curve = len({judgement.key.bytes for judgement in chosen}) > 1
    largest = max(judgement.key.bytes for judgement in ranged or chosen) if is_curve else 0
    chosen = [judgement for judgement in ranged or chosen if judgement.key.bytes >= largest]
    chosen.sort(key=lambda judgement: judgement.value or 0.0)
    typical = chosen[len(chosen) // 2]
    bad = [judgement for judgement in rates if judgement.verdict.is_bad]
    same = [judgement for judgement in bad if judgement.key.testcase == typical.key.testcase]
    verdict = worst(judgement.verdict for judgement in rates)
    led = same or bad if kind == COLLECTIVES else bad  # a collective is named by what it does
    above = [judgement for judgement in led if judgement.is_above]
    extreme = max(above, key=fraction) if above else min(led, key=fraction, default=None)
    names = tuple(sorted({judgement.key.testcase for judgement in chosen}))
    slowest = min(
        (one for one in chosen if one.verdict is not Verdict.WAIVED), key=fraction, default=chosen[0]
    )
    return KeyFigure(kind, verdict, typical, slowest, extreme, len(bad), (), names, largest)


def fraction(judgement: Judgement) -> float:
    """The fraction of a share; 0 if there is none."""
    ratio = share(judgement)
    return ratio.fraction if ratio else 0.0


def failures(document: Document) -> list[TestcaseResult]:
    """The testcases that failed; not those that the user interrupted."""
    return [result for result in document.testcases if result.status.is_failure]
