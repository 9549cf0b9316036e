"""``make run`` installs the extra for the driver that is loaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = "NVRM version: NVIDIA UNIX {} {}  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 11.4.0\n"


@pytest.mark.parametrize(
    ("driver", "extra"),
    [
        (VERSION.format("x86_64 Kernel Module", "525.147.05"), "[cuda12]"),
        (VERSION.format("Open Kernel Module for aarch64", "575.57.08"), "[cuda12]"),
        (VERSION.format("Open Kernel Module for x86_64", "580.95.05"), "[cuda]"),
        (VERSION.format("x86_64 Kernel Module", "1010.1"), "[cuda]"),
        ("something else\n", "[cuda]"),
        (None, ""),
    ],
)
def test_the_extra_fits_the_driver(driver: str | None, extra: str, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    file = tmp_path / "version"
    if driver is not None:
        file.write_text(driver)
    command = ["make", "--dry-run", "--always-make", "run", f"NVIDIA={file}"]
    plan = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert f"-c constraints-{extra.strip('[]') or 'cuda'}.txt -e '.{extra}'" in plan
