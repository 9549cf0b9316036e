"""Prometheus' text format, for the textfile collector of the node exporter: about 100 series for a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..document import Document, Status
from ..judging.check import Check
from ..judging.criteria import end_of
from ..judging.device_verdicts import device_lowest, device_verdicts, devices_of_cells
from ..judging.judged import Judged
from ..judging.run_summary import WORDS
from ..judging.verdict import Verdict, share
from ..measurement import Unit
from ..results.cells import Placed
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..terminal import one_line
from .checked_runs import CheckedRun
from .explanations import explanations
from .records import picked
from .style import Style

#: Labels and value of a series.
Sample = tuple[dict[str, str], float]
#: Name of a metric -> its series.
Families = Mapping[str, Sequence[Sample]]

_NAMES = {
    Unit.RATE: "wirespeed_bandwidth_bytes_per_second",
    Unit.TIME: "wirespeed_latency_seconds",
    Unit.FREQUENCY: "wirespeed_messages_per_second",
}
#: Metrics in the order of the file, with their descriptions.
HELP = {
    "wirespeed_run_info": "Labels of the run that these metrics belong to.",
    "wirespeed_run_end_timestamp_seconds": "Time at which the run ended; 0 if unknown.",
    "wirespeed_run_duration_seconds": "Duration of the run.",
    "wirespeed_verdict": "1 for the verdict of the run, 0 for all others.",
    "wirespeed_device_verdict": "1 for the verdict of a GPU or NUMA node, or of a node that was qualified.",
    "wirespeed_path_verdict": "1 for the verdict of a kind of path.",
    "wirespeed_path_expected_ratio": "Worst rate of a kind of path as a fraction of what label 'of' says.",
    "wirespeed_path_lowest_bytes_per_second": "Worst rate of a kind of path.",
    "wirespeed_path_median_bytes_per_second": "Median rate of a kind of path.",
    "wirespeed_path_limit_bytes_per_second": "Limit of a kind of path: what its links allow.",
    "wirespeed_path_lowest_limit_ratio": "Worst rate of a kind of path as a fraction of its limit.",
    "wirespeed_path_bad_values": "Number of values of a kind of path that are not as expected.",
    "wirespeed_device_lowest_bytes_per_second": "Lowest rate of a kind of path at a device.",
    "wirespeed_values": "Number of values of the run by verdict.",
    "wirespeed_run_warnings": "Number of warnings that may explain low values.",
    "wirespeed_culprit_ratio": "Rate of a slow device, link or path, as a fraction of what label 'of' says.",
    "wirespeed_slow_cells_explained": "Number of slow values that a likely or possible cause explains.",
    "wirespeed_gate": "1 for the verdict of a published threshold.",
    "wirespeed_file_unreadable": "1 for a file that could not be read or judged.",
    "wirespeed_testcase_status": "1 for the status of a testcase.",
    _NAMES[Unit.RATE]: "Median bandwidth of a value.",
    _NAMES[Unit.TIME]: "Median latency of a value.",
    _NAMES[Unit.FREQUENCY]: "Median message rate of a value.",
    "wirespeed_limit_bytes_per_second": "Limit of a value: what the links allow for all its transfers.",
    "wirespeed_missing": "1 for what should be there and is not, by verdict.",
    "wirespeed_peer_access": "1 for the verdict on a GPU that accesses the memory of another.",
    "wirespeed_cells": "Number of values of a testcase by verdict.",
}
NOT_JUDGED = "not judged"
#: Verdicts of the run, in words.
STATES = tuple(word.lower() for word in WORDS)
#: Verdicts of devices, kinds of paths and values, where the words differ.
_VERDICTS = {Verdict.NOT_JUDGED: NOT_JUDGED, Verdict.WAIVED: NOT_JUDGED}


def render(judged: Judged, style: Style) -> str:
    """Gauges without timestamps, as the collector requires; labelled ``simulated`` or ``imported``.

    A simulated run passes only if that is allowed: else its verdict is ``not judged`` at best.
    """
    return _text(part(judged, style))


def part(judged: Judged, style: Style) -> Families:
    """The series of a run, each with the host; ``style.all_cells`` adds those of each value."""
    document, check = judged.document, judged.check
    ended = end_of(document)
    families: dict[str, Iterable[Sample]] = {
        "wirespeed_run_info": [(_run(document), 1)],
        "wirespeed_run_end_timestamp_seconds": [({}, ended or 0.0)],
        "wirespeed_run_duration_seconds": [({}, document.seconds)],
        "wirespeed_verdict": _states(_honest(check.verdict.word, judged)),
        "wirespeed_values": _values(check),
        "wirespeed_run_warnings": [({}, len(explanations(document, lacking=check.missing)))],
        "wirespeed_culprit_ratio": _culprits(check),
        "wirespeed_slow_cells_explained": _causes(judged),
        "wirespeed_missing": _missing(check),
        "wirespeed_peer_access": [
            ({"source": source, "destination": destination, "verdict": str(verdict)}, 1)
            for (source, destination), verdict in (document.peers.verdicts if document.peers else {}).items()
        ],
        "wirespeed_gate": _gates(judged),
        **grouped(_paths(judged)),
        **_devices(judged),
        **(_cells(judged) if style.all_cells else {}),
    }
    everywhere = {"host": document.hostname}
    everywhere |= {"simulated": "true"} if document.simulated else {}
    everywhere |= {"imported": document.origin.removeprefix("imported from ")} if document.imported else {}
    return {
        name: [(everywhere | labels, value) for labels, value in samples]
        for name, samples in families.items()
    }


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """The series of several runs; with the file as a label if a host has several runs."""
    hosts = Counter(labels["host"] for run in runs for labels, _ in run.part["wirespeed_run_info"])
    merged: dict[str, list[Sample]] = {}
    for run in runs:
        for name, samples in run.part.items():
            for labels, value in samples:
                of_run = {"host": labels["host"], "file": run.node.file} if hosts[labels["host"]] > 1 else {}
                merged.setdefault(name, []).append((of_run | labels, value))
    merged["wirespeed_file_unreadable"] = [({"file": file.file}, 1) for file in unreadable]
    return _text(merged)


def _text(families: Families) -> str:
    lines: list[str] = []
    for name, about in HELP.items():
        samples = [_sample(name, labels, value) for labels, value in _unique(families.get(name, ()))]
        if samples:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", *samples]
    return "\n".join(lines) + "\n"


def _run(document: Document) -> dict[str, str]:
    machine = document.machine
    return {
        "version": document.version,
        "machine": machine.name,
        "cpu": machine.cpu,
        "gpu": machine.gpus[0].model if machine.gpus else "",
        "gpus": str(len(machine.gpus)),
        "driver": machine.driver,
    }


def _honest(word: str, judged: Judged) -> str:
    """A verdict; for a simulated run, which proves nothing unless it is allowed, never a pass."""
    return NOT_JUDGED if judged.proves_nothing and word == Verdict.PASS else word


def _word(verdict: Verdict, judged: Judged) -> str:
    return _honest(_VERDICTS.get(verdict, str(verdict)), judged)


def _states(word: str) -> Iterator[Sample]:
    """A series for each verdict that a run can have."""
    for state in dict.fromkeys((*STATES, word)):
        yield {"verdict": state}, float(state == word)


def _paths(judged: Judged) -> Iterator[tuple[str, Sample]]:
    """Yield the key figures of each kind of path, each with its metric."""
    for figure in judged.overview.figures:
        path, typical = {"path": figure.kind.name}, figure.typical
        word = {"verdict": _word(figure.verdict, judged)}
        yield "wirespeed_path_verdict", (path | word, 1)
        yield "wirespeed_path_bad_values", (path, figure.bad)
        if portion := share(figure.lead):
            at = {"of": portion.of, "where": figure.place or figure.title}
            yield "wirespeed_path_expected_ratio", (path | at, portion.fraction)
        if typical.limit:
            yield "wirespeed_path_limit_bytes_per_second", (path, typical.limit)
        for statistic, value in (("lowest", figure.lead.value), ("median", typical.value)):
            yield f"wirespeed_path_{statistic}_bytes_per_second", (path, value or 0.0)
        if figure.lead.limit:
            ratio = (figure.lead.value or 0.0) / figure.lead.limit
            yield "wirespeed_path_lowest_limit_ratio", (path, ratio)


def _devices(judged: Judged) -> dict[str, list[Sample]]:
    """The verdict on each GPU and NUMA node, and its lowest rates; or on each node that was qualified."""
    document = judged.document
    if found := document.qualification:
        out = set(found.excluded)
        good = Verdict.PASS if found.compared else Verdict.NOT_JUDGED
        verdicts = {node.name: Verdict.FAIL if node.name in out else good for node in found.nodes}
        return {"wirespeed_device_verdict": _verdicts(verdicts, judged)}
    cells = devices_of_cells(document)
    verdicts = device_verdicts(judged, cells)
    lowest = [
        ({"device": device, "path": figure.kind.name}, value)
        for figure in judged.overview.figures
        for device, value in device_lowest(figure, judged, cells).items()
    ]
    return {
        "wirespeed_device_verdict": _verdicts(verdicts, judged),
        "wirespeed_device_lowest_bytes_per_second": lowest,
    }


def _verdicts(verdicts: Mapping[str, Verdict], judged: Judged) -> list[Sample]:
    return [
        ({"device": device, "verdict": _word(verdict, judged)}, 1) for device, verdict in verdicts.items()
    ]


def _cells(judged: Judged) -> dict[str, list[Sample]]:
    """Each value and its limit, and verdicts and status of each testcase."""
    document, cells = judged.document, [place for place in judged.cells if place.cell.value is not None]
    counts = Counter(
        (judgement.key.testcase, str(judgement.verdict))
        for judgement in judged.check.judgements
        if judgement.key.testcase
    )
    return {
        "wirespeed_testcase_status": [
            ({"testcase": result.name, "status": str(Status(result.status))}, 1)
            for result in document.testcases
        ],
        **{
            name: [(_labels(place), place.cell.value or 0.0) for place in cells if place.unit is unit]
            for unit, name in _NAMES.items()
        },
        "wirespeed_limit_bytes_per_second": [
            (_labels(place), place.cell.limit) for place in cells if place.cell.limit
        ],
        "wirespeed_cells": [
            ({"testcase": testcase, "verdict": word}, count) for (testcase, word), count in counts.items()
        ],
    }


def _labels(place: Placed) -> dict[str, str]:
    key = place.key
    return {"testcase": key.testcase, "table": key.table, "row": key.row, "column": key.column}


def _values(check: Check) -> Iterator[Sample]:
    """The number of values of each verdict."""
    counts = Counter(judgement.verdict for judgement in check.judgements if judgement.key.column)
    for verdict in Verdict:
        if verdict is not Verdict.WAIVED:
            yield {"verdict": verdict.word}, counts[verdict]


def _culprits(check: Check) -> Iterator[Sample]:
    """The share of each slow device, link or path."""
    for culprit in check.culprits:
        kind = str(culprit.suspects[0].kind)
        yield {"culprit": str(culprit), "kind": kind, "of": culprit.of}, culprit.ratio


def _causes(judged: Judged) -> Iterator[Sample]:
    """The number of slow values that each cause explains."""
    for cause in (finding.data for finding in judged.diagnosis.findings):
        likely = "true" if cause["likely"] else "false"
        yield {"cause": cause["cause"], "place": cause["where"], "likely": likely}, cause["cells"]


def _missing(check: Check) -> Iterator[Sample]:
    """What is missing, but not what was left out on purpose."""
    for absence in check.missing:
        if absence.verdict is not Verdict.WAIVED:
            place = {"part": str(absence.part), "where": ",".join(absence.where), "of_host": absence.host}
            yield {**place, "verdict": str(absence.verdict)}, 1


def _gates(judged: Judged) -> Iterator[Sample]:
    """The verdict of each gate that applies to the machine."""
    for compared in judged.check.gates:
        for result in compared.results:
            if result.verdict is not Verdict.WAIVED:
                gate = picked(result.gate, "set measures at_least", set=compared.gates.name)
                yield {**gate, "verdict": result.word}, 1


def _unique(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Drop samples with the labels of an earlier one: the collector rejects a file with duplicates."""
    seen: set[tuple[str, ...]] = set()
    for labels, value in samples:
        key = tuple(one_line(f"{name}={text}") for name, text in labels.items())
        if key not in seen:
            seen.add(key)
            yield labels, value


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    escaped = {key: one_line(text).replace("\\", "\\\\").replace('"', '\\"') for key, text in labels.items()}
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{f'{{{inside}}}' if inside else ''} {float(value)!r}"
