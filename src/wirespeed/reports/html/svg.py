"""SVG elements; the XML library escapes their text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from ...terminal import one_line

if TYPE_CHECKING:
    from markupsafe import Markup

Element = ET.Element
#: Approximate width of a letter of 11 or 12 pixels.
LETTER = 6.4
#: Pixels of a chart per em of the page.
_EM = 14.0


def drawing(width: float, height: float, title: str, css: str = "") -> Element:
    """An empty chart that scales with the page's font size; the title serves screen readers.

    Args:
        width, height: Size in pixels.
        title: Description of the content.
        css: CSS class; empty for none.

    Returns:
        The chart.
    """
    size = {} if css == "machine" else {"width": f"{width / _EM:.1f}em"}
    svg = Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", **size, "role": "img"})
    if css:
        svg.set("class", css)
    ET.SubElement(svg, "title").text = one_line(title)
    return svg


def add(to: Element, name: str, css: str = "", text: str = "", **attributes: float | str) -> Element:
    """Add an element; numbers are rounded to visible precision.

    Args:
        to: The parent.
        name: Name of the element.
        css: CSS class; empty for none.
        text: Text inside; empty for none.
        **attributes: Attributes; ``_`` in a name stands for ``-``.

    Returns:
        The new element.
    """
    texts = {key.replace("_", "-"): _plain(value) for key, value in attributes.items()}
    element = ET.SubElement(to, name, texts)
    if css:
        element.set("class", css)
    if text:
        element.text = one_line(text)
    return element


def _plain(value: float | str) -> str:
    """A number with at most one decimal place; a text as it is."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def markup(svg: Element) -> Markup:
    """The chart as markup that a template does not escape."""
    from markupsafe import Markup

    return Markup(ET.tostring(svg, encoding="unicode", short_empty_elements=False))


def fitted(text: str, width: float) -> str:
    """Cut a text to a width in pixels.

    Args:
        text: Any text.
        width: Width in pixels.

    Returns:
        At least two letters; an ellipsis stands for the rest.
    """
    text, most = one_line(text), max(2, int(width / LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"
