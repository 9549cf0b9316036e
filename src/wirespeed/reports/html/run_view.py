"""A run as the page shows it: the variables of the templates in ``sections.html``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...document import Status
from ...judging.judged import Judged
from ...judging.verdict import Verdict
from ...statistics import grouped
from ...terminal import one_line
from ..additions import covered, page_parts
from ..check_texts import applicable
from ..looks import SIGNS
from ..machine_texts import components
from ..style import SIMULATED
from ..values import footnotes
from .charts import markup
from .comparison import letter
from .diagram import MOST_DRAWN, draw, vertices
from .embedded import packed_document
from .environment import surroundings
from .headline import explained_causes, headline, notes, tile
from .link_use import uses
from .measurements import group_id, path_groups
from .pair_matrix import pair_matrix
from .state import charts_and_texts


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
    measured = any(table.values() for result in document.testcases for table in result.tables)
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
        "first": [part for part in parts if part.before == "machine"],
        "before_gates": [part for part in parts if part.before == "gates"],
        "before_results": [part for part in parts if part.before == "results"],
        "signs": list(_signs(judged)),
        "groups": path_groups(index, judged, covered(parts)),
        "waived": sum(map(len, by_reason.values())),
        "waived_by_reason": list(by_reason.items()),
        "facts": components(machine),
        "drawing": markup(drawn) if drawn is not None and measured else None,
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
    Verdict.NOT_JUDGED: "not judged",
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
