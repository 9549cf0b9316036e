"""JSON: the Document, or what ``wirespeed check`` found of it: verdicts, likely causes and gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ..judging.inventory import Missing
from ..judging.judged import Judged
from ..judging.omissions import left_out
from ..judging.verdict import GateComparison, Judgement, Verdict
from ..results.compare import Unreadable
from ..results.store import encode
from ..version import __version__
from .findings import verification, views
from .records import CheckedRun
from .style import Style

#: Version of the shape, which docs/reports.md describes.
_SHAPE = 1
#: Fields of causes.
_OF_CAUSES = (
    "cause", "title", "host", "place", "likely", "cells", "factor", "evidence", "others", "next", "confirm",
    "remedy",
)  # fmt: skip
#: Verdict of a file that cannot be read or judged.
UNREADABLE = "unreadable"


def render(judged: Judged, style: Style) -> str:
    """The complete Document; if it was checked, what was found of it."""
    return _listed([_run(judged)]) if style.checked else encode(judged.document).decode()


def part(judged: Judged, style: Style) -> msgspec.Raw:
    """The entry of a checked run, encoded."""
    del style
    return msgspec.Raw(msgspec.json.encode(_run(judged)))


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """One object with the entries of several checked runs."""
    del style
    return _listed([*(run.part for run in runs), *map(_unreadable, unreadable)])


def _listed(runs: Sequence[Any]) -> str:
    entries = {"wirespeed_check": _SHAPE, "version": __version__, "runs": runs}
    return msgspec.json.format(msgspec.json.encode(entries), indent=1).decode() + "\n"


def _unreadable(file: Unreadable) -> dict[str, Any]:
    """The entry of a file that cannot be read or judged: that of a run that has nothing."""
    nothing: dict[str, Any] = {
        "host": "", "machine": "", "started": "", "simulated": False, "cells": {}, "testcases": {},
        "values": [], "places": [], "wrong": [], "doubts": [], "uncovered": [], "missing": [], "defects": [],
        "data": "", "left_out": {}, "baseline": None, "causes": [], "slow": 0, "unexplained": 0, "gates": [],
    }  # fmt: skip
    return {"file": file.file, "verdict": UNREADABLE, "error": file.why, **nothing}


def _run(judged: Judged) -> dict[str, Any]:
    document, check, diagnosis = judged.document, judged.check, judged.diagnosis
    return {
        "file": judged.file,
        "error": None,
        "host": document.hostname,
        "machine": document.machine.name,
        "started": document.started,
        "simulated": document.simulated,
        "verdict": str(check.verdict),
        "cells": dict(Counter(str(cell.verdict) for cell in check.judgements if cell.key.column)),
        "testcases": check.testcases,
        "values": [
            _value(judgement)
            for judgement in check.judgements
            if judgement.verdict not in (Verdict.PASS, Verdict.WAIVED)
        ],
        "places": [
            {
                "place": str(culprit),
                "suspects": [
                    {"kind": str(suspect.kind), "ends": suspect.ends, "one_way": suspect.one_way}
                    for suspect in culprit.suspects
                ],
                "ratio": culprit.ratio,
                "cells": len(culprit.cells),
            }
            for culprit in check.culprits
        ],
        "wrong": [
            {"text": str(fault), "device": fault.device, "paths": fault.paths, "testcases": fault.testcases}
            for fault in check.wrong
        ],
        "doubts": check.doubts,
        "uncovered": [
            {"kind": lost.kind.name, "devices": lost.devices, "verdict": str(lost.verdict), "why": lost.why}
            for lost in check.uncovered
        ],
        "missing": [_absent(absence) for absence in check.missing],
        "defects": check.defects,
        "data": verification(document),
        "left_out": left_out(document),
        "baseline": vars(check.baseline) if check.baseline else None,
        "causes": [{name: view.data[name] for name in _OF_CAUSES} for view in views(diagnosis)],
        "slow": diagnosis.slow,
        "unexplained": diagnosis.unexplained,
        "gates": [gate for compared in check.gates for gate in _gates(compared)],
    }


def _value(judgement: Judgement) -> dict[str, Any]:
    return {
        "testcase": judgement.key.testcase,
        "table": judgement.key.table,
        "row": judgement.key.row,
        "column": judgement.key.column,
        "unit": str(judgement.unit),
        "verdict": str(judgement.verdict),
        "value": judgement.value,
        "least": judgement.least,
        "normal": judgement.normal,
        "limit": judgement.limit,
        "why": judgement.explanation,
    }


def _absent(absence: Missing) -> dict[str, Any]:
    return {
        "part": str(absence.part),
        "verdict": str(absence.verdict),
        "text": absence.text,
        "host": absence.host,
        "where": absence.where,
        "slots": absence.slots,
        "expected": absence.expected,
        "found": absence.found,
        "remedy": absence.advice.do,
        "confirm": absence.advice.command,
    }


def _gates(compared: GateComparison) -> list[dict[str, Any]]:
    return [
        {
            "set": compared.gates.name,
            "measures": result.gate.measures,
            "at_least": result.gate.at_least,
            "source": result.gate.source,
            "verdict": str(result.verdict),
            "lowest": _value(result.lowest) if result.lowest else None,
            "expected": result.expected,
            "why": result.why,
            "remark": result.remark,
        }
        for result in compared.results
    ]
