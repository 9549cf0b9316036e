"""``wirespeed transfer`` and ``wirespeed.transfer``."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer

TWO = ["--machine", "simulated:hgx-h200-2"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def call(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    return code, *capsys.readouterr()


def test_a_line_is_measured_and_saved_if_asked(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    line = ["gpu0", "to", "gpu1", "and", "latency", "gpu0", "from", "gpu1"]
    code, out, _ = call("transfer", *line, *TWO, capsys=capsys)
    assert code == 0 and "gpu0->gpu1" in out and "gpu0 from gpu1" in out and not list(folder.iterdir())
    code, _, _ = call("transfer", " ".join(line), *TWO, "-o", "a.json", capsys=capsys)
    document = wirespeed.load("a.json")
    assert code == 0 and [table.key for table in document.testcases[0].tables] == ["bandwidth", "latency"]


def test_sizes_make_curves_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("transfer", "gpu0->gpu1", *TWO, "--sizes", "1MiB,4MiB", "-o", "a.json", capsys=capsys)
    (table,) = wirespeed.load("a.json").testcases[0].tables
    assert code == 0 and table.rows.labels == ("gpu0->gpu1",) and table.columns.labels == ("1 MiB", "4 MiB")
    assert "4 MiB" in out


def test_a_dry_run_says_how_long_a_line_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["transfer", "gpu0 -> gpu1; gpu1 -> gpu0", *TWO, "--dry-run"]
    code, out, _ = call(*line, capsys=capsys)
    assert code == 0 and "nothing is measured" in out and "for 3 values of 1 testcase" in out
    code, _, err = call("transfer", "gpu0 -> gpu9", *TWO, "--dry-run", capsys=capsys)
    assert code == 2 and "gpu9: this machine has gpu0, gpu1" in err
    assert call(*line, "--format", "json", capsys=capsys)[0] == 2


def test_a_dry_run_says_what_is_not_possible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", "gpu0 -> gpu1", "--machine=simulated:pcie-2-no-p2p", "--dry-run"]) == 0
    assert "not possible here: gpu0 has no peer access to gpu1" in capsys.readouterr().out


def test_settings_of_a_line_are_options_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = "gpu0 -> gpu1 samples=4 copies=2"
    assert main(["transfer", line, *TWO, "-o", "a.json"]) == 0
    (cell,) = wirespeed.load("a.json").testcases[0].tables[0].cells
    assert (len(cell.samples), cell.copies) == (4, 2)
    assert main(["transfer", line, *TWO, "--samples", "5"]) == 2
    assert "already has samples 5" in capsys.readouterr().err


def test_python_returns_bandwidths_and_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    result = wirespeed.transfer("gpu0 -> gpu1; latency gpu0 <- gpu1", machine="simulated:hgx-h200-2")
    assert list(result) == ["gpu0->gpu1", "gpu0 from gpu1"] and len(result) == 2
    bandwidth = result["gpu0->gpu1"]
    assert isinstance(bandwidth, wirespeed.Bandwidth) and 350 < bandwidth.gb_per_s < 450
    assert 5e-7 < result.latencies["gpu0 from gpu1"] < 2e-6
    assert repr(result).startswith("<Transfers (simulated): gpu0->gpu1 ")
    shown = str(result)
    assert "gpu0->gpu1" in shown and "SIMULATED" in shown and " ns" in shown
    result.plot()
    assert "gpu0->gpu1" in capsys.readouterr().out
    with pytest.raises(KeyError, match="choose from gpu0->gpu1"):
        result["gpu1->gpu0"]


def test_python_takes_transfers(folder: Path) -> None:
    one = Transfer(
        Memory("gpu0", MemoryKind.DEVICE),
        Memory("gpu1", MemoryKind.DEVICE),
        Executor("gpu1"),
        Engine.SM,
        2**28,
    )
    for what in (one, [one]):
        result = wirespeed.transfer(what, machine="simulated:hgx-h200-2", samples=3)
        assert result.document.testcases[0].description == "gpu0->gpu1 by gpu1 (sm)"
