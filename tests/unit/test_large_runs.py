"""Large runs: what is known once is not computed again, and short ways change no output."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.table import Column
from rich.text import Text

import wirespeed
from wirespeed.backends import describe
from wirespeed.cli.main import main
from wirespeed.driver import worker
from wirespeed.hardware import limits
from wirespeed.judging import replanned as expectations
from wirespeed.reports import Style, console
from wirespeed.results.store import load
from wirespeed.testcases.table import find

RECORDED = Path(__file__).parents[1] / "recorded" / "two-h200.json"
EIGHT = "simulated:dgx-a100-8"


def test_a_measurement_has_one_hash_that_no_other_process_gets() -> None:
    first, second = (find("4").plan(describe(EIGHT)).measurements[0] for _ in range(2))
    assert first is not second and first == second and hash(first) == hash(second)
    assert "_hash" in vars(first) and "_hash" not in vars(pickle.loads(pickle.dumps(first)))


def test_limits_of_a_measurement_are_computed_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(network: Any, measurement: Any, ranges: Any) -> Any:
        asked.append(measurement)
        return limits.allowances(network, measurement, ranges)

    monkeypatch.setattr(worker, "allowances", counted)
    document = wirespeed.run(["device_to_device_memcpy_read_ce"], machine="simulated:hgx-h200-2", rounds=3)
    assert all(len(cell.rounds) >= 3 for cell in document.testcases[0].tables[0].cells)
    assert len(asked) == len(set(asked))


def test_limits_of_an_older_run_are_computed_once_for_each_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = load(RECORDED)
    many = msgspec.structs.replace(document, testcases=document.testcases * 3)
    asked: list[object] = []

    def counted(network: Any, measurement: Any, ranges: Any) -> Any:
        asked.append(measurement)
        return limits.allowances(network, measurement, ranges)

    monkeypatch.setattr(expectations, "allowances", counted)
    expectations.renewed(document)
    once = len(asked)
    expectations.renewed(many)
    assert once and len(asked) == 2 * once


@pytest.mark.parametrize("width", [40, 80, 200])
def test_texts_and_tables_are_laid_out_as_by_rich(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[Text | str]] = [
        [Text("gpu0"), Text("1.5"), Text("n/a"), "3%"], ["a label of some length: µs", "10", "✔ 2", ""],
        ["漢字 ", "", "", "[bold]x[/]"],
    ]  # fmt: skip
    for count in (1, 2, 3):
        parts = [
            Text("short"), "", Text("─ not judged: " * 20), Text("two\nlines"), Text("\u202ehidden"),
            *console.pieces(Column("GB/s"), ["gpu0", "gpu1"], rows[:count], width, [Column("of limit")]),
        ]  # fmt: skip
        style = Style(width=width)
        short = console.printed(style, *parts)
        with monkeypatch.context() as patch:
            patch.setattr(console, "_plain", lambda part, width: None)
            assert console.printed(style, *parts) == short


@pytest.mark.parametrize(("width", "shown"), [(37, "± of limit"), (38, "± samples of limit")])
def test_the_widest_detail_that_does_not_fit_is_left_out(width: int, shown: str) -> None:
    """The values and their names are whole, whatever the width is."""
    details = [Column(name, justify="right") for name in ("±", "samples", "of limit")]
    (table,) = console.pieces(
        Column("GB/s"), ["gpu0"], [["a copy", "254.81", "1%", "33 in 11", "93%"]], width, details
    )
    heading, values = table.plain.split("\n")
    assert heading.split() == ["GB/s", "gpu0", *shown.split()] and "254.81" in values and len(values) <= width


@pytest.mark.parametrize("command", [["doctor"], ["show"], ["compare", str(RECORDED)]])
def test_of_many_warnings_a_screen_shows_the_first(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads(RECORDED.read_text())
    run["warnings"] = [f"warning {i}" for i in range(500)]
    run["testcases"][0]["warnings"] = [f"other {i}" for i in range(500)]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    main([*command, str(path)])
    out = capsys.readouterr().out
    assert out.count("warning: ") == 50 and "950 more warnings; -v shows all" in out
    main([*command, str(path), "-v"])
    assert capsys.readouterr().out.count("warning: ") == 1000
