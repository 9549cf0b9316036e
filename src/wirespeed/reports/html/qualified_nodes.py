"""The nodes of a qualification on a page: slow parts, a map of nodes and rails, and the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...document import Document
from ...judging.verdict import Verdict
from ...qualification import Qualification, Round, SlowPart, Stage, part_name
from ...summary import median
from ...terminal import one_line
from ...units import format_time, many
from ..numbers import GLANCE, number
from ..qualification import evidence, lines, scale_of
from ..signs import shown
from .deviation import step
from .svg import Element, add, drawing, fitted, markup

#: Pixels: of a square, between groups of nodes, of a group's name, of the map, and the least of a group.
_SIDE, _GAP, _TITLE, _WIDTH, _NARROWEST = 9.0, 18.0, 15.0, 940.0, 140.0
#: Maximum number of nodes of a group of the map, and of nodes that are drawn.
_GROUP, _DRAWN = 64, 16384
#: Maximum number of slow parts in the table.
_LISTED = 500
_BEGINNINGS = ("slow: ", "lossy: ", "missing: ")


def qualified(document: Document) -> dict[str, Any] | None:
    """The template's variables for the nodes; None if the run qualified none."""
    found = document.qualification
    if found is None:
        return None
    text = [line for line in lines(document, found)[:-1] if not line.startswith(_BEGINNINGS)]
    drawn = _map(found)
    return {
        "slow": _slow(found),
        "map": markup(drawn) if drawn is not None else None,
        "lines": [one_line(line) for line in text],
        "rounds": [row for each in found.rounds for row in _rows(each)],
    }


def _slow(found: Qualification) -> list[tuple[str, Any, str]]:
    """Name, verdict and evidence of each slow part and missing node."""
    rows = []
    for culprit in found.culprits[:_LISTED]:
        name = one_line(part_name(culprit, found.nodes))
        text = (
            one_line(evidence(culprit, found))
            .removeprefix(f"slow: {name}: ")
            .removeprefix(f"lossy: {name}: ")
        )
        rows.append((name, shown(Verdict.FAIL if culprit.confirmed else Verdict.WARN), text))
    gone = [node for node in found.nodes if node.missing]
    rows += [(one_line(node.name), shown(Verdict.FAIL), one_line(node.missing)) for node in gone[:_LISTED]]
    return rows


def _rows(found: Round) -> list[tuple[str, int, str, str, str]]:
    """The lines of a round: one, or one for each kind of part of nodes that measure themselves."""
    kinds = dict.fromkeys(found.parts)
    if not kinds:
        return [_round(str(found.stage), len(found.groups), found.values, found.seconds)]
    rows: list[tuple[str, int, str, str, str]] = []
    for kind in kinds:
        values = [
            [value for value, of in zip(row, found.parts, strict=False) if of is kind] for row in found.values
        ]
        name = f"{found.stage}: {kind}"
        _, at_once, middle, lowest, time = _round(name, len(found.groups), values, found.seconds)
        rows.append((name, at_once, middle, lowest, "" if rows else time))  # of one round
    return rows


def _round(
    stage: str, groups: int, values: Sequence[Sequence[float | None]], seconds: float
) -> tuple[str, int, str, str, str]:
    known = sorted(value for row in values for value in row if value is not None)
    if not known:
        return stage, groups, "no values", "", format_time(seconds)
    scale, unit = scale_of(known[-1])
    middle, lowest = (f"{number(value, scale, GLANCE)} {unit}" for value in (median(known), known[0]))
    return stage, groups, middle, lowest, format_time(seconds)


def _map(found: Qualification) -> Element | None:
    """A square for each node and rail; None without pairs, or with too many nodes."""
    shares = _shares(found)
    if not shares or len(found.nodes) > _DRAWN:
        return None
    rails = max(rail for _, rail in shares) + 1
    groups = [
        (block, members[i : i + _GROUP])
        for block, members in _blocks(found).items()
        for i in range(0, len(members), _GROUP)
    ]
    height = _TITLE + rails * _SIDE + _GAP
    width = max(_NARROWEST, max(len(members) for _, members in groups) * _SIDE) + _GAP
    at_once = max(1, int(_WIDTH / width))
    blamed = {(node, culprit.rail): culprit for culprit in found.culprits for node in culprit.nodes}
    title = (
        f"{many(len(found.nodes), 'node')} of {many(rails, 'rail')}; {many(len(found.culprits), 'slow part')}"
    )
    lines_of_groups = math.ceil(len(groups) / at_once)
    svg = drawing(min(at_once, len(groups)) * width, lines_of_groups * height, title, "matrix")
    for i, (block, members) in enumerate(groups):
        top, left = i // at_once * height, i % at_once * width
        ends = found.nodes[members[0]].name, found.nodes[members[-1]].name
        label = f"{ends[0]} to {ends[1]}" if len(members) > 1 else ends[0]
        label = f"{block}: {label}" if block else label
        add(svg, "text", "tick", fitted(label, width - _GAP), x=left, y=top + _TITLE - 4)
        for rail in range(rails):
            _line(svg, found, members, rail, shares, blamed, (left, top + _TITLE + rail * _SIDE))
    return svg


def _line(
    svg: Element,
    found: Qualification,
    members: Sequence[int],
    rail: int,
    shares: dict[tuple[int, int], float],
    blamed: dict[tuple[int, int], SlowPart],
    at: tuple[float, float],
) -> None:
    """The squares of a rail: neighbours that are as expected are one rectangle."""
    colors = [_css(found, node, shares.get((node, rail))) for node in members]
    for (css, _), run in groupby(
        enumerate(colors), key=lambda each: (each[1], -1 if each[1] == "n" else each[0])
    ):
        columns = [column for column, _ in run]
        wide = len(columns) * _SIDE - 1
        left = at[0] + columns[0] * _SIDE
        rect = add(svg, "rect", f"cell {css}", x=left, y=at[1], width=wide, height=_SIDE - 1)
        node = members[columns[0]]
        culprit = blamed.get((node, rail)) or blamed.get((node, -1))
        if css != "n":
            share = shares.get((node, rail))
            reached = "not measured" if share is None else f"{share:.0%}"
            text = f"{found.nodes[node].name}, rail {rail}: {reached}"
            add(rect, "title", text=f"{text}; {evidence(culprit, found)}" if culprit else text)


def _css(found: Qualification, node: int, share: float | None) -> str:
    if found.nodes[node].missing or share is None:
        return "none"
    return "n" if share >= found.threshold else min(step(share), "w1", key=_ORDER.index)


#: Classes of slow squares, the slowest first; a slow one is never neutral.
_ORDER = ("w4", "w3", "w2", "w1", "n", "c1", "c2")


def _blocks(found: Qualification) -> dict[str, list[int]]:
    blocks: dict[str, list[int]] = {}
    for i, node in enumerate(found.nodes):
        blocks.setdefault(node.block, []).append(i)
    return blocks


def _shares(found: Qualification) -> dict[tuple[int, int], float]:
    """Node and rail -> median of its paths in the slower direction, as a fraction of the median of all."""
    of: dict[tuple[int, int, bool], list[float]] = {}
    everything: list[float] = []
    for each in found.rounds:
        if each.stage is not Stage.PAIRS:
            continue
        for group, values in zip(each.groups, each.values, strict=False):
            rails = len(values) // 2
            for i, value in enumerate(values[: 2 * rails]):
                if value is None or len(group) != 2:
                    continue
                everything.append(value)
                source, target = group if i < rails else group[::-1]
                of.setdefault((source, i % rails, True), []).append(value)
                of.setdefault((target, i % rails, False), []).append(value)
    whole = median(sorted(everything)) if everything else 0.0
    if not whole:
        return {}
    shares: dict[tuple[int, int], float] = {}
    for (node, rail, _), of_direction in of.items():
        share = median(sorted(of_direction)) / whole
        shares[node, rail] = min(share, shares.get((node, rail), math.inf))
    return shares
