"""Data embedded in a page: gzip in base64, so that no data can be interpreted as markup.

The templates of pages: one environment, and one way to render them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from ...document import Document
from ...results.store import encode
from ...terminal import visible
from ...units import GB, format_size, many
from ...version import __version__
from ..blocks import MARKS, call_times, modelled, rate_of
from ..comparisons import difference, moved, values_of
from ..findings import VERDICTS, applicable, css_of, gate_text, marked, number, shown

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

#: Maximum size of the embedded Documents in a page, in bytes of base64.
ROOM = 6_000_000
#: Significant digits of values in shortened Documents: a hundred times finer than measurement noise.
_DIGITS = 5
_ROUND = f"%.{_DIGITS}g"
#: Minimum size of a packed sample in bytes (most of its bits are noise), and of a cell's other fields.
_SAMPLE, _CELL = 7 * 4 / 3, 60


def packed(data: bytes) -> Markup:
    """Data as gzip in base64; without a timestamp, so that pages are reproducible."""
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(data, 6, mtime=0)).decode())


def packed_document(document: Document, room: int = ROOM) -> tuple[Markup, str]:
    """Pack a Document into at most ``room`` bytes; return it with a note on what was left out.

    Args:
        document: The run.
        room: Maximum size of the packed text, in bytes.

    Returns:
        The packed Document as JSON, and the note; empty if it is complete.
    """
    text, left_out = packed(b""), ""
    for data, note in _forms(document, room):
        text, left_out = packed(data), note
        if len(text) <= room:
            break
    return text, left_out


def _forms(document: Document, room: int) -> Iterator[tuple[bytes, str]]:
    """Yield the Document, then shorter forms of it, each with a note on what was left out."""
    cells = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    samples = sum(len(cell.samples) for cell in cells)
    if samples * _SAMPLE + len(cells) * _CELL <= room:
        yield encode(document), ""
    shorter = msgspec.to_builtins(document)
    _shorten(shorter, keep_samples=True)
    note = f"The run in this page has values of {_DIGITS} digits"
    yield msgspec.json.encode(shorter), f"{note}, to keep the page small."
    _shorten(shorter, keep_samples=False)
    yield msgspec.json.encode(shorter), f"{note} and no samples, to keep the page small."


def _shorten(document: Any, *, keep_samples: bool) -> None:
    """Round the values of all cells of a Document as plain data, or remove its samples."""
    for result in document["testcases"]:
        for table in result.get("tables", ()):
            for cell in table.get("cells", ()):
                if not keep_samples:
                    for key in ("samples", "rounds"):
                        cell.pop(key, None)
                    continue
                cell.update((key, _rounded(value)) for key, value in cell.items())


def _rounded(value: Any) -> Any:
    """Data with its numbers rounded."""
    if type(value) is float:
        return float(_ROUND % value)
    if type(value) is dict:
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if type(value) in (list, tuple) else value


def rendered(template: str, style: str, script: str = "", **variables: Any) -> str:
    """Render a template with the version of wirespeed.

    Args:
        template: Its file; a page extends ``base.html``.
        style, script: CSS and JavaScript, the only ones that the page permits.
        **variables: The variables of the template.
    """
    from markupsafe import Markup

    text: str = _environment().get_template(template).render(
        style=Markup(style), script=Markup(script), policy=_policy(style, script), version=__version__,
        **variables,
    )  # fmt: skip
    return text


def source(name: str) -> str:
    """Text of a file of this folder."""
    return (files(__package__) / name).read_text("utf-8")


def capital(text: str) -> str:
    """A sentence with a capital letter, unless it begins with a name such as ``gpu1``."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2
    from markupsafe import Markup, escape

    def harmless(value: Any) -> Any:
        return visible(value) if type(value) is str else value

    def broken(text: str) -> Markup:
        """Let a name break after its underscores."""
        return Markup(str(escape(visible(text))).replace("_", "_<wbr>"))

    def whole(text: str) -> Markup:
        """Keep names and options with hyphens on one line where they fit."""
        return Markup(
            re.sub(r"\S*\w-\S+|--\S+", r'<span class="whole">\g<0></span>', str(escape(visible(text))))
        )

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source), autoescape=True, finalize=harmless, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {
        "many": many, "broken": broken, "whole": whole, "packed": lambda text: packed(str(text).encode()),
        "shown": shown, "VERDICTS": VERDICTS, "css_of": css_of, "marked": marked, "moved": moved,
        "difference": difference, "values_of": values_of, "number": number, "GB": GB,
        "applicable": applicable, "gate_text": gate_text, "capital": capital,
        "MARKS": MARKS, "METHODS": list(MARKS), "modelled": modelled, "rate_of": rate_of,
        "call_times": call_times, "format_size": format_size,
    }  # fmt: skip
    return environment


def _policy(style: str, script: str) -> str:
    """The Content-Security-Policy: only the page's own style and script, no other sources."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
