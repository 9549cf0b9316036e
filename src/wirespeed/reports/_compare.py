"""Text of ``wirespeed compare``: the cells that changed, the worst first."""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType
from rich.text import Text

from ..results.compare import Change, Comparison, Outcome
from ..units import fitting, many
from . import SIMULATED, Style
from ._console import printed, warnings
from ._grid import number

#: Maximum number of testcases and of differences shown; ``verbose`` shows all.
_SHOWN, _DIFFERENCES = 12, 8
#: Maximum number of reasons why cells were not compared.
_REASONS = 3
_COLORS = {Outcome.LOST: "red", Outcome.WORSE: "red", Outcome.BETTER: "green"}


def render(comparison: Comparison, style: Style) -> str:
    """Render a Comparison as text; ``verbose`` includes every cell that changed."""
    counts = Counter(change.outcome for change in comparison.changes)
    parts: list[RenderableType] = []
    for name, document in (("A", comparison.first), ("B", comparison.second)):
        when = document.started or document.origin
        line = Text(f"{name}: {document.machine.host or document.host or 'unknown host'}, {when}")
        if document.simulated:
            line.append(f" · {SIMULATED}", style="bold magenta")
        parts += [line, *warnings(document)]
        if document.interrupted:
            parts.append(Text(f"run interrupted: {document.interrupted}", style="yellow"))
    shown = comparison.differences[: None if style.verbose else _DIFFERENCES]
    parts += [Text(f"differs: {one}", style="cyan") for one in shown]
    if more := len(comparison.differences) - len(shown):
        parts.append(Text(f"{many(more, 'more difference')}; -v shows all", style="dim"))
    if busy := comparison.those(Outcome.BUSY):
        why = dict.fromkeys(change.reason for change in busy)
        text = f"{many(len(busy), 'cell')} not compared: {', '.join(list(why)[:_REASONS])}"
        parts.append(Text(text + "; --ignore-busy compares them", style="bold yellow"))
    changed = comparison.those(Outcome.LOST, Outcome.WORSE, Outcome.BETTER)
    order: dict[tuple[str, str], list[Change]] = {}
    for change in changed:
        order.setdefault((change.outcome, change.key.testcase), []).append(change)
    for (_, name), changes in list(order.items())[: None if style.verbose else _SHOWN]:
        head = Text(f"{changes[0].outcome:<8}", style=_COLORS[changes[0].outcome])
        head.append(name, style="bold")
        head.append(f"  {len(changes)} cells, worst:" if len(changes) > 1 and not style.verbose else "")
        parts += ["", head, *(Text(f"  {_moved(c)}") for c in (changes if style.verbose else changes[:1]))]
    if len(order) > _SHOWN and not style.verbose:
        parts += ["", Text(f"{many(len(order) - _SHOWN, 'more testcase')}; -v shows all", style="dim")]
    reasons = {change.key.testcase: change.reason for change in changed if change.reason}
    parts += [Text(f"{name}: {reason}", style="red") for name, reason in reasons.items()]
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    told = f"changes of at least {comparison.least:.1%} that exceed both 95 % confidence intervals"
    parts += ["", Text(told, style="dim"), Text(f"cells: {summary}", style="bold")]
    return printed(style, *parts)


def _moved(change: Change) -> str:
    """Return the cell, both values and their relative difference."""
    scale, unit = fitting(change.unit, [v for v in (change.before, change.after) if v])
    before, after = (number(value, scale) if value else "n/a" for value in (change.before, change.after))
    text = f"{change.key.place}: {before} → {after}"
    if change.before and change.after:
        return f"{text} {unit}, {change.after / change.before - 1:+.1%}"
    return f"{text} {unit}"
