"""Testcases that the functions measure, and results that are made from their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api import run
from ...document import Document, TestcaseResult
from ...hardware.topology import Machine
from ...measurement import Axis
from ...run_errors import MeasurementFailed
from ...tables import Cell
from ...testcases.table import Testcase
from ...units import format_quantity
from . import Bandwidth
from .arguments import Size, in_bytes

#: Stopping criteria: people look at these values one at a time.
_PRECISION, _BUDGET_S = 0.01, 0.6


def measured(
    cases: Sequence[Testcase],
    machine: Machine,
    how: dict[str, Any],
    size: Size | None = None,
    *,
    sizes: Sequence[int] | None = None,
    pageable: bool = False,
) -> Document:
    """Run testcases and return the Document.

    Raises:
        MeasurementFailed: If one did not pass.
    """
    from ...progress import listener

    chosen = how if "options" in how else {"tier": "quick", **how}
    if not {"options", "tier", "samples", "copies", "precision", "time_budget"} & how.keys():
        chosen |= {"precision": _PRECISION, "time_budget": _BUDGET_S}
    chosen |= {"machine": machine, "size": None if size is None else in_bytes(size)}
    document = run(cases, sizes=sizes, pageable=pageable, listeners=listener(), **chosen)
    for result in document.testcases:
        if result.status != "passed":
            raise MeasurementFailed(f"{result.name}: {result.status}: {result.reason}", document)
    return document


def only(
    title: str, device: str, document: Document, testcase: int = 0, parts: int = 1, detail: str = ""
) -> Bandwidth:  # fmt: skip
    """The only cell of a testcase's last table; ``parts`` is the number of counted buffers."""
    result = document.testcases[testcase]
    return point(title, device, result.tables[-1].cells[0], document, result, parts, detail)


def point(
    title: str, device: str, cell: Cell, document: Document, result: TestcaseResult, parts: int,
    detail: str = "",
) -> Bandwidth:  # fmt: skip
    fields = {"simulated": document.simulated, "document": document, "detail": detail}
    return Bandwidth.one(title, device, cell, bytes=cell.bytes // parts, counts=result.counts, **fields)


def scaling(
    title: str, name: str, case: Testcase, machine: Machine, over: Sequence[int], how: dict[str, Any],
    axis: tuple[str, str, int], *, parts: int, detail: str = "",
) -> Bandwidth:  # fmt: skip
    """A curve over buffer sizes; ``axis`` is the quantity, its unit, and the bytes of each."""
    document = measured([case], machine, how, sizes=over)
    result, (quantity, unit, unit_bytes) = document.testcases[0], axis
    points = [point(title, name, cell, document, result, parts, detail) for cell in result.tables[0].cells]
    sizes = [point.bytes // unit_bytes for point in points]
    labels = tuple(format_quantity(size, unit) for size in sizes)
    columns = Axis(quantity, labels, tuple(map(float, sizes)), unit)
    by_place = {(0, j): point for j, point in enumerate(points)}
    return Bandwidth.several(title, Axis("device", (name,)), columns, by_place, bytes=0)
