"""What ``wirespeed help`` prints, and references to it on other screens."""

from __future__ import annotations

import re

from rich.markdown import Markdown
from rich.style import Style as RichStyle
from rich.text import Text

from ..reports import Style
from ..reports.console import printed
from ..reports.style import IMAGE, LINK, Topic, topic

#: The command that shows a topic in the terminal.
HELP = "wirespeed help"
_MENTIONED = re.compile(rf"(?<={HELP} )[\w#-]+")


def render(shown: Topic, style: Style) -> str:
    """A topic as text for a terminal; references to pages become commands that show them."""
    text = LINK.sub(lambda match: _named(match, shown.file.stem), IMAGE.sub("", shown.text))
    return printed(style, Text(shown.title, style="bold"), "", Markdown(text, hyperlinks=False))


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
    if ("/" in file or not file.endswith(".md")) and file:
        return f"{text} ({file})" if "://" in file else str(text)
    name = f"{file.removesuffix('.md') or page}{anchor or ''}"
    return f"{text} (`{HELP} {name}`)" if topic(name) else str(text)
