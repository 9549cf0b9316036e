"""Messages and shared buffers between the ranks of simulated machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.document import Status
from wirespeed.measurement import Measurement, Reduce
from wirespeed.model import BufferAge, Message, MessagePattern
from wirespeed.reports import formats
from wirespeed.testcases.table import PlanOptions, find, select

RANKS = "simulated:" + str(Path(__file__).parents[2] / "machines" / "four-ranks.json")


def run(*testcases: str, **options: Any) -> wirespeed.Document:
    return wirespeed.run(testcases, **{"machine": RANKS, **options})


@pytest.mark.parametrize("machine", [RANKS, "simulated:nvl72"])
def test_all_of_them_pass_in_every_form(machine: str) -> None:
    document = wirespeed.run(prefixes=["message", "sharing"], machine=machine)
    assert [r.status for r in document.testcases] == [Status.PASSED] * 10
    for format in formats():
        assert wirespeed.render(document, format)


def test_latency_and_rate_are_those_of_the_way() -> None:
    latency, bandwidth, rate = run("message_nccl_gpu", size="64MiB").testcases[0].tables
    reused, first, fresh = latency.values()
    # NVLink at 900 GB/s and 80 %, half of two hops of 250 ns, and what NCCL costs
    assert reused == pytest.approx(6e-6 + 250e-9 + 2**26 / 720e9, rel=0.01)
    assert reused < fresh < first
    one_way, both = bandwidth.values()
    assert one_way == pytest.approx(720e9, rel=0.01) and both == pytest.approx(2 * one_way, rel=0.01)
    assert rate.values()[0] == pytest.approx(one_way / 2**26)


def test_sizes_and_fixed_counts() -> None:
    document = run("message_mpi_host", "sharing_ipc_gpu", sizes="8:1KiB:x8", samples=4, copies=2)
    messages, shared = document.testcases
    latency = messages.tables[0]
    assert latency.columns.values == (8.0, 64.0, 512.0)
    assert {(c.row, len(c.samples), c.copies) for c in latency.cells} == {(0, 4, 2), (1, 1, 1), (2, 4, 1)}
    assert {len(c.samples) for c in shared.tables[0].cells} == {4}


def test_the_first_message_of_a_size_comes_first() -> None:
    plan = find("message_mpi_host").plan(wirespeed.machine(RANKS), PlanOptions(size=64))
    works = [work for m in plan.measurements for work in m.works]
    assert all(isinstance(work, Message) for work in works)
    assert [work.age for work in works if isinstance(work, Message)][:3] == [
        BufferAge.FIRST, BufferAge.REUSED, BufferAge.FRESH,
    ]  # fmt: skip


def test_what_goes_wrong() -> None:
    wrong = run("message_mpi_gpu", "sharing_ipc_gpu", machine=f"{RANKS}+corrupt@0/gpu0->3/gpu1", size=4096)
    for result in wrong.testcases:
        assert result.status is Status.FAILED and "words differ" in result.reason
    hang = run("message_mpi_gpu", machine=f"{RANKS}+hang@0/gpu0->3/gpu1", size=8, timeout=0.3)
    assert hang.testcases[0].status is Status.TIMED_OUT


def test_rows_that_are_slow_are_marked_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from wirespeed.backends.simulated.pairs import SimulatedPair

    sharing = SimulatedPair._sharing

    def slow(self: Any, work: Any) -> list[float]:
        factor = 2.0 if work.over == 1 else 1.0
        return [factor * s if i == 2 else s for i, s in enumerate(sharing(self, work))]

    monkeypatch.setattr(SimulatedPair, "_sharing", slow)
    document = run("sharing_vmm_fd_gpu")
    (result,) = document.testcases
    marked = [c for c in result.tables[0].cells if c.reason]
    assert [(c.row, c.column) for c in marked] == [(1, 2)] and "times the fastest" in marked[0].reason
    assert result.warnings == ("sharing_vmm_fd_gpu: open takes up to 1 ms in place of 500 µs with 1 B over",)
    text = wirespeed.render(document, "table")
    assert text.count("*") == 2 and "\n* at least 1.5 times the fastest time" in text and "n/a" not in text


def test_outside_of_a_job_they_are_waived_with_how_to_start() -> None:
    for case in select(prefixes=["message", "sharing"]):
        reason = case.plan(wirespeed.machine("simulated:dgx-a100-8")).reason
        assert "mpirun -np 2 wirespeed run" in reason and "wirespeed run --processes 2" in reason
    reason = find("message_mpi_host").plan(wirespeed.machine(RANKS), PlanOptions(size=2**31)).reason
    assert reason == "a message of 2147483648 bytes is too large for MPI; the maximum is 2147483647"


def test_half_of_a_round_is_a_factor() -> None:
    plan = find("message_mpi_gpu").plan(wirespeed.machine(RANKS), PlanOptions(size=64))
    latencies = [p for m in plan.measurements for p in m.places if p.table == "latency"]
    assert {(p.reduce, p.factor) for p in latencies} == {(Reduce.LATENCY, 0.5)}
    window = next(m.works[0] for m in plan.measurements if m.places[0].table == "bandwidth")
    assert isinstance(window, Message) and window.pattern is MessagePattern.WINDOW and window.count == 64
    assert isinstance(plan.measurements[0], Measurement)
