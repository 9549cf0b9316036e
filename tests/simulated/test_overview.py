"""The overview of a run: verdict, sentence, key figures."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

import wirespeed
from wirespeed.judging.overview import Overview, PathKind, overview, path_kind
from wirespeed.testcases import TABLE


def found(machine: str, *testcases: str) -> Overview:
    document = wirespeed.run(testcases, machine=f"simulated:{machine}", tier="quick")
    return overview(document, wirespeed.judge(document))


@pytest.mark.parametrize(
    ("machine", "word", "sentence", "bad"),
    [
        ("dgx-a100-8", "PASS", "every path is as fast as expected", set()),
        ("dgx-a100-8+nvlinks=6@gpu3", "FAIL", "NVLinks are down (gpu3)", {"GPU ↔ GPU", "all-reduce"}),
        ("dgx-a100-8+speed@gpu3-pcie1=0.5", "FAIL", "PCIe link gpu3-pcie1 runs at", {"host ↔ GPU"}),
        ("hgx-h200-2+speed@gpu0-gpu1=3", "FAIL", "values above the limits", {"GPU ↔ GPU", "all-reduce"}),
        ("dgx-a100-8+corrupt@gpu3->gpu5", "FAIL", "gpu3->gpu5 delivers wrong data", set()),
        ("hgx-h200-2+busy@gpu1", "BUSY", "gpu1 is in use by", set()),
    ],
)
def test_the_first_lines_say_what_is_wrong_and_where(
    machine: str, word: str, sentence: str, bad: set[str]
) -> None:
    one = found(machine)
    assert one.word == word and sentence in one.sentence
    assert {figure.title for figure in one.figures if figure.worst} == bad
    for figure in one.figures:
        assert (figure.bad > 0) is (figure.worst is not None)
        assert figure.typical.value and figure.typical.limit


def test_without_a_range_nothing_is_judged() -> None:
    one = found("hgx-h200-2", "host_device_latency_sm")
    assert (one.word, one.figures, one.finding) == ("NOT JUDGED", (), None)


def test_every_testcase_is_on_a_path() -> None:
    kinds = {path_kind(case.name) for case in TABLE if case.engine != "nccl"}
    assert PathKind.OTHER not in kinds and path_kind("all_reduce", collective=True) == PathKind.COLLECTIVES


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_a_terminal_without_unicode_gets_ascii(language: str) -> None:
    command = [sys.executable, "-m", "wirespeed", "check", "--no-save"]
    command += ["--allow-simulated", "-t", "host_stream_triad"]
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_CTYPE")} | {
        "LANG": language,
        "NO_COLOR": "1",
    }
    subprocess.run(
        [*command, "--machine", "simulated:cpu-2-sockets"], stdout=theirs, env=environment, timeout=60
    )
    text = os.read(ours, 2**16).decode()
    os.close(ours)
    os.close(theirs)
    assert "PASS" in text and ("━" in text) is (language != "C") and ("====" in text) is (language == "C")
    assert language != "C" or text.isascii()
