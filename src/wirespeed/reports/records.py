"""Results as records, one for each cell: what CSV, data frames and the tables of notebooks are made of. The
columns of a value come from the fields of ``Cell``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from ..document import Document, TestcaseResult
from ..errors import MissingPackage
from ..hardware.topology import Machine
from ..judging.diagnosis import Diagnosis
from ..judging.gates import GateComparison
from ..judging.judge import Check
from ..judging.judged import Judged
from ..judging.suspects import any_of
from ..measurement import Unit
from ..results.baseline import Baseline
from ..results.cells import Key, key_of
from ..results.compare import Comparison, Outcome
from ..tables import Calls, Cell, Statistics, Table
from ..units import parse_rate
from .additions import of_result
from .findings import applicable, data_word
from .style import Style

if TYPE_CHECKING:
    import pandas

#: Fields with a column for each of two numbers, and for each of their fields.
_PAIRS = {"expected": ("least", "normal"), "interval": ("low", "high")}
_STRUCTURES: dict[str, type[msgspec.Struct]] = {"statistics": Statistics, "calls": Calls}
_TYPES = {
    msgspec.inspect.FloatType: float, msgspec.inspect.IntType: int, msgspec.inspect.BoolType: bool,
    msgspec.inspect.StrType: str,
}  # fmt: skip


@dataclass(frozen=True)
class CellColumn:
    """A column of values.

    Attributes:
        name: Its name.
        kind: Type of its entries: float in base units, int, bool, str, or tuple if a value has several.
        get: Returns the entry of a cell; None if it is unknown.
        field: Field of ``Cell`` that it shows; empty for what testcase and table say of the cell.
    """

    name: str
    kind: type
    get: Callable[[TestcaseResult, Table, Cell], Any]
    field: str = ""


def cell_columns(cell: type[msgspec.Struct]) -> Iterator[CellColumn]:
    """The columns of a type of cells: where a value is, and all of its fields."""
    yield CellColumn("testcase", str, lambda result, _, __: result.name)
    yield CellColumn("table", str, lambda _, table, __: table.key)
    yield CellColumn("status", str, lambda result, _, __: result.status)
    yield CellColumn("at", float, lambda _, t, cell: t.columns.values[cell.column] if t.is_curve else None)
    yield CellColumn("unit", str, lambda _, table, __: str(table.unit))
    yield CellColumn("share", float, _share)
    yield CellColumn("row", str, lambda _, table, cell: table.rows.labels[cell.row], "row")
    yield CellColumn("column", str, lambda _, table, cell: table.columns.labels[cell.column], "column")
    for field in msgspec.structs.fields(cell):
        if field.name in _PAIRS:
            for i, name in enumerate(_PAIRS[field.name]):
                yield CellColumn(name, float, _entry(field.name, itemgetter(i)), field.name)
        elif field.name in _STRUCTURES:
            for part in msgspec.structs.fields(_STRUCTURES[field.name]):
                name = "calls" if (field.name, part.name) == ("calls", "n") else part.name
                yield CellColumn(
                    name, _kind(part.type), _entry(field.name, attrgetter(part.name)), field.name
                )
        elif field.name not in ("row", "column"):
            yield CellColumn(field.name, _kind(field.type), _entry(field.name), field.name)


def _share(_: TestcaseResult, __: Table, cell: Cell) -> float | None:
    return cell.value / cell.limit if cell.value is not None and cell.limit else None


def _entry(
    field: str, part: Callable[[Any], Any] = lambda value: value
) -> Callable[[TestcaseResult, Table, Cell], Any]:
    """Returns a field of a cell, or a part of it."""
    return lambda _, __, cell: None if (value := getattr(cell, field)) is None else part(value)


def _kind(annotation: Any) -> type:
    """The type of the entries of a field: that of its values, or tuple for a structure."""
    info = msgspec.inspect.type_info(annotation)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    (kind,) = (member for member in members if not isinstance(member, msgspec.inspect.NoneType))
    return _TYPES.get(type(kind), tuple)


#: All columns of a cell.
COLUMNS = tuple(cell_columns(Cell))


def cells(results: Iterable[TestcaseResult]) -> Iterator[Mapping[str, Any]]:
    """The columns of each cell, in base units; for a testcase without cells, its status and reason."""
    for result in results:
        rows = [
            {column.name: column.get(result, table, cell) for column in COLUMNS}
            for table in result.tables
            for cell in table.cells
        ]
        yield from rows or [{"testcase": result.name, "status": result.status, "reason": result.reason}]


#: The first columns, which programs may read by position; further fields of a cell follow.
_FIRST = (
    "testcase", "table", "verdict", "row", "column", "value", "unit", "reason", "n", "median", "mean", "min",
    "max", "cv", "low", "high", "bytes", "copies", "host", "started", "simulated", "limit", "at", "imported",
    "testcase_verdict", "data", "run_verdict",
)  # fmt: skip
_LAST = "samples"
#: Beginnings of texts that spreadsheets evaluate as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render_csv(judged: Judged, style: Style) -> str:
    """A header and one row per cell, in base units; ``verbose`` adds fields that are lists.

    ``verdict`` is that on the cell, empty if another table of its testcase is judged in its place; ``data``
    says whether the data was verified. ``at`` is the position of a value on the curve's axis: bytes, number
    of threads or blocks, or delay.

    A testcase without cells has one row, which gives the reason. A text that a spreadsheet would evaluate
    as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    fields = (column for column in COLUMNS if column.field)
    fields_shown = [column.name for column in fields if style.verbose or column.kind is not tuple]
    columns = sorted(dict.fromkeys((*_FIRST, *fields_shown)), key=lambda name: name == _LAST)
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    document, check, judgements = judged.document, judged.check, judged.judgements
    shared = origin(document) | {"simulated": "SIMULATED" if document.simulated else ""}
    shared["run_verdict"] = str(check.verdict)
    for result in document.testcases:
        of_testcase = check.testcases[result.name]
        shared |= {"testcase_verdict": str(of_testcase), "data": data_word(document, result)}
        places = [key_of(result, table, cell) for table in result.tables for cell in table.cells]
        of_cells = [str(judgements[key].verdict) if key in judgements else "" for key in places]
        for row, verdict in zip(cells([result]), of_cells or [str(of_testcase)], strict=True):
            written = {**row, **shared, "verdict": verdict}
            writer.writerow({name: _inert(_written(value)) for name, value in written.items()})
    return text.getvalue()


def _written(value: object) -> object:
    """A list of numbers or texts with blanks between them; a structure as JSON."""
    if isinstance(value, tuple) and not any(isinstance(item, tuple) for item in value):
        return " ".join(item if isinstance(item, str) else repr(item) for item in value)
    is_plain = value is None or isinstance(value, (str, int, float))
    return value if is_plain else msgspec.json.encode(value).decode()


def _inert(value: object) -> object:
    """A value that no spreadsheet evaluates; numbers are unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def origin(document: Document) -> dict[str, object]:
    """The columns that all rows of a run share."""
    return {
        "host": document.hostname,
        "started": document.started,
        "simulated": document.simulated,
        "imported": document.origin,
    }


Record = Mapping[str, Any]


def _of_kind(kind: type) -> frozenset[str]:
    """The columns of cells with entries of a type."""
    return frozenset(column.name for column in COLUMNS if column.kind is kind)


#: Fields that are numbers in base units, of any unit; whole numbers; truth values; lists. Others are texts.
NUMBERS = _of_kind(float) | {
    "margin", "expected", "before", "after", "change", "change_low", "change_high", "p", "spread", "factor",
    "threshold", "lowest", "capacity", "latency", "rate", "submission",
    "slowdown", "computation_slowdown",
}  # fmt: skip
#: Fields that are times, whatever the unit of the value is.
TIMES = frozenset({"latency", "submission", *(field.name for field in msgspec.structs.fields(Calls))} - {"n"})
WHOLES = _of_kind(int) | {"block", "blocks", "cells", "lower", "runs", "runs_before", "runs_after"}
FLAGS = _of_kind(bool) | {"simulated", "while_computing"}
_LISTS = _of_kind(tuple)
#: Columns that locate a cell.
_PLACE = "testcase table row column bytes"


@dataclass(frozen=True)
class Section:
    """Testcases that are shown on their own, without the verdict and the other parts of their run.

    Attributes:
        title: What was measured.
        results: The testcases.
        note: Text below the tables.
        document: The run; None if nothing was run.
        simulated: Whether no hardware was measured.
    """

    title: str
    results: tuple[TestcaseResult, ...]
    note: str = ""
    document: Document | None = None
    simulated: bool = False


@dataclass(frozen=True)
class Records:
    """A result as records.

    Attributes:
        columns: Names of all fields.
        rows: The records; absent fields are unknown.
        shown: The fields that the table of a notebook shows.
        relevant: Number of the first rows that it shows; None for all.
    """

    columns: tuple[str, ...]
    rows: Sequence[Record]
    shown: tuple[str, ...] = ()
    relevant: int | None = None


@singledispatch
def records(result: object) -> Records:
    """The records of a result of a public function; TypeError for other objects."""
    own = of_result(records, result)
    if own is None:
        raise TypeError(f"no records of {type(result).__name__}")
    made: Records = own(result)
    return made


@records.register
def _(section: Section) -> Records:
    of_run = (origin(section.document) if section.document else {}) | {"simulated": section.simulated}
    judged = Judged(section.document) if section.document else None
    rows = [
        {**row, **verdict, **of_run}
        for result in section.results
        for row, verdict in zip(cells([result]), _verdicts(judged, result), strict=True)
    ]
    names = [column.name for column in COLUMNS]
    names[names.index("status") + 1 : 0] = ["verdict", "expected"]
    return Records((*names, "host", "started", "simulated", "imported"), rows)


def _verdicts(judged: Judged | None, result: TestcaseResult) -> Iterator[Record]:
    """Yield the verdict on each cell of a testcase, and what is expected; without cells that on itself."""
    judgements = judged.judgements if judged else {}
    places = [key_of(result, table, cell) for table in result.tables for cell in table.cells]
    for key in places:
        judgement = judgements.get(key)
        yield {"verdict": judgement.verdict, "expected": judgement.normal} if judgement else {}
    if not places:
        yield {"verdict": judged.check.testcases.get(result.name)} if judged else {}


@records.register
def _(document: Document) -> Records:
    return records(Section("", document.testcases, document=document, simulated=document.simulated))


@records.register
def _(check: Check) -> Records:
    rows = [
        _place(judgement.key)
        | picked(
            judgement,
            "verdict value unit limit least normal basis share margin reason culprits",
            share=judgement.value / judgement.limit if judgement.value and judgement.limit else None,
            margin=judgement.margin or None,
            reason=judgement.why,
            culprits=any_of(judgement.culprits),
        )
        for judgement in check.judgements
    ]
    return named(
        f"{_PLACE} verdict value unit limit share least normal margin reason culprits basis",
        rows,
        "verdict testcase table row column value limit share least normal reason culprits",
        sum(judgement.verdict.is_bad for judgement in check.judgements),
    )


@records.register
def _(judged: Judged) -> Records:
    return records(judged.check)


@records.register
def _(diagnosis: Diagnosis) -> Records:
    rows = [
        finding.data | {"place": finding.where, "others": " or ".join(finding.data["others"])}
        for finding in diagnosis.findings
    ]
    return named(
        "certainty cause title place cells lower factor evidence others weight confirm remedy",
        rows,
        "certainty title place cells factor evidence confirm remedy",
    )


@records.register
def _(compared: GateComparison) -> Records:
    applies = applicable(compared)
    rows = []
    for result in (*applies, *(other for other in compared.results if other not in applies)):
        gate, lowest, (least, normal) = result.gate, result.lowest, result.expected or (None, None)
        row = {"gate": gate.measures, "threshold": parse_rate(gate.at_least), "source": gate.source}
        row |= {"verdict": result.verdict, "reason": result.why, "remark": result.remark, "unit": Unit.RATE}
        row |= {"least": least, "normal": normal, "lowest": lowest.value if lowest else None}
        rows.append(row | (_place(lowest.key) if lowest else {}))
    return named(
        f"gate verdict threshold lowest unit {_PLACE} least normal reason remark source",
        rows,
        "verdict gate threshold lowest testcase row column reason remark",
        len(applies),
    )


@records.register
def _(comparison: Comparison) -> Records:
    fields = "outcome before after unit change change_low change_high p evidence runs_before runs_after hosts"
    fields += " reason"
    rows = []
    for change in comparison.changes:
        low, high = change.bounds or (None, None)
        row = picked(
            change,
            fields,
            change=change.change if change.before and change.after else None,
            change_low=low,
            change_high=high,
            runs_before=change.runs[0],
            runs_after=change.runs[1],
            hosts=", ".join(f"{host.host} {host.ratio - 1:+.1%}" for host in change.hosts),
        )
        rows.append(_place(change.key) | row)
    runs = " runs_before runs_after" if len(comparison.before) + len(comparison.after) > 2 else ""
    shown = f"outcome testcase table row column before after change change_low change_high{runs} hosts reason"
    changed = len(comparison.those(Outcome.LOST, Outcome.WORSE, Outcome.BETTER, Outcome.UNKNOWN))
    return named(f"{_PLACE} {fields}", rows, shown, changed)


@records.register
def _(baseline: Baseline) -> Records:
    rows = [
        _place(entry.key) | picked(entry, "median unit spread runs") | {"model": model}
        for model, entries in baseline.models.items()
        for entry in entries
    ]
    model = "model " if len(baseline.models) > 1 else ""
    shown = f"{model}testcase table row column median spread runs"
    return named(f"model {_PLACE} median unit spread runs", rows, shown)


@records.register
def _(machine: Machine) -> Records:
    columns = "source destination kind capacity latency origin"
    return named(columns, [picked(link, columns) for link in machine.links], columns)


def named(columns: str, rows: Sequence[Record], shown: str = "", relevant: int | None = None) -> Records:
    """Records; ``columns`` and ``shown`` (those that notebooks show) are separated by blanks."""
    return Records(tuple(columns.split()), rows, tuple(shown.split()), relevant)


def _place(key: Key) -> dict[str, Any]:
    return picked(key, _PLACE)


def picked(record: object, names: str, **others: Any) -> dict[str, Any]:
    """Fields of a record by name, in this order; ``others`` replaces or adds some of them."""
    return {name: others[name] if name in others else getattr(record, name) for name in names.split()}


def to_pandas(result: object) -> pandas.DataFrame:
    """A data frame with one row per record; types of columns do not depend on the rows.

    Args:
        result: A result of a public function.

    Raises:
        MissingPackage: If pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage("to_pandas()", "pandas") from error
    recorded = records(result)
    return pandas.DataFrame(
        {
            name: pandas.Series([_plain(row.get(name)) for row in recorded.rows], dtype=_dtype(name))
            for name in recorded.columns
        }
    )


def _plain(value: object) -> object:
    """A plain text in place of an enumeration; other values are unchanged."""
    return str(value) if isinstance(value, str) else value


def _dtype(name: str) -> str:
    """The pandas type of a column."""
    if name in NUMBERS:
        return "float64"
    if name in _LISTS:
        return "object"
    return "Int64" if name in WHOLES else "boolean" if name in FLAGS else "string"
