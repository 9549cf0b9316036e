"""The formats of reports: a row of ``FORMATS`` each, and a module with ``render(judged, style) -> str``,
without side effects, which returns the text of a run in the width, colour and detail of the style. Features
add rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UsageError
from ..features import features
from ..terminal import escaped, short_lines, visible
from .style import SIMULATED, DialectName, Style

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.judged import Judged
    from ..results.read_many import Unreadable
    from .checked_runs import CheckedRun

__all__ = [
    "FORMATS",
    "SIMULATED",
    "DialectName",
    "ReportFormat",
    "Style",
    "find",
    "format_of_suffix",
    "formats",
    "render",
]  # fmt: skip

#: Text, text with colours for a terminal, or JSON.
Form = Literal["text", "terminal", "json"]
_PLAIN = Style()
Report = Callable[["Document", Style], str]


@dataclass(frozen=True)
class ReportFormat:
    """A format: a module.

    All have ``render(judged, style) -> str``. Those that ``wirespeed check`` offers also have
    ``part(judged, style)``, which returns what a run adds to the report of several, for
    ``joined(runs: Sequence[CheckedRun], unreadable, style) -> str``, which a feature may have in its place
    (``Feature.joined``).

    Attributes:
        name: Name that ``--format`` accepts.
        form: What it is; ``terminal`` is text with colours.
        suffixes: Suffixes of file names that stand for it; the first is that of new files.
        checked: Whether ``wirespeed check`` offers it.
        qualified: Whether it shows qualifications of nodes.
        short: Whether lines of text are shortened to `LONGEST_LINE`; rows of numbers are not.
        module: Its module; empty for that of this package with its name, with ``_`` for ``-``. Behind a
            colon its function if that is not ``render``.
    """

    name: str
    form: Form = "text"
    suffixes: tuple[str, ...] = ()
    checked: bool = False
    qualified: bool = False
    short: bool = False
    module: str = ""

    @property
    def _functions(self) -> Any:
        module, _, function = (self.module or f"{__package__}.{self.name.replace('-', '_')}").partition(":")
        functions = import_module(module)
        return getattr(functions, function) if function else functions

    def render(self, judged: Judged, style: Style) -> str:
        """The report of a run, without control characters from the Document.

        Raises:
            UsageError: If the run qualified nodes, which the format does not show.
        """
        if judged.document.qualification and not self.qualified:
            names = ", ".join(row.name for row in FORMATS if row.qualified)
            raise UsageError(f"{self.name} does not show a qualification of nodes; choose one of {names}")
        functions = self._functions
        text: str = getattr(functions, "render", functions)(judged, style)
        return self._neutral(text, style)

    def part(self, judged: Judged, style: Style) -> Any:
        """What a checked run adds to the report of several; processes send it to each other."""
        return self._functions.part(judged, style)

    def joined(self, runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
        """The report of several checked runs, and of the files that cannot be read or judged."""
        own = (one.named(one.joined[self.name]) for one in features() if self.name in one.joined)
        function = next(own, None) or self._functions.joined
        return self._neutral(function(runs, unreadable, style), style)

    def _neutral(self, text: str, style: Style) -> str:
        """Neutralise control characters of texts in the Document.

        Own formats for terminals did so before they added colours and links (`console.printed`).
        """
        if self.form == "json":
            return escaped(text)
        if self.form == "terminal":
            return text
        text = visible(text)
        return short_lines(text) if self.short else text


#: Formats of the core and of features.
FORMATS = (
    ReportFormat("table", "terminal", (".txt",), qualified=True),
    ReportFormat("plot", "terminal"),
    ReportFormat("json", "json", (".json",), checked=True, qualified=True),
    ReportFormat("csv", suffixes=(".csv",)),
    ReportFormat("html", suffixes=(".html", ".htm"), checked=True, qualified=True),
    ReportFormat("markdown", suffixes=(".md",), checked=True, qualified=True),
    ReportFormat("junit", suffixes=(".xml",), checked=True, qualified=True),
    ReportFormat("prometheus", suffixes=(".prom",), checked=True, qualified=True),
    *(
        ReportFormat(row.name, row.form, short=row.short, module=feature.path(row.function))
        for feature in features()
        for row in feature.formats
    ),
)


#: Former names of formats.
FORMER = {"github": "markdown"}


def formats() -> list[str]:
    """The names of all formats."""
    return [row.name for row in FORMATS]


def find(name: str) -> ReportFormat:
    """The format with this name, or former name.

    Raises:
        UsageError: If the format does not exist; the message lists all.
    """
    for row in FORMATS:
        if row.name == FORMER.get(name, name):
            return row
    raise UsageError(f"there is no format {name!r}; choose one of {', '.join(formats())}")


def format_of_suffix(suffix: str) -> str:
    """The name of the format of files with a suffix; empty if there is none."""
    return next((row.name for row in FORMATS if suffix in row.suffixes), "")


def render(document: Document | Judged, format: str | Report = "table", style: Style = _PLAIN) -> str:
    """Render a Document as text.

    Args:
        document: The run to show. Its values are judged by their limits, unless it is a ``Judged``.
        format: Name of a format, or a function ``report(document, style) ->
            str``.
        style: Width, colour and verbosity.

    Returns:
        The report.

    Raises:
        UsageError: If the format does not exist.
    """
    from ..judging.judged import Judged

    judged = Judged.of(document)
    if isinstance(format, str):
        return find(format).render(judged, style)
    return format(judged.document, style)
