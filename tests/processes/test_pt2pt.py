"""Messages and shared buffers between two real processes on host memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import wirespeed
from tests.processes.conftest import OPEN_MPI, WIRESPEED, Job
from wirespeed.document import UNFINISHED, Status

Start = Callable[..., Job]


def command(launcher: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*launcher, *WIRESPEED, *arguments], capture_output=True, text=True, timeout=120,
        env={**os.environ, **OPEN_MPI},
    )  # fmt: skip


def test_messages_over_mpi_and_a_rank_that_looks_on(mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    what = ("-t", "message_mpi_host", "--sizes", "1B,4KiB,1MiB", "--samples", "6")
    done = command([*mpirun, "3"], "run", *what, "-o", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    document = wirespeed.load(path)
    (result,) = document.testcases
    assert result.name == "message_mpi_host" and result.status is Status.PASSED
    latency, bandwidth, rate = result.tables
    assert latency.columns.values == (1.0, 4096.0, 2.0**20) and len(latency.cells) == 9
    grid = {(c.row, c.column): c for c in bandwidth.cells}
    one_way, frequency = grid[0, 2].value, rate.cells[2].value
    assert one_way and frequency and abs(one_way / frequency / 2**20 - 1) < 1e-6
    assert all(cell.value and cell.statistics for table in result.tables for cell in table.cells)
    assert "Open MPI" in document.libraries["mpi"] and document.machine.ranks[2].index == 2


def test_the_reproducers_form(mpirun: list[str]) -> None:
    """Its name and its arguments, as its instructions write them; host memory is this test's."""
    numbers = ["2", "3", "1024", "4194304", "1"]
    done = command([*mpirun, "2"], "gpudirect_p2p_overalloc", *numbers, "--memory", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["p2p_size: 1024", "buffer_size: 4194304", "overalloc_size: 1"]
    number = r"\d[\d.e+-]*"
    assert re.fullmatch(rf"\[-1\] time: {number}", lines[3])
    for first, size, what in ((4, 4194305, "with"), (11, 4194304, "without")):
        assert lines[first] == (
            f"Doing MPI_Send/Recv from rank 0 to rank 1, of 1024 bytes from a buffer of {size} bytes "
            f"({what} overalloc)."
        )
        places = [(i, j) for i in range(2) for j in range(3)]
        for line, (i, j) in zip(lines[first + 1 : first + 7], places, strict=True):
            assert re.fullmatch(rf"\[{i}:{j}\] time: {number}", line)
    assert len(lines) == 18


def test_a_sweep_starts_its_second_process_itself(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    done = subprocess.run(
        [*WIRESPEED, "overalloc", "--sweep", "--memory", "host", "--buffer", "4MiB", "--copy", "64KiB",
         "--over", "0,1,2097153", "--repeats", "2", "-o", str(path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    shared, sent = wirespeed.load(path).testcases
    (table,) = shared.tables
    assert table.rows.labels == ("0 B", "1 B", "2 MiB + 1 B")
    assert table.columns.labels == (
        "allocate", "export", "open", "first copy", "next copies", "close", "free",
    )  # fmt: skip
    assert len(table.cells) == 21 and all(len(cell.samples) == 2 for cell in table.cells)
    assert sent.status is Status.WAIVED and "not started by MPI" in sent.reason


def test_messages_and_sharing_as_testcases_of_a_run(mpirun: list[str], tmp_path: Path) -> None:
    """Under mpirun all of host memory is measured; started here, all but MPI."""
    chosen = ["-p", "message", "-t", "sharing_shm_host", "sharing_mpi_host"]
    options = ["--sizes", "64KiB,256KiB", "--samples", "2", "--copies", "3", "-o"]
    launched, started = tmp_path / "mpi.json", tmp_path / "here.json"
    done = command([*mpirun, "2"], "run", *chosen, *options, str(launched))
    assert done.returncode == 0, done.stdout + done.stderr
    done = command([], "run", "--processes", "2", *chosen, *options, str(started))
    assert done.returncode == 0, done.stdout + done.stderr
    passed, waived = Status.PASSED, Status.WAIVED
    for path, statuses in (
        (launched, [passed, passed, passed, waived, waived]),
        (started, [passed, waived, waived, waived, waived]),
    ):
        document = wirespeed.load(path)
        assert [r.status for r in document.testcases] == statuses
        assert all("GPU" in r.reason or "not started by MPI" in r.reason
                   for r in document.testcases if r.status is waived)  # fmt: skip
        for table in (t for r in document.testcases for t in r.tables):  # the names first, then prefixes
            assert table.columns.values == (65536.0, 262144.0)
    latency = wirespeed.load(launched).testcases[2].tables[0]
    assert [len(cell.samples) for cell in latency.cells] == [2, 2, 1, 1, 2, 2]


def test_ranks_that_want_different_things_do_not_start(mpirun: list[str]) -> None:
    ranks = [["-np", "1", *WIRESPEED, "overalloc", "2", "2", "1KiB", size, "1"] for size in ("1MiB", "2MiB")]
    done = subprocess.run(
        [*mpirun[:-1], *ranks[0], ":", *ranks[1]], capture_output=True, text=True, timeout=120,
        env={**os.environ, **OPEN_MPI},
    )  # fmt: skip
    assert done.returncode != 0 and "the ranks have different options: buffer_size is 2097152" in done.stderr


def test_a_rank_that_is_killed_is_named_and_the_rest_is_kept(
    start: Start, mpirun: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "k.json"
    job = start(
        [*mpirun, "2", "sh", "-c",
         'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo pid $$ >&2; fi; exec "$@"', "sh", *WIRESPEED,
         "overalloc", "--sweep", "--means", "mpi", "--memory", "host", "--buffer", "1MiB", "--copy", "4KiB",
         "--repeats", "100000", "-o", str(path)],
        **OPEN_MPI,
    )  # fmt: skip
    job.until(lambda line: line.startswith("pid "))
    end = time.monotonic() + 120
    while not path.exists() or not wirespeed.load(path).testcases[0].tables:  # saved while it measures
        assert time.monotonic() < end and job.process.poll() is None, job.text
        time.sleep(0.02)
    draft = wirespeed.load(path)
    assert draft.interrupted == UNFINISHED and draft.testcases[0].tables[0].cells
    pid = re.search(r"^pid (\d+)", job.text, re.M)
    assert pid
    os.kill(int(pid[1]), signal.SIGKILL)
    assert job.end() != 0
    document = wirespeed.load(path)
    (result,) = document.testcases
    assert "rank 1" in document.interrupted and result.status is not Status.PASSED
    assert result.tables[0].cells
