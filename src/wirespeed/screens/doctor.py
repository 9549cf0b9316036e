"""Text of ``wirespeed check --explain``: possible causes with evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document, Status
from ..hardware.facts import Fact, Facts
from ..judging.causes.run_facts import facts_of
from ..judging.explain_steps import Step
from ..judging.finding import Finding
from ..judging.judged import Judged
from ..judging.omissions import measurable
from ..judging.verdict import Verdict
from ..reports import Style
from ..reports.check_texts import culprit_text
from ..reports.checked_runs import CheckedRun
from ..reports.console import hanging, heading, printed, warnings
from ..reports.explanations import explanations
from ..reports.looks import SIGNS
from ..results.read_many import Unreadable
from ..terminal import one_line
from ..units import GB, format_size, format_time, many
from .documentation import HELP, linked

#: Maximum number of testcases whose names are shown, and of readings of a log: those of eight GPUs.
_MOST_NAMED, _MOST_READINGS = 8, 32
#: How lines about what is missing begin, if it is not sure that it is.
_LEADS = {Verdict.WARN: "warning", Verdict.WAIVED: "note"}


def render(judged: Judged, style: Style, steps: Sequence[Step] = ()) -> str:
    """The diagnosis of a run as text; ``verbose`` includes all readings.

    Args:
        judged: The run.
        style: Width, colour and verbosity.
        steps: What was measured and why, if the diagnosis required it.
    """
    document, check, diagnosis = judged.document, judged.check, judged.diagnosis
    parts: list[RenderableType] = [heading(document, style.settings)]
    verdict, summary = check.verdict, judged.overview
    #: What is wrong if neither slow values nor a finding below say it.
    wrong = verdict.is_bad and document.testcases and not diagnosis.slow and not summary.by_finding
    sentence = summary.sentence if wrong else ""
    parts += [
        Text(f"{_LEADS.get(absence.verdict, 'missing')}: {absence}", "bold")
        for absence in check.missing
        if str(absence) not in sentence
    ]
    parts += warnings(explanations(document, lacking=()), style)
    if document.testcases:
        parts += _measured(document, steps)
    slow = many(diagnosis.slow, "slow value") if document.testcases else "nothing was measured"
    sign = SIGNS[verdict].style
    parts.append(hanging(Text(verdict.heading, sign), Text(sentence or slow, sign)))
    advice = (("remedy", summary.advice.do), ("confirm", summary.advice.command))
    steps_then = [(name, text) for name, text in advice if text and sentence]
    parts += [Padding(rows(steps_then), (0, 0, 0, 2))] if steps_then else []
    parts += [Text(f"slow: {culprit_text(culprit)}") for culprit in check.culprits]
    for finding in diagnosis.findings:
        parts += ["", named(finding), details(finding)]
    parts.append("")
    parts.append(Text(_closing(judged), style="bold"))
    if diagnosis.unreadable and not style.verbose:
        count = many(len(diagnosis.unreadable), "reading")
        parts.append(Text(f"{count} could not be read; -v shows all", style="dim"))
    is_short = document.imported and len(document.facts) <= _MOST_READINGS  # what NCCL or a topology says
    if document.facts and (style.verbose or is_short):
        parts.append(_facts(facts_of(document)))
    elif document.imported and document.facts:
        parts.append(Text(f"{many(len(document.facts), 'reading')}; -v shows all", style="dim"))
    return printed(style, *parts)


def part(judged: Judged, style: Style) -> str:
    """What a run adds to the text of several."""
    return render(judged, style)


def joined(runs: Sequence[CheckedRun], _: Sequence[Unreadable], style: Style) -> str:
    """The diagnoses of several runs, each after its file."""
    return "\n".join(f"{one_line(run.node.file)}:\n{run.part}" for run in runs)


def _measured(document: Document, steps: Sequence[Step]) -> Iterator[RenderableType]:
    """What was measured, and why."""
    waived = {result.name for result in document.testcases if result.status is Status.WAIVED}
    measured = {result.name for result in document.testcases} - waived
    possible = sum(case.name not in waived for case in measurable(document))
    for step in steps:
        names = [case.name for case in step.testcases if case.name in measured]
        line = f"measured {len(names)} of {many(possible, 'testcase')}, {step.why}"
        yield Text(line + (f": {', '.join(names)}" if len(names) <= _MOST_NAMED else ""), style="dim")


def named(finding: Finding) -> Text:
    """A line that names a cause, and how many slow values it explains."""
    line = Text(f"{finding.certainty}: ", style="bold")
    line.append(finding.cause.title, style="bold red" if finding.is_explaining else "yellow")
    if finding.where:
        line.append(f" ({finding.where})")
    if finding.explains:
        line.append(f", {finding.explains}", style="default")
    return line


def details(finding: Finding, *, briefly: bool = False) -> RenderableType:
    """How a cause was found, how to confirm it, and what to do; ``briefly``: not what it predicts."""
    lines = [line for line in finding.details if not (briefly and line[0] == "predicted")]
    return Padding(rows([*lines, ("more", f"{HELP} {finding.cause.name}")]), (0, 0, 0, 2))


def rows(named: Iterable[tuple[str, str]]) -> RenderableType:
    """A table of texts after their names; topics of the documentation are links."""
    table = Table.grid(padding=(0, 2))
    for name, text in named:
        table.add_row(Text(name, style="dim"), linked(text))
    return table


def _closing(judged: Judged) -> str:
    document, diagnosis, check = judged.document, judged.diagnosis, judged.check
    if not diagnosis.has_facts and document.imported:
        return "this run has no readings of the system: it is a log of another tool"
    if not diagnosis.has_facts:
        return "this run has no readings of the system (it was simulated, or measured by an older version)"
    if diagnosis.unexplained:
        what = f"; what is slow: {', '.join(map(str, check.culprits))}" if check.culprits else ""
        return f"no known cause for {diagnosis.unexplained} of {many(diagnosis.slow, 'slow value')}{what}"
    if diagnosis.slow:
        return "every slow value has a possible cause; fix the cause and run again"
    count = len(diagnosis.findings) + sum(absence.verdict is not Verdict.WAIVED for absence in check.missing)
    if not document.testcases:
        return many(count, "finding") if count else "the readings show no defect; this is not a pass"
    seen = many(count, "finding") if count else "nothing found"
    if check.verdict.is_bad:
        return f"{f'{seen}; ' if count else ''}{judged.overview.extent}"
    any_judged = any(judgement.verdict.is_judged for judgement in check.judgements)
    return f"{seen}; {'nothing is slow' if any_judged else 'no value could be judged'}"


def _facts(facts: Facts) -> RenderableType:
    """A table of all facts, by host."""
    rows = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("device", "reading", "value"):
        rows.add_column(title)
    for of_host in facts.of_each_host:
        for fact in of_host:
            rows.add_row(": ".join(filter(None, (fact.host, fact.device))) or "host", fact.name, _shown(fact))
    return rows


def _shown(fact: Fact) -> str:
    if fact.value is None:
        return f"not readable: {fact.reason}"
    if isinstance(fact.value, tuple):
        return ", ".join(fact.value) or "none"
    if isinstance(fact.value, str):
        return fact.value
    if fact.unit == "B":
        return format_size(int(fact.value))
    if fact.unit == "B/s":
        return f"{fact.value / GB:.4g} GB/s"
    if fact.unit == "s" and 0 < fact.value < 1:
        return format_time(fact.value)
    return f"{fact.value:g} {fact.unit}".rstrip()
