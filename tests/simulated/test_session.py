"""What goes wrong in a run, and what is left of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import wirespeed
from wirespeed import backends as _backends
from wirespeed.backends.base import Backend, BackendDetails, Prepared
from wirespeed.backends.simulated import collectives, parse
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.backends.simulated.prepared import SimulatedMeasurement
from wirespeed.document import UNFINISHED, Document, Status, TestcaseResult
from wirespeed.driver import session
from wirespeed.driver.jobs import Observed, begun
from wirespeed.driver.listener import Listener
from wirespeed.driver.session import Session
from wirespeed.hardware.facts import Fact
from wirespeed.hardware.topology import LinkKind, Machine, Rank
from wirespeed.measurement import Measurement, Sample
from wirespeed.model import Transfer
from wirespeed.options import RunOptions
from wirespeed.tables import Quantity, State
from wirespeed.testcases.table import Testcase, select
from wirespeed.worlds.base import RankLost

TWO = "simulated:hgx-h200-2"


def only(document: Document) -> TestcaseResult:
    (result,) = document.testcases
    return result


def test_wrong_data_fails_the_cell_and_the_testcase_and_nothing_else() -> None:
    document = wirespeed.run(["4", "5"], machine=f"{TWO}+corrupt@gpu1->gpu0 by gpu0")
    read, write = document.testcases
    assert read.status is Status.FAILED
    assert "wrong data in gpu1->gpu0 by gpu0 (ce): 1 of 67108864 words differ" in read.reason
    bad, good = read.tables[0].cells
    assert bad.value is None and "byte offset" in bad.reason
    assert good.value is not None
    assert write.status is Status.PASSED
    assert not document.good


class Watched(SimulatedBackend):
    """A backend with slow counters, whose links are observed; each sample takes a while."""

    def __init__(self) -> None:
        super().__init__(parse("hgx-h200-2"))
        self.counts = 0
        self.observed: set[Transfer] = set()
        self.seen = threading.Event()

    def state(self) -> State:
        return (Quantity("gpu0", "temperature", 40.0, "°C"),)

    def counters(self) -> State:
        self.counts += 1
        return (Quantity("gpu0", "PCIe replays", float(self.counts), counter=True),)

    def observe(self, transfers: Sequence[Transfer]) -> None:
        self.observed |= set(transfers)
        self.seen.set()

    def describe(self) -> BackendDetails:
        return BackendDetails(facts=(Fact("observed", float(len(self.observed))),))

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        prepared = super().prepare(measurement, options)
        sample = prepared.sample

        def slow(copies: int) -> Sample:
            assert self.seen.wait(10)
            return sample(copies)

        prepared.sample = slow  # type: ignore[method-assign]
        return prepared


def test_counters_are_read_at_the_start_and_the_end_and_links_are_observed_between() -> None:
    backend = Watched()
    document = wirespeed.run(["0", "1", "2"], machine=TWO, backends=[backend], samples=1, copies=1)
    read = [
        [q.value for q in state if q.counter]
        for result in document.testcases for state in (result.state_before, result.state_after)
    ]  # fmt: skip
    assert read == [[1.0], [], [], [], [], [2.0]] and document.good
    assert {transfer.source.device for transfer in backend.observed} >= {"numa0"}
    assert document.facts[-1] == Fact("observed", float(len(backend.observed)))
    assert len([fact for fact in document.facts if fact.name == "observed"]) == 1


def _session(machine: Machine, backends: Sequence[Backend], *cases: str, **more: Any) -> Session:
    options = RunOptions(samples=1, copies=1, **more.pop("options", {}))
    chosen = select(cases)
    return Session(begun(machine, chosen, options), backends, chosen, options, **more)


def _job(gather: Callable[[Observed], Observed]) -> Document:
    return _session(_backends.describe(TWO), [Watched()], "0", "1", gather=gather).run()


def test_what_other_hosts_observed_is_part_of_the_run() -> None:
    def gather(here: Observed) -> Observed:
        assert [q.value for q in (*here.before, *here.after)] == [1.0, 2.0]
        assert [fact.name for fact in here.facts] == ["observed"]
        far = Quantity("mlx5_0", "errors of the port", 3.0, host="b", counter=True)
        return Observed((far,), (structs.replace(far, value=8.0),), (Fact("far", 1.0, host="b"),))

    document = _job(gather)
    assert [q.value for q in document.testcases[0].state_before if q.host] == [3.0]
    assert [q.value for q in document.testcases[-1].state_after if q.counter] == [2.0, 8.0]
    assert [fact.name for fact in document.facts] == ["observed", "far"]


def test_a_job_that_falls_apart_after_its_last_measurement_keeps_everything() -> None:
    def gather(_: Observed) -> Observed:
        raise RankLost("rank 1 has ended")

    document = _job(gather)
    assert document.warnings == (
        "the observations of the other hosts during the run are unknown: rank 1 has ended",
    )
    assert [result.status for result in document.testcases] == [Status.PASSED] * 2
    assert [q.value for q in document.testcases[-1].state_after if q.counter] == [2.0]


class Crowded(SimulatedBackend):
    """A backend whose first GPU another process uses."""

    def busy(self) -> dict[str, str]:
        return {"gpu0": "in use by python3 (PID 7)"}


@pytest.mark.parametrize("in_job", [False, True])
def test_other_processes_on_the_gpus_of_a_collective_are_seen(in_job: bool) -> None:
    """The backend of the collective does not see them. In a job, they may be the other ranks."""
    ranks = (Rank(0, "a", "gpu0"), Rank(1, "a", "gpu1")) if in_job else ()
    machine = replace(_backends.describe(TWO), ranks=ranks)
    measuring, watching = SimulatedBackend(machine), Crowded(machine)
    run = _session(machine, [measuring, watching], "all_reduce", options={"sizes": (1024,)}).run()
    (result,) = run.testcases
    measuring.close()
    assert result.tables and result.busy == ({} if in_job else watching.busy())


class Spanning(SimulatedBackend):
    """A backend of several processes, one of which has ended."""

    def interrupted(self) -> str:
        return "rank 1 ended unexpectedly"


def test_a_signal_after_the_loss_of_a_rank_is_no_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's signal can arrive while the testcase that failed is being concluded."""
    completed = session._completed
    monkeypatch.setattr(session, "_completed", lambda call: (completed(call)[0], True))
    machine = _backends.describe(TWO)
    document = _session(machine, [Spanning(machine)], "0", "1").run()
    assert document.interrupted == "rank 1 ended unexpectedly" and len(document.testcases) == 1


def test_a_signal_between_testcases_after_the_loss_of_a_rank_is_no_ctrl_c() -> None:
    class Signalled(Recorder):
        def testcase_started(self, case: Testcase, measurements: int) -> None:
            raise KeyboardInterrupt

    machine = _backends.describe(TWO)
    document = _session(machine, [Spanning(machine)], "0", "1", listeners=[Signalled()]).run()
    assert document.interrupted == "rank 1 ended unexpectedly" and not document.testcases


def test_wrong_data_is_not_looked_for_where_that_was_asked() -> None:
    assert wirespeed.run(["4"], machine=f"{TWO}+corrupt", verify=False).good


def test_an_error_of_the_hardware_leaves_the_other_cells() -> None:
    result = only(wirespeed.run(["4"], machine=f"{TWO}+error@gpu0->gpu1"))
    assert result.status is Status.ERROR
    assert [cell.value is None for cell in result.tables[0].cells] == [False, True]


def test_a_lost_device_ends_the_run_with_what_was_measured() -> None:
    document = wirespeed.run(["0", "4", "5"], machine=f"{TWO}+lost@gpu0->gpu1")
    assert [r.status for r in document.testcases] == [Status.PASSED, Status.ERROR]
    assert "simulated loss" in document.interrupted
    reasons = [cell.reason for cell in document.testcases[1].tables[0].cells]
    assert reasons[0] == "" and "simulated loss" in reasons[1]


def test_a_hang_times_out_by_name_and_the_run_goes_on() -> None:
    started = time.monotonic()
    document = wirespeed.run(["4", "5"], machine=f"{TWO}+hang@gpu1->gpu0 by gpu0", timeout=0.2)
    hung, after = document.testcases
    assert hung.status is Status.TIMED_OUT
    assert "timed out after 0.2 s while measuring gpu1->gpu0 by gpu0 (ce)" in hung.reason
    assert all(cell.value is None for cell in hung.tables[0].cells)
    assert "not measured" in hung.tables[0].cells[1].reason
    assert after.status is Status.PASSED
    assert not document.interrupted and not document.good
    assert time.monotonic() - started < 30


@pytest.mark.leaves("the thread of a call that never returns")
def test_what_never_comes_back_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CANCEL_GRACE_S", 0.2)
    document = wirespeed.run(["0", "4", "5"], machine=f"{TWO}+stuck@gpu0->gpu1", timeout=0.2)
    assert [r.status for r in document.testcases] == [Status.PASSED, Status.TIMED_OUT]
    assert "did not come back" in document.interrupted
    assert document.testcases[1].tables[0].values()  # the cell before it


def test_a_crash_of_ours_is_not_swallowed(tmp_path: Path) -> None:
    class Broken(Backend):
        name, sample_seconds = "broken", 1e-3

        def refuses(self, measurement: Measurement) -> None:
            return None

        def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
            raise ZeroDivisionError("a bug")

    path = tmp_path / "d.json"
    with pytest.raises(ZeroDivisionError):
        wirespeed.run(["0"], machine=TWO, backends=[Broken()], output=path)
    assert wirespeed.load(path).testcases == ()


def test_without_a_backend_everything_is_waived() -> None:
    result = only(wirespeed.run(["0"], machine=TWO, backends=[]))
    assert (result.status, result.reason) == (Status.WAIVED, "there is no backend for it")


class Recorder(Listener):
    """Notes every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        self.calls.append(f"run {len(testcases)}")

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self.calls.append(f"start {case.name} {measurements}")

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        self.calls.append(f"at {done} {stage}")

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        self.calls.append(f"end {result.name}")

    def run_ended(self, document: Document) -> None:
        self.calls.append("over")


class Counting(SimulatedBackend):
    """Its state says how often it was read; something uses ``gpu1`` from the second look on."""

    looks = reads = 0

    def state(self) -> State:
        self.reads += 1
        return (Quantity("", "reads", float(self.reads)),)

    def busy(self) -> dict[str, str]:
        self.looks += 1
        return {"gpu1": "in use by another"} if self.looks > 1 else {}


def test_the_state_is_read_after_every_testcase_however_short() -> None:
    document = wirespeed.run(["0", "4", "5"], machine=TWO, backends=[Counting(parse("hgx-h200-2"))])
    reads = [quantity.value for r in document.testcases for quantity in (*r.state_before, *r.state_after)]
    assert len(reads) == 6 and all(
        before < after for before, after in zip(reads[::2], reads[1::2], strict=True)
    )
    assert [r.busy for r in document.testcases] == [{"gpu1": "in use by another"}] * 3


class Disturbed(SimulatedBackend):
    """Pairs that run at the same time as others reach this part of what they reach alone."""

    factor = 0.5

    def prepare(self, measurement: Measurement, options: RunOptions) -> SimulatedMeasurement:
        prepared = super().prepare(measurement, options)
        if measurement.independent:
            prepared.seconds = [seconds / self.factor for seconds in prepared.seconds]
        return prepared


@pytest.mark.parametrize(("factor", "cells"), [(0.5, 56), (0.97, 0)])
def test_pairs_that_look_low_are_measured_again_alone(factor: float, cells: int) -> None:
    machine = parse("dgx-a100-8")
    backend = Disturbed(machine)
    backend.factor = factor
    result = only(wirespeed.run(["4"], machine=machine, tier="quick", backends=[backend]))
    alone = only(wirespeed.run(["4"], machine=machine))
    assert result.status is Status.PASSED
    assert result.tables[0].values() == pytest.approx(alone.tables[0].values(), rel=0.04)
    text = f"{cells} values were up to 50% slower when run concurrently; measured again one at a time"
    assert result.warnings == ((text,) if cells else ())


def test_pairs_share_nothing_only_where_the_links_are_known_to_say_so() -> None:
    for name, rounds in (("dgx-a100-8", 14), ("hgx-h200-2", 2)):
        recorder = Recorder()
        wirespeed.run(["4"], machine=f"simulated:{name}", tier="quick", listeners=[recorder])
        assert f"start device_to_device_memcpy_read_ce {rounds}" in recorder.calls
    machine = parse("dgx-a100-8")
    unknown = replace(machine, links=tuple(
        replace(x, capacity=None) if x.kind is LinkKind.NVLINK and "gpu0" in (x.source, x.destination) else x
        for x in machine.links
    ))  # fmt: skip
    recorder, backends = Recorder(), [SimulatedBackend(machine)]
    wirespeed.run(["4"], machine=unknown, backends=backends, tier="quick", listeners=[recorder])
    assert "start device_to_device_memcpy_read_ce 56" in recorder.calls  # gpu0 is in every round
    wirespeed.run(
        ["4"], machine=unknown, backends=backends, parallel_pairs=True, rounds=1, listeners=[recorder]
    )
    assert "start device_to_device_memcpy_read_ce 14" in recorder.calls  # asked for, it is done


def test_wrong_data_of_one_pair_costs_no_other_pair_its_value() -> None:
    result = only(wirespeed.run(["4"], machine="simulated:dgx-a100-8+corrupt@gpu3->gpu5", tier="quick"))
    assert result.status is Status.FAILED
    missing = [cell for cell in result.tables[0].cells if cell.value is None]
    assert [(cell.row, cell.column, cell.corrupted) for cell in missing] == [(5, 3, "gpu3->gpu5")]
    result = only(wirespeed.run(["4"], machine="simulated:dgx-a100-8+error@gpu3->gpu5", tier="quick"))
    assert result.status is Status.ERROR and len(result.tables[0].values()) == 55


def test_listeners_are_told_of_every_step() -> None:
    recorder = Recorder()
    wirespeed.run(["4", "44"], machine=f"{TWO}+hang@gpu0->gpu1", timeout=0.3, listeners=[recorder])
    name, waived = "device_to_device_memcpy_read_ce", "multinode_device_to_device_memcpy_read_ce"
    assert recorder.calls[:2] == ["run 2", f"start {name} 14"]
    assert recorder.calls[-3:] == [f"end {name}", f"end {waived}", "over"]
    assert any(call == "at 1 measuring gpu0->gpu1 by gpu1 (ce)" for call in recorder.calls)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "d.json"

    class Interrupter(Recorder):
        def measuring(self, case: Testcase, done: int, stage: str) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(wirespeed.RunInterrupted) as caught:
        wirespeed.run(["0", "4"], machine=f"{TWO}+hang@gpu0->gpu1", listeners=[Interrupter()], output=path)
    document = caught.value.document
    assert document.interrupted == "Ctrl-C"
    first, second = document.testcases
    assert first.status is Status.PASSED and second.status is Status.INTERRUPTED
    assert [cell.value is None for cell in second.tables[0].cells] == [True, False] or second.tables[
        0
    ].values()
    assert wirespeed.load(path) == document


def hanging(path: Path) -> subprocess.Popen[str]:
    """Start a run that has saved its first testcase, and hangs in its second."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", "run", "-t", "0", "4", "--machine", f"{TWO}+hang@gpu0->gpu1",
         "-o", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Saved also while a testcase measures: the first has ended, so that the second one hangs, or soon will.
    while not (path.exists() and wirespeed.load(path).testcases[0].status is Status.PASSED):
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    return process


def test_a_run_that_is_killed_leaves_a_document_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    process = hanging(path)
    process.kill()
    process.communicate()
    document = wirespeed.load(path)
    assert document.interrupted == UNFINISHED and not document.good
    assert document.testcases[0].status is Status.PASSED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_is_interrupted_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    process = hanging(path)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err and "interrupted" in err
    assert "host_to_device_memcpy_ce" in out
    assert wirespeed.load(path).interrupted == "Ctrl-C"


def test_no_thread_is_left_after_a_run() -> None:
    before = set(threading.enumerate())
    wirespeed.run(["0"], machine=TWO)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)  # it may have a few instructions left
        assert not thread.is_alive()


def test_the_state_is_read_while_a_long_testcase_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "READING_INTERVAL_S", 0.2)
    state = (Quantity("", "clock", 1e9, "Hz"),)
    monkeypatch.setattr(SimulatedBackend, "state", lambda self: state)
    result = only(wirespeed.run(["4"], machine=f"{TWO}+hang", timeout=1.0))
    assert 3 <= len(result.readings) <= 6
    assert [reading.seconds for reading in result.readings] == sorted(r.seconds for r in result.readings)
    assert result.readings[0].state == state


@pytest.mark.parametrize("moment", ["state", "describe"])
def test_a_signal_after_the_last_sample_loses_nothing(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher ends a rank's process just when it has found that another one is gone."""
    original, calls = session.Session._known if moment == "describe" else SimulatedBackend.state, 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == (1 if moment == "describe" else 2):  # the state before, the state after
            raise KeyboardInterrupt
        return original(*arguments)  # type: ignore[arg-type]

    owner, name = (session.Session, "_known") if moment == "describe" else (SimulatedBackend, "state")
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(wirespeed.RunInterrupted) as caught:
        wirespeed.run(["4", "5"], machine=TWO, rounds=1)
    result = only(caught.value.document)
    assert result.tables[0].values() and caught.value.document.interrupted == "Ctrl-C"


@pytest.mark.leaves("the thread of a call that never returns")
def test_ctrl_c_does_not_wait_for_a_library_that_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupter(Recorder):
        def measuring(self, case: Testcase, done: int, stage: str) -> None:
            signal.raise_signal(signal.SIGINT)

    waits: list[float] = []
    original = session.Worker.cancel

    def cancel(self: session.Worker, grace: float) -> bool:
        waits.append(grace)
        return original(self, min(grace, 0.1))

    monkeypatch.setattr(session.Worker, "cancel", cancel)
    machine = parse("dgx-a100-8+stuck")
    backend = collectives.connect(machine, 2)
    with pytest.raises(wirespeed.RunInterrupted):
        wirespeed.run(["all_reduce"], machine=machine, backends=[backend], listeners=[Interrupter()])
    assert waits == [session.MAY_HANG_GRACE_S]
