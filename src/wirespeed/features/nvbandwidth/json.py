"""nvbandwidth's JSON, and sailbandwidth's since 2.2, for programs that read it. A bidirectional testcase has
an entry of its name with the rows of all its tables, as in nvbandwidth, and one entry for each table. A
testcase that failed has neither matrix nor sum, and the object has its ``error``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ...document import Document, Status, TestcaseResult
from ...judging.judged import Judged
from ...reports.style import DialectName, Style
from ...tables import Cell, Table
from ...terminal import escaped
from ...units import displayed
from ...version import __version__
from .dialects import DIALECTS, Dialect
from .text import TOTAL, arranged, devices, has_failed, notes, processes, title, variation

_STATUS = {Status.PASSED: "Passed", Status.WAIVED: "Waived", Status.NOT_FOUND: "Not Found"}


def render(judged: Judged, style: Style, error: str = "") -> str:
    """One object under the key of the program; ``simulated`` is present only if true.

    Args:
        judged: The run.
        style: How to show it.
        error: Why nothing was run.
    """
    document = judged.document
    dialect = DIALECTS[style.dialect]
    content = _content(document, style)
    if failed := [result for result in document.testcases if has_failed(result)]:
        content["error"] = "; ".join(f"{result.name}: {result.reason}" for result in failed)
    if document.interrupted:
        content["error"] = f"the run ended early: {document.interrupted}"
    if error:
        content["error"] = error
    if document.simulated:
        content["simulated"] = True
    return dump(content, dialect)


def _content(document: Document, style: Style) -> dict[str, object]:
    machine, dialect = document.machine, DIALECTS[style.dialect]
    named = [f"{i}: {name}: ({document.hostname})" for i, name in enumerate(devices(machine, dialect))]
    warnings = [*notes(document, style), *document.warnings]
    content: dict[str, object]
    if dialect.is_hggc:
        content = {
            "HGGC Driver Version": machine.driver,
            "HGGC Runtime Version": machine.cuda,
            "PPU Device list": processes(machine, dialect) or named or None,
        }
        warnings += style.ignored
        warnings += [f"{r.name}: {warning}" for r in document.testcases for warning in r.warnings]
    else:
        content = {
            "CUDA Runtime Version": machine.cuda,
            "Driver Version": machine.driver,
            "GPU Device list": named,
            "git_version": f"wirespeed {__version__}",
        }
    content["version"] = dialect.json_version
    if document.testcases:
        content["testcases"] = [entry for result in document.testcases for entry in _entries(result, style)]
    if warnings:
        content["warning"] = warnings if dialect.is_hggc else "; ".join(warnings)
    return content


def dump(content: dict[str, object], dialect: Dialect) -> str:
    """Wrap the content in the top-level object."""
    return escaped(styled({"sailbandwidth" if dialect.is_hggc else "nvbandwidth": content})) + "\n"


def error(message: str, name: DialectName) -> str:
    """An object with the reason why nothing was run."""
    dialect = DIALECTS[name]
    content: dict[str, object] = {"error": message, "version": dialect.json_version}
    if not dialect.is_hggc:
        content["git_version"] = f"wirespeed {__version__}"
    return dump(content, dialect)


def _entries(result: TestcaseResult, style: Style) -> list[dict[str, object]]:
    """The entries of a testcase: its tables, and all of their rows under its name."""
    dialect, is_unknown = DIALECTS[style.dialect], result.status is Status.NOT_FOUND
    status = "ERROR" if is_unknown and dialect.exact else _STATUS.get(result.status, "Error")
    entry: dict[str, object] = {"name": result.name, "status": status}
    if result.reason and not (dialect.is_hggc and is_unknown):
        entry["reason" if result.status is Status.WAIVED else "error"] = result.reason
    if result.warnings and not dialect.is_hggc:
        entry["warning"] = "; ".join(result.warnings)
    has_tables = result.status is not Status.WAIVED or (style.empty_tables and not dialect.is_hggc)
    if has_failed(result) or not has_tables or not result.tables:
        return [entry]
    result = arranged(result, dialect)
    entries = [
        {**entry, "name": result.key(table), **_matrix(result, table, style)} for table in result.tables
    ]
    scale = displayed(result.tables[-1].unit)[0]
    rows = [row_of(row, scale) for table in result.tables for row in table.grid()]
    whole = {**entries[-1], "name": result.name, "bandwidth_matrix": rows}
    if dialect.is_hggc:
        return [whole]
    return [whole, *entries] if dialect.exact and result.tables[-1].key == TOTAL else entries


def _matrix(result: TestcaseResult, table: Table, style: Style) -> dict[str, object]:
    """Values, sum and, if requested, fractions of the limit of a table."""
    scale, dialect = displayed(table.unit)[0], DIALECTS[style.dialect]
    values = [value / scale for value in table.values()]
    content: dict[str, object] = {
        "bandwidth_description": title(result, table, dialect),
        "bandwidth_matrix": [row_of(row, scale) for row in table.grid()],
        "sum": math.fsum(values),
    }
    if (coefficient := variation(result, table, dialect)) is not None:
        content["coefficient_of_variation"] = coefficient
    if style.utilization and not dialect.is_hggc and any(cell.limit for cell in table.cells):
        content["utilization_matrix"] = [[_utilization(cell) for cell in row] for row in table.grid()]
    if style.verbose and values:
        content |= {"min": min(values), "max": max(values), "average": math.fsum(values) / len(values)}
    elif style.verbose and dialect.is_hggc:
        content["average"] = None
    return content


def _utilization(cell: Cell | None) -> str:
    """Measured value over limit in percent."""
    if cell is None or not cell.value or not cell.limit:
        return "N/A"
    return f"{100 * cell.value / cell.limit:.6g}"


def styled(value: object) -> str:
    """A value with a tab for each level, sorted keys, and ``[`` and ``{`` of a value on a line of their own.

    Args:
        value: Objects, arrays, texts, numbers, truth values and None. Numbers that are not integers have 17
            digits; those that are no number become null.
    """
    return "\n".join(_lines(value, "")) + "\n"


def row_of(cells: Sequence[Cell | None], scale: float) -> list[str]:
    """The texts of the cells of a row: six digits, or ``N/A``."""
    return ["N/A" if cell is None or cell.value is None else f"{cell.value / scale:.6g}" for cell in cells]


def _lines(value: object, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        parts = [_member(key, value[key], f"{indent}\t") for key in sorted(value)]
        brackets = "{}"
    elif isinstance(value, list | tuple) and value:
        parts = [_lines(element, f"{indent}\t") for element in value]
        brackets = "[]"
    else:
        return [indent + _scalar(value)]
    body = [line for part in parts[:-1] for line in [*part[:-1], f"{part[-1]},"]] + parts[-1]
    return [indent + brackets[0], *body, indent + brackets[1]]


def _member(key: str, value: object, indent: str) -> list[str]:
    """A key and its value, which follows in the same line if it has one line."""
    name, lines = f"{indent}{json.dumps(key)} : ", _lines(value, indent)
    return [name, *lines] if len(lines) > 1 else [name + lines[0].removeprefix(indent)]


def _scalar(value: object) -> str:
    if not isinstance(value, float):
        return json.dumps(value)
    if not math.isfinite(value):
        return "null"
    text = f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"
