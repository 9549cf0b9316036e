"""The measurements of a run by kind of path: failures first, what is as expected folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...document import Status, TestcaseResult
from ...judging.check import Check
from ...judging.judged import Judged
from ...judging.overview import not_as_expected
from ...judging.path_kinds import PathKind, path_kind, path_kinds
from ...judging.verdict import Judgement, Verdict, worst
from ...measurement import Unit
from ...model import Engine
from ...peer_access import PEER_ACCESS
from ...statistics import grouped
from ...terminal import one_line
from ...units import many
from ..figure_texts import extent, leading
from .charts import Judgements
from .tables import Part, curve, matrix, rows, vector_key

if TYPE_CHECKING:
    from markupsafe import Markup

#: Order of engines side by side.
_ENGINES = tuple(Engine)
_UNITS = {Unit.RATE: "Rates", Unit.TIME: "Times", Unit.FREQUENCY: "Messages per second"}
_ACCESS = re.compile(r"_?(read|write)(?=_|\d|$)")
#: Maximum number of families with bad values that are not folded: one cause often slows down all of them.
_OPEN = 2
#: Widths of the blocks that stand side by side, by their number of columns.
_WIDTHS = ((4, "small"), (8, "medium"))


@dataclass(frozen=True)
class Block:
    """A table or a chart of one or several testcases.

    Attributes:
        title: Its heading.
        verdict: The worst verdict.
        cases: Names and descriptions of its testcases, for the filter.
        body: The table or chart.
    """

    title: str
    verdict: Verdict
    cases: str
    body: Markup


@dataclass(frozen=True)
class Family:
    """Blocks that stand side by side: read and write, copy engine and kernels.

    Attributes:
        width: CSS class of the width of a block.
        blocks: The blocks.
        bad: Whether a value of them is worse than expected.
    """

    width: str
    blocks: tuple[Block, ...]
    bad: bool


@dataclass(frozen=True)
class PathGroup:
    """The testcases of a kind of path.

    Attributes:
        id: ID of its section.
        title: Kind of path.
        verdict: The worst verdict.
        summary: Key figure, and how many values are as expected.
        bad: Whether it contains values worse than expected, or a testcase that failed.
        reasons: Why values are bad, not judged or missing.
        families: What to show: those with bad values, or all of them if none is bad.
        alike: More of them with bad values.
        more: Those that are as expected, in a group with bad ones.
        about: Name and description of each testcase.
    """

    id: str
    title: str
    verdict: Verdict
    summary: str
    bad: bool
    reasons: tuple[tuple[Verdict, str], ...]
    families: tuple[Family, ...]
    alike: tuple[Family, ...]
    more: tuple[Family, ...]
    about: tuple[tuple[str, str], ...]


def group_id(run: int | None, kind: PathKind) -> str:
    """The ID of the section of a kind of path; empty without a page."""
    return "" if run is None else f"paths-{run}-{path_kinds().index(kind)}"


def path_groups(run: int | None, judged: Judged, shown: Collection[str] = ()) -> tuple[PathGroup, ...]:
    """The measured testcases by kind of path, the worst first.

    Args:
        run: Index of the run in the page; None without a page.
        judged: The run.
        shown: Testcases that another section shows: only their bad tables are shown here.
    """
    by_kind = grouped(
        (path_kind(result.name, collective=result.collective is not None), (i, result))
        for i, result in enumerate(judged.document.testcases)
        if result.status is not Status.WAIVED and result.name != PEER_ACCESS
        if result.name not in shown or judged.check.testcases[result.name].is_bad
    )
    groups = (_group(run, kind, by_kind[kind], judged, shown) for kind in path_kinds() if kind in by_kind)
    return tuple(sorted(groups, key=lambda group: not group.bad))


def _group(
    run: int | None,
    kind: PathKind,
    results: Sequence[tuple[int, TestcaseResult]],
    judged: Judged,
    shown: Collection[str],
) -> PathGroup:
    """The testcases of one kind of path."""
    names = {result.name for _, result in results}
    of_kind = [judgement for judgement in judged.check.judgements if judgement.key.testcase in names]
    figure = next((figure for figure in judged.overview.figures if figure.kind == kind), None)
    covered = [one for one in results if one[1].name in shown]
    others = [one for one in results if one[1].name not in shown]
    all_families = [family for family in families(run, covered, judged.judgements) if family.bad]
    all_families += families(run, others, judged.judgements)
    bad = any(judgement.verdict.is_bad for judgement in of_kind)
    verdict = worst(
        judgement.verdict for judgement in of_kind if judgement.key.column or judgement.verdict.is_bad
    )
    failing = [family for family in all_families if family.bad]
    key = f"{leading(figure)}, {extent(figure)}" if figure else ""
    return PathGroup(
        group_id(run, kind),
        kind.title,
        verdict,
        " · ".join(filter(None, (key, _counted(of_kind)))),
        bad,
        tuple(_reasons([result for _, result in results], judged.check, of_kind)),
        _joined(failing[:_OPEN] or all_families),
        _joined(failing[_OPEN:]),
        _joined(family for family in all_families if failing and not family.bad),
        tuple((result.name, _about(result)) for _, result in results),
    )


def _about(result: TestcaseResult) -> str:
    return "; ".join(filter(None, (result.description, f"counts {result.counts}" if result.counts else "")))


def _counted(judgements: Sequence[Judgement]) -> str:
    """How many values are not as expected, normal, and not judged."""
    counts = Counter(judgement.verdict for judgement in judgements if judgement.key.column)
    bad, normal = not_as_expected(judgements), counts[Verdict.PASS]
    judged = many(sum(bad.values()) + normal, "value")
    unjudged = sum(counts[verdict] for verdict in (Verdict.NOT_JUDGED, Verdict.BUSY, Verdict.INTERRUPTED))
    parts = [
        *(f"{count} of {judged} {word}" for word, count in bad.items()),
        f"{normal} normal" if normal and not bad else "",
        f"{unjudged} not judged" if unjudged else "",
        f"{counts[Verdict.WAIVED]} skipped or accepted" if counts[Verdict.WAIVED] else "",
    ]
    return ", ".join(filter(None, parts))


def _reasons(
    results: Sequence[TestcaseResult], check: Check, of_kind: Sequence[Judgement]
) -> Iterable[tuple[Verdict, str]]:
    """Yield why testcases failed, and why values are bad, not judged or missing, the most frequent first."""
    wrong = {name for fault in check.wrong for name in fault.testcases}
    names = {result.name for result in results}
    for fault in check.wrong:
        if names.intersection(fault.testcases):
            yield Verdict.FAIL, str(fault)
    for result in results:
        if not result.status.good and result.name not in wrong:
            yield check.testcases[result.name], f"{result.name}: {result.status}: {result.reason}"
    counts = Counter(
        (judgement.verdict, judgement.explanation)
        for judgement in of_kind
        if judgement.key.column and judgement.explanation and judgement.verdict is not Verdict.PASS
        if judgement.value is not None or judgement.key.testcase not in wrong
    )
    for (verdict, why), count in sorted(counts.items(), key=lambda item: (item[0][0].rank, -item[1])):
        yield verdict, f"{many(count, 'value')}: {why}"
    failed = {judgement.key.testcase for judgement in of_kind if judgement.verdict.is_bad}
    causes = {name: texts for name, texts in check.causes.items() if name in failed}
    notes = ((t, r.name) for r in results for t in (*r.warnings, *causes.get(r.name, ())))
    for text, cases in grouped(notes).items():
        where = cases[0] if len(cases) == 1 else many(len(cases), "testcase")
        yield Verdict.WARN, f"{text} (in {where})"


def families(
    run: int | None, results: Iterable[tuple[int, TestcaseResult]], judgements: Judgements
) -> list[Family]:
    """The blocks of some testcases, those with bad values first.

    Args:
        run: Index of the run in the page; None without a page.
        results: The testcases with their indices in the run.
        judgements: The verdicts on their cells.
    """
    parts = [
        Part.of("" if run is None else f"{run}.{i}.{j}", result, table, judgements)
        for i, result in results for j, table in enumerate(result.tables) if table.values()
    ]  # fmt: skip
    vectors = grouped((key, part) for part in parts if (key := vector_key(part)))
    others = grouped((_stem(part), part) for part in parts if not vector_key(part))
    all_families = [_shared(parts) for parts in vectors.values()]
    all_families += [_beside(parts) for parts in others.values()]
    return sorted(all_families, key=lambda family: not family.bad)


def _stem(part: Part) -> tuple[str, str]:
    """What testcases, and their tables, that differ only in engine and access have in common."""
    name = part.result.name.removesuffix(f"_{part.result.engine}")
    return _ACCESS.sub("", name), _ACCESS.sub("", part.table.key)


def _joined(families: Iterable[Family]) -> tuple[Family, ...]:
    """Families with neighbours of equal width as one, so that they share rows."""
    joined: list[Family] = []
    for family in families:
        if joined and joined[-1].width == family.width:
            joined[-1] = replace(joined[-1], blocks=joined[-1].blocks + family.blocks)
        else:
            joined.append(family)
    return tuple(joined)


def _shared(parts: Sequence[Part]) -> Family:
    """One table with a row for each of several testcases, bad ones first."""
    ordered = sorted(parts, key=lambda part: not part.verdict.is_bad)
    table = parts[0].table
    title = f"{_UNITS[table.unit]}: {table.key}" if table.key else _UNITS[table.unit]
    verdict = worst(part.verdict for part in parts)
    cases = " ".join(_searched(part) for part in parts)
    width = "medium" if len(table.cells) <= 2 else "large"
    return Family(width, (Block(title, verdict, cases, rows(title, ordered)),), verdict.is_bad)


def _beside(parts: Sequence[Part]) -> Family:
    """Tables that stand side by side: copy engine, kernels; read, write."""

    def order(part: Part) -> tuple[int, str]:
        engine = part.result.engine
        return [*_ENGINES, engine].index(engine), part.result.name

    blocks, bad = [], False
    for part in sorted(parts, key=order):
        bad = bad or part.verdict.is_bad
        draw = curve if part.table.is_curve else matrix
        title = f"{part.result.name}: {part.table.key}" if len(part.result.tables) > 1 else part.result.name
        blocks.append(Block(one_line(title), part.verdict, _searched(part), draw(part)))
    columns = max(len(part.table.columns.labels) for part in parts)
    curves = any(part.table.is_curve for part in parts)
    width = "curve" if curves else next((css for most, css in _WIDTHS if columns <= most), "large")
    return Family(width, tuple(blocks), bad)


def _searched(part: Part) -> str:
    """The text that the filter searches for a table."""
    return one_line(f"{part.result.name} {part.table.key} {part.result.description}")
