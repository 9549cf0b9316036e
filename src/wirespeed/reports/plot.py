"""Plots for a terminal: curves, heat maps, histograms, legible at 80 columns and without colour. Of many
curves, those that differ from the others are shown by name.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from statistics import fmean, median

from rich.console import RenderableType
from rich.text import Text

from ..judging.judged import Judged
from ..measurement import Axis, Unit
from ..statistics import grouped
from ..tables import Table
from ..units import fitting, format_quantity, many
from .console import heading, printed, warnings
from .explanations import explanations
from .looks import SIGNS
from .style import Style
from .table import headed
from .testcase_texts import closing
from .values import GLANCE, number

#: Maximum number of distinguishable curves in one plot.
MOST_CURVES = 6
#: A curve is an outlier if it differs from the median of all by more than this, on average.
_OUTLIER = 0.05


@dataclass(frozen=True)
class Curve:
    """A curve: values over a quantity, in base units.

    Attributes:
        name: What was measured, e.g. a device.
        xs: Positions, in the unit of the axis.
        ys: Values, in base units.
        apart: Mean difference from the median of all curves, relative to it; 0 unless the curve is an
            outlier.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    apart: float = 0.0

    @property
    def label(self) -> str:
        """Name, and how far an outlier is from the others."""
        return f"{self.name} ({self.apart:+.0%} from median)" if self.apart else self.name


def curves_of(table: Table) -> list[Curve]:
    """The rows of a table as curves, without missing values."""
    curves = []
    for name, row in zip(table.rows.labels, table.grid(), strict=True):
        points = [
            (x, cell.value)
            for x, cell in zip(table.columns.values, row, strict=True)
            if cell is not None and cell.value is not None
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            curves.append(Curve(name, xs, ys))
    return curves


def outliers_first(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Choose the curves to tell apart in one plot.

    Args:
        curves: All curves of the plot.

    Returns:
        At most ``MOST_CURVES`` curves, and the others. If there are others, the first curves are those that
        differ most from the median of all.
    """
    if len(curves) <= MOST_CURVES:
        return list(curves), []
    values = grouped(point for curve in curves for point in zip(curve.xs, curve.ys, strict=True))
    normal = {x: median(ys) for x, ys in values.items()}
    sized = []
    for curve in curves:
        pairs = [(y, normal[x]) for x, y in zip(curve.xs, curve.ys, strict=True)]
        differences = [(y - usual) / abs(usual) if usual else float(y != 0) for y, usual in pairs]
        apart = fmean(differences)
        size = fmean(map(abs, differences))
        sized.append((size, replace(curve, apart=apart if size > _OUTLIER else 0.0)))
    outliers = sorted((pair for pair in sized if pair[0] > _OUTLIER), key=lambda pair: -pair[0])
    others = (pair for pair in sized if pair[0] <= _OUTLIER)
    ordered = [curve for _, curve in (*outliers, *others)]
    return ordered[:MOST_CURVES], ordered[MOST_CURVES:]


#: The function from a value to its position on an axis.
_Place = Callable[[float], float]
_HEIGHT = 16
#: Maximum number of bins of a histogram.
_BINS = 12
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_LETTERS = "ABCDEF"
_PEAK = "●"
#: Ramps from low to high for terminals without colour: without a value, and next to one.
SHADES, BARS = "░▒▓█", "▁▂▃▄▅▆▇█"
_DOUBLED = "".join(sign * 2 for sign in SHADES)
#: The same ramp in the 256 colours (dark to light), and the text colours on it.
_RAMP = (
    (17, 15), (18, 15), (19, 15), (25, 15), (24, 15), (30, 15), (29, 15), (35, 16), (71, 16), (107, 16),
    (143, 16), (179, 16), (185, 16), (228, 16),
)  # fmt: skip
#: A heat map's scale starts at or below this fraction of its top, so that noise does not look like a fault.
_SCALE_FROM = 0.8


def plot(curves: Sequence[Curve], axis: Axis, unit: Unit, width: int = 80) -> list[Text]:
    """Plot curves. The x axis is logarithmic where the values span decades.

    Rates: the highest value is marked and named. Times: the y axis is logarithmic too, and the heading
    gives the range.

    Args:
        curves: The curves; at most ``MOST_CURVES`` are drawn, first those that differ from the others.
        axis: The quantity along the x axis.
        unit: Unit of the values.
        width: Width in characters.

    Returns:
        The lines of the plot.
    """
    if not curves:
        return [Text("no value was measured")]
    shown, others = outliers_first(curves)
    scale, name = fitting(unit, [y for curve in shown for y in curve.ys])
    points = ((y, x) for curve in shown for x, y in zip(curve.xs, curve.ys, strict=True))
    best = max(points, key=lambda point: point[0])
    if unit is Unit.RATE:
        where = f"{axis.name} = {format_quantity(best[1], axis.unit)}"
        heading = f"Peak: {number(best[0], scale, GLANCE)} {name} ({where})"
    else:
        least = min(min(curve.ys) for curve in shown)
        heading = f"from {number(least, scale, GLANCE)} to {number(best[0], scale, GLANCE)} {name}"
    scaled = [replace(curve, ys=tuple(y / scale for y in curve.ys)) for curve in shown]
    lines = _canvas(scaled, axis, unit, width)
    result = [Text(heading.center(width).rstrip(), style="bold")]
    result += [_colored(line, len(shown)) for line in lines]
    if len(shown) > 1:
        marks = zip(_LETTERS, _COLORS, shown, strict=False)
        entries = [Text(mark, f"bold {color}") + Text(f" {curve.label}") for mark, color, curve in marks]
        result.append(Text("  ").join(entries))
    if others:
        text = f"{many(len(others), 'more curve')}, not drawn: see the table and CSV formats"
        result.append(Text(text, style="dim"))
    return result


def _canvas(curves: Sequence[Curve], axis: Axis, unit: Unit, width: int) -> list[str]:
    """Draw with plotext. The ticks are computed here: plotext knows neither sizes nor powers of two."""
    import plotext

    xs = sorted({x for curve in curves for x in curve.xs})
    ys = [y for curve in curves for y in curve.ys]
    place_x: _Place = math.log2 if min(xs) > 0 and max(xs) / min(xs) >= 16 else float
    place_y: _Place = math.log2 if unit is Unit.TIME and min(ys) > 0 else float
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, _HEIGHT)
    peak = max(ys)
    for i, curve in enumerate(curves):
        places = [place_x(x) for x in curve.xs], [place_y(y) for y in curve.ys]
        figure.draw(figure.signal(*places, marker="braille").lines())
        if len(curves) > 1:
            figure.draw(figure.signal(*places, marker=_LETTERS[i]))
        elif unit is Unit.RATE:
            at = curve.ys.index(peak)
            figure.draw(figure.signal([places[0][at]], [places[1][at]], marker=_PEAK))
    ticks = _ticks(xs, place_x, width)
    figure.ruler("x").ticks([place_x(x) for x in ticks], [format_quantity(x, axis.unit) for x in ticks])
    marks = levels(min(ys), peak) if unit is Unit.TIME and min(ys) > 0 else steps(peak)
    figure.ruler("y").ticks([place_y(y) for y in marks], [f"{y:g}" for y in marks])
    figure.ruler("y").lim(place_y(marks[0]), place_y(max(marks[-1], peak)))
    figure.label(axis.name, axis="x")
    with redirect_stderr(io.StringIO()):  # its remarks about ticks, with escape sequences
        text: str = figure.build().string(colorless=True)
    figure.clear()
    return [line.rstrip() for line in text.splitlines()]


#: Columns of a label on the x axis, with the blanks around it.
_LABEL = 11


def _ticks(xs: list[float], place: _Place, width: int) -> list[float]:
    """The values whose labels fit, starting from the last; the first one only if it fits too."""
    first, last = place(xs[0]), place(xs[-1])
    columns = {x: (place(x) - first) / ((last - first) or 1) * (width - _LABEL) for x in xs}
    chosen = [xs[-1]]
    for x in reversed(xs[:-1]):
        beginning = x == xs[0] or columns[x] >= _LABEL
        if beginning and columns[chosen[-1]] - columns[x] >= _LABEL:
            chosen.append(x)
    return chosen[::-1]


def steps(top: float) -> list[float]:
    """Round levels from 0 to just above the top.

    Args:
        top: Highest value, in the display unit.

    Returns:
        Levels in ascending order.
    """
    if top <= 0:
        return [0.0, 1.0]
    raw = top / 4
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [i * step for i in range(math.ceil(top / step) + 1)]


def levels(low: float, high: float) -> list[float]:
    """The levels 1, 2, 5, 10, ... around a range; only powers of ten for a wide range.

    Args:
        low, high: Ends of the range, above 0, in the display unit.

    Returns:
        Levels in ascending order, for a logarithmic axis.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    candidates = [m * 10.0**e for e in range(first, last + 1) for m in factors]
    bottom = max((level for level in candidates if level <= low), default=low)
    top = min((level for level in candidates if level >= high), default=high)
    return [level for level in candidates if bottom <= level <= top]


def _colored(line: str, curves: int) -> Text:
    """Colour the curve and its mark, but neither the frame nor the labels."""
    text = Text(line)
    begin, end = line.find("┤" if "┤" in line else "│"), line.rfind("│")
    if end <= begin or begin < 0:
        return text
    for i in range(begin + 1, end):
        if "⠀" < line[i] <= "⣿":
            text.stylize("cyan" if curves == 1 else "dim", i, i + 1)
        elif line[i] == _PEAK:
            text.stylize("bold red", i, i + 1)
        elif curves > 1 and line[i] in _LETTERS:
            text.stylize(f"bold {_COLORS[_LETTERS.index(line[i])]}", i, i + 1)
    return text


@dataclass(frozen=True)
class Scale:
    """Maps values to steps.

    Attributes:
        low, high: Ends of the scale, in base units.
    """

    low: float
    high: float

    def step(self, value: float, steps: int) -> int:
        """The index of a value among equal steps."""
        span = self.high - self.low
        position = max(0.0, (value - self.low) / span) if span > 0 else 1.0
        return min(steps - 1, int(position * steps))


def heat_map(table: Table, width: int, *, color: bool) -> list[Text]:
    """A matrix as a heat map: values in the cells if they fit, else one character per cell.

    Args:
        table: The matrix.
        width: Width in characters; the columns are split into several pieces if they do not fit.
        color: Whether to colour the cells; otherwise a character next to a value shows its size.

    Returns:
        The lines of the map, with its scale.
    """
    known, rows, columns = table.values(), table.rows.labels, table.columns.labels
    if not known:
        return [Text("no value was measured")]
    divisor, name = fitting(table.unit, known)
    high = max(known)
    scale = Scale(min(*known, _SCALE_FROM * high), high)
    values = [[cell.value if cell else None for cell in row] for row in table.grid()]
    texts = [["-" if v is None else number(v, divisor, GLANCE) for v in row] for row in values]
    longest = max((len(text) for row in texts for text in row), default=1)
    cell_width = max(longest + 1 + (not color), *(len(column) + 1 for column in columns))
    label_width = max(len(name), *(len(row) for row in rows)) + 1
    fits = label_width + cell_width * len(columns) <= width
    signs = BARS if fits else SHADES

    def written(value: float | None, text: str) -> tuple[tuple[str, str], ...]:
        """The parts of a cell with their styles."""
        if value is None:
            return ((f"{text + ' ' * (not color):>{cell_width}}" if fits else "·", "dim"),)
        if color:
            background, foreground = _RAMP[scale.step(value, len(_RAMP))]
            look = f"color({foreground}) on color({background})"
            return ((" ", ""), (f"{text:>{cell_width - 1}}", look)) if fits else ((" ", look),)
        sign = signs[scale.step(value, len(signs))]
        return ((f"{text + sign:>{cell_width}}" if fits else sign, "default"),)

    lines = []
    at_once = len(columns) if fits else max(1, width - label_width)
    for start in range(0, len(columns), at_once):
        chosen = range(start, min(start + at_once, len(columns)))
        above = "".join(f"{label:>{cell_width}}" for label in columns) if fits else _ruler(columns, chosen)
        lines.append(Text(" " * label_width + above, style="dim"))
        for label, row, of_row in zip(rows, values, texts, strict=True):
            cells = (part for j in chosen for part in written(row[j], of_row[j]))
            lines.append(Text.assemble((f"{label:<{label_width}}", "dim"), *cells))
    if fits:
        lines[0] = Text(name, style="dim") + lines[0][len(name) :]
    return [*lines, _legend(scale, divisor, name, "" if color else signs if fits else _DOUBLED)]


def _ruler(columns: Sequence[str], chosen: range) -> str:
    """Label every tenth column, so that you can find a cell."""
    text = ""
    for j in chosen:
        if j % 10 == 0 and len(text) <= j - chosen.start:
            text = text.ljust(j - chosen.start) + columns[j][:9]
    return text[: len(chosen)]


def _legend(scale: Scale, divisor: float, name: str, signs: str) -> Text:
    low, high = number(scale.low, divisor, GLANCE), number(scale.high, divisor, GLANCE)
    line = Text.assemble((f"{low} ", "dim"))
    line.append(signs, style="default")
    for background, _ in () if signs else _RAMP:
        line.append("  ", style=f"on color({background})")
    line.append(f" {high} {name}", style="dim")
    return line


def histogram(samples: Sequence[float], unit: Unit, width: int = 80) -> list[Text]:
    """The distribution of samples as bars, one line for each range of values.

    Args:
        samples: At least one sample, in base units.
        unit: Unit of the samples.
        width: Width in characters.

    Returns:
        The lines.
    """
    divisor, name = fitting(unit, samples)
    lines = []
    counted = list(binned(samples))
    most = max((count for *_, count in counted), default=1)
    labels = [f"{low / divisor:.2f} to {high / divisor:.2f} {name}" for low, high, _ in counted]
    room = max(4, min(40, width - max(map(len, labels), default=0) - 8))
    for label, (*_, count) in zip(labels, counted, strict=True):
        line = Text.assemble((f"{label:>{max(map(len, labels))}} ", "dim"))
        line.append("█" * round(count / most * room) or ("▏" if count else ""), style="cyan")
        line.append(f" {count}" if count else "", style="default")
        lines.append(line)
    return lines


def binned(samples: Sequence[float]) -> Iterator[tuple[float, float, int]]:
    """Equal ranges from the smallest to the largest sample: begin, end, number of samples.

    Args:
        samples: At least one sample.

    Returns:
        The ranges in ascending order.
    """
    low, high = min(samples), max(samples)
    if low == high:
        yield low, high, len(samples)
        return
    bins = min(_BINS, max(2, len(samples)))
    counts = [0] * bins
    for sample in samples:
        counts[min(bins - 1, int((sample - low) / (high - low) * bins))] += 1
    step = (high - low) / bins
    for i, count in enumerate(counts):
        yield low + i * step, low + (i + 1) * step, count


def render(judged: Judged, style: Style) -> str:
    """Render all measured tables as plots; ``verbose`` adds the waived testcases with their reasons."""
    document, check = judged.document, judged.check
    noted = explanations(document, lacking=check.missing)
    parts: list[RenderableType] = [heading(document), *warnings(noted, style)]
    for result in document.testcases:
        tables = [table for table in result.tables if any(cell.value is not None for cell in table.cells)]
        if not tables:
            if style.verbose or not result.status.good:
                parts += ["", headed(result, judged).append(f": {result.reason}", style="dim")]
            continue
        why = f": {result.reason}" if result.reason else ""
        parts += ["", headed(result, judged).append(why, style="red")]
        counts = f"; counts {result.counts}" if result.counts else ""
        parts.append(Text(result.description + counts, style="dim"))
        for table in tables:
            if len(tables) > 1:
                parts.append(Text(table.title, style="italic"))
            parts += drawn(table, style)
    parts += ["", Text(closing(document, check), style=SIGNS[check.verdict].style)]
    return printed(style, *parts)


def drawn(table: Table, style: Style) -> list[Text]:
    """A table as curves or a heat map."""
    width = max(40, style.width)
    if table.is_curve:
        return plot(curves_of(table), table.columns, table.unit, width)
    return heat_map(table, width, color=style.color)
