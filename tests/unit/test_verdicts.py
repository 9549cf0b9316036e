"""Verdicts on single cells, and what they have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.data import efficiencies
from wirespeed.document import Document, Status, TestcaseResult
from wirespeed.judging.hardware_changes import hardware_changes
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.limits import JUDGED_BYTES, JUDGED_COPY_BYTES
from wirespeed.quantities import GENERATION, THROTTLED, Quantity, Reading, State
from wirespeed.results.baseline import make

DOCUMENT = wirespeed.run(["4"], machine="simulated:hgx-h200-2")


def with_values(document: Document, factor: float) -> Document:
    """Return a Document whose cells have this part of their limit."""
    (result,) = document.testcases
    (table,) = result.tables
    cells = tuple(replace(cell, value=(cell.limit or 1.0) * factor) for cell in table.cells)
    return replace(document, testcases=(replace(result, tables=(replace(table, cells=cells),)),))


@pytest.mark.parametrize(
    ("factor", "verdict", "overall"),
    [
        (0.50, Verdict.FAIL, Verdict.FAIL),
        (0.72, Verdict.WARN, Verdict.WARN),
        (0.80, Verdict.PASS, Verdict.PASS),
        (1.009, Verdict.PASS, Verdict.PASS),
        (1.011, Verdict.IMPLAUSIBLE, Verdict.FAIL),
    ],
)
def test_the_bounds(factor: float, verdict: Verdict, overall: Verdict) -> None:
    check = judge(with_values(DOCUMENT, factor))
    assert {judgement.verdict for judgement in check.judgements} == {verdict}
    assert check.verdict is overall and check.testcases == {"device_to_device_memcpy_read_ce": verdict}


@given(st.floats(0.01, 2), st.floats(0.01, 2))
def test_more_is_never_worse_up_to_the_limit(a: float, b: float) -> None:
    low, high = sorted((min(a, 1.0), min(b, 1.0)))
    assert judge(with_values(DOCUMENT, low)).verdict.rank <= judge(with_values(DOCUMENT, high)).verdict.rank


@given(st.floats(0.01, 2))
def test_a_baseline_takes_the_place_neither_of_the_range_nor_of_the_limit(factor: float) -> None:
    document = with_values(DOCUMENT, factor)
    check = judge(document, baseline=make([document]))
    assert check.verdict is judge(document).verdict


def test_judging_is_deterministic_and_the_worst_is_first() -> None:
    document = wirespeed.run(machine="simulated:dgx-a100-8+speed@gpu3=0.7", samples=1, copies=1, tier="quick")
    check = judge(document)
    assert check == judge(document)
    ranks = [judgement.verdict.rank for judgement in check.judgements]
    assert ranks == sorted(ranks)


def test_an_unknown_capacity_is_never_a_pass() -> None:
    machine = wirespeed.machine("simulated:hgx-h200-2")
    import dataclasses

    blind = dataclasses.replace(
        machine, links=tuple(dataclasses.replace(x, capacity=None) for x in machine.links)
    )
    (result,) = DOCUMENT.testcases
    cells = tuple(replace(c, limit=None, peak=None, expected=None) for c in result.tables[0].cells)
    result = replace(result, tables=(replace(result.tables[0], cells=cells),))
    check = judge(replace(DOCUMENT, machine=blind, testcases=(result,)))
    assert check.verdict is Verdict.UNKNOWN
    assert check.judgements[0].why == "unknown capacity of memory and nvlink links"


def test_a_load_that_is_slow_makes_nothing_implausible() -> None:
    """Two GPUs share an uplink; where one is slow, the other gets more than its fair share."""
    document = wirespeed.run(["10"], machine="simulated:dgx-a100-8+speed@gpu2-pcie1=0.2")
    column = {judgement.key.column: judgement for judgement in judge(document).judgements}
    assert column["gpu3"].value > 1.2 * column["gpu3"].limit  # type: ignore[operator]
    assert column["gpu3"].verdict is Verdict.PASS and column["gpu2"].verdict is Verdict.FAIL


def test_what_is_normal_is_between_nothing_and_the_line_rate() -> None:
    for low, typical in zip(*efficiencies(), strict=True):
        assert 0 < low.efficiency < typical.efficiency <= 1 and low.source
        assert (low.engine, low.link, low.access) == (typical.engine, typical.link, typical.access)


def test_small_buffers_are_not_judged() -> None:
    cases = {"device_to_device_memcpy_read_ce": JUDGED_COPY_BYTES, "device_local_copy": JUDGED_BYTES}
    for case, least in cases.items():
        for size, judged in ((least, True), (least // 2, False)):
            document = wirespeed.run([case], machine="simulated:hgx-h200-2", size=size)
            assert (judge(document).verdict is Verdict.PASS) == judged


def test_a_run_that_ended_early_is_no_pass() -> None:
    check = judge(replace(DOCUMENT, interrupted="Ctrl-C"))
    assert check.verdict is Verdict.INTERRUPTED
    assert check.judgements[0].why == "run interrupted: Ctrl-C"


def test_what_held_a_gpu_back_while_it_was_measured_is_named() -> None:
    def state(reasons: tuple[str, ...], generation: float, power: float) -> State:
        return (
            Quantity("gpu0", THROTTLED, reasons), Quantity("gpu0", GENERATION, generation),
            Quantity("gpu0", "power", power, "W"),
        )  # fmt: skip

    result = TestcaseResult(
        "t",
        Status.PASSED,
        state_before=(*state((), 1, 80), Quantity("gpu0", "ECC", "on")),
        readings=(Reading(1.0, state(("heat",), 5, 700)),),
        state_after=state((), 5, 90),
    )
    assert hardware_changes(result, parse("hgx-h200-2")) == ("gpu0 throttle reasons: none → heat → none",)
