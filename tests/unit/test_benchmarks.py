"""The parser with which our output and nvbandwidth's are compared."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import wirespeed

ROOT = Path(__file__).parents[2]


def test_the_parser_reads_every_cell() -> None:
    spec = importlib.util.spec_from_file_location("vs", ROOT / "benchmarks/vs_nvbandwidth.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    document = wirespeed.run(["4", "6", "0", "33"], machine="simulated:hgx-h200-2")
    cells = module.parse(wirespeed.render(document, "nvbandwidth"))
    name = "device_to_device_memcpy_read_ce"
    assert {key[1:] for key in cells if key[0] == name} == {(0, 1), (1, 0)}
    assert len(cells) == 2 + 6 + 2 + 2
    assert cells[name, 0, 1] == pytest.approx(394, rel=0.01)
    assert module.report({k: [v] for k, v in cells.items()}, {k: [v] for k, v in cells.items()}) == []
    slower = {k: [0.9 * v] for k, v in cells.items()}
    assert f"{name}: a cell at 0.900" in module.report({k: [v] for k, v in cells.items()}, slower)
