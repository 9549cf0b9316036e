"""An HTML file that works offline: topology, verdicts, heat maps, curves, samples, state, environment."""

from __future__ import annotations

from ...document import Document
from .. import Style

__all__ = ["render"]


def render(document: Document, style: Style) -> str:
    """Render the Document as a page."""
    from .page import page

    return page([document], by=style.criteria, judged=style.judged)
