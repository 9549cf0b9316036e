"""Qualification of two nodes: what can be compared, and no words that contradict each other."""

from __future__ import annotations

import json

import pytest

from wirespeed.cli.main import main

TWO = "simulated:dgx-a100-8x2"


def qualified(machine: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = main(["qualify", "--machine", machine, "--no-save", *more])
    return code, " ".join(capsys.readouterr().out.split())


def test_two_good_nodes_are_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = qualified(TWO, capsys)
    assert code == 4 and out.endswith("NOT JUDGED: none of 2 nodes judged")
    assert "the directions and rails of their path were compared" in out and "three" not in out


def test_both_ends_of_a_slow_path_are_in_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    slow = f"{TWO}+nic=0.5@node1.3"
    code, out = qualified(slow, capsys)
    assert code == 1 and out.endswith("FAIL: 1 slow part, 0 of 2 nodes to use, 2 in doubt")
    assert "in doubt: node0, node1: other partners show which is slow" in out
    _, out = qualified(slow, capsys, "--exclude-format", "json")
    assert json.loads(out) == {"exclude": [], "in_doubt": ["node0", "node1"], "use": []}
    code, out = qualified(f"{TWO.replace('x2', 'x3')}+nic=0.5@node1.3", capsys)
    assert code == 1 and out.endswith("exclude: node1 FAIL: 1 slow part, 2 of 3 nodes to use")
