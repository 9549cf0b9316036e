"""Logs that name other GPUs than their machine has, and GPUs that a log lacks values of."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.judging.judge import judge
from wirespeed.judging.overview import overview
from wirespeed.judging.verdict import Verdict

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
MODEL = "NVIDIA H100 80GB HBM3"


def pairs(
    rate: float, without: set[tuple[int, int]] = frozenset(), count: int = 8, model: str = MODEL
) -> str:  # type: ignore[assignment]
    """Text of nvbandwidth 0.4 (github.com/NVIDIA/nvbandwidth): copies between GPUs, some of them N/A."""
    lines = ["nvbandwidth Version: v0.4", "Driver Version: 570.133.20", ""]
    lines += [f"Device {i}: {model}" for i in range(count)]
    lines += ["", "Running device_to_device_memcpy_read_ce.",
              "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"]  # fmt: skip
    lines.append("".join(f"{i:>10}" for i in range(count)))
    for i in range(count):
        cells = ("N/A" if i == j or (i, j) in without else f"{rate:.2f}" for j in range(count))
        lines.append(f"{i:>2}" + "".join(f"{cell:>10}" for cell in cells))
    total = rate * sum((i, j) not in without for i in range(count) for j in range(count) if i != j)
    return "\n".join([*lines, "", f"SUM device_to_device_memcpy_read_ce {total:.2f}", ""])


def test_a_gpu_without_values_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As posted of a node whose last GPU has no peer access: its row and its column are N/A."""
    log, saved = tmp_path / "log.txt", tmp_path / "n.json"
    log.write_text(pairs(371.0, {(i, j) for i in range(8) for j in range(8) if 7 in (i, j)}))
    assert main(["import", str(log), "-o", str(saved)]) == 0
    assert main(["check", "--from", str(saved)]) == 3
    assert "WARN  gpu7 lacks 14 values that other GPUs of the model have" in capsys.readouterr().out


def test_the_rows_that_an_excerpt_lacks_are_not_those_of_a_gpu(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(pairs(371.0, {(i, j) for i in (6, 7) for j in range(8)}))
    document = wirespeed.load_log(log)
    assert not [absent for absent in judge(document).missing if absent.where]


@pytest.mark.parametrize(
    ("model", "machine", "fits"),
    [
        (MODEL, "hgx-a800-8", False), (MODEL, "hgx-h100-8", True), ("NVIDIA H100", "hgx-h100-8", True),
        ("NVIDIA H200", "hgx-h100-8", False), ("NVIDIA H100 PCIe", "hgx-h100-8", False),
        ("HGX of tomorrow", "hgx-h100-8", False), (MODEL, None, True),
    ],
)  # fmt: skip
def test_the_model_of_the_machine(tmp_path: Path, model: str, machine: str | None, fits: bool) -> None:
    log = tmp_path / "log.txt"
    log.write_text(pairs(160.0 if machine == "hgx-a800-8" else 371.0, model=model))
    document = wirespeed.load_log(log, machine)
    check = judge(document)
    assert check.verdict is (Verdict.PASS if fits else Verdict.WARN)
    if not fits:
        assert f"the log is of {model}, the machine has NVIDIA" in overview(document, check).sentence


def test_a_published_log_as_another_model() -> None:
    document = wirespeed.load_log(PUBLISHED / "nccl-tests-h200-azure.txt", "hgx-h100-8")
    assert judge(document).verdict is not Verdict.PASS
    assert (
        judge(wirespeed.load_log(PUBLISHED / "nccl-tests-h200-azure.txt", "hgx-h200-8")).verdict
        is Verdict.PASS
    )
