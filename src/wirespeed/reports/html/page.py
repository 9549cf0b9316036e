"""State of the hardware during a run: readings with a unit as curves, others as text.

A run as the page shows it: the variables of the templates in ``sections.html``.

Render Documents as a page; the page never accesses the network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ...document import Document, Status, courses
from ...errors import UsageError
from ...judging.judged import Judged
from ...judging.verdict import Verdict
from ...results.read_many import no_collections
from ...statistics import grouped
from ...tables import Quantity
from ...terminal import one_line
from ...units import format_size, many
from ..additions import page_parts
from ..findings import SIGNS, applicable, footnotes
from ..plot import Curve
from ..style import SIMULATED
from .charts import Element, markup, time_chart
from .comparison import ComparedRun, compared, letter
from .headline import Headline, banner, explained_causes, headline, notes, surroundings, tile
from .link_use import MOST_DRAWN, draw, uses, vertices
from .measurements import group_id, path_groups
from .pair_matrix import pair_matrix
from .tables import ROOM, packed_document, rendered, source

#: Host and device -> seconds and values.
Series = dict[str, list[tuple[float, float]]]
#: Units that are shown with a prefix.
_SCALES = ((1e9, "G"), (1e6, "M"))
_MOST_VALUES = 8


def _readings(document: Document) -> Iterator[tuple[float, Quantity]]:
    begun = _moment(document.started)
    elapsed = 0.0
    for result in document.testcases:
        since = _moment(result.started)
        start = max(elapsed, since - begun) if since and begun else elapsed
        elapsed = start + result.seconds
        for reading in result.history:
            yield from ((start + reading.seconds, quantity) for quantity in reading.state)


def _moment(text: str) -> float:
    """An ISO 8601 time as seconds; 0 if it is not one."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def charts_and_texts(document: Document) -> tuple[list[Element], list[tuple[str, str]]]:
    """A chart for each quantity with a unit, and the changes of texts and counters.

    Counters that do not change are omitted.

    Args:
        document: The run.

    Returns:
        The charts; label and changes of each other quantity.
    """
    series: dict[tuple[str, str], Series] = {}
    texts: dict[str, list[str]] = {}
    still = {
        course[0].key
        for course in courses(document.testcases)
        if course[0].counter and all(quantity.value == course[0].value for quantity in course)
    }
    for time, quantity in _readings(document):
        if quantity.key in still:
            continue
        if quantity.unit and isinstance(quantity.value, (int, float)):
            curves = series.setdefault((quantity.name, quantity.unit), {})
            curves.setdefault(quantity.where, []).append((time, float(quantity.value)))
        else:
            course = texts.setdefault(quantity.label, [])
            if not course or course[-1] != quantity.shown:
                course.append(quantity.shown)
    all_points = (points for curves in series.values() for points in curves.values())
    end = max((time for points in all_points for time, _ in points), default=0.0)
    charts = [_chart(name, unit, curves, end) for (name, unit), curves in series.items()]
    return charts, [(label, _course(course)) for label, course in texts.items()]


def _course(values: list[str]) -> str:
    """Values that follow each other, the first ones only."""
    shown = values[:_MOST_VALUES]
    more = f", and {len(values) - len(shown)} more changes" if len(values) > len(shown) else ""
    return " → ".join(shown) + more


def _chart(quantity: str, unit: str, series: Series, end: float) -> Element:
    """The chart of a quantity of one or several devices, until the end of the run."""
    largest = max(abs(y) for points in series.values() for _, y in points)
    scale, prefix = next(((s, p) for s, p in _SCALES if largest >= 10 * s), (1.0, ""))
    curves = [
        Curve(device or quantity, tuple(x for x, _ in points), tuple(y / scale for _, y in points))
        for device, points in series.items()
    ]
    return time_chart(quantity, curves, f"{prefix}{unit}", end)


def run_view(index: int, judged: Judged, room: int, label: str) -> dict[str, Any]:
    """The template's variables for one run.

    Args:
        index: Index of the run in the page.
        judged: The run.
        room: Maximum size of the embedded Document, in bytes.
        label: Name of the run; empty for a letter and its host.
    """
    document, machine, summary = judged.document, judged.document.machine, judged.overview
    head, used = headline(judged), uses(judged)
    parts = list(page_parts(judged))
    drawn = draw(machine, used, _marked(judged))
    gpus = vertices(machine).devices
    is_matrix = len(gpus) > MOST_DRAWN
    if is_matrix:
        drawn = pair_matrix(judged, gpus, used)
    charts, changes = charts_and_texts(document)
    text, note = packed_document(document, room)
    waived = (result for result in document.testcases if result.status is Status.WAIVED)
    by_reason = grouped((result.reason, one_line(result.name)) for result in waived)
    return {
        "index": index,
        "label": one_line(label) or f"{letter(index)}: {head.host}",
        "verdict": summary.verdict,
        "headline": head,
        "tiles": [tile(figure, group_id(index, figure.kind)) for figure in summary.figures],
        "skipped": [(kind.title, why) for kind, why in summary.skipped],
        "file": _file_name(head.host, document.started),
        "simulated": f"{SIMULATED} (machine {machine.name})" if document.simulated else "",
        "causes": summary.diagnosis.findings,
        "explained_causes": explained_causes(summary),
        "gates": [compared for compared in judged.check.gates if applicable(compared)],
        "notes": list(notes(judged)),
        "is_qualification": document.qualification is not None,
        "whole": next((part for part in parts if part.is_all), None),
        "before_gates": [part for part in parts if part.before == "gates"],
        "before_results": [part for part in parts if part.before == "results"],
        "signs": list(_signs(judged)),
        "groups": path_groups(index, judged),
        "waived": sum(map(len, by_reason.values())),
        "waived_by_reason": list(by_reason.items()),
        "facts": _facts(document),
        "drawing": markup(drawn) if drawn is not None else None,
        "is_matrix": is_matrix,
        "links": used,
        "charts": [markup(chart) for chart in charts],
        "changes": changes,
        "environment": surroundings(document),
        "packed": text,
        "note": note,
    }


#: What each sign says of values.
_SIGNS = {
    Verdict.IMPLAUSIBLE: "above the limit",
    Verdict.FAIL: "worse than expected, missing or wrong",
    Verdict.WARN: "at the lower end of the range, or below its peers",
    Verdict.BUSY: "measured while other processes used the device",
    Verdict.INTERRUPTED: "interrupted",
    Verdict.UNKNOWN: "not judged",
    Verdict.PASS: "as expected",
    Verdict.WAIVED: "skipped or accepted",
}


def _signs(judged: Judged) -> Iterator[tuple[str, str, str]]:
    """Yield class, sign and meaning of the signs in the tables of a run."""
    check = judged.check
    known = {judgement.verdict for judgement in check.judgements} | {*check.testcases.values()}
    yield from ((SIGNS[word].css, SIGNS[word].mark, text) for word, text in _SIGNS.items() if word in known)
    for note in footnotes(place.cell for place in judged.cells):
        mark, _, text = note.partition(" ")
        yield "", mark, text


def _marked(judged: Judged) -> dict[str, Verdict]:
    """The devices and switches to highlight: places of causes, ends of wrong data, busy devices."""
    document, check = judged.document, judged.check
    names = {end for link in document.machine.links for end in link.ends}
    marked = {
        finding.place: Verdict.FAIL
        for finding in judged.diagnosis.findings
        if finding.cells and finding.likely
    }
    suspects = (suspect for culprit in check.culprits for suspect in culprit.suspects)
    marked |= {suspect.ends[0]: Verdict.FAIL for suspect in suspects if len(suspect.ends) == 1}
    for fault in check.wrong:
        ends = [fault.device] if fault.device else [end for path in fault.paths for end in path]
        marked |= dict.fromkeys(ends, Verdict.FAIL)
    marked = {device: Verdict.BUSY for result in document.testcases for device in result.busy} | marked
    return {name: verdict for name, verdict in marked.items() if name in names}


def _file_name(host: str, started: str) -> str:
    """A file name for the downloaded Document that is safe on every system."""
    return re.sub(r"[^A-Za-z0-9]+", "-", f"wirespeed-{host[:40]}-{started[:20]}").strip("-") + ".json"


def _facts(document: Document) -> str:
    machine = document.machine
    cores = sum(len(node.cores) for node in machine.numa)
    parts = [machine.cpu, machine.architecture, f"{cores} cores" if cores else ""]
    memory = sum(node.memory_bytes for node in machine.numa)
    parts.append(format_size(memory) if memory else "")
    parts += [f"{n} x {model}" for model, n in Counter(gpu.model for gpu in machine.gpus).items()]
    parts.append(f"{len(machine.ranks)} ranks" if machine.ranks else "")
    return " · ".join(part for part in parts if part)


#: With more runs than this, each run is packed, and unpacked when you open it.
_MOST_UNPACKED = 8
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
        views = [
            run_view(i, run, room // len(runs), labels[i] if labels else "") for i, run in enumerate(judged)
        ]
        comparison = compared(documents) if len(documents) > 1 else None
    first: Headline = _of_all(views, comparison.runs) if comparison else views[0]["headline"]
    simulated = banner([document.simulated for document in documents])
    return rendered(
        "page.html", source("style.css"), source("script.js"),
        title=_title(first, len(views), bool(simulated)),
        headline=first,
        contents=_contents(views, compare=comparison is not None),
        causes=f"causes-{views[0]['index']}" if len(views) == 1 and views[0]["causes"] else "",
        runs=views,
        comparison=comparison,
        quiet=_quiet(views, comparison.runs) if comparison else [],
        pack=len(views) > _MOST_UNPACKED,
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


def _quiet(runs: Sequence[dict[str, Any]], changes: Sequence[ComparedRun]) -> list[int]:
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
    if whole := run["whole"]:
        return [(f"{whole.id}-0", whole.name), ("environment-0", "Environment")]
    sections = (
        ("machine-0", "Machine", True),
        ("causes-0", "Causes" if run["causes"] else "Notes", run["causes"] or run["notes"]),
        *((f"{part.id}-0", part.name, True) for part in run["before_gates"]),
        ("gates-0", "Thresholds", run["gates"]),
        *((f"{part.id}-0", part.name, True) for part in run["before_results"]),
        ("results-0", "Measurements", True),
        ("state-0", "State", run["charts"] or run["changes"]),
        ("environment-0", "Environment", True),
    )
    return [(target, name) for target, name, is_there in sections if is_there]
