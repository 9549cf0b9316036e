"""The reason for a verdict on one run or several in one sentence, for programs that show a single line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..data.causes import Weight
from ..document import Document
from ..judging.judged import Judged
from ..judging.key_figures import KeyFigure
from ..judging.run_summary import OF_RUNS, RunSummary, labels
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..units import GB, many


class Brief(NamedTuple):
    """The answer about one run or several, for programs that show a single line.

    Attributes:
        reason: The reason for the verdict.
        subject: The host, or how many of the runs have the verdict; empty for this host.
        remedy: What to do; empty if there is nothing to do.
        figures: Key figures, as plugins of Nagios print them.
    """

    reason: str
    subject: str
    remedy: str = ""
    figures: tuple[str, ...] = ()


def brief_of_run(judged: Judged) -> Brief:
    """The answer about a run: its first sentence."""
    seen = judged.overview
    figures = tuple(_performance(figure) for figure in seen.figures)
    return Brief(seen.sentence, host_of_run(judged.document), seen.advice.do, figures)


def _performance(figure: KeyFigure) -> str:
    """A key figure as ``gpu_gpu=276GB/s;;249:;0;300``: critical below the second, at most the last."""
    lead = figure.lead
    value, least, limit = (
        "" if rate is None else f"{rate / GB:.4g}"
        for rate in (None if figure.failed else lead.value, lead.least, lead.limit)
    )
    return f"{figure.kind.name}={value or 'U'}GB/s;;{least}{':' if least else ''};0;{limit}"


def brief_of_runs(nodes: Sequence[RunSummary], unreadable: Sequence[Unreadable] = ()) -> Brief:
    """The answer about several runs: which have the worst verdict, by cause, and files without one."""
    lost = f"cannot be judged: {unreadable[0]}" if unreadable else ""
    files = f"{len(unreadable)} of {many(len(nodes) + len(unreadable), 'file')}"
    counts = Counter(node.verdict for node in nodes)
    figures = [f"{verdict.word.replace(' ', '_')}={counts[verdict]};;;0" for verdict in OF_RUNS]
    figures = [f"runs={len(nodes)};;;0", *figures, f"unreadable={len(unreadable)};;;0"]
    if not nodes:
        return Brief(f"{files} {lost}", "", "", tuple(figures))
    ordered = sorted(nodes, key=lambda node: node.order)
    labelled = [
        pair for pair in zip(ordered, labels(ordered), strict=True) if pair[0].verdict is ordered[0].verdict
    ]
    causes = grouped((node.sentence, label) for node, label in labelled)
    named = "; ".join(f"{', '.join(names)}: {sentence}" for sentence, names in causes.items())
    if ordered[0].passes:
        named = next(iter(causes)) if len(causes) == 1 else "pass"
    subject = f"{len(labelled)} of {many(len(nodes), 'run')}"
    if lost and not ordered[0].verdict.is_failure:
        subject, named = "", f"{files} {lost}; {subject}: {named}"
    elif lost:
        named += f"; {files} {lost}"
    return Brief(named, subject, ordered[0].step, tuple(figures))


def host_of_run(document: Document) -> str:
    """The host that was measured; the name of the machine if the host is unknown."""
    return document.hostname or document.machine.name


def brief_of_diagnosis(judged: Judged) -> Brief:
    """The answer about a machine that was diagnosed, measured or not."""
    check, known = judged.check, judged.diagnosis.findings
    defects = [finding for finding in known if finding.weight is Weight.DEFECT] or known
    if check.verdict.is_failure or (judged.document.testcases and not defects):
        return brief_of_run(judged)
    named = [str(absence) for absence in check.missing if absence.verdict.is_bad]
    named += [finding.title for finding in defects]
    sentence = "; ".join(named) or "the system reports no defect; nothing was measured"
    return Brief(sentence, host_of_run(judged.document), defects[0].cause.remedy if defects else "")
