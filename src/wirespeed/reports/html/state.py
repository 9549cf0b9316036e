"""State of the hardware during a run: readings with a unit as curves, others as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ...document import Document, courses
from ...tables import Quantity
from ..plot import Curve
from .charts import Element, time_chart

#: Host and device -> seconds and values.
Series = dict[str, list[tuple[float, float]]]
#: Units that are shown with a prefix.
_SCALES = ((1e9, "G"), (1e6, "M"))
_MOST_VALUES = 8


def _readings(document: Document) -> Iterator[tuple[float, Quantity]]:
    begun = _moment(document.started)
    elapsed = 0.0
    for result in document.testcases:
        since = _moment(result.started)
        start = max(elapsed, since - begun) if since and begun else elapsed
        elapsed = start + result.seconds
        for reading in result.history:
            yield from ((start + reading.seconds, quantity) for quantity in reading.state)


def _moment(text: str) -> float:
    """An ISO 8601 time as seconds; 0 if it is not one."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def charts_and_texts(document: Document) -> tuple[list[Element], list[tuple[str, str]]]:
    """A chart for each quantity with a unit, and the changes of texts and counters.

    Counters that do not change are omitted.

    Args:
        document: The run.

    Returns:
        The charts; label and changes of each other quantity.
    """
    series: dict[tuple[str, str], Series] = {}
    texts: dict[str, list[str]] = {}
    still = {
        course[0].key
        for course in courses(document.testcases)
        if course[0].counter and all(quantity.value == course[0].value for quantity in course)
    }
    for time, quantity in _readings(document):
        if quantity.key in still:
            continue
        if quantity.unit and isinstance(quantity.value, (int, float)):
            curves = series.setdefault((quantity.name, quantity.unit), {})
            curves.setdefault(quantity.where, []).append((time, float(quantity.value)))
        else:
            course = texts.setdefault(quantity.label, [])
            if not course or course[-1] != quantity.shown:
                course.append(quantity.shown)
    all_points = (points for curves in series.values() for points in curves.values())
    end = max((time for points in all_points for time, _ in points), default=0.0)
    charts = [_chart(name, unit, curves, end) for (name, unit), curves in series.items()]
    return charts, [(label, _course(course)) for label, course in texts.items()]


def _course(values: list[str]) -> str:
    """Values that follow each other, the first ones only."""
    shown = values[:_MOST_VALUES]
    more = f", and {len(values) - len(shown)} more changes" if len(values) > len(shown) else ""
    return " → ".join(shown) + more


def _chart(quantity: str, unit: str, series: Series, end: float) -> Element:
    """The chart of a quantity of one or several devices, until the end of the run."""
    largest = max(abs(y) for points in series.values() for _, y in points)
    scale, prefix = next(((s, p) for s, p in _SCALES if largest >= 10 * s), (1.0, ""))
    curves = [
        Curve(device or quantity, tuple(x for x, _ in points), tuple(y / scale for _, y in points))
        for device, points in series.items()
    ]
    return time_chart(quantity, curves, f"{prefix}{unit}", end)
