"""What sailbandwidth's JSON contains, since 2.2."""

from __future__ import annotations

import math

from ..document import Document, Status, TestcaseResult
from ..units import displayed
from .iteration_times import row_of
from .nvbandwidth import DIALECTS, arranged, devices, has_failed, notes, processes, title
from .style import Style

_STATUS = {Status.PASSED: "Passed", Status.WAIVED: "Waived", Status.NOT_FOUND: "ERROR"}


def content(document: Document, style: Style) -> dict[str, object]:
    """What the object under the key ``sailbandwidth`` contains."""
    machine, dialect = document.machine, DIALECTS[style.dialect]
    host = document.hostname
    listed = processes(machine, dialect) or [
        f"{i}: {name}: ({host})" for i, name in enumerate(devices(machine, dialect))
    ]
    members: dict[str, object] = {
        "HGGC Driver Version": machine.driver,
        "HGGC Runtime Version": machine.cuda,
        "PPU Device list": listed or None,
        "version": dialect.json_version,
    }
    if document.testcases:
        members["testcases"] = [_entry(result, style) for result in document.testcases]
    warnings = [*notes(document, style), *document.warnings, *style.ignored]
    warnings += [f"{r.name}: {warning}" for r in document.testcases for warning in r.warnings]
    if warnings:
        members["warning"] = warnings
    return members


def _entry(result: TestcaseResult, style: Style) -> dict[str, object]:
    """A testcase; of a bidirectional one the rows of all tables, and all else of the total."""
    entry: dict[str, object] = {"name": result.name, "status": _STATUS.get(result.status, "Error")}
    if result.reason and result.status is not Status.NOT_FOUND:
        entry["reason" if result.status is Status.WAIVED else "error"] = result.reason
    if has_failed(result) or result.status is Status.WAIVED or not result.tables:
        return entry
    dialect = DIALECTS[style.dialect]
    result = arranged(result, dialect)
    last = result.tables[-1]
    scale = displayed(last.unit)[0]
    values = [value / scale for value in last.values()]
    entry |= {
        "bandwidth_description": title(result, last, dialect),
        "bandwidth_matrix": [row_of(row, scale) for table in result.tables for row in table.grid()],
        "sum": math.fsum(values),
    }
    if style.verbose and values:
        entry |= {"min": min(values), "max": max(values), "average": math.fsum(values) / len(values)}
    elif style.verbose:
        entry["average"] = None
    return entry
