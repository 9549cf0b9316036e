"""Text of ``wirespeed doctor``: possible causes with evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..facts import Fact
from ..judging.diagnosis import Diagnosis, Finding
from ..judging.verdicts import Check, Verdict
from ..units import format_size, many
from . import SIMULATED, Style
from ._console import heading, printed, warnings


def render(document: Document, found: Diagnosis, check: Check | None, style: Style) -> str:
    """Render a diagnosis of a Document as text; ``verbose`` includes all facts."""
    parts: list[RenderableType] = [heading(document)]
    if check is not None:
        parts += warnings(document)
        parts.append(Text(f"{check.verdict.upper()}  {many(found.slow, 'slow cell')}", style="bold"))
        for one in check.culprits:
            cells = many(len(one.cells), "cell")
            parts.append(Text(f"slow: {one.described} at {one.ratio:.0%} of expected ({cells})"))
    for finding in found.findings:
        parts += ["", *_finding(finding, found.slow)]
    parts.append("")
    parts.append(Text(_closing(found, check), style="bold"))
    if found.unreadable and not style.verbose:
        parts.append(
            Text(f"{many(len(found.unreadable), 'fact')} could not be read; -v shows all", style="dim")
        )
    if style.verbose:
        parts += [_facts(document.facts)] if document.facts else []
    if document.simulated:
        parts.append(Text(SIMULATED, style="bold magenta"))
    return printed(style, *parts)


def _finding(finding: Finding, slow: int) -> Iterator[RenderableType]:
    """Yield a finding: what, on which device, how it was found, and what to do."""
    cause = finding.cause
    line = Text("possible cause: " if finding.cells else "noticed: ", style="bold")
    line.append(cause.title, style="bold red" if finding.cells else "yellow")
    if finding.device:
        line.append(f" ({finding.device})")
    if finding.cells:
        line.append(f", may explain {finding.cells} of {many(slow, 'slow cell')}", style="default")
    yield line
    rows = Table.grid(padding=(0, 2))
    for name, text in (
        ("evidence", finding.evidence),
        ("to confirm", cause.confirm),
        ("remedy", cause.remedy),
        ("more", f"docs/doctor.md#{cause.name}"),
    ):
        rows.add_row(Text(name, style="dim"), Text(text))
    yield Padding(rows, (0, 0, 0, 2))


def _closing(found: Diagnosis, check: Check | None) -> str:
    """Return what is known in the end."""
    if not found.has_facts:
        return "this run has no facts about the system (it was simulated, or measured by an older version)"
    if found.unexplained:
        return f"no known cause for {found.unexplained} of {many(found.slow, 'slow cell')}"
    if found.slow:
        return "every slow cell has a possible cause; remove it and measure again"
    seen = many(len(found.findings), "finding") if found.findings else "nothing found"
    if check is None:
        return seen
    judged = check.verdict not in (Verdict.BUSY, Verdict.UNKNOWN)
    return f"{seen}; {'nothing is slow' if judged else 'no value could be judged'}"


def _facts(facts: tuple[Fact, ...]) -> RenderableType:
    """Return a table of all facts."""
    rows = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("device", "fact", "value"):
        rows.add_column(title)
    for fact in facts:
        rows.add_row(fact.device or "host", fact.name, _shown(fact))
    return rows


def _shown(fact: Fact) -> str:
    """Return the value of a fact for people."""
    if fact.value is None:
        return f"not readable: {fact.reason}"
    if isinstance(fact.value, tuple):
        return ", ".join(fact.value) or "none"
    if isinstance(fact.value, str):
        return fact.value
    if fact.unit == "B":
        return format_size(int(fact.value))
    return f"{fact.value:g} {fact.unit}".rstrip()
