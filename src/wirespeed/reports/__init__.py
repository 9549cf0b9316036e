"""Reports: a format is a module and its row in ``registry.FORMATS``; the other modules are shared by formats.

A report is a function ``render(document: Document, style: Style) -> str`` without side effects: it returns
the text of a run, in the width and with the colour and detail of the style. Other packages add formats as
entry points of the group ``wirespeed.reports``.
"""

from .registry import FORMATS, ReportFormat, find, format_of_suffix, formats, render
from .style import BY_LIMITS, SIMULATED, Criteria, DialectName, Judged, Style

__all__ = [
    "BY_LIMITS",
    "FORMATS",
    "SIMULATED",
    "Criteria",
    "DialectName",
    "Judged",
    "ReportFormat",
    "Style",
    "find",
    "format_of_suffix",
    "formats",
    "render",
]  # fmt: skip
