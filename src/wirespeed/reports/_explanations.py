"""Conditions that may explain low values, collected over a whole Document; reports show them once, on top."""

from __future__ import annotations

from collections.abc import Iterator

from ..document import THROTTLED, Document, TestcaseResult, shown_state
from ..units import many

#: Throttle reasons of a GPU that is not throttled.
_HARMLESS = {"nothing", "idle"}
#: Unitless GPU readings that are not counters: they go up and down.
_LEVELS = ("PCIe generation", "PCIe width", "processes")


def explanations(document: Document) -> list[str]:
    """Return busy devices, warnings, throttle reasons, and error counters that increased."""
    names = _names(document)
    found: dict[str, list[str]] = {}
    for result in document.testcases:
        busy = (f"{device} was {how}" for device, how in result.busy.items())
        for text in (*busy, *result.warnings, *_held_back(result, names)):
            found.setdefault(text, []).append(result.name)
    of_run = list(dict.fromkeys(document.warnings))
    of_testcases = [f"{text} ({_where(cases)})" for text, cases in found.items() if text not in of_run]
    return [*of_run, *of_testcases, *_counted(document, names)]


def _where(cases: list[str]) -> str:
    return f"in {cases[0]}" if len(cases) == 1 else f"in {many(len(cases), 'testcase')}"


def _held_back(result: TestcaseResult, names: list[str]) -> Iterator[str]:
    """Yield the throttle reasons of each GPU in a testcase."""
    for name in names:
        if not name.endswith(THROTTLED):
            continue
        texts = [value for state in _states(result) if isinstance(value := state.get(name), str)]
        reasons = dict.fromkeys(reason for text in texts for reason in text.split(", "))
        if bad := [reason for reason in reasons if reason not in _HARMLESS]:
            yield f"{shown_state(name)}: {', '.join(bad)}"


def _counted(document: Document, names: list[str]) -> Iterator[str]:
    """Yield the increase of each GPU error counter from the first to the last reading of a run."""
    states = [state for result in document.testcases for state in _states(result)]
    for name in names:
        values = [value for state in states if isinstance(value := state.get(name), (int, float))]
        if "[" not in name and not name.endswith(_LEVELS) and values and values[-1] > values[0]:
            yield f"{name}: {values[-1] - values[0]:g} during the run"


def _names(document: Document) -> list[str]:
    """Return the names of the readings that belong to GPUs."""
    gpus = {gpu.name for gpu in document.machine.gpus}
    states = (state for result in document.testcases for state in _states(result))
    return [
        n for n in dict.fromkeys(name for state in states for name in state) if n.partition(" ")[0] in gpus
    ]


def _states(result: TestcaseResult) -> Iterator[dict[str, float | str]]:
    yield result.state_before
    yield from (reading.state for reading in result.readings)
    yield result.state_after
