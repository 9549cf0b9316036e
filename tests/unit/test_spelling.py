"""Mistyped names in files that are read as configuration or expectations are errors with a suggestion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wirespeed.backends import describe
from wirespeed.cli.main import main
from wirespeed.terminal import meant

TESTS = Path(__file__).parents[1]
RUN = str(TESTS / "recorded" / "two-h200.json")
MACHINE = "simulated:hgx-h200-2"
OVERRIDE = '[[override]]\nlink = "gpu0->gpu1"\nreason = "known"\n'
GATES = 'read = 2026-01-01\n[[gate]]\nmeasures = "x"\nat_least = "1 GB/s"\nsource = "https://example.com"\n'


def written(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("text", "command", "message"),
    [
        (OVERRIDE.replace("link", "lnik"), ["check", "--from", RUN, "--overrides"],
         "unknown name 'lnik' in override[0] (did you mean 'link'?)"),
        (OVERRIDE.replace("override", "overide"), ["check", "--from", RUN, "--overrides"],
         "unknown name 'overide' (did you mean 'override'?)"),
        (OVERRIDE.replace("reason", "reson"), ["check", "--from", RUN, "--overrides"],
         "unknown name 'reson' in override[0] (did you mean 'reason'?)"),
        (GATES.replace("at_least", "at-least"), ["check", "--from", RUN, "--gates"],
         "unknown name 'at-least' in gate[0] (did you mean 'at_least'?)"),
    ],
)  # fmt: skip
def test_names_in_files_of_people(
    text: str, command: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = written(tmp_path / "file.toml", text)
    assert main([*command, spec]) == 2
    out, err = capsys.readouterr()
    assert message in err and len(err.splitlines()) == 1 and not out


@pytest.mark.parametrize("command", [["machine", "--machine"], ["check", "--allow-simulated", "--machine"]])
def test_names_in_machine_files(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = json.loads(describe(MACHINE).to_json())
    machine["links"][3]["capcity"] = machine["links"][3].pop("capacity")
    assert main([*command, written(tmp_path / "machine.json", machine)]) == 2
    assert "unknown name 'capcity' in links[3] (did you mean 'capacity'?)" in capsys.readouterr().err


def test_names_in_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "good.json"
    assert main(["baseline", "make", RUN, "-o", str(path)]) == 0
    baseline = json.loads(path.read_text())
    baseline["inventores"] = baseline.pop("inventories")
    capsys.readouterr()
    assert main(["check", "--from", RUN, "--baseline", written(path, baseline)]) == 2
    err = capsys.readouterr().err
    assert "unknown name 'inventores' (did you mean 'inventories'?)" in err and len(err.splitlines()) == 1


def test_a_name_that_is_near_to_none_or_immense_has_no_suggestion() -> None:
    assert meant("zzz", ["link", "reason"]) == "" == meant("link" * 10_000, ["link" * 9_999])
