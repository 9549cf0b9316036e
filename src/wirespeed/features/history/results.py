"""The history of a machine as records, and in notebooks."""

from __future__ import annotations

from math import isnan

from ...reports.findings import quantity
from ...reports.html.measurements import notebook, notebook_html
from ...reports.records import Records, named, records
from ...reports.style import SIMULATED
from .events import MachineHistory, course


@records.register
def _(history: MachineHistory) -> Records:
    rows = [
        {"path": kind.kind.name, "started": run.started, "verdict": run.verdict, "speed": speed}
        for kind in history.kinds
        for run, speed in zip(history.past.runs, kind.speeds, strict=True)
        if not isnan(speed)
    ]  # fmt: skip
    return named("path started verdict speed", rows)


@notebook_html.register
def _(history: MachineHistory) -> str:
    return notebook(
        title=repr(history)[1:-1],
        columns=("path", "rate", "change"),
        rows=[
            (str(kind.kind), [quantity(history.value(kind), kind.unit), course(history, kind)])
            for kind in history.kinds
        ],
        simulated=SIMULATED if history.simulated else "",
    )
