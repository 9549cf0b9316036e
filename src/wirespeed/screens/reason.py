"""The reason for a verdict in one sentence, for programs that show a single line."""

from __future__ import annotations

from collections.abc import Sequence

from ..document import Document
from ..judging.cause import Weight
from ..judging.diagnosis import Diagnosis
from ..judging.fleet import FleetNode
from ..judging.overview import overview
from ..judging.verdicts import Check
from ..reports.findings import views
from ..units import many


def reason(document: Document, check: Check, diagnosis: Diagnosis) -> str:
    """The first sentence about a run."""
    return overview(document, check, diagnosis).sentence


def reason_of_nodes(nodes: Sequence[FleetNode]) -> str:
    """How many of several runs have the worst verdict, and why the first of them has it."""
    if not nodes:
        return "no run could be read"
    worst = min(nodes, key=lambda node: node.order)
    count = sum(node.word == worst.word for node in nodes)
    return f"{count} of {many(len(nodes), 'run')}; {worst.host}: {worst.sentence}"


def host_of_run(document: Document) -> str:
    """The host that was measured; the name of the machine if the host is unknown."""
    return document.hostname or document.machine.name


def reason_of_diagnosis(document: Document, check: Check, diagnosis: Diagnosis) -> str:
    """The first sentence about a machine that was diagnosed, measured or not."""
    known = views(diagnosis)
    defects = [view for view in known if view.finding.weight is Weight.DEFECT] or known
    if check.verdict.is_failure or (document.testcases and not defects):
        return reason(document, check, diagnosis)
    named = [str(absence) for absence in check.missing if absence.verdict.is_bad]
    named += [view.title for view in defects]
    return "; ".join(named) or "the system reports no defect; nothing was measured"
