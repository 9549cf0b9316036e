"""Every testcase on every machine, in every form, against golden files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

import wirespeed
from tests.conftest import GOLDEN, SHAPES, SPECS, VERSION, still, with_long
from wirespeed.document import Document, Status
from wirespeed.judging import replanned
from wirespeed.options import includes
from wirespeed.reports import Style
from wirespeed.results.store import decode, encode, schema
from wirespeed.testcases.table import TABLE

Golden = Callable[[str, str], None]
#: Too many cells to keep every form of them, or to measure all testcases: those of every shape.
LARGE = {
    "nvl72": (
        "host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce", "all_to_one_write_ce",
        "device_to_device_bidirectional_memcpy_write_sm", "device_local_copy", "device_to_device_latency_sm",
        "multinode_device_to_device_memcpy_write_sm", "multinode_bisect_write_ce", "host_stream_triad",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def of_this_version() -> Iterator[None]:
    """Documents without their version have the ranges of this one: no form plans them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replanned, "__version__", VERSION)
        yield


@pytest.fixture(scope="module", params=with_long(SHAPES, "l40s-8", "nvl72", "rtx5090-4", "rtxpro6000-4"))
def run(request: pytest.FixtureRequest) -> tuple[str, Document]:
    name: str = request.param
    # The fewest rounds that have an interval.
    rule: dict[str, Any] = {"samples": 1, "copies": 1} if name in LARGE else {"rounds": 3}
    return name, still(wirespeed.run(LARGE.get(name, ()), machine=SPECS[name], **rule))


def test_every_testcase_passes_or_says_why_it_cannot(run: tuple[str, Document]) -> None:
    name, document = run
    standard = [case.name for case in TABLE if includes("standard", case.tier)]
    assert [r.name for r in document.testcases] == list(LARGE.get(name, standard))
    for result in document.testcases:
        assert result.status in (Status.PASSED, Status.WAIVED)
        assert bool(result.reason) == (result.status is Status.WAIVED)
        for table in result.tables:
            for cell in table.cells:
                assert (cell.value is None) == bool(cell.reason)
    assert document.good


@pytest.mark.parametrize("format", ["table", "nvbandwidth"])
def test_text(run: tuple[str, Document], golden: Golden, format: str) -> None:
    name, document = run
    if name in LARGE and format == "nvbandwidth":
        pytest.skip("5112 cells a table; the form is tested on the other machines")
    text = wirespeed.render(document, format)
    assert "SIMULATED" in text
    assert format != "table" or max(map(len, text.splitlines())) <= 80
    golden(f"{name}/{format}.txt", text)


def close(a: Any, b: Any) -> bool:
    """Equal but for the last digits, in which mathematical libraries differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        return bool(a == pytest.approx(b, rel=1e-9))
    return bool(a == b)


@pytest.mark.parametrize("format", ["json", "nvbandwidth-json"])
def test_json(golden: Golden, request: pytest.FixtureRequest, format: str) -> None:
    """Few testcases suffice: the schema and what is read back again cover the rest."""
    names = ("host_to_device_memcpy_ce", "device_to_device_bidirectional_memcpy_write_ce", "all_reduce",
             "multinode_bisect_write_ce", "host_loaded_latency")  # fmt: skip
    document = still(wirespeed.run(names, machine=SPECS["hgx-h200-2"], samples=2, copies=1))
    text = wirespeed.render(document, format)
    name = f"hgx-h200-2/{format}.json"
    if request.config.getoption("--update-golden"):
        golden(name, text)
    assert close(json.loads(text), json.loads((GOLDEN / name).read_text())), f"differs from {name}"
    assert "simulated" in text.lower()


def test_csv(run: tuple[str, Document], golden: Golden) -> None:
    name, document = run
    text = wirespeed.render(document, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert all(row["simulated"] == "SIMULATED" for row in rows)
    assert len(rows) == sum(max(1, sum(len(t.cells) for t in r.tables)) for r in document.testcases)
    if name == "pcie-2-no-p2p":
        # The last digits differ between mathematical libraries: keep twelve.
        for row in rows:
            for column in ("value", "median", "mean", "min", "max", "cv", "low", "high"):
                row[column] = f"{float(row[column]):.9e}" if row[column] else ""
        kept = "".join(",".join(row.values()) + "\n" for row in rows)
        golden("pcie-2-no-p2p/cells.csv", kept)


def test_a_document_survives_being_saved(run: tuple[str, Document]) -> None:
    _, document = run
    assert decode(encode(document), "memory") == document


@pytest.fixture(scope="module")
def described() -> jsonschema.Draft202012Validator:
    """What decides whether a Document in JSON fits the schema."""
    jsonschema.Draft202012Validator.check_schema(described := json.loads(schema()))
    return jsonschema.Draft202012Validator(described)


def test_documents_fit_the_shipped_schema(
    run: tuple[str, Document], described: jsonschema.Draft202012Validator
) -> None:
    raw = json.loads(encode(run[1]))
    for result in raw["testcases"]:
        for table in result.get("tables", ()):  # one cell of each kind: it has the same fields
            table["cells"] = [*{tuple(cell): cell for cell in table["cells"]}.values()]
    described.validate(raw)


def test_golden_documents_are_read_and_fit_the_schema(described: jsonschema.Draft202012Validator) -> None:
    documents = sorted(GOLDEN.glob("*/json.json"))
    assert documents
    for path in documents:
        described.validate(json.loads(path.read_text()))
        assert wirespeed.load(path).simulated


def test_verbose_shows_every_cell_and_every_sample(golden: Golden) -> None:
    document = still(wirespeed.run(["multinode_bisect_write_ce", "4"], machine="simulated:nvl72", samples=2))
    golden("nvl72/verbose.txt", wirespeed.render(document, "table", Style(verbose=True)))
    golden("nvl72/verbose-nvbandwidth.txt", wirespeed.render(document, "nvbandwidth", Style(verbose=True)))


def test_colour_is_only_added(golden: Golden) -> None:
    document = still(wirespeed.run(["0", "4", "47"], machine="simulated:dgx-a100-8"))
    text = wirespeed.render(document, "table", Style(color=True))
    golden("dgx-a100-8/colour.txt", text)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert [line.rstrip() for line in plain.splitlines()] == wirespeed.render(document, "table").splitlines()
