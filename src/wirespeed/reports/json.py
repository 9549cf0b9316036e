"""JSON: the Document, or what ``wirespeed check`` found of it: verdicts, likely causes and gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ..document import Document
from ..judging.diagnosis import Finding
from ..judging.gate_verdicts import GateComparison
from ..judging.inventory import Missing
from ..judging.judgement import Judgement
from ..judging.omissions import left_out
from ..judging.verdict import Verdict
from ..results.many_files import Unreadable
from ..results.store import encode
from ..version import __version__
from .checked_runs import CheckedRun
from .signs import verification
from .style import Judged, Style

#: Version of the shape, which docs/reports.md describes.
_SHAPE = 1
#: Verdict of a file that cannot be read or judged.
UNREADABLE = "unreadable"


def render(document: Document, style: Style) -> str:
    """Return the complete Document; if it was checked, what was found of it."""
    return _listed([_run(document, style.judged)]) if style.judged else encode(document).decode()


def part(document: Document, style: Style) -> msgspec.Raw:
    """Return the entry of a checked run, encoded."""
    return msgspec.Raw(msgspec.json.encode(_run(document, style.judged))) if style.judged else msgspec.Raw()


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """Return the entries of several checked runs."""
    del style
    return _listed([*(run.part for run in runs), *map(_unreadable, unreadable)])


def _listed(runs: Sequence[Any]) -> str:
    """Return the entries of runs as one object."""
    entries = {"wirespeed_check": _SHAPE, "version": __version__, "runs": runs}
    return msgspec.json.format(msgspec.json.encode(entries), indent=1).decode() + "\n"


def _unreadable(file: Unreadable) -> dict[str, Any]:
    """Return the entry of a file that cannot be read or judged: that of a run that has nothing."""
    nothing: dict[str, Any] = {
        "host": "", "machine": "", "started": "", "simulated": False, "cells": {}, "testcases": {},
        "values": [], "places": [], "wrong": [], "doubts": [], "missing": [], "defects": [], "data": "",
        "left_out": {}, "baseline": None, "causes": [], "slow": 0, "unexplained": 0, "gates": [],
    }  # fmt: skip
    return {"file": file.file, "verdict": UNREADABLE, "error": file.why, **nothing}


def _run(document: Document, judged: Judged) -> dict[str, Any]:
    """Return the entry of a checked run."""
    check, diagnosis = judged.check, judged.diagnosis
    return {
        "file": judged.file,
        "error": None,
        "host": document.hostname,
        "machine": document.machine.name,
        "started": document.started,
        "simulated": document.simulated,
        "verdict": str(check.verdict),
        "cells": dict(Counter(str(one.verdict) for one in check.judgements if one.key.column)),
        "testcases": check.testcases,
        "values": [
            _value(one) for one in check.judgements if one.verdict not in (Verdict.PASS, Verdict.WAIVED)
        ],
        "places": [
            {
                "place": str(one),
                "suspects": [
                    {"kind": str(suspect.kind), "ends": suspect.ends, "one_way": suspect.one_way}
                    for suspect in one.suspects
                ],
                "ratio": one.ratio,
                "cells": len(one.cells),
            }
            for one in check.culprits
        ],
        "wrong": [
            {"text": str(one), "device": one.device, "paths": one.paths, "testcases": one.testcases}
            for one in check.wrong
        ],
        "doubts": check.doubts,
        "missing": [_absent(one) for one in check.missing],
        "defects": check.defects,
        "data": verification(document),
        "left_out": left_out(document),
        "baseline": vars(check.baseline) if check.baseline else None,
        "causes": [_cause(one) for one in diagnosis.findings],
        "slow": diagnosis.slow,
        "unexplained": diagnosis.unexplained,
        "gates": [gate for compared in judged.check.gates for gate in _gates(compared)],
    }


def _value(one: Judgement) -> dict[str, Any]:
    return {
        "testcase": one.key.testcase,
        "table": one.key.table,
        "row": one.key.row,
        "column": one.key.column,
        "unit": str(one.unit),
        "verdict": str(one.verdict),
        "value": one.value,
        "least": one.least,
        "normal": one.normal,
        "limit": one.limit,
        "why": one.explanation,
    }


def _absent(one: Missing) -> dict[str, Any]:
    return {
        "part": str(one.part),
        "verdict": str(one.verdict),
        "text": one.text,
        "host": one.host,
        "where": one.where,
        "slots": one.slots,
        "expected": one.expected,
        "found": one.found,
        "remedy": one.advice.do,
        "confirm": one.advice.command,
    }


def _cause(one: Finding) -> dict[str, Any]:
    return {
        "cause": one.cause.name,
        "title": one.cause.title,
        "host": one.host,
        "place": one.place,
        "likely": one.likely,
        "cells": one.cells,
        "factor": one.factor,
        "evidence": one.evidence,
        "others": [other.name for other in one.others],
        "next": one.next.name if one.next else None,
        "confirm": one.commands[0],
        "remedy": one.cause.remedy,
    }


def _gates(compared: GateComparison) -> list[dict[str, Any]]:
    return [
        {
            "set": compared.gates.name,
            "measures": one.gate.measures,
            "at_least": one.gate.at_least,
            "source": one.gate.source,
            "verdict": str(one.verdict),
            "lowest": _value(one.lowest) if one.lowest else None,
            "expected": one.expected,
            "why": one.why,
            "remark": one.remark,
        }
        for one in compared.results
    ]
