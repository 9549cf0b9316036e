"""What people and programs see of a qualification: every form, every command, hostile names."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.reports import FORMATS, Style, formats
from wirespeed.results.store import load, save

from .test_hostile import STRINGS

CLUSTERS = {
    "pass": "dgx-a100-8x16",
    "fail": "dgx-a100-8x64+nic=0.5@node17.3+leaf=0.7@block2.1+lost@node40+cable=0.6@node50.2",
    "not-judged": "dgx-a100-8x2+noise=20%",
}
CODES = {"pass": 0, "fail": 1, "not-judged": 4}
WITHOUT = sorted(row.name for row in FORMATS if not row.qualified)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved qualification of each verdict."""
    files = {name: tmp_path_factory.mktemp("qualified") / f"{name}.json" for name in CLUSTERS}
    for name, spec in CLUSTERS.items():
        code = main(["qualify", "--machine", f"simulated:{spec}", "-q", "-o", str(files[name])])
        assert code == CODES[name]
    return files


@pytest.fixture(scope="module")
def failed(saved: dict[str, Path]) -> Document:
    return load(str(saved["fail"]))


@pytest.mark.parametrize("name", CLUSTERS)
def test_text(name, saved, golden):
    document = replace(load(str(saved[name])), version="0")
    golden(f"qualify/{name}.txt", wirespeed.render(document, "table", Style(width=100)))


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_check_of_the_file_has_the_same_code(name, saved, capsys):
    assert main(["check", "--allow-simulated", str(saved[name])]) == CODES[name]
    text = capsys.readouterr().out
    word = {"pass": "PASS", "fail": "FAIL", "not-judged": "NOT JUDGED"}[name]
    assert re.search(rf"^{word}  ", text, re.MULTILINE)


def test_many_are_checked_together(saved, capsys):
    assert main(["check", "--allow-simulated", "--from", *map(str, saved.values())]) == 1
    text = capsys.readouterr().out
    assert "1 FAIL, 1 NOT JUDGED, 1 PASS" in text and "drain node17, node40 and node50" in text


def test_junit_has_a_case_for_each_node_and_switch(failed):
    suite = ET.fromstring(wirespeed.render(failed, "junit")).find("testsuite")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert len(cases) == 65 and suite.get("failures") == "4"
    assert "23" in cases["node17"].find("failure").get("message")
    assert cases["node40"].find("failure").get("message") == "does not answer"
    assert cases["leaf switch of block2 of rail 1"].find("failure") is not None
    assert cases["node0"].find("skipped").get("message").startswith("SIMULATED")


def test_prometheus_says_which_nodes_to_leave_out(failed):
    families = {
        each.name: each for each in text_string_to_metric_families(wirespeed.render(failed, "prometheus"))
    }
    verdicts = {s.labels["device"]: s.labels["verdict"] for s in families["wirespeed_device_verdict"].samples}
    assert len(verdicts) == 64
    assert {node for node, word in verdicts.items() if word == "fail"} == {"node17", "node40", "node50"}
    assert verdicts["node0"] == "not judged"  # simulated
    assert [s.labels["verdict"] for s in families["wirespeed_verdict"].samples if s.value] == ["fail"]


def test_markdown_begins_with_the_verdict(failed):
    text = wirespeed.render(failed, "markdown")
    assert "**FAIL**: 3 slow parts, 1 node missing, 61 of 64 nodes usable" in text
    assert "- slow: node17's NIC of rail 3" in text


def test_json_is_the_document(failed):
    plain = json.loads(wirespeed.render(failed, "json"))
    assert [culprit["kind"] for culprit in plain["qualification"]["culprits"]] == [
        "NIC",
        "cable",
        "leaf switch",
    ]


@pytest.mark.parametrize("format", WITHOUT)
def test_other_forms_say_that_they_cannot_show_it(format, saved, capsys):
    assert main(["show", str(saved["fail"]), "--format", format]) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == "" and "does not show a qualification of nodes; choose one of table" in captured.err
    )


def test_pages_show_slow_parts(failed, browser):
    opened = browser.open(wirespeed.render(failed, "html"), 1280)
    page = opened.page
    assert page.locator("h1").inner_text().startswith("FAIL")
    rows = page.locator("table.list").first.locator("tbody tr")
    assert rows.count() == 4 and "23" in rows.first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not opened.complaints and not opened.requests


@pytest.mark.parametrize("width", [390, 1440])
def test_a_page_is_that_of_the_nodes_and_says_what_to_do(failed, browser, width):
    """Its head names the nodes, not the machine of rank 0; what to exclude is copied; labels are whole."""
    opened = browser.open(wirespeed.render(failed, "html"), width)
    page = opened.page
    head = page.locator(".id").inner_text()
    assert head.startswith("64 nodes") and "8 rails each" in head and "8 ×" not in head
    assert page.title().startswith("FAIL (simulated) · 64 nodes")
    assert page.locator("search").is_hidden()
    rows = page.locator("table.list.wide tbody tr").all_inner_texts()
    assert any("cable, switch port" in row and "on node17: rdma statistic" in row for row in rows)
    assert any("measure again, as below" in row for row in rows)  # of a switch
    texts = page.locator(".copies code").all_inner_texts()
    assert texts[0] == "--exclude='node[17,40,50]'"
    assert texts[-1] == f"wirespeed qualify --machine simulated:{CLUSTERS['fail']} --seed 1"
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    button = page.get_by_role("button", name="Copy: Exclude (Slurm)")
    button.click()
    assert page.evaluate("window.copied") == texts[0] and button.inner_text() == "Copied"
    if width > 1000:
        main, table = (page.locator(name).first.bounding_box()["width"] for name in ("main", "table.wide"))
        assert table > 0.9 * main
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    environment = page.locator("dl.environment").inner_text()
    assert "begun" in environment and "ended" in environment and "machine" not in environment.split("\n")
    assert not opened.complaints and not opened.requests


def test_a_hostile_name_is_not_run_when_it_is_pasted(failed):
    nodes = tuple(replace(node, name=f"{node.name}; rm -rf ~") for node in failed.qualification.nodes)
    text = wirespeed.render(replace(failed, qualification=replace(failed.qualification, nodes=nodes)), "html")
    begin = text.index('class="copies"')
    copied = html.unescape(text[begin : text.index("</dl>", begin)])
    assert "--exclude='node17; rm -rf ~,node40; rm -rf ~,node50; rm -rf ~'" in copied


def test_pages_of_several_are_refused_but_for_fleets(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [str(saved["pass"]), str(saved["fail"])]
    assert main(["report", *files, "-o", "x.html"]) == 2
    assert "not compared" in capsys.readouterr().err
    assert main(["report", "--fleet", "-o", "fleet.html", *files]) == 0
    assert "node17" in Path("fleet.html").read_text()


def test_runs_are_not_compared_with_them(saved, capsys):
    assert main(["compare", str(saved["pass"]), str(saved["fail"])]) != 0
    assert capsys.readouterr().err.count("\n") == 1


def test_a_baseline_does_not_fit(saved, tmp_path, capsys):
    run, baseline = tmp_path / "run.json", tmp_path / "baseline.toml"
    save(
        wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:dgx-a100-8", samples=2, copies=1),
        str(run),
    )
    assert main(["baseline", "make", str(run), "-o", str(baseline)]) == 0
    capsys.readouterr()
    code = main(["check", "--allow-simulated", "--baseline", str(baseline), str(saved["pass"])])
    assert code == 2 and "a qualification" in capsys.readouterr().err


@pytest.mark.parametrize("kind", STRINGS)
def test_hostile_names_are_inert(kind, failed):
    text = STRINGS[kind]
    found = failed.qualification
    nodes = tuple(
        replace(node, name=f"{text}{i}", block=text, model=text, missing=node.missing and text)
        for i, node in enumerate(found.nodes)
    )
    culprits = tuple(replace(culprit, block=text) for culprit in found.culprits)
    hostile = replace(
        failed, interrupted=text,
        qualification=replace(found, nodes=nodes, culprits=culprits, notes=(text,), transport=text),
    )  # fmt: skip
    control = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    for format in sorted(set(formats()) - set(WITHOUT)):
        shown = wirespeed.render(hostile, format)
        assert format == "json" or not re.search(control, shown)
        assert format not in ("html", "markdown") or "<img" not in shown
        if format == "html":
            assert "<script>window" not in shown
        if format == "junit":
            ET.fromstring(shown)
    for command in ("excluded", "chosen"):
        assert getattr(hostile.qualification, command)


def test_files_that_name_other_nodes_are_refused(saved, tmp_path, capsys):
    plain = json.loads(saved["fail"].read_text())
    plain["qualification"]["culprits"][0]["nodes"] = [64]
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(plain))
    assert main(["show", str(file)]) == 2
    assert "names another one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("slurm", "node[17,40,50]\n"),
        ("json", '{"exclude": ["node17", "node40", "node50"], "use": '),
        ("hostfile", "node0\nnode1\n"),
    ],
    ids=["slurm", "json", "hostfile"],
)
def test_lists_for_schedulers(format, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine = f"simulated:{CLUSTERS['fail']}"
    assert main(["qualify", "--machine", machine, "--exclude-format", format]) == 1
    assert capsys.readouterr().out.startswith(expected)
