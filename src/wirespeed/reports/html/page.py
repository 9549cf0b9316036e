"""Documents as a page, which never accesses the network; several are compared with the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...document import Document
from ...errors import UsageError
from ...judging.judged import Judged
from ...judging.verdict import Verdict
from ...results.compare import Comparison
from ...results.read_many import Unreadable, no_collections
from ...statistics import grouped
from ...units import many
from ..comparisons import counted, likely_cause, sentence, side_of, verdict_on
from ..looks import SIGNS
from .comparison import Compared, ComparedRun, compared, compared_sides
from .embedded import ROOM
from .headline import Headline, banner
from .run_view import run_view
from .templates import capital, rendered, source

#: Maximum number of runs before a change that the page of a comparison shows.
_MOST_BEFORE = 4
#: Maximum number of runs that the headline of several names.
_NAMED = 2


def page(runs: Sequence[Document | Judged], room: int = ROOM, labels: Sequence[str] = ()) -> str:
    """Render one page of a run, or of several runs, which are compared with the first.

    Args:
        runs: One run, or several; the values of Documents are judged by their limits.
        room: Maximum size of the embedded Documents, in bytes.
        labels: A name for each run, such as its file name; empty for letters and hosts.

    Raises:
        UsageError: If the number of labels is not that of the runs.
    """
    if labels and len(labels) != len(runs):
        raise UsageError(f"pass one label for each run: {len(labels)} labels for {many(len(runs), 'run')}")
    judged = [Judged.of(run) for run in runs]
    documents = [run.document for run in judged]
    if len(documents) > 1 and any(document.qualification for document in documents):
        raise UsageError("qualifications of nodes are not compared; write a page of each, or pass --fleet")
    with no_collections():
        views = _views(judged, room, labels)
        names = [view["label"] for view in views]
        comparison = compared(documents, names) if len(documents) > 1 else None
    first: Headline = _of_all(views, comparison.runs) if comparison else views[0]["headline"]
    return _page(views, first, comparison)


def page_of_sides(comparison: Comparison, unreadable: Sequence[Unreadable] = ()) -> str:
    """Render one page of the runs before and after, of many the first ones.

    Args:
        comparison: The comparison.
        unreadable: The files that cannot be read.
    """
    before, after = comparison.before[:_MOST_BEFORE], comparison.after[:1]
    views = _views([Judged(document) for document in (*before, *after)], ROOM, ())
    verdict, (cause, advice) = verdict_on(comparison), likely_cause(comparison)
    text = "; likely cause: ".join(filter(None, (sentence(comparison), cause)))
    sides = (f"before: {side_of(comparison.before)}", f"after: {side_of(comparison.after)}")
    last: Headline = views[-1]["headline"]
    first = Headline(
        verdict.word.upper(), SIGNS[verdict].css, capital(text), counted(comparison, unreadable),
        capital(advice.do), advice.command, last.host, sides, last.date,
    )  # fmt: skip
    return _page(
        views, first, compared_sides(comparison, len(before)), [f"unreadable: {f}" for f in unreadable]
    )


def _views(judged: Sequence[Judged], room: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        run_view(i, run, room // len(judged), labels[i] if labels else "") for i, run in enumerate(judged)
    ]


def _page(
    views: list[dict[str, Any]], first: Headline, comparison: Compared | None, unreadable: Sequence[str] = ()
) -> str:
    """The page of some runs."""
    simulated = banner([bool(view["simulated"]) for view in views])
    return rendered(
        "page.html", source("style.css"), source("script.js"),
        title=_title(first, len(views), bool(simulated)),
        headline=first,
        contents=_contents(views, compare=comparison is not None),
        causes=f"causes-{views[0]['index']}" if len(views) == 1 and views[0]["causes"] else "",
        runs=views,
        comparison=comparison,
        unreadable=unreadable,
        simulated=simulated,
    )  # fmt: skip


def _title(first: Headline, runs: int, simulated: bool) -> str:
    count = many(runs, "run") if runs > 1 else ""
    word = f"{first.word} (simulated)" if simulated else first.word
    return " · ".join(filter(None, (word, count, first.host, first.date)))


def _of_all(runs: Sequence[dict[str, Any]], changes: Sequence[ComparedRun]) -> Headline:
    """The headline of several runs: the worst verdict, and which runs have it."""
    worst: Headline = min(runs, key=lambda run: Verdict(run["verdict"]).rank)["headline"]
    heads: list[Headline] = [run["headline"] for run in runs]
    same = [run for run in runs if run["headline"].word == worst.word]
    by_sentence = grouped((run["headline"].sentence, run["label"]) for run in same)
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
    between = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return replace(
        worst if alike else replace(worst, advice="", command=""),
        sentence="; ".join(named),
        extent=extent if changed else f"No value differs from {runs[0]['label']}",
        host=hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts",
        facts=(f"{many(len(runs), 'run')}, compared with the first", between),
        date=dates[-1],
    )


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
    if whole := run["whole"]:
        return [(f"{whole.id}-0", whole.name), ("environment-0", "Environment")]
    sections = (
        *((f"{part.id}-0", part.name, True) for part in run["first"]),
        ("machine-0", "Machine", True),
        ("causes-0", "Causes" if run["causes"] else "Notes", run["causes"] or run["notes"]),
        *((f"{part.id}-0", part.name, True) for part in run["before_gates"]),
        ("gates-0", "Thresholds", run["gates"]),
        *((f"{part.id}-0", part.name, True) for part in run["before_results"]),
        ("results-0", "Measurements", run["groups"] or run["waived"]),
        ("state-0", "State", run["charts"] or run["changes"]),
        ("environment-0", "Environment", True),
    )
    return [(target, name) for target, name, is_there in sections if is_there]
