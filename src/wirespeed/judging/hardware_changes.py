"""The states of the hardware during a testcase that may explain low values."""

from __future__ import annotations

from collections.abc import Iterator

from ..document import Status, TestcaseResult, courses
from ..hardware.topology import Machine
from ..tables import GENERATION, IDLE, P_STATE, RETRAINED, THROTTLED

#: Maximum number of values shown for a reading that changed.
_MAX_SHOWN_VALUES = 4


def hardware_changes(result: TestcaseResult, machine: Machine) -> Iterator[str]:
    """Yield states of the hardware that may explain a low value.

    Quantities with a unit (temperatures, clocks) always vary. Texts, counters and links that changed, and
    throttle reasons, say more.
    """
    gpus = {gpu.name for gpu in machine.gpus}
    for readings in courses([result]) if result.status is not Status.WAIVED else ():
        course = [
            reading for i, reading in enumerate(readings) if i == 0 or reading.value != readings[i - 1].value
        ]
        first, values = course[0], [reading.value for reading in course]
        of_gpu = first.device in gpus
        if first.unit or first.name in (RETRAINED, P_STATE) or not (of_gpu or isinstance(first.value, str)):
            continue
        if first.name == GENERATION and values == sorted(v for v in values if isinstance(v, (int, float))):
            continue  # an idle link wakes up
        throttled = of_gpu and first.name == THROTTLED and first.value not in ((), (IDLE,))
        if len(course) > 1 or throttled:
            shown = " → ".join(reading.shown for reading in course[:_MAX_SHOWN_VALUES])
            yield f"{first.label}: {shown}"
