"""The maps of block lists as a section of the page of a run."""

from __future__ import annotations

from functools import partial
from typing import Literal

from ...judging.judged import Judged
from ...reports.additions import PagePart
from ...reports.html.templates import made
from .block_map import map_of
from .testcases import PREFIX
from .text import MARKS, call_times, modelled, rate_of

#: The template, and the variables of its macros.
TEMPLATE = f"{__package__}:page.html"
VARIABLES = {
    "MARKS": MARKS, "METHODS": list(MARKS), "modelled": modelled, "rate_of": rate_of,
    "call_times": call_times,
}  # fmt: skip


def part(judged: Judged) -> PagePart | None:
    """The section; None if no block lists were measured."""
    blocks = map_of(judged.document)
    if not blocks.paths:
        return None
    results = judged.document.testcases
    names = frozenset(result.name for result in results if result.name.startswith(PREFIX))
    before: Literal["machine", "results"] = "machine" if len(names) == len(results) else "results"
    markup = partial(made, TEMPLATE, "blocks", blocks, **VARIABLES)
    return PagePart("Blocks", "blocks", before, markup, in_notebooks=True, testcases=names)
