"""The nodes of a qualification on a page: slow parts, a map of nodes and rails, and the rounds."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from ...document import Document
from ...judging.advice import Advice
from ...judging.judged import Judged
from ...judging.qualification_verdict import is_over_tcp, next_run, remedy_of, unexplained
from ...judging.verdict import Verdict
from ...qualification import (
    BY_NETWORK,
    OF_NODE,
    PartKind,
    Qualification,
    RailLimit,
    Round,
    compact,
    part_name,
)
from ...reports.additions import PagePart
from ...reports.html.charts import LETTER, Element, add, drawing, fitted, markup, step
from ...reports.html.pair_matrix import runs_of_color
from ...reports.html.templates import made
from ...reports.values import GLANCE, number
from ...statistics import grouped, median
from ...terminal import one_line
from ...units import format_size, format_time, many
from .text import SizeRow, evidence, findings, remarks, scale_of, size_rows, values_of

#: Pixels: of a square at least and at most, between groups of nodes, of a group's name, of the map, and of
#: the numbers of rails on its left.
_SQUARE, _LARGEST, _GAP, _TITLE, _WIDTH, _NUMBERS = 9.0, 24.0, 18.0, 16.0, 1340.0, 34.0
#: Maximum number of nodes of a group of the map, and of nodes that are drawn.
_GROUP, _DRAWN = 64, 16384
#: Maximum number of slow parts in the table.
_LISTED = 500


def part(judged: Judged) -> PagePart | None:
    """The section of the page of a run; None without a qualification."""
    found = qualified(judged.document)
    if found is None:
        return None
    markup = partial(made, f"{__package__}:page.html", "qualification", found)
    return PagePart("Nodes", "nodes", "results", markup, is_all=True)


def qualified(document: Document) -> dict[str, Any] | None:
    """The template's variables for the nodes; None if the run qualified none."""
    found = document.qualification
    if found is None:
        return None
    drawn = _map(found)
    return {
        "slow": list(_slow(document, found)),
        "scale": "what the NICs carry" if found.has_limits else "the median of all paths",
        "lists": _lists(document, found),
        "map": markup(drawn) if drawn is not None else None,
        "lines": [one_line(line) for line in remarks(document, found)],
        "messages": _messages(found),
        "rounds": [row for each in found.rounds for row in _rows(each)],
    }


def _slow(document: Document, found: Qualification) -> Iterator[tuple[str, Verdict, str, str, str, str]]:
    """Name, verdict, evidence, remedy, command and its node of the slow parts and missing nodes."""
    causes = [each for each in findings(document, found) if each.cells]
    over_tcp = is_over_tcp(document, found)
    for culprit in found.culprits[:_LISTED]:
        advice = remedy_of(culprit, over_tcp=over_tcp)
        of_node = culprit.kind in OF_NODE or culprit.kind is PartKind.LOSSY
        node = found.nodes[culprit.nodes[0]].name
        if culprit.limited and culprit.kind is PartKind.PATH:
            advice = unexplained(document, found)
        own = [each for each in causes if each.host == node or each.cause.between or not of_node]
        if culprit.kind in (PartKind.PATH, *BY_NETWORK) and own:
            cause = own[0]
            advice = Advice(cause.cause.remedy, "; ".join(cause.commands))
            node, of_node = cause.host, not cause.cause.between
        yield (
            part_name(culprit, found.nodes),
            Verdict.FAIL if culprit.confirmed else Verdict.WARN,
            values_of(culprit, found),
            advice.do,
            advice.command,
            node if of_node and advice.command else "",
        )
    for missing in [each for each in found.nodes if each.missing][:_LISTED]:
        remedy = "check that it runs, and that its network is up"
        yield missing.name, Verdict.FAIL, missing.missing, remedy, "ip -br link", missing.name


def _messages(found: Qualification) -> dict[str, Any] | None:
    """The table of messages of several sizes, with what ends each row; None if there were none."""
    rows = size_rows(found)
    if not rows:
        return None
    scale, unit = scale_of(max(max(row.rates.values()) for row in rows))
    sizes = sorted({size for row in rows for size in row.rates})
    return {
        "unit": unit,
        "sizes": [format_size(size) for size in sizes],
        "rows": [
            (
                row.name,
                [number(row.rates[size], scale, GLANCE) if size in row.rates else "" for size in sizes],
                row.duration,
                _verdict_of(row) if found.compared else Verdict.UNKNOWN,
            )
            for row in rows
        ],
    }


def _verdict_of(row: SizeRow) -> Verdict:
    """The verdict on large messages."""
    if not row.least:
        return Verdict.UNKNOWN
    return Verdict.PASS if row.large >= row.least else Verdict.FAIL


def _lists(document: Document, found: Qualification) -> list[tuple[str, str]]:
    """What to copy, each with its name: nodes to exclude and to use, and the command that measures again."""
    lists = []
    if found.excluded:
        lists.append(("Exclude (Slurm)", f"--exclude={shlex.quote(compact(found.excluded))}"))
    if found.excluded and found.compared:
        lists.append(("Usable nodes", compact(found.chosen)))
    if found.in_doubt:
        lists.append(("In doubt", compact(found.in_doubt)))
    partners = ", with other partners" if len(found.nodes) > 2 else ""
    lists.append((f"Confirm: start again on these nodes{partners}", next_run(document, found)))
    return [(name, one_line(text)) for name, text in lists if text]


def _rows(found: Round) -> Iterator[tuple[str, int, str, str, str]]:
    """Yield the lines of a round: one, or one for each kind of part of nodes that measure themselves."""
    how = [str(found.memory)] if found.memory else []
    how += ["both directions at once"] if found.both else []
    for i, kind in enumerate(dict.fromkeys(found.parts) or (None,)):
        known = sorted(
            value
            for row in found.values
            for value, of in zip(row, found.parts or repeat(None), strict=False)
            if value is not None and of is kind
        )
        name = ": ".join(filter(None, (found.stage, kind or ", ".join(how))))
        time = "" if i else format_time(found.seconds)  # of one round
        if not known:
            yield name, len(found.groups), "no values", "", time
            continue
        scale, unit = scale_of(known[-1])
        middle, lowest = (f"{number(value, scale, GLANCE)} {unit}" for value in (median(known), known[0]))
        yield name, len(found.groups), middle, lowest, time


def _map(found: Qualification) -> Element | None:
    """A square for each node and rail; None without pairs, or with too many nodes."""
    shares = _shares(found)
    if not shares or len(found.nodes) > _DRAWN:
        return None
    rails = max(rail for _, rail in shares) + 1
    blocks = grouped((node.block, i) for i, node in enumerate(found.nodes))
    groups = [
        (block, members[i : i + _GROUP])
        for block, members in blocks.items()
        for i in range(0, len(members), _GROUP)
    ]
    labels = [_group_label(found, block, members) for block, members in groups]
    longest = max(len(members) for _, members in groups)
    least = max(longest * _SQUARE, *(LETTER * len(label) for label in labels)) + _GAP
    most = max(1, int((_WIDTH - _NUMBERS) / least))
    at_once = math.ceil(len(groups) / math.ceil(len(groups) / most))
    width = (_WIDTH - _NUMBERS) / at_once
    square = min(_LARGEST, (width - _GAP) / longest)
    height = _TITLE + rails * square + _GAP
    blamed = {(node, culprit.rail): culprit for culprit in found.culprits for node in culprit.nodes}
    title = (
        f"{many(len(found.nodes), 'node')} of {many(rails, 'rail')}; {many(len(found.culprits), 'slow part')}"
    )
    svg = drawing(_WIDTH, math.ceil(len(groups) / at_once) * height, title, "map")

    def draw(members: Sequence[int], rail: int, left: float, y: float) -> None:
        """The squares of a rail: neighbours as expected are one rectangle."""
        limit = _limit(found, rail)
        least = limit.least / limit.rate if limit else found.threshold
        culprits = [blamed.get((node, rail)) or blamed.get((node, -1)) for node in members]
        colors = []
        for node, culprit in zip(members, culprits, strict=True):
            is_path = culprit is not None and culprit.kind is PartKind.PATH
            colors.append(_cell_css(found, node, shares.get((node, rail)), math.inf if is_path else least))
        for css, columns in runs_of_color(colors, "n".__ne__):
            x, wide = left + columns[0] * square, len(columns) * square - 1
            rect = add(svg, "rect", f"cell {css}", x=x, y=y, width=wide, height=square - 1)
            if css != "n":
                node, culprit = members[columns[0]], culprits[columns[0]]
                share = shares.get((node, rail))
                reached = "not measured" if share is None else f"{share:.0%}"
                text = f"{found.nodes[node].name}, rail {rail}: {reached}"
                add(rect, "title", text=f"{text}; {evidence(culprit, found)}" if culprit else text)

    for i, ((_, members), label) in enumerate(zip(groups, labels, strict=True)):
        top, left = i // at_once * height, _NUMBERS + i % at_once * width
        add(svg, "text", "tick", fitted(label, width - _GAP), x=left, y=top + _TITLE - 5)
        for rail in range(rails):
            y = top + _TITLE + rail * square
            if i % at_once == 0:
                add(svg, "text", "tick end", str(rail), x=_NUMBERS - 6, y=y + square / 2 + 3.5)
            draw(members, rail, left, y)
    return svg


def _group_label(found: Qualification, block: str, members: Sequence[int]) -> str:
    """The leaf switch of a group, and its first and last node."""
    label = " to ".join(dict.fromkeys(found.nodes[node].name for node in (members[0], members[-1])))
    return one_line(f"{block}: {label}" if block else label)


def _limit(found: Qualification, rail: int) -> RailLimit | None:
    """What the NICs at both ends of a rail carry, if that is known and expected."""
    ends = next((path[:2] for path in found.paths), ()) if found.has_limits else ()
    return found.limit_of(ends, rail)


def _cell_css(found: Qualification, node: int, share: float | None, least: float) -> str:
    if found.nodes[node].missing or share is None:
        return "none"
    return "n" if share >= least else step(share, Verdict.WARN)  # a slow one is never neutral


def _shares(found: Qualification) -> dict[tuple[int, int], float]:
    """Node and rail -> median of its paths in the slower direction, as a share of what is expected.

    That is what the NICs at both ends carry if it is known, else the median of all paths.
    """
    paths = found.paths
    everything = sorted(value for values in paths.values() for value in values)
    whole = median(everything) if everything else 0.0
    if not whole:
        return {}
    of: dict[tuple[int, int, bool], list[float]] = {}
    for (source, target, rail), values in paths.items():
        of.setdefault((source, rail, True), []).extend(values)
        of.setdefault((target, rail, False), []).extend(values)
    shares: dict[tuple[int, int], float] = {}
    for (node, rail, _), of_direction in of.items():
        limit = _limit(found, rail)
        share = median(sorted(of_direction)) / (limit.rate if limit else whole)
        shares[node, rail] = min(share, shares.get((node, rail), math.inf))
    return shares
