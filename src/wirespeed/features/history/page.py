"""The history of a machine as a page: a chart for each kind of path, and the changes, the latest first; and
as records, also in notebooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import isnan
from typing import TYPE_CHECKING

from ...reports.html.charts import add, drawing, markup
from ...reports.html.headline import banner
from ...reports.html.notebook import notebook, notebook_html
from ...reports.html.templates import rendered, source
from ...reports.records import Records, named, records
from ...reports.style import SIMULATED
from ...reports.values import quantity
from ...units import many
from ...version import __version__
from .events import KindHistory, MachineHistory, change, course, day, summary, where
from .text import thinned

if TYPE_CHECKING:
    from markupsafe import Markup

#: Size of a small chart, in pixels, and its margins; the space of a time below it.
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT, _TIME = 640.0, 150.0, 20.0, 26.0, 46.0, 8.0, 190.0
#: A chart shows at least this range of speeds, relative to the highest: smaller differences are noise.
_RANGE = 0.1
#: Maximum number of points of a line: of more runs, each point is the mean of some; and of those with dots.
_POINTS, _DOTS = 320, 80


def history_page(history: MachineHistory) -> str:
    """Render the history of a machine as a page that works offline."""
    past = history.past
    first, last = day(past.runs[0].started), day(past.runs[-1].started)
    word, css = ("STEADY", "pass") if all(k.is_judged for k in history.kinds) else ("NOT JUDGED", "unknown")
    if history.worst() or not history.kinds:
        word, css = ("CHANGED", "warn") if history.kinds else ("NOT JUDGED", "unknown")
    return rendered(
        f"{__package__}:history.html",
        source("style.css"),
        title=f"{word} · {history.latest.hostname} · history",
        word=word,
        css=css,
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
    below = f", below expectations: {many(kind.failing, 'value')}" if kind.failing else ""
    text = f"{quantity(history.value(kind), kind.unit)}, {course(history, kind)}{below}"
    return str(kind.kind), text, _chart(history, kind)


def _marked(runs: int) -> Iterator[int]:
    """Yield the runs whose times are below a chart: the first, the last, and some between."""
    steps = max(1, min(runs - 1, int((_WIDTH - _LEFT) / _TIME)))
    yield from dict.fromkeys(round(i * (runs - 1) / steps) for i in range(steps + 1))


def _chart(history: MachineHistory, kind: KindHistory) -> Markup:
    """The speeds of a kind of path over the runs, with its changes as lines."""
    runs, speeds = len(kind.speeds), kind.speeds
    known = [speed for speed in speeds if not isnan(speed)]
    high = max(known)
    low = min(*known, high * (1 - _RANGE))
    svg = drawing(_WIDTH, _HEIGHT, f"speed of {kind.kind} over the runs, as a fraction of the highest")

    def x(run: float) -> float:
        return _LEFT + run / max(1, runs - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(speed: float) -> float:
        return _TOP + (high - speed) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    for event in history.of(kind.kind):
        if not event.is_drift:
            color = "fail" if event.lasts else "warn" if event.is_worse else "pass"
            at = x(event.run)
            mark = add(svg, "line", f"mark {color}", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM)
            add(mark, "title", text=f"{day(event.since)}: {change(event)}, {where(event)}")
    for is_known, part in groupby(thinned(speeds, _POINTS), bool):  # a gap in the values interrupts a line
        if not is_known:
            continue
        points = " ".join(f"{x(run):.1f},{y(speed):.1f}" for run, speed in filter(None, part))
        add(svg, "polyline", "course", points=points, fill="none")
        for run, speed in filter(None, part if len(known) <= _DOTS else ()):
            add(svg, "circle", "dot", cx=x(run), cy=y(speed), r=2.0)
    bottom = _HEIGHT - _BOTTOM
    add(svg, "text", "tick", "speed, % of the highest", x=2, y=10)
    add(svg, "line", "axis", x1=_LEFT, x2=_LEFT, y1=_TOP, y2=bottom)
    add(svg, "line", "axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom)
    for speed in (high, (high + low) / 2, low):
        if speed > low:
            add(svg, "line", "grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(speed), y2=y(speed))
        add(svg, "text", "tick end", f"{speed / high:.0%}", x=_LEFT - 6, y=y(speed) + 4)
    for run in _marked(runs):
        add(svg, "line", "axis", x1=x(run), x2=x(run), y1=bottom, y2=bottom + 4)
        place = "tick" if run == 0 else "tick end" if run == runs - 1 else "tick middle"
        started = history.past.runs[run].started
        add(svg, "text", place, f"{day(started)} {started[11:16]}", x=x(run), y=_HEIGHT - 5)
    return markup(svg)


@records.register
def _(history: MachineHistory) -> Records:
    rows = [
        {"path": kind.kind.name, "started": run.started, "verdict": run.verdict, "speed": speed}
        for kind in history.kinds
        for run, speed in zip(history.past.runs, kind.speeds, strict=True)
        if not isnan(speed)
    ]  # fmt: skip
    return named("path started verdict speed", rows)


@notebook_html.register
def _(history: MachineHistory) -> str:
    return notebook(
        title=repr(history)[1:-1],
        columns=("path", "rate", "change"),
        rows=[
            (str(kind.kind), [quantity(history.value(kind), kind.unit), course(history, kind)])
            for kind in history.kinds
        ],
        simulated=SIMULATED if history.simulated else "",
    )
