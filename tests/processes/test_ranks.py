"""Copies between real processes on host memory, under every launcher, and everything that goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import wirespeed
from tests.processes.conftest import OPEN_MPI, WIRESPEED, Job, free_port
from tests.warm import Host
from wirespeed.document import UNFINISHED, Document, Status
from wirespeed.tables import SKEW

Start = Callable[..., Job]
SMALL = ["--size", "256KiB", "--samples", "2", "--copies", "2", "--timeout", "15s"]
#: Each rank on a host of its own name, without a network of its own: MPI still reaches all.
TWO_HOSTS = 'exec unshare --uts sh -c "hostname node$((OMPI_COMM_WORLD_RANK % 2)); exec \\"\\$@\\"" sh "$@"'


def launch(
    start: Start, size: int, *arguments: str, address: str = "127.0.0.1",
    host: Callable[[int], Host | None] = lambda _: None,
) -> list[Job]:  # fmt: skip
    """Start ranks as a shell loop would; rank 0 first."""
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
    return [start([*WIRESPEED, *arguments], host(rank), **common, RANK=str(rank)) for rank in range(size)]


def means(document: Document, case: int = 0) -> dict[tuple[int, int], str]:
    return {(c.row, c.column): " ".join(c.means) for c in document.testcases[case].tables[0].cells}


def test_mpirun(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = start([*mpirun, "4", *WIRESPEED, "run", "-p", "multinode", *SMALL, "-o", str(path)], **OPEN_MPI)
    assert job.end() == 0, job.text
    document = wirespeed.load(path)
    assert [r.status for r in document.testcases] == [Status.PASSED] * 11
    # The unit is right; a loaded machine may suspend a process for longer than a copy takes.
    assert all(1e5 < v < 1e13 for r in document.testcases for t in r.tables for v in t.values())
    assert len(means(document)) == 12 and set(means(document).values()) == {"shm"}
    assert len(document.machine.ranks) == 4 and job.text.count("11 not judged · data verified") == 1


def test_nvbandwidth_with_ranks_in_the_environment(start: Start) -> None:
    jobs = launch(start, 2, "nvbandwidth", "-p", "multinode_device_to_device_memcpy", "-b", "1")
    assert [job.end() for job in jobs] == [1, 1], jobs[0].text  # under this name, host memory does not count
    assert jobs[1].text == ""  # rank 0 alone speaks
    assert jobs[0].text.startswith("ERROR: no GPU was found")


def test_nvbandwidths_text_of_host_memory(fork: Start, tmp_path: Path) -> None:
    jobs = launch(fork, 2, "run", "-p", "multinode_device_to_device_memcpy", *SMALL, "-o",
                  str(tmp_path / "d.json"), "--format", "nvbandwidth")  # fmt: skip
    assert [job.end() for job in jobs] == [0, 0], jobs[0].text
    assert jobs[0].text.count("memcpy CPU rank(row) -> rank(column) bandwidth (GB/s)") == 2
    assert "Process 1 (" in jobs[0].text and "SUM multinode_device_to_device_memcpy_read_ce" in jobs[0].text


def test_processes_without_a_launcher(fork: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = fork([*WIRESPEED, "run", "-t", "44", "--processes", "3", "--sample-peers", "1", *SMALL,
                 "-o", str(path)])  # fmt: skip
    assert job.end() == 0, job.text
    assert sorted(means(wirespeed.load(path))) == [(0, 1), (1, 2), (2, 0)]
    alone = fork([*WIRESPEED, "run", "-t", "44", "-o", str(path), "--force"])
    assert alone.end() == 4  # nothing could be measured
    assert "--processes N" in wirespeed.load(path).testcases[0].reason


def test_a_check_of_a_job_is_judged_and_saved_once(fork: Start, tmp_path: Path) -> None:
    case = "multinode_device_to_device_memcpy_read_ce"
    jobs = launch(fork, 2, "check", "-t", case, *SMALL, "-o", f"{tmp_path}/")
    assert [job.end() for job in jobs] == [4, 0], jobs[0].text + jobs[1].text  # no limit is known
    (path,) = tmp_path.iterdir()
    assert "NOT JUDGED" in jobs[0].text and f"saved to {path}" in jobs[0].text and not jobs[1].text
    assert len(wirespeed.load(path).machine.ranks) == 2


def test_messages_by_mpi(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = start(
        [*mpirun, "2", *WIRESPEED, "run", "-t", "44", "46", "56", "--share", "mpi", *SMALL, "-o", str(path)],
        **OPEN_MPI,
    )  # fmt: skip
    assert job.end() == 0, job.text
    document = wirespeed.load(path)
    assert [set(means(document, i).values()) for i in range(3)] == [{"mpi"}] * 3
    assert document.testcases[0].tables[0].title == "memcpy MPI rank(row) -> rank(column) bandwidth"
    # The unit is right; a loaded machine may suspend a process for longer than a copy takes.
    assert all(1e5 < v < 1e13 for r in document.testcases for t in r.tables for v in t.values())
    assert document.good


def test_hosts_that_share_no_memory_send_by_mpi(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "hostname"))):
        pytest.skip("host-name namespaces need root, unshare and hostname")
    if subprocess.run(["unshare", "--uts", "hostname", "x"], capture_output=True).returncode:
        pytest.skip("host-name namespaces cannot be made here")
    path = tmp_path / "d.json"
    job = start(
        [*mpirun, "4", "sh", "-c", TWO_HOSTS, "sh", *WIRESPEED, "run", "-t", "44", "56", *SMALL,
         "-o", str(path)],
        **OPEN_MPI,
    )  # fmt: skip
    assert job.end() == 0, job.text
    document = wirespeed.load(path)
    for (row, column), by in means(document).items():
        assert by == ("shm" if (row - column) % 2 == 0 else "mpi")
    assert {rank.host for rank in document.machine.ranks} == {"node0", "node1"}
    assert document.testcases[0].tables[0].title.startswith("memcpy CPU+MPI ")
    assert "shm: 0, 2" in job.text


def test_two_hosts(start: Start, hosts: Callable[[int], Host], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    jobs = launch(start, 4, "run", "-t", "44", "56", *SMALL, "-o", str(path), address="10.77.0.1",
                  host=hosts)  # fmt: skip
    assert [job.end() for job in jobs] == [0] * 4, jobs[0].text
    document = wirespeed.load(path)
    reached = {place for place, by in means(document).items() if by}
    assert reached == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert "memory cannot be shared with another host" in " ".join(jobs[0].text.split())
    state = {quantity.name: quantity.value for quantity in document.testcases[1].state_after}
    assert 0 < state[SKEW] < 60


def test_a_node_that_is_unreachable(fork: Start) -> None:
    began = time.monotonic()
    job = fork([*WIRESPEED, "run", "-t", "44", "--timeout", "1s"], RANK="1", WORLD_SIZE="2",
                MASTER_ADDR="192.0.2.1", MASTER_PORT="1")  # fmt: skip
    assert job.end() == 5 and time.monotonic() - began < 20
    assert "could not reach rank 0 within 1 s on port 1" in job.text and "Traceback" not in job.text


def endless(start: Start, command: list[str], path: Path, *more: str) -> Job:
    """A job that has measured the first of many testcases, and is not done before something ends it."""
    job = start(
        [*command, *WIRESPEED, "run", "-p", "multinode", "--size", "256KiB", "--precision", "0.0001%",
         "--time-budget", "0.1s", "-o", str(path), *more],
        **OPEN_MPI,
    )  # fmt: skip
    end = time.monotonic() + 120
    while not path.exists() or wirespeed.load(path).testcases[0].status is not Status.PASSED:
        assert time.monotonic() < end and job.process.poll() is None
        time.sleep(0.02)
    return job


def pid_of(rank: int, path: Path) -> int:
    """Return the process of a rank of the job that saves there; other jobs may run beside it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(path).encode() in command and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
            found.append(int(folder.name))
    return max(found)


def test_a_rank_that_dies(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = endless(start, [*mpirun, "3"], path)
    pid = pid_of(2, path)
    os.kill(pid, signal.SIGKILL)
    assert job.end() != 0
    document = wirespeed.load(path)
    # What was measured is kept, also if the rank died in a later round of the same testcase.
    assert any(cell.value for cell in document.testcases[0].tables[0].cells)
    # The launcher may end the others before they have noticed.
    if document.interrupted != UNFINISHED:
        assert f"rank 2 (process {pid} on" in document.interrupted
    assert "Traceback" not in job.text


def test_ctrl_c_keeps_what_was_measured(fork: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = endless(fork, [], path, "--processes", "2")
    os.kill(job.process.pid, signal.SIGINT)
    assert job.end() == 130 and "interrupted" in job.text and "Traceback" not in job.text
    document = wirespeed.load(path)
    assert document.testcases[0].status is Status.PASSED and document.interrupted == "Ctrl-C"


def test_a_stopped_rank_ends_with_the_killed_process_that_started_it(fork: Start, tmp_path: Path) -> None:
    job = endless(fork, [], tmp_path / "d.json", "--processes", "2")
    children = Path(f"/proc/{job.process.pid}/task").glob("*/children")
    (rank,) = (int(pid) for each in children for pid in each.read_text().split() if is_rank(pid))
    os.kill(rank, signal.SIGSTOP)
    while Path(f"/proc/{rank}/stat").read_text().rpartition(") ")[2][0] != "T":
        time.sleep(0.001)
    os.kill(job.process.pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while is_rank(str(rank)):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_rank(pid: str) -> bool:
    """Whether a process is a rank that another one started; an ended one has no environment."""
    try:
        return b"WIRESPEED_STARTED_BY=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_a_rank_that_hangs(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = endless(start, [*mpirun, "2"], path, "--timeout", "3s")
    pid = pid_of(1, path)
    os.kill(pid, signal.SIGSTOP)
    assert job.end() != 0
    document = wirespeed.load(path)
    late = rf"timed out after \d+ s while waiting for rank 1 \(process {pid} on"
    assert re.search(late, document.interrupted)
    assert document.testcases[-1].status is Status.TIMED_OUT
    assert document.testcases[0].status is Status.PASSED
    assert "Open MPI" in str(document.options["launcher"])


def test_a_wrong_command_is_told_once(start: Start, mpirun: list[str]) -> None:
    job = start([*mpirun, "2", *WIRESPEED, "run", "-t", "44", "--share", "telepathy"], **OPEN_MPI)
    assert job.end() == 2 and job.text.count("there is no transport 'telepathy'") == 1
