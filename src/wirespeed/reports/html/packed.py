"""What is packed into a page: gzip in base64, so that nothing in it can be read as a part of the page."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...results.document import Document
from ...results.store import encode

if TYPE_CHECKING:
    from markupsafe import Markup

#: So much of a page may be the packed Documents, in bytes of base64.
ROOM = 6_800_000
#: Values keep so many digits where a Document is too large: a hundred times finer than any noise here.
_DIGITS = 5
_VALUES = ("value", "limit", "peak", "expected", "samples")
#: A sample of all digits takes so many bytes at least, however it is packed: most of its bits are noise.
#: And so many what else is said of a cell.
_SAMPLE, _CELL = 7 * 4 / 3, 60


def packed(data: bytes) -> Markup:
    """Return data as gzip in base64; without a time, so that a page is the same again."""
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(data, 6, mtime=0)).decode())


def packed_document(document: Document, room: int = ROOM) -> tuple[Markup, str]:
    """Return a Document packed into at most so much room, and what had to be left out for that."""
    text, said = packed(b""), ""
    for data, note in _forms(document, room):
        text, said = packed(data), note
        if len(text) <= room:
            break
    return text, said


def _forms(document: Document, room: int) -> Iterator[tuple[bytes, str]]:
    """Yield the Document, and shorter forms of it with what they lack."""
    cells = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    samples = sum(len(cell.samples) for cell in cells)
    if samples * _SAMPLE + len(cells) * _CELL <= room:
        yield encode(document), ""
    shorter = msgspec.to_builtins(document)
    _shorten(shorter, keep_samples=True)
    note = f"The Document in this page has values of {_DIGITS} digits"
    yield msgspec.json.encode(shorter), f"{note}, to keep the page small."
    _shorten(shorter, keep_samples=False)
    yield msgspec.json.encode(shorter), f"{note} and no samples, to keep the page small."


def _shorten(document: Any, *, keep_samples: bool) -> None:
    """Round the values of all cells of a Document as plain data, or leave its samples out."""
    for result in document["testcases"]:
        for table in result.get("tables", ()):
            for cell in table.get("cells", ()):
                if not keep_samples:
                    cell.pop("samples", None)
                    continue
                cell.update((key, _rounded(cell[key])) for key in _VALUES if key in cell)
                if statistics := cell.get("statistics"):
                    cell["statistics"] = {key: _rounded(value) for key, value in statistics.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
