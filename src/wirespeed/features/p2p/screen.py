"""Text of ``wirespeed p2p``: the matrix, the verdict, causes with their remedies, a workaround; and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Column
from rich.text import Text

from ...document import Document
from ...judging.finding import Finding
from ...peer_access import MOST_PEERS, Attempt, PeerMechanism, PeerVerdict
from ...reports import SIMULATED, Style
from ...reports.console import hanging, pieces, printed
from ...reports.looks import SIGNS
from ...reports.records import picked
from ...terminal import escaped
from ...units import GB, format_time, many
from .causes import PeerFindings, told

#: Version of the JSON; it increases if a reader of the older one would misread it.
VERSION = 1
#: Maximum number of causes and of the commands of one that are shown; ``verbose`` shows all.
_CAUSES, _COMMANDS = 2, 8


def render(document: Document, findings: PeerFindings, style: Style) -> str:
    """The screen; ``verbose`` adds each mechanism of each pair, all causes and all commands."""
    parts: list[RenderableType] = [*_heading(document, style), "", *_matrix(findings, style)]
    if style.verbose:
        parts += ["", *_mechanisms(findings, style)]
    sign = SIGNS[findings.verdict]
    word, sentence = findings.verdict.heading, findings.sentence
    extent = Text(" · ".join(_figures(findings)), "dim")
    parts += ["", hanging(Text(word, sign.style), Text(sentence, "bold"))]
    parts.append(Padding(extent, (0, 0, 0, len(word) + 2)))
    for i, finding in enumerate(findings.causes if style.verbose else findings.causes[:_CAUSES]):
        parts += _cause(finding, i == 0, style)
    if findings.defective:
        parts.append(Text(f"likely cause: a defect of {' or '.join(findings.defective)}", "bold yellow"))
        parts += [_detail("remedy", findings.advice.do), _detail("confirm", findings.advice.command)]
    elif findings.bad and not findings.causes:
        parts.append(Text("no reading explains it: compare `wirespeed help p2p`, by symptom", "yellow"))
    parts += [_detail("not read", text) for text in findings.unread]
    if lines := findings.exports:
        parts += ["", Text("workaround until it is repaired", "bold"), *map(_command, lines)]
        parts += [
            _command(f"{text}   # option of vllm serve and sglang.launch_server") for text in findings.options
        ]
    if findings.group:
        group = ",".join(map(str, findings.group))
        lead = f"or use only the {many(len(findings.group), 'GPU')} whose P2P works"
        parts += [Text(lead, "bold"), _command(f"export CUDA_VISIBLE_DEVICES={group}")]
    if findings.groups:
        lead = f"groups of GPUs that can all access each other at once: at most {MOST_PEERS} peers"
        parts.append(Text(lead, "bold"))
        parts += [_command(f"export CUDA_VISIBLE_DEVICES={','.join(map(str, g))}") for g in findings.groups]
    return printed(style, *parts)


def _heading(document: Document, style: Style) -> Iterator[RenderableType]:
    """Version, host and GPUs in a line; that the machine is simulated, and settings in force."""
    models = Counter(gpu.model for gpu in document.machine.gpus)
    gpus = [f"{count} x {model}" for model, count in models.items()]
    yield Text(" · ".join(filter(None, (f"wirespeed {document.version}", document.hostname, *gpus))), "bold")
    if document.simulated:
        yield Text(SIMULATED, "bold magenta")
    if style.settings:
        yield hanging(Text("settings:", "cyan"), Text("; ".join(style.settings)), 1)


def _command(text: str) -> Text:
    return Text(f"  {text}", "cyan")


def _matrix(findings: PeerFindings, style: Style) -> Iterator[RenderableType]:
    """A letter for each pair: the worst of its mechanisms."""
    access, gpus = findings.access, findings.access.gpus
    if not gpus:
        return
    verdicts = access.verdicts
    rows = [[a, *(verdicts[a, b].letter if (a, b) in verdicts else "" for b in gpus)] for a in gpus]
    yield Text("peer access: the GPU of the row accesses memory of the GPU of the column", "bold")
    yield from pieces(Column("", no_wrap=True, style="dim"), list(gpus), rows, style.width)
    used = (f"{verdict.letter} {verdict}" for verdict in PeerVerdict if verdict in verdicts.values())
    yield Text("   ".join(used), "dim")


def _mechanisms(findings: PeerFindings, style: Style) -> Iterator[RenderableType]:
    """A letter for each mechanism of each pair, and what was found."""
    pairs = findings.access.pairs
    tried = [m for m in PeerMechanism if any(a.mechanism is m for a in findings.access.attempts)]
    rows, texts = [], []
    for (a, b), attempts in pairs.items():
        by_mechanism: dict[PeerMechanism, Attempt] = {attempt.mechanism: attempt for attempt in attempts}
        letters = (by_mechanism[m].verdict.letter if m in by_mechanism else "" for m in tried)
        rows.append([f"{a} -> {b}", *letters])
        texts += [f"{a} -> {b}: {attempt.verdict}: {told(attempt)}"
                  for attempt in attempts if attempt.verdict is not PeerVerdict.WORKS]  # fmt: skip
    yield from pieces(Column("", no_wrap=True, style="dim"), list(map(str, tried)), rows, style.width)
    yield from (Text(text, "dim") for text in texts)


def _figures(findings: PeerFindings) -> Iterator[str]:
    """The number of pairs, and rates and latencies that were measured on the way."""
    access, in_gb = findings.access, "{:.1f}".format
    yield f"{many(len(access.pairs), 'pair')} in {format_time(access.seconds)}"
    for name, values, written, unit in (
        ("copies", [a.rate / GB for a in access.attempts if a.rate], in_gb, " GB/s"),
        ("flag round trip", [a.latency for a in access.attempts if a.latency], format_time, ""),
        ("through the host", [rate / GB for rate in access.through_host.values()], in_gb, " GB/s"),
    ):
        if values:
            ends = dict.fromkeys(map(written, (min(values), max(values))))
            yield f"{name} {' to '.join(ends)}{unit}"


def _cause(finding: Finding, is_first: bool, style: Style) -> Iterator[RenderableType]:
    """A cause with its evidence and remedy."""
    lead = "likely cause" if is_first else "also possible"
    yield Text(f"{lead}: {finding.cause.title}", "bold yellow" if is_first else "yellow")
    yield _detail("evidence", finding.evidence)
    if not is_first and not style.verbose:
        return
    yield _detail("remedy", finding.repair[0])
    commands = finding.repair[1:]
    shown = commands if style.verbose or len(commands) <= _COMMANDS else ()
    yield from (_command(f"          {text}") for text in shown)
    if shown and finding.cause.name == "acs":
        yield _detail("", "(until the next boot; this weakens the isolation between virtual machines)")
    if len(commands) > len(shown):  # part of a repair repairs nothing
        yield Text(f"            {len(commands)} commands; -v shows them", "dim")
    yield _detail("confirm", finding.commands[0])


def _detail(name: str, text: str) -> RenderableType:
    """A line of a cause; longer texts are indented."""
    return Padding(hanging(Text(f"{name:<8}", "dim"), Text(text)), (0, 0, 0, 2))


def to_json(document: Document, findings: PeerFindings) -> str:
    """The answer for programs, with stable keys; GPUs are named by index, as in ``CUDA_VISIBLE_DEVICES``."""
    access = findings.access
    known = {gpu.name: str(gpu.index) for gpu in document.machine.gpus}
    index = {name: known.get(name, name) for name in (*access.gpus, *access.unusable, *access.through_host)}

    def attempt_of(attempt: Attempt) -> dict[str, Any]:
        fields = picked(
            attempt,
            "verdict detail stage by bytes_per_second round_trip_seconds wrong_words stale_words late",
            bytes_per_second=attempt.rate, round_trip_seconds=attempt.latency,
            wrong_words=attempt.wrong, stale_words=attempt.stale,
        )  # fmt: skip
        return {name: value for name, value in fields.items() if value or name == "verdict"}

    pairs = {}
    for (a, b), attempts in access.pairs.items():
        deciding = access.deciding((a, b)) or attempts[0]
        pairs[f"{index[a]}->{index[b]}"] = {
            "verdict": str(access.verdicts[a, b]),
            "mechanism": str(deciding.mechanism),
            "text": told(deciding),
            "mechanisms": {str(attempt.mechanism): attempt_of(attempt) for attempt in attempts},
        }
    answer = {
        "wirespeed_p2p": VERSION,
        **picked(document, "version host simulated", host=document.hostname),
        "verdict": findings.verdict.word,
        "sentence": findings.sentence,
        "gpus": {
            str(gpu.index): picked(gpu, "model bus_id uuid") for gpu in document.machine.gpus
        },
        "pairs": pairs,
        "causes": [
            picked(f, "cause title evidence repair confirm", cause=f.cause.name, title=f.cause.title,
                   confirm=f.commands[0])
            for f in findings.causes
        ],
        "environment": findings.settings,
        "options": list(findings.options),
        "working_group": list(findings.group) if findings.bad else [g.index for g in document.machine.gpus],
        "groups": findings.groups,
        "unusable": {index[gpu]: why for gpu, why in access.unusable.items()},
        "through_host_bytes_per_second": {index[gpu]: rate for gpu, rate in access.through_host.items()},
        "not_read": list(findings.unread),
        "seconds": access.seconds,
    }  # fmt: skip
    return escaped(json.dumps(answer, indent=1)) + "\n"
