"""The reason for a verdict in one sentence, for programs that show a single line."""

from __future__ import annotations

from collections.abc import Sequence

from ..document import Document
from ..judging.cause import Weight
from ..judging.diagnosis import Diagnosis
from ..judging.overview import overview
from ..judging.verdicts import Check
from ..units import many
from . import Judged


def reason(runs: Sequence[tuple[Document, Judged]]) -> tuple[str, str]:
    """Return the reason for the verdict on saved or measured runs, and the host that it is about.

    Parameters
    ----------
    runs : Sequence[tuple[Document, Judged]]
        The runs; at least one.
    """
    worst = min((judged.check.verdict for _, judged in runs), key=lambda one: one.rank)
    chosen = [(document, judged) for document, judged in runs if judged.check.verdict is worst]
    document, judged = chosen[0]
    text = overview(document, judged.check, judged.diagnosis).sentence
    host = host_of_run(document)
    if len(runs) == 1:
        return text, host
    return f"{len(chosen)} of {many(len(runs), 'run')}; {host}: {text}", ""


def host_of_run(document: Document) -> str:
    """Return the host that was measured; the name of the machine if the host is unknown."""
    return document.machine.host or document.host or document.machine.name


def reason_of_diagnosis(document: Document, check: Check, found: Diagnosis) -> str:
    """Return the first sentence about a machine that was diagnosed, measured or not."""
    defects = [one for one in found.findings if one.weight is Weight.DEFECT] or found.findings
    if document.testcases and not defects:
        return overview(document, check, found).sentence
    named = [str(one) for one in check.missing if one.verdict.is_bad]
    named += [f"{one.cause.title} ({one.where})" if one.where else one.cause.title for one in defects]
    return "; ".join(named) or "the system reports no defect; nothing was measured"
