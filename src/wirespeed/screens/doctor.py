"""Text of ``wirespeed doctor``: possible causes with evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document, Status
from ..hardware.facts import Fact, Facts
from ..judging.adaptive import Step
from ..judging.cause import facts_of
from ..judging.judged import Judged
from ..judging.omissions import measurable
from ..judging.verdict import Verdict
from ..reports import SIMULATED, Style
from ..reports.console import heading, printed, warnings
from ..reports.findings import SIGNS, FindingView, explanations, views
from ..units import GB, format_size, format_time, many
from .help import HELP, linked

#: Maximum number of testcases whose names are shown.
_MOST_NAMED = 8


def render(judged: Judged, style: Style, steps: Sequence[Step] = ()) -> str:
    """Render a diagnosis of a Document as text; ``verbose`` includes all facts.

    Args:
        judged: The run.
        style: Width, colour and verbosity.
        steps: What was measured and why, if the diagnosis required it.
    """
    document, check, diagnosis = judged.document, judged.check, judged.diagnosis
    parts: list[RenderableType] = [heading(document)]
    parts += [
        Text(f"{'note' if absence.verdict is Verdict.WAIVED else 'missing'}: {absence}", "bold")
        for absence in check.missing
    ]
    parts += warnings(explanations(document), style)
    if document.testcases:
        parts += _measured(document, steps)
    verdict = judged.concluded
    slow = many(diagnosis.slow, "slow value") if document.testcases else "nothing was measured"
    parts.append(Text(f"{verdict.word.upper()}  {slow}", style=SIGNS[verdict].style))
    for culprit in check.culprits:
        cells = many(len(culprit.cells), "value")
        parts.append(Text(f"slow: {culprit} at {culprit.share} ({cells})"))
    for view in views(diagnosis):
        parts += ["", named(view), details(view)]
    parts.append("")
    parts.append(Text(_closing(judged), style="bold"))
    if diagnosis.unreadable and not style.verbose:
        parts.append(
            Text(f"{many(len(diagnosis.unreadable), 'reading')} could not be read; -v shows all", style="dim")
        )
    if style.verbose:
        parts += [_facts(facts_of(document))] if document.facts else []
    if document.simulated:
        parts.append(Text(SIMULATED, style="bold magenta"))
    return printed(style, *parts)


def _measured(document: Document, steps: Sequence[Step]) -> Iterator[RenderableType]:
    """What was measured, and why."""
    waived = {result.name for result in document.testcases if result.status is Status.WAIVED}
    possible = sum(case.name not in waived for case in measurable(document))
    for step in steps:
        names = [case.name for case in step.testcases if case.name not in waived]
        line = f"measured {len(names)} of {many(possible, 'testcase')}, {step.why}"
        yield Text(line + (f": {', '.join(names)}" if len(names) <= _MOST_NAMED else ""), style="dim")


def named(view: FindingView) -> Text:
    """A line that names a cause, and how many slow values it explains."""
    finding = view.finding
    line = Text(f"{view.certainty}: ", style="bold")
    line.append(finding.cause.title, style="bold red" if view.is_explaining else "yellow")
    if finding.where:
        line.append(f" ({finding.where})")
    if view.share:
        line.append(f", {view.share}", style="default")
    return line


def details(view: FindingView, *, briefly: bool = False) -> RenderableType:
    """How a cause was found, how to confirm it, and what to do; ``briefly``: not what it predicts."""
    lines = [(line.name, line.text) for line in view.details if not (briefly and line.name == "predicted")]
    return Padding(rows([*lines, ("more", f"{HELP} {view.finding.cause.name}")]), (0, 0, 0, 2))


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
    seen = many(count, "finding") if count else "nothing found"
    if not document.testcases:
        return seen
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
