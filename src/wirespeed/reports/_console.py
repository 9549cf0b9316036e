"""Shared by the reports for people: rendering with rich, and the heading."""

from __future__ import annotations

import io
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from ..document import Document
from ..terminal import visible
from ..units import SMALL, format_size
from . import Style
from ._explanations import explanations

SIMULATED = "SIMULATED: no hardware was measured"


def printed(style: Style, *parts: RenderableType) -> str:
    """Render the parts one below the other as text, without trailing blanks."""
    file = io.StringIO()
    console = Console(
        file=file, width=max(40, style.width), highlight=False, soft_wrap=False,
        force_terminal=style.color, color_system="256" if style.color else None, legacy_windows=False,
    )  # fmt: skip
    for part in parts:  # neutralise the text; keep the styles, which are ours
        shown = [Segment(visible(text), style, control) for text, style, control in console.render(part)]
        console.print(Segments(shown), end="")
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def heading(document: Document) -> RenderableType:
    """Return version, host, CPU, memory and GPUs, and a note if the machine is simulated."""
    machine = document.machine
    cores = sum(len(node.cores) for node in machine.numa)
    parts = [machine.host or document.host]
    if machine.cpu:
        parts.append(machine.cpu)
    if cores:
        memory = format_size(sum(node.memory_bytes for node in machine.numa))
        nodes = len(machine.numa)
        parts.append(f"{cores} cores, {memory}, {nodes} NUMA node{'s' if nodes > 1 else ''}")
    for model, gpus in groupby(machine.gpus, key=lambda gpu: gpu.model):
        parts.append(f"{len(list(gpus))} x {model}")
    if machine.ranks:
        hosts = len({rank.host for rank in machine.ranks})
        parts.append(f"{len(machine.ranks)} ranks on {hosts} host{'s' if hosts > 1 else ''}")
    lines = [Text(f"wirespeed {document.version}", style="bold"), Text(" · ".join(parts))]
    if document.simulated:
        lines.insert(1, Text(f"{SIMULATED} (machine {machine.name})", style="bold magenta"))
    return Group(*lines)


def warnings(document: Document) -> list[Text]:
    """Return one line for each condition that may explain low values."""
    return [Text(f"warning: {text}", style="bold yellow") for text in explanations(document)]


def number(value: float, scale: float) -> str:
    """Format a value in the display unit with the useful number of digits."""
    shown = value / scale
    if 0 < shown < SMALL:
        return f"{shown:.2g}"
    return f"{shown:.2f}" if shown < 10_000 else f"{shown:.0f}"
