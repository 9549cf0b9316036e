"""Reports: every module here is a view of the Document, named like its format.

A report is a function ``render(document, style) -> str`` and nothing else. Other packages add
theirs as entry points of the group ``wirespeed.reports``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from ..errors import UsageError
from ._text import visible

if TYPE_CHECKING:
    from ..results.baseline import Baseline
    from ..results.document import Document
    from ..results.overrides import Override
    from ..verdicts import Check

GROUP = "wirespeed.reports"


@dataclass(frozen=True)
class Criteria:
    """What a report judges values by, besides what the links allow.

    Parameters
    ----------
    overrides
        Deviations that are accepted.
    baseline
        What good machines of the model reach.
    tolerance
        A value fails below its baseline by more than this fraction (``verdicts.TOLERANCE``).
    ignore_busy
        Whether devices that another process used are judged too.
    """

    overrides: tuple[Override, ...] = ()
    baseline: Baseline | None = None
    tolerance: float = 0.05
    ignore_busy: bool = False

    def judge(self, document: Document) -> Check:
        """Return the verdicts on a Document.

        Raises
        ------
        UsageError
            If an override matches nothing, or the baseline is not of such machines.
        """
        from ..verdicts import judge

        return judge(document, self.overrides, self.baseline, self.tolerance, self.ignore_busy)


#: By what the links allow and what is normal for them.
BY_LIMITS = Criteria()


@dataclass(frozen=True)
class Style:
    """How a report is shown.

    Parameters
    ----------
    width
        Columns of the terminal.
    verbose
        Whether with every sample and every cell.
    utilization
        Whether with tables of measured over limit, where the format has them.
    criteria
        What values are judged by, where the format has verdicts.
    """

    width: int = 80
    color: bool = False
    verbose: bool = False
    utilization: bool = False
    criteria: Criteria = BY_LIMITS


Report = Callable[["Document", Style], str]


def formats() -> list[str]:
    """Return the names of all formats."""
    own = [m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    return sorted(own) + sorted(point.name for point in metadata.entry_points(group=GROUP))


def render(document: Document, format: str | Report = "table", style: Style = Style()) -> str:
    """Return a Document as text.

    Parameters
    ----------
    format
        The name of a format, or a report of your own.

    Raises
    ------
    UsageError
        If there is no such format.
    """
    if not isinstance(format, str):
        return format(document, style)
    text = _find(format)(document, style)
    exact = style.color or format.endswith("json")
    return text if exact else visible(text)  # those with colour have seen to it themselves


def _find(name: str) -> Report:
    if name not in formats():
        raise UsageError(f"there is no format {name!r}; there are {', '.join(formats())}")
    for point in metadata.entry_points(group=GROUP, name=name):
        found: Report = point.load()
        return found
    report: Report = import_module(f"{__name__}.{name.replace('-', '_')}").render
    return report
