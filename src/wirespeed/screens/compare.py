"""Text of ``wirespeed compare`` and ``history``: the cells that changed, the worst or the latest first.

``history`` begins with a line for each kind of path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isnan
from typing import Any

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ..judging.history import (
    Event,
    KindHistory,
    MachineHistory,
    because,
    change,
    day,
    summary,
    where,
)
from ..reports import SIMULATED, Style, comparisons
from ..reports.comparisons import (
    CHANGED,
    counted,
    moved,
    not_compared,
    notes,
    pairing,
    remarks,
    side_of,
)
from ..reports.console import MOST_WARNINGS, printed
from ..reports.findings import GLANCE, SIGNS, number
from ..reports.plot import BARS
from ..reports.records import errors_of, picked
from ..results.compare import Change, Comparison, Outcome, Unreadable
from ..terminal import LONGEST_LINE, escaped, visible
from ..units import fitting, many

#: Maximum number of testcases and of differences shown; ``verbose`` shows all.
_SHOWN, _DIFFERENCES = 12, 8


def render(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a Comparison as text; ``verbose`` includes every cell that changed."""
    parts: list[RenderableType] = []
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        line = Text(f"{name}: {side_of(side)}")
        if any(document.simulated for document in side):
            line.append(f" · {SIMULATED}", style="bold magenta")
        parts.append(line)
        texts = list(remarks(side))
        named = texts if style.verbose else texts[:MOST_WARNINGS]
        parts += [Text(text, style="bold yellow") for text in named]
        if len(texts) > len(named):
            parts.append(Text(f"{many(len(texts) - len(named), 'more warning')}; -v shows all", style="dim"))
    parts += [Text(f"unreadable: {text}", style="bold red") for text in errors_of(unreadable)]
    parts += [Text(text, style="yellow") for text in pairing(comparison)]
    shown = comparison.differences[: None if style.verbose else _DIFFERENCES]
    parts += [Text(f"differs: {difference}", style="cyan") for difference in shown]
    if more := len(comparison.differences) - len(shown):
        parts.append(Text(f"{many(more, 'more difference')}; -v shows all", style="dim"))
    if busy := not_compared(comparison):
        parts.append(Text(busy, style="bold yellow"))
    changed = comparison.those(*CHANGED)
    order: dict[tuple[str, str], list[Change]] = {}
    for cell_change in changed:
        order.setdefault((cell_change.outcome, cell_change.key.testcase), []).append(cell_change)
    for (_, name), changes in list(order.items())[: None if style.verbose else _SHOWN]:
        head = Text(f"{changes[0].outcome:<8}", style=SIGNS[changes[0].outcome].style)
        head.append(name, style="bold")
        is_better = changes[0].outcome is Outcome.BETTER
        extreme = "largest change" if is_better else "worst"
        head.append(f"  {len(changes)} values, {extreme}:" if len(changes) > 1 and not style.verbose else "")
        listed = changes if style.verbose else changes[:1]
        parts += ["", head, *(Text(f"  {change.key.place}: {moved(change)}") for change in listed)]
    if len(order) > _SHOWN and not style.verbose:
        parts += ["", Text(f"{many(len(order) - _SHOWN, 'more testcase')}; -v shows all", style="dim")]
    reasons = {change.key.testcase: change.reason for change in changed if change.reason}
    parts += [Text(f"{name}: {reason}", style="red") for name, reason in reasons.items()]
    parts += ["", *(Text(text, style="dim") for text in notes(comparison))]
    parts.append(Text(counted(comparison, unreadable), style="bold"))
    return printed(style, *parts, longest=LONGEST_LINE)


def html(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """A page that works offline."""
    from ..reports.html.comparison import sides_page

    del style
    return visible(sides_page(comparison, unreadable))


#: Formats of comparisons, by name.
FORMATS = {"text": render, "json": comparisons.json, "markdown": comparisons.markdown,
           "junit": comparisons.junit, "html": html}  # fmt: skip


#: Characters of a sparkline; its lowest bar stands for this fraction of the highest speed, or less.
_POINTS, _LOWEST = 32, 0.9
#: Maximum number of changes, and of differences of one, without ``-v``.
_MOST, _MOST_DIFFERENCES = 12, 3


def render_of_history(history: MachineHistory, style: Style) -> str:
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
    parts: list[RenderableType] = [head, "", table]
    parts += [Text(f"{day(started)}  {text}", style="cyan") for started, text in history.replaced]
    shown = history.events if style.verbose else history.events[:_MOST]
    for event in shown:
        parts += ["", *_event(history, event, style)]
    if more := len(history.events) - len(shown):
        parts += ["", Text(f"{many(more, 'earlier change')}; -v shows all", style="dim")]
    parts += ["", Text(summary(history), style="bold")]
    return printed(style, *parts)


def _line(history: MachineHistory, kind: KindHistory, style: Style) -> list[Text]:
    scale, unit = fitting(kind.unit, [kind.last])
    events = history.of(kind.kind)
    lasting = next((event for event in events if event.lasts), None)
    said = Text("steady" if not events else "as before", style="green" if not lasting else "")
    if lasting:
        said = Text(f"{change(lasting)} since {day(lasting.since)}{because(lasting)}", style="yellow")
    if kind.failing:
        said.append(f"; below expectations: {many(kind.failing, 'value')}", style="red")
    bars = Text(sparkline(kind.speeds), style="cyan" if style.color else "")
    return [Text(str(kind.kind)), bars, Text(f"{number(kind.last, scale, GLANCE)} {unit}"), said]


def sparkline(speeds: Sequence[float], points: int = _POINTS) -> str:
    """Speeds as bars: the highest is 8/8, the lowest that of 90% or less; blanks without a value."""
    size = max(1, -(-len(speeds) // points))
    parts = [[s for s in speeds[i : i + size] if not isnan(s)] for i in range(0, len(speeds), size)]
    means = [sum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    high = max(known)
    low = min(*known, high * _LOWEST)
    return "".join(
        " " if mean is None else BARS[round((mean - low) / (high - low) * (len(BARS) - 1))] for mean in means
    )


def _event(history: MachineHistory, event: Event, style: Style) -> list[Text]:
    color = "red" if event.lasts else "green" if not event.is_worse else "yellow"
    line = Text(f"{day(event.since)}  " if not event.is_drift else "slowly      ")
    line.append(change(event), style=f"bold {color}")
    line.append(f"  {where(event)}")
    if event.until:
        line.append(f"; as before since {day(event.until)}", style="dim")
    lines = [line]
    named = event.differences[: None if style.verbose else _MOST_DIFFERENCES]
    lines += [Text(f"            then changed: {difference}", style="cyan") for difference in named]
    if more := len(event.differences) - len(named):
        lines.append(Text(f"            {many(more, 'more difference')}; -v shows all", style="dim"))
    if style.verbose:
        keys = [history.past.key(history.past.cells[i]) for i in event.cells]
        lines += [Text(f"            {key.testcase} {key.place}", style="dim") for key in keys]
    return lines


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
            {"kind": kind.kind.name, "value": kind.last, "unit": kind.unit.value, "cells": len(kind.cells),
             "failing": kind.failing,
             "speeds": [None if isnan(speed) else round(speed, 6) for speed in kind.speeds]}
            for kind in history.kinds
        ],
        "changes": [
            picked(
                event, "since until drift change lasts kinds culprits differences cells",
                until=event.until or None, drift=event.is_drift, change=event.ratio - 1,
                kinds=[kind.name for kind in event.kinds], differences=list(map(str, event.differences)),
                cells=[past.key(past.cells[i])._asdict() for i in event.cells],
            )
            for event in history.events
        ],
        "replaced": [{"since": started, "what": text} for started, text in history.replaced],
    }  # fmt: skip


def as_json(history: MachineHistory, style: Style) -> str:
    """The history as JSON."""
    return escaped(json.dumps(data(history), indent=None if not style.verbose else 1)) + "\n"


#: Formats by name.
FORMATS_HISTORY = {"text": render_of_history, "json": as_json}
