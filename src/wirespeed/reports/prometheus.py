"""Prometheus' text format, for the textfile collector of the node exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from ..document import Document, Status
from ..judging.gate_verdicts import GateVerdict
from ..judging.verdicts import Check, Verdict
from ..model import Unit
from ..results.cells import Placed, placed
from ..terminal import one_line
from . import Judged, Style
from ._explanations import explanations

_NAMES = {
    Unit.RATE: "wirespeed_bandwidth_bytes_per_second",
    Unit.TIME: "wirespeed_latency_seconds",
    Unit.FREQUENCY: "wirespeed_messages_per_second",
}
_HELP = {
    "wirespeed_run_info": "Labels of the run that these metrics belong to.",
    "wirespeed_run_end_timestamp_seconds": "Time at which the run ended.",
    "wirespeed_run_duration_seconds": "Duration of the run.",
    "wirespeed_run_good": "1 if the verdict on the run is pass, and the machine is not simulated.",
    "wirespeed_run_warnings": "Number of warnings that may explain low values.",
    "wirespeed_testcase_status": "1 for the status of a testcase.",
    _NAMES[Unit.RATE]: "Median bandwidth of a cell.",
    _NAMES[Unit.TIME]: "Median latency of a cell.",
    _NAMES[Unit.FREQUENCY]: "Median message rate of a cell.",
    "wirespeed_limit_bytes_per_second": "Limit of a cell: what the links allow for all its transfers.",
    "wirespeed_slow_cells_explained": "Number of slow cells that a likely or possible cause explains.",
    "wirespeed_missing": "1 for what should be there and is not, by verdict.",
    "wirespeed_gate": "1 for the verdict of a published gate.",
    "wirespeed_cells": "Number of cells of a testcase by verdict.",
}


def render(document: Document, style: Style) -> str:
    """Return gauges without timestamps, as the collector requires; labelled ``simulated`` or ``imported``.

    Cells without a value have no sample. Labels are escaped as the format requires.
    """
    judged, check = style.judged, style.check(document)
    cells = [one for one in placed(document) if one.cell.value is not None]
    families: dict[str, Iterable[tuple[dict[str, str], float]]] = {
        "wirespeed_run_info": [(_run(document), 1)],
        "wirespeed_run_end_timestamp_seconds": [({}, t)] if (t := _timestamp(document)) else [],
        "wirespeed_run_duration_seconds": [({}, document.seconds)],
        "wirespeed_run_good": [({}, float(check.verdict is Verdict.PASS and not document.simulated))],
        "wirespeed_run_warnings": [({}, len(explanations(document, lacking=check.missing)))],
        "wirespeed_testcase_status": _statuses(document),
        **{
            name: [(_labels(x), x.cell.value or 0.0) for x in cells if x.unit is unit]
            for unit, name in _NAMES.items()
        },
        "wirespeed_limit_bytes_per_second": [(_labels(x), x.cell.limit) for x in cells if x.cell.limit],
        "wirespeed_cells": _verdicts(check),
        "wirespeed_slow_cells_explained": _causes(judged) if judged else [],
        "wirespeed_missing": _missing(check),
        "wirespeed_gate": _gates(judged) if judged else [],
    }
    everywhere = {"simulated": "true"} if document.simulated else {}
    everywhere |= {"imported": document.origin.removeprefix("imported from ")} if document.imported else {}
    lines: list[str] = []
    for name, samples in families.items():
        found = [_sample(name, everywhere | labels, value) for labels, value in _unique(samples)]
        if found:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *found]
    return "\n".join(lines) + "\n"


def _run(document: Document) -> dict[str, str]:
    """Return the labels of the run."""
    machine = document.machine
    return {
        "version": document.version,
        "host": machine.host or document.host,
        "machine": machine.name,
        "cpu": machine.cpu,
        "gpu": machine.gpus[0].model if machine.gpus else "",
        "gpus": str(len(machine.gpus)),
        "driver": machine.driver,
    }


def _timestamp(document: Document) -> float:
    """Return the end of the run as seconds since 1970; 0 if unknown."""
    try:
        return datetime.fromisoformat(document.ended).timestamp()
    except ValueError:
        return 0.0


def _labels(one: Placed) -> dict[str, str]:
    """Return the labels of a cell."""
    key = one.key
    return {"testcase": key.testcase, "table": key.table, "row": key.row, "column": key.column}


def _statuses(document: Document) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the status of each testcase."""
    for result in document.testcases:
        yield {"testcase": result.name, "status": str(Status(result.status))}, 1


def _verdicts(check: Check) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the number of cells of each testcase and verdict."""
    counts = Counter((one.key.testcase, one.verdict) for one in check.judgements if one.key.testcase)
    for (testcase, verdict), count in counts.items():
        yield {"testcase": testcase, "verdict": str(verdict)}, count


def _causes(judged: Judged) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the number of slow cells that each cause explains."""
    for one in judged.diagnosis.findings:
        likely = "true" if one.likely else "false"
        yield {"cause": one.cause.name, "place": one.where, "likely": likely}, one.cells


def _missing(check: Check) -> Iterator[tuple[dict[str, str], float]]:
    """Yield what is missing, but not what was left out on purpose."""
    for one in check.missing:
        if one.verdict is not Verdict.WAIVED:
            place = {"part": str(one.part), "where": ",".join(one.where), "of_host": one.host}
            yield {**place, "verdict": str(one.verdict)}, 1


def _gates(judged: Judged) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the verdict of each gate that applies to the machine."""
    for compared in judged.gates:
        for one in compared.results:
            if one.verdict is not GateVerdict.NOT_APPLICABLE:
                gate = {
                    "set": compared.gates.name,
                    "measures": one.gate.measures,
                    "at_least": one.gate.at_least,
                }
                yield {**gate, "verdict": str(one.verdict)}, 1


def _unique(samples: Iterable[tuple[dict[str, str], float]]) -> Iterator[tuple[dict[str, str], float]]:
    """Drop samples with the labels of an earlier one: the collector rejects a file with duplicates."""
    seen: set[tuple[str, ...]] = set()
    for labels, value in samples:
        key = tuple(map(one_line, labels.values()))
        if key not in seen:
            seen.add(key)
            yield labels, value


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    """Return the line of a sample."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{f'{{{inside}}}' if inside else ''} {float(value)!r}"


def _escaped(text: str) -> str:
    """Escape the value of a label."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
