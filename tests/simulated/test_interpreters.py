"""Results and texts are the same with every version of Python."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.collectives.options import CollectiveOptions
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.reports import FORMATS, render
from wirespeed.results import store

PACKAGE = str(Path(wirespeed.__file__).parent)


@pytest.fixture
def float_sums(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places where wirespeed adds floats with ``sum``, whose rounding differs since Python 3.12."""
    original, places = sum, list[str]()

    def spying(items: Iterable[Any], /, start: Any = 0) -> Any:
        caller, items = sys._getframe(1), list(items)
        if caller.f_code.co_filename.startswith(PACKAGE) and any(type(item) is float for item in items):
            places.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
        return original(items, start)

    monkeypatch.setattr(builtins, "sum", spying)
    return places


@pytest.mark.parametrize(
    "command",
    [
        "run --tier quick --machine simulated:hgx-h200-2",
        "run -t 0 4 28 --rounds 3 --machine simulated:dgx-a100-8",
        "nvbandwidth -v -j --machine simulated:hgx-h200-2",
        "nvbandwidth -v --compat 0.4 --machine simulated:hgx-h200-2",
        "sailbandwidth -v -j --machine simulated:ppu-8",
        "all_reduce_perf -b 1M -e 4M -f 2 -g 4 --machine simulated:dgx-a100-8",
        "check --machine simulated:pcie-2-no-p2p --allow-simulated",
        "list --machine simulated:hgx-h200-2",
    ],
)
def test_no_result_is_a_sum_of_floats(
    command: str,
    float_sums: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)  # where runs are saved
    assert main(command.split()) in (0, 1, 3, 4), capsys.readouterr().err
    assert not float_sums


def test_no_report_adds_floats(float_sums: list[str]) -> None:
    document = wirespeed.run(["0", "4"], machine="simulated:hgx-h200-2", rounds=3)
    for row in FORMATS:
        render(document, row.name)
    assert not float_sums


@pytest.mark.parametrize("documented", [PlanOptions, RunOptions, CollectiveOptions, wirespeed.run])
def test_docstrings_that_are_composed_have_no_indentation(documented: Any) -> None:
    """The compiler removes it since Python 3.13."""
    assert documented.__doc__.rstrip() == inspect.cleandoc(documented.__doc__).rstrip()
    assert "\nArgs:\n" in documented.__doc__ or "\nAttributes:\n" in documented.__doc__


def test_the_schema_has_no_indentation_of_docstrings() -> None:
    assert b"\\n    Attributes:" not in store.schema()
