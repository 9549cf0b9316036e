"""A kind of device, the example of the documentation, works in every command.

wirespeed finds the package like any installed one, by its entry point, so each command is a process.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from wirespeed.errors import MachineError
from wirespeed.hardware.devices import GPU, NUMA, kind_of, kinds, parse
from wirespeed.hardware.topology import Machine

DOCS = Path(__file__).parents[2] / "docs"
CASES = ("drive_local_copy", "drive_from_host", "drive_to_host")


def example() -> dict[str, str]:
    """The code of the section of the documentation, by language."""
    section = (DOCS / "extending.md").read_text().partition("## A kind of device\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of the documentation is installed, with its machine."""
    folder = tmp_path_factory.mktemp("drives")
    blocks = example()
    (folder / "drives.py").write_text(blocks["python"])
    (folder / "drives.json").write_text(blocks["json"])
    group, name, target = re.findall(r'entry-points."(.*?)"]\n(\w+) = "(.*?)"', blocks["toml"])[0]
    about = folder / "drives-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: drives\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    return folder


def wirespeed(folder: Path, *arguments: str, code: int = 0, path: Sequence[Path] = ()) -> str:
    """Run a command in the folder; return what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path or [folder])), "COLUMNS": "100"}
    command = [sys.executable, "-P", "-m", "wirespeed", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def measured(installed: Path) -> Path:
    """The installed package, with a saved run."""
    wirespeed(installed, "run", "-t", *CASES, "--machine", "simulated:drives.json", "-o", "run.json")
    return installed


def test_a_machine_shows_its_devices(installed: Path) -> None:
    shown = wirespeed(installed, "machine", "--machine", "simulated:drives.json")
    assert "drive0: SSD, 1 TiB" in shown
    again = wirespeed(installed, "machine", "--machine", "simulated:drives.json", "--format", "json")
    described = json.loads((installed / "drives.json").read_text())["others"]["drive"]
    written = json.loads(again)["others"]["drive"]
    assert [device.items() <= full.items() for device, full in zip(described, written, strict=True)] == [
        True
    ] * 4


def test_its_testcases_are_listed(installed: Path) -> None:
    shown = wirespeed(installed, "list", "--machine", "simulated:drives.json")
    runnable = shown.partition("cannot run")[0]
    assert all(case in runnable for case in CASES)


def test_its_testcases_are_skipped_on_machines_without_it(installed: Path) -> None:
    shown = wirespeed(installed, "run", "-t", "drive_to_host", "--machine", "simulated:hgx-h200-2", code=4)
    assert "no drive was found" in shown


def test_the_language_of_transfers_names_it(installed: Path) -> None:
    line = "numa0 -> drive0; drives -> numa0; near(drive1) -> drive1"
    shown = wirespeed(installed, "transfer", line, "--machine", "simulated:drives.json")
    assert "numa0->drive0" in shown and "drive3->numa0" in shown
    wrong = wirespeed(installed, "transfer", "drive7 -> numa0", "--machine", "simulated:drives.json", code=2)
    assert "this machine has drive0 to drive3" in wrong
    wrong = wirespeed(
        installed, "transfer", "numa0 -> drive0 sm", "--machine", "simulated:drives.json", code=2
    )
    assert "drive0 executes with ce, not with sm" in wrong


@pytest.mark.parametrize("format", ["csv", "json", "markdown", "prometheus", "html"])
def test_formats_export_it(measured: Path, format: str) -> None:
    wirespeed(measured, "report", "run.json", "--format", format, "-o", f"report.{format}")
    text = (measured / f"report.{format}").read_text()
    assert "drive3" in text
    assert format == "prometheus" or all(case in text for case in CASES)  # it has paths and devices
    if format == "csv":
        rows = list(csv.DictReader(text.splitlines()))
        assert {row["column"] for row in rows} == {f"drive{i}" for i in range(4)}
        assert {row["verdict"] for row in rows} == {"pass"} and all(row["limit"] for row in rows)
    if format == "markdown":
        assert "4 drives" in text
    if format == "prometheus":
        assert 'device="drive0",path="drive_memory"' in text
    if format == "html":
        assert "1 NUMA node, 0 GPUs, 4 drives" in text
        boxes = re.findall(r'<rect [^>]*width="120" height="58" rx="2" class="box"[^>]*><title>SSD', text)
        assert len(boxes) == 4


def test_a_slow_one_is_found(installed: Path) -> None:
    healthy = wirespeed(installed, "check", "--allow-simulated", "--machine", "simulated:drives.json")
    assert "drive memory" in healthy and "host ↔ drive" in healthy
    slow = "simulated:drives.json+speed@drive0=0.5"
    shown = wirespeed(installed, "check", "--allow-simulated", "--machine", slow, code=1)
    assert re.search(r"FAIL +memory of drive0 runs at 4\d% of expected", shown)
    assert "nvidia-smi" not in shown


def test_a_kind_of_this_package_is_one_record_and_one_row(tmp_path: Path) -> None:
    package, blocks = tmp_path / "wirespeed", example()
    source = Path(sys.modules["wirespeed"].__file__ or "").parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    table = package / "hardware" / "devices.py"
    record = "".join(line for line in blocks["python"].splitlines(True) if "hardware.devices" not in line)
    before, row, after = table.read_text().partition(
        "\n#: The kinds of devices of this package.\nKINDS = (NUMA, GPU"
    )
    table.write_text(f"{before}\n{record}{row}, DRIVE{after}")
    (tmp_path / "drives.json").write_text(blocks["json"])
    wirespeed(tmp_path, "run", "-t", *CASES, "--machine", "simulated:drives.json", "-o", "run.json")
    written = wirespeed(tmp_path, "show", "run.json", "--format", "csv")
    cells = list(csv.DictReader(written.splitlines()))
    assert {(cell["testcase"], cell["verdict"]) for cell in cells} == {(case, "pass") for case in CASES}
    slow = "simulated:drives.json+speed@drive0=0.5"
    shown = wirespeed(tmp_path, "check", "--allow-simulated", "--machine", slow, code=1)
    assert re.search(r"FAIL +memory of drive0 runs at 4\d% of expected", shown)


def test_without_its_package_the_error_names_the_kind(installed: Path, tmp_path: Path) -> None:
    arguments = ("machine", "--machine", "simulated:drives.json")
    shown = wirespeed(installed, *arguments, code=2, path=[tmp_path])
    assert "no installed package knows devices of the kind 'drive'" in shown


@pytest.mark.parametrize(
    ("device", "problem"),
    [("5", "Expected `object`"), ('{"index": "first"}', "Expected `int`"), ('{"model": "SSD"}', "missing")],
)
def test_an_invalid_record_is_named(installed: Path, tmp_path: Path, device: str, problem: str) -> None:
    file = tmp_path / "machine.json"
    file.write_text(f'{{"name": "bad", "simulated": true, "others": {{"drive": [{device}]}}}}')
    shown = wirespeed(installed, "machine", "--machine", f"simulated:{file}", code=2)
    assert "is not a valid machine file" in shown and problem in shown


def test_a_process_owns_no_drive(installed: Path) -> None:
    machine = json.loads((installed / "drives.json").read_text())
    machine["ranks"] = [{"index": 0, "host": "a", "device": "drive0"}]
    (installed / "job.json").write_text(json.dumps(machine))
    shown = wirespeed(installed, "machine", "--machine", "simulated:job.json", code=2)
    assert "rank 0 owns 'drive0', which no process can own" in shown


def test_only_one_function_parses_names() -> None:
    assert parse("gpu3") == (GPU, 3)
    assert kind_of("numa0") is NUMA
    assert (
        parse("pcie0") is None
        and parse("1/gpu0") is None
        and parse("gpu") is None
        and parse("gpus1x") is None
    )
    with pytest.raises(MachineError, match="'disk0' is not the name of a device"):
        kind_of("disk0")
    source = Path(sys.modules["wirespeed"].__file__ or "").parent
    prefixes = re.compile(rf"""startswith\(f?["']({"|".join(kind.name for kind in kinds())})["']""")
    assert [str(path) for path in source.rglob("*.py") if prefixes.search(path.read_text())] == []


def test_every_kind_is_complete() -> None:
    for kind in kinds():
        assert kind.record.prefix == kind.name and kind.memories
    assert Machine("empty").devices == ()
