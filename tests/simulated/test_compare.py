"""Two runs: cells of busy devices are not compared, and what differs between the runs is named."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.facts import Fact, Known
from wirespeed.judging.verdict import Verdict
from wirespeed.reports.comparisons import FORMATS, verdict_on
from wirespeed.reports.html.page import page
from wirespeed.results.compare import Outcome
from wirespeed.results.store import load, save
from wirespeed.tables import Quantity

NAMES = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce"]


def measured(fault: str = "", seed: int = 0) -> Document:
    return wirespeed.run(NAMES, machine=f"simulated:hgx-h200-2{fault}", samples=3, copies=1, seed=seed)


def compared(
    first: Document, second: Document, folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    """Return the exit code of `wirespeed compare`, and what it printed, as one line."""
    files = [folder / "a.json", folder / "b.json"]
    for file, document in zip(files, (first, second), strict=True):
        save(document, file)
    code = main(["compare", *map(str, files), *more])
    return code, " ".join(capsys.readouterr().out.split())


def test_different_machines_and_the_largest_change_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = wirespeed.run(NAMES[:1], machine="simulated:dgx-a100-8", samples=3, copies=1)
    code, text = compared(old, measured(), tmp_path, capsys)
    says = "comparing different machines: 8 x NVIDIA A100-SXM4-40GB with 2 x NVIDIA H200"
    assert code == 1 and says in text and " better" in text
    slower = measured("+speed@numa0-gpu0=0.5+speed@gpu0-gpu1=0.8")
    _, text = compared(slower, measured(), tmp_path, capsys)
    assert "different machines" not in text and "2 values, worst" not in text
    better = [change for change in wirespeed.compare(slower, measured()).changes if change.change > 0.1]
    assert len(better) > 2 and better == sorted(better, key=lambda change: -change.change)


def test_busy_devices_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, slow = measured(), measured("+speed@gpu1=0.5+busy@gpu1", seed=1)
    for first, second in ((good, slow), (slow, good), (slow, slow)):
        found = wirespeed.compare(first, second)
        assert {change.outcome for change in found.changes} == {Outcome.BUSY, Outcome.SAME}
        code, text = compared(first, second, tmp_path, capsys)
        assert code == 0 and "3 values not compared: gpu1 was in use by a simulated load" in text
        assert "3 busy" in text and "worse" not in text
        assert "3 not compared (busy)" in page([first, second])
    code, text = compared(good, slow, tmp_path, capsys, "--ignore-busy")
    assert code == 1 and "3 worse" in text


def test_two_runs_of_a_busy_machine_are_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [measured("+busy@gpu0+busy@gpu1", seed) for seed in range(2)]
    code, text = compared(runs[0], runs[1], tmp_path, capsys)
    assert code == 4 and "4 values not compared: gpu0 was in use" in text
    assert "significant changes" not in text  # of what?
    _, text = compared(runs[0], runs[1], tmp_path, capsys, "--format", "json")
    assert '"conclusion": "not compared"' in text


SAVED = Path(__file__).parents[1] / "data" / "compare"


@pytest.mark.parametrize(
    ("kind", "lost", "failed", "how"),
    [("errors", 4, 4, "no value before, no value after"),
     ("hangs", 24, 12, "wrong data before, wrong data after")],
)  # fmt: skip
def test_the_loss_of_all_values_is_a_failure_and_twice_cannot_be_told(
    kind: str, lost: int, failed: int, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (load(SAVED / f"{kind}-{side}.json") for side in ("before", "after"))
    ended = replace(second, testcases=(), interrupted="Ctrl-C")
    for after in (second, ended):
        code, text = compared(first, after, tmp_path, capsys)
        assert code == 1 and f"values: {lost} lost" in text
    assert compared(second, first, tmp_path, capsys)[0] == 4  # nothing to compare with
    code, text = compared(second, second, tmp_path, capsys)
    assert code == 3 and f"{failed} values undecided: {how}" in text
    other = wirespeed.run(["host_latency"], machine="simulated:hgx-h200-2", samples=3)
    for sides in ((other, second), (first, other)):
        assert compared(*sides, tmp_path, capsys) == (2, "")  # other testcases


def spoiled(document: Document, **fields: object) -> Document:
    """The run with other fields of the first cell of its first testcase."""
    first, *others = document.testcases
    (table,) = first.tables
    table = replace(table, cells=(replace(table.cells[0], **fields), *table.cells[1:]))
    return replace(document, testcases=(replace(first, tables=(table,)), *others))


def test_wrong_data_is_said_whatever_was_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, fewer = measured(), spoiled(measured(), value=None)
    wrong = spoiled(good, corrupted="numa0->gpu0", reason="wrong data")
    for first, why in ((wrong, "wrong data before, wrong data after"), (fewer, "wrong data after")):
        code, text = compared(first, wrong, tmp_path, capsys)
        assert code == 3 and f"1 value undecided: {why} (host_to_device_memcpy_ce host gpu0)" in text
        assert "3 same, 1 cannot tell" in text
        for format in FORMATS:
            assert why in compared(first, wrong, tmp_path, capsys, "--format", format)[1], format
    assert compared(good, wrong, tmp_path, capsys)[0] == 1
    assert compared(wrong, good, tmp_path, capsys)[0] == 0
    some = wirespeed.compare([good, wrong], [wrong, good])
    assert verdict_on(some) is Verdict.WARN and len(some.those(Outcome.UNKNOWN)) == 1


def with_system(document: Document, **fields: str) -> Document:
    return replace(document, machine=changed(document.machine, **fields))


def with_clock(document: Document, hertz: float) -> Document:
    state = (Quantity("gpu0", "SM clock", hertz, "Hz"), Quantity("gpu0", "temperature", hertz / 1e8, "°C"))
    return replace(document, testcases=tuple(replace(r, state_after=state) for r in document.testcases))


def with_facts(document: Document, vbios: str, load: float) -> Document:
    facts = (
        Fact(Known.VBIOS, "96.00.A5", device="gpu0"), Fact(Known.VBIOS, vbios, device="gpu1"),
        Fact(Known.LOAD, load),
    )  # fmt: skip
    return replace(document, facts=facts)


def test_what_differs_between_two_runs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = measured()
    for first, second, says in (
        (good, measured(seed=1), []),
        (with_system(good, driver="550.1", kernel="6.8"), with_system(good, driver="580.1", kernel="6.11"),
         ["NVIDIA driver: 550.1 → 580.1", "kernel: 6.8 → 6.11"]),
        (with_system(good, host="a"), with_system(good, host="b"), ["host: a → b"]),
        (with_facts(good, "96.00.A5", 0.1), with_facts(good, "96.00.B7", 3.0),
         ["VBIOS: 96.00.A5 → 96.00.A5, 96.00.B7"]),
        (with_clock(good, 1.98e9), with_clock(good, 1.41e9),
         ["highest gpu0 SM clock: 1980 MHz → 1410 MHz"]),
        (with_clock(good, 1.98e9), with_clock(good, 1.97e9), []),
        (good, replace(good, version="0.1", libraries={"numpy": "2"}),
         ["wirespeed: 0.2.0 → 0.1", "library numpy: unknown → 2"]),
    ):  # fmt: skip
        first = replace(first, libraries={}) if second.libraries != first.libraries else first
        assert [str(one) for one in wirespeed.compare(first, second).differences] == says
        _, text = compared(first, second, tmp_path, capsys)
        assert all(f"differs: {one}" in text for one in says) and ("differs:" in text) is bool(says)
        html = page([first, second])
        assert all(one in html for one in says)
