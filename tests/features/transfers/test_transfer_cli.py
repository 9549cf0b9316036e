"""``wirespeed transfer`` and ``wirespeed.transfer``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import wirespeed
from wirespeed.backends import describe
from wirespeed.cli.main import main
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer

Golden = Callable[[str, str], None]
TWO = ["--machine", "simulated:hgx-h200-2"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def call(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    return code, *capsys.readouterr()


def test_a_line_is_measured_and_saved_if_asked(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    line = ["gpu0", "to", "gpu1", "and", "latency", "gpu0", "from", "gpu1"]
    code, out, _ = call("transfer", *line, *TWO, capsys=capsys)
    assert code == 0 and "gpu0->gpu1" in out and "gpu0 from gpu1" in out and not list(folder.iterdir())
    code, _, _ = call("transfer", " ".join(line), *TWO, "-o", "a.json", capsys=capsys)
    document = wirespeed.load("a.json")
    assert code == 0 and [table.key for table in document.testcases[0].tables] == ["bandwidth", "latency"]


def test_sizes_make_curves_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("transfer", "gpu0->gpu1", *TWO, "--sizes", "1MiB,4MiB", "-o", "a.json", capsys=capsys)
    (table,) = wirespeed.load("a.json").testcases[0].tables
    assert code == 0 and table.rows.labels == ("gpu0->gpu1",) and table.columns.labels == ("1 MiB", "4 MiB")
    assert "4 MiB" in out


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shared", ["gpu0 -> gpu1; gpu2 -> gpu1 sm blocks=8; latency gpu1 <- gpu3"]),
        ("loaders", ["near(gpu[0-3]) -> gpu[0-3] ce; load all_reduce"]),
        ("cpus", ["latency numa0 <- numa1; load numa0 -> void threads=4", "--size", "1GiB"]),
    ],
)
def test_a_dry_run_shows_routes_shared_links_and_limits(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    machine = "--machine=simulated:dgx-a100-8"
    code, out, _ = call("transfer", *arguments, machine, "--dry-run", capsys=capsys)
    assert code == 0
    golden(f"language/{name}.txt", out)


def test_a_dry_run_as_json_and_as_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["transfer", "gpu0 -> gpu1; gpu2 -> gpu1", "--machine=simulated:dgx-a100-8", "--dry-run"]
    found = json.loads(call(*line, "--format", "json", capsys=capsys)[1])
    (one,) = found["measurements"]
    shared = [link for link in one["links"] if len(link["used_by"]) == 2 and link["kind"] == "nvlink"]
    assert [link["name"] for link in shared] == ["nvswitch->gpu1"]
    assert shared[0]["load"] == pytest.approx(shared[0]["capacity"])
    assert [work["bound"] for work in one["works"]] == ["nvswitch->gpu1"] * 2
    page = call(*line, "--format", "html", capsys=capsys)[1]
    drawing = page[page.index("<svg") : page.index("</svg>") + 6]
    links = [e for e in ElementTree.fromstring(drawing).iter("path") if "link" in e.get("class", "")]
    assert sum("warn" in link.get("class", "") for link in links) == 1
    assert main([*line, "--format", "csv"]) == 2


def test_a_dry_run_takes_the_capacity_of_host_memory_that_was_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine = describe("simulated:hgx-h200-2")
    links = (
        replace(link, capacity=None) if link.source == link.destination else link for link in machine.links
    )
    file = tmp_path / "machine.json"
    file.write_bytes(replace(machine, links=tuple(links)).to_json())
    line = ["transfer", "numa0 -> numa0", f"--machine={file}", "--dry-run"]
    _, out, _ = call(*line, capsys=capsys)
    assert "bounded by no link with a known capacity" in out
    _, out, _ = call(*line, "--host-memory=8x4800", capsys=capsys)
    assert "bounded by memory of numa0" in out


def test_a_dry_run_says_what_no_backend_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", "gpu0 -> gpu1", "--machine=simulated:pcie-2-no-p2p", "--dry-run"]) == 0
    assert "not measured: transfers: gpu0 has no peer access to gpu1" in capsys.readouterr().out


def test_settings_of_a_line_are_options_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = "gpu0 -> gpu1 samples=4 copies=2"
    assert main(["transfer", line, *TWO, "-o", "a.json"]) == 0
    (cell,) = wirespeed.load("a.json").testcases[0].tables[0].cells
    assert (len(cell.samples), cell.copies) == (4, 2)
    assert main(["transfer", line, *TWO, "--samples", "5"]) == 2
    assert "already has samples 5" in capsys.readouterr().err


def test_python_returns_bandwidths_and_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    result = wirespeed.transfer("gpu0 -> gpu1; latency gpu0 <- gpu1", machine="simulated:hgx-h200-2")
    assert list(result) == ["gpu0->gpu1", "gpu0 from gpu1"] and len(result) == 2
    bandwidth = result["gpu0->gpu1"]
    assert isinstance(bandwidth, wirespeed.Bandwidth) and 350 < bandwidth.gb_per_s < 450
    assert 5e-7 < result.latencies["gpu0 from gpu1"] < 2e-6
    assert repr(result).startswith("<Transfers (simulated): gpu0->gpu1 ")
    shown = str(result)
    assert "gpu0->gpu1" in shown and "SIMULATED" in shown and " ns" in shown
    result.plot()
    assert "gpu0->gpu1" in capsys.readouterr().out
    with pytest.raises(KeyError, match="choose from gpu0->gpu1"):
        result["gpu1->gpu0"]


def test_python_takes_transfers(folder: Path) -> None:
    one = Transfer(
        Memory("gpu0", MemoryKind.DEVICE),
        Memory("gpu1", MemoryKind.DEVICE),
        Executor("gpu1"),
        Engine.SM,
        2**28,
    )
    for what in (one, [one]):
        result = wirespeed.transfer(what, machine="simulated:hgx-h200-2", samples=3)
        assert result.document.testcases[0].description == "gpu0->gpu1 by gpu1 (sm)"


def test_a_broadcast_is_limited_by_the_link_that_carries_it_several_times() -> None:
    one, both = (
        wirespeed.transfer(f"gpu0 -> gpu1{more} sm", machine="simulated:dgx-a100-8")
        for more in ("", ", gpu2 broadcast")
    )
    (slow,), (fast,) = both.bandwidths.values(), one.bandwidths.values()
    assert float(slow) == pytest.approx(float(fast) / 2, rel=0.02)
    (cell,) = both.document.testcases[0].tables[0].cells
    assert (cell.limit, cell.expected) == (150e9, None)
