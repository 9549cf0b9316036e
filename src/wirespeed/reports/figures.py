"""Results as matplotlib figures, without pyplot and its global state."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from functools import cache, partial, singledispatch
from statistics import median
from typing import TYPE_CHECKING, Any

from ..document import Document
from ..errors import MissingPackage
from ..hardware.topology import Machine
from ..judging.block_map import BlockMap
from ..judging.diagnosis import Diagnosis
from ..judging.judged import Judged
from ..judging.verdict import GateComparison
from ..judging.verdicts import Check
from ..measurement import Unit
from ..results.baseline import Baseline
from ..results.compare import Comparison, Outcome
from ..tables import Table
from ..terminal import one_line
from ..units import GB, fitting, format_quantity, format_size, many, parse_rate
from .findings import GLANCE, applicable, number
from .plot import binned, curves_of, outliers_first, scale_of
from .records import Section
from .style import SIMULATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Maximum number of tables that are drawn one by one; more are summarised by testcase.
_MOST_TABLES = 4
#: Maximum number of bars, of labels along an axis of a heat map, and of its rows with numbers.
_MOST_BARS, _MOST_LABELS, _MOST_NUMBERED = 40, 40, 12
#: Width of the only bin of equal samples in a histogram, relative to their value.
_THINNEST = 1e-3
#: Number of bars that a drawing has room for at least.
_FEWEST_BARS = 3
#: Width of a figure and height of one table, in inches; height of a bar.
_WIDTH, _HEIGHT, _BAR_HEIGHT = 8.0, 3.6, 0.26
#: Maximum length of a label, in characters.
_LONGEST = 46
#: Colours that differ for people with colour vision deficiencies, too.
_GOOD, _BAD, _LIMIT = "#1f6fbf", "#c2410c", "#14181f"


def figure(result: object) -> Figure:
    """A figure of a result of a public function.

    Raises:
        MissingPackage: If matplotlib is not installed.
    """
    try:
        drawn: Figure = _shown_in_notebooks()(layout="constrained")
    except ImportError as error:
        raise MissingPackage("figure()", "matplotlib") from error
    drawn.set_size_inches(_WIDTH, _HEIGHT)
    draw(result, drawn)
    return drawn


@cache
def _shown_in_notebooks() -> Any:
    """A class of figures that notebooks show without pyplot."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that a notebook shows as an image."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=80)
            return image.getvalue()

    return ShownFigure


@singledispatch
def draw(result: object, figure: Figure) -> None:
    """Draw a result into an empty figure."""
    raise TypeError(f"no figure of {type(result).__name__}")


@draw.register(Document)
def _(document: Document, figure: Figure) -> None:
    host = document.hostname or document.machine.name
    _draw_tables(Section(host, document.testcases, document=document, simulated=document.simulated), figure)


@draw.register(Section)
def _(section: Section, figure: Figure) -> None:
    _draw_tables(section, figure)


@draw.register(Check)
def _(check: Check, figure: Figure) -> None:
    shares: dict[str, list[tuple[float, bool]]] = {}
    for judgement in check.judgements:
        if judgement.value and judgement.limit and judgement.unit is Unit.RATE:
            share = judgement.value / judgement.limit
            shares.setdefault(judgement.key.testcase, []).append((share, judgement.verdict.is_bad))
    bars = [
        (name, median(share for share, _ in several), any(bad for _, bad in several), min(several)[0])
        for name, several in shares.items()
    ]
    axes = _bars(
        figure, [(name, 100 * value, bad) for name, value, bad, _ in bars], "share of the limit [%]",
        lowest=[100 * least for *_, least in bars],
    )  # fmt: skip
    title = f"Verdict: {check.verdict.word}; median and lowest value of each testcase"
    _titled(axes, title, simulated=check.simulated)


@draw.register(Diagnosis)
def _(diagnosis: Diagnosis, figure: Figure) -> None:
    bars = [
        (
            finding.cause.name + (f", {finding.where}" if finding.where else ""),
            float(finding.cells),
            finding.cells > 0,
        )
        for finding in diagnosis.findings
    ]
    axes = _bars(figure, bars, "slow values that the cause explains", "no cause was found")
    title = f"Causes of {many(diagnosis.slow, 'slow value')}; {diagnosis.unexplained} without a cause"
    _titled(axes, title, simulated=diagnosis.simulated)
    axes.set_xlim(0, max(diagnosis.slow, 1))


@draw.register(GateComparison)
def _(compared: GateComparison, figure: Figure) -> None:
    bars = []
    for result in applicable(compared):
        if result.lowest and result.lowest.value:
            of_gate = 100 * result.lowest.value / parse_rate(result.gate.at_least)
            bars.append((result.gate.measures, of_gate, of_gate < 100))
    axes = _bars(
        figure, bars, "lowest value of the threshold [%]", "no threshold applies to a measured value"
    )
    axes.axvline(100, color=_LIMIT, linestyle=":")
    _titled(axes, f"Thresholds of {compared.gates.name}", simulated=compared.simulated)


@draw.register(Comparison)
def _(comparison: Comparison, figure: Figure) -> None:
    changes: dict[str, list[tuple[float, bool]]] = {}
    for change in comparison.changes:
        if change.before and change.after:
            name = f"{change.key.testcase} {change.key.table}".rstrip()
            changes.setdefault(name, []).append((100 * change.change, change.outcome is Outcome.WORSE))
    bars = [(name, min(several)[0] if min(several)[0] < 0 and any(bad for _, bad in several)
             else median(percent for percent, _ in several), any(bad for _, bad in several))
            for name, several in changes.items()]  # fmt: skip
    axes = _bars(figure, sorted(bars, key=lambda bar: bar[1]), "change [%], positive is better")
    axes.axvline(0, color=_LIMIT, linewidth=0.8)
    title = "Median change of each testcase; the worst where it is significant"
    _titled(axes, title, simulated=comparison.simulated)


@draw.register(Baseline)
def _(baseline: Baseline, figure: Figure) -> None:
    rates: dict[str, list[float]] = {}
    for model, entries in baseline.models.items():
        model_suffix = f" · {model}" if len(baseline.models) > 1 else ""
        for entry in entries:
            if entry.unit is Unit.RATE:
                rates.setdefault(f"{entry.testcase}{model_suffix}", []).append(entry.median / GB)
    bars = [(name, median(medians), False) for name, medians in rates.items()]
    axes = _bars(figure, bars, "baseline [GB/s]")
    _titled(axes, "Median of the baseline by testcase", simulated=baseline.simulated)


@draw.register(BlockMap)
def _(blocks: BlockMap, figure: Figure) -> None:
    if not blocks.paths:
        _empty(_axes(figure, 1), "no block list was measured")
        return
    figure.set_size_inches(_WIDTH * len(blocks.paths), _HEIGHT)
    grid = figure.subplots(1, len(blocks.paths), squeeze=False)
    for path, axes in zip(blocks.paths, grid.flat, strict=True):
        counts = sorted({point.blocks for point in path.points})
        values: list[list[float | None]] = [[None] * len(counts) for _ in path.by_block]
        for row, points in zip(values, path.by_block.values(), strict=True):
            for point in points:
                row[counts.index(point.blocks)] = point.rates[point.best]
        labels = [
            f"{format_size(block)} {'/'.join(dict.fromkeys(point.best for point in points))}"
            for block, points in path.by_block.items()
        ]
        _heat(axes, values, labels, list(map(str, counts)), Unit.RATE, "best rate", logarithmic=True)
        axes.set(xlabel="blocks", ylabel="block size, best methods")
        _titled(axes, path.title, simulated=blocks.simulated)


@draw.register(Machine)
def _(machine: Machine, figure: Figure) -> None:
    ends = list(dict.fromkeys(end for link in machine.links for end in (link.source, link.destination)))
    values: list[list[float | None]] = [[None] * len(ends) for _ in ends]
    for link in machine.links:
        values[ends.index(link.source)][ends.index(link.destination)] = link.capacity
    axes = _axes(figure, len(ends))
    if any(value for row in values for value in row):
        _heat(axes, values, ends, ends, Unit.RATE, "capacity", logarithmic=True)
        axes.set(xlabel="destination", ylabel="source")
    else:
        _empty(axes, "no capacity of a link is known")
    _titled(axes, f"Links of {machine.name}", simulated=machine.simulated)


def _draw_tables(section: Section, figure: Figure) -> None:
    """Draw a few tables one by one; of more tables, the shares of the limit by testcase."""
    parts = [(result, table) for result in section.results for table in result.tables if table.values()]
    document, simulated = section.document, section.simulated
    limited = any(cell.limit for _, table in parts for cell in table.cells)
    if len(parts) > _MOST_TABLES and limited and document is not None:
        draw(Judged(document).check, figure)
        axes = figure.axes[0]
        axes.set_title(f"{_text(section.title)}: {axes.get_title()}", fontsize="medium")
        return
    drawn = parts[:_MOST_TABLES]
    left_out = f"; {len(drawn)} of {many(len(parts), 'table')}" if len(drawn) < len(parts) else ""
    note = f" · {SIMULATED}" if simulated else ""
    figure.suptitle(_text(f"{section.title}{left_out}", 90) + note, fontsize="medium")
    if not drawn:
        _empty(figure.subplots(), "nothing was measured")
        return
    columns = min(2, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure.set_size_inches(_WIDTH if columns == 1 else 1.5 * _WIDTH, _HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(drawn) :]:
        axes.remove()
    for (result, table), axes in zip(drawn, grid.flat, strict=False):
        if len(drawn) > 1 or result.name not in section.title:
            axes.set_title(_text(result.key(table)), fontsize="medium")
        draw_table(axes, table)


def draw_table(axes: Axes, table: Table) -> None:
    """Draw a table with a value: curves, a histogram of the samples of its only cell, bars or a heat map."""
    from matplotlib.ticker import MaxNLocator

    cells = [cell for cell in table.cells if cell.value is not None]
    vector = min(len(table.rows.labels), len(table.columns.labels)) == 1
    if table.is_curve and len(table.columns.labels) > 1:
        _curves(axes, table)
    elif len(table.cells) == 1 and len(cells[0].samples) > 1:
        scale, unit = fitting(table.unit, cells[0].samples)
        for low, high, count in binned([sample / scale for sample in cells[0].samples]):
            axes.bar(low, count, max(high - low, low * _THINNEST), align="edge", color=_GOOD)
        axes.axvline((cells[0].value or 0.0) / scale, color=_LIMIT, linestyle=":", label="value")
        axes.set(xlabel=f"{_unit_of(table.unit)} [{unit}]", ylabel="samples")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    elif vector:
        _vector(axes, table)
    else:
        grid = [[cell.value if cell else None for cell in row] for row in table.grid()]
        _heat(axes, grid, table.rows.labels, table.columns.labels, table.unit, _unit_of(table.unit))
        axes.set(xlabel=_text(table.columns.name), ylabel=_text(table.rows.name))


def _unit_of(unit: Unit) -> str:
    return {Unit.RATE: "bandwidth", Unit.TIME: "time", Unit.FREQUENCY: "messages"}[unit]


def _vector(axes: Axes, table: Table) -> None:
    """Draw a table of one row or column as bars, with the limits as marks."""
    scale, unit = fitting(table.unit, table.values())
    across = len(table.rows.labels) == 1 < len(table.columns.labels)
    axis = table.columns if across else table.rows
    cells = [cell for cell in table.cells if cell.value is not None]
    bars = [(axis.labels[cell.column if across else cell.row], (cell.value or 0.0) / scale, cell.is_wrong)
            for cell in cells]  # fmt: skip
    limits = [(cell.limit or math.nan) / scale for cell in cells]
    _draw_bars(axes, bars, f"{_unit_of(table.unit)} [{unit}]")
    if any(cell.limit for cell in cells):
        _marks(axes, limits, "limit of the links")


def _curves(axes: Axes, table: Table) -> None:
    """Draw the rows of a table as curves, with the confidence intervals of the values."""
    curves = curves_of(table)
    scale, unit = fitting(table.unit, [y for curve in curves for y in curve.ys])
    axis, interval_of = table.columns, {(cell.row, cell.column): cell.interval for cell in table.cells}
    shown, others = outliers_first(curves)
    for i, curve in enumerate(others):
        label = f"{len(others)} other{'s' * (len(others) > 1)}" if not i else None
        axes.plot(curve.xs, [y / scale for y in curve.ys], color="0.7", zorder=1, label=label)
    for curve in shown:
        ys = [y / scale for y in curve.ys]
        row = table.rows.labels.index(curve.name)
        intervals = [interval_of[row, axis.values.index(x)] for x in curve.xs]
        points = list(zip(ys, intervals, strict=True))
        low = [max(0.0, y - interval[0] / scale) if interval else 0.0 for y, interval in points]
        high = [max(0.0, interval[1] / scale - y) if interval else 0.0 for y, interval in points]
        label = _text(curve.label)
        axes.errorbar(curve.xs, ys, [low, high], marker="o", markersize=3, capsize=2, label=label)
    xs = sorted({x for curve in curves for x in curve.xs})
    if xs[0] > 0 and xs[-1] / xs[0] >= 16:
        axes.set_xscale("log", base=2)
    ticks = xs[:: max(1, math.ceil(len(xs) / 7))]
    axes.set_xticks(ticks, [format_quantity(x, axis.unit) for x in ticks])
    axes.minorticks_off()
    if table.unit is Unit.TIME:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if table.unit is Unit.RATE:
        x, y = max(((x, y) for curve in curves for x, y in zip(curve.xs, curve.ys, strict=True)),
                   key=lambda point: point[1])  # fmt: skip
        peak = f"peak: {number(y, scale, GLANCE)} {unit} at {format_quantity(x, axis.unit)}"
        axes.plot([x], [y / scale], "o", fillstyle="none", markersize=9, color=_LIMIT, label=peak)
    axes.set(xlabel=_text(axis.name), ylabel=f"{_unit_of(table.unit)} [{unit}]")
    axes.legend(fontsize="small")


def _heat(
    axes: Axes, values: Sequence[Sequence[float | None]], rows: Sequence[str], columns: Sequence[str],
    unit: Unit, quantity: str, *, logarithmic: bool = False,
) -> None:  # fmt: skip
    """Draw a heat map, with numbers if it is small."""
    from matplotlib.colors import LogNorm, Normalize

    known = [value for row in values for value in row if value is not None and (value or not logarithmic)]
    scale, name = fitting(unit, known)
    span = scale_of(known)
    low, high = span.low / scale, span.high / scale
    norm = LogNorm(low, high) if logarithmic and low < high else Normalize(low, max(high, low * 1.001))
    drawn = [[math.nan if value is None else value / scale for value in row] for row in values]
    image = axes.imshow(drawn, norm=norm, cmap="viridis", aspect="auto", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label=f"{quantity} [{name}]")
    for set_ticks, labels in ((axes.set_xticks, columns), (axes.set_yticks, rows)):
        step = max(1, math.ceil(len(labels) / _MOST_LABELS))
        set_ticks(range(0, len(labels), step), [_text(label, 24) for label in labels[::step]])
    if max(map(len, columns), default=0) * len(columns) > 50:
        axes.tick_params(axis="x", rotation=90)
    if max(len(rows), len(columns)) <= _MOST_NUMBERED:
        for i, row in enumerate(drawn):
            for j, value in enumerate(row):
                if not math.isnan(value):
                    color = "black" if norm(value) > 0.6 else "white"
                    axes.text(
                        j,
                        i,
                        number(value, digits=GLANCE),
                        ha="center",
                        va="center",
                        color=color,
                        fontsize="small",
                    )


def _bars(
    figure: Figure, bars: Sequence[tuple[str, float, bool]], axis: str, empty: str = "nothing was measured",
    lowest: Sequence[float] = (),
) -> Axes:  # fmt: skip
    """Draw bars (label, value, whether it is worse than expected) up to a maximum number."""
    axes = _axes(figure, min(len(bars), _MOST_BARS))
    if not bars:
        _empty(axes, empty)
        return axes
    _draw_bars(axes, bars[:_MOST_BARS], axis)
    if lowest:
        _marks(axes, lowest[:_MOST_BARS], "lowest value")
    if len(bars) > _MOST_BARS:
        axes.set_xlabel(f"{axis}; the first {_MOST_BARS} of {len(bars)}")
    return axes


def _axes(figure: Figure, rows: int) -> Axes:
    """The only axes of a figure, which is high enough for some rows."""
    figure.set_size_inches(_WIDTH, max(_HEIGHT / 2, 1.2 + rows * _BAR_HEIGHT))
    axes: Axes = figure.subplots()
    return axes


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, float, bool]], axis: str) -> None:
    """Draw horizontal bars, from the top; those worse than expected have another colour and a sign."""
    labels = [f"{'✖ ' if bad else ''}{_text(label)}" for label, _, bad in bars]
    colors = [_BAD if bad else _GOOD for *_, bad in bars]
    drawn = axes.barh(range(len(bars)), [value for _, value, _ in bars], color=colors)
    axes.bar_label(drawn, fmt=partial(number, digits=GLANCE), padding=3, fontsize="small")
    axes.set_yticks(range(len(bars)), labels, fontsize="small")
    axes.set_ylim(max(len(bars), _FEWEST_BARS) - 0.5, -0.5)  # from the top, and none is too thick
    axes.margins(x=0.12)
    axes.set_xlabel(axis)


def _marks(axes: Axes, places: Iterable[float], label: str) -> None:
    """Mark a place at each bar; the label of the axis says what the marks are."""
    positions = list(places)
    axes.plot(positions, range(len(positions)), "|", color=_LIMIT, markersize=11, markeredgewidth=2)
    axes.set_xlabel(f"{axes.get_xlabel()}; |: {label}")


def _empty(axes: Axes, why: str) -> None:
    """Show a text in place of a drawing."""
    axes.axis("off")
    axes.text(0.5, 0.5, why, ha="center", va="center")


def _titled(axes: Axes, title: str, *, simulated: bool) -> None:
    """Set the title, which says whether no hardware was measured."""
    text = _text(title, 90)
    axes.set_title(f"{text}\n{SIMULATED}" if simulated else text, fontsize="medium")


def _text(text: str, most: int = _LONGEST) -> str:
    """A text without control characters and formulas, cut to a length."""
    line = one_line(text)
    return (line if len(line) <= most else f"{line[: most - 1]}…").replace("$", r"\$")
