"""Formats of ``wirespeed compare``."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..document import Document
from ..results.cells import host_of
from ..results.compare import Change, Comparison, Outcome, Unreadable
from ..results.evidence import FALSE_CHANGES
from ..terminal import escaped, visible
from ..units import many
from ..version import __version__
from .comparisons import CHANGED, counted, moved, not_compared, notes, pairing, remarks, side_of
from .junit import add_outcome, case_of, suite, suites
from .markdown import escaped as literal
from .markdown import table_row
from .records import records
from .style import SIMULATED, Style

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


def html(comparison: Comparison, style: Style, unreadable: Sequence[Unreadable] = ()) -> str:
    """A page that works offline."""
    from .html.comparison import sides_page

    del style
    return visible(sides_page(comparison, unreadable))


#: Formats of comparisons, by name.
COMPARISON_FORMATS = {report.__name__: report for report in (json, markdown, junit, html)}


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
        "host": host_of(document), "machine": document.machine.name, "started": document.started,
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
