"""Machines of many GPUs as a matrix: the slowest share of what is expected, for each pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ...hardware.topology import Machine
from ...judging.judged import Judged
from ...judging.verdict import Judgement, Verdict
from ...measurement import Unit
from ...statistics import grouped
from ...terminal import one_line
from ...units import many
from .charts import STEPS, Element, add, drawing, fitted, step
from .link_use import Use

_SIDE, _LEFT, _TOP = 12.0, 118.0, 36.0
#: Indices of two GPUs -> the worst judgement on the pair.
_Slowest = dict[tuple[int, int], Judgement | None]


def pair_matrix(judged: Judged, gpus: Sequence[str], uses: Sequence[Use]) -> Element | None:
    """The matrix; None if no rate between GPUs was measured.

    Args:
        judged: The run.
        gpus: Its GPUs, in order.
        uses: Its links with their use, by which tables can be filtered.

    Returns:
        The drawing.
    """
    machine = judged.document.machine
    names = {str(rank.index): f"{rank.index}/{rank.device}" for rank in machine.ranks}
    index = {gpu: i for i, gpu in enumerate(gpus)}
    slowest: _Slowest = {}
    for place in judged.cells:
        if place.unit is not Unit.RATE or place.cell.value is None:
            continue
        ends = [index.get(names.get(end, end)) for end in (place.key.row, place.key.column)]
        if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
            continue
        judgement, at = judged.judgements.get(place.key), (ends[0], ends[1])
        if at not in slowest or _badness(judgement) < _badness(slowest[at]):
            slowest[at] = judgement
    return _drawn(machine, gpus, uses, slowest) if slowest else None


def _badness(judgement: Judgement | None) -> tuple[int, float]:
    """A sort key: the worst verdict, then the slowest."""
    if judgement is None or not judgement.normal:
        return Verdict.NOT_JUDGED.rank, 0.0
    return judgement.verdict.rank, (judgement.value or 0.0) / judgement.normal


def _drawn(machine: Machine, gpus: Sequence[str], uses: Sequence[Use], slowest: _Slowest) -> Element:
    """Draw the matrix: neighbours of one colour are one rectangle, and bad pairs have a title."""
    count = len(gpus)
    bad = sum(1 for judgement in slowest.values() if judgement and judgement.verdict.is_bad)
    title = f"{many(count, 'GPU')}: {many(bad, 'pair')} of {len(slowest)} not as expected"
    svg = drawing(_LEFT + count * _SIDE + 4, _TOP + count * _SIDE + 4, title, "matrix")
    text = f"The worst value of each pair; {bad} of {len(slowest)} pairs are not as expected"
    add(svg, "text", "soft", text, x=_LEFT, y=12)
    for row in range(count):
        y = _TOP + row * _SIDE
        colors = [_css(slowest, (row, column)) for column in range(count)]
        for css, columns in _runs_of_color(colors):
            wide = len(columns) * _SIDE - 1
            rect = add(
                svg, "rect", f"cell {css}", x=_LEFT + columns[0] * _SIDE, y=y, width=wide, height=_SIDE - 1
            )
            judgement = slowest.get((row, columns[0]))
            if judgement and judgement.verdict.is_bad:
                add(rect, "title", text=f"{gpus[row]} and {gpus[columns[0]]}: {judgement.explanation}")
    _labels(svg, machine, gpus, uses)
    return svg


#: Colours whose cells are drawn one by one.
_ALONE = {css for css, least in STEPS if least < 0.95 or least > 1.0}


def _runs_of_color(colors: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each colour with its neighbouring columns; colours that are drawn one by one, by column."""
    for (css, _), run in groupby(
        enumerate(colors), key=lambda each: (each[1], each[1] in _ALONE and each[0])
    ):
        yield css, [column for column, _ in run]


def _css(slowest: _Slowest, at: tuple[int, int]) -> str:
    judgement = slowest.get(at)
    if at not in slowest:
        return "empty"
    if judgement is None or not judgement.normal:
        return "none"
    if judgement.verdict is Verdict.PASS:
        return "n"
    return step((judgement.value or 0.0) / judgement.normal, judgement.verdict)


def _labels(svg: Element, machine: Machine, gpus: Sequence[str], uses: Sequence[Use]) -> None:
    """Name the GPUs at the left and the hosts at the top, and separate hosts."""
    hosts = {f"{rank.index}/{rank.device}": rank.host for rank in machine.ranks}
    links = grouped((end, str(use.index)) for use in uses for end in use.ends)
    length = len(gpus) * _SIDE
    for i, gpu in enumerate(gpus):
        at = i * _SIDE
        group = add(svg, "g", "place", data_place=one_line(gpu), data_links=" ".join(links.get(gpu, ())))
        name = f"{hosts[gpu]} {gpu.partition('/')[2]}" if gpu in hosts else gpu
        text = fitted(name, _LEFT - 6)
        add(group, "text", "tick end", text, x=_LEFT - 4, y=_TOP + at + _SIDE - 2.5)
        add(group, "rect", "hit", x=0, y=_TOP + at, width=_LEFT, height=_SIDE)
        if i and hosts.get(gpu) != hosts.get(gpus[i - 1]):
            add(svg, "line", "grid", x1=_LEFT, x2=_LEFT + length, y1=_TOP + at - 0.5, y2=_TOP + at - 0.5)
            add(svg, "line", "grid", x1=_LEFT + at - 0.5, x2=_LEFT + at - 0.5, y1=_TOP, y2=_TOP + length)
    at = 0
    for host, gpus_of_host in groupby(hosts.get(gpu, "") for gpu in gpus):
        count = len(list(gpus_of_host))
        if host:
            text = fitted(host, count * _SIDE)
            add(svg, "text", "tick", text, x=_LEFT + at * _SIDE + 1, y=_TOP - 5)
        at += count
