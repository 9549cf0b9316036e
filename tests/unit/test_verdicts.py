"""Verdicts on single cells, and what they have in common."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import wirespeed
from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.host.load import CpuLoad
from wirespeed.backends.simulated import parse
from wirespeed.backends.tree import Tree
from wirespeed.data import efficiencies
from wirespeed.document import (
    GENERATION,
    THROTTLED,
    Document,
    Quantity,
    Reading,
    State,
    Status,
    TestcaseResult,
)
from wirespeed.judging.hardware_changes import hardware_changes
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.limits import JUDGED_BYTES, JUDGED_COPY_BYTES
from wirespeed.results.baseline import make
from wirespeed.topology import Machine, NumaNode

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


class Cpus:
    """Two CPUs in a ``/proc/stat``, and a clock; others use so many of them."""

    def __init__(self, root: Path, others: float, own: float = 0.0) -> None:
        self.time, self.others, self.own, self.stat = 100.0, others, own, root / "proc/stat"
        self.stat.parent.mkdir(exist_ok=True)
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        ticks = round((self.others + self.own) * self.time / 2 * os.sysconf("SC_CLK_TCK"))
        lines = [f"cpu{i} {ticks} 0 0 999 50 0 0 7 0 0" for i in range(2)]
        self.stat.write_text(
            "\n".join(["cpu  1 1 1 1 1 1 1 1 1 1", *lines, "cpu2 9 9 9 9 9 9 9 9 9 9", "intr 1"])
        )


def test_the_cpus_are_busy_where_others_use_them(tmp_path: Path) -> None:
    for others, own, busy in ((0.2, 1.0, ""), (1.5, 0.5, "in use: other processes take 1.5 of 2 CPUs")):
        cpus = Cpus(tmp_path, others, own)
        load = CpuLoad(
            [0, 1], Tree(tmp_path).root, lambda c=cpus: c.own * c.time, lambda c=cpus: c.time, cpus.sleep
        )
        assert load.busy() == busy and cpus.time == pytest.approx(100.2)  # the first look waits
        cpus.others = 0.0  # the next one, which comes too soon, does not know it yet
        assert load.busy() == busy
    (tmp_path / "proc/stat").unlink()
    assert CpuLoad([0], Tree(tmp_path).root).busy() == ""


def test_the_host_backend_says_of_its_nodes_that_they_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("", numa=(NumaNode(0, (0, 1)), NumaNode(1)))
    backend = HostBackend(machine)
    monkeypatch.setattr(CpuLoad, "others", lambda self: 1.5)
    assert backend.busy() == {"numa0": "in use: other processes take 1.5 of 2 CPUs"}
    monkeypatch.setattr(CpuLoad, "others", lambda self: 0.1)
    assert backend.busy() == {}
    backend.close()


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
