"""A run to paste into an issue: about twenty lines of GitHub's Markdown with the verdict, what to do, a line
for each kind of path and the environment; the tables follow, folded. Of the environment it shows what helps
others and identifies nobody: no folders, addresses or serial numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from ..document import Document
from ..hardware.facts import ON, Facts, Known
from ..judging.judged import Judged
from ..statistics import grouped
from ..terminal import one_line
from ..units import many
from .additions import report_of
from .explanations import explanations
from .figure_texts import extent, leading
from .looks import shown
from .machine_texts import devices, hosts
from .markdown import escaped, table_lines, tables
from .style import SIMULATED, Style

#: Maximum number of warnings, and of lines of a qualification of nodes, that are not folded.
_WARNINGS, _LINES = 3, 10
#: Maximum number of characters of the tables: GitHub takes comments of 65,536.
_LONGEST = 50_000
#: A word of a command that has a folder before its last part.
_FOLDER = re.compile(r"(?<![\w/.-])(?:~|\.{0,2})/[^\s'\"=,:]*")


def render(judged: Judged, style: Style) -> str:
    """The lines that are seen, then the tables in one that can be opened."""
    return "\n".join(_lines(judged, style)) + "\n"


def _lines(judged: Judged, style: Style) -> Iterator[str]:
    document, summary = judged.document, judged.overview
    if document.simulated:
        yield from (f"**{SIMULATED}** (machine {escaped(document.machine.name)})", "")
    own, hidden = report_of(document), list[str]()
    if own is None:
        yield f"**{summary.verdict.heading}**: {escaped(summary.sentence)}"
        yield from ("", escaped(summary.extent)) if summary.extent else ()
        yield from _remedy(judged)
        if summary.figures:
            rows = [
                (f"{(look := shown(one.verdict)).mark} {look.text}", one.title, leading(one), extent(one))
                for one in summary.figures
            ]
            yield from ("", *table_lines(["verdict", "path", "slowest", "share"], rows, right=(2,)))
        hidden += tables(document, judged.check, style, len(document.testcases))
    else:
        *found, verdict = own.lines
        word, _, rest = verdict.partition(":")
        yield f"**{word}**: {escaped(rest)}"
        yield from ("", *(f"- {escaped(line)}" for line in found[-_LINES:]))
        hidden += (f"- {escaped(line)}" for line in found[:-_LINES])
    warnings = explanations(document, lacking=judged.check.missing)
    if warnings:
        yield from ("", *(f"- **warning**: {escaped(text)}" for text in warnings[:_WARNINGS]))
        hidden = [*(f"- **warning**: {escaped(text)}" for text in warnings[_WARNINGS:]), *hidden]
    yield from ("", *environment(document))
    if hidden:
        name = "tables of all testcases" if own is None else "further lines"
        folded = ("", *_shortened(hidden), "", "</details>")
        yield from ("", f"<details><summary>{name}</summary>", *folded)


def _shortened(lines: list[str]) -> Iterator[str]:
    """The lines that fit into a comment, and how many do not."""
    length = 0
    for i, line in enumerate(lines):
        length += len(line) + 1
        if length > _LONGEST:
            yield from ("", f"{many(len(lines) - i, 'further line')} would not fit; attach the saved run.")
            return
        yield line


def _remedy(judged: Judged) -> Iterator[str]:
    """What to do, and the command that confirms it."""
    advice = judged.overview.advice
    parts = [f"remedy: {escaped(advice.do)}"] if advice.do else []
    parts += [f"confirm: {_code(advice.command)}"] if advice.command else []
    if parts:
        yield from ("", "; ".join(parts))


def environment(document: Document) -> Iterator[str]:
    """Versions, CPU, GPUs, NICs, settings of NCCL and the command, a line for each."""
    machine, facts = document.machine, Facts(document.facts)
    versions = {"wirespeed": document.version, "Python": document.python, "kernel": machine.kernel}
    versions |= {"NVIDIA driver": machine.driver} | document.libraries
    if machine.cuda:
        versions["its CUDA"] = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}"
    around = {"virtual machine": Known.HYPERVISOR, "container": Known.CONTAINER}
    places = [name for name, fact in around.items() if facts.text(fact) == ON]
    logs = [f"{log.tool} {log.version}".strip() for log in document.imported]
    rows = {
        "versions": ", ".join(f"{name} {text}" for name, text in versions.items() if text),
        "host": " · ".join([*hosts(machine), *places]),
        "GPUs": ", ".join(devices(machine)) or "none",
        "NICs": ", ".join(_nics(facts)),
        "settings": ", ".join(facts.several(Known.NCCL_VARIABLES)),
        "logs of": ", ".join(dict.fromkeys(logs)),
    }
    yield from (f"- {name}: {escaped(_without_folders(text))}" for name, text in rows.items() if text)
    if document.command:
        yield f"- command: {_code(_without_folders(document.command))}"


def _nics(facts: Facts) -> Iterator[str]:
    """RDMA devices of one kind in one text, with rate, link layer and firmware."""
    kinds = grouped((_about(facts, nic), nic) for nic in facts.several(Known.NICS))
    for about, nics in kinds.items():
        yield f"{len(nics)} × {nics[0]}" + (f" ({about})" if about else "")


def _about(facts: Facts, nic: str) -> str:
    """Rate, link layer and firmware of a NIC."""
    rate, firmware = facts.number(Known.PORT_RATE, nic), facts.text(Known.NIC_FIRMWARE, nic)
    parts = (
        f"{rate:g} Gbit/s" if rate else "",
        facts.text(Known.PORT_LAYER, nic),
        firmware and f"firmware {firmware}",
    )
    return ", ".join(filter(None, parts))


def _without_folders(text: str) -> str:
    """A text whose paths are only the names of files: folders often have the name of a user."""
    return _FOLDER.sub(lambda match: PurePath(match[0]).name or "/", text)


def _code(text: str) -> str:
    """A command as code, whatever it contains."""
    return f"`` {one_line(text).replace('`', chr(39))} ``"
