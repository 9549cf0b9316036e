"""Render Documents as a page; the page never accesses the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...document import Document
from ...errors import UsageError
from ...judging.verdict import Verdict
from ...results.many_files import no_collections
from ...units import many
from ..style import BY_LIMITS, Criteria, Judged
from .comparison import Changes, compared
from .embedded_data import ROOM
from .headline import Headline, banner
from .run_view import run_view
from .templates import rendered, source

#: With more runs than this, each run is packed, and unpacked when you open it.
_MOST_UNPACKED = 8
#: Maximum number of runs that the headline of several names.
_NAMED = 2


def page(
    documents: Sequence[Document],
    room: int = ROOM,
    by: Criteria = BY_LIMITS,
    judged: Judged | None = None,
    labels: Sequence[str] = (),
) -> str:
    """Render one page of a run, or of several runs, which are compared with the first.

    Args:
        documents: One run, or several.
        room: Maximum size of the embedded Documents, in bytes.
        by: What values are judged by.
        judged: What ``wirespeed check`` found about the only run; None if it was not checked.
        labels: A name for each run, such as its file name; empty for letters and hosts.

    Raises:
        UsageError: If the number of labels is not that of the runs.
    """
    if labels and len(labels) != len(documents):
        raise UsageError(
            f"pass one label for each run: {len(labels)} labels for {many(len(documents), 'run')}"
        )
    if len(documents) > 1 and any(document.qualification for document in documents):
        raise UsageError("qualifications of nodes are not compared; write a page of each, or pass --fleet")
    with no_collections():
        runs = [
            run_view(
                i,
                document,
                judged.check if judged else by.judge(document),
                room // len(documents),
                labels[i] if labels else "",
                judged,
            )
            for i, document in enumerate(documents)
        ]
        comparison = compared(documents) if len(documents) > 1 else None
    first: Headline = _of_all(runs, comparison.runs) if comparison else runs[0]["headline"]
    simulated = banner([document.simulated for document in documents])
    return rendered(
        "page.html", source("style.css"), source("script.js"),
        title=_title(first, len(runs), bool(simulated)),
        headline=first,
        contents=_contents(runs, compare=comparison is not None),
        causes=f"causes-{runs[0]['index']}" if len(runs) == 1 and runs[0]["causes"] else "",
        runs=runs,
        comparison=comparison,
        quiet=_quiet(runs, comparison.runs) if comparison else [],
        pack=len(runs) > _MOST_UNPACKED,
        simulated=simulated,
    )  # fmt: skip


def _title(first: Headline, runs: int, simulated: bool) -> str:
    count = many(runs, "run") if runs > 1 else ""
    word = f"{first.word} (simulated)" if simulated else first.word
    return " · ".join(filter(None, (word, count, first.host, first.date)))


def _of_all(runs: Sequence[dict[str, Any]], changes: Sequence[Changes]) -> Headline:
    """The headline of several runs: the worst verdict, and which runs have it."""
    worst = min(runs, key=lambda run: Verdict(run["verdict"]).rank)["headline"]
    heads: list[Headline] = [run["headline"] for run in runs]
    same = [run for run in runs if run["headline"].word == worst.word]
    by_sentence: dict[str, list[str]] = {}
    for run in same:
        by_sentence.setdefault(run["headline"].sentence, []).append(run["label"])
    named = [f"{sentence} in {_listed(labels)}" for sentence, labels in by_sentence.items()]
    if len({head.sentence for head in heads}) == 1:
        named = [f"{worst.sentence} in all runs"]
    elif len(named) > _NAMED:
        named = [*named[:_NAMED], f"and {many(len(named) - _NAMED, 'more finding')}"]
    changed = [f"{change.summary} in {runs[change.index]['label']}" for change in changes if change.rows]
    more = f"; and {many(len(changed) - _NAMED, 'more run')}" if len(changed) > _NAMED else ""
    extent = f"Compared with {runs[0]['label']}: " + "; ".join(changed[:_NAMED]) + more
    hosts = list(dict.fromkeys(head.host for head in heads))
    alike = len({run["headline"].advice for run in same}) == 1
    dates = sorted(head.date for head in heads)
    return Headline(
        worst.word,
        worst.css,
        "; ".join(named),
        extent if changed else f"No value differs from {runs[0]['label']}",
        worst.advice if alike else "",
        worst.command if alike else "",
        hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts",
        (
            f"{many(len(runs), 'run')}, compared with the first",
            " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        ),
        dates[-1],
    )


def _quiet(runs: Sequence[dict[str, Any]], changes: Sequence[Changes]) -> list[int]:
    """The indices of the runs of a large comparison that pass and did not change."""
    if len(runs) <= _MOST_UNPACKED:
        return []
    return [
        change.index
        for change in changes[1:]
        if change.is_comparable and not change.rows and runs[change.index]["verdict"] is Verdict.PASS
    ]


def _listed(labels: Sequence[str]) -> str:
    """The first labels, and how many follow."""
    more = [f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    return " and ".join(filter(None, (", ".join(labels[:_NAMED]), *more)))


def _contents(runs: Sequence[dict[str, Any]], *, compare: bool) -> list[tuple[str, str]]:
    if compare:
        names = [("comparison", "Comparison"), ("changes", "Changes")]
        if len(runs) > _NAMED:
            return [*names, ("run-0", "Runs")]
        return names + [(f"run-{run['index']}", run["label"]) for run in runs]
    run = runs[0]
    if run["qualification"]:
        return [("nodes-0", "Nodes"), ("environment-0", "Environment")]
    sections = [("machine-0", "Machine")]
    if run["causes"] or run["notes"]:
        sections.append(("causes-0", "Causes" if run["causes"] else "Notes"))
    if run["gates"]:
        sections.append(("gates-0", "Thresholds"))
    sections.append(("results-0", "Measurements"))
    if run["charts"] or run["changes"]:
        sections.append(("state-0", "State"))
    return [*sections, ("environment-0", "Environment")]
