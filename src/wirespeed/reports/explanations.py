"""Conditions that may explain low values, collected over a whole Document; reports show them once, on top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..document import Document, TestcaseResult, courses
from ..judging.inventory import Missing, missing
from ..judging.omissions import doubts
from ..judging.overview import users
from ..statistics import grouped
from ..tables import IDLE, RETRAINED, THROTTLED
from ..units import many


def explanations(
    document: Document, *, busy: bool = True, lacking: Iterable[Missing] | None = None
) -> list[str]:
    """What is missing or was not verified or measured, busy devices, warnings, and errors.

    Args:
        document: The run.
        busy: Whether to name busy devices.
        lacking: What a check found to be missing; None for what is missing without expectations.
    """
    lacking = missing(document) if lacking is None else lacking
    gpus = {gpu.name for gpu in document.machine.gpus}
    testcases = grouped(
        (text, result.name)
        for result in document.testcases
        for text in (*result.warnings, *_throttled(result, gpus))
    )
    said = {f"{log.file}: {doubt}" for log in document.imported for doubt in log.doubts}
    noted = [warning for warning in document.warnings if warning not in said]
    of_run = list(dict.fromkeys((*map(str, lacking), *doubts(document), *noted)))
    for device, (how, cases) in users(document).items() if busy else ():
        of_run.append(f"{device} was {how} ({_where(cases, 'during')})")
    known = set(of_run)
    of_testcases = [f"{text} ({_where(cases)})" for text, cases in testcases.items() if text not in known]
    return [*of_run, *of_testcases, *_counted(document, gpus)]


def _where(cases: list[str], preposition: str = "in") -> str:
    return f"{preposition} {cases[0] if len(cases) == 1 else many(len(cases), 'testcase')}"


def _throttled(result: TestcaseResult, gpus: set[str]) -> Iterator[str]:
    """The throttle reasons of each GPU in a testcase."""
    for readings in courses([result], {THROTTLED}):
        if readings[0].device in gpus:
            values = [reading.value for reading in readings if isinstance(reading.value, tuple)]
            reasons = dict.fromkeys(reason for value in values for reason in value if reason != IDLE)
            if reasons:
                yield f"{readings[0].label}: {', '.join(reasons)}"


def _counted(document: Document, gpus: set[str]) -> Iterator[str]:
    """The increase of each GPU error counter from the first to the last reading of a run."""
    for readings in courses(document.testcases):
        values = [reading.value for reading in readings if isinstance(reading.value, (int, float))]
        first = readings[0]
        errors = first.counter and not first.unit and first.name != RETRAINED
        if errors and first.device in gpus and values and values[-1] > values[0]:
            yield f"{first.label}: {values[-1] - values[0]:g} during the run"
