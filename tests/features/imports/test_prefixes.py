"""What launchers and log collectors put before each line is removed, whatever it is, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_failed import LOGS, P2P
from tests.features.imports.test_formats import imported
from tests.features.imports.test_more_tools import EVERY
from wirespeed.document import Document
from wirespeed.features.imports.prefixes import without_prefixes

_DAY = "Wed Nov 25 16:24"
#: Launcher or collector -> what it puts before line i. Forms of Open MPI 4 and 5, Slurm, Hydra, pdsh,
#: kubectl, Docker, journald, GitHub Actions, ``ts``, and of people who quote.
FORMS: dict[str, Callable[[int], str]] = {
    "ompi --tag-output": lambda i: "[1,0]<stdout>:",
    "ompi5 tag": lambda i: "[1,0]<stdout>: ",
    "ompi4 timestamp and tag": lambda i: f"{_DAY}:{i % 60:02} 2026[1,0]<stdout>:",
    "ompi5 tag,timestamp": lambda i: f"[{_DAY}:{i % 60:02} 2026][1,0]<stdout>: ",
    "ompi5 timestamp": lambda i: f"[{_DAY}:{i % 60:02} 2026]<stdout>: ",
    "ompi5 rank": lambda i: "[0]<stdout>: ",
    "ompi5 tag-detailed": lambda i: "[1,0][node-a:4711]<stdout>: ",
    "ompi5 tag-fullname": lambda i: "[prterun-node-a-4711@1,0]<stdout>: ",
    "srun -l": lambda i: "0: ",
    "srun -l of 16 tasks": lambda i: " 0: ",
    "srun -l of 100 tasks": lambda i: "  0: ",
    "hydra -l": lambda i: "[0] ",
    "pdsh": lambda i: "node-a: ",
    "kubectl --prefix": lambda i: "[pod/nccl-launcher-x7k2p/main] ",
    "kubectl --timestamps": lambda i: f"2026-11-25T16:24:{i % 60:02}.{f'{i * 1237:09}'.rstrip('0') or '0'}Z ",
    "docker compose": lambda i: "worker-1  | ",
    "go test, indented": lambda i: "        [1,0]<stdout>:",
    "journald": lambda i: f"Nov {i % 9 + 1:2} 16:24:{i % 60:02} node-a sh[4711]: ",
    "quotation": lambda i: "> ",
    "GitHub Actions": lambda i: f"gpu\tUNKNOWN STEP\t2026-11-25T16:24:{i % 60:02}.1234567Z ",
    "log of a program": lambda i: f"2026-11-25 16:24:{i % 60:02},{i % 1000:03} INFO [runner] ",
    "ts": lambda i: f"Nov 25 16:24:{i % 60:02} ",
    "epoch": lambda i: f"17641{i % 10**5:05}.{i % 10**6:06} ",
    "kernel": lambda i: f"[{i * 1.7:12.6f}] ",
    "several at once": lambda i: f"2026-11-25T16:24:{i % 60:02}Z [pod/a-0/main] 0: [1,0]<stdout>: ",
}  # fmt: skip


#: A log of every tool.
ALL_LOGS = LOGS | EVERY


def results(document: Document) -> object:
    doubts = [log.doubts for log in document.imported]
    return document.testcases, document.machine.gpus, document.facts, doubts


@pytest.mark.parametrize("tool", ALL_LOGS)
def test_prefixes_are_removed(tool: str, tmp_path: Path) -> None:
    lines = ALL_LOGS[tool].splitlines()
    plain = results(imported(tmp_path, ALL_LOGS[tool]))
    for form, prefix in FORMS.items():
        document = imported(tmp_path, "".join(f"{prefix(i)}{line}\n" for i, line in enumerate(lines)))
        assert results(document) == plain, form
        assert f"removed from {len(lines)} lines" in " ".join(document.warnings), form


@pytest.mark.parametrize("tool", LOGS)
def test_what_is_removed_is_said(tool: str, tmp_path: Path) -> None:
    lines = LOGS[tool].splitlines()
    document = imported(tmp_path, "".join(f"[0] {line}\n" for line in lines))
    assert f"prefix '[0]' removed from {len(lines)} lines" in " ".join(document.warnings)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_nothing_is_removed_without_a_prefix(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    for tool, log in ALL_LOGS.items():
        path.write_bytes(log.replace("\n", ending).encode())
        document = wirespeed.load_log(path)
        assert results(document) == results(imported(tmp_path, log)), tool
        assert not any("prefix" in warning for warning in document.warnings), tool


@pytest.mark.parametrize(
    ("having", "lacking", "removed"), [(0, 0, 0), (0, 2, 0), (1, 2, 0), (2, 2, 3), (2, 3, 0)]
)
def test_a_prefix_is_what_at_least_half_of_the_following_lines_share(
    having: int, lacking: int, removed: int
) -> None:
    lines = ["0: # head", *["0: row"] * having, *["row"] * lacking]
    (stream,) = without_prefixes(lines, [re.compile("# head")])
    assert sum(stream.removed.values()) == removed
    assert stream.lines == (["# head"] + ["row"] * (having + lacking) if removed else lines)


def test_a_label_within_a_row_that_was_flushed_in_parts(tmp_path: Path) -> None:
    text, rows = "", 0
    for line in LOGS["nccl-tests"].splitlines():
        head, column, tail = line.partition("     -1  ")
        rows += bool(column)
        text += f"[0] {head}     -1[0]   {tail}\n" if column else f"[0] {line}\n"
    assert rows > 3
    assert results(imported(tmp_path, text)) == results(imported(tmp_path, LOGS["nccl-tests"]))


def test_lines_of_other_ranks_and_of_the_launcher_keep_what_they_say(tmp_path: Path) -> None:
    lines = [f"0: {line}" for line in LOGS["STREAM"].splitlines()]
    lines[3:3] = ["1: node-b: bad news", "slurmstepd: error: *** STEP 1.0 ON node-a CANCELLED ***"]
    document = imported(tmp_path, "\n".join(lines) + "\n")
    assert document.testcases[0].reason.startswith("slurmstepd: error")
    assert any("'node-b: bad news'" in warning for warning in document.warnings)


def test_hosts_whose_lines_are_mixed_are_runs_of_their_own(tmp_path: Path) -> None:
    other = LOGS["STREAM"].replace("182000.5", "91000.5")
    pairs = zip(LOGS["STREAM"].splitlines(), other.splitlines(), strict=True)
    document = imported(tmp_path, "".join(f"node-a: {one}\nnode-b: {two}\n" for one, two in pairs))
    assert len(document.imported) == 2
    rates = {result.name: result.tables[0].values() for result in document.testcases}
    assert rates["host_stream_copy"] != rates["host_stream_copy_2"] or other == LOGS["STREAM"]
    assert document.imported[0].doubts == document.imported[1].doubts == ()


_ALONE = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   {pid} on {host} device  0 [0x07] NVIDIA A100-SXM4-80GB
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1     3.01    0.00    0.00      0     0.30    0.03    0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
"""  # noqa: E501


@pytest.mark.parametrize(("pid", "host"), [(4712, "node-a"), (4711, "node-b")])
def test_labelled_processes_that_are_all_rank_0_did_not_connect(pid: int, host: str, tmp_path: Path) -> None:
    """With a label before each line (srun -l), too."""
    one = [f"0: {line}\n" for line in _ALONE.format(pid=4711, host="node-a").splitlines()]
    two = [f"1: {line}\n" for line in _ALONE.format(pid=pid, host=host).splitlines()]
    mixed = (line for pair in zip(one, two, strict=True) for line in pair)
    document = imported(tmp_path, "".join(mixed))
    assert len(document.imported) == 2
    assert all("did not connect" in str(log.doubts) for log in document.imported)
    assert imported(tmp_path, "".join(one + one)).imported[0].doubts == ()


def test_a_quotation_with_a_sign_at_some_lines(tmp_path: Path) -> None:
    text = P2P.replace("Unidirectional", "> Unidirectional").replace(
        "P2P=Enabled Latency", "> P2P=Enabled Latency"
    )
    assert results(imported(tmp_path, text))[0] == results(imported(tmp_path, P2P))[0]  # type: ignore[index]


@pytest.mark.parametrize(
    "form", ["tag", "timestamp", "rank", "tag-detailed", "tag-fullname", "tag,timestamp", "rank,timestamp"]
)
def test_own_output_under_open_mpi(form: str, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(LOGS["nccl-tests"])
    script = f'test "$OMPI_COMM_WORLD_RANK" = 1 || cat {tmp_path}/own.txt'
    mpirun = Path(sysconfig.get_path("scripts")) / "mpirun"
    command = [
        mpirun,
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        "2",
        "--output",
        form,
        "sh",
        "-c",
        script,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stdout.startswith(LOGS["nccl-tests"][:9])
    assert results(imported(tmp_path, done.stdout)) == results(imported(tmp_path, LOGS["nccl-tests"]))
