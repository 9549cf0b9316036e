"""The maps of block lists as a section of the page of a run; and as records, also in notebooks."""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from ...judging.judged import Judged
from ...reports.additions import PagePart
from ...reports.html.notebook import notebook, notebook_html
from ...reports.html.templates import made
from ...reports.records import Records, named, picked, records
from ...reports.style import SIMULATED
from .block_map import BlockMap, map_of
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


@records.register
def _(blocks: BlockMap) -> Records:
    rows = [
        picked(path, "direction path layout while_computing")
        | picked(point, "block blocks limit best")
        | {"method": method, "rate": rate, "simulated": blocks.simulated}
        | {
            "submission": point.submissions.get(method),
            "slowdown": point.slowdown.get(method),
            "computation_slowdown": point.computation_slowdown.get(method),
        }
        | (msgspec.structs.asdict(calls) if (calls := point.calls.get(method)) else {})
        for path in blocks.paths
        for point in path.points
        for method, rate in point.rates.items()
    ]
    columns = "direction path block blocks method rate limit best p50 p99"
    best = sorted(rows, key=lambda row: row["method"] is not row["best"])
    more = "n first submission slowdown computation_slowdown layout while_computing simulated"
    relevant = sum(row["method"] is row["best"] for row in rows)
    return named(f"{columns} {more}", best, columns, relevant)


@notebook_html.register
def _(blocks: BlockMap) -> str:
    return notebook(
        title=repr(blocks)[1:-1],
        body=made(TEMPLATE, "notebook", blocks, **VARIABLES),
        simulated=SIMULATED if blocks.simulated else "",
    )
