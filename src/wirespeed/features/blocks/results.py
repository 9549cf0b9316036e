"""A map of block lists as records, and in notebooks."""

from __future__ import annotations

import msgspec

from ...reports.html.notebook import notebook, notebook_html
from ...reports.html.templates import made
from ...reports.records import Records, named, picked, records
from ...reports.style import SIMULATED
from .block_map import BlockMap
from .page import TEMPLATE, VARIABLES


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
