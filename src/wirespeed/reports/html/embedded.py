"""Documents in pages: as gzip in base64, which no browser takes for markup; large ones without samples."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING

import msgspec

from ...document import Document
from ...results.store import encode

if TYPE_CHECKING:
    from markupsafe import Markup


#: Maximum size of the embedded Documents in a page, in bytes of base64.
ROOM = 6_000_000
#: Maximum size of a Document over that of its packed text: more would be cut, and takes long to pack.
_RATIO = 8


def packed(data: bytes) -> Markup:
    """Data as gzip in base64; without a timestamp, so that pages are reproducible."""
    from markupsafe import Markup

    return Markup(base64.b64encode(gzip.compress(data, 6, mtime=0)).decode())


def packed_document(document: Document, room: int = ROOM) -> tuple[Markup, str]:
    """Pack a Document, without samples if it takes more than ``room`` bytes with them.

    Args:
        document: The run.
        room: Maximum size of the packed text, in bytes.

    Returns:
        The packed Document as JSON, and the note; empty if it is complete.
    """
    data = encode(document)
    if len(data) <= _RATIO * room and len(text := packed(data)) <= room:
        return text, ""
    shorter = msgspec.to_builtins(document)
    for result in shorter["testcases"]:
        for table in result.get("tables", ()):
            for cell in table.get("cells", ()):
                for key in ("samples", "rounds"):
                    cell.pop(key, None)
    return packed(
        msgspec.json.encode(shorter)
    ), "The run in this page has no samples, to keep the page small."
