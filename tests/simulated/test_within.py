"""A run with a time limit: what it measures first, what it leaves out, and what it says about that."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.cli.main import main
from wirespeed.cli.option_values import process_started
from wirespeed.document import Document, Status, TestcaseResult
from wirespeed.driver.run_plan import run_plan
from wirespeed.driver.time_limit import NO_TIME
from wirespeed.errors import UsageError
from wirespeed.hardware.durations import end_seconds, least_seconds, start_seconds, usual_seconds
from wirespeed.hardware.link_graph import Network
from wirespeed.judging.judge import judge
from wirespeed.judging.omissions import left_out
from wirespeed.judging.verdict import Verdict
from wirespeed.options import RULES, RunOptions
from wirespeed.statistics import Fixed, Precise
from wirespeed.testcases.selections import COVERING, by_value
from wirespeed.testcases.table import TABLE, find

EIGHT = "dgx-a100-8"
#: By how much a measurement may exceed its estimate, in s.
SLACK_S = 0.5
CHECK = ["check", "--allow-simulated", "--no-save", "--machine"]


def measured(spec: str, within: float, **options: Any) -> tuple[Document, float]:
    """Return a run with a limit, and the virtual time from start to exit."""
    machine = parse(spec)
    backend = SimulatedBackend(machine)
    document = wirespeed.run(machine=machine, backends=[backend], tier="quick", within=within, **options)
    backend.close()
    return document, start_seconds(machine) + backend.elapsed() + end_seconds(machine)


def covering(document: Document) -> list[TestcaseResult]:
    return [result for result in document.testcases if result.name in COVERING]


@pytest.mark.parametrize("within", [5, 10, 20])
def test_a_run_ends_within_its_limit_and_counts_what_it_left_out(within: float) -> None:
    document, seconds = measured(EIGHT, within)
    assert seconds <= within + SLACK_S
    assert document.seconds < within and not document.interrupted and document.good
    for result in document.testcases:
        missing = [c for t in result.tables for c in t.cells if c.value is None and c.reason == NO_TIME]
        assert result.left_out == len(missing) or (result.left_out and not result.tables)
        values = sum(c.value is not None for t in result.tables for c in t.cells)
        assert (result.status is Status.PASSED) == (values > 0) or not result.left_out
    assert sum(left_out(document).values()) > 650


def test_every_device_is_covered_before_the_rest() -> None:
    document, _ = measured(EIGHT, 10)
    assert [result.name for result in document.testcases[: len(COVERING)]] == list(COVERING)
    assert not any(result.left_out for result in covering(document))
    check = judge(document)
    assert check.verdict is Verdict.PASS and not check.doubts
    assert wirespeed.render(document, "table")


def test_pairs_of_gpus_are_measured_in_rounds_in_every_tier() -> None:
    case, machine = find("device_to_device_memcpy_read_ce"), parse(EIGHT)
    for tier in ("quick", "standard", "full"):
        assert len(case.plan(machine, RunOptions(tier=tier, within=20)).measurements) == 14
        assert RunOptions(tier=tier, within=20).rule == RULES["quick"]


@pytest.mark.parametrize(
    ("machine", "place"),
    [
        (EIGHT, "gpu3"), (EIGHT, "gpu5-gpu5"), (EIGHT, "pcie1->gpu2"), (EIGHT, "gpu7-nvswitch"),
        ("hgx-b200-8", "nvswitch->gpu0"), ("hgx-b200-8", "gpu6-numa1"),
    ],
)  # fmt: skip
def test_a_fault_is_named_within_20_s(machine: str, place: str) -> None:
    """``benchmarks/within.py`` does so for every place."""
    document, seconds = measured(f"{machine}+speed@{place}=0.8", 20)
    first, *others = judge(document).culprits
    ends = place.replace("->", "-").split("-")
    assert seconds <= 20 + SLACK_S and not others
    assert all(end in str(first) for end in ends), str(first)


def test_a_pass_names_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*CHECK, f"simulated:{EIGHT}", "--within", "20s"])
    text = " ".join(capsys.readouterr().out.split())
    found = re.search(r"PASS everything measured is as fast as expected; (\d+) testcases were not", text)
    assert code == 0 and found, text
    assert re.search(
        rf"left out: no time was left within 20 s for \d+ values of {found[1]} testcases: ", text
    )
    code = main([*CHECK, f"simulated:{EIGHT}", "--within", "20s", "--format", "json"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert code == 0 and len(run["left_out"]) > 30 and run["doubts"] == []


def test_a_device_that_was_not_measured_is_no_pass() -> None:
    document, _ = measured(EIGHT, 6)
    check = judge(document)
    assert check.verdict is Verdict.WARN and any(one.verdict is Verdict.PASS for one in check.judgements)
    (doubt,) = check.doubts
    assert doubt.startswith("not every device was measured: no time was left within 6 s for ")


def test_a_run_without_time_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = measured(EIGHT, 1)
    assert {result.status for result in document.testcases} == {Status.WAIVED}
    assert judge(document).verdict is Verdict.NOT_JUDGED
    code = main([*CHECK, f"simulated:{EIGHT}", "--within", "1s"])
    assert code not in (0, 1) and "NOT JUDGED" in capsys.readouterr().out


def test_a_requested_testcase_that_was_left_out_is_a_doubt() -> None:
    machine = parse(EIGHT)
    names, ends = ["device_stream_add", "device_saxpy"], start_seconds(machine) + end_seconds(machine)
    document = wirespeed.run(names, machine=machine, within=ends + 0.1)
    assert f"device_saxpy measured nothing: {NO_TIME}" in judge(document).doubts
    part = wirespeed.run(prefixes=["device_saxpy"], machine=machine, within=ends + 0.1)
    check = judge(part)
    assert check.verdict is Verdict.WARN and 0 < left_out(part)["device_saxpy"] < 8
    assert check.doubts[0].startswith("not all that was requested was measured: no time was left")


def test_a_limit_that_suffices_leaves_nothing_out() -> None:
    document, seconds = measured("hgx-h200-2", 60)
    assert not left_out(document) and seconds < 60
    unlimited = wirespeed.run(machine="simulated:hgx-h200-2", tier="quick")
    assert {r.name for r in document.testcases} == {r.name for r in unlimited.testcases}


def test_the_diagnosis_ends_with_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--machine", f"simulated:{EIGHT}+nvlinks=6@gpu0", "--within", "12s"])
    assert code == 1 and "nvlinks" in capsys.readouterr().out.lower()


class RealTime:
    """A backend whose measurements take real time."""

    virtual = False

    def __init__(self, backend: SimulatedBackend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.mark.parametrize(
    "fault", ["hang", pytest.param("stuck", marks=pytest.mark.leaves("a call that never returns"))]
)
def test_a_call_in_progress_at_the_end_is_cancelled(fault: str) -> None:
    machine = parse(f"hgx-h200-2+{fault}@gpu0->numa0")
    backend: Any = RealTime(SimulatedBackend(machine))
    names = ["device_to_host_memcpy_ce", "device_saxpy"]
    document = wirespeed.run(names, machine=machine, backends=[backend], within=end_seconds(machine) + 0.5)
    assert not document.interrupted and document.seconds < RunOptions().timeout
    assert left_out(document) == {"device_to_host_memcpy_ce": 2, "device_saxpy": 2}


def test_the_order_is_that_of_value_and_else_unchanged() -> None:
    ordered = by_value(TABLE)
    assert {case.name for case in ordered} == {case.name for case in TABLE}
    assert [case.name for case in ordered[: len(COVERING)]] == list(COVERING)
    rest = [case.name for case in ordered if case.name.startswith("multinode")]
    assert rest == [case.name for case in TABLE if case.name.startswith("multinode")]


def test_budgets_shrink_and_never_grow() -> None:
    rule = Precise(0.01, 0.3, 1.0, 3)
    assert rule.shrunk(0.5) == Precise(0.01, 0.15, 0.5, 3)
    assert rule.shrunk(2) == rule and Fixed(3, 4).shrunk(0.5) == Fixed(3, 4)
    assert rule.shrunk(0).time_budget > 0


def test_estimates_follow_from_the_plan() -> None:
    """Eight GPUs take about 45 s, as measured runs of one, two and four GPUs let expect."""
    machine, options = parse(EIGHT), RunOptions(tier="quick")
    planned = run_plan(TABLE[:60], machine, options)
    assert [one.case for one in planned] == list(TABLE[:60])
    quick = run_plan([case for case in TABLE if case.tier == "quick"], machine, options)
    assert 35 < quick[-1].begins < 70
    network = Network(machine)
    (one, *_) = find("host_to_device_memcpy_ce").plan(machine, options).measurements
    half = find("host_to_device_memcpy_ce").plan(machine, RunOptions(size="256MiB")).measurements[0]
    assert least_seconds(network, half, options.rule) < least_seconds(network, one, options.rule)
    unverified = least_seconds(network, one, options.rule, verify=False)
    assert unverified < least_seconds(network, one, options.rule)
    assert usual_seconds(network, one, Fixed(100, 16)) > usual_seconds(network, one, Fixed(1, 1))


def test_a_dry_run_shows_order_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check"], ["run", "--tier", "quick"], []):
        assert main([*command, "--dry-run", "--within", "20s", "--machine", f"simulated:{EIGHT}"]) == 0
        text = capsys.readouterr().out
        assert text.index("host_to_device_memcpy_ce") < text.index("device_local_copy")
        assert "nothing is measured" in text and "left out" in text
        assert "within 20 s, there may be no time for " in text
    assert main(["check", "--dry-run", "-t", "all_reduce", "--machine", f"simulated:{EIGHT}"]) == 0
    assert "6 values of 1 testcase" in capsys.readouterr().out


@pytest.mark.parametrize("given", [0, -1, "0s", "soon"])
def test_a_limit_is_a_time(given: object) -> None:
    with pytest.raises(UsageError):
        RunOptions(within=given)  # type: ignore[arg-type]


def test_a_job_has_no_limit() -> None:
    world: Any = object()
    with pytest.raises(UsageError, match="--within is for one process"):
        wirespeed.run(within=5, world=world)


def test_the_process_started_before_now() -> None:
    first, now = process_started(), time.monotonic()
    assert first < now and abs(process_started() - first) < 0.1
