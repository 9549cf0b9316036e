"""Comparisons of runs in all formats. The text lists the cells that changed, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..document import Document
from ..judging.advice import Advice
from ..judging.judged import Judged
from ..judging.verdict import Verdict
from ..results.cells import model_of
from ..results.compare import Change, Comparison, Outcome
from ..results.read_many import Unreadable
from ..results.settings import gpus_of
from ..statistics import CONFIDENCE, grouped
from ..terminal import LONGEST_LINE, escaped, visible
from ..thresholds.changes import FALSE_CHANGES
from ..units import fitting, many, some
from ..version import __version__
from .changed_places import changed_places, percent
from .checked_runs import errors_of
from .console import further, hanging, listed, printed
from .explanations import explanations
from .junit import add_outcome, case_of, suite, suites
from .looks import SIGNS
from .markdown import escaped as literal
from .markdown import table_lines
from .records import picked, records
from .style import SIMULATED, Style
from .values import EXACT, GLANCE, number

#: Maximum number of reasons why cells were not compared, and of hosts named.
_REASONS, _HOSTS = 3, 3
#: What changed, the worst first.
CHANGED = (Outcome.LOST, Outcome.WORSE, Outcome.BETTER)
#: What is listed: also what may have changed.
LISTED = (*CHANGED, Outcome.UNKNOWN)
#: The conclusion in data, by verdict.
_CONCLUSIONS = {
    Verdict.FAIL: "worse", Verdict.WARN: "cannot tell", Verdict.PASS: "not worse",
    Verdict.NOT_JUDGED: "not compared",
}  # fmt: skip


def verdict_on(comparison: Comparison) -> Verdict:
    """Fail if a value got worse or was lost, warn if this is undecided; not judged if none was compared."""
    if comparison.regressed:
        return Verdict.FAIL
    if comparison.those(Outcome.UNKNOWN):
        return Verdict.WARN
    return Verdict.PASS if comparison.compared else Verdict.NOT_JUDGED


def side_of(documents: Sequence[Document]) -> str:
    """Hosts and times of the runs of a side."""
    hosts = sorted({document.hostname or "unknown host" for document in documents})
    times = sorted({document.started or document.origin for document in documents})
    if len(documents) == 1:
        return f"{hosts[0]}, {times[0]}"
    when = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"{len(documents)} runs of {some(hosts, _HOSTS)}, {when}"


def remarks(documents: Sequence[Document]) -> Iterator[str]:
    """Conditions that may explain low values, and interruptions; of several runs with their number."""
    counts = Counter(f"warning: {text}" for document in documents for text in explanations(document))
    interruptions = filter(None, (document.interrupted for document in documents))
    counts.update(f"run interrupted: {reason}" for reason in interruptions)
    for text, runs in counts.items():
        yield text if len(documents) == 1 else f"{text} ({runs} of {len(documents)} runs)"


def pairing(comparison: Comparison) -> Iterator[str]:
    """That the machines differ, which hosts were compared with themselves, and which were not compared."""
    machines = [[run.machine for run in side] for side in (comparison.before, comparison.after)]
    models = [{model_of(machine) for machine in side} for side in machines]
    if models[0].isdisjoint(models[1]):
        brief = [{gpus_of(machine) or machine.cpu for machine in side} for side in machines]
        shown = brief if brief[0] != brief[1] else models
        first, second = (" or ".join(sorted(side)[:_HOSTS]) for side in shown)
        yield f"comparing different machines: {first} with {second}; changes do not indicate a fault"
    if comparison.hosts:
        yield f"{len(comparison.hosts)} hosts, each compared with itself"
    if comparison.unmatched:
        yield f"not compared, runs on one side only: {some(comparison.unmatched, _HOSTS)}"


def not_compared(comparison: Comparison) -> str:
    """How many cells were not compared, and why; empty for none."""
    busy = comparison.those(Outcome.BUSY)
    if not busy:
        return ""
    why = dict.fromkeys(change.reason for change in busy)
    more = f" and {many(len(why) - _REASONS, 'other reason')}" if len(why) > _REASONS else ""
    text = f"{many(len(busy), 'value')} not compared: {', '.join(list(why)[:_REASONS])}{more}"
    return f"{text}; --ignore-busy compares them"


def doubts(comparison: Comparison) -> Iterator[str]:
    """How many cells are undecided, and why."""
    for why, changes in grouped((one.reason, one) for one in comparison.those(Outcome.UNKNOWN)).items():
        widest = max(changes, key=lambda change: change.half_width)
        width = f" ±{widest.half_width:.0%}" if widest.interval else ""
        place = f"{widest.key.testcase} {widest.key.place}".rstrip()
        yield f"{many(len(changes), 'value')} undecided: {why} ({place}{width})"


def remarks_on(comparison: Comparison) -> list[str]:
    """Which machines were compared, what was not, and what is undecided."""
    texts = (*pairing(comparison), not_compared(comparison), *doubts(comparison))
    return [text for text in texts if text]


def notes(comparison: Comparison) -> Iterator[str]:
    """What a change is, and what the comparison cannot see."""
    if not comparison.compared:
        return
    yield (
        f"significant changes of {100 * comparison.least:.3g}% or more (false discovery rate at most "
        f"{FALSE_CHANGES:.0%}), with {CONFIDENCE:.0%} confidence intervals"
    )
    if comparison.weak:
        yield (
            f"{many(comparison.weak, 'value')} from single-round runs: run-to-run variation is assumed; "
            "compare several runs to measure it"
        )


def counted(comparison: Comparison, unreadable: Sequence[Unreadable]) -> str:
    """The number of values with each outcome, and of files that cannot be read."""
    counts = Counter(change.outcome for change in comparison.changes)
    text = "values: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return text + (f" · {many(len(unreadable), 'file')} unreadable" if unreadable else "")


def values_of(change: Change, digits: int = EXACT) -> str:
    """Both values of a cell."""
    scale, unit = fitting(change.unit, [value for value in (change.before, change.after) if value])
    before, after = (
        number(value, scale, digits) if value else "n/a" for value in (change.before, change.after)
    )
    return f"{before} → {after} {unit}"


def difference(change: Change) -> str:
    """The relative difference of both values; empty if one is missing."""
    return percent(change.ratio - 1) if change.before and change.after else ""


def moved(change: Change) -> str:
    """Both values of a cell, their relative difference and its interval, and the number of values."""
    text = values_of(change)
    if change.before and change.after:
        text += f", {change.ratio - 1:+.1%}"
    if change.interval:
        low, high = (100 * (bound - 1) for bound in change.interval)
        text += f" ({low:+.1f} to {high:+.1f}%)"
    if change.hosts:
        named = ", ".join(f"{host.host} {host.ratio - 1:+.1%}" for host in change.hosts[:_HOSTS])
        more = len(change.hosts) - _HOSTS
        text += f"; only on {named}" + (f" and {many(more, 'more host')}" if more > 0 else "")
    if max(change.runs) > 1:
        text += f", {change.runs[0]} → {change.runs[1]} runs"
    return text


#: Version of the shape of JSON, which docs/reports.md describes.
_SHAPE = 1
#: Maximum number of changes that Markdown and a case of JUnit list; ``verbose`` lists all in Markdown.
_LISTED = 40


def json(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """One JSON object, whose fields docs/reports.md describes."""
    recorded = records(comparison)
    content = {
        "wirespeed_compare": _SHAPE,
        "version": __version__,
        **picked(
            comparison,
            "simulated least false_changes before after unreadable hosts unmatched differences cells "
            "compared weak uncertain regressed conclusion",
            false_changes=FALSE_CHANGES,
            before=[_run(document) for document in comparison.before],
            after=[_run(document) for document in comparison.after],
            unreadable=[{"file": file.file, "error": file.why} for file in unreadable],
            differences=[vars(difference) for difference in comparison.differences],
            cells=dict(Counter(str(change.outcome) for change in comparison.changes)),
            uncertain=len(comparison.those(Outcome.UNKNOWN)),
            conclusion=_CONCLUSIONS[verdict_on(comparison)],
        ),
        "changes": [
            {name: row.get(name) for name in recorded.columns}
            | {"hosts": [{"host": host.host, "ratio": host.ratio} for host in change.hosts]}
            for row, change in zip(recorded.rows, comparison.changes, strict=True)
        ],
    }
    return escaped(msgspec.json.format(msgspec.json.encode(content), indent=1).decode()) + "\n"


def markdown(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """A table of the changes, the worst first; ``verbose`` lists all."""
    return visible("\n".join(_markdown(comparison, style, unreadable)) + "\n")


def junit(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """One suite with a case for each testcase, and one for each unreadable file.

    A case is a failure if a value got worse or was lost, and is skipped if a value is undecided.
    """
    elements = []
    for name, changes in grouped((change.key.testcase, change) for change in comparison.changes).items():
        case = case_of(name, "compare")
        lines = [
            f"{change.outcome}: {change.key.place}: {moved(change)} {change.reason}".rstrip()
            for change in changes if change.outcome in (Outcome.LOST, Outcome.WORSE)
        ]  # fmt: skip
        if lines:
            add_outcome(case, "failure", *lines, most=_LISTED)
        elif all(change.outcome in (Outcome.BUSY, Outcome.ADDED) for change in changes):
            add_outcome(case, "skipped", changes[0].reason or "no value before")
        elif unknown := [change for change in changes if change.outcome is Outcome.UNKNOWN]:
            why = dict.fromkeys(f"{change.outcome}: {change.reason}" for change in unknown)
            add_outcome(case, "skipped", *why, most=_LISTED)
        elif comparison.simulated:
            add_outcome(case, "skipped", SIMULATED)
        elements.append(case)
    entries = [("before", side_of(comparison.before)), ("after", side_of(comparison.after))]
    entries += [("differs", str(difference)) for difference in comparison.differences]
    entries += [("note", text) for text in (*remarks_on(comparison), *notes(comparison))]
    whole = suite("wirespeed compare", elements, [*entries, ("cells", counted(comparison, ()))])
    return visible(suites([whole], unreadable))


def _run(document: Document) -> dict[str, Any]:
    return picked(
        document, "host machine started origin interrupted simulated",
        host=document.hostname, machine=document.machine.name,
    )  # fmt: skip


def _markdown(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable]) -> Iterator[str]:
    yield "# wirespeed: comparison"
    if comparison.simulated:
        yield from ("", f"**{SIMULATED}**")
    yield ""
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        yield f"- {name}: {literal(side_of(side))}"
        yield from (f"- {name}: **{literal(text)}**" for text in remarks(side))
    yield from (f"- **unreadable**: {literal(str(file))}" for file in unreadable)
    yield from (f"- {literal(text)}" for text in remarks_on(comparison))
    yield from (f"- differs: {literal(str(difference))}" for difference in comparison.differences)
    yield from ("", f"**{counted(comparison, unreadable)}**")
    if changed := comparison.those(*LISTED):
        shown = changed if style.verbose else changed[:_LISTED]
        rows = ([one.outcome, one.key.testcase, one.key.place, moved(one), one.reason] for one in shown)
        yield from ("", *table_lines(["outcome", "testcase", "cell", "change", "reason"], rows))
        if len(changed) > len(shown):
            yield from ("", f"{many(len(changed) - len(shown), 'more change')}; -v lists all")
    yield ""
    yield from (f"{literal(text)}  " for text in notes(comparison))


def sentence(comparison: Comparison) -> str:
    """What changed, and where; the worst first."""
    verdict = verdict_on(comparison)
    if verdict is Verdict.NOT_JUDGED:
        return "nothing was compared"
    places = list(changed_places(comparison))
    bad = [place for place in places if place.outcome in (Outcome.WORSE, Outcome.LOST)]
    if not bad and verdict is Verdict.WARN:
        return f"cannot tell whether {many(len(comparison.those(Outcome.UNKNOWN)), 'value')} changed"
    if not places:
        return "nothing got slower"
    first, *more = bad or places
    values = f"{first.name}: {many(first.values, 'value')} {_HOW[first.outcome]}"
    values += f", median {first.median.replace('-', '−')}" if first.median else ""
    values += f"; {many(len(more), 'more place')}" if more else ""
    return values if bad else f"nothing got slower; {values}"


_HOW = {Outcome.WORSE: "slower", Outcome.BETTER: "faster", Outcome.LOST: "lost"}


def likely_cause(comparison: Comparison) -> tuple[str, Advice]:
    """The likely cause of what got worse, by the readings of the first run after, and what to do about it."""
    if not comparison.regressed:
        return "", Advice()
    seen = Judged(comparison.after[0]).overview
    title = seen.finding.cause.title if seen.finding and seen.finding.cells else ""
    return title, seen.advice if seen.verdict.is_bad else Advice()


#: Maximum number of changes and of differences shown; ``verbose`` shows all.
_SHOWN, _DIFFERENCES = 10, 8


def text(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a Comparison as text: verdict, device and cause, then the worst changes.

    ``verbose`` includes all of them, with their intervals.
    """
    parts: list[RenderableType] = []
    if comparison.simulated:
        parts.append(Text(SIMULATED, style="bold magenta"))
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        parts.append(Text(f"{name}: {side_of(side)}"))
        parts += listed(list(remarks(side)), "more warning", style, "bold yellow")
    parts += [Text(f"unreadable: {text}", style="bold red") for text in errors_of(unreadable)]
    parts += [Text(text, style="yellow") for text in pairing(comparison)]
    differing = [f"differs: {difference}" for difference in comparison.differences]
    parts += listed(differing, "more difference", style, "cyan", _DIFFERENCES)
    if busy := not_compared(comparison):
        parts.append(Text(busy, style="bold yellow"))
    verdict = verdict_on(comparison)
    word = Text(verdict.heading, style=SIGNS[verdict].style)
    counts = Padding(Text(counted(comparison, unreadable), style="dim"), (0, 0, 0, len(word) + 2))
    parts += ["", hanging(word, Text(sentence(comparison), style="bold")), counts]
    cause, advice = likely_cause(comparison)
    steps = (("likely cause", cause), ("remedy", advice.do), ("confirm", advice.command))
    if known := [(name, text) for name, text in steps if text]:
        grid = Table.grid(padding=(0, 2))
        for name, text in known:
            grid.add_row(Text(name, style="dim"), Text(text))
        parts.append(Padding(grid, (0, 0, 0, 2)))
    changed = comparison.those(*(LISTED if style.verbose else CHANGED))
    parts += ["", *_changes(changed, style)] if changed else []
    parts += [] if style.verbose else further(len(changed) - _SHOWN, "more change")
    parts += [Text(text, style="yellow") for text in doubts(comparison)]
    parts += ["", *(Text(text, style="dim") for text in notes(comparison))]
    return printed(style, *parts, longest=LONGEST_LINE)


def _changes(changed: Sequence[Change], style: Style) -> Iterator[RenderableType]:
    """A line for each change: its value before and after; ``verbose``: with interval and reason."""
    if style.verbose:
        for change in changed:
            line = Text(f"{change.outcome:<11} ", style=SIGNS[change.outcome].style)
            reason = f" ({change.reason})" if change.reason else ""
            yield line.append(f"{change.key.testcase} {change.key.place}: {moved(change)}{reason}", "default")
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    for column in ("left", "left", "right", "right"):
        grid.add_column(justify=column, overflow="fold")
    for change in changed[:_SHOWN]:
        look = SIGNS[change.outcome]
        name = f"{change.key.testcase} {change.key.place}".rstrip()
        text = difference(change).replace("-", "−") or change.reason
        hosts = f" on {', '.join(host.host for host in change.hosts[:_HOSTS])}" if change.hosts else ""
        grid.add_row(Text(look.mark, look.style), name + hosts, values_of(change, GLANCE), text)
    yield grid


def html(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """A page that works offline; its module uses the texts of this one and is loaded when it is chosen."""
    page: str = import_module(f"{__package__}.html.page").page_of_sides(comparison, unreadable)
    return visible(page)


#: Formats of comparisons, by name.
FORMATS = {"text": text, "json": json, "markdown": markdown,
           "junit": junit, "html": html}  # fmt: skip
