"""Page of ``wirespeed history``: a small chart for each kind of path, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from ...judging.history import KindHistory, MachineHistory, change, day, summary, where
from ...units import fitting, many
from ...version import __version__
from ..findings import GLANCE, number
from .headline import banner
from .svg import add, drawing, markup
from .templates import rendered, source

if TYPE_CHECKING:
    from markupsafe import Markup

#: Size of a small chart, in pixels, and its margins.
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 640.0, 96.0, 14.0, 20.0
#: A chart shows at least this range of speeds, relative to the highest: smaller differences are noise.
_RANGE = 0.1
#: Maximum number of points of a line: of more runs, each point is the mean of some.
_POINTS = 320


def page(history: MachineHistory) -> str:
    """Render the history of a machine as a page that works offline."""
    past = history.past
    first, last = day(past.runs[0].started), day(past.runs[-1].started)
    lasting = any(event.lasts for event in history.events)
    word = "CHANGED" if lasting else "STEADY"
    return rendered(
        "history.html",
        source("style.css"),
        title=f"{word} · {history.latest.hostname} · history",
        word=word,
        css="warn" if lasting else "pass",
        summary=summary(history),
        simulated=banner([history.latest.simulated]),
        facts=[
            history.latest.hostname or history.latest.machine.name,
            f"{many(len(past.runs), 'run')}, {first} to {last}",
            f"wirespeed {__version__}",
        ],
        kinds=[_kind(history, kind) for kind in history.kinds],
        changes=[(event, change(event), where(event)) for event in history.events],
        key=lambda i: history.past.key(history.past.cells[i]),
        day=day,
        replaced=[(day(started), text) for started, text in history.replaced],
    )


def _kind(history: MachineHistory, kind: KindHistory) -> tuple[str, str, Markup]:
    scale, unit = fitting(kind.unit, [kind.last])
    below = f", below expectations: {many(kind.failing, 'value')}" if kind.failing else ""
    last = f"{number(kind.last, scale, GLANCE)} {unit} in the latest run{below}"
    return str(kind.kind), last, _chart(history, kind)


def _chart(history: MachineHistory, kind: KindHistory) -> Markup:
    """The speeds of a kind of path over the runs, with its changes as lines."""
    runs, speeds = len(kind.speeds), kind.speeds
    known = [speed for speed in speeds if not isnan(speed)]
    high = max(known)
    low = min(*known, high * (1 - _RANGE))
    svg = drawing(_WIDTH, _HEIGHT, f"speed of {kind.kind} over the runs")

    def x(run: float) -> float:
        return 4 + run / max(1, runs - 1) * (_WIDTH - 8)

    def y(speed: float) -> float:
        return _TOP + (high - speed) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    for event in history.of(kind.kind):
        if not event.is_drift:
            color = "fail" if event.lasts else "warn" if event.is_worse else "pass"
            at = x(event.run)
            mark = add(svg, "line", f"mark {color}", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM)
            add(mark, "title", text=f"{day(event.since)}: {change(event)}, {where(event)}")
    for part in _parts(speeds):
        points = " ".join(f"{x(run):.1f},{y(speed):.1f}" for run, speed in part)
        add(svg, "polyline", "course", points=points, fill="none")
    last = history.past.runs[-1].started
    add(svg, "text", "tick", day(history.past.runs[0].started), x=4.0, y=_HEIGHT - 5)
    add(svg, "text", "tick", day(last), x=_WIDTH - 4, y=_HEIGHT - 5, text_anchor="end")
    return markup(svg)


def _parts(speeds: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The points of the lines: a gap in the values interrupts a line."""
    size = max(1, -(-len(speeds) // _POINTS))
    parts: list[list[tuple[float, float]]] = [[]]
    for start in range(0, len(speeds), size):
        known = [(i, s) for i, s in enumerate(speeds[start : start + size], start) if not isnan(s)]
        if known:
            parts[-1].append((sum(i for i, _ in known) / len(known), sum(s for _, s in known) / len(known)))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]
