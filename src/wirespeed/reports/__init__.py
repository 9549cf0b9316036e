"""Reports: each module renders a Document in the format that it is named after.

A report is a function ``render(document: Document, style: Style) -> str`` without side effects: it returns
the text of a run, in the width and with the colour and detail of the style. Other packages add reports as
entry points of the group ``wirespeed.reports``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import UsageError
from ..terminal import escaped, visible

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.age import MaxAge
    from ..judging.diagnosis import Diagnosis
    from ..judging.verdicts import Check
    from ..results.baseline import Baseline
    from ..results.inventory import Inventory
    from ..results.overrides import Override
    from ..results.published_gates import GateSet

#: Formats of this package; the module of each has its name, with ``_`` for ``-``.
Format = Literal[
    "csv", "html", "json", "junit", "markdown", "nccl-tests", "nccl-tests-json", "nvbandwidth",
    "nvbandwidth-json", "overalloc", "plot", "prometheus", "table", "transfers",
]  # fmt: skip
#: Versions of nvbandwidth, and its relative.
DialectName = Literal["0.10", "0.8", "sailbandwidth"]
GROUP = "wirespeed.reports"
SIMULATED = "SIMULATED: no hardware was measured"
#: Formats that add colours, like those of other packages. They neutralise colours in texts of the Document.
_COLORED = ("table", "plot")


@dataclass(frozen=True)
class Criteria:
    """What values are judged by, in addition to the limits of the links.

    Parameters
    ----------
    overrides : tuple[Override, ...]
        Accepted deviations.
    baseline : Baseline or None
        Values that good machines of the same model reach.
    tolerance : float
        A value fails if it is below its baseline by more than this fraction (``verdicts.TOLERANCE``).
    ignore_busy : bool
        Whether to judge devices that another process used, too.
    expected : Inventory or None
        What each host should have; None: nothing is expected.
    max_age : MaxAge or None
        Older runs are not judged.
    """

    overrides: tuple[Override, ...] = ()
    baseline: Baseline | None = None
    tolerance: float = 0.05
    ignore_busy: bool = False
    expected: Inventory | None = None
    max_age: MaxAge | None = None

    def judge(self, document: Document) -> Check:
        """Judge a Document.

        Parameters
        ----------
        document : Document
            The run to judge.

        Returns
        -------
        Check
            A verdict for each cell, testcase and the machine.

        Raises
        ------
        UsageError
            If an override matches no cell, or the baseline is for a different kind of machine.
        """
        from ..judging.age import unjudged
        from ..judging.judge import judge

        check = judge(
            document, self.overrides, self.baseline, self.tolerance, self.ignore_busy, self.expected
        )
        stale = self.max_age.stale(document) if self.max_age else ""
        return unjudged(check, stale) if stale else check


#: Judge by the limits of the links and their expected ranges only.
BY_LIMITS = Criteria()


@dataclass(frozen=True)
class Judged:
    """What ``wirespeed check`` found about a run.

    Parameters
    ----------
    check : Check
        The verdicts.
    diagnosis : Diagnosis
        What explains the slow cells.
    """

    check: Check
    diagnosis: Diagnosis

    @classmethod
    def of(cls, document: Document, by: Criteria = BY_LIMITS, gates: Iterable[GateSet] = ()) -> Judged:
        """Judge a run, diagnose it, and compare it with sets of gates.

        Raises
        ------
        UsageError
            If an override matches no cell, or the baseline is for a different kind of machine.
        """
        from ..judging.diagnosis import Diagnosis, diagnose
        from ..judging.gate_verdicts import compare_gates

        check = by.judge(document)
        if check.stale:
            return cls(check, Diagnosis((), 0, 0, (), bool(document.facts), document.simulated))
        compared = tuple(compare_gates(one, document, check.judgements) for one in gates)
        return cls(replace(check, gates=compared), diagnose(document, check))


@dataclass(frozen=True)
class Style:
    """How to show a report.

    Parameters
    ----------
    width : int
        Columns of the terminal.
    color : bool
        Whether to add colour escape sequences.
    verbose : bool
        Whether to show every sample and every cell.
    utilization : bool
        Whether to add tables of measured value over limit, if the format has them.
    criteria : Criteria
        What values are judged by, if the format has verdicts.
    judged : Judged or None
        What ``wirespeed check`` found, for JUnit, Prometheus, Markdown and HTML to show; None for a report of
        a run that was not checked.
    dialect : {'0.10', '0.8', 'sailbandwidth'}
        Version of nvbandwidth whose output nvbandwidth's formats have, or sailbandwidth.
    perf : bool
        Whether nvbandwidth's text has lines ``&&&& PERF`` in place of sums.
    all_cells : bool
        Whether Prometheus gets every value, in addition to those of each device and kind of path.
    """

    width: int = 80
    color: bool = False
    verbose: bool = False
    utilization: bool = False
    criteria: Criteria = BY_LIMITS
    judged: Judged | None = None
    dialect: DialectName = "0.10"
    perf: bool = False
    all_cells: bool = False

    def check(self, document: Document) -> Check:
        """Return the verdicts on a Document: those that ``wirespeed check`` found, or by the criteria."""
        return self.judged.check if self.judged else self.criteria.judge(document)


Report = Callable[["Document", Style], str]


def formats() -> list[str]:
    """Return the names of all formats: those of this package, then those of others."""
    return [*get_args(Format), *sorted(point.name for point in metadata.entry_points(group=GROUP))]


def render(document: Document, format: Format | str | Report = "table", style: Style = Style()) -> str:
    """Render a Document as text.

    Parameters
    ----------
    document : Document
        The run to show.
    format : Format, str or callable
        Name of a format, of this package or another one, or a function ``report(document, style) -> str``.
    style : Style
        Width, colour, verbosity and criteria.

    Returns
    -------
    str
        The report.

    Raises
    ------
    UsageError
        If the format does not exist.
    """
    if not isinstance(format, str):
        return format(document, style)
    text = _find(format)(document, style)
    if format.endswith("json"):
        return escaped(text)
    return visible(text, colored=style.color and (format in _COLORED or format not in get_args(Format)))


def _find(name: str) -> Report:
    """Return the report with this name."""
    if name not in formats():
        raise UsageError(f"unknown format {name!r}; choose from {', '.join(formats())}")
    for point in metadata.entry_points(group=GROUP, name=name):
        found: Report = point.load()
        return found
    report: Report = import_module(f"{__name__}.{name.replace('-', '_')}").render
    return report
