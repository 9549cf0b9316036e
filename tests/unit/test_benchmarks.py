"""The benchmarks that compare wirespeed with other programs: what they parse."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import wirespeed

ROOT = Path(__file__).parents[2]


def benchmark(name: str) -> Any:
    """Return a program of the folder of benchmarks as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_operations_all_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    module = benchmark("vs_mpi_in_c")
    assert module.parsed([]).operations == list(module.OPERATIONS)
    assert module.parsed(["message", "--rounds", "2"]).operations == ["message"]
    with pytest.raises(SystemExit):
        module.parsed(["mesage"])
    assert "'mesage' is not one of message, window, all_reduce" in capsys.readouterr().err


def test_the_parser_reads_every_cell() -> None:
    module = benchmark("vs_nvbandwidth")
    document = wirespeed.run(["4", "6", "0", "33"], machine="simulated:hgx-h200-2")
    cells = module.parse(wirespeed.render(document, "nvbandwidth"))
    name = "device_to_device_memcpy_read_ce"
    assert {key[1:] for key in cells if key[0] == name} == {(0, 1), (1, 0)}
    assert len(cells) == 2 + 6 + 2 + 2
    assert cells[name, 0, 1] == pytest.approx(394, rel=0.01)
    assert module.report({k: [v] for k, v in cells.items()}, {k: [v] for k, v in cells.items()}) == []
    slower = {k: [0.9 * v] for k, v in cells.items()}
    assert f"{name}: a cell at 0.900" in module.report({k: [v] for k, v in cells.items()}, slower)


def test_runs_of_one_machine_are_compared_with_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = benchmark("compare_aa")
    module.TRIALS, module.DIVISIONS = 8, 2
    for seed in range(4):
        run = wirespeed.run(["0", "4"], machine="simulated:hgx-h200-2", samples=3, copies=1, seed=seed)
        wirespeed.save(run, tmp_path / f"{seed}.json")
    module.main(["--from", str(tmp_path)])
    text = capsys.readouterr().out
    assert "4 runs of 4 values" in text
    assert "pairs of runs: any change in 0 of 6 (0.0%)" in text
    assert "random halves of all runs: any change in 0 of 2" in text
    assert "one value of GPU 3% slower in one run: found in 5 of 5, only it in 5" in text
    module.table("pairs", [{"x", "y"}, {"x"}, set(), set()])
    assert capsys.readouterr().out == "pairs: any change in 2 of 4 (50.0%)\n  x: 2\n  y: 1\n"
    with pytest.raises(SystemExit):
        module.parsed([])
    assert "pass a command, or saved runs with --from" in capsys.readouterr().err


def test_the_rate_of_iperf3_is_what_arrives() -> None:
    """The end of what ``iperf3 3.12 -J`` prints, shortened."""
    sent = '{"seconds": 1.0, "bytes": 30000000, "bits_per_second": 240000000, "sender": true}'
    received = '{"seconds": 1.01, "bytes": 29900000, "bits_per_second": 236831683, "sender": true}'
    text = f'{{"end": {{"sum_sent": {sent}, "sum_received": {received}}}}}'
    assert benchmark("vs_iperf3").rate_of(text) == pytest.approx(29.6e6, rel=1e-3)


def test_without_iperf3_the_benchmark_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = benchmark("vs_iperf3")
    monkeypatch.setattr(module.sys, "argv", ["vs_iperf3.py"])
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert module.main() == 2
    assert capsys.readouterr().err == "iperf3 is not installed: apt install iperf3\n"
