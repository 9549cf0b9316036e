"""Screens: what commands print. Each module has the name of a command, or of a part of several."""

from __future__ import annotations

from ..errors import UsageError
from ..reports import FORMATS, ReportFormat, find

#: The screen of ``wirespeed check``.
TEXT = ReportFormat("text", "terminal", checked=True, qualified=True, module=f"{__name__}.check")
#: The screen of ``wirespeed check --explain``.
EXPLAINED = ReportFormat("explained", "terminal", checked=True, qualified=True, module=f"{__name__}.doctor")
_OWN = {row.name: row for row in (TEXT, EXPLAINED)}


def check_formats() -> list[str]:
    """The names of the formats of ``wirespeed check``."""
    return [TEXT.name, *(row.name for row in FORMATS if row.checked)]


def check_format(name: str) -> ReportFormat:
    """The format of ``wirespeed check`` with this name.

    Raises:
        UsageError: If the format cannot show what a check found.
    """
    row = _OWN.get(name) or find(name)
    if not row.checked:
        raise UsageError(f"{name} cannot show a check; choose one of {', '.join(check_formats())}")
    return row
