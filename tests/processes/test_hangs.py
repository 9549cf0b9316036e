"""Ranks that are stopped, and jobs that are ended: all others end in time, and say why."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import wirespeed
from tests.processes.conftest import OPEN_MPI, WIRESPEED, Job, free_port
from tests.processes.test_environment import launch
from tests.threads import together, worlds
from tests.warm import Warm
from wirespeed.cli.measuring import lead
from wirespeed.document import Document
from wirespeed.worlds import base, launchers
from wirespeed.worlds.base import World

Start = Callable[..., Job]
#: Starts and ends MPI; a rank is stopped before one of both.
STOPPED = """
import os, signal, sys
from wirespeed.worlds import launchers, mpi
mpi.MPI_START_S = mpi.MPI_END_S = {limit}
stop = lambda: os.environ["OMPI_COMM_WORLD_RANK"] == "{rank}" and os.kill(os.getpid(), signal.SIGSTOP)
if "{stage}" == "start":
    stop()
else:
    mpi.MPI_START_S = 120.0
world = launchers.by_mpi(1.0 if "{stage}" == "start" else 120.0)
world.close()
stop()
mpi.finalize()
"""
#: Joins as a started process, and then does not end.
STUCK = """
import signal, time
from wirespeed.worlds.launchers import join
signal.signal(signal.SIGTERM, signal.SIG_IGN)
world = join(60.0)
time.sleep(600)
"""


@pytest.mark.parametrize(("stage", "rank"), [("start", 1), ("end", 1), ("end", 0)])
def test_a_rank_that_is_stopped_while_mpi_starts_or_ends(
    start: Start, mpirun: list[str], stage: str, rank: int
) -> None:
    script = STOPPED.format(limit=1.0, stage=stage, rank=rank)
    job = start([*mpirun, "2", sys.executable, "-c", script], **OPEN_MPI)
    assert job.end() != 0
    line = rf"wirespeed: error: MPI did not {stage} within 1 s \(rank {1 - rank}\): a rank is stopped"
    assert re.search(line, job.text), job.text


def test_mpi_is_finalised_at_the_end_of_a_command(start: Start, mpirun: list[str]) -> None:
    script = (
        "import sys; from wirespeed.cli import main; from mpi4py import MPI\n"
        "sys.argv = ['wirespeed', '--version']\n"
        "main.main = lambda arguments: 0\n"
        "import atexit; atexit.register(lambda: print('finalised:', MPI.Is_finalized(), flush=True))\n"
        "main.entry()"
    )
    job = start([*mpirun, "1", sys.executable, "-c", script], **OPEN_MPI)
    assert job.end() == 0 and "finalised: True" in job.text, job.text


def test_the_others_name_a_rank_0_that_hangs(fork: Start) -> None:
    jobs = launch(fork, 3, "all_reduce", "stop-first", TIMEOUT="2")
    assert [job.end() for job in jobs[1:]] == [4, 4]
    assert re.search(r"wirespeed: error: .*rank 0 \(process \d+ on \S+\) does not answer", jobs[1].text)
    assert "Traceback" not in jobs[1].text + jobs[2].text


def test_an_exchange_that_rank_0_does_not_answer_is_reported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(base, "REPORT_GRACE_S", 0.1)
    some = worlds(3, timeout=0.1)

    def one(world: World) -> int:
        def measure() -> Document:
            world.barrier("comparing options")
            raise AssertionError

        return lead(world, measure, lambda _: None)

    assert together(some[1:], one) == [5, 5]
    (line,) = capfd.readouterr().err.splitlines()  # one rank of the host speaks
    assert re.match(r"wirespeed: error: timed out after 0.1 s while waiting for rank 0 \(process", line)


def test_rank_0_that_is_interrupted_early_is_no_failure_of_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    some = worlds(2)

    def interrupted(world: World) -> int:
        def measure() -> Document:
            if world.rank == 0:
                raise KeyboardInterrupt
            world.barrier("comparing options")
            raise AssertionError

        return lead(world, measure, lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        interrupted(some[0])
    for channel in (*some[0].links.values(), *some[0].watches.values()):
        channel.close()
    assert interrupted(some[1]) == 5
    assert capfd.readouterr().err == ""


def test_processes_that_do_not_end_are_ended_with_rank_0(monkeypatch: pytest.MonkeyPatch, warm: Warm) -> None:
    children = []

    def stuck(command: list[str], **settings: object) -> object:
        children.append(warm.start([sys.executable, "-c", STUCK], **settings))
        return children[-1]

    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(launchers, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": stuck}))
    world = launchers.spawn(5, [], 120.0)
    monkeypatch.setattr(os, "_exit", ended)
    began = time.monotonic()
    with pytest.raises(SystemExit):
        world.leave(1)
    assert time.monotonic() - began < 15  # not 5 s for each
    assert [child.wait(60) for child in children] == [-signal.SIGKILL] * 4


def test_sigterm_ends_a_job_of_started_processes(fork: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = fork([*WIRESPEED, "run", "-t", "44", "--size", "256KiB", "--precision", "0.0001%", "--time-budget",
                 "1s", "--timeout", "200s", "--processes", "3", "-o", str(path)])  # fmt: skip
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end and job.process.poll() is None
        time.sleep(0.02)
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.end() == 130 and "rank 0" not in job.text, job.text
    assert wirespeed.load(path).interrupted == "Ctrl-C"


def test_started_processes_listen_nowhere(start: Start) -> None:
    script = (
        "import os, sys; from wirespeed.worlds import launchers\n"
        "launchers.listen = lambda *_: sys.exit('listens')\n"
        "import subprocess; make = subprocess.Popen\n"
        "command = 'from wirespeed.worlds.launchers import join; join(60.0).barrier(\"testing\")'\n"
        "launchers.subprocess.Popen = lambda _, **more: make([sys.executable, '-c', command], **more)\n"
        "world = launchers.spawn(3, [], 60.0); world.barrier('testing'); print(world.size); world.close()"
    )
    job = start([sys.executable, "-c", script])
    assert job.end() == 0 and job.text == "3\n", job.text


def test_ranks_with_another_secret_do_not_join(fork: Start) -> None:
    """Two jobs on one port, started at the same time."""
    port = free_port()
    jobs = launch(fork, 2, "all_reduce", port=port, TIMEOUT="20", WIRESPEED_JOB_SECRET="one")
    other = fork(
        [sys.executable, "-m", "tests.processes.job", "all_reduce"], RANK="1", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TIMEOUT="1", WIRESPEED_JOB_SECRET="another",
    )  # fmt: skip
    assert [job.end() for job in jobs] == [0, 0], jobs[0].text
    assert other.end() == 1 and re.search("does not know the secret|could not reach rank 0", other.text)
