"""Transfers that are held to a rate or begin later, on simulated machines."""

from __future__ import annotations

import json
import math

import pytest

import wirespeed
from wirespeed.backends import describe
from wirespeed.cli.main import main
from wirespeed.features.transfers.toml_file import of_line
from wirespeed.hardware.limits import HELD
from wirespeed.hardware.network import Demand, completions
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

EIGHT = "simulated:dgx-a100-8"


def rates(line: str, machine: str = EIGHT, **how: int) -> dict[str, float]:
    found = wirespeed.transfer(line, machine=machine, **how).bandwidths
    return {label: one.gb_per_s for label, one in found.items()}


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
    assert rates("gpu0 -> gpu0 sm triad counted=3 rate=300GB/s")["gpu0->gpu0"] == pytest.approx(
        300.0, rel=0.01
    )
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
    def judged(machine: str, line: str) -> wirespeed.document.Document:
        return wirespeed.transfer(line, machine=machine).document

    document = judged(EIGHT, "gpu0 -> gpu1 rate=100GB/s")
    (cell,) = document.testcases[0].tables[0].cells
    assert cell.limit == 100e9 and cell.expected == (HELD * 100e9, 100e9)
    assert judge(document).verdict is Verdict.PASS
    slow = judged(EIGHT + "+speed@gpu0-nvswitch=0.2", "gpu0 -> gpu1 rate=100GB/s")
    assert judge(slow, Criteria(ignore_busy=True)).verdict is Verdict.FAIL
    small = judged(EIGHT, "gpu0 -> gpu1 16MiB rate=10GB/s").testcases[0].tables[0].cells[0]
    assert small.expected == (HELD * 10e9, 10e9)
    above = judged(EIGHT, "gpu0 -> gpu1 rate=900GB/s").testcases[0].tables[0].cells[0]
    assert above.limit == 300e9


def test_no_sum_of_transfers_that_begin_at_different_times_is_implausible() -> None:
    document = wirespeed.transfer("gpu0 -> gpu1; gpu2 -> gpu1 start=50ms", machine=EIGHT).document
    cells = document.testcases[0].tables[0].cells
    assert [cell.limit for cell in cells] == [300e9, 300e9, 600e9] and not any(
        cell.expected for cell in cells
    )
    assert {one.verdict for one in judge(document).judgements} == {Verdict.UNKNOWN}


def dry_run(line: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["transfer", line, "--dry-run", "--machine", EIGHT, *more]) == 0
    return capsys.readouterr().out


def test_a_dry_run_shows_rates_and_a_time_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = dry_run("gpu0 -> gpu1; gpu2 -> gpu1 start=1.5ms; load gpu3 -> gpu4 rate=900GB/s", capsys)
    assert "2: the rate of 900 GB/s is above the limit of 300 GB/s" in text
    assert "time line of one copy of each at the limits, 3.58 ms" in text
    *_, first, second, load = text.splitlines()
    assert first.endswith("0 to 2.08 ms") and second.endswith("1.5 ms to 3.58 ms") and "-" * 40 in load
    assert second.index("=") > first.index("=")
    assert "bounded by its rate" in dry_run("gpu0 -> gpu1 rate=10GB/s", capsys)
    assert "time line" not in dry_run("gpu0 -> gpu1 rate=10GB/s", capsys)
    works = json.loads(dry_run("gpu0 -> gpu1; gpu2 -> gpu3 start=1ms rate=20%", capsys, "--format", "json"))
    one, two = works["measurements"][0]["works"]
    assert (one["start"], one["rate"], two["start"], two["rate"]) == (0, None, 1e-3, 60e9)
    assert two["end"] == pytest.approx(1e-3 + 2**29 / 60e9)
    assert "time line" in dry_run("gpu0 -> gpu1; gpu2 -> gpu3 start=1ms", capsys, "--format", "html")


def test_only_different_starts_are_staggered() -> None:
    def staggered(line: str) -> bool:
        (case,) = of_line(line).testcases
        return case.plan(describe(EIGHT)).measurements[0].is_staggered

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
