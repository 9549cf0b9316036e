"""Shared by the reports for people: rendering with rich, and the heading."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment, Segments
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from ..document import Document
from ..terminal import visible
from ..units import format_size, many
from .explanations import explanations
from .style import SIMULATED, Style

#: Maximum length of a paragraph of a screen: a file may have texts of any length.
_LONGEST_PARAGRAPH = 4000


def printed(style: Style, *parts: RenderableType, longest: int = _LONGEST_PARAGRAPH) -> str:
    """Render the parts one below the other as text, without trailing blanks and the middle of long ones."""
    file = io.StringIO()
    console = Console(
        file=file, width=max(40, style.width), highlight=False, soft_wrap=False,
        force_terminal=style.color, color_system="256" if style.color else None, legacy_windows=False,
    )  # fmt: skip
    for part in parts:  # neutralise the text; keep the styles, which are ours
        segments = console.render(_shortened(part, longest))
        shown = [Segment(visible(text), style, control) for text, style, control in segments]
        console.print(Segments(shown), end="")
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _shortened(part: RenderableType, most: int) -> RenderableType:
    """A part without the middle of the paragraphs that are too long, if it is a text."""
    if not isinstance(part, Text | str) or len(part) <= most:
        return part
    end = most // 3
    return Text("\n").join(
        line if len(line) <= most else line[: most - end - 1] + "…" + line[-end:]
        for line in (Text(part) if isinstance(part, str) else part).split("\n")
    )


class _Parts:
    """Parts of a line that is broken only between them."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for part in self._parts:
            longer = f"{line} · {part}" if line else part
            if line and cell_len(longer) > options.max_width:
                yield Text(line)
                longer = part
            line = longer
        yield Text(line)


def heading(document: Document) -> RenderableType:
    """Version, host, CPU, memory and GPUs, and a note on an imported or simulated run."""
    machine = document.machine
    cores = sum(len(node.cores) for node in machine.numa)
    parts = [host] if (host := document.hostname) else []
    if machine.cpu:
        parts.append(machine.cpu)
    if cores:
        memory = format_size(sum(node.memory_bytes for node in machine.numa))
        parts.append(f"{many(cores, 'core')}, {memory}, {many(len(machine.numa), 'NUMA node')}")
    for model, gpus in groupby(machine.gpus, key=lambda gpu: gpu.model):
        parts.append(f"{len(list(gpus))} x {model}")
    parts += [count for kind, count in machine.counts.items() if kind.name in machine.others]
    if machine.ranks:
        hosts = len({rank.host for rank in machine.ranks})
        parts.append(f"{many(len(machine.ranks), 'rank')} on {many(hosts, 'host')}")
    lines: list[RenderableType] = [Text(f"wirespeed {document.version}", style="bold"), _Parts(parts)]
    if document.imported:
        lines.insert(1, Text(f"{document.origin}, not measured by wirespeed", style="bold magenta"))
    if document.simulated:
        lines.insert(1, Text(f"{SIMULATED} (machine {machine.name})", style="bold magenta"))
    return Group(*lines)


def warnings(document: Document) -> list[Text]:
    """One line for each condition that may explain low values."""
    return [Text(f"warning: {text}", style="bold yellow") for text in explanations(document)]


def pieces(
    heading: Column,
    columns: Sequence[str],
    rows: Sequence[Sequence[Text | str]],
    width: int,
    details: Sequence[Column] = (),
) -> list[RichTable]:
    """A table; if it is too wide for the terminal, several, each with some of the columns.

    Parameters
    ----------
    heading : Column
        Column of the labels of the rows.
    columns : Sequence[str]
        Headings of the columns of values.
    rows : Sequence of Sequence of Text or str
        For each row its label, the values, and the details.
    width : int
        Columns of the terminal.
    details : Sequence[Column]
        Additional columns behind the values; those that are empty in all rows are omitted.

    Returns
    -------
    list[RichTable]
        The tables, in the order of their columns.
    """
    values = len(columns) + 1
    label_width = max([len(str(heading.header)), *(len(row[0]) for row in rows)]) + 2
    column_width = (
        max(len(text) for texts in (columns, *(row[1:values] for row in rows)) for text in texts) + 2
    )
    at_once = max(1, (width - label_width) // column_width)
    kept = [i for i in range(len(details)) if any(row[values + i] for row in rows)]
    tables = []
    for start in range(1, values, at_once):
        shown = range(start, min(start + at_once, values))
        piece = RichTable(
            heading.copy(),
            *(Column(columns[i - 1], justify="right", no_wrap=True) for i in shown),
            *(details[i].copy() for i in kept),
            box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim",
        )  # fmt: skip
        for row in rows:
            piece.add_row(row[0], *(row[i] for i in shown), *(row[values + i] for i in kept))
        tables.append(piece)
    return tables
