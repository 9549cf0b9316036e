"""The Document itself."""

from __future__ import annotations

from ..results.document import Document
from ..results.store import encode
from . import Style


def render(document: Document, style: Style) -> str:
    """Return the Document as JSON; it holds everything, whatever the style."""
    del style
    return encode(document).decode()
