"""Gates, loads, time-outs and threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from statistics import median

import pytest

import wirespeed
from wirespeed.backends.host import backend as backend_module
from wirespeed.backends.host import connect, kernels, threads
from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.host.threads import Workers
from wirespeed.backends.system_files import Tree
from wirespeed.errors import BackendError, BackendLost, MeasurementTimeout
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role
from wirespeed.options import RunOptions
from wirespeed.tables import Quantity

NO_CPU = 2**14  # a CPU that no machine has

needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a load beside what it disturbs needs two CPUs"
)


@needs_two_cpus
def test_pace_slows_a_load(backend, transfer, node):
    rates = {}
    for pace in (1.0, 0.1):
        probe = transfer(Operation.CHASE, 2**14, node.cpus[:1])
        load = transfer(Operation.READ, 2**16, node.cpus[1:2], Role.LOAD, pace)
        with backend.prepare(Measurement((probe, load), ()), RunOptions()) as prepared:
            # Long enough for many chunks of the load: a short sample catches one chunk, or a pause, only.
            samples = [prepared.sample(100) for _ in range(5)]
            prepared.verify()
        rates[pace] = [s.amounts[1] / s.seconds[1] for s in samples]
    # Where others use its CPU, a load without pauses is slowed, and one that mostly pauses is not.
    assert 0 < median(rates[0.1]) < 0.6 * max(rates[1.0])


@needs_two_cpus
def test_a_load_runs_as_long_as_what_it_disturbs(backend, transfer, node):
    probe = transfer(Operation.CHASE, 2**14, node.cpus[:1])
    load = transfer(Operation.TRIAD, 2**16, node.cpus[1:2], Role.LOAD)
    with backend.prepare(Measurement((probe, load), ()), RunOptions()) as prepared:
        sample = prepared.sample(20)
    assert sample.amounts[0] == 20 * 2**20
    assert sample.seconds[1] > 0.5 * sample.seconds[0]
    assert sample.wall < sample.seconds[0] + 0.5 * sample.seconds[1]


def test_a_load_can_chase(backend, transfer, node):
    load = transfer(Operation.CHASE, 2**12, node.cpus[-1:], Role.LOAD)
    with backend.prepare(Measurement((transfer(size=2**20), load), ()), RunOptions()) as prepared:
        for _ in range(3):
            prepared.sample(50)
            prepared.verify()


def test_more_threads_than_cpus(backend, measurement, node):
    with backend.prepare(measurement(Operation.COPY, 2**20, node.cpus * 3), RunOptions()) as prepared:
        assert prepared.sample(2).amounts == (2.0**21,)
        prepared.verify()


def test_transfers_share_a_cpu(backend, transfer, node):
    both = Measurement((transfer(Operation.ADD), transfer(Operation.WRITE)), ())
    with backend.prepare(both, RunOptions()) as prepared:
        sample = prepared.sample(3)
        prepared.verify()
    assert sample.wall >= max(sample.seconds)


def test_gate_gives_up_on_a_thread_that_never_comes(backend, measurement, node):
    with backend.prepare(measurement(cpus=node.cpus), RunOptions(timeout=1)) as prepared:
        prepared.sample(1)
        prepared.gate[kernels.EXPECTED] += 1
        begin = time.monotonic()
        with pytest.raises(
            MeasurementTimeout, match=r"1 s while waiting at the start barrier .*arrived"
        ) as caught:
            prepared.sample(1)
        assert "numa" in caught.value.stage
        assert time.monotonic() - begin < 30
        prepared.gate[kernels.EXPECTED] -= 1
        prepared.sample(1)
        prepared.verify()


def test_a_sample_that_takes_too_long_times_out(backend, measurement):
    with backend.prepare(measurement(size=2**20), RunOptions()) as prepared:
        prepared._options = RunOptions(timeout=0.1)  # of the sample; touching memory may take longer
        with pytest.raises(MeasurementTimeout, match="while running"):
            prepared.sample(10**8)


def test_cancel_ends_a_sample(backend, measurement, node):
    with backend.prepare(measurement(size=2**20, cpus=node.cpus), RunOptions()) as prepared:
        timer = threading.Timer(0.2, backend.cancel)
        timer.start()
        begin = time.monotonic()
        with pytest.raises(BackendError, match="cancelled"):
            prepared.sample(10**9)
        assert time.monotonic() - begin < 30
        timer.join()
        with pytest.raises(BackendError, match="cancelled"):
            prepared.sample(1)
    with backend.prepare(measurement(size=2**20), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()


def test_cancel_ends_what_waits_at_the_gate(backend, measurement):
    with backend.prepare(measurement(), RunOptions()) as prepared:
        prepared.gate[kernels.EXPECTED] += 1
        timer = threading.Timer(0.1, backend.cancel)
        timer.start()
        with pytest.raises(BackendError, match="cancelled"):
            prepared.sample(1)
        timer.join()


def test_ctrl_c_just_before_a_measurement_is_prepared_ends_it(machine):
    cancelled = threading.Event()

    class Late(HostBackend):
        def prepare(self, *arguments):
            cancelled.wait(10)
            return super().prepare(*arguments)

        def cancel(self):
            super().cancel()
            cancelled.set()

    class Interrupter:
        def __getattr__(self, name):
            return lambda *_: signal.raise_signal(signal.SIGINT) if name == "measuring" else None

    before, backend = set(threading.enumerate()), Late(machine)
    case = ["host_stream_copy"]
    with pytest.raises(wirespeed.RunInterrupted):
        wirespeed.run(case, size="1MiB", backends=[backend], listeners=[Interrupter()], time_budget=60)
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("measure"):  # it may have a few instructions left
            thread.join(10)
            assert not thread.is_alive()
    backend.close()


def test_nothing_runs_in_memory_that_was_given_back(machine, measurement):
    backend = HostBackend(machine)
    with backend.prepare(measurement(), RunOptions()) as prepared:
        prepared.sample(1)
        backend.close()
        with pytest.raises(BackendError, match="have ended"):
            prepared.sample(1)


def test_cancel_before_anything_runs_is_harmless(backend):
    backend.cancel()


def test_a_cpu_that_is_not_there_is_a_warning(backend, measurement):
    with backend.prepare(measurement(cpus=(NO_CPU,)), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()
    (warning,) = backend.drain_warnings()
    assert f"CPU {NO_CPU}" in warning
    with backend.prepare(measurement(cpus=(NO_CPU,)), RunOptions()):
        pass
    assert backend.drain_warnings() == (warning,)  # for every testcase, not only for the first


def test_without_affinity_nothing_is_pinned(backend, measurement):
    with backend.prepare(measurement(cpus=(NO_CPU,)), RunOptions(affinity=False)) as prepared:
        prepared.sample(1)
        prepared.verify()
    assert backend.drain_warnings() == ()


def test_threads_are_pinned_to_their_cpu(node):
    workers = Workers()
    tasks = [(cpu, lambda: os.sched_getaffinity(0)) for cpu in node.cpus]
    assert workers.start(tasks, pin=True, timeout=5, stage="looking").results() == [
        {cpu} for cpu in node.cpus
    ]
    assert workers.close()


def test_an_error_in_a_thread_is_raised_by_the_caller():
    def fail() -> None:
        raise ValueError("here")

    workers = Workers()
    with pytest.raises(ValueError, match="here"):
        workers.start([(0, fail)], pin=False, timeout=5, stage="failing").results()
    assert workers.start([(0, lambda: 1)], pin=False, timeout=5, stage="going on").results() == [1]
    workers.close()


def test_no_more_threads_is_an_error(monkeypatch):
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(BackendError, match="could not start a thread for CPU 0"):
        Workers().start([(0, int)], pin=False, timeout=1, stage="starting")


def test_threads_that_hang_end_the_run(backend, monkeypatch):
    monkeypatch.setattr(threads, "_STOP_GRACE_S", 0.05)
    released = threading.Event()
    workers = Workers()
    with pytest.raises(BackendLost, match="do not return from hanging"):
        workers.start([(0, released.wait)], pin=False, timeout=0.05, stage="hanging").results()
    released.set()
    workers.close()


def test_closing_leaves_memory_that_a_thread_may_still_use(backend, monkeypatch):
    monkeypatch.setattr(backend._workers, "close", lambda: False)
    monkeypatch.setattr(backend._pool, "close", lambda: pytest.fail("unmapped"))
    backend.close()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"operation": Operation.HAXPY}, "CPUs do not compute in half precision; use saxpy"),
        ({"operation": Operation.SIGNAL}, "between two GPUs"),
        ({"engine": Engine.SM}, "no engine sm"),
        ({"source": Memory("gpu0", MemoryKind.DEVICE)}, "device memory of gpu0 does not belong"),
        ({"destination": Memory("numa77", MemoryKind.PAGEABLE)}, "numa77 does not belong"),
        ({"source": Memory("numa0", MemoryKind.PINNED)}, "pinned memory"),
        ({"source": Memory("numa0", MemoryKind.PAGEABLE, 1)}, "between processes"),
        ({"executor": Executor("numa0", 1, (0,))}, "between processes"),
        ({"executor": Executor("numa0")}, "no CPUs"),
        ({"operation": Operation.CHASE, "executor": Executor("numa0", cpus=(0, 1))}, "one CPU"),
        ({"role": Role.LOAD}, "no transfer is measured"),
        ({"pace": 0.0}, "pace"),
        ({}, None),
    ],
)
def test_refuses_what_it_cannot_run(change, reason, backend, transfer):
    answer = backend.refuses(Measurement((replace(transfer(), **change),), ()))
    assert answer is None if reason is None else reason in answer


def test_state_and_libraries(backend, tmp_path, node):
    state = backend.state()
    assert {q.name: q.value > 0 for q in state if q.unit == "B"} == {"available memory": True}
    assert set(backend.libraries()) == {"numpy", "host kernels"}
    assert backend.state(Tree(tmp_path).root) == ()
    folder = tmp_path / f"sys/devices/system/cpu/cpu{node.cpus[0]}/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("2100000\n")
    (folder / "scaling_governor").write_text("powersave\n")
    cpu = node.cpus[0]
    assert backend.state(Tree(tmp_path).root) == (
        Quantity(f"cpu{cpu}", "frequency", 2.1e9, "Hz"),
        Quantity(f"cpu{cpu}", "governor", "powersave"),
    )


def test_only_a_real_machine_with_nodes_is_connected(machine):
    assert isinstance(connect(machine), backend_module.HostBackend)
    assert connect(Machine("")) is None
    assert connect(replace(machine, simulated=True)) is None


def test_a_load_that_is_the_measured_part_of_another_backend_keeps_its_pace(backend, transfer):
    times = []
    for pace in (1.0, 0.1):
        with backend.prepare(
            Measurement((transfer(Operation.READ, 2**20, pace=pace),), ()), RunOptions()
        ) as p:
            times.append(min(p.sample(4).wall for _ in range(3)))
    assert times[1] > 3 * times[0]
