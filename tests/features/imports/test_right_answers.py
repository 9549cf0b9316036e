"""Posted logs with their right answers: what the reporter or a maintainer found, or what the numbers say."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from wirespeed.cli.main import main

LOGS = Path(__file__).parents[2] / "data/logs"


class Answer(NamedTuple):
    """What must and must not be said of a log, and the exit code of the check."""

    name: str
    options: tuple[str, ...]
    code: int
    said: tuple[str, ...]
    unsaid: tuple[str, ...] = ()


ANSWERS = (
    # The number of ranks: -g 8; NCCL's nranks 2; nothing names it.
    Answer("sendrecv-g8", (), 4, ("sendrecv 1 GiB 195 GB/s",), ("one rank", "ranks is unknown")),
    Answer("sendrecv-g8", ("--machine", "hgx-h100-8"), 3, ("58% of expected",), ("one rank",)),
    Answer("two-hosts-nranks2", (), 4, ("all_reduce, all_reduce_2", "hgx-h100-2"), ("one rank", "or reduce")),
    Answer("nranks-in-destroy-line", (), 4, ("all-reduce 25.9 GB/s",), ("one rank", "or reduce_scatter")),
    # The machine is the largest set of GPUs.
    Answer(
        "subset-of-gpus", (), 0,
        ("all-reduce 53.4 GB/s", "1 x NVIDIA RTX PRO 6000", "2 x NVIDIA GeForce RTX 5090"), ("28%",),
    ),
    Answer("p2p8-nccl4", (), 0, ("8 x NVIDIA GeForce RTX 4090", "58 values OK"), ("known: device",)),
    Answer("p2p8-nccl4", ("--machine", "rtx-4090-8"), 0, ("8 x NVIDIA RTX 4090", "58 values OK")),
    Answer("nvlink-of-one-gpu", (), 0, ("8 x NVIDIA A100-SXM4-80GB", "232 GB/s"), ("separately",)),
    Answer("advice-machine-all-gpus", (), 4, ("4 x NVIDIA GB200", "--machine gb200-128")),
    Answer("advice-machine-all-gpus", ("--machine", "gb200-128"), 0, ("683 GB/s", "PASS")),
    Answer("multinode-advice", (), 0, ("798 GB/s", "56 values OK"), ("what to do",)),
    Answer("multinode-advice", ("--machine", "gb200-8"), 0, ("798 GB/s", "56 values OK"), ("what to do",)),
    # A command binds the program to the memory of the other socket.
    Answer(
        "numactl-other-node", (), 3,
        ("2 values are worse than expected; only with numactl -m1 -N1", "_ce with numactl -m0 -N0 12.74"),
        ("reduced width", "no access to each other"),
    ),
    Answer(
        "far-memory-and-topology", (), 3, ("no cause is known",),
        ("no access to each other", "reduced width"),
    ),
    # GPUs are named above the tests of a post; with both directions at once, one waits for the other.
    Answer(
        "one-direction-waits", (), 3,
        ("8 x NVIDIA A100-SXM4-80GB", "54% slower than the other direction", "16 values OK"),
    ),
    # Each command has its size.
    Answer(
        "three-buffer-sizes", (), 0,
        ("host_to_device_memcpy_sm_3 reaches 16.5 GB/s at 20 GiB, host_to_device_memcpy_sm (512 MiB) 25.13",
         "kernels are slower with buffers of 10 GiB or more", "1 value OK, 2 not judged"),
        ("reduced width", "LnkSta", "worse than expected"),
    ),
    # A title without the line that names the testcase is enough if the table has one GPU, and a link may be
    # one lane of a riser.
    Answer(
        "one-table-of-one-gpu", (), 3,
        ("host_to_device_memcpy_ce host gpu0: 2.80 GB/s", "which PCIe 3 x4 explains"), ("✓",),
    ),
    Answer("riser-of-one-lane", (), 3, ("copies at most at 0.8 GB/s", "which PCIe 3 x1 explains")),
    # Fast copies that arrive wrong are no pass, whichever of the two samples says so.
    Answer(
        "simplep2p-wrong-data", (), 1,
        ("2 x NVIDIA GeForce RTX 4090", "Verification error @ element 1", "do not use peer access"),
        ("PASS", "run it again"),
    ),
    Answer(
        "simplep2p-passed", (), 4, ("2 x NVIDIA H100 PCIe", "1 value not comparable"), ("FAIL", "incomplete"),
    ),
    Answer("gpu-off-the-bus", (), 1, ("Xid (PCI:0000:01:00): 79", "dmesg"), ("as fast as", "run it again")),
    Answer(
        "jetson-without-nvml", (), 1, ("nvbandwidth does not support this GPU", "bandwidthTest"),
        ("run it again",),
    ),
    # Tables are read by the words of their heading.
    Answer(
        "last-row-short", (), 4, ("all-reduce 479 GB/s", "parts of 1 row"),
        ("66109 GB/s", "487 GB/s", "unknown line"),
    ),
    Answer("no-last-column", (), 4, ("all-reduce 8 GiB 468 GB/s",), ("parts of", "1 unknown", "incomplete")),
    Answer(
        "no-last-column", ("--machine", "hgx-h100-8", "--nics", "8x400G"), 0,
        ("98% of limit 478", "within what the NICs allow", "4 values OK"),
    ),
    Answer(
        "no-inplace-half", (), 4, ("8 x NVIDIA B200", "all-reduce 16 GiB 487 GB/s"),
        ("names no GPU", "before the first size", "parts of", "unknown line"),
    ),
    Answer(
        "error-glued-to-row", (), 1,
        ("8 x NVIDIA H200", "'an illegal memory access was encountered'", "dmesg"),
        ("common.cu:519",),
    ),
    Answer("topo-abbreviated", (), 3, ("the rows of the GPUs are shortened",), ("row of GPU", "one rank")),
    # What is above an assumed limit, is not part of a tool, or is not judged.
    Answer(
        "above-limit-power9", (), 3, ("2 values are faster than the assumed machine", "--machine NAME-N"),
        ("worse than expected", "from a low value", "✓"),
    ),
    Answer("lack-values", (), 0, ("PASS",), ("lack 6 values", "reset the GPU")),
    Answer("json-latency-only-pass", (), 3, ("no rate of host ↔ GPU was judged",)),
    Answer("quick-mode-not-judged", (), 3, ("no rate of GPU memory was judged", "335 GB/s")),
    Answer("nics-without-links", ("--nics", "8x400G"), 4, ("NOT JUDGED",), ("10%", "487.5")),
    Answer("dip-at-1gib", (), 3, ("1 GiB reaches 69% of the rate of 512 MiB",)),
    Answer(
        "old-error-column", (), 1, ("an error of 1e+00, more than allowed", "collectives failed all_gather"),
        ("1 wrong element", "GB/s 1957"),
    ),
    # More forms of posts: lines without marks; OSU of which the buffers are unknown, and with the topology;
    # IMB; and, with numbers of our own in the form of a post: ranks of a rack without names of GPUs, and GPUs
    # of several models.
    Answer("rack-of-unknown-gpus", (), 4, ("all-reduce 8 GiB 835 GB/s",), ("one rank", "ranks is unknown")),
    Answer("rack-of-unknown-gpus", ("--machine", "gb200-72"), 3, ("72 x NVIDIA GB200", "835 GB/s")),
    Answer("eight-processes-without-marks", (), 0, ("8 x NVIDIA A100-SXM4-40GB", "232 GB/s", "PASS")),
    Answer("osu-pairs-of-gpus", (), 4, ("OSU MPI-ROCM Bandwidth",), ("message_mpi_host",)),
    Answer("osu-gpus-and-topology", (), 4, ("message_mpi_gpu", "between processes 32 MiB 93.1 GB/s")),
    Answer("imb-pingpong", (), 4, ("message_mpi_host", "latency needs a baseline")),
    Answer(
        "four-gpus-of-three-models", (), 3,
        ("2 x NVIDIA GeForce RTX 4090", "1 x NVIDIA RTX A6000", "26.3 GB/s", "lacks its last"), ("FAIL",),
    ),
    # Readings.
    Answer("gdr-plugin-name", ("--nics", "2x400G"), 0, ("NET/NCCL RDMA Plugin v6", "NCCL on"), ("NCCL off",)),
    Answer("ring-lines", (), 4, ("NET/AWS Libfabric",), ("no readings",)),
)  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: " ".join((answer.name, *answer.options)))
def test_the_right_answer(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    run = str(tmp_path / "run.json")
    assert main(["import", str(LOGS / f"{answer.name}.txt"), "-o", run, *answer.options]) in (0, 1)
    capsys.readouterr()
    assert main(["check", "--from", run, "-v"]) == answer.code
    assert main(["doctor", run, "-v"]) == answer.code
    text = " ".join(capsys.readouterr().out.split())
    assert [part for part in answer.said if part not in text] == []
    assert [part for part in answer.unsaid if part in text] == []


def test_a_file_of_two_machines_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(LOGS / "refused/two-models.txt")]) == 2
    error = capsys.readouterr().err
    assert "is of two machines, 2 x Tesla K80 and 1 x Tesla T4; save the output of each" in error
