"""The facts of a run: what was read of its machine, and what the state of the hardware, read again and
again, says about the whole run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...document import Document, TestcaseResult, courses
from ...hardware.facts import COUNTED, SEEN, Fact, Facts, Known
from ...hardware.link_graph import MachineVertices
from ...tables import THROTTLED_BY, Quantity
from ...thresholds.facts import LEAST_OBSERVED_S, TOO_FAST


def facts_of(document: Document) -> Facts:
    """The facts of a Document: what was read, and what the run shows."""
    return Facts((*document.facts, *_increases(document), *_throttled(document), *_best(document)))


def _best(document: Document) -> Iterator[Fact]:
    """Yield the highest clocks and the fastest P-state of each GPU, while or just after it was measured."""
    for course in courses(document.testcases, SEEN):
        first = course[0]
        name, is_highest = SEEN[first.name]
        values = [reading.value for reading in course if isinstance(reading.value, (int, float))]
        if len(values) > 1:
            best = max(values) if is_highest else min(values)
            yield Fact(name, best, first.unit, first.device, host=first.host)


def _increases(document: Document) -> Iterator[Fact]:
    """Yield by how much the error counters of each GPU increased, of several of one kind the most."""
    increases: dict[tuple[str, str, Known], float] = {}
    for course in courses(document.testcases, COUNTED):
        if len(course) > 1:
            key = (course[0].host, course[0].device, COUNTED[course[0].name])
            increases[key] = max(increases.get(key, 0.0), _increase(course))
    for (host, device, name), count in increases.items():
        yield Fact(name, count, device=device, host=host)


def _throttled(document: Document) -> Iterator[Fact]:
    """Yield how long each GPU of this host was throttled in the testcases that used it, and why."""
    observed: dict[str, float] = defaultdict(float)
    throttled: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for result in document.testcases:
        counted: dict[str, dict[str, float]] = defaultdict(dict)
        for course in courses([result]):
            first = course[0]
            if first.name.startswith(THROTTLED_BY) and not first.host and len(course) > 1:
                counted[first.device][first.name.removeprefix(THROTTLED_BY)] = _increase(course)
        for device in counted.keys() & _used(document, result) if counted else ():
            observed[device] += result.seconds
            for reason, seconds in counted[device].items():
                throttled[device][reason] += seconds
    for device, seconds in observed.items():
        if seconds < LEAST_OBSERVED_S:
            continue
        times = {reason: time for reason, time in throttled[device].items() if time <= seconds * TOO_FAST}
        reason = max(times, key=lambda reason: times[reason], default="")
        share = min(times.get(reason, 0.0) / seconds, 1.0)
        yield Fact(Known.THROTTLED_TIME, 100 * share, "%", device)
        yield Fact(Known.THROTTLED_BY, reason if share else "nothing", device=device)
        yield Fact(Known.OBSERVED, seconds, "s", device)


def _used(document: Document, result: TestcaseResult) -> set[str]:
    """The devices of this host whose links the cells of a testcase load."""
    links, vertices = document.machine.links, MachineVertices(document.machine)
    used = {link[0] for table in result.tables for cell in table.cells for link in cell.links}
    return {at.device for i in used for at in map(vertices.of, links[i].ends) if not at.host}


def _increase(course: Sequence[Quantity]) -> float:
    """The increase of a counter; 0 if it was reset."""
    numbers = [reading.value for reading in course if isinstance(reading.value, (int, float))]
    return max(0.0, numbers[-1] - numbers[0]) if numbers else 0.0
