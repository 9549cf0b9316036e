"""Results as records, one for each cell or finding: what data frames and tables of notebooks are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import msgspec

from ..document import Document, TestcaseResult
from ..errors import MissingPackage
from ..hardware.topology import Machine
from ..judging.check import Check
from ..judging.diagnosis import Diagnosis
from ..judging.gates import GateComparison
from ..judging.judged import Judged
from ..measurement import Unit
from ..results.baseline import Baseline
from ..results.cells import Key, key_of
from ..results.compare import Comparison, Outcome
from ..tables import Calls
from ..units import parse_rate
from .additions import of_result
from .cell_columns import COLUMNS, cells, origin
from .check_texts import applicable

if TYPE_CHECKING:
    import pandas


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
            culprits=str(judgement.culprit or ""),
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
        row |= {"verdict": result.word, "reason": result.why, "remark": result.remark, "unit": Unit.RATE}
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
