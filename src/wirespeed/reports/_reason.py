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


def reason(runs: Sequence[tuple[Document, Judged]], worst: Sequence[bool]) -> tuple[str, str]:
    """Return the reason for the verdict on saved or measured runs, and the host that it is about.

    Parameters
    ----------
    runs : Sequence[tuple[Document, Judged]]
        The runs; at least one.
    worst : Sequence[bool]
        Whether a run has the verdict of all of them together; true for at least one.
    """
    chosen = [run for run, is_worst in zip(runs, worst, strict=True) if is_worst]
    document, judged = chosen[0]
    host = host_of_run(document)
    text = _of_run(document, judged)
    if len(runs) == 1:
        return text, host
    return f"{len(chosen)} of {many(len(runs), 'run')}; {host}: {text}", ""


def host_of_run(document: Document) -> str:
    """Return the host that was measured; the name of the machine if the host is unknown."""
    return document.machine.host or document.host or document.machine.name


def _of_run(document: Document, judged: Judged) -> str:
    """Return the first sentence about a run, with the gates that failed."""
    failed = [f"{one.failed} of {one.gates.name}" for one in judged.gates if one.failed]
    gates = [f"gates failed: {', '.join(failed)}"] if failed else []
    return "; ".join([*gates, overview(document, judged.check, judged.diagnosis).sentence])


def reason_of_diagnosis(document: Document, check: Check | None, found: Diagnosis) -> str:
    """Return the first sentence about a machine that was diagnosed, measured or not."""
    defects = [one for one in found.findings if one.weight is Weight.DEFECT]
    if check is not None and not defects:
        return overview(document, check, found).sentence
    named = [f"{one.cause.title} ({one.where})" if one.where else one.cause.title for one in defects]
    return "; ".join(named) or "the system reports no defect; nothing was measured"
