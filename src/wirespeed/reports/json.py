"""JSON: the Document, or what ``wirespeed check`` found of it: verdicts, likely causes and gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ..judging.judged import Judged
from ..judging.omissions import left_out
from ..judging.verdict import Judgement, Verdict
from ..results.read_many import Unreadable
from ..results.store import encode
from ..version import __version__
from .checked_runs import CheckedRun
from .records import picked
from .style import Style
from .testcase_texts import verification

#: Version of the shape, which docs/reference/keys.md describes.
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
    return msgspec.Raw(msgspec.json.encode(_run(judged)))


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """One object with the entries of several checked runs."""
    return _listed([*(run.part for run in runs), *map(_unreadable, unreadable)])


def _listed(runs: Sequence[Any]) -> str:
    entries = {"wirespeed_check": _SHAPE, "version": __version__, "runs": runs}
    return msgspec.json.format(msgspec.json.encode(entries), indent=1).decode() + "\n"


def _unreadable(file: Unreadable) -> dict[str, Any]:
    """The entry of a file that cannot be read or judged: that of a run that has nothing."""
    nothing: dict[str, Any] = {
        "host": "", "machine": "", "started": "", "simulated": False, "sentence": "", "remedy": "",
        "cells": {}, "testcases": {}, "paths": [], "values": [], "places": [], "wrong": [], "doubts": [],
        "uncovered": [], "missing": [], "defects": [],
        "data": "", "left_out": {}, "baseline": None, "lacking": [],
        "causes": [], "slow": 0, "unexplained": 0, "gates": [],
    }  # fmt: skip
    return {"file": file.file, "verdict": UNREADABLE, "error": file.why, **nothing}


def _run(judged: Judged) -> dict[str, Any]:
    document, check, seen = judged.document, judged.check, judged.overview
    return {
        "file": judged.file,
        "error": None,
        **picked(
            document, "host machine started simulated", host=document.hostname, machine=document.machine.name
        ),
        "verdict": check.verdict,
        "sentence": seen.sentence,
        "remedy": seen.advice.do,
        "cells": dict(Counter(str(cell.verdict) for cell in check.judgements if cell.key.column)),
        "testcases": check.testcases,
        "paths": [
            picked(
                figure, "path title verdict where failed value least normal limit unit typical",
                path=figure.kind.name, where=figure.place, typical=figure.typical.value,
                **picked(figure.lead, "value least normal limit unit"),
            )
            for figure in seen.figures
        ],
        "values": [
            _value(judgement)
            for judgement in check.judgements
            if judgement.verdict not in (Verdict.PASS, Verdict.WAIVED)
        ],
        "places": [
            {
                "place": str(culprit),
                "suspects": [vars(suspect) for suspect in culprit.suspects],
                "ratio": culprit.ratio,
                "cells": len(culprit.cells),
            }
            for culprit in check.culprits
        ],
        "wrong": [picked(fault, "text device paths testcases", text=str(fault)) for fault in check.wrong],
        "doubts": check.doubts,
        "uncovered": [
            picked(lost, "kind devices verdict why", kind=lost.kind.name) for lost in check.uncovered
        ],
        "missing": [
            picked(
                absence, "part verdict text host where slots expected found remedy confirm",
                remedy=absence.advice.do, confirm=absence.advice.command,
            )
            for absence in check.missing
        ],
        "defects": check.defects,
        "data": verification(document),
        "left_out": left_out(document),
        "baseline": vars(check.baseline) if check.baseline else None,
        "lacking": judged.by.lacking,
        "causes": [{name: found.data[name] for name in _OF_CAUSES} for found in judged.diagnosis.findings],
        **picked(judged.diagnosis, "slow unexplained"),
        "gates": [
            picked(
                result, "set measures at_least source verdict lowest expected why remark",
                set=compared.gates.name, verdict=result.word,
                lowest=_value(result.lowest) if result.lowest else None,
                **picked(result.gate, "measures at_least source"),
            )
            for compared in check.gates
            for result in compared.results
        ],
    }  # fmt: skip


def _value(judgement: Judgement) -> dict[str, Any]:
    return picked(
        judgement, "testcase table row column unit verdict value least normal limit why",
        why=judgement.explanation, **picked(judgement.key, "testcase table row column"),
    )  # fmt: skip
