"""The Document as JSON."""

from __future__ import annotations

from ..document import Document
from ..results.store import encode
from . import Style


def render(document: Document, style: Style) -> str:
    """Return the complete Document as JSON; the style has no effect."""
    del style
    return encode(document).decode()
