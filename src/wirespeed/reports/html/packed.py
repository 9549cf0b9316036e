"""What is packed into a page: gzip in base64, so that nothing in it can be read as a part of the page."""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...results.document import Document
from ...results.store import encode

if TYPE_CHECKING:
    from markupsafe import Markup

#: So much of a page may be the packed Documents, in bytes of base64.
ROOM = 6_800_000
#: Values keep so many digits where a Document is too large: a thousand times finer than any clock here.
_DIGITS = 6


def packed(data: bytes) -> Markup:
    """Return data as gzip in base64; without a time, so that a page is the same again."""
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode())


def packed_document(document: Document, room: int = ROOM) -> tuple[Markup, str]:
    """Return a Document packed into at most so much room, and what had to be left out for that."""
    text, said = packed(b""), ""
    for data, note in _forms(document):
        text, said = packed(data), note
        if len(text) <= room:
            break
    return text, said


def _forms(document: Document) -> Iterator[tuple[bytes, str]]:
    yield encode(document), ""
    plain = msgspec.to_builtins(document)
    short = _rounded(plain)
    yield (
        msgspec.json.encode(short),
        f"The Document in this page has values of {_DIGITS} digits, to keep the page small.",
    )
    for result in short["testcases"]:
        for table in result.get("tables", ()):
            for cell in table.get("cells", ()):
                cell.pop("samples", None)
    yield (
        msgspec.json.encode(short),
        f"The Document in this page has values of {_DIGITS} digits and no samples, to keep the page small.",
    )


def _rounded(value: Any) -> Any:
    """Return plain data with shorter numbers."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value
    if isinstance(value, dict):
        return {key: _rounded(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inside) for inside in value]
    return value
