"""What public programs read of nccl-tests' text: their patterns, in our words, on our text."""

from __future__ import annotations

import re

import pytest

from wirespeed.cli.main import main
from wirespeed.features.nccl_tests.closing import _general

TWO = ("--machine", "simulated:hgx-h200-2", "-g", "2")
#: The average in health checks and benchmark suites: digits and points, digits with a fraction, a whole
#: number, the sixth word, the last word.
AVERAGES = {
    "digits and points": r"#?\s*Avg bus bandwidth\s*:\s*([\d.]+)",
    "with a fraction": r"Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)",
    "sixth word": r"^(?:\S+\s+){5}(\S+)",
    "last word": r"(\S+)\s*$",
}


@pytest.fixture
def text(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["all_reduce_perf", *TWO, "-b", "8", "-e", "256M", "-f", "2"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "value", [0.0, 8.95075e-05, 3e-9, 0.00123456, 0.5, 373.187, 481234.5, 1234567.0, 4e9]
)
@pytest.mark.parametrize("pattern", AVERAGES.values(), ids=AVERAGES)
def test_no_average_is_cut_to_another_number(value: float, pattern: str) -> None:
    line = f"# {'Avg bus bandwidth':<20} : {_general(value)} "
    found = re.search(pattern, line)
    assert found and float(found[1]) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.0001, 0.00123456, 0.5, 8.0, 373.187, 100000.0])
def test_other_averages_are_those_of_nccl_tests(value: float) -> None:
    assert _general(value) == f"{value:g}"


def test_the_last_lines_are_those_of_nccl_tests(text: str) -> None:
    """Programs read them by ``tail``; only a simulated run has a further line."""
    lines = text.splitlines()
    assert lines.pop() == "# SIMULATED: no hardware was measured"
    assert [line[:20] for line in lines[-6:]] == [
        "# Out of bounds valu", "# Avg bus bandwidth ", "#", "# Collective test co", "#", "",
    ]  # fmt: skip


def test_the_first_line_with_a_word_of_the_verdict_is_the_average(text: str) -> None:
    """A node health check takes the first line with "FAILED" or "bandwidth", and its sixth word."""
    first = next(line for line in text.splitlines() if "FAILED" in line or "bandwidth" in line)
    assert first.startswith("# Avg bus bandwidth    : ") and float(first.split()[5]) > 0


def test_the_rows_lie_between_the_headings_and_the_verdict(text: str) -> None:
    """A benchmark suite finds columns from the end of the words of the headings."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    heads = next(line for line in lines[begin:end] if "time" in line and "busbw" in line).strip("# ").split()
    rows = [line.split() for line in lines[begin:end] if re.match(r"\s*\d", line)]
    assert len(rows) == 26 and all(len(row) == len(heads) for row in rows)
    assert [int(row[0]) for row in rows] == [2**i for i in range(3, 29)]
    for name in ("time", "algbw", "busbw"):
        assert all(float(row[heads.index(name) - len(heads)]) >= 0 for row in rows)


def test_success_and_failure_are_told_by_their_lines(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "# Out of bounds values : 0 OK" in text and "# Avg bus bandwidth" in text
    assert "Test failure" not in text and "Test NCCL failure" not in text
    assert main(["all_reduce_perf", "--machine", f"{TWO[1]}+error", "-g", "2"]) != 0
    failed = capsys.readouterr().out
    assert "Test failure" in failed and "Test NCCL failure" in failed and "# Avg bus bandwidth" not in failed


def test_devices_are_counted_by_their_lines(text: str) -> None:
    devices = [line for line in text.splitlines() if "Rank" in line and "device" in line and "NVIDIA" in line]
    found = [re.search(r"on\s+([\w\d\-.]+)\s+device\s+(\d+)", line) for line in devices]
    assert [match[2] for match in found if match] == ["0", "1"]
