"""Pages of the documentation, its causes and sections as text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style as RichStyle
from rich.table import Table as RichTable
from rich.text import Text

from ..reports import Style
from ..reports.console import printed
from ..reports.topics import IMAGE, LINK, Topic, causes, topic, topics

#: The command that shows a topic in the terminal.
HELP = "wirespeed help"
#: Maximum number of further sections that a search names.
_OTHERS = 8
_MENTIONED = re.compile(rf"(?<={HELP} )[\w#-]+")


def render_topic(shown: Topic, style: Style) -> str:
    """A topic as text for a terminal; references to pages become commands that show them."""
    text = LINK.sub(lambda match: _named(match, shown.file.stem), IMAGE.sub("", shown.text))
    return printed(style, Text(shown.title, style="bold"), "", _markdown(text))


def _fit(table: RichTable, width: int) -> None:
    """Give the columns of a table widths in which the longest word of each fits, if all do."""
    table.pad_edge, table.collapse_padding = True, False
    room = width - 3 * len(table.columns) - 1  # padding and borders
    cells = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    whole = [max(map(len, texts)) for texts in cells]
    widths = [max(len(word) for text in texts for word in [*text.split(), " "]) for texts in cells]
    while sum(widths) > room > len(widths):
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < min(room, sum(whole)):
        widest = max(range(len(widths)), key=lambda i: whole[i] / widths[i])
        widths[widest] += 1
    for column, chosen in zip(table.columns, widths, strict=True):
        column.overflow, column.width = "fold", chosen


def _markdown(text: str) -> RenderableType:
    """Markdown in which no cell of a table is cut: an option or a name that ends in … cannot be typed."""
    from rich.markdown import Markdown, TableElement

    class WholeCells(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                if isinstance(table, RichTable):
                    _fit(table, options.max_width)
                yield table

    class WholeTables(Markdown):
        elements = {**Markdown.elements, "table_open": WholeCells}  # noqa: RUF012 - as rich declares it

    return WholeTables(text, hyperlinks=False)


def overview(style: Style) -> str:
    """The pages with their titles, the causes, and what else ``wirespeed help`` shows."""
    pages = RichTable.grid(padding=(0, 2))
    for name in topics():
        page = topic(name)
        pages.add_row(f"  {name}", page.title if page else "")
    lines: list[RenderableType] = [
        Text("Pages:", style="bold"), pages, "",
        Text("Causes of slow paths:", style="bold"),
        Padding(Text(", ".join(causes())), (0, 0, 0, 2)), "",
        Text(f"{HELP} PAGE or CAUSE shows it. {HELP} WORD searches, for example for slurm or busbw."),
        Text("wirespeed COMMAND --help shows its options; wirespeed --help lists the commands."),
    ]  # fmt: skip
    return printed(style, *lines)


def found(sections: Sequence[Topic], style: Style) -> str:
    """The best section for a word, and the commands that show others."""
    first, *others = sections
    text = render_topic(first, style)
    if others:
        names = list(dict.fromkeys(other.name for other in others if other.name != first.name))[:_OTHERS]
        text += printed(style, "", Text("See also:", style="bold"), *(Text(f"  {HELP} {n}") for n in names))
    return text


def linked(text: str) -> Text:
    """A text in which the topics of ``wirespeed help`` are links, where the terminal supports them."""
    shown = Text(text)
    for match in _MENTIONED.finditer(text):
        if target := topic(match[0]):
            shown.stylize(RichStyle(link=target.link), match.start() - len(HELP) - 1, match.end())
    return shown


def _named(match: re.Match[str], page: str) -> str:
    """The text of a link with the command that shows what it leads to, if that is a topic."""
    text, file, anchor = match.groups()
    if file and ("://" in file or not file.endswith(".md")):
        return f"{text} ({file})" if "://" in file else str(text)
    name = f"{PurePath(file).stem or page}{anchor or ''}"
    return f"{text} (`{HELP} {name}`)" if topic(name) else str(text)
