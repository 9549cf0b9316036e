"""The page and the text of two nodes say the same as those of many."""

from __future__ import annotations

import re
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


def squares(page: str) -> list[str]:
    """The colours of the squares of the map, by their CSS class."""
    drawn = page.partition('class="rails"')[2].partition("<figcaption>")[0]
    return re.findall(r'class="cell (\w+)"', drawn)


@pytest.mark.parametrize(
    ("spec", "part", "count"),
    [
        ("dgx-a100-8x64+nic=0.5@node17.3", "node17's NIC of rail 3", 1),
        ("dgx-a100-8x2+nic=0.5@node1.3", "path between node0 and node1 of rail 3", 2),
    ],
)
def test_one_slow_rail(
    spec: str, part: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is dark on the map, at both ends of two nodes; what to do is the same."""
    text, page = seen(spec, tmp_path, capsys)
    assert f"slow: {part}: 22." in text
    assert [css for css in squares(page) if css != "n"] == ["w4"] * count
    assert NIC.capitalize().replace("nic", "NIC") in page


def test_all_rails_of_two_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The map compares with what the NICs carry, and the table has the remedy of the headline."""
    text, page = seen("dgx-spark-2+mtu=1500@node1", tmp_path, capsys)
    assert squares(page) == ["w3", "w3"] and "as a share of what the NICs carry" in page
    remedy = "sudo ip link set dev NAME mtu 9000"
    assert page.count("Set 9000 at both ends and on the switches: " + remedy) == 2
    assert "with a third one" not in page and "other partners" not in page
    assert "cause: the two nodes differ (" in text and "Switches were not distinguished" not in text


def test_a_good_pair_is_as_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, page = seen("dgx-spark-2+noise=5%", tmp_path, capsys)
    assert set(squares(page)) == {"n"}


def test_a_rail_that_is_only_slower_than_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It reaches what its NICs usually carry, but fails, so that it is no good square."""
    _, page = seen("dgx-a100-8x2+nic=0.85@node1.3+noise=0.5%", tmp_path, capsys)
    assert [css for css in squares(page) if css != "n"] == ["w2", "w2"]


def test_a_pair_of_which_one_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, page = seen("dgx-a100-8x2+lost@node1", tmp_path, capsys)
    assert "FAIL node1 is missing 1 node missing, none of 2 nodes judged" in text
    assert "--exclude=node1" in page and "Usable nodes" not in page
