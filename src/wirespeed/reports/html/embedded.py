"""Documents in pages: as gzip in base64, so that none can be interpreted as markup, and shortened to fit."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...document import Document
from ...results.store import encode

if TYPE_CHECKING:
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
