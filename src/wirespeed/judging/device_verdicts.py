"""What a judged run says about each GPU and each NUMA node: its verdict, and its lowest values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from ..document import Document
from ..hardware.link_graph import MachineVertices
from ..results.cells import Key, placed
from ..thresholds.causes import MATTERS
from .check import Check
from .finding import Finding
from .judged import Judged
from .key_figures import KeyFigure
from .suspects import Culprit
from .verdict import Verdict, worst


def _devices(vertices: MachineVertices) -> tuple[str, ...]:
    return tuple(vertex.name for vertex in (*vertices.gpus, *vertices.nodes, *vertices.others))


def devices_of_cells(document: Document) -> dict[Key, frozenset[str]]:
    """The GPUs and NUMA nodes that each cell of a run uses."""
    links, known = document.machine.links, set(_devices(MachineVertices(document.machine)))
    used: dict[tuple[tuple[int, float, float], ...], frozenset[str]] = {}  # many cells share their links
    devices = {}
    for measured in placed(document):
        if measured.cell.links not in used:
            used[measured.cell.links] = frozenset(
                end for i, taken, _ in measured.cell.links if taken >= MATTERS
                for end in links[i].ends if end in known
            )  # fmt: skip
        devices[measured.key] = used[measured.cell.links] | ({measured.key.row, measured.key.column} & known)
    return devices


def device_verdicts(judged: Judged, cells: Mapping[Key, frozenset[str]]) -> dict[str, Verdict]:
    """The verdict on each GPU and NUMA node; ``unknown`` for one without a judged value.

    A value that is worse than expected counts for the device that explains it: a culprit, or the owner of a
    slow link to a switch. It counts for neither end of a slow link or path between two devices. If nothing
    explains it, it counts for the device that it uses; of several, one may be slow, and none is judged.
    A device that a cause, wrong data or a defect names never passes.

    Args:
        judged: The run.
        cells: Devices of each cell (``devices_of_cells``).
    """
    document, check, vertices = judged.document, judged.check, MachineVertices(judged.document.machine)
    by_device: dict[str, set[Verdict]] = {device: set() for device in _devices(vertices)}
    doubtful: set[str] = set()
    for judgement in check.judgements:
        if judgement.verdict in (Verdict.WAIVED, Verdict.INTERRUPTED) or not judgement.key.column:
            continue
        touched = cells.get(judgement.key, frozenset())
        if judgement.verdict.is_bad and judgement.culprit:
            touched = frozenset(_blamed(judgement.culprit, by_device))
        elif judgement.verdict.is_bad and judgement.value is not None and len(touched) > 1:
            doubtful |= touched
            continue
        for device in touched:
            by_device[device].add(judgement.verdict)
    for device, verdict in (*_wrong(check), *_named(judged.diagnosis.findings, vertices)):
        if device in by_device:
            by_device[device].add(verdict)
    busy = {device for result in document.testcases for device in result.busy}
    found = {device: _worst(verdicts, device in busy) for device, verdicts in by_device.items()}
    return {
        device: Verdict.NOT_JUDGED if verdict is Verdict.PASS and device in doubtful else verdict
        for device, verdict in found.items()
    }


def _blamed(culprit: Culprit, devices: Container[str]) -> Iterator[str]:
    """The device that each suspect is, or that owns it; none of a path, or link, between two devices."""
    for suspect in culprit.suspects:
        ends = [end for end in suspect.ends if end in devices]
        if suspect.is_device or (suspect.is_link and len(ends) == 1):
            yield from ends


def device_lowest(figure: KeyFigure, judged: Judged, cells: Mapping[Key, frozenset[str]]) -> dict[str, float]:
    """The lowest value of a kind of path for each device that it ends at, in B/s.

    These are the values that the key figure is the median of, and all of the testcase that it leads with.
    Collectives use all devices at once.
    """
    names = {*figure.testcases, figure.lead.key.testcase}
    vertices = MachineVertices(judged.document.machine)
    kinds = {name: vertices.kind(name) for name in _devices(vertices)}
    ends = [name for name, kind in kinds.items() if kind and kind.name == figure.kind.device]
    lowest: dict[str, float] = {}
    for judgement in judged.check.judgements:
        if judgement.value is None or judgement.key.testcase not in names or judgement.key.table:
            continue
        for device in cells.get(judgement.key, frozenset()).intersection(ends):
            lowest[device] = min(lowest.get(device, judgement.value), judgement.value)
    return {device: lowest[device] for device in ends if device in lowest}


def _worst(verdicts: set[Verdict], busy: bool) -> Verdict:
    """The worst verdict. Unjudged values of idle devices count only if there are no others."""
    if busy and Verdict.BUSY in verdicts:
        return Verdict.FAIL if any(verdict.is_failure for verdict in verdicts) else Verdict.BUSY
    return worst({verdict for verdict in verdicts if verdict.is_judged} or verdicts)


def _wrong(check: Check) -> Iterator[tuple[str, Verdict]]:
    """Yield the devices that delivered wrong data; the ends of the paths if no device explains it."""
    for wrong in check.wrong:
        for device in (wrong.device,) if wrong.device else {end for path in wrong.paths for end in path}:
            yield device, Verdict.FAIL


def _named(findings: Iterable[Finding], vertices: MachineVertices) -> Iterator[tuple[str, Verdict]]:
    """Yield the GPUs at the place of each cause: one that explains slow values fails, another warns."""
    for finding in findings:
        if not finding.place:
            continue
        for vertex in (*vertices.gpus_at(finding.place), vertices.of(finding.place)):
            if finding.host in ("", vertex.host):
                yield vertex.name, Verdict.FAIL if finding.cells and finding.likely else Verdict.WARN
