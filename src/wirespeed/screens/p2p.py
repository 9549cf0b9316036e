"""What ``wirespeed p2p`` prints: the matrix, verdict and cause, settings for now and the repair; or JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from ..document import Document
from ..judging.peer_causes import PeerFinding, PeerFindings, told
from ..peer_access import Attempt, PeerMechanism, PeerVerdict
from ..reports import SIMULATED, Style
from ..reports.console import heading, pieces, printed
from ..reports.findings import SIGNS
from ..terminal import escaped
from ..units import GB, format_time, many

#: Version of the JSON; it increases if a reader of the older one would misread it.
VERSION = 1
#: Maximum number of causes and of commands that are shown; ``verbose`` shows all.
_CAUSES, _COMMANDS = 2, 4


def render(document: Document, findings: PeerFindings, style: Style) -> str:
    """The screen; ``verbose`` adds each mechanism of each pair, all causes and all commands."""
    access = findings.access
    parts: list[RenderableType] = [heading(document), ""]
    parts += _matrix(findings, style)
    if style.verbose:
        parts += ["", *_mechanisms(findings, style)]
    sign = SIGNS[findings.verdict]
    parts += ["", Text(f"{findings.verdict.word.upper()}  {findings.sentence}", sign.style)]
    parts += [Text(line, "dim") for line in _figures(findings)]
    causes = findings.causes if style.verbose else findings.causes[:_CAUSES]
    for i, finding in enumerate(causes):
        parts += _cause(finding, i == 0, style)
    if findings.bad and not findings.causes:
        parts.append(Text("no reading explains it: compare `wirespeed help p2p`, by symptom", "yellow"))
    parts += [Text(f"not read  {text}", "dim") for text in findings.unread]
    if lines := settings(findings):
        parts += [
            "",
            Text("settings for now, with which programs compute right", "bold"),
            *map(_command, lines),
        ]
        parts += [
            _command(f"{text}   # option of vllm serve and sglang.launch_server") for text in findings.options
        ]
    if findings.group:
        group = ",".join(map(str, findings.group))
        lead = f"or use only {many(len(findings.group), 'GPU')} that work among each other"
        parts += [Text(lead, "bold"), _command(f"export CUDA_VISIBLE_DEVICES={group}")]
    parts.append(Text(f"{many(len(access.pairs), 'pair')} in {format_time(access.seconds)}", "dim"))
    if document.simulated:
        parts.append(Text(SIMULATED, style="bold magenta"))
    return printed(style, *parts)


def _command(text: str) -> Text:
    return Text(f"  {text}", "cyan")


def settings(findings: PeerFindings) -> list[str]:
    """Lines of a shell that set what programs need now."""
    return [f"export {name}={shlex.quote(value)}" for name, value in findings.settings.items()]


def _matrix(findings: PeerFindings, style: Style) -> Iterator[RenderableType]:
    """A letter for each pair: the worst of its mechanisms."""
    access, gpus = findings.access, findings.access.gpus
    if not gpus:
        return
    verdicts = access.verdicts
    rows = [[a, *(verdicts[a, b].letter if (a, b) in verdicts else "" for b in gpus)] for a in gpus]
    yield Text("peer access: the GPU of the row accesses memory of the GPU of the column", "bold")
    yield from pieces(Column("", no_wrap=True, style="dim"), list(gpus), rows, style.width)
    yield Text(_legend(verdicts.values()), "dim")


def _legend(verdicts: Any) -> str:
    used = set(verdicts)
    return "   ".join(f"{verdict.letter} {verdict}" for verdict in PeerVerdict if verdict in used)


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


def _gigabytes(rate: float) -> str:
    return f"{rate / GB:.1f} GB/s"


def _figures(findings: PeerFindings) -> Iterator[str]:
    """Rates and latencies that were measured on the way."""
    access = findings.access
    for name, values, shown in (
        ("copies", [a.rate for a in access.attempts if a.rate], _gigabytes),
        ("flag round trip", [a.latency for a in access.attempts if a.latency], format_time),
        ("through the host", list(access.through_host.values()), _gigabytes),
    ):
        ends = list(dict.fromkeys(shown(value) for value in (min(values), max(values)))) if values else []
        if ends:
            yield f"{name}: {' to '.join(ends)}"


def _cause(finding: PeerFinding, is_first: bool, style: Style) -> Iterator[RenderableType]:
    """A cause with its evidence and repair."""
    lead = "likely cause" if is_first else "or"
    yield Text(f"{lead}: {finding.cause.title}", "bold yellow" if is_first else "yellow")
    yield Text(f"  evidence  {finding.evidence}")
    if not is_first and not style.verbose:
        return
    yield Text(f"  repair    {finding.repair[0]}")
    commands = finding.repair[1:]
    shown = commands if style.verbose else commands[:_COMMANDS]
    yield from (_command(f"          {text}") for text in shown)
    if commands and finding.cause.name == "acs":
        yield Text(
            "            (until the next boot; it weakens the isolation between virtual machines)", "dim"
        )
    if len(commands) > len(shown):
        yield Text(f"            {len(commands) - len(shown)} more lines; -v shows all", "dim")
    yield Text(f"  confirm   {finding.confirm}")


def to_json(document: Document, findings: PeerFindings) -> str:
    """The answer for programs, with stable keys; GPUs are named by index, as in ``CUDA_VISIBLE_DEVICES``."""
    access = findings.access
    known = {gpu.name: str(gpu.index) for gpu in document.machine.gpus}
    index = {name: known.get(name, name) for name in (*access.gpus, *access.unusable, *access.through_host)}

    def attempt_of(attempt: Attempt) -> dict[str, Any]:
        fields = {
            "verdict": str(attempt.verdict), "detail": attempt.detail, "stage": attempt.stage,
            "by": attempt.by,
            "bytes_per_second": attempt.rate, "round_trip_seconds": attempt.latency,
            "wrong_words": attempt.wrong, "stale_words": attempt.stale, "late": attempt.late,
        }  # fmt: skip
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
        "version": document.version,
        "host": document.hostname,
        "simulated": document.simulated,
        "verdict": findings.verdict.word,
        "sentence": findings.sentence,
        "gpus": {
            str(gpu.index): {"model": gpu.model, "bus_id": gpu.bus_id, "uuid": gpu.uuid}
            for gpu in document.machine.gpus
        },
        "pairs": pairs,
        "causes": [
            {"cause": f.cause.name, "title": f.cause.title, "evidence": f.evidence, "repair": list(f.repair),
             "confirm": f.confirm}
            for f in findings.causes
        ],
        "environment": findings.settings,
        "options": list(findings.options),
        "working_group": list(findings.group) if findings.bad else [g.index for g in document.machine.gpus],
        "unusable": {index[gpu]: why for gpu, why in access.unusable.items()},
        "through_host_bytes_per_second": {index[gpu]: rate for gpu, rate in access.through_host.items()},
        "not_read": list(findings.unread),
        "seconds": access.seconds,
    }  # fmt: skip
    return escaped(json.dumps(answer, indent=1)) + "\n"
