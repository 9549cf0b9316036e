"""Collectives as testcases: in `run`, `list`, `check` and the Python API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.document import UNFINISHED, Document, Status
from wirespeed.driver.listener import Listener
from wirespeed.judging.check import Check
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Unit

A100, H200 = "simulated:dgx-a100-8", "simulated:hgx-h200-2"


def busbw(document: Document, case: int = 0) -> list[float]:
    (table,) = (t for t in document.testcases[case].tables if t.key == "busbw")
    return table.values()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_collective_is_a_testcase(name: str) -> None:
    (result,) = wirespeed.run([name], machine=A100, sizes="1MiB:64MiB:x64").testcases
    assert result.status is Status.PASSED and result.collective and result.collective.operation == name
    time, algorithm, bus = result.tables
    assert [t.unit for t in result.tables] == [Unit.TIME, Unit.RATE, Unit.RATE]
    assert bus.rows.labels == ("out-of-place", "in-place") and bus.columns.labels == ("1 MiB", "64 MiB")
    factor = OPERATIONS[name].factor(8)
    for seconds, a, b in zip(time.cells, algorithm.cells, bus.cells, strict=True):
        assert a.value and b.value == pytest.approx(a.value * factor)
        assert seconds.value and a.value == pytest.approx(a.bytes / seconds.value, rel=1e-3)
    wrong = [cell.wrong for cell in time.cells]
    assert wrong == [0, 0, *([0, 0] if OPERATIONS[name].checks_in_place else [None, None])]


def test_options_of_run_hold_for_collectives(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    arguments = ["run", "-t", "all_reduce", "-p", "reduce", "--machine", H200, "--sizes", "8:1MiB:x64",
                 "--precision", "1%", "--seed", "3", "--no-verify", "--devices", "0,1",
                 "-o", str(path)]  # fmt: skip
    assert main(arguments) == 0
    document = wirespeed.load(path)
    assert [r.name for r in document.testcases] == ["all_reduce", "reduce_scatter", "reduce"]
    cells = document.testcases[0].tables[0].cells
    assert all(cell.statistics and cell.statistics.n >= 6 and cell.wrong is None for cell in cells)
    assert [rank.device for rank in document.ranks] == [0, 1] and document.options["transport"]
    fixed = wirespeed.run(["all_reduce"], machine=H200, samples=2, copies=5)
    assert all(c.copies == 5 and len(c.samples) == 2 for c in fixed.testcases[0].tables[0].cells)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ("simulated:cpu-2-sockets", "requires at least two GPUs or processes"),
        (f"{H200}", ""),
        ("simulated:nvl72", "hypercube requires a power of two of ranks, not 72"),
    ],
)
def test_what_cannot_run_says_why(machine: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = wirespeed.run(["hypercube"], machine=machine).testcases
    assert result.reason.startswith(reason) and (result.status is Status.WAIVED) == bool(reason)
    assert main(["list", "--machine", machine]) == 0
    assert " ".join(reason.split()[:5]) in " ".join(capsys.readouterr().out.split())


def test_a_form_of_nccl_tests_shows_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d.json"
    assert main(["run", "-t", "all_gather", "alltoall", "--machine", H200, "--sizes", "1KiB,1MiB",
                 "--format", "nccl-tests", "-o", str(path)]) == 0  # fmt: skip
    text = capsys.readouterr().out
    assert "Collective test starting: all_gather_perf" in text
    assert sum(line.split()[:1] == ["1048576"] for line in text.splitlines()) == 2
    assert len(json.loads(wirespeed.render(wirespeed.load(path), "nccl-tests-json"))["results"]) == 4


def test_a_check_judges_collectives_and_blames_the_link() -> None:
    def check(machine: str) -> Check:
        return wirespeed.judge(wirespeed.run(machine=machine, tier="quick"))

    healthy = check(H200)
    names = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    assert [healthy.testcases[name] for name in names] == [Verdict.PASS] * 4
    broken = check(f"{A100}+speed@gpu3->nvswitch=0.5")
    assert [broken.testcases[name] for name in names] == [Verdict.FAIL] * 4
    (culprit,) = broken.culprits
    assert str(culprit) == "NVLink gpu3->nvswitch"
    blamed = {j.key.testcase for j in broken.judgements if j.culprit == culprit}
    assert blamed.issuperset(names)


def test_wrong_data_keeps_the_time_and_fails(tmp_path: Path) -> None:
    document = wirespeed.run(["all_reduce"], machine=f"{H200}+corrupt", rounds=1)
    (result,) = document.testcases
    assert result.status is Status.FAILED and result.reason.startswith("1 wrong element in all_reduce")
    assert [cell.wrong for cell in result.tables[0].cells] == [1, 1] and all(busbw(document))


def test_every_measurement_is_saved(tmp_path: Path) -> None:
    """What is known after each measurement has it, and those before; it may have more already."""
    path, seen = tmp_path / "d.json", list[Document]()

    class Looking(Listener):
        def measured(self, case, cells, known):  # type: ignore[no-untyped-def]
            seen.append(known())

    wirespeed.run(
        ["all_reduce"], machine=H200, sizes="1KiB,1MiB", rounds=1, output=path, listeners=[Looking()]
    )
    counts = [len(busbw(document)) for document in seen]
    assert len(counts) == 4 and all(n >= i for i, n in enumerate(counts, 1)) and counts == sorted(counts)
    assert all(document.interrupted == UNFINISHED for document in seen)
    assert not wirespeed.load(path).interrupted
