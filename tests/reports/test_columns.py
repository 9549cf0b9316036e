"""Each field of a cell is in CSV, data frames and the run in a page, without a line of code for it."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json

import msgspec
import pytest

import wirespeed
from wirespeed.document import Document
from wirespeed.reports import Style
from wirespeed.reports.cell_columns import COLUMNS, cell_columns
from wirespeed.reports.html.embedded import packed_document
from wirespeed.tables import Calls, Cell

FIELDS = {field.name for field in msgspec.structs.fields(Cell)}


@pytest.fixture(scope="module")
def full() -> Document:
    """A run whose first cell has all fields."""
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2", samples=3)
    result = document.testcases[0]
    cell = msgspec.structs.replace(
        result.tables[0].cells[0], peak=6.4e10, shared=((0, 1.0),), reason="a remark", corrupted="gpu0->gpu1",
        means=("ipc",), wrong=3, rounds=(1.0, 2.0, 3.0), interval=(1.0, 3.0),
        calls=Calls(9, 1.0, 2.0, 3.0),
    )  # fmt: skip
    table = msgspec.structs.replace(result.tables[0], cells=(cell,))
    result = msgspec.structs.replace(result, tables=(table,))
    return msgspec.structs.replace(document, testcases=(result,))


def test_a_new_field_is_a_column() -> None:
    wider = msgspec.defstruct(
        "Wider", [("power", float | None, None), ("several", tuple[int, ...], ())], bases=(Cell,), frozen=True
    )
    new = {column.name: column.kind for column in cell_columns(wider) if column.field not in {*FIELDS, ""}}
    assert new == {"power": float, "several": tuple}
    assert {column.field for column in COLUMNS} == FIELDS | {""}


def test_csv_has_all_fields(full: Document) -> None:
    (row,) = csv.DictReader(io.StringIO(wirespeed.render(full, "csv", Style(verbose=True))))
    assert [column.name for column in COLUMNS if column.field and not row[column.name]] == []
    assert row["rounds"] == "1.0 2.0 3.0" and row["means"] == "ipc"
    brief = next(csv.reader(io.StringIO(wirespeed.render(full, "csv"))))
    assert {"wrong", "peak", "corrupted"} < set(brief) and not {"samples", "links"} & set(brief)


def test_data_frames_have_all_columns(full: Document) -> None:
    pytest.importorskip("pandas")
    frame = full.to_pandas()
    assert [column.name for column in COLUMNS if frame[column.name].isna().all()] == ["at"]
    assert frame.loc[0, "rounds"] == (1.0, 2.0, 3.0) and frame["wrong"].dtype == "Int64"


@pytest.mark.parametrize("room", [10**6, 2 * 10**3])
def test_pages_have_all_fields(full: Document, room: int) -> None:
    text, note = packed_document(full, room)
    (cell,) = json.loads(gzip.decompress(base64.b64decode(text)))["testcases"][0]["tables"][0]["cells"]
    missing = {"samples", "rounds"} if "no samples" in note else set()
    assert cell.keys() == FIELDS - missing
