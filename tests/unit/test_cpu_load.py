"""Whether other processes use the CPUs of a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.host.load import CpuLoad
from wirespeed.backends.system_files import Tree
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Machine


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
    for others, own, busy in ((0.2, 1.0, ""), (1.5, 0.5, "in use by other processes (1.5 of 2 CPUs)")):
        cpus = Cpus(tmp_path, others, own)
        load = CpuLoad(
            [0, 1],
            Tree(tmp_path).root,
            own=lambda c=cpus: c.own * c.time,
            now=lambda c=cpus: c.time,
            sleep=cpus.sleep,
        )
        assert load.busy() == busy and cpus.time == pytest.approx(100.2)  # the first look waits
        cpus.others = 0.0  # the next one, which comes too soon, does not know it yet
        assert load.busy() == busy
    (tmp_path / "proc/stat").unlink()
    assert CpuLoad([0], Tree(tmp_path).root).busy() == ""


def test_a_cpu_whose_measuring_thread_waits_is_busy(tmp_path: Path) -> None:
    """On many CPUs, a process that takes one of them is little, but all threads wait for the one there."""
    cpus = Cpus(tmp_path, 0.1)
    threads = [(0, 10), (1, 11), (1, 12)]

    def scheduled(*times: tuple[float, float]) -> None:
        for (_, thread), (ran, waited) in zip(threads, times, strict=True):
            file = tmp_path / f"proc/self/task/{thread}/schedstat"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{ran * 1e9:.0f} {waited * 1e9:.0f} 7\n")

    load = CpuLoad([0, 1], Tree(tmp_path).root, lambda: threads, lambda: 0.0, lambda: cpus.time, cpus.sleep)
    wait = "in use by other processes ({} measuring threads waited for a CPU on average)"
    for first, second, third, busy in (
        ((1, 1), (1, 0.3), (0, 0), wait.format("0.8")),  # since they began
        ((2, 1.2), (2, 0.5), (0, 0), ""),
        ((3, 1.9), (3, 1.2), (0, 0), wait.format("0.8")),  # each waits for a part of it
        ((3, 1.9), (4, 3.2), (1, 1), ""),  # two threads of this process on one CPU wait for each other
        ((3.01, 1.94), (4, 3.2), (1, 1), ""),  # too short to tell
    ):
        scheduled(first, second, third)
        assert load.busy() == busy
    (tmp_path / "proc/self/task/10/schedstat").write_text("0 x")
    (tmp_path / "proc/self/task/11/schedstat").unlink()
    assert load.busy() == ""


@pytest.mark.parametrize(
    ("group", "file", "throttled"),
    [
        ("0::/job", "job/cpu.stat", "throttled_usec 3000000"),
        ("7:cpu,cpuacct:/job", "cpu/job/cpu.stat", "throttled_time 3000000000"),
    ],
)
def test_a_thread_whose_cpu_time_is_used_up_waits_for_no_other_process(
    group: str, file: str, throttled: str, tmp_path: Path
) -> None:
    """The scheduler counts both as waiting."""
    cpus = Cpus(tmp_path, 0.1)
    stat, scheduled = tmp_path / "sys/fs/cgroup" / file, tmp_path / "proc/self/task/10/schedstat"
    for path, text in ((stat, "nr_throttled 0"), (scheduled, "1000000000 3000000000 7")):
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")
    (tmp_path / "proc/self/cgroup").write_text(f"{group}\n")

    def load() -> CpuLoad:
        return CpuLoad(
            [0, 1], Tree(tmp_path).root, lambda: [(0, 10)], lambda: 0.0, lambda: cpus.time, cpus.sleep
        )

    assert "0.8 measuring threads wait" in load().busy()
    limited = load()
    stat.write_text(f"nr_throttled 30\n{throttled}\n")
    assert limited.busy() == ""


def test_the_host_backend_says_of_its_nodes_that_they_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("", numa=(NumaNode(0, (0, 1)), NumaNode(1)))
    backend = HostBackend(machine)
    monkeypatch.setattr(CpuLoad, "others", lambda self: 1.5)
    assert backend.busy() == {"numa0": "in use by other processes (1.5 of 2 CPUs)"}
    monkeypatch.setattr(CpuLoad, "others", lambda self: 0.1)
    assert backend.busy() == {}
    backend.close()


@pytest.mark.parametrize(
    ("column", "busy"),
    [("user", True), ("nice", True), ("system", True), ("irq", True), ("softirq", True),
     ("idle", False), ("iowait", False), ("steal", False), ("guest", False), ("guest_nice", False)],
)  # fmt: skip
def test_which_times_of_a_cpu_are_load(column: str, busy: bool, tmp_path: Path) -> None:
    """A host may be busy with interrupts alone; what another machine takes is not its own load."""
    columns = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    stat, now = tmp_path / "proc/stat", [100.0]
    stat.parent.mkdir()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        ticks = round(now[0] * os.sysconf("SC_CLK_TCK"))
        counts = " ".join(str(ticks if name == column else 7) for name in columns)
        stat.write_text(f"cpu  {counts}\ncpu0 {counts}\n")

    sleep(0.0)
    load = CpuLoad([0], Tree(tmp_path).root, own=lambda: 0.0, now=lambda: now[0], sleep=sleep)
    assert (load.busy() == "in use by other processes (1.0 of 1 CPUs)") is busy
