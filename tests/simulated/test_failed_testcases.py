"""What ``nvbandwidth`` and ``sailbandwidth`` print of a testcase that failed: nothing like a result.

nvbandwidth prints a table after all its values were measured (``addTestcaseResults`` in ``output.cpp`` and
``json_output.cpp``), and ends when a call or the data check fails. The tests of NVIDIA/k8s-dra-driver-gpu
(``tests/bats``) take the line that ``SUCCESS`` finds as the sign of success; the plugin of NVIDIA/DCGM
(``NVBandwidthResult.cpp``) reads ``error`` of the whole and ``status`` of each testcase.
"""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest

from wirespeed.cli.main import main
from wirespeed.features.nvbandwidth.dialects import DIALECTS

RANKS = f"simulated:{Path(__file__).parents[1] / 'machines/four-ranks.json'}"
SUCCESS = re.compile(r"^.*SUM multinode_device_to_device_memcpy_read_ce [0-9]+\.[0-9]+.*$", re.M)
#: Lines that only results have.
RESULTS = re.compile(r"^(SUM|MIN|MAX|AVG|COEFFICIENT_OF_VARIATION|&&&& PERF) ", re.M)
READ, BOTH = "device_to_device_memcpy_read_ce", "device_to_device_bidirectional_memcpy_write_ce"
#: A machine with a fault on one path, and testcases that use the path; the last one does not.
CASES = {
    "gpus": ("simulated:hgx-h200-2+{}@gpu0->gpu1", (READ, BOTH, "host_to_device_memcpy_ce")),
    "ranks": (RANKS + "+{}@0/gpu0->1/gpu1", (f"multinode_{READ}", f"multinode_{BOTH}", READ)),
}
VERSIONS = [name for name, dialect in DIALECTS.items() if dialect.testcases not in ("0.4", "0.5", "0.6")]


def run(capsys: pytest.CaptureFixture[str], name: str, machine: str, *arguments: str, code: int = 1) -> str:
    """Run the program of a dialect; return its standard output."""
    program, _, version = name.rpartition("-")
    given = ["--compat", version, "--machine", machine, "-i", "2", *arguments]
    assert main([program or "nvbandwidth", *given]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "version"),
    [*(("gpus", version) for version in DIALECTS), *(("ranks", version) for version in VERSIONS)],
)
def test_no_result_of_a_testcase_that_failed(
    place: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    template, names = CASES[place]
    of_perf = [] if version in ("0.4", "0.5", "0.6") else ["--perfFormatter"]
    for fault, arguments in product(("corrupt", "error"), ([], ["-v", "--displayUR"], of_perf)):
        machine = template.format(fault)
        text = run(capsys, version, machine, "-t", *names, *arguments)
        first, second, good = re.split(r"^Running \w+\.\n", text, flags=re.M)[1:]
        for name, part in ((names[0], first), (names[1], second)):
            assert not RESULTS.search(part) and "bandwidth (GB/s)\n" not in part and "%" not in part, part
            assert re.search(rf"^ERROR: {name}: (wrong data|simulated error) in .+\n\n\Z", part, re.M), part
        assert RESULTS.search(good) and "ERROR: " not in good
        assert not SUCCESS.search(text)


@pytest.mark.parametrize(
    ("place", "version"),
    [*(("gpus", version) for version in DIALECTS), *(("ranks", version) for version in VERSIONS)],
)
def test_json_of_a_testcase_that_failed(place: str, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    machine, names = CASES[place]
    for fault in ("corrupt", "error"):
        text = run(capsys, version, machine.format(fault), "-j", "-v", "--displayUR", "-t", *names)
        (content,) = json.loads(text).values()
        failed = [entry for entry in content["testcases"] if entry["status"] != "Passed"]
        assert [sorted(entry) for entry in failed] == [["error", "name", "status"]] * 2
        errors = [(entry["name"], entry["status"]) for entry in failed]
        assert errors == [(name, "Error") for name in names[:2]]
        assert content["error"] == "; ".join(f"{entry['name']}: {entry['error']}" for entry in failed)
        good = [entry for entry in content["testcases"] if entry["status"] == "Passed"]
        assert [entry["name"] for entry in good] == [names[2]] and good[0]["sum"] > 0


@pytest.mark.parametrize("place", CASES)
def test_success_is_told_from_failure(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    machine, names = CASES[place]
    text = run(capsys, "0.10", machine.partition("+")[0], "-t", *names[:2], code=0)
    assert bool(SUCCESS.search(text)) == (place == "ranks") and len(RESULTS.findall(text)) == 6
    text = run(capsys, "0.10", machine.partition("+")[0], "-j", "-t", *names[:2], code=0)
    assert "error" not in json.loads(text)["nvbandwidth"]


def test_a_time_out_and_lost_devices_leave_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    for fault, says in (("hang@gpu0", "timed out after 1 s"), ("lost@gpu0", "loss of the device")):
        machine = f"simulated:hgx-h200-2+{fault}"
        text = run(capsys, "0.10", machine, "--timeout", "1s", "-t", READ, BOTH)
        assert not RESULTS.search(text) and says in text
