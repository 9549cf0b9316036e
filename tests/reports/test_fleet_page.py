"""The page of many nodes: from files, with files that cannot be read, and with hostile texts."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.features.fleet.page import fleet_page
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import RunSummary, run_summary
from wirespeed.reports.html.page import page
from wirespeed.reports.html.templates import capital
from wirespeed.results import read_many as many_files
from wirespeed.results.read_many import ReadRuns
from wirespeed.results.store import save

from .test_hostile import STRINGS, spoiled

CASES = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce"]


def node(file: str, document: Document, by: Criteria) -> RunSummary:
    return run_summary(Judged(document, by, file))


def read_nodes(files: Sequence[str], by: Criteria) -> ReadRuns[RunSummary]:
    return many_files.read_many(files, partial(node, by=by))


def named(document: Document, host: str, driver: str = "580.1") -> Document:
    machine = dataclasses.replace(document.machine, host=host, driver=driver)
    return replace(document, host=host, machine=machine)


@pytest.fixture(scope="module")
def good() -> Document:
    return wirespeed.run(CASES, machine="simulated:hgx-h200-2", samples=3, copies=1)


@pytest.fixture(scope="module")
def slow() -> Document:
    machine = "simulated:hgx-h200-2+speed@gpu0-gpu1=0.5"
    return wirespeed.run(CASES, machine=machine, samples=3, copies=1)


@pytest.fixture
def files(good: Document, slow: Document, tmp_path: Path) -> list[str]:
    """Eleven good nodes, and four slow ones with another driver."""
    for i in range(15):
        run = named(slow, f"node{i}", "575.9") if i < 4 else named(good, f"node{i}")
        save(run, tmp_path / f"node{i:02}.json")
    return [str(tmp_path / f"node{i:02}.json") for i in range(15)]


def rows(text: str) -> list[str]:
    body = text[text.index("<tbody>") : text.index("</tbody>")]
    return [" ".join(html.unescape(re.sub("<[^>]*>", " ", row)).split()) for row in body.split("<tr ")[1:]]


def test_more_than_ten_runs_make_a_page_of_nodes(files, tmp_path, capsys) -> None:
    output = tmp_path / "fleet.html"
    assert main(["report", *files, "-o", str(output)]) == 0
    text = output.read_text()
    found = rows(text)
    assert len(found) == 15
    assert all("✖ FAIL" in row for row in found[:4]) and all("✓ PASS" in row for row in found[4:])
    assert "NVIDIA driver</strong>: 575.9 in the slower group, 580.1 in the faster one" in text
    assert "GPU ↔ GPU: two groups" in text and "SIMULATED" in text
    first = text[text.index("<header") : text.index("</header>")]
    assert "<title>FAIL (simulated) · 15 nodes · " in text and "4 of 15 nodes fail; 11 pass" in first
    assert "Remedy:</strong> Reset the GPU; if it stays slow, reseat the bridge" in first
    assert "With NVIDIA driver 575.9, " in first and first.count('<a href="#node-') == 4
    assert "document-0" not in text and output.stat().st_size < 100_000


def test_eight_runs_are_compared_unless_a_page_of_nodes_is_requested(files, tmp_path) -> None:
    output = tmp_path / "out.html"
    assert main(["report", *files[:2], "-o", str(output)]) == 0
    assert "Comparison" in output.read_text()
    assert main(["report", *files[:2], "--fleet", "-o", str(output)]) == 0
    assert len(rows(output.read_text())) == 2
    assert main(["report", *files[:2] * 4, "-o", str(output)]) == 0
    assert "Changes" in output.read_text()
    assert main(["report", *files[:2] * 4, files[0], "-o", str(output)]) == 0
    assert "Changes" not in output.read_text()
    assert main(["report", files[0], "--fleet", "-o", str(tmp_path / "out.md")]) == 2


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_shown(files, tmp_path, capsys) -> None:
    broken, output = tmp_path / "broken\x1b.json", tmp_path / "fleet.html"
    broken.write_text("{")
    missing = str(tmp_path / "missing.json")
    assert main(["report", *files, str(broken), missing, "-o", str(output)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 2
    assert "broken␛.json is not a saved run of wirespeed" in errors[0] and "missing.json" in errors[1]
    text = output.read_text()
    assert len(rows(text)) == 15 and "2 files not shown" in text and "\x1b" not in text
    assert main(["report", "--fleet", missing, "-o", str(output)]) == 2
    assert "none of the runs can be shown" in capsys.readouterr().err


def test_runs_of_one_host_are_told_apart(good: Document, slow: Document, tmp_path, capsys) -> None:
    """By their files: on the page, in its findings, and in the metrics of every command."""
    for name, run in {"monday": good, "tuesday": slow, "friday": slow}.items():
        save(named(run, "node1"), tmp_path / f"{name}.json")
    files = [str(tmp_path / f"{name}.json") for name in ("monday", "tuesday", "friday")]
    text = fleet_page(read_nodes(files, Criteria()).found)
    assert [row.split()[1] for row in rows(text)] == ["friday", "tuesday", "monday"]
    finding = html.unescape(re.sub("<[^>]*>", " ", text[text.index('class="findings"') :]))
    assert re.search(r"friday\s*,\s*tuesday", finding[:500])
    for command in ("check", "show"):
        main([command, "--allow-simulated", "--format", "prometheus", *files])
        out = capsys.readouterr().out
        verdicts = re.findall(r'wirespeed_verdict{host="node1",file="\S+/(\w+).json".*verdict="fail"} 1', out)
        assert sorted(verdicts) == ["friday", "tuesday"] and out.count("# TYPE wirespeed_verdict") == 1


def test_processes_read_the_same(files, monkeypatch) -> None:
    alone = read_nodes(files, Criteria())
    monkeypatch.setattr(many_files, "_DOCUMENTS_PER_PROCESS", 7)
    monkeypatch.setattr(many_files.os, "sched_getaffinity", lambda _: {0, 1})
    assert read_nodes(files, Criteria()) == alone


@pytest.mark.parametrize(
    "fault", with_long(["nvlinks=9@gpu0", "speed@gpu0-gpu1=0.5", "corrupt@gpu0->gpu1"], "speed@gpu0-gpu1=0.5")
)
def test_copies_of_a_run_have_one_finding_and_one_remedy_in_every_view(fault, tmp_path, capsys) -> None:
    """However many there are, and whichever report shows them."""
    bad = wirespeed.run(CASES, machine=f"simulated:hgx-h200-2+{fault}", samples=3, copies=1)
    files = [str(tmp_path / f"{i}.json") for i in range(25)]
    for file in files:
        save(bad, file)
    nodes = read_nodes(files, Criteria()).found
    ((sentence, step),) = {(node.sentence, node.step) for node in nodes}
    text = html.unescape(re.sub("<[^>]+>", "", page([bad])))
    assert capital(sentence) in text and capital(step) in text
    assert main(["check", "--from", *files[:2], "--allow-simulated"]) == 1
    several = " ".join(capsys.readouterr().out.split())
    assert several.count(sentence) == several.count(f"remedy: {step}") == 1
    assert main(["check", "--from", files[0], "--allow-simulated"]) == 1
    one = " ".join(capsys.readouterr().out.split())
    assert f"FAIL {sentence}" in one and re.search(f"remedy {re.escape(step)}", one)


@pytest.mark.parametrize("kind", STRINGS)
def test_hostile_texts_are_harmless(kind, slow, tmp_path) -> None:
    file = tmp_path / "run.json"
    run = spoiled(slow, STRINGS[kind])
    machine = dataclasses.replace(run.machine, links=slow.machine.links)  # other ends are refused
    save(msgspec.structs.replace(run, machine=machine), file)
    read = read_nodes([str(file)], Criteria())
    nodes = read.found
    assert not read.unreadable
    hosts = [dataclasses.replace(nodes[0], host=STRINGS[kind], attributes={"NVIDIA driver": STRINGS[kind]})]
    text = fleet_page([*nodes, *hosts], [STRINGS[kind]])
    assert text.count("<script>") == 1 and text.count("<style>") == 1 and text.count("<tr ") == 2
    assert "<img" not in text and "\x1b" not in text and "\u202e" not in text


def test_it_opens_in_a_browser(files, browser) -> None:
    nodes = read_nodes(files, Criteria()).found
    long = [dataclasses.replace(node, host=f"{node.host}-{'x' * 80}") for node in nodes]
    for width in (390, 1440):
        for shown in (nodes, long):
            opened = browser.open(fleet_page(shown, ["broken.json is not a saved run of wirespeed"]), width)
            page = opened.page
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("tbody tr").count() == 15
            page.fill("#filter", "575.9 fail")
            assert page.locator("tbody tr:visible").count() == 4
            assert page.inner_text("#matches") == "4 of 15"
            page.fill("#filter", "")
            if width > 1000:
                page.click("thead button >> text=Host")
                page.click("thead button >> text=Host")
                assert page.locator("tbody th").first.inner_text().startswith("node14")
            assert not opened.complaints and not opened.requests
            page.close()
