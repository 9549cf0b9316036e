"""Charts as SVG elements, whose text the XML library escapes: colours of values, and curves. Values are
neutral where they are as expected, warm and dark below, cool above. An axis is logarithmic where values span
decades; the peak is marked, limits are dotted.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...judging.verdict import Judgement, Verdict
from ...measurement import Axis, Unit
from ...results.cells import Key
from ...statistics import grouped, median
from ...tables import Cell, Table
from ...terminal import one_line
from ...units import fitting, format_quantity, many
from ..plot import Curve, curves_of, levels, outliers_first, steps
from ..values import GLANCE, number

if TYPE_CHECKING:
    from markupsafe import Markup

Element = ET.Element
#: Approximate width of a letter of 11 or 12 pixels.
LETTER = 6.4
#: Pixels of a chart per em of the page.
_EM = 14.0


def drawing(width: float, height: float, title: str, css: str = "") -> Element:
    """An empty chart that scales with the page's font size; the title serves screen readers.

    Args:
        width, height: Size in pixels.
        title: Description of the content.
        css: CSS class; empty for none.

    Returns:
        The chart.
    """
    size = {} if css == "machine" else {"width": f"{width / _EM:.1f}em"}
    svg = Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", **size, "role": "img"})
    if css:
        svg.set("class", css)
    ET.SubElement(svg, "title").text = one_line(title)
    return svg


def add(to: Element, name: str, css: str = "", text: str = "", **attributes: float | str) -> Element:
    """Add an element; numbers are rounded to visible precision.

    Args:
        to: The parent.
        name: Name of the element.
        css: CSS class; empty for none.
        text: Text inside; empty for none.
        **attributes: Attributes; ``_`` in a name stands for ``-``.

    Returns:
        The new element.
    """
    texts = {key.replace("_", "-"): _plain(value) for key, value in attributes.items()}
    element = ET.SubElement(to, name, texts)
    if css:
        element.set("class", css)
    if text:
        element.text = one_line(text)
    return element


def _plain(value: float | str) -> str:
    """A number with at most one decimal place; a text as it is."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def markup(svg: Element) -> Markup:
    """The chart as markup that a template does not escape."""
    from markupsafe import Markup

    return Markup(ET.tostring(svg, encoding="unicode", short_empty_elements=False))


def fitted(text: str, width: float) -> str:
    """Cut a text to a width in pixels.

    Args:
        text: Any text.
        width: Width in pixels.

    Returns:
        At least two letters; an ellipsis stands for the rest.
    """
    text, most = one_line(text), max(2, int(width / LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"


#: Verdicts by the location of their cell.
Judgements = Mapping[Key, Judgement]
#: CSS class of each step, and its lowest speed relative to what is expected.
STEPS = (("w4", 0.0), ("w3", 0.55), ("w2", 0.75), ("w1", 0.9), ("n", 0.95), ("c1", 1.05), ("c2", 1.15))
_CLASSES = [css for css, _ in STEPS]
#: The slowest and the fastest step that a verdict allows.
_AT_MOST = {Verdict.FAIL: "w2", Verdict.WARN: "w1"}
#: Minimum number of values that are not judged from which one may stand out.
_MANY = 12
#: With fewer values, colours would compare a value with itself.
_FEW = 2


def step(speed: float, verdict: Verdict = Verdict.PASS) -> str:
    """The CSS class of a speed relative to what is expected, and of a verdict on it.

    Args:
        speed: 1.0 is what is expected; 0.5 is half the rate, or twice the time.
        verdict: The verdict; a bad value is never neutral.

    Returns:
        A class of ``STEPS``.
    """
    index = max(i for i, (_, least) in enumerate(STEPS) if speed >= least)
    if verdict is Verdict.IMPLAUSIBLE:
        return _CLASSES[-1]
    if verdict in _AT_MOST:
        index = min(index, _CLASSES.index(_AT_MOST[verdict]))
    return _CLASSES[index]


@dataclass(frozen=True)
class ColorScale:
    """What the colours of comparable values are relative to.

    Attributes:
        unit: Unit of the values.
        center: Typical speed of the values that pass, relative to the typical value of their expected ranges.
        middle: Median of the values that are not judged; None if they are too few to compare.
        colored: Whether there are enough values for colours at all.
    """

    unit: Unit
    center: float = 1.0
    middle: float | None = None
    colored: bool = True

    @classmethod
    def of(cls, unit: Unit, values: Sequence[tuple[Cell, Judgement | None]]) -> ColorScale:
        """Find what is expected of some comparable cells.

        Args:
            unit: Unit of the values.
            values: The cells with their verdicts.
        """
        passed, others = [], []
        known = [(cell.value, judgement) for cell, judgement in values if cell.value]
        for value, judgement in known:
            if judgement and judgement.normal and judgement.verdict is Verdict.PASS:
                passed.append(_speed(unit, value, judgement.normal))
            elif judgement is None or judgement.verdict is Verdict.NOT_JUDGED:
                others.append(value)
        return cls(
            unit,
            median(sorted(passed)) if passed else 1.0,
            median(sorted(others)) if len(others) >= _MANY else None,
            len(known) > _FEW,
        )

    def css(self, value: float, judgement: Judgement | None) -> str:
        """The CSS class of a value; empty without colour.

        Args:
            value: A value in base units.
            judgement: The verdict on it.
        """
        if not self.colored or not value:
            return ""
        verdict = judgement.verdict if judgement else Verdict.NOT_JUDGED
        if judgement and judgement.normal:
            verdict = Verdict.IMPLAUSIBLE if judgement.is_above else verdict
            return step(_speed(self.unit, value, judgement.normal) / self.center, verdict)
        if verdict is Verdict.NOT_JUDGED and self.middle:
            return step(_speed(self.unit, value, self.middle))
        return ""


def _speed(unit: Unit, value: float, expected: float) -> float:
    """A value relative to an expected one, as a speed."""
    return value / expected if unit.more_is_better else expected / value


_WIDTH, _HEIGHT = 480.0, 260.0
_LEFT, _TOP, _BOTTOM = 52.0, 28.0, 46.0
#: Maximum width of the names at the ends of curves, in pixels.
_NAMES = 186.0


@dataclass(frozen=True)
class Frame:
    """Maps values to positions in a chart, in pixels.

    Attributes:
        x, y: Position of a value along each axis.
        left, right: Edges of the area of the curves.
    """

    x: Callable[[float], float]
    y: Callable[[float], float]
    left: float
    right: float


def curve_chart(table: Table) -> Element | None:
    """The rows of a table as curves over its columns; None if nothing was measured."""
    curves = curves_of(table)
    if not curves:
        return None
    scale, unit = fitting(table.unit, [y for curve in curves for y in curve.ys])
    shown = [Curve(c.name, c.xs, tuple(y / scale for y in c.ys)) for c in curves]
    rate = table.unit is Unit.RATE
    best = max(((y, x, c.name) for c in shown for x, y in zip(c.xs, c.ys, strict=True)), key=lambda p: p[0])
    where = format_quantity(best[1], table.columns.unit)
    title = f"{table.title}: {many(len(shown), 'curve')} over {table.columns.name}"
    title += f", peak {number(best[0], digits=GLANCE)} {unit} at {where}" if rate else ""
    limits = [(x, y / scale) for x, y in _limits(table)] if rate else []
    highest = max((y for _, y in limits), default=0.0)
    if highest > 2 * best[0]:  # the limit would compress the curves at the bottom
        limits, highest = [], 0.0
    axis = table.columns
    svg, frame = _framed(shown, title, axis, unit, max(highest, best[0]), logarithmic=not rate)
    if limits:
        points = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in limits)
        add(add(svg, "polyline", "limit", points=points), "title", text="limit of the links")
        add(svg, "text", "tick end", "limit", x=frame.right, y=frame.y(limits[-1][1]) - 3)
    draw_curves(svg, shown, frame)
    if rate:
        x, y = frame.x(best[1]), frame.y(best[0])
        add(svg, "circle", "peak", cx=x, cy=y, r=5)
        text = f"Peak: {number(best[0], digits=GLANCE)} {unit} ({table.columns.name} = {where})"
        add(svg, "text", "peak-text", text, x=frame.left, y=15)
    return svg


def _limits(table: Table) -> list[tuple[float, float]]:
    """The limit along the axis, where all curves share it."""
    limits = grouped((table.columns.values[cell.column], cell.limit) for cell in table.cells if cell.limit)
    return [(x, values[0]) for x, values in sorted(limits.items()) if len({*values}) == 1]


def _framed(
    curves: Sequence[Curve], title: str, axis: Axis, unit: str, high: float, *, logarithmic: bool
) -> tuple[Element, Frame]:
    """A chart with axes for the curves; ``high`` is the highest value that must fit."""
    xs = sorted({x for c in curves for x in c.xs})
    ys = [y for c in curves for y in c.ys]
    named, _ = _named(curves)
    longest = max((len(c.label) for c in named), default=0)
    right = _WIDTH - (min(_NAMES, longest * LETTER + 24) if len(curves) > 1 and named else 16)
    marks = levels(min(ys), high) if logarithmic and min(ys) > 0 else steps(high)
    wide_x = min(xs) > 0 and max(xs) / min(xs) >= 16
    x = _along(xs[0], xs[-1], _LEFT, right, math.log if wide_x else float)
    top = max(marks[-1], high)
    y = _along(marks[0], top, _HEIGHT - _BOTTOM, _TOP, math.log if logarithmic and min(ys) > 0 else float)
    svg = drawing(_WIDTH, _HEIGHT, title, "chart")
    for mark in marks:
        add(svg, "line", "grid", x1=_LEFT, x2=right, y1=y(mark), y2=y(mark))
        add(svg, "text", "tick end", f"{mark:g}", x=_LEFT - 6, y=y(mark) + 4)
    free = math.inf
    for value in reversed(xs):
        label = format_quantity(value, axis.unit)
        half = len(label) * LETTER / 2 + 4
        at = min(x(value), _WIDTH - half)  # keep the last label inside the chart
        if at + half <= free:
            add(svg, "text", "tick middle", label, x=at, y=_HEIGHT - _BOTTOM + 16)
            free = at - half
    add(svg, "line", "axis", x1=_LEFT, x2=right, y1=_HEIGHT - _BOTTOM, y2=_HEIGHT - _BOTTOM)
    add(svg, "text", "soft middle", fitted(axis.name, 400), x=(_LEFT + right) / 2, y=_HEIGHT - 8)
    add(svg, "text", "soft", unit, x=4, y=15)
    return svg, Frame(x, y, _LEFT, right)


def _along(
    low: float, high: float, begin: float, end: float, place: Callable[[float], float]
) -> Callable[[float], float]:
    """The function from a value to its position between two ends of an axis."""
    first, last = place(low), place(high)
    span = (last - first) or 1.0
    return lambda value: begin + (place(value) - first) / span * (end - begin)


def _named(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """The curves with a style and a name, and the others: of many curves, only outliers have names."""
    shown, others = outliers_first(curves)
    named = [c for c in shown if c.apart] if others else shown
    return named, [c for c in (*shown, *others) if c not in named]


def draw_curves(svg: Element, curves: Sequence[Curve], frame: Frame, room: float = _NAMES - 12) -> None:
    """Draw curves. Up to ``MOST_CURVES`` curves get distinct dashes and a name at their end.

    Of more curves, those that differ from the others get them, and are drawn on top.

    Args:
        svg: The chart.
        curves: The curves, in the units of the frame.
        frame: Where the values are in the chart.
        room: Room for the names of curves, in pixels.
    """
    named, others = _named(curves)
    for curve in others:
        _polyline(svg, curve, frame, "many")
    ends: list[float] = []
    for i, curve in enumerate(named):
        points = _polyline(svg, curve, frame, f"s{i}")
        for a, b in points if len(points) <= 40 else ():
            add(svg, "circle", f"f{i}", cx=a, cy=b, r=2.2)
        if len(curves) > 1:
            y = points[-1][1] + 4
            while any(abs(y - other) < 12 for other in ends):
                y += 12
            ends.append(y)
            add(svg, "text", f"f{i}", fitted(curve.label, room), x=frame.right + 8, y=y)


def _polyline(svg: Element, curve: Curve, frame: Frame, style: str) -> list[tuple[float, float]]:
    """Draw a curve with its name as a tooltip; return its points, in pixels."""
    points = [(frame.x(a), frame.y(b)) for a, b in zip(curve.xs, curve.ys, strict=True)]
    line = add(svg, "polyline", f"curve {style}", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in points))
    add(line, "title", text=curve.label)
    return points


def time_chart(title: str, curves: Sequence[Curve], unit: str, end: float) -> Element:
    """Quantities over the time of the run; the other axis starts near their minimum.

    Args:
        title: Name of the quantity.
        curves: Values over the time in s.
        unit: Unit of the values.
        end: End of the axis in s; equal for all charts of a run, so that they can be compared.

    Returns:
        The chart.
    """
    low = min(y for c in curves for y in c.ys)
    high = max(y for c in curves for y in c.ys)
    width, height, left, top, foot = 460.0, 150.0, 54.0, 24.0, 26.0
    right = width - 64  # equal for all charts: room for names at the ends of curves
    span = high - low or abs(high) * 0.1 or 1.0
    x = _along(0.0, end or 1.0, left, right, float)
    y = _along(low - 0.05 * span, high + 0.05 * span, height - foot, top, float)
    svg = drawing(width, height, f"{title}: from {low:g} to {high:g} {unit}", "chart")
    add(svg, "text", "strong", f"{title} {f'[{unit}]' if unit else ''}", x=4, y=14)
    for mark in dict.fromkeys((low, high)):
        add(svg, "line", "grid", x1=left, x2=right, y1=y(mark), y2=y(mark))
        add(svg, "text", "tick end", f"{mark:.4g}", x=left - 5, y=y(mark) + 4)
    for mark in steps(end)[1:]:
        if mark <= end:
            add(svg, "line", "grid", x1=x(mark), x2=x(mark), y1=top, y2=height - foot)
            add(svg, "text", "tick middle", f"{mark:g} s", x=x(mark), y=height - 10)
    add(svg, "line", "axis", x1=left, x2=right, y1=height - foot, y2=height - foot)
    draw_curves(svg, curves, Frame(x, y, left, right), width - right - 10)
    return svg
