"""Reports: a format is a module and its row in ``registry.FORMATS``; the other modules are shared by formats.

A report is a function ``render(judged: Judged, style: Style) -> str`` without side effects: it returns
the text of a run, in the width and with the colour and detail of the style. Other packages add formats as
entry points of the group ``wirespeed.reports``; their functions take a Document.
"""

from .registry import FORMATS, ReportFormat, find, format_of_suffix, formats, render
from .style import SIMULATED, DialectName, Style

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
