"""Text and JSON of the history of a machine: a line for each kind of path, then the latest changes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from math import isnan
from typing import Any

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ...reports.console import further, printed
from ...reports.plot import BARS
from ...reports.records import picked
from ...reports.style import SIMULATED, Style
from ...reports.values import quantity
from ...terminal import escaped
from ...units import many
from .events import Event, KindHistory, MachineHistory, change, course, day, summary, where

#: Characters of a sparkline; its lowest bar stands for this fraction of the highest speed, or less.
_POINTS, _LOWEST = 32, 0.9
#: Maximum number of changes, and of differences of one, without ``-v``.
_MOST, _MOST_DIFFERENCES = 12, 3


def text(history: MachineHistory, style: Style) -> str:
    """Render the history of a machine; ``verbose`` lists all changes and their cells."""
    runs = history.past.runs
    between = " to ".join(dict.fromkeys((day(runs[0].started), day(runs[-1].started))))
    head = Text(history.latest.hostname or history.latest.machine.name, style="bold")
    head.append(f" · {many(len(runs), 'run')}, {between}", style="")
    if history.latest.simulated:
        head.append(f" · {SIMULATED}", style="bold magenta")
    table = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
    for kind in history.kinds:
        table.add_row(*_line(history, kind, style))
    parts: list[RenderableType] = [head, *(("", table) if history.kinds else ())]
    parts += [Text(f"{day(started)}  {what}", style="cyan") for started, what in history.replaced]
    shown = history.events if style.verbose else history.events[:_MOST]
    for event in shown:
        parts += ["", *_event(history, event, style)]
    if left := further(len(history.events) - len(shown), "earlier change"):
        parts += ["", *left]
    parts += ["", Text(summary(history), style="bold")]
    return printed(style, *parts)


def _line(history: MachineHistory, kind: KindHistory, style: Style) -> list[Text]:
    style_of = "yellow" if history.worst(kind.kind) else "green" if kind.is_judged else "dim"
    said = Text(course(history, kind), style=style_of)
    if kind.failing:
        said.append(f"; below expectations: {many(kind.failing, 'value')}", style="red")
    bars = Text(sparkline(kind.speeds), style="cyan" if style.color else "")
    return [Text(str(kind.kind)), bars, Text(quantity(history.value(kind), kind.unit)), said]


def thinned(speeds: Sequence[float], most: int) -> Iterator[tuple[float, float] | None]:
    """Yield run and speed of at most this many points, each the mean of some runs; None without a value."""
    size = max(1, -(-len(speeds) // most))
    for start in range(0, len(speeds), size):
        known = [(i, s) for i, s in enumerate(speeds[start : start + size], start) if not isnan(s)]
        runs, values = zip(*known, strict=True) if known else ((), ())
        yield (sum(runs) / len(known), sum(values) / len(known)) if known else None


def sparkline(speeds: Sequence[float], points: int = _POINTS) -> str:
    """Speeds as bars: the highest is 8/8, the lowest that of 90% or less; blanks without a value."""
    means = [point and point[1] for point in thinned(speeds, points)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    high = max(known)
    low = min(*known, high * _LOWEST)
    return "".join(
        " " if mean is None else BARS[round((mean - low) / (high - low) * (len(BARS) - 1))] for mean in means
    )


def _event(history: MachineHistory, event: Event, style: Style) -> Iterator[Text]:
    color = "red" if event.lasts else "green" if not event.is_worse else "yellow"
    line = Text("slowly      " if event.is_drift else f"{day(event.since)}  ")
    line.append(change(event), style=f"bold {color}")
    line.append(f"  {where(event)}{', in the newest run' if event.is_newest else ''}")
    if event.until:
        line.append(f"; as before since {day(event.until)}", style="dim")
    yield line
    named = event.differences[: None if style.verbose else _MOST_DIFFERENCES]
    yield from (Text(f"            then changed: {difference}", style="cyan") for difference in named)
    if more := len(event.differences) - len(named):
        yield Text(f"            {many(more, 'more difference')}; -v shows all", style="dim")
    if style.verbose:
        keys = (history.past.key(history.past.cells[i]) for i in event.cells)
        yield from (Text(f"            {key.testcase} {key.place}", style="dim") for key in keys)


def data(history: MachineHistory) -> dict[str, Any]:
    """The history as plain data with stable keys: values in base units, fractions, ISO 8601 times."""
    past = history.past
    return {
        "wirespeed_history": 1,
        "host": history.latest.hostname,
        "simulated": history.latest.simulated,
        "runs": len(past.runs),
        "first": past.runs[0].started,
        "last": past.runs[-1].started,
        "kinds": [
            {"kind": kind.kind.name, "value": history.value(kind), "unit": kind.unit.value,
             "cells": len(kind.cells), "judged": kind.is_judged, "failing": kind.failing,
             "speeds": [None if isnan(speed) else round(speed, 6) for speed in kind.speeds]}
            for kind in history.kinds
        ],
        "changes": [
            picked(
                event, "since until drift newest change lasts kinds culprits differences cells",
                until=event.until or None, drift=event.is_drift, newest=event.is_newest,
                change=event.ratio - 1,
                kinds=[kind.name for kind in event.kinds], differences=list(map(str, event.differences)),
                cells=[past.key(past.cells[i])._asdict() for i in event.cells],
            )
            for event in history.events
        ],
        "replaced": [{"since": started, "what": what} for started, what in history.replaced],
    }  # fmt: skip


def as_json(history: MachineHistory, style: Style) -> str:
    """The history as JSON."""
    return escaped(dumps(data(history), indent=None if not style.verbose else 1)) + "\n"


#: Formats by name.
FORMATS = {"text": text, "json": as_json}
