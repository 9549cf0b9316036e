"""Collectives on real GPUs: every operation in every launch form, checked on the device."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import wirespeed
from wirespeed.collectives.operations import OPERATIONS

pytestmark = pytest.mark.gpu

FORMS = {
    "one thread": ("-g", "2", "--launch", "here"),
    "threads": ("-t", "2", "-g", "1"),
    "processes": ("-g", "2"),
    "graph": ("-g", "2", "-G", "2"),
}


@pytest.fixture(scope="module", autouse=True)
def two_gpus() -> None:
    if find_spec("nccl") is None:
        pytest.skip("nccl4py is not installed")
    from wirespeed.backends.nccl.provider import count_gpus

    if count_gpus() < 2:
        pytest.skip("it needs two GPUs")


def run(name: str, *options: str) -> str:
    command = [sys.executable, "-m", "wirespeed", f"{name}_perf", "-T", "60", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={"NCCL_NVLS_ENABLE": "0", **os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_in_every_form(name: str, form: str) -> None:
    text = run(name, *FORMS[form], "-b", "1K", "-e", "1M", "-f", "1024", "-n", "5")
    assert "# Out of bounds values : 0 OK" in text and "ranks: 2 processes: " in text
    assert len(re.findall(r"^ +\d+ +\d+ +float", text, re.MULTILINE)) == 2


#: Who drives the GPUs -> processes, and the options of N GPUs.
DRIVERS = {
    "one thread": (False, ("-t", "1", "-g", "{n}")),
    "threads": (False, ("-t", "{n}", "-g", "1")),
    "processes": (True, ("-g", "{n}")),
}


@pytest.mark.parametrize("events", [(), ("-I", "1")], ids=" ".join)
@pytest.mark.parametrize("blocking", [(), ("-z", "3")], ids=" ".join)
@pytest.mark.parametrize("stream", [(), ("-y", "1")], ids=" ".join)
@pytest.mark.parametrize("form", DRIVERS)
def test_every_operation_with_combined_options(
    form: str, stream: tuple[str, ...], blocking: tuple[str, ...], events: tuple[str, ...]
) -> None:
    from wirespeed.backends.nccl.provider import count_gpus

    gpus = 4 if count_gpus() >= 4 else 2
    by_process, ranks = DRIVERS[form]
    command = [
        sys.executable, "-m", "tests.gpu.every_operation", str(gpus if by_process else 1),
        *(option.format(n=gpus) for option in ranks),
        *stream, *blocking, *events, "-b", "1M", "-e", "4M", "-f", "2", "-n", "5", "-T", "60",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2],
        env={"NCCL_NVLS_ENABLE": "0", **os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count("# Out of bounds values : 0 OK") == len(OPERATIONS)
    assert len(re.findall(r"^ +\d+ +\d+ +float", done.stdout, re.MULTILINE)) == 3 * len(OPERATIONS)
    assert done.stdout.count(f"ranks: {gpus} ") == len(OPERATIONS)


@pytest.mark.parametrize(
    ("name", "options"), [("hypercube", ("-y", "1")), ("all_reduce", ("-y", "1", "-I", "1"))]
)
def test_default_streams_of_one_thread(name: str, options: tuple[str, ...]) -> None:
    text = run(name, "-t", "1", "-g", "2", *options, "-b", "1M", "-e", "4M", "-f", "2")
    assert "# Out of bounds values : 0 OK" in text


def test_all_types_and_operators() -> None:
    text = run("all_reduce", "-g", "2", "-d", "all", "-o", "all", "-b", "4K", "-e", "4K", "-n", "2")
    assert "# Out of bounds values : 0 OK" in text
    assert len(re.findall(r"^ +4096 ", text, re.MULTILINE)) >= 60


@pytest.mark.parametrize(
    "options",
    [("-R", "1"), ("-R", "2"), ("-u", "3"), ("-z", "1"), ("-z", "3", "-I", "1"), ("-m", "4"), ("-y", "1"),
     ("-C", "1"), ("-M", "1")],
    ids=" ".join,
)  # fmt: skip
def test_options(options: tuple[str, ...]) -> None:
    assert "# Out of bounds values : 0 OK" in run(
        "all_reduce", "-g", "2", "-b", "1K", "-e", "1M", "-f", "1024", *options
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["all_reduce", "alltoall"])
@pytest.mark.parametrize("implementation", ["1", "2"])
def test_kernels_of_the_device_api_in_every_form(implementation: str, name: str, form: str) -> None:
    text = run(
        name, "-D", implementation, "-R", "2", "-V", "24", *FORMS[form], "-b", "4", "-e", "64M", "-f", "64",
        "-n", "5",
    )  # fmt: skip
    assert "# Out of bounds values : 0 OK" in text
    assert f"device implementation {implementation} with 24 CTAs" in text
    assert len(re.findall(r"^ +\d+ +\d+ +float", text, re.MULTILINE)) == 5


@pytest.mark.parametrize("implementation", ["1", "2"])
def test_kernels_of_the_device_api_with_all_types(implementation: str) -> None:
    options = (
        "-D",
        implementation,
        "-R",
        "2",
        "-g",
        "2",
        "-d",
        "all",
        "-u",
        "3",
        "-b",
        "1M",
        "-e",
        "1M",
        "-n",
        "2",
    )
    text = run("all_reduce", *options)
    assert "# Out of bounds values : 0 OK" in text and "not of bfloat16" in text
    assert len(re.findall(r"^ +1048576 ", text, re.MULTILINE)) >= 9
    assert "# Out of bounds values : 0 OK" in run("alltoall", *options)


def test_json_and_document(tmp_path: Path) -> None:
    run(
        "all_reduce",
        "-g",
        "2",
        "-b",
        "64M",
        "-e",
        "64M",
        "-J",
        str(tmp_path / "a.json"),
        "--output",
        str(tmp_path / "b.json"),
    )
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["nccl_version"] > 20000 and len(found["config"]["devices"]) == 2
    document = wirespeed.load(tmp_path / "b.json")
    assert not document.simulated and document.good and document.libraries["nccl"]


def test_more_ranks_than_gpus_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", "all_reduce_perf", "-g", "64"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 5 and "Traceback" not in done.stderr and "GPUs" in done.stderr


def test_a_rank_that_is_killed_is_named() -> None:
    command = [
        sys.executable,
        "-m",
        "wirespeed",
        "all_reduce_perf",
        "-g",
        "2",
        "-b",
        "1M",
        "-e",
        "1M",
        "-N",
        "0",
    ]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert job.stdout
    seen = ""
    for line in job.stdout:
        seen += line
        if re.match(r" +1048576 ", line):
            break
    match = re.search(r"Rank +1 .*Pid +(\d+) ", seen)
    assert match
    os.kill(int(match[1]), signal.SIGKILL)
    rest, _ = job.communicate(timeout=30)
    assert job.returncode == 3 and f"rank 1 (process {match[1]} on" in rest
