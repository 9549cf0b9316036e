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
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.hardware_changes import hardware_changes
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.results.baseline import make
from wirespeed.tables import GENERATION, THROTTLED, Quantity, Reading, State
from wirespeed.thresholds.values import JUDGED_BYTES, JUDGED_COPY_BYTES

DOCUMENT = wirespeed.run(["4"], machine="simulated:hgx-h200-2")


def with_values(document: Document, factor: float) -> Document:
    """The Document with cells of this part of their limit, of no samples that might be low by chance."""
    (result,) = document.testcases
    (table,) = result.tables
    cells = tuple(
        replace(cell, value=(cell.limit or 1.0) * factor, samples=(), statistics=None) for cell in table.cells
    )
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
    check = judge(document, Criteria(baseline=make([document])))
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
    assert check.verdict is Verdict.NOT_JUDGED
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


def test_the_range_of_small_buffers_has_the_start_of_a_copy() -> None:
    """It is wider, the smaller they are; where it would say nothing of the links, nothing is judged."""
    cases = {"device_to_device_memcpy_read_ce": JUDGED_COPY_BYTES, "device_local_copy": JUDGED_BYTES}
    for case, full in cases.items():
        least = [1.0]
        for size in (full, full // 2, full // 4, full // 2**12):
            (cell, *_) = next(iter(
                table.cells for result in wirespeed.run(
                    [case], machine="simulated:hgx-h200-2", size=size).testcases for table in result.tables
            ))  # fmt: skip
            if cell.expected and cell.limit:
                least.append(cell.expected[0] / cell.limit)
        assert len(least) == 4 and least == sorted(least, reverse=True)


#: GB/s of two H200s by buffer size, recorded on 2026-11-21, the second GPU.
RECORDED = {
    "device_to_device_memcpy_write_ce": {4: 1.73, 16: 6.56, 64: 26.17, 256: 87.55, 1024: 213.02, 4096: 322.94,
                                         16384: 367.47, 65536: 389.08, 262144: 394.58},
    "device_to_device_memcpy_read_sm": {4: 4.31, 16: 17.12, 64: 67.88, 256: 267.7, 1024: 357.28, 4096: 363.2,
                                        16384: 367.75, 65536: 373.01, 262144: 375.22},
    "device_to_device_memcpy_write_sm": {4: 19.12, 16: 44.32, 64: 174.84, 256: 283.43, 1024: 342.22,
                                         4096: 367.02, 16384: 366.78, 65536: 370.96, 262144: 371.29},
    "device_local_copy": {4: 0.94, 16: 3.84, 64: 15.33, 256: 60.42, 1024: 239.52, 4096: 976.75,
                          16384: 2398.77, 65536: 1915.04, 262144: 2081.99},
}  # fmt: skip


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_curves_of_good_gpus_do_not_fail(case: str) -> None:
    for kib, rate in RECORDED[case].items():
        (result,) = wirespeed.run([case], machine="simulated:hgx-h200-2", size=kib * 1024).testcases
        table = result.tables[0]
        cells = tuple(replace(cell, value=rate * 1e9 if cell.value else None) for cell in table.cells)
        changed = replace(result, tables=(replace(table, cells=cells),))
        check = judge(replace(DOCUMENT, testcases=(changed,)))
        assert check.verdict in (Verdict.PASS, Verdict.NOT_JUDGED)
        assert (check.verdict is Verdict.PASS) == (kib * 1024 >= (50e6 if "local" in case else 3.4e6))
        slow = tuple(replace(cell, value=rate * 0.4e9 if cell.value else None) for cell in table.cells)
        changed = replace(result, tables=(replace(table, cells=slow),))
        assert judge(replace(DOCUMENT, testcases=(changed,))).verdict is not Verdict.PASS


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
    assert tuple(hardware_changes(result, parse("hgx-h200-2"))) == (
        "gpu0 throttle reasons: none → heat → none",
    )
