"""Transfers that are held to a rate or begin later, on simulated machines."""

from __future__ import annotations

import math
from typing import Any

import pytest

import wirespeed
from tests.paced import paced
from wirespeed.backends import describe
from wirespeed.hardware.limits import HELD
from wirespeed.hardware.network import Demand, completions
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

EIGHT = "simulated:dgx-a100-8"


def measured(line: str, machine: str = EIGHT, **how: Any) -> wirespeed.document.Document:
    return wirespeed.run([paced(line)], machine=machine, **how)


def rates(line: str, machine: str = EIGHT, **how: int) -> dict[str, float]:
    (table,) = measured(line, machine, **how).testcases[0].tables
    return {table.rows.labels[cell.row]: (cell.value or 0.0) / 1e9 for cell in table.cells}


def test_flows_that_begin_later_leave_the_link_to_the_others_until_then() -> None:
    link = [Demand({0: 1.0})] * 2
    assert completions(link, {0: 10.0}, [100.0, 100.0], [0.0, 0.0]) == [20.0, 20.0]
    assert completions(link, {0: 10.0}, [100.0, 100.0], [0.0, 5.0]) == [15.0, 20.0]
    assert completions(link, {0: 10.0}, [100.0, 100.0], [0.0, 30.0]) == [10.0, 40.0]
    assert completions(link, {0: 10.0}, [100.0, math.inf], [0.0, 5.0]) == [15.0, math.inf]
    assert completions([Demand({0: 1.0}, 2.0), Demand({0: 1.0})], {0: 10.0}, [100, 80], [0, 0]) == [
        50.0,
        10.0,
    ]
    assert completions([], {}, [], []) == []


def test_a_rate_is_held_and_leaves_the_rest_to_others() -> None:
    assert rates("gpu0 -> gpu1 rate=10GB/s")["gpu0->gpu1"] == pytest.approx(10.0, rel=0.01)
    full, beside = (
        rates(f"gpu0 -> gpu1; load gpu2 -> gpu1{rate}")["gpu0->gpu1"] for rate in ("", " rate=50GB/s")
    )
    assert beside > 1.5 * full
    assert rates("gpu0 -> gpu1 rate=900GB/s")["gpu0->gpu1"] == rates("gpu0 -> gpu1")["gpu0->gpu1"]


def test_a_later_start_is_no_part_of_the_time() -> None:
    together = rates("gpu0 -> gpu1; gpu2 -> gpu1", copies=1, samples=3)
    partly = rates("gpu0 -> gpu1; gpu2 -> gpu1 start=1ms", copies=1, samples=3)
    apart = rates("gpu0 -> gpu1; gpu2 -> gpu1 start=10ms", copies=1, samples=3)
    for label in ("gpu0->gpu1", "gpu2->gpu1"):
        assert together[label] < partly[label] < apart[label]
    late = rates("gpu0 -> gpu1; load gpu2 -> gpu1 start=10ms", copies=1, samples=3)
    assert late["gpu0->gpu1"] == pytest.approx(apart["gpu0->gpu1"], rel=0.02)


def test_a_paced_transfer_is_judged_by_its_rate() -> None:
    document = measured("gpu0 -> gpu1 rate=100GB/s")
    (cell,) = document.testcases[0].tables[0].cells
    assert cell.limit == 100e9 and cell.expected == (HELD * 100e9, 100e9)
    assert judge(document).verdict is Verdict.PASS
    slow = measured("gpu0 -> gpu1 rate=100GB/s", EIGHT + "+speed@gpu0-nvswitch=0.2")
    assert judge(slow, Criteria(ignore_busy=True)).verdict is Verdict.FAIL
    small = measured("gpu0 -> gpu1 16MiB rate=10GB/s").testcases[0].tables[0].cells[0]
    assert small.expected == (HELD * 10e9, 10e9)
    above = measured("gpu0 -> gpu1 rate=900GB/s").testcases[0].tables[0].cells[0]
    assert above.limit == 300e9


def test_no_sum_of_transfers_that_begin_at_different_times_is_implausible() -> None:
    document = measured("gpu0 -> gpu1; gpu2 -> gpu1 start=50ms")
    cells = document.testcases[0].tables[0].cells
    assert [cell.limit for cell in cells] == [300e9, 300e9, 600e9] and not any(
        cell.expected for cell in cells
    )
    assert {one.verdict for one in judge(document).judgements} == {Verdict.UNKNOWN}


def test_only_different_starts_are_staggered() -> None:
    def staggered(line: str) -> bool:
        return paced(line).plan(describe(EIGHT)).measurements[0].is_staggered

    assert staggered("gpu0 -> gpu1; gpu2 -> gpu3 start=1us") and staggered(
        "gpu0 -> gpu1; load gpu2 -> gpu3 start=1us"
    )
    assert not staggered("gpu0 -> gpu1 start=1us; gpu2 -> gpu3 start=1us")
    assert not staggered("gpu0 -> gpu1 start=1us; load gpu2 -> gpu3")


def test_a_broadcast_is_limited_by_the_link_that_carries_it_several_times() -> None:
    one, both = (rates(f"gpu0 -> gpu1{more} sm")["gpu0->gpu1" + "+gpu2" * bool(more)]
                 for more in ("", ", gpu2 broadcast"))  # fmt: skip
    assert both == pytest.approx(one / 2, rel=0.02)
    document = wirespeed.transfer("gpu0 -> gpu1, gpu2 broadcast", machine=EIGHT).document
    (cell,) = document.testcases[0].tables[0].cells
    assert (cell.limit, cell.expected) == (150e9, None)
