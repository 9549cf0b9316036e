"""Jobs launched with ranks in the environment, without MPI; and on several hosts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import wirespeed
from tests.processes.conftest import Job, free_port
from tests.warm import Host
from wirespeed.document import UNFINISHED, Status
from wirespeed.worlds.base import WorldError
from wirespeed.worlds.launchers import spawn

Start = Callable[..., Job]


def launch(
    start: Start, size: int, *arguments: str, address: str = "127.0.0.1",
    host: Callable[[int], Host | None] = lambda _: None, port: int = 0, **more: str,
) -> list[Job]:  # fmt: skip
    port = port or free_port()
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(port), **more}
    command = [sys.executable, "-m", "tests.processes.job", *arguments]
    return [start(command, host(rank), **common, RANK=str(rank)) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3])
def test_a_job_without_mpi(start: Start, size: int) -> None:
    jobs = launch(start, size, "all_reduce")
    assert [job.end() for job in jobs] == [0] * size, jobs[0].text
    rows = re.findall(r"^ +\d+ +\d+ +float.*$", jobs[0].text, re.MULTILINE)
    assert [row.split()[8] for row in rows] == ["0"] * 3 and [row.split()[12] for row in rows] == ["0"] * 3
    assert f"ranks: {size} processes: {size} hosts: 1 " in jobs[0].text
    assert "launched by: RANK and WORLD_SIZE in the environment" in jobs[0].text
    assert [job.text for job in jobs[1:]] == [""] * (size - 1)  # rank 0 alone speaks


def test_one_process_for_each_gpu_without_a_launcher(start: Start) -> None:
    job = start([sys.executable, "-m", "tests.processes.job", "reduce_scatter"])
    assert job.end() == 0, job.text
    assert "ranks: 3 processes: 3 hosts: 1 launched by: 3 processes started by" in job.text
    assert len(set(re.findall(r"Pid +(\d+) on", job.text))) == 3 and "nGpus 3 " in job.text


def test_a_process_that_was_started_and_fails(start: Start) -> None:
    job = start([sys.executable, "-m", "tests.processes.job", "reduce_scatter", "kill"])
    assert job.end() == 3
    assert re.search(r"error: rank 1 \(process \d+ on \S+\) ended unexpectedly", job.text), job.text


def test_a_process_that_does_not_come_up_ends_the_start() -> None:
    began = time.monotonic()
    with pytest.raises(WorldError, match=r"rank 1 \(process \d+\) ended with exit code 0 while starting"):
        spawn(2, ["--version"], 30.0)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("fault", "status", "code", "reason"),
    [
        ("kill", Status.ERROR, 3, r"rank 1 \(process \d+ on \S+\) ended unexpectedly"),
        ("stop", Status.TIMED_OUT, 4, r"timed out after 2 s .*rank 1 \(process \d+ on"),
        ("slow-fill", Status.TIMED_OUT, 4, r"timed out after 2 s .*rank 1 \(process \d+ on"),
        (
            "error",
            Status.ERROR,
            3,
            r"rank 1 \(process \d+ on \S+\) failed while .*the device fell off the bus",
        ),
    ],
)
def test_one_rank_fails(
    fork: Start, tmp_path: Path, fault: str, status: Status, code: int, reason: str
) -> None:
    path = tmp_path / "d.json"
    began = time.monotonic()
    jobs = launch(fork, 3, "all_reduce", fault, TIMEOUT="2", OUTPUT=str(path))
    codes = [job.end() for job in (jobs[0], jobs[2])]
    assert codes[0] == code and codes[1] in (3, 4) and time.monotonic() - began < 60, jobs[0].text
    assert f": Test {'NCCL failure' if code == 3 else 'timeout (2s)'} wirespeed:0" in jobs[0].text
    assert "# Avg bus" not in jobs[0].text and "# Out of bounds" not in jobs[0].text
    assert re.search(f"wirespeed: error: .*{reason}", jobs[0].text), jobs[0].text
    assert "Traceback" not in jobs[0].text + jobs[2].text and jobs[2].text == ""
    document = wirespeed.load(path)
    assert document.testcases[0].status is status and re.search(reason, document.interrupted)


def test_the_launcher_may_number_the_ranks_of_a_host(fork: Start) -> None:
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "tests.processes.job", "all_reduce"]
    jobs = [fork(command, **common, RANK=str(rank), LOCAL_RANK=str(1 - rank)) for rank in range(2)]
    assert [job.end() for job in jobs] == [0, 0], jobs[0].text
    assert re.findall(r"Rank +(\d) .* device +(\d)", jobs[0].text) == [("0", "1"), ("1", "0")]


def test_wrong_elements_of_one_rank_fail_the_run(fork: Start) -> None:
    jobs = launch(fork, 2, "all_gather", "corrupt")
    assert [job.end() for job in jobs] == [7, 0]
    assert "all_gather: failed: 1 wrong element in all_gather float at 1024 B out of place" in jobs[0].text


def test_a_rank_with_too_little_memory_waives_the_size_for_all(fork: Start) -> None:
    jobs = launch(fork, 2, "all_reduce", "memory")
    assert [job.end() for job in jobs] == [0, 0]
    assert re.search(
        r"# +16384 .* not measured: out of memory: rank 1 .*no room for 16384 bytes", jobs[0].text
    )
    assert len(re.findall(r"^ +\d+ +\d+ +float", jobs[0].text, re.MULTILINE)) == 2


def test_a_size_that_the_library_cannot_count_is_waived(fork: Start) -> None:
    jobs = launch(fork, 2, "all_reduce", "count")
    assert [job.end() for job in jobs] == [0, 0]
    assert re.search(r"# +16384 .* not measured: it cannot count so far", jobs[0].text)
    assert len(re.findall(r"^ +\d+ +\d+ +float", jobs[0].text, re.MULTILINE)) == 2


def test_a_killed_first_rank_leaves_a_document_that_says_so(fork: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    jobs = launch(fork, 2, "all_reduce", "kill-first", OUTPUT=str(path))
    assert [job.end() != 0 for job in jobs] == [True, True]
    document = wirespeed.load(path)
    assert document.interrupted == UNFINISHED and not document.good
    (result,) = document.testcases
    assert result.status is Status.INTERRUPTED and any(cell.value for cell in result.tables[0].cells)


@pytest.mark.parametrize("number", ["0", "-1", "65536"])
def test_a_port_that_is_none(fork: Start, number: str) -> None:
    job = fork(
        [sys.executable, "-m", "tests.processes.job", "all_reduce"], RANK="0", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=number,
    )  # fmt: skip
    assert job.end() == 2 and f"MASTER_PORT is {number}; the port must be" in job.text


def test_a_rank_that_never_comes(fork: Start) -> None:
    alone = fork(
        [sys.executable, "-m", "tests.processes.job", "all_reduce"], RANK="0", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TIMEOUT="1",
    )  # fmt: skip
    assert alone.end() == 1 and "1 of 2 ranks did not connect to rank 0" in alone.text


def test_two_hosts(start: Start, hosts: Callable[[int], Host]) -> None:
    jobs = launch(start, 4, "alltoall", address="10.77.0.1", host=hosts)
    assert [job.end() for job in jobs] == [0] * 4, jobs[0].text
    assert "ranks: 4 processes: 4 hosts: 2 " in jobs[0].text
    devices = re.findall(r"Rank +(\d) .* on +(\S+) device +(\d)", jobs[0].text)
    assert devices == [("0", "node0", "0"), ("1", "node1", "0"), ("2", "node0", "1"), ("3", "node1", "1")]
