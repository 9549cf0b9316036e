"""State of the hardware during a run: readings with a unit as curves, others as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ...document import Document, TestcaseResult, shown_reading, shown_state
from .._plots import Curve
from .charts import time_chart
from .svg import Element

State = dict[str, float | str]
#: Units that are shown with a prefix.
_SCALES = ((1e9, "G"), (1e6, "M"))
_MOST_VALUES = 8


def _readings(document: Document) -> Iterator[tuple[float, State]]:
    """Yield the readings with the seconds since the run began."""
    begun = _moment(document.started)
    elapsed = 0.0
    for result in document.testcases:
        since = _moment(result.started)
        start = max(elapsed, since - begun) if since and begun else elapsed
        elapsed = start + result.seconds
        yield from _of_testcase(result, start)


def _of_testcase(result: TestcaseResult, start: float) -> Iterator[tuple[float, State]]:
    yield start, result.state_before
    for reading in result.readings:
        yield start + reading.seconds, reading.state
    yield start + result.seconds, result.state_after


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def charts_and_texts(document: Document) -> tuple[list[Element], list[tuple[str, str]]]:
    """Return a chart for each quantity with a unit, and the changes of texts and counters."""
    series: dict[str, list[tuple[float, float]]] = {}
    texts: dict[str, list[str]] = {}
    for time, state in _readings(document):
        for name, value in state.items():
            if isinstance(value, str) or "[" not in name:
                shown = shown_reading(value)
                course = texts.setdefault(name, [])
                if not course or course[-1] != shown:
                    course.append(shown)
            else:
                series.setdefault(name, []).append((time, float(value)))
    charts = [_chart(quantity, unit, found) for (quantity, unit), found in _by_quantity(series).items()]
    return charts, [(shown_state(name), _course(course)) for name, course in texts.items()]


def _course(values: list[str]) -> str:
    shown = values[:_MOST_VALUES]
    more = f", and {len(values) - len(shown)} more changes" if len(values) > len(shown) else ""
    return " → ".join(shown) + more


Series = list[tuple[str, list[tuple[float, float]]]]


def _by_quantity(series: dict[str, list[tuple[float, float]]]) -> dict[tuple[str, str], Series]:
    """Group the readings of all devices by quantity: ``gpu0 temperature [C]`` is a temperature."""
    found: dict[tuple[str, str], Series] = {}
    for name, points in series.items():
        what, _, unit = name.rpartition("[")
        device, _, quantity = what.strip().partition(" ")
        if not (device[:-1] and device.rstrip("0123456789") in ("gpu", "numa")):
            device, quantity = "", what.strip()
        found.setdefault((quantity, unit.rstrip("]")), []).append((device, points))
    return found


def _chart(quantity: str, unit: str, found: Series) -> Element:
    largest = max(abs(y) for _, points in found for _, y in points)
    scale, prefix = next(((s, p) for s, p in _SCALES if largest >= 10 * s), (1.0, ""))
    curves = [
        Curve(device or quantity, tuple(x for x, _ in points), tuple(y / scale for _, y in points))
        for device, points in found
    ]
    return time_chart(quantity, curves, f"{prefix}{unit}")
