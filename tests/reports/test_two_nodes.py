"""The page and the text of two nodes say the same as those of many."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirespeed.cli.main import main

NIC = "check cable, switch port and error counters of the NIC"


def seen(spec: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The text, and the page, of simulated nodes; spaces are one."""
    file, page = folder / "run.json", folder / "run.html"
    main(["qualify", "--machine", f"simulated:{spec}", "-o", str(file)])
    text = capsys.readouterr().out
    assert main(["report", str(file), "-o", str(page)]) == 0
    body = page.read_text().partition("<body")[2]
    return " ".join(text.split()), " ".join(body.split())


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("dgx-a100-8x64+nic=0.5@node17.3", "node17's NIC of rail 3"),
        ("dgx-a100-8x2+nic=0.5@node1.3", "path between node0 and node1 of rail 3"),
    ],
)
def test_one_slow_rail(spec: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What to do is the same."""
    text, page = seen(spec, tmp_path, capsys)
    assert f"slow: {part}: 22." in text
    assert NIC.capitalize().replace("nic", "NIC") in page


def test_all_rails_of_two_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the remedy of the headline."""
    text, page = seen("dgx-spark-2+mtu=1500@node1", tmp_path, capsys)
    remedy = "sudo ip link set dev NAME mtu 9000"
    assert page.count("Set 9000 at both ends and on the switches: " + remedy) == 2
    assert "with a third one" not in page and "other partners" not in page
    assert "cause: the two nodes differ (" in text and "Switches were not distinguished" not in text


def test_a_pair_of_which_one_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, page = seen("dgx-a100-8x2+lost@node1", tmp_path, capsys)
    assert "FAIL node1 is missing 1 node missing, none of 2 nodes judged" in text
    assert "--exclude=node1" in page and "Usable nodes" not in page
