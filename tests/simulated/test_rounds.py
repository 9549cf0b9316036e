"""Rounds of a run: their order, their buffers, their failures, and the intervals that they give."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

import wirespeed
from wirespeed.backends.base import Prepared
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.driver.listener import Listener
from wirespeed.errors import BackendError, MachineError, OutOfMemory
from wirespeed.measurement import Measurement
from wirespeed.options import RunOptions
from wirespeed.run_errors import RunInterrupted
from wirespeed.tables import Cell

NAME = "hgx-h200-2"
TWO = f"simulated:{NAME}"
CASES = ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy"]


class Recording(SimulatedBackend):
    """Records what is prepared, and fails when it is told to."""

    def __init__(self, spec: str = NAME, fails: tuple[int, Exception] | None = None) -> None:
        super().__init__(parse(spec))
        self.prepared: list[str] = []
        self._fails = fails

    def renew(self) -> None:
        """Mark the beginning of a round."""
        self.prepared.append("renewed")

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Record the Measurement."""
        if self._fails and len(self.prepared) == self._fails[0]:
            (_, error), self._fails = self._fails, None
            raise error
        self.prepared.append(str(measurement))
        return super().prepare(measurement, options)

    @property
    def rounds(self) -> list[list[str]]:
        """What each round prepared."""
        found: list[list[str]] = [[]]
        for one in self.prepared:
            if one == "renewed":
                found.append([])
            else:
                found[-1].append(one)
        return found


def measured(backend: Recording, **options: Any) -> Document:
    """Run the cases."""
    return wirespeed.run(CASES, machine=backend.machine, backends=[backend], **options)


def cells(document: Document) -> Iterator[Cell]:
    """Return all cells of a run."""
    return (cell for result in document.testcases for table in result.tables for cell in table.cells)


def test_each_round_measures_everything_with_new_buffers_in_another_order() -> None:
    backend = Recording()
    document = measured(backend)
    assert [result.name for result in document.testcases] == CASES
    assert len(backend.rounds) == 7
    assert (
        len({tuple(sorted(one)) for one in backend.rounds}) == 1 and len(set(map(tuple, backend.rounds))) > 3
    )
    again = Recording()
    measured(again)
    assert again.prepared == backend.prepared  # the order is that of the seed
    other = Recording()
    measured(other, seed=1)
    assert other.prepared != backend.prepared
    for cell in cells(document):
        assert len(cell.rounds) == 7 and cell.value == statistics.median(cell.rounds)
        assert cell.interval and cell.interval[0] < cell.value < cell.interval[1]
        assert cell.statistics and cell.statistics.n == len(cell.samples) >= 21


def test_only_values_that_vary_have_more_rounds() -> None:
    document = wirespeed.run(
        ["device_local_copy", "host_to_device_memcpy_ce"],
        machine=f"{TWO}+noise@sample=0.001%",
        precision=0.0001,
    )
    assert {len(cell.rounds) for cell in cells(document)} == {7}
    noisy = wirespeed.run(["device_local_copy"], machine=f"{TWO}+noise@round=0.8%")
    assert all(7 < len(cell.rounds) <= 16 for cell in cells(noisy))


@pytest.mark.parametrize("options", [{"tier": "quick"}, {"samples": 5}, {"rounds": 2}, {"rounds": 1}])
def test_without_three_rounds_there_is_no_interval(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    document = wirespeed.run(["device_local_copy"], machine=TWO, **options)
    assert all(cell.interval is None and cell.value for cell in cells(document))


def test_the_table_prints_the_interval_and_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-t", "device_local_copy", "--machine", TWO, "--no-save"]) == 0
    several = capsys.readouterr().out
    assert main(["run", "-t", "device_local_copy", "--machine", TWO, "--no-save", "--tier", "quick"]) == 0
    assert "±0.4% in 7 rounds" in several and "±" not in capsys.readouterr().out


def test_a_failure_in_a_later_round_counts() -> None:
    document = measured(Recording(fails=(14, BackendError("the link is gone"))))
    failed = [cell for cell in cells(document) if cell.value is None]
    assert len(failed) == 1 and "the link is gone" in failed[0].reason
    assert [result.status for result in document.testcases].count(Status.ERROR) == 1


def test_memory_that_is_taken_in_a_later_round_leaves_the_value() -> None:
    document = measured(Recording(fails=(14, OutOfMemory("another process took it"))))
    fewer = [cell for cell in cells(document) if len(cell.rounds) < 7]
    assert len(fewer) == 1 and all(cell.value for cell in cells(document))
    assert any("another process took it" in w for r in document.testcases for w in r.warnings)


def test_an_interrupted_round_leaves_what_was_measured() -> None:
    backend = Recording(fails=(14, KeyboardInterrupt()))  # type: ignore[arg-type]
    with pytest.raises(RunInterrupted) as caught:
        measured(backend)
    document = caught.value.document
    assert [result.name for result in document.testcases] == CASES
    assert all(cell.value and len(cell.rounds) >= 2 for cell in cells(document))


def test_results_come_in_the_order_of_the_plan() -> None:
    told: list[str] = []

    class Names(Listener):
        def testcase_ended(self, document: Document, result: Any) -> None:
            told.append(result.name)
            assert [one.name for one in document.testcases] == told

    backend = Recording()
    wirespeed.run(CASES, machine=backend.machine, backends=[backend], listeners=[Names()])
    assert told == CASES


@pytest.mark.parametrize("fault", ["noise@round", "noise@rounds=1%", "noise@round=much", "noise"])
def test_wrong_noise_is_refused(fault: str) -> None:
    with pytest.raises(MachineError, match="noise"):
        parse(f"{NAME}+{fault}")


def test_intervals_hold_the_value_of_many_runs() -> None:
    """Of 200 runs whose times vary at all levels, 92 to 98 % of the intervals hold the median of all."""
    machine = parse(f"{NAME}+noise@sample=0.5%+noise@round=1%+noise@process=0.9%+noise@drift=0.3%")
    found: dict[tuple[int, int], list[Cell]] = {}
    for seed in range(200):
        document = wirespeed.run(["host_to_device_memcpy_ce"], machine=machine, seed=seed, time_budget=0.2)
        for cell in cells(document):
            found.setdefault((cell.row, cell.column), []).append(cell)
    hits = [
        cell.interval is not None and cell.interval[0] <= middle <= cell.interval[1]
        for runs in found.values()
        for middle in [statistics.median(cell.value or 0.0 for cell in runs)]
        for cell in runs
    ]
    assert len(hits) == 400 and 0.92 <= statistics.fmean(hits) <= 0.98


class Warns(Recording):
    """Warns about each Measurement."""

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Warn."""
        self.warn(f"about {measurement}")
        return super().prepare(measurement, options)


def test_a_warning_belongs_to_the_testcase_that_was_measured() -> None:
    """Rounds are interleaved: the testcase that is complete first has only its own."""
    document = measured(Warns())
    warned = [set(result.warnings) for result in document.testcases]
    assert all(warned) and not any(a & b for a, b in itertools.combinations(warned, 2))
