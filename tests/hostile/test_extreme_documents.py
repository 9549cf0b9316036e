"""Documents with extreme numbers and unknown names: each report shows them, or one line refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import wirespeed
from wirespeed.errors import DocumentError, UsageError
from wirespeed.features.fleet import screen as many_runs
from wirespeed.features.fleet.page import fleet_page
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.reports import Style, formats
from wirespeed.reports import comparisons as compare_screen
from wirespeed.reports import json as json_report
from wirespeed.reports.checked_runs import CheckedRun
from wirespeed.reports.html.page import page
from wirespeed.results import baseline
from wirespeed.results.store import decode, encode
from wirespeed.screens import check as check_screen

#: What is changed in the JSON of a Document.
Change = Callable[[dict[str, Any]], None]
NAMES = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce", "device_to_device_latency_sm"]


@pytest.fixture(scope="module")
def good() -> Judged:
    """A run that all tests judge once."""
    machine = "simulated:pcie-4-switched+speed@gpu3-pcie1=0.5"
    return Judged(wirespeed.run(NAMES, machine=machine, samples=3, copies=1))


def first_cell(document: dict[str, Any], testcase: int = 0) -> dict[str, Any]:
    cell: dict[str, Any] = document["testcases"][testcase]["tables"][0]["cells"][0]
    return cell


def cell_with(testcase: int = 0, **fields: Any) -> Change:
    return lambda document: first_cell(document, testcase).update(fields)


def cells_with(**fields: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        for result in document["testcases"]:
            for table in result["tables"]:
                for cell in table["cells"]:
                    cell.update(fields)

    return change


def link_with(**fields: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        links = document["machine"]["links"]
        links.append(dict(links[-1]) | fields)

    return change


def links_with(**fields: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        for link in document["machine"]["links"]:
            link.update(fields)

    return change


def labels(rows: list[str]) -> Change:
    def change(document: dict[str, Any]) -> None:
        axis = document["testcases"][1]["tables"][0]["rows"]
        axis["labels"] = [*rows, *axis["labels"][len(rows) :]]

    return change


def gpu99(document: dict[str, Any]) -> None:
    """Connect a GPU that the machine does not have, with a memory."""
    for source, destination, kind in (
        ("gpu99", "gpu99", "memory"), ("gpu99", "pcie0", "pcie"), ("pcie0", "gpu99", "pcie"),
        ("gpu99", "nvswitch", "nvlink"), ("nvswitch", "gpu99", "nvlink"),
    ):  # fmt: skip
        link_with(source=source, destination=destination, kind=kind)(document)


def nearly_zero(document: dict[str, Any]) -> None:
    for result in document["testcases"]:
        for table in result["tables"]:
            for i, cell in enumerate(table["cells"]):
                cell["value"] = 1e-30 * (i + 1)


CHANGES: dict[str, Change] = {
    **{f"value {n:g}": cell_with(value=n) for n in (0.0, 5e-324, 1e-300, 1e-30, 1e-18, 1.0, 1e18)},
    **{f"all values {n:g}": cells_with(value=n) for n in (0.0, 1e-300, 1e-30, 1e18)},
    **{f"latency {n:g}": cell_with(2, value=n) for n in (0.0, 1e-300, 1e-30, 1e18)},
    **{f"limit {n:g}": cell_with(limit=n) for n in (5e-324, 1e-300, 1e-30, 1.0, 1e18)},
    **{f"all limits {n:g}": cells_with(limit=n) for n in (1e-300, 1e18)},
    **{f"peak {n:g}": cell_with(peak=n) for n in (1e-300, 1e18)},
    **{f"expected {n:g}": cell_with(expected=[n, n]) for n in (5e-324, 1e-300, 1.0, 1e18)},
    "expected from 1e-300 to 1e18": cells_with(expected=[1e-300, 1e18]),
    **{f"capacity {n:g}": links_with(capacity=n) for n in (5e-324, 1e-300, 1e-30, 1.0, 9e17)},
    "links of any load": cell_with(links=[[0, 1e18, 1e18], [5, 1e-300, 1e-300], [5, 0, 0]]),
    "shared memory": cells_with(shared=[[0, 1e-300], [1, 1e18]]),
    "a GPU that does not exist": gpu99,
    "a link to gpu99": link_with(destination="gpu99"),
    "a link from gpu99": link_with(source="gpu99", kind="pcie"),
    "a link to numa99": link_with(source="numa99", kind="socket", destination="numa0"),
    "memory of numa99": link_with(source="numa99", destination="numa99", kind="memory"),
    "a link between unknown names": link_with(source="", destination=" ", kind="network"),
    "a GPU at numa99": lambda document: document["machine"]["gpus"][3].update(numa=99),
    "wrong data of unknown names": cell_with(corrupted="x->gpu77+gpu78"),
    **{f"wrong data of {way!r}": cell_with(corrupted=way) for way in ("x", "->", "a->", "->b", "+->+")},
    "wrong data in one place": cell_with(corrupted="gpu3->gpu3"),
    "unknown labels": labels(["zzz", "gpu88", "numa77"]),
    "a busy device that does not exist": lambda document: document["testcases"][0].update(
        busy={"gpu77": "in use", "": "in use"}
    ),
    "an unknown testcase": lambda document: document["testcases"][0].update(name="nothing like it"),
    "requested by nonsense": lambda document: document["options"].update(requested=["*", "", "[", 0][:3]),
    "options of other types": lambda document: document["options"].update(requested=7, verify="no"),
    "statistics of nothing": cells_with(
        statistics=dict.fromkeys(("median", "mean", "min", "max", "cv", "low", "high", "confidence"), 0.0)
        | {"n": 0}
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_extreme_documents_are_shown_or_refused(name: str, good: Judged) -> None:
    raw = json.loads(encode(good.document))
    CHANGES[name](raw)
    try:
        document = decode(json.dumps(raw).encode(), "run.json")
    except DocumentError as error:
        assert len(str(error).splitlines()) == 1
        return
    judged, style = Judged(document, file="run.json"), Style(verbose=True)
    assert check_screen.render(judged, style) and json_report.render(judged, Style(checked=True))
    for form in set(formats()) - {"overalloc"}:
        assert wirespeed.render(judged, form, style)
    summary = run_summary(judged)
    assert many_runs.render([CheckedRun(summary, ())], style) and fleet_page([summary] * 6)
    for pair in ([good, judged], [judged, good]):
        assert page(pair)
        with suppress(UsageError):  # nothing can be compared
            compared = wirespeed.compare(*(run.document for run in pair))
            assert compare_screen.text(compared, style)
    with suppress(UsageError):
        made = baseline.make([document])
        assert wirespeed.judge(good.document, baseline=made) and wirespeed.judge(document, baseline=made)
