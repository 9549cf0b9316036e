"""Render Documents as a page; the page never accesses the network."""

from __future__ import annotations

import base64
import gc
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...document import Document, Status, TestcaseResult
from ...judging.gate_verdicts import GateComparison, GateResult, GateVerdict
from ...judging.outcomes import INTERRUPTED, Outcomes, counted, outcomes
from ...judging.verdicts import Check, Judgement, Verdict
from ...model import Unit
from ...results.cells import placed
from ...terminal import one_line, visible
from ...units import GB, fitting, format_size, format_time, many
from ...version import __version__
from .. import BY_LIMITS, SIMULATED, Criteria, Judged
from .._explanations import explanations
from .._grid import number
from .._judged import applicable, cause_text, gate_text
from . import comparison
from . import telemetry as state
from . import topology_drawing as topology
from .embedded_data import ROOM, packed_document
from .link_use import Use, uses
from .svg import markup
from .tables import Judgements, table_markup

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


#: Verdicts of gates by the verdict that looks alike.
_OF_GATES = {
    GateVerdict.FAIL: Verdict.FAIL, GateVerdict.IMPOSSIBLE: Verdict.UNKNOWN,
    GateVerdict.UNCLEAR: Verdict.UNKNOWN, GateVerdict.PASS: Verdict.PASS,
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A verdict as the page shows it: never by colour only.

    Parameters
    ----------
    css : str
        CSS class.
    sign : str
        Sign next to the text.
    text : str
        The verdict.
    """

    css: str
    sign: str
    text: str


def shown(word: str, text: str = "") -> Shown:
    """Return how to show a verdict, or that a run was interrupted.

    Parameters
    ----------
    word : str
        A verdict, or ``interrupted``.
    text : str
        Text in place of the word; empty for the word.

    Returns
    -------
    Shown
        Class, sign and text.
    """
    if word == INTERRUPTED:
        return Shown(str(Verdict.UNKNOWN), "■", text or word)
    return Shown(word, topology.SIGNS[Verdict(word)], text or word)


@dataclass(frozen=True)
class CaseView:
    """A measured testcase, as the page shows it.

    Parameters
    ----------
    id : str
        ID of its section.
    result : TestcaseResult
        The result.
    verdict : Shown
        Its verdict.
    values : str
        Range of its values.
    share : str
        Smallest fraction of a limit.
    why : str
        Explanation of a verdict that is not a pass.
    notes : tuple[str, ...]
        Warnings and possible causes.
    tables : tuple[Markup, ...]
        Its tables.
    """

    id: str
    result: TestcaseResult
    verdict: Shown
    values: str
    share: str
    why: str
    notes: tuple[str, ...]
    tables: tuple[Markup, ...]


def page(
    documents: Sequence[Document],
    room: int = ROOM,
    by: Criteria = BY_LIMITS,
    judged: Judged | None = None,
) -> str:
    """Render one page of a run, or of several runs, which are compared with the first.

    Parameters
    ----------
    documents : Sequence[Document]
        One run, or several.
    room : int
        Maximum size of the embedded Documents, in bytes.
    by : Criteria
        What values are judged by.
    judged : Judged or None
        What ``wirespeed check`` found about the only run; None if it was not checked.
    """
    template = _template()
    style, script = _source("style.css"), _source("script.js")
    from markupsafe import Markup

    with _no_collections():
        runs = [
            _run(i, document, judged, judged.check if judged else by.judge(document), room // len(documents))
            for i, document in enumerate(documents)
        ]
    names = " and ".join(dict.fromkeys(run["name"] for run in runs))
    simulated = [run["simulated"] for run in runs if run["simulated"]]
    banner = simulated[0] if simulated and len(runs) == 1 else SIMULATED if simulated else ""
    if 0 < len(simulated) < len(runs):
        banner = f"Some of the runs are {SIMULATED}"
    text: str = template.render(
        title=names,
        many=many,
        runs=runs,
        comparison=comparison.compared(documents) if len(documents) > 1 else None,
        simulated=banner,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        version=__version__,
    )
    return text


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the garbage collector: it would visit the cells of a large Document again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _source(name: str) -> str:
    """Return a file of this folder."""
    return (files(__package__) / name).read_text("utf-8")


@lru_cache(maxsize=1)
def _template() -> Template:
    """Return the template of the page."""
    import jinja2

    def harmless(value: Any) -> Any:
        return visible(value) if type(value) is str else value

    environment = jinja2.Environment(autoescape=True, finalize=harmless, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_source("page.html"))


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: only the page's own style and script, no other sources."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _run(index: int, document: Document, judged: Judged | None, check: Check, room: int) -> dict[str, Any]:
    """Return the template's variables for one run."""
    found = outcomes(document, check)
    judgements = {judgement.key: judgement for judgement in check.judgements}
    own: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in check.judgements:
        own[judgement.key.testcase].append(judgement)
    cells = list(placed(document))
    machine = document.machine
    used = uses(machine, cells, judgements, check)
    drawn, labelled = topology.draw(machine, used)
    charts, changes = state.charts_and_texts(document)
    packed, note = packed_document(document, room)
    waived = [result for result in document.testcases if result.status is Status.WAIVED]
    by_reason: dict[str, list[str]] = {}
    for result in waived:
        by_reason.setdefault(result.reason, []).append(one_line(result.name))
    host = machine.host or document.host or "unknown host"
    return {
        "index": index,
        "letter": comparison.letter(index),
        "name": one_line(host),
        "file": _file_name(host, document.started),
        "document": document,
        "simulated": f"{SIMULATED} (machine {machine.name})" if document.simulated else "",
        "warnings": explanations(document),
        "overall": _overall(document, found.run),
        "cells": counted(found.cells) or "none",
        "counts": counted(found.testcases.values()) or "none",
        "seconds": format_time(document.seconds),
        "culprits": [
            f"{culprit.described} at {culprit.ratio:.0%} of expected ({many(len(culprit.cells), 'cell')})"
            for culprit in check.culprits
        ],
        "causes": [cause_text(one) for one in judged.diagnosis.findings] if judged else [],
        "gates": [
            (compared.gates, _gates(compared))
            for compared in (judged.gates if judged else ())
            if applicable(compared)
        ],
        "measured": [
            _case(f"{index}.{i}", result, check, found, own[result.name], judgements)
            for i, result in enumerate(document.testcases)
            if result.status is not Status.WAIVED
        ],
        "waived": waived,
        "waived_by_reason": list(by_reason.items()),
        "facts": _facts(document),
        "drawing": markup(drawn) if drawn is not None else None,
        "labelled": labelled,
        "links": [_link(use) for use in used],
        "charts": [markup(chart) for chart in charts],
        "changes": changes,
        "environment": _environment(document),
        "packed": packed,
        "note": note,
    }


def _gates(compared: GateComparison) -> list[tuple[GateResult, Shown, str]]:
    """Return each gate that applies, with its verdict, and what was measured."""
    return [
        (one, shown(_OF_GATES[one.verdict], str(one.verdict)), gate_text(one)) for one in applicable(compared)
    ]


def _overall(document: Document, word: str) -> Shown:
    """Return the verdict of the run; a simulated run has none."""
    if document.simulated and word == Verdict.PASS:
        return shown(Verdict.UNKNOWN, "simulated: no verdict on hardware")
    return shown(word, "no value could be judged; this is not a pass" if word == Verdict.UNKNOWN else "")


def _file_name(host: str, started: str) -> str:
    """Return a file name for the downloaded Document that is safe on every system."""
    return re.sub(r"[^A-Za-z0-9]+", "-", f"wirespeed-{host[:40]}-{started[:20]}").strip("-") + ".json"


def _case(
    at: str,
    result: TestcaseResult,
    check: Check,
    found: Outcomes,
    own: Sequence[Judgement],
    judgements: Judgements,
) -> CaseView:
    """Return the template's variables for a testcase; ``own`` are its judgements, the worst first."""
    bad = [j for j in own if j.verdict in (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN) and j.why]
    why = [bad[0].explanation] if bad else []
    verdict = found.testcases.get(result.name, Verdict.UNKNOWN)
    if not why and verdict == Verdict.UNKNOWN:
        why = [next((j.why for j in own if j.verdict is Verdict.UNKNOWN), "")]
    values, shares = _values(result)
    tables = tuple(
        table_markup(result, table, f"{at}.{j}", judgements) for j, table in enumerate(result.tables)
    )
    notes = (*result.warnings, *check.causes.get(result.name, ())) if bad else result.warnings
    return CaseView(f"case-{at}", result, shown(verdict), values, shares, "; ".join(why), notes, tables)


def _values(result: TestcaseResult) -> tuple[str, str]:
    """Return the range of the values, and the smallest fraction of a limit."""
    found = [(cell, table.unit) for table in result.tables for cell in table.cells if cell.value is not None]
    texts = []
    for unit in dict.fromkeys(unit for _, unit in found):
        ordered = sorted(cell.value or 0.0 for cell, of in found if of is unit)
        scale, name = fitting(unit, ordered)
        low, high = number(ordered[0], scale), number(ordered[-1], scale)
        texts.append(f"{low} {name}" if low == high else f"{low} to {high} {name}")
    shares = [c.value / c.limit for c, unit in found if unit is Unit.RATE and c.value and c.limit]
    return "; ".join(texts), f"{min(shares):.0%}" if shares else ""


def _facts(document: Document) -> str:
    """Return CPU, memory and GPUs."""
    machine = document.machine
    cores = sum(len(node.cores) for node in machine.numa)
    parts = [machine.cpu, machine.architecture, f"{cores} cores" if cores else ""]
    memory = sum(node.memory_bytes for node in machine.numa)
    parts.append(format_size(memory) if memory else "")
    parts += [f"{n} x {model}" for model, n in Counter(gpu.model for gpu in machine.gpus).items()]
    parts.append(f"{len(machine.ranks)} ranks" if machine.ranks else "")
    return " · ".join(part for part in parts if part)


def _link(use: Use) -> dict[str, Any]:
    """Return the row of a link in the table of links."""
    link = use.link
    own = link.source == link.destination
    joint = f"memory of {link.source}" if own else f"{link.source} → {link.destination}"
    return {
        "name": joint,
        "kind": str(link.kind),
        "measured": number(use.measured, GB) if use.measured else "",
        "limit": number(link.capacity, GB) if link.capacity else "unknown",
        "share": f"{use.share:.0%}" if use.share else "",
        "verdict": shown(use.verdict),
        "origin": link.origin,
    }


def _environment(document: Document) -> list[tuple[str, str]]:
    """Return names and values of the environment, without empty ones."""
    machine = document.machine
    options = {key: value for key, value in document.options.items() if key != "testcases"}
    rows = {
        "wirespeed": document.version,
        "command": document.command,
        "begun": document.started,
        "ended": document.ended,
        "host": machine.host or document.host,
        "machine": machine.name,
        "CPU": machine.cpu,
        "kernel": machine.kernel,
        "Python": document.python,
        "NVIDIA driver": machine.driver,
        "driver CUDA version": f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}" if machine.cuda else "",
        "transparent huge pages": machine.transparent_huge_pages,
        "libraries": ", ".join(f"{name} {version}" for name, version in document.libraries.items()),
        "options": ", ".join(f"{key} {value}" for key, value in options.items() if value is not None),
        "notes": "; ".join(machine.notes),
    }
    rows |= {f"{gpu.name}": _gpu(gpu) for gpu in machine.gpus}
    return [(name, text) for name, text in rows.items() if text]


def _gpu(gpu: Any) -> str:
    """Return model, memory and location of a GPU."""
    memory = format_size(gpu.memory_bytes) if gpu.memory_bytes else ""
    capability = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
    return ", ".join(part for part in (gpu.model, memory, capability, gpu.bus_id, f"numa{gpu.numa}") if part)
