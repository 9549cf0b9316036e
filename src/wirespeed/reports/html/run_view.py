"""A run as the page shows it: the variables of the templates in ``sections.html``."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import Any

from ...document import Document, Status
from ...judging.overview import Overview, overview
from ...judging.verdict import Verdict
from ...judging.verdicts import Check
from ...results.cells import placed
from ...terminal import one_line
from ...units import GB, format_size
from ..numbers import GLANCE, number
from ..signs import shown
from ..style import SIMULATED, Judged
from .causes import causes, explained_causes, gates, notes
from .comparison import letter
from .embedded_data import packed_document
from .headline import headline, tiles
from .link_use import Use, uses
from .measurements import group_id, grouped
from .pair_matrix import pair_matrix
from .qualified_nodes import qualified
from .svg import markup
from .telemetry import charts_and_texts
from .topology_drawing import MOST_DRAWN, draw, vertices


def run_view(
    index: int, document: Document, check: Check, room: int, label: str, judged: Judged | None
) -> dict[str, Any]:
    """The template's variables for one run.

    Args:
        index: Index of the run in the page.
        document: The run.
        check: Its verdicts.
        room: Maximum size of the embedded Document, in bytes.
        label: Name of the run; empty for a letter and its host.
        judged: What ``wirespeed check`` found; None if it was not checked.
    """
    summary = overview(document, check, judged.diagnosis if judged else None)
    judgements = {judgement.key: judgement for judgement in check.judgements}
    head = headline(document, check, summary)
    machine, cells = document.machine, list(placed(document))
    used = uses(machine, cells, judgements, check)
    drawn = draw(machine, used, _marked(document, check, summary))
    gpus = vertices(machine).devices
    is_matrix = len(gpus) > MOST_DRAWN
    if is_matrix:
        drawn = pair_matrix(machine, gpus, used, cells, judgements)
    charts, changes = charts_and_texts(document)
    text, note = packed_document(document, room)
    by_reason: dict[str, list[str]] = {}
    for result in document.testcases:
        if result.status is Status.WAIVED:
            by_reason.setdefault(result.reason, []).append(one_line(result.name))
    return {
        "index": index,
        "label": one_line(label) or f"{letter(index)}: {head.host}",
        "verdict": summary.verdict,
        "overall": shown(summary.verdict, summary.word),
        "headline": head,
        "tiles": tiles(summary, lambda kind: group_id(index, kind)),
        "file": _file_name(head.host, document.started),
        "simulated": f"{SIMULATED} (machine {machine.name})" if document.simulated else "",
        "causes": causes(summary),
        "explained_causes": explained_causes(summary),
        "gates": gates(judged.check.gates if judged else ()),
        "notes": notes(document, check, summary),
        "qualification": qualified(document),
        "groups": grouped(index, document, check, judgements, summary.figures),
        "waived": sum(map(len, by_reason.values())),
        "waived_by_reason": list(by_reason.items()),
        "facts": _facts(document),
        "drawing": markup(drawn) if drawn is not None else None,
        "is_matrix": is_matrix,
        "links": [_link(use) for use in used],
        "charts": [markup(chart) for chart in charts],
        "changes": changes,
        "environment": _surroundings(document),
        "packed": text,
        "note": note,
    }


def _marked(document: Document, check: Check, summary: Overview) -> dict[str, Verdict]:
    """The devices and switches to highlight: places of causes, ends of wrong data, busy devices."""
    names = {end for link in document.machine.links for end in (link.source, link.destination)}
    marked = {
        finding.place: Verdict.FAIL
        for finding in summary.diagnosis.findings
        if finding.cells and finding.likely
    }
    suspects = (suspect for culprit in check.culprits for suspect in culprit.suspects)
    marked |= {suspect.ends[0]: Verdict.FAIL for suspect in suspects if len(suspect.ends) == 1}
    for fault in check.wrong:
        ends = [fault.device] if fault.device else [end for path in fault.paths for end in path]
        marked |= dict.fromkeys(ends, Verdict.FAIL)
    busy = {device: Verdict.BUSY for result in document.testcases for device in result.busy}
    marked = busy | marked
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


def _link(use: Use) -> dict[str, Any]:
    link = use.link
    is_memory = link.source == link.destination
    joint = f"memory of {link.source}" if is_memory else f"{link.source} → {link.destination}"
    return {
        "name": joint,
        "kind": str(link.kind),
        "measured": number(use.measured, GB, GLANCE) if use.measured else "",
        "limit": f"{link.capacity / GB:.4g}" if link.capacity else "unknown",
        "share": f"{use.share:.0%}" if use.share else "",
        "verdict": shown(use.verdict),
        "origin": link.origin,
    }


def _surroundings(document: Document) -> list[tuple[str, str]]:
    """Names and values of the environment, without empty ones."""
    machine = document.machine
    options = {key: value for key, value in document.options.items() if key != "testcases"}
    rows = {
        "wirespeed": document.version,
        "command": document.command,
        "begun": document.started,
        "ended": document.ended,
        "host": document.hostname,
        "machine": machine.name,
        "CPU": machine.cpu,
        "kernel": machine.kernel,
        "Python": document.python,
        "NVIDIA driver": machine.driver,
        "driver CUDA version": f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}" if machine.cuda else "",
        "transparent huge pages": machine.transparent_huge_pages,
        "libraries": ", ".join(f"{name} {version}" for name, version in document.libraries.items()),
        "options": ", ".join(filter(None, (_option(key, value) for key, value in options.items()))),
        "notes": "; ".join(machine.notes),
    }
    rows |= {f"{gpu.name}": _gpu(gpu) for gpu in machine.gpus}
    for device in chain(*machine.others.values()):
        rows[device.name] = f"{device.about}, {format_size(device.memory_bytes)}"
    return [(name, text) for name, text in rows.items() if text]


def _option(name: str, value: Any) -> str:
    """An option as a text; empty if it is off."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return name if value is True else f"{name} {value}" if value else ""


def _gpu(gpu: Any) -> str:
    memory = format_size(gpu.memory_bytes) if gpu.memory_bytes else ""
    capability = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
    return ", ".join(part for part in (gpu.model, memory, capability, gpu.bus_id, f"numa{gpu.numa}") if part)
