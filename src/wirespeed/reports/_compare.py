"""Text of ``wirespeed compare``: the cells that changed, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from ..document import Document
from ..results.attributes import host_of
from ..results.compare import UNCERTAIN, Change, Comparison, Outcome
from ..results.significance import CONFIDENCE, FALSE_CHANGES
from ..units import fitting, many
from . import SIMULATED, Style
from ._console import printed
from ._explanations import explanations
from ._grid import number
from ._many_files import Unreadable

#: Maximum number of testcases and of differences shown; ``verbose`` shows all.
_SHOWN, _DIFFERENCES = 12, 8
#: Maximum number of reasons why cells were not compared, and of hosts named.
_REASONS, _HOSTS = 3, 3
_COLORS = {Outcome.LOST: "red", Outcome.WORSE: "red", Outcome.BETTER: "green"}
#: What changed, the worst first.
CHANGED = (Outcome.LOST, Outcome.WORSE, Outcome.BETTER)


def render(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a Comparison as text; ``verbose`` includes every cell that changed."""
    parts: list[RenderableType] = []
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        line = Text(f"{name}: {side_of(side)}")
        if any(document.simulated for document in side):
            line.append(f" · {SIMULATED}", style="bold magenta")
        parts.append(line)
        parts += [Text(text, style="bold yellow") for text in remarks(side)]
    parts += [Text(f"unreadable: {one}", style="bold red") for one in unreadable]
    parts += [Text(text, style="yellow") for text in pairing(comparison)]
    shown = comparison.differences[: None if style.verbose else _DIFFERENCES]
    parts += [Text(f"differs: {one}", style="cyan") for one in shown]
    if more := len(comparison.differences) - len(shown):
        parts.append(Text(f"{many(more, 'more difference')}; -v shows all", style="dim"))
    if busy := not_compared(comparison):
        parts.append(Text(busy, style="bold yellow"))
    changed = comparison.those(*CHANGED)
    order: dict[tuple[str, str], list[Change]] = {}
    for change in changed:
        order.setdefault((change.outcome, change.key.testcase), []).append(change)
    for (_, name), changes in list(order.items())[: None if style.verbose else _SHOWN]:
        head = Text(f"{changes[0].outcome:<8}", style=_COLORS[changes[0].outcome])
        head.append(name, style="bold")
        head.append(f"  {len(changes)} cells, worst:" if len(changes) > 1 and not style.verbose else "")
        listed = changes if style.verbose else changes[:1]
        parts += ["", head, *(Text(f"  {one.key.place}: {moved(one)}") for one in listed)]
    if len(order) > _SHOWN and not style.verbose:
        parts += ["", Text(f"{many(len(order) - _SHOWN, 'more testcase')}; -v shows all", style="dim")]
    reasons = {change.key.testcase: change.reason for change in changed if change.reason}
    parts += [Text(f"{name}: {reason}", style="red") for name, reason in reasons.items()]
    parts += ["", *(Text(text, style="dim") for text in notes(comparison))]
    parts.append(Text(counted(comparison, unreadable), style="bold"))
    return printed(style, *parts)


def side_of(documents: Sequence[Document]) -> str:
    """Return hosts and times of the runs of a side."""
    hosts = sorted({host_of(document) or "unknown host" for document in documents})
    times = sorted({document.started or document.origin for document in documents})
    if len(documents) == 1:
        return f"{hosts[0]}, {times[0]}"
    more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
    when = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"{len(documents)} runs of {', '.join(hosts[:_HOSTS])}{more}, {when}"


def remarks(documents: Sequence[Document]) -> Iterator[str]:
    """Yield conditions that may explain low values, and interruptions; of several runs with their number."""
    found = Counter(f"warning: {text}" for document in documents for text in explanations(document))
    found.update(f"run interrupted: {one.interrupted}" for one in documents if one.interrupted)
    for text, runs in found.items():
        yield text if len(documents) == 1 else f"{text} ({runs} of {len(documents)} runs)"


def pairing(comparison: Comparison) -> Iterator[str]:
    """Yield which hosts were compared with themselves, and which were not compared."""
    if comparison.hosts:
        yield f"{len(comparison.hosts)} hosts, each compared with itself"
    if comparison.unmatched:
        named = ", ".join(comparison.unmatched[:_HOSTS])
        more = f" and {len(comparison.unmatched) - _HOSTS} more" if len(comparison.unmatched) > _HOSTS else ""
        yield f"not compared, runs on one side only: {named}{more}"


def not_compared(comparison: Comparison) -> str:
    """Return how many cells were not compared, and why; empty for none."""
    busy = comparison.those(Outcome.BUSY)
    if not busy:
        return ""
    why = dict.fromkeys(change.reason for change in busy)
    text = f"{many(len(busy), 'cell')} not compared: {', '.join(list(why)[:_REASONS])}"
    return f"{text}; --ignore-busy compares them"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield what a change is, and what the comparison cannot see."""
    yield (
        f"changes of at least {comparison.least:.1%} that chance does not explain (false: at most "
        f"{FALSE_CHANGES:.0%}); in parentheses {CONFIDENCE:.0%} confidence intervals"
    )
    if comparison.weak:
        yield (
            f"{many(comparison.weak, 'cell')} without rounds: the variation between runs is assumed; "
            "several runs on each side show it"
        )
    if hidden := comparison.uncertain:
        worst = max(hidden, key=lambda one: one.half_width)
        yield (
            f"{many(len(hidden), 'cell')} may hide a change of {UNCERTAIN:.0%} or more "
            f"({worst.key.testcase} ±{worst.half_width:.0%}); compare more runs"
        )


def counted(comparison: Comparison, unreadable: Sequence[Unreadable]) -> str:
    """Return the number of cells with each outcome, and of files that cannot be read."""
    counts = Counter(change.outcome for change in comparison.changes)
    text = "cells: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return text + (f" · {many(len(unreadable), 'file')} unreadable" if unreadable else "")


def moved(change: Change) -> str:
    """Return both values of a cell, their relative difference and its interval, and the number of values."""
    scale, unit = fitting(change.unit, [v for v in (change.before, change.after) if v])
    before, after = (number(value, scale) if value else "n/a" for value in (change.before, change.after))
    text = f"{before} → {after} {unit}"
    if change.before and change.after:
        text += f", {change.ratio - 1:+.1%}"
    if change.interval:
        low, high = (100 * (bound - 1) for bound in change.interval)
        text += f" ({low:+.1f} to {high:+.1f}%)"
    if change.hosts:
        named = ", ".join(f"{one.host} {one.ratio - 1:+.1%}" for one in change.hosts[:_HOSTS])
        more = len(change.hosts) - _HOSTS
        text += f"; only on {named}" + (f" and {many(more, 'more host')}" if more > 0 else "")
    if max(change.runs) > 1:
        text += f", {change.runs[0]} → {change.runs[1]} runs"
    return text
