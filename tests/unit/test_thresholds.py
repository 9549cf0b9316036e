"""What is reported from which difference on: a little more is, a little less is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wirespeed.backends.base import Prepared
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.collectives.data_types import BY_NAME
from wirespeed.collectives.operations import OPERATIONS, Setting
from wirespeed.document import TestcaseResult
from wirespeed.driver.contention import blocking, slowed, suspects
from wirespeed.driver.jobs import begun
from wirespeed.driver.session import Session
from wirespeed.driver.slow_rows import slow
from wirespeed.hardware.link_graph import Network
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Axis, Measurement, Sample, Unit
from wirespeed.options import RunOptions
from wirespeed.statistics import summarise
from wirespeed.tables import Cell, Table
from wirespeed.testcases.patterns import ALONE
from wirespeed.testcases.table import collectives, find


def cell(value: float, scatter: float = 0.001) -> Cell:
    samples = [value * (1 + scatter * (i - 3)) for i in range(7)]
    return Cell(0, 0, value, statistics=summarise(samples), samples=tuple(samples))


def tables(together: Cell, alone: Cell) -> list[Table]:
    axis = Axis("GPU", ("gpu0",))
    pair = Axis("pair", ("gpu0->gpu0",))
    return [
        Table("", "", Unit.RATE, axis, axis, (together,)),
        Table(ALONE, "", Unit.RATE, Axis("", (ALONE,)), pair, (alone,)),
    ]


@pytest.mark.parametrize(
    ("value", "scatter", "told"), [(97.0, 0.001, True), (98.5, 0.001, False), (97.0, 0.02, False)]
)
def test_pairs_are_slowed_down_from_two_percent_beyond_noise(
    value: float, scatter: float, told: bool
) -> None:
    text = blocking(tables(cell(value, scatter), cell(100.0)))
    assert bool(text) == told and ("by 3%" in text) == told
    found = slowed([(cell(value, scatter), cell(100.0)), (cell(100.0), cell(100.0))], left=0)
    text = "1 value was up to 3% slower when run concurrently; measured again one at a time"
    assert found == ([text] if told else [])
    assert slowed([], left=4) == ["4 more pairs look low; not all were measured again one at a time"]


@pytest.mark.parametrize(
    ("name", "value", "low"),
    [("device_to_device_latency_sm", 1.06, True), ("device_to_device_latency_sm", 1.04, False),
     ("device_to_device_latency_sm", 0.5, False), ("device_to_device_memcpy_read_ce", 0.94, True),
     ("device_to_device_memcpy_read_ce", 0.96, False), ("device_to_device_memcpy_read_ce", 1.5, False)],
)  # fmt: skip
def test_a_long_latency_and_a_low_rate_are_measured_again(name: str, value: float, low: bool) -> None:
    machine = parse("dgx-a100-8")
    pairs = [pair for whole in find(name).plan(machine).measurements for pair in whole.separate()]
    usual = 1e-6 if "latency" in name else 300e9
    places = [place for pair in pairs for place in pair.places]
    cells = {(place.row, place.column): cell(usual) for place in places}
    cells[places[3].row, places[3].column] = cell(usual * value)
    table = places[0].table
    assert suspects(Network(machine), pairs, {table: cells}) == ([pairs[3]] if low else [])


@pytest.mark.parametrize(("factor", "told"), [(1.49, False), (1.51, True)])
def test_a_phase_is_slow_from_half_as_long_again(factor: float, told: bool) -> None:
    fast = [1.0, 1.0, 1.0]
    assert [bool(text) for text in slow([fast, [factor] * 3])] == [False, told]
    assert slow([fast, [0.99, 2.0, 2.0]])[1] == ""  # not all of its samples are above


class Known(SimulatedBackend, Prepared):
    """Yields a sample with known times of its iterations, by process."""

    def __init__(self, times: tuple[tuple[float, ...], ...]) -> None:
        super().__init__(Machine("", simulated=True))
        slowest = [max(column) for column in zip(*times, strict=True)]
        parts = tuple(
            Sample((s, s), (1.0, 1.0), s, by_process=column)
            for s, column in zip(slowest, zip(*times, strict=True), strict=True)
        )
        count, wall = float(len(slowest)), sum(slowest)
        self.known = Sample((wall, wall), (count, count), wall, iterations=parts)

    def prepare(self, measurement: Measurement, options: RunOptions) -> Any:
        return self

    def sample(self, copies: int) -> Sample:
        return self.known

    def verify(self) -> int:
        return 0


def collective(*times: tuple[float, ...], skip: int = 0) -> TestcaseResult:
    """Return a sum of 1 KiB over two processes with these times of their iterations."""
    setting = Setting(OPERATIONS["all_reduce"], BY_NAME["float"], "sum")
    case = collectives.collective(setting, ranks=2, lateness=2)
    assert case.swept
    case = replace(case, pattern=case.swept((1024,)))
    backend = Known(times)
    options = RunOptions(samples=1, copies=len(times[0]))
    document = begun(backend.machine, [case], options)
    (found,) = Session(document, [backend], (case,), options, skip=skip).run().testcases
    return found


def test_iterations_that_are_skipped_do_not_count() -> None:
    times = (9e-6, 1e-6, 2e-6, 3e-6)
    for skip, expected in ((0, 15e-6 / 4), (1, 2e-6), (2, 2.5e-6)):
        table = collective(times, times, skip=skip).tables[0]
        found = table.cells[0]  # of two: in place as well
        assert found.statistics and found.statistics.mean == pytest.approx(expected)
        assert found.samples == times  # they are kept
        late = collective(times, (1e-6, 1e-6, 2e-6, 3e-6), skip=skip).tables[-1]
        assert late.cells[1].value == pytest.approx(2e-6 if skip == 0 else 0.0)


@pytest.mark.parametrize(("late", "told"), [(5.5e-6, False), (6.5e-6, True)])
def test_a_process_is_late_from_a_tenth_of_the_operation(late: float, told: bool) -> None:
    typical = 60e-6
    warnings = collective((typical,) * 3, (typical - late,) * 3).warnings
    assert warnings == (
        (f"straggler: process 1 starts {late * 1e6:.1f} µs late on average at 1 KiB",) if told else ()
    )
    assert collective((10e-6,) * 3, (6e-6,) * 3).warnings == ()  # 4 µs are noise
