"""Transfers that ran one after another."""

from __future__ import annotations

from dataclasses import replace

import pytest

import wirespeed
from wirespeed.backends import describe
from wirespeed.data import efficiencies
from wirespeed.driver.concurrency import one_after_another
from wirespeed.features.transfers.program import of_line
from wirespeed.hardware.limits import allowances
from wirespeed.hardware.link_graph import Network
from wirespeed.measurement import Measurement, Place, Reduce, Sample

TWO = describe("simulated:hgx-h200-2")
NETWORK = Network(TWO)


def measurement(line: str) -> Measurement:
    (found,) = of_line(line).testcase.plan(TWO).measurements
    return found


def sample(one: Measurement, *factors: float) -> Sample:
    """Return a sample whose transfers end at multiples of the typical time of the first one."""
    alone = allowances(NETWORK, Measurement(one.works[:1], one.places[:1]), efficiencies())[0]
    assert alone.expected
    time = one.transfers[0].bytes / alone.expected[1]
    seconds = tuple(factor * time for factor in factors)
    return Sample(seconds, tuple(float(t.bytes) for t in one.transfers), max(seconds))


@pytest.mark.parametrize(
    ("line", "ends", "serial"),
    [
        ("gpu0 -> gpu1; gpu0 -> gpu1", (1, 2), True),
        ("gpu0 -> gpu1; gpu1 -> gpu0", (2, 1), True),
        ("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1", (1, 2, 3), True),
        ("gpu0 -> gpu1; gpu0 -> gpu1", (2, 2), False),  # they share a link
        ("gpu0 -> gpu1; gpu1 -> gpu0", (1, 1), False),
        ("gpu0 -> gpu1; gpu0 -> gpu1", (1.3, 2), False),  # unequal shares
        ("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1", (1, 2, 2), False),
        ("gpu0 -> gpu1; numa0 -> gpu0", (1, 7.3), False),  # the second one is slower anyway
        ("gpu0 -> gpu1; load gpu0 -> gpu1", (1, 2), False),
        ("gpu0 -> gpu1; latency gpu0 <- gpu1", (1, 2), False),
        ("near(gpu0) -> gpu0; near(gpu1) -> gpu1", (1, 2), False),  # no queue in common: a slow link
    ],
)
def test_transfers_that_end_one_duration_apart_were_serialised(
    line: str, ends: tuple[float, ...], serial: bool
) -> None:
    one = measurement(line)
    found = one_after_another(NETWORK, one, [sample(one, *ends)] * 3)
    assert ("one after another (gpu" in found) is serial


@pytest.mark.parametrize(("wall", "serial"), [(2.0, True), (1.3, False), (1.0, False)])
def test_transfers_whose_clocks_start_at_their_turn_were_serialised(wall: float, serial: bool) -> None:
    """As two copies by one copy engine of an H200: each at full speed, together twice that of the link."""
    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1")
    both = sample(one, 1, 1)
    found = one_after_another(NETWORK, one, [replace(both, wall=wall * both.wall)] * 3)
    assert ("one after another" in found) is serial


@pytest.mark.parametrize(("last", "warned"), [(3, False), (6, True)])
@pytest.mark.parametrize("queued", [True, False])
def test_totals_that_are_as_high_as_expected_need_no_warning(last: float, warned: bool, queued: bool) -> None:
    """Four H200s: three copies from one GPU take turns at its links, which carry what they can."""
    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1")
    total = replace(one, places=(Place("", 0, 0, Reduce.WALL, (0, 1, 2)),))
    ends = (1, 1, 1) if queued else (1, 2, last)
    times = sample(one, *ends)
    times = replace(times, wall=last * sample(one, 1, 1, 1).wall)
    found = one_after_another(NETWORK, total, [times] * 3)
    assert ("one after another" in found) is warned
    assert "one after another" in one_after_another(NETWORK, one, [times] * 3)


def test_the_warning_is_in_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    from wirespeed.backends.simulated.prepared import SimulatedMeasurement

    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1")
    late = sample(one, 1, 2)
    monkeypatch.setattr(SimulatedMeasurement, "sample", lambda self, copies: late)
    case = of_line("gpu0 -> gpu1; gpu0 -> gpu1").testcase
    document = wirespeed.run([case], machine=TWO)
    assert "one after another" in document.testcases[0].warnings[0]
