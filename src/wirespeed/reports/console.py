"""Rendering with rich, shared by the reports that are text: the heading, warnings, tables in pieces."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment, Segments
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from ..document import Document
from ..terminal import visible
from ..units import many
from .machine_texts import devices, hosts, ranks
from .style import SIMULATED, Style

#: Maximum length of a paragraph of a screen: a file may have texts of any length.
_LONGEST_PARAGRAPH = 4000
#: Maximum number of warnings on a screen without ``-v``.
_MOST = 50


def printed(style: Style, *parts: RenderableType, longest: int = _LONGEST_PARAGRAPH) -> str:
    """Render the parts one below the other as text, without trailing blanks and the middle of long ones."""
    file = io.StringIO()
    console = Console(
        file=file, width=max(40, style.width), highlight=False, soft_wrap=False,
        force_terminal=style.color, color_system="256" if style.color else None, legacy_windows=False,
    )  # fmt: skip
    options, shown = console.options, list[Segment]()
    for part in _flat(parts):  # neutralise the text; keep the styles, which are ours
        part = _shortened(part, longest)
        plain = None if style.color else _plain(part, options.max_width)
        if plain is not None:
            shown.append(Segment(plain))
        else:
            segments = console.render(part, options)
            shown += [Segment(visible(text), style, control) for text, style, control in segments]
    console.print(Segments(shown), end="")
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _flat(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """Yield the parts of groups."""
    for part in parts:
        if isinstance(part, Group):
            yield from _flat(part.renderables)
        else:
            yield part


def _plain(part: RenderableType, width: int) -> str | None:
    """A text whose lines fit, without colours; None if rich must lay it out, which takes far longer."""
    if part == "":
        return "\n"
    if isinstance(part, Text) and part.end == "\n" and part.justify is None:
        fits = all(line.isprintable() and cell_len(line) <= width for line in part.plain.split("\n"))
        return f"{part.plain}\n" if fits else None
    return None


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


def heading(document: Document, settings: Sequence[str] = ()) -> RenderableType:
    """Version, host, CPU, memory and GPUs, a note on an imported or simulated run, and settings in force."""
    machine = document.machine
    parts = [*filter(None, [document.hostname]), *hosts(machine), *devices(machine), *ranks(machine)]
    lines: list[RenderableType] = [Text(f"wirespeed {document.version}", style="bold"), _Parts(parts)]
    if document.imported:
        lines.insert(1, Text(f"{document.origin}, not measured by wirespeed", style="bold magenta"))
    if document.simulated:
        lines.insert(1, Text(f"{SIMULATED} (machine {machine.name})", style="bold magenta"))
    if settings:
        lines.append(hanging(Text("settings:", style="cyan"), Text("; ".join(settings)), 1))
    return Group(*lines)


def hanging(first: Text, second: Text, gap: int = 2) -> RenderableType:
    """A text after another one; if it is long, its further lines are indented."""
    line = RichTable.grid(padding=(0, gap, 0, 0))
    line.add_row(first, second)
    return line


def warnings(texts: Iterable[str], style: Style) -> list[Text]:
    """One line for each condition that may explain low values; of many, the first."""
    return listed([f"warning: {text}" for text in texts], "more warning", style, "bold yellow")


def listed(texts: Sequence[str], more: str, style: Style, look: str, most: int = _MOST) -> list[Text]:
    """A line for each text, in a style of rich; without ``-v`` of many the first, and how many follow."""
    shown = texts if style.verbose else texts[:most]
    return [*(Text(text, style=look) for text in shown), *further(len(texts) - len(shown), more)]


def further(count: int, more: str) -> list[Text]:
    """A line that says how many things ``-v`` shows, too: ``3 more warnings; -v shows all``; none for 0."""
    return [Text(f"{many(count, more)}; -v shows all", style="dim")] if count > 0 else []


def pieces(
    heading: Column,
    columns: Sequence[str],
    rows: Sequence[Sequence[Text | str]],
    width: int,
    details: Sequence[Column] = (),
) -> list[Text]:
    """A table; if it is too wide for the terminal, several, each with some of the columns.

    Args:
        heading: Column of the labels of the rows.
        columns: Headings of the columns of values.
        rows: For each row its label, the values, and the details.
        width: Columns of the terminal.
        details: Additional columns behind the values, without those that are empty in all rows, and the
            widest of those that do not fit.

    Returns:
        The tables, in the order of their columns.
    """
    values = len(columns) + 1
    heads = [heading, *(Column(name, justify="right") for name in columns), *details]
    widths = [max(len(text) for text in (str(head.header), *(row[i] for row in rows))) + 2
              for i, head in enumerate(heads)]  # fmt: skip
    one = sum(widths[:values]) <= width + 2
    at_once = len(columns) if one else max(1, (width - widths[0]) // max(widths[1:values]))
    kept = [i for i in range(values, len(heads)) if any(row[i] for row in rows)]
    while kept and sum(widths[i] for i in (*range(min(values, at_once + 1)), *kept)) > width + 2:
        kept.remove(max(kept, key=widths.__getitem__))
    tables = []
    for start in range(1, values, at_once):
        shown = [0, *range(start, min(start + at_once, values)), *kept]
        tables.append(laid_out([heads[i] for i in shown], [[row[i] for i in shown] for row in rows]))
    return tables


def laid_out(heads: Sequence[Column], rows: Sequence[Sequence[Text | str]]) -> Text:
    """Columns side by side, each as wide as its longest cell, below their headings."""
    columns = []
    for i, head in enumerate(heads):
        cells = [row[i] for row in rows]
        texts = [Text(str(head.header), style="dim")]
        texts += [cell.copy() if isinstance(cell, Text) else Text(cell, style=head.style) for cell in cells]
        width = max(text.cell_len for text in texts)
        for text in texts:
            text.align("right" if head.justify == "right" else "left", width)
        columns.append(texts)
    lines = [Text("  ").join(line) for line in zip(*columns, strict=True)]
    for line in lines:
        line.rstrip()
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
