"""Formats of ``wirespeed compare``, and the texts that all of them share."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..document import Document
from ..results.cells import gpus_of, model_of
from ..results.compare import UNCERTAIN, Change, Comparison, Outcome, Unreadable
from ..results.evidence import FALSE_CHANGES
from ..statistics import CONFIDENCE
from ..terminal import escaped, visible
from ..units import fitting, many
from ..version import __version__
from .findings import EXACT, explanations, number
from .junit import add_outcome, case_of, suite, suites
from .markdown import escaped as literal
from .markdown import table_row
from .records import records
from .style import SIMULATED, Style

#: Maximum number of reasons why cells were not compared, and of hosts named.
_REASONS, _HOSTS = 3, 3
#: What changed, the worst first.
CHANGED = (Outcome.LOST, Outcome.WORSE, Outcome.BETTER)


def side_of(documents: Sequence[Document]) -> str:
    """Hosts and times of the runs of a side."""
    hosts = sorted({document.hostname or "unknown host" for document in documents})
    times = sorted({document.started or document.origin for document in documents})
    if len(documents) == 1:
        return f"{hosts[0]}, {times[0]}"
    more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
    when = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"{len(documents)} runs of {', '.join(hosts[:_HOSTS])}{more}, {when}"


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
        named = ", ".join(comparison.unmatched[:_HOSTS])
        more = f" and {len(comparison.unmatched) - _HOSTS} more" if len(comparison.unmatched) > _HOSTS else ""
        yield f"not compared, runs on one side only: {named}{more}"


def not_compared(comparison: Comparison) -> str:
    """How many cells were not compared, and why; empty for none."""
    busy = comparison.those(Outcome.BUSY)
    if not busy:
        return ""
    why = dict.fromkeys(change.reason for change in busy)
    more = f" and {many(len(why) - _REASONS, 'other reason')}" if len(why) > _REASONS else ""
    text = f"{many(len(busy), 'value')} not compared: {', '.join(list(why)[:_REASONS])}{more}"
    return f"{text}; --ignore-busy compares them"


def notes(comparison: Comparison) -> Iterator[str]:
    """What a change is, and what the comparison cannot see."""
    yield (
        f"significant changes of {100 * comparison.least:.3g}% or more (false discovery rate at most "
        f"{FALSE_CHANGES:.0%}), with {CONFIDENCE:.0%} confidence intervals"
    )
    if comparison.weak:
        yield (
            f"{many(comparison.weak, 'value')} from single-round runs: run-to-run variation is assumed; "
            "compare several runs to measure it"
        )
    if hidden := comparison.uncertain:
        worst = max(hidden, key=lambda change: change.half_width)
        yield (
            f"{many(len(hidden), 'value')} too noisy to rule out a {UNCERTAIN:.0%} change "
            f"({worst.key.testcase} ±{worst.half_width:.0%}); compare more runs"
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


def percent(change: float) -> str:
    """A relative difference; without a sign if it rounds to nothing."""
    text = f"{change:+.1%}"
    return "0.0%" if text in ("-0.0%", "+0.0%") else text


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
    del style
    encoded = msgspec.json.encode(_object(comparison, unreadable))
    return escaped(msgspec.json.format(encoded, indent=1).decode()) + "\n"


def markdown(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """A table of the changes, the worst first; ``verbose`` lists all."""
    return visible("\n".join(_markdown(comparison, style, unreadable)) + "\n")


def junit(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """One suite with a case for each testcase, and one for each unreadable file."""
    del style
    return visible(suites([_suite(comparison)], unreadable))


def _object(comparison: Comparison, unreadable: Sequence[Unreadable]) -> dict[str, Any]:
    recorded = records(comparison)
    return {
        "wirespeed_compare": _SHAPE,
        "version": __version__,
        "simulated": comparison.simulated,
        "least": comparison.least,
        "false_changes": FALSE_CHANGES,
        "before": [_run(document) for document in comparison.before],
        "after": [_run(document) for document in comparison.after],
        "unreadable": [{"file": file.file, "error": file.why} for file in unreadable],
        "hosts": comparison.hosts,
        "unmatched": comparison.unmatched,
        "differences": [vars(difference) for difference in comparison.differences],
        "cells": dict(Counter(str(change.outcome) for change in comparison.changes)),
        "compared": comparison.compared,
        "weak": comparison.weak,
        "uncertain": len(comparison.uncertain),
        "regressed": comparison.regressed,
        "changes": [
            {name: row.get(name) for name in recorded.columns}
            | {"hosts": [{"host": host.host, "ratio": host.ratio} for host in change.hosts]}
            for row, change in zip(recorded.rows, comparison.changes, strict=True)
        ],
    }


def _run(document: Document) -> dict[str, Any]:
    return {
        "host": document.hostname, "machine": document.machine.name, "started": document.started,
        "origin": document.origin, "interrupted": document.interrupted, "simulated": document.simulated,
    }  # fmt: skip


def _markdown(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable]) -> Iterator[str]:
    yield "# wirespeed: comparison"
    if comparison.simulated:
        yield from ("", f"**{SIMULATED}**")
    yield ""
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        yield f"- {name}: {literal(side_of(side))}"
        yield from (f"- {name}: **{literal(text)}**" for text in remarks(side))
    yield from (f"- **unreadable**: {literal(str(file))}" for file in unreadable)
    yield from (f"- {literal(text)}" for text in (*pairing(comparison), not_compared(comparison)) if text)
    yield from (f"- differs: {literal(str(difference))}" for difference in comparison.differences)
    yield from ("", f"**{counted(comparison, unreadable)}**")
    if changed := comparison.those(*CHANGED):
        shown = changed if style.verbose else changed[:_LISTED]
        yield from (
            "",
            table_row(["outcome", "testcase", "cell", "change", "reason"]),
            "|---|---|---|---|---|",
        )
        for change in shown:
            key = change.key
            yield table_row([change.outcome, key.testcase, key.place, moved(change), change.reason])
        if len(changed) > len(shown):
            yield from ("", f"{many(len(changed) - len(shown), 'more change')}; -v lists all")
    yield ""
    yield from (f"{literal(text)}  " for text in notes(comparison))


def _suite(comparison: Comparison) -> ET.Element:
    """One case per testcase: a failure if a value got worse or was lost."""
    cases: dict[str, list[Change]] = {}
    for change in comparison.changes:
        cases.setdefault(change.key.testcase, []).append(change)
    elements = []
    for name, changes in cases.items():
        case = case_of(name, "compare")
        lines = [
            f"{change.outcome}: {change.key.place}: {moved(change)} {change.reason}".rstrip()
            for change in changes if change.outcome in (Outcome.LOST, Outcome.WORSE)
        ]  # fmt: skip
        if lines:
            add_outcome(case, "failure", *lines, most=_LISTED)
        elif all(change.outcome in (Outcome.BUSY, Outcome.ADDED) for change in changes):
            add_outcome(case, "skipped", changes[0].reason or "no value before")
        elif comparison.simulated:
            add_outcome(case, "skipped", SIMULATED)
        elements.append(case)
    entries = [("before", side_of(comparison.before)), ("after", side_of(comparison.after))]
    entries += [("differs", str(difference)) for difference in comparison.differences]
    texts = (*pairing(comparison), not_compared(comparison), *notes(comparison))
    entries += [("note", text) for text in texts]
    return suite("wirespeed compare", elements, [*entries, ("cells", counted(comparison, ()))])
