"""Repeating all measurements of a testcase in cycles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed import backends
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.backends.simulated.prepared import SimulatedMeasurement
from wirespeed.cli.main import main
from wirespeed.document import Status
from wirespeed.driver import hardware_state, worker
from wirespeed.driver.cells_of_samples import cell_of
from wirespeed.driver.jobs import begun
from wirespeed.driver.session import Session
from wirespeed.measurement import Measurement
from wirespeed.options import RunOptions
from wirespeed.tables import Quantity, State
from wirespeed.testcases.table import select

TWO = "simulated:hgx-h200-2"


def test_the_cost_of_cycles_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are made of all cycles once, not in every cycle."""
    processed: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        processed.append(sum(len(taken.samples) for taken in arguments[3]))
        return cell_of(*arguments, **options)

    monkeypatch.setattr(worker, "cell_of", counted)
    for cycles in (10, 40):
        processed.clear()
        document = wirespeed.run(["4"], machine=TWO, rounds=cycles, samples=1)
        cells = document.testcases[0].tables[0].cells
        assert [len(cell.samples) for cell in cells] == [cycles] * 2
        assert sum(processed) == 2 * cycles  # for each cell, once at the end: no listener wants others


def test_wrong_elements_are_summed_over_cycles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    counts = []
    for cycles in (1, 3):
        path = tmp_path / f"{cycles}.json"
        arguments = ["-g", "2", "-b", "8", "-e", "8", "-N", str(cycles), "--output", str(path)]
        assert main(["all_reduce_perf", "--machine", f"{TWO}+corrupt@gpu1", *arguments]) == 7
        (result,) = wirespeed.load(path).testcases
        counts.append([cell.wrong for cell in result.tables[0].cells])
        first = counts[0][0]
        assert result.status is Status.FAILED and f"{first} wrong element" in result.reason
        assert str(counts[-1][0]) in result.tables[0].cells[0].reason
    assert counts[0][0] and counts[1] == [3 * (wrong or 0) for wrong in counts[0]]


def test_the_leading_iterations_of_each_cycle_do_not_count(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "n.json"
    arguments = ["-b", "8", "-e", "8", "-N", "2", "-n", "4", "-I", "1", "-K", "2", "-J", str(path)]
    assert main(["all_reduce_perf", "--machine", TWO, *arguments]) == 0
    (result,) = json.loads(path.read_text())["results"]
    times = result["out_of_place_per_iter"]
    assert len(times["times_us"]) == 8
    steady = [*times["times_us"][2:4], *times["times_us"][6:]]
    assert times["min_us"] == min(steady) and times["max_us"] == max(steady)
    assert times["avg_us"] == pytest.approx(sum(steady) / 4)


class Half(SimulatedBackend):
    """A backend of copies in one direction only, whose state says which."""

    def __init__(self, source: str) -> None:
        super().__init__(parse("hgx-h200-2"))
        self.source = source

    def refuses(self, measurement: Measurement) -> str | None:
        here = measurement.transfers[0].source.device.startswith(self.source)
        return super().refuses(measurement) if here else ""

    def state(self) -> State:
        return (Quantity(self.source, "temperature", 40.0, "°C"),)


def test_a_recent_state_of_other_backends_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware_state, "STATE_MAX_AGE_S", float("inf"))
    halves = [Half("numa"), Half("gpu")]
    cases, options = select(["0", "1"]), RunOptions(samples=1, copies=1)
    document = Session(begun(backends.describe(TWO), cases, options), halves, cases, options).run()
    states = [
        {quantity.device for quantity in state}
        for result in document.testcases for state in (result.state_before, result.state_after)
    ]  # fmt: skip
    assert states == [{"numa"}, {"numa"}, {"gpu"}, {"gpu"}]


def test_wrong_elements_are_summed_over_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((1, 2, 3))
    monkeypatch.setattr(SimulatedMeasurement, "verify", lambda self: next(counts))
    (result,) = wirespeed.run(["device_saxpy"], machine="simulated:gh200-1", samples=3).testcases
    assert [cell.wrong for cell in result.tables[0].cells] == [6]
    assert result.status is Status.FAILED and "6 wrong elements" in result.reason
