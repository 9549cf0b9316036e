"""What a run prints in the forms of other tools is imported as the same values, judged in the same way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import GOLDEN, SPECS
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.results.store import decode, encode
from wirespeed.tables import Cell
from wirespeed.testcases.table import TABLE
from wirespeed.thresholds.values import WIDER

#: nvbandwidth's testcases of one process.
CASES = [case.name for case in TABLE if case.index is not None and case.index < 44]
#: Half of the last digit of a rate, in B/s, and of a latency, in s.
ROUNDING = {"B/s": 0.0051e9, "s": 0.0051e-9}


def cells(document: Document) -> dict[tuple[str, str, str, str], tuple[Cell, str]]:
    return {
        (r.name, t.key, t.rows.labels[c.row], t.columns.labels[c.column]): (c, str(t.unit))
        for r in document.testcases
        for t in r.tables
        for c in t.cells
    }


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("hgx-h200-2", "nvbandwidth"),
        ("hgx-h200-2", "nvbandwidth-json"),
        ("pcie-2-no-p2p", "nvbandwidth-json"),
        ("gh200-1", "nvbandwidth"),
        ("ppu-8", "nvbandwidth"),
    ],
)
def test_nvbandwidth(name: str, form: str, tmp_path: Path) -> None:
    measured = wirespeed.run(CASES, machine=SPECS[name], samples=1, copies=1)
    log = tmp_path / "log"
    log.write_text(wirespeed.render(measured, form))
    imported = wirespeed.load_log(log, SPECS[name])
    assert imported.simulated and imported.imported[0].unknown == 0
    assert [(r.name, r.status) for r in imported.testcases if r.tables] == [
        (r.name, r.status) for r in measured.testcases if r.tables and r.status.value == "passed"
    ]
    own = cells(measured)
    for key, (cell, unit) in cells(imported).items():
        before = own[key][0]
        assert (cell.value is None) == (before.value is None)
        if cell.value is not None and before.value is not None:
            assert cell.value == pytest.approx(before.value, rel=1e-5, abs=ROUNDING[unit])
        for field in ("limit", "peak", "links", "bytes"):
            if cell.value is not None:
                assert getattr(cell, field) == getattr(before, field), (key, field)
        if cell.value is not None and before.expected:
            assert cell.expected == (before.expected[0] * WIDER, before.expected[1]), key
            assert cell.shared == before.shared or "bidirectional" in key[0]
    verdicts = {j.key: j.verdict for j in wirespeed.judge(measured).judgements if j.value}
    assert {j.key: j.verdict for j in wirespeed.judge(imported).judgements if j.value} == verdicts
    assert decode(encode(imported), "imported") == imported


def test_a_slow_link_is_found_in_an_imported_log(tmp_path: Path) -> None:
    spec = "simulated:dgx-a100-8+speed@gpu3-nvswitch=0.4"
    measured = wirespeed.run(CASES[:6], machine=spec)
    log = tmp_path / "log.txt"
    log.write_text(wirespeed.render(measured, "nvbandwidth"))
    found = wirespeed.judge(wirespeed.load_log(log, "simulated:dgx-a100-8"))
    assert found.verdict.value == "fail"
    assert any("gpu3" in suspect.ends for culprit in found.culprits for suspect in culprit.suspects)


SKIPPED_LOG = GOLDEN / "collectives/hypercube-skipped.txt"
GOLDEN_LOGS = sorted(set((GOLDEN / "collectives").glob("*.txt")) - {SKIPPED_LOG})


@pytest.mark.parametrize("path", GOLDEN_LOGS, ids=lambda path: path.stem)
def test_nccl_tests(path: Path) -> None:
    document = wirespeed.load_log(path)
    assert document.simulated and document.imported[0].unknown == 0
    rows = [line.split() for line in path.read_text().splitlines() if line[:1] == " "]
    lines = {(words[0], words[2]): words for words in rows}.values()  # of repeated sizes, the last
    busbw = -6 if path.stem not in ("form-per-iteration", "form-stamps") else 7
    found = [
        (int(size), cell.value)
        for result in document.testcases
        for table in result.tables
        if table.key == "busbw"
        for cell in table.cells
        if cell.row == 0
        for size in (table.columns.values[cell.column],)
    ]
    assert len(found) == len(lines) > 0
    for (size, value), words in zip(found, lines, strict=True):
        assert size == int(words[0])
        assert value == pytest.approx(float(words[busbw]) * 1e9)
    assert all(result.collective for result in document.testcases)


def test_a_skipped_operation_is_no_success() -> None:
    document = wirespeed.load_log(SKIPPED_LOG)
    assert document.imported[0].unknown == 0 and document.testcases[0].status == "error"
    assert document.testcases[0].reason == "nothing was measured: nRanks 6 is not a power of 2, skipping"


def test_the_json_of_nccl_tests_has_the_values_of_its_text(tmp_path: Path) -> None:
    files = [tmp_path / "log.txt", tmp_path / "log.json"]
    arguments = ["all_reduce_perf", "--machine", "simulated:hgx-h200-2", "-g", "2", "-b", "1M", "-e", "1G"]
    assert main([*arguments, "-f", "32", "-J", str(files[1]), "--output", str(tmp_path / "d.json")]) == 0
    measured = wirespeed.load(tmp_path / "d.json")
    files[0].write_text(wirespeed.render(measured, "nccl-tests"))
    for file in files:
        imported = wirespeed.load_log(file, "simulated:hgx-h200-2")
        own = cells(measured)
        for key, (cell, unit) in cells(imported).items():
            before = own[key][0]
            assert cell.value == pytest.approx(before.value, rel=1e-3, abs={"B/s": 0.006e9, "s": 6e-9}[unit])
            assert (cell.limit, cell.expected, cell.bytes) == (before.limit, before.expected, before.bytes)
        assert wirespeed.judge(imported).verdict.value == "pass"


def test_all_reports_show_an_imported_run(tmp_path: Path) -> None:
    from wirespeed.reports import formats

    log = tmp_path / "log.txt"
    log.write_text(wirespeed.render(wirespeed.run(CASES[:6], machine=SPECS["hgx-h200-2"]), "nvbandwidth"))
    document = wirespeed.load_log(log)
    for form in formats():
        text = wirespeed.render(document, form)
        assert "import" in text or form.startswith(("nccl-tests", "overalloc", "blocks", "vllm")), form
    changed = wirespeed.compare(document, replace(document, testcases=document.testcases[1:]))
    assert changed.regressed
    assert wirespeed.baseline([document]).models


@pytest.mark.parametrize("form", [["-v"], ["-F", "perf"], ["-j"]], ids=["text", "perf", "json"])
def test_what_the_command_line_of_nvbandwidth_prints(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = "device_to_device_bidirectional_memcpy_write_ce"
    given = ["-t", "0", "nosuch", both, "-i", "2", "--machine", "simulated:hgx-h200-2", "-o"]
    assert main(["nvbandwidth", *form, *given, str(tmp_path / "own.json")]) == 0
    text = capsys.readouterr().out
    if form == ["-j"]:  # nvbandwidth has one entry for the three tables
        content = json.loads(text)
        entries = content["nvbandwidth"]["testcases"]
        content["nvbandwidth"]["testcases"] = [e for e in entries if not e["name"].startswith(f"{both}_")]
        text = json.dumps(content)
    log = tmp_path / "log"
    log.write_text(text)
    imported, own = wirespeed.load_log(log, "hgx-h200-2"), wirespeed.load(tmp_path / "own.json")
    assert imported.imported[0].unknown == 0
    assert {r.name: r.status.value for r in imported.testcases} == {
        "host_to_device_memcpy_ce": "passed", "nosuch": "not found", both: "passed",
    }  # fmt: skip
    expected = cells(own)
    found = cells(imported)
    assert len(found) == 8
    for key, (cell, _) in found.items():
        assert cell.value == pytest.approx(expected[key][0].value, rel=1e-5, abs=ROUNDING["B/s"])
