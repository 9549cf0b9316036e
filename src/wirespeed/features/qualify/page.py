"""The nodes of a qualification on a page: slow parts, a map of nodes and rails, and the rounds."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

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
from ...reports.html.charts import add, drawing, markup, step
from ...reports.html.pair_matrix import runs_of_color
from ...reports.html.templates import made
from ...reports.values import GLANCE, number
from ...statistics import grouped, median
from ...terminal import one_line
from ...units import format_size, format_time
from .text import SizeRow, evidence, findings, remarks, scale_of, size_rows, values_of

if TYPE_CHECKING:
    from markupsafe import Markup

#: Pixels of a square, and of the numbers of rails at the left.
_SQUARE, _NUMBERS = 12.0, 20.0
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
    return {
        "slow": list(_slow(document, found)),
        "scale": "what the NICs carry" if found.has_limits else "the median of all paths",
        "lists": _lists(document, found),
        "maps": list(_maps(found)),
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
                _verdict_of(row) if found.compared else Verdict.NOT_JUDGED,
            )
            for row in rows
        ],
    }


def _verdict_of(row: SizeRow) -> Verdict:
    """The verdict on large messages."""
    if not row.least:
        return Verdict.NOT_JUDGED
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


def _maps(found: Qualification) -> Iterator[tuple[str, Markup]]:
    """Yield the name of each group of nodes, and a drawing with a square for each node and rail."""
    squares = _squares(found) if len(found.nodes) <= _DRAWN else {}
    rails = max((rail for _, rail in squares), default=-1) + 1
    for block, members in grouped((node.block, i) for i, node in enumerate(found.nodes)).items():
        for first in range(0, len(members) if rails else 0, _GROUP):
            group = members[first : first + _GROUP]
            ends = " to ".join(dict.fromkeys(found.nodes[node].name for node in (group[0], group[-1])))
            name = one_line(f"{block}: {ends}" if block else ends)
            svg = drawing(_NUMBERS + len(group) * _SQUARE, rails * _SQUARE, name)
            for rail in range(rails):
                y = rail * _SQUARE
                add(svg, "text", "tick end", str(rail), x=_NUMBERS - 6, y=y + _SQUARE / 2 + 3.5)
                colors = [squares[node, rail][0] for node in group]
                for css, columns in runs_of_color(colors, "n".__ne__):  # one rectangle of those as expected
                    x, wide = _NUMBERS + columns[0] * _SQUARE, len(columns) * _SQUARE - 1
                    rect = add(svg, "rect", f"cell {css}", x=x, y=y, width=wide, height=_SQUARE - 1)
                    if css != "n":
                        add(rect, "title", text=squares[group[columns[0]], rail][1])
            yield name, markup(svg)


def _squares(found: Qualification) -> dict[tuple[int, int], tuple[str, str]]:
    """CSS class and description of each node and rail; none without pairs."""
    shares = _shares(found)
    blamed = {(node, culprit.rail): culprit for culprit in found.culprits for node in culprit.nodes}
    squares = {}
    for rail in range(max((rail for _, rail in shares), default=-1) + 1):
        limit = _limit(found, rail)
        least = limit.least / limit.rate if limit else found.threshold
        for i, node in enumerate(found.nodes):
            share, culprit = shares.get((i, rail)), blamed.get((i, rail)) or blamed.get((i, -1))
            is_path = culprit is not None and culprit.kind is PartKind.PATH
            if node.missing or share is None:
                css = "none"
            else:  # a slow one is never neutral
                css = "n" if share >= least and not is_path else step(share, Verdict.WARN)
            text = f"{node.name}, rail {rail}: {'not measured' if share is None else f'{share:.0%}'}"
            squares[i, rail] = css, f"{text}; {evidence(culprit, found)}" if culprit else text
    return squares


def _limit(found: Qualification, rail: int) -> RailLimit | None:
    """What the NICs at both ends of a rail carry, if that is known and expected."""
    ends = next((path[:2] for path in found.paths), ()) if found.has_limits else ()
    return found.limit_of(ends, rail)


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
