"""Text of ``wirespeed compare``: the cells that changed, the worst first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from ..reports import SIMULATED, Style
from ..reports.comparison_formats import COMPARISON_FORMATS
from ..reports.comparisons import CHANGED, counted, moved, not_compared, notes, pairing, remarks, side_of
from ..reports.console import MOST_WARNINGS, printed
from ..reports.findings import SIGNS
from ..reports.records import errors_of
from ..results.compare import Change, Comparison, Outcome, Unreadable
from ..terminal import LONGEST_LINE
from ..units import many

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


#: Formats of comparisons, by name.
FORMATS = {"text": render} | COMPARISON_FORMATS
