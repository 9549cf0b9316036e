"""Defects that the facts of a run show, whatever was measured."""

from __future__ import annotations

from collections.abc import Iterator

from ..document import Document
from .cause import Weight
from .causes import CAUSES
from .run_facts import facts_of


def defects(document: Document) -> Iterator[str]:
    """Yield what is wrong, and where: causes that are defects on their own."""
    if not document.facts:
        return
    facts = facts_of(document)
    for cause in CAUSES:
        places = [
            ": ".join(filter(None, (sign.host, sign.device)))
            for sign in cause.signs(document.machine, facts)
            if (sign.weight or cause.weight) is Weight.DEFECT
        ]
        if places:
            where = ", ".join(filter(None, dict.fromkeys(places)))
            yield f"{cause.title} ({where})" if where else cause.title
