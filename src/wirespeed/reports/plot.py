"""Plots for a terminal: curves, and matrices as heat maps."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from ..judging.judged import Judged
from ..tables import Table
from .console import heading, printed, warnings
from .findings import SIGNS, closing, explanations
from .plots import curves_of, heat_map, plot
from .style import SIMULATED, Style
from .table import headed


def render(judged: Judged, style: Style) -> str:
    """Render all measured tables as plots; ``verbose`` adds the waived testcases with their reasons."""
    document, check = judged.document, judged.check
    noted = explanations(document, lacking=check.missing)
    parts: list[RenderableType] = [heading(document), *warnings(noted, style)]
    for result in document.testcases:
        tables = [table for table in result.tables if any(cell.value is not None for cell in table.cells)]
        if not tables:
            if style.verbose or not result.status.good:
                parts += ["", headed(result, document, check).append(f": {result.reason}", style="dim")]
            continue
        why = f": {result.reason}" if result.reason else ""
        parts += ["", headed(result, document, check).append(why, style="red")]
        counts = f"; counts {result.counts}" if result.counts else ""
        parts.append(Text(result.description + counts, style="dim"))
        for table in tables:
            if len(tables) > 1:
                parts.append(Text(table.title, style="italic"))
            parts += drawn(table, style)
    parts += ["", Text(closing(document, check), style=SIGNS[check.verdict].style)]
    if document.simulated:
        parts.append(Text(SIMULATED, style="bold magenta"))
    return printed(style, *parts)


def drawn(table: Table, style: Style) -> list[Text]:
    """A table as curves or a heat map."""
    width = max(40, style.width)
    if table.is_curve:
        return plot(curves_of(table), table.columns, table.unit, width)
    values = [[cell.value if cell else None for cell in row] for row in table.grid()]
    return heat_map(values, table.rows.labels, table.columns.labels, table.unit, width, color=style.color)
