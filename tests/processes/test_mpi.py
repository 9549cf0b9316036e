"""Collectives over MPI between real processes: every operation, and everything that goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import wirespeed
from tests.processes.conftest import OPEN_MPI, WIRESPEED, Job
from tests.warm import Host
from wirespeed.document import UNFINISHED, Status

Start = Callable[..., Job]

#: All operations of a number of ranks in one start, checked against numpy by the program's own means
#: and, for the wiring of types, operators and roots, by their counts.
EVERYTHING = """
import sys
from wirespeed.cli.main import main
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.worlds import launchers
world = launchers.by_mpi(20.0)
close, world.close = world.close, lambda: None
launchers.join = lambda *_, **__: world
for name in OPERATIONS:
    reduces = name in ("all_reduce", "reduce_scatter", "reduce")
    rooted = name in ("broadcast", "reduce", "gather", "scatter")
    more = [*(("-o", "all") if reduces else ()), *(("-r", "all") if rooted else ())]
    # more ranks than cores take turns
    types, sizes = ("all", "1K 1K") if world.size < 3 else ("int64", "8 8K")
    begin, end = sizes.split()
    sizes = ["-b", begin, "-e", end, "-f", "1024"]
    code = main([f"{name}_perf", "--mpi", *sizes, "-n", "2", "-d", types, "-u", "1", *more])
    assert code == 0, name
close()
"""


TYPES = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "float", "double"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_operations_types_operators_and_roots(mpirun: list[str], ranks: int) -> None:
    done = subprocess.run(
        [*mpirun, str(ranks), sys.executable, "-c", EVERYTHING], capture_output=True, text=True, timeout=240,
        env={**os.environ, **OPEN_MPI},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s+\d+ ", line)]
    # hypercube has no operator, which is one column less
    assert {row[-5] for row in rows} == {"0"}
    assert {row[-1] for row in rows} == {"0", "N/A"}
    if ranks > 2:
        assert len(rows) > 60 and {row[2] for row in rows} == {"int64"}
    else:
        assert len(rows) > 150 and {row[2] for row in rows} == TYPES
        assert "waived: MPI has no type bfloat16" in done.stdout
    assert "waived: MPI has no operator avg" in done.stdout
    assert f"ranks: {ranks} processes: {ranks} hosts: 1 " in done.stdout


def endless(start: Start, mpirun: list[str], ranks: int, path: Path, *more: str) -> Job:
    """A job that measures until something ends it."""
    job = start(
        [*mpirun, str(ranks), *WIRESPEED, "all_reduce_perf", "--mpi", "-b", "1K", "-e", "4K", "-f", "2",
         "-N", "0", "-n", "2", "--output", str(path), *more],
        **OPEN_MPI,
    )  # fmt: skip
    job.rows(6)
    return job


def test_a_rank_that_is_killed_ends_the_others_and_is_named(
    start: Start, mpirun: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.json"
    job = endless(start, mpirun, 3, path)
    pid = job.pid(2)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    assert job.end() != 0
    assert time.monotonic() - began < 60
    document = wirespeed.load(path)
    assert len(document.testcases[0].tables[0].values()) == 6
    # The launcher may end the others before they have noticed; then what was measured is there all the same.
    if document.interrupted != UNFINISHED:
        assert f"rank 2 (process {pid} on" in document.interrupted
        assert document.testcases[0].status is Status.ERROR


def test_a_rank_that_hangs_is_named_after_the_time_out(
    start: Start, mpirun: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.json"
    job = endless(start, mpirun, 2, path, "-T", "3")  # a rank that waits takes a core
    pid = job.pid(1)
    os.kill(pid, signal.SIGSTOP)
    assert job.end() != 0
    document = wirespeed.load(path)
    assert document.testcases[0].status is Status.TIMED_OUT
    assert (
        "timed out after 3 s" in document.interrupted and f"rank 1 (process {pid} on" in document.interrupted
    )
    assert "# Time-out: 3 s" in job.text and len(document.testcases[0].tables[0].values()) == 6


def test_ctrl_c_under_mpirun_keeps_what_was_measured(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    job = endless(start, mpirun, 2, path)
    os.kill(job.process.pid, signal.SIGINT)
    assert job.end() != 0
    document = wirespeed.load(path)
    assert len(document.testcases[0].tables[0].values()) == 6
    assert "Traceback" not in job.text


def test_ranks_with_different_options(start: Start, mpirun: list[str]) -> None:
    command = [*WIRESPEED, "all_reduce_perf", "--mpi", "-b", "1K", "-e", "1K", "-n"]
    job = start([*mpirun, "1", *command, "5", ":", "-np", "1", *command, "6"], **OPEN_MPI)
    assert job.end() == 1
    assert (
        "the ranks have different options: iterations is 6 on rank 1" in job.text
        and "5 on rank 0" in job.text
    )
    assert "Traceback" not in job.text


def test_groups_that_differ_between_ranks(start: Start, mpirun: list[str]) -> None:
    command = [*WIRESPEED, "all_reduce_perf", "--mpi", "-b", "8", "-e", "8"]
    split = ["env", "NCCL_TESTS_SPLIT=MOD 2", *command]
    job = start([*mpirun, "1", *command, ":", "-np", "1", *split], **OPEN_MPI)
    assert job.end() != 0
    assert "the ranks have different options: NCCL_TESTS_SPLIT is 'MOD 2' on rank 1" in job.text


def test_which_process_is_late(start: Start, mpirun: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    job = start(
        [*mpirun, "2", *WIRESPEED, "all_reduce_perf", "--mpi", "-b", "1K", "-e", "1K", "-I", "1",
         "-n", "8", "-J", str(path)],
        **OPEN_MPI,
    )  # fmt: skip
    assert job.end() == 0, job.text
    (result,) = json.loads(path.read_text())["results"]
    times = result["out_of_place_per_iter"]
    assert len(times["per_process_max_times_us"]) == 2 and len(times["times_us"]) == 8
    assert times["times_us"] == [max(pair) for pair in zip(*times["per_process_max_times_us"], strict=True)]


#: Equal groups, then unequal ones with the roots that all have, and with one that some lack.
GROUPS = """
import os, sys
from wirespeed.cli.main import main
from wirespeed.worlds import launchers
world = launchers.by_mpi(20.0)
close, world.close = world.close, lambda: None
launchers.join = lambda *_, **__: world
for split, command in (
    ("DIV 2", ["all_gather_perf", "-b", "4K", "-e", "4K"]),
    ("MOD 3", ["broadcast_perf", "-b", "64", "-e", "64", "-r", "all"]),
    ("MOD 3", ["broadcast_perf", "-b", "64", "-e", "64", "-r", "1"]),
):
    os.environ["NCCL_TESTS_SPLIT"] = split
    code = main([*command, "--mpi"])
    print(f"{split} of rank {world.rank}: {code}", flush=True)
close()
"""


def test_groups(start: Start, mpirun: list[str]) -> None:
    job = start([*mpirun, "4", sys.executable, "-c", GROUPS], **OPEN_MPI)
    assert job.end(240.0) == 0, job.text
    codes = re.findall(r"^(\w+ \d) of rank (\d): (\d+)$", job.text, re.MULTILINE)
    expected = [("DIV 2", "0"), ("MOD 3", "0"), ("MOD 3", "2")]
    assert sorted(codes) == sorted((split, str(rank), code) for split, code in expected for rank in range(4))
    groups = re.findall(r"Rank +\d Group +(\d)", job.text)
    assert groups == ["0", "0", "1", "1", "0", "1", "2", "0"] and "ranks: 2 processes: 4 " in job.text
    assert "root 1 does not exist; the ranks are 0 to 0" in job.text


def test_a_promise_that_is_not_kept(start: Start) -> None:
    job = start(
        [*WIRESPEED, "all_reduce_perf", "--machine", "simulated:hgx-h200-2"], SLURM_STEP_NUM_TASKS="4"
    )
    assert job.end() == 2 and "without a launcher" in job.text


def test_two_hosts(start: Start, mpirun: list[str], hosts: Callable[[int], Host], tmp_path: Path) -> None:
    """The launcher reaches the other host by what stands in place of ssh, and MPI goes by TCP."""
    there = " ".join(hosts(1).inside[:4])
    agent, machines = tmp_path / "agent", tmp_path / "hosts"
    agent.write_text(f'#!/bin/sh\nhost=$1; shift\nexec {there} unshare --uts sh -c "hostname $host; $*"\n')
    agent.chmod(0o755)
    machines.write_text("10.77.0.1 slots=2\n10.77.0.2 slots=2\n")
    path = tmp_path / "two.json"
    job = start(
        [*hosts(0).inside, mpirun[0], "-np", "4", "--hostfile", str(machines),
         "--map-by", "ppr:2:node:oversubscribe", "--prtemca", "plm_ssh_agent", str(agent),
         "--prtemca", "plm_ssh_no_tree_spawn", "1",
         "--prtemca", "prte_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
         *WIRESPEED, "all_reduce_perf", "--mpi", "-b", "1K", "-e", "64K", "-f", "8", "-n", "5",
         "--output", str(path)],
        **OPEN_MPI,
    )  # fmt: skip
    assert job.end() == 0, job.text
    assert "ranks: 4 processes: 4 hosts: 2 " in job.text
    document = wirespeed.load(path)
    assert document.options["hosts"] == 2 and document.testcases[0].status is Status.PASSED
