"""``wirespeed check --format``, and gates from Python."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.judging.verdict import Verdict, share
from wirespeed.reports import Style, prometheus
from wirespeed.reports.html.headline import tile
from wirespeed.reports.values import GLANCE, number
from wirespeed.screens.check import render as render_check
from wirespeed.screens.one_line import brief_of_run
from wirespeed.units import GB

GATE = "host to GPU and back, H100 and H200"
CAUSE = "likely cause: a PCIe link runs at an older generation than the GPU (gpu1), 2 slow values; evidence: "


@pytest.fixture(scope="module")
def document() -> Document:
    return wirespeed.run(["0", "1"], machine="simulated:hgx-h200-2+gen4@gpu1", samples=3, copies=1)


@pytest.fixture
def path(document: Document, tmp_path: Path) -> str:
    wirespeed.save(document, tmp_path / "run.json")
    return str(tmp_path / "run.json")


def checked(capsys: pytest.CaptureFixture[str], format: str, *paths: str, code: int = 1) -> str:
    command = ["check", "--allow-simulated", "--gates", "azure", "--format", format, "--from", *paths]
    assert main(command) == code
    return capsys.readouterr().out


def test_gates_from_python(document: Document) -> None:
    compared = wirespeed.gates(document, "azure")
    assert (
        repr(compared).startswith("<GateComparison (simulated): azure; thresholds: 1 fail, ")
        and len(compared.failures) == 1
    )
    (failed,) = (one for one in compared.results if one.verdict == "fail")
    assert failed.gate.measures == GATE
    with pytest.raises(UsageError, match="known sets: aws, azure, dcgm, gcp, oci"):
        wirespeed.gates(document, "moon")


def test_json_has_the_documented_fields(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Path(path).with_name("broken.json")
    broken.write_text("{")
    found = json.loads(checked(capsys, "json", path, path, str(broken)))
    first, second, third = found["runs"]
    assert found["wirespeed_check"] == 1 and first == second and first["file"] == path
    assert list(third) != list(first) and set(third) == set(first) and third["verdict"] == "unreadable"
    assert third["file"] == str(broken) and "broken.json is not a saved run of wirespeed" in third["error"]
    assert first["verdict"] == "fail" and first["cells"] == {"fail": 2, "pass": 2} and first["simulated"]
    (cause,) = first["causes"]
    assert (cause["cause"], cause["place"], cause["likely"]) == ("pcie-generation", "gpu1", True)
    assert cause["evidence"] and cause["remedy"] and cause["confirm"] and cause["cells"] == 2
    (gate,) = (one for one in first["gates"] if one["verdict"] == "fail")
    assert gate["measures"] == GATE and gate["lowest"]["column"] == "gpu1" and gate["source"]
    (host,) = (one for one in first["paths"] if one["path"] == "host_gpu")
    assert host["verdict"] == "fail" and "gpu1" in host["where"]
    assert host["value"] < host["least"] < host["normal"] < host["limit"]
    text = (Path(__file__).parents[2] / "docs" / "reference" / "keys.md").read_text()
    for record in (found, first, cause, gate, host, first["values"][0], first["places"][0]):
        assert [name for name in record if f"`{name}`" not in text] == []


def test_junit_has_gates_and_causes(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    suite = ET.fromstring(checked(capsys, "junit", path))
    (gate,) = suite.iterfind(".//testcase[@classname='gates.azure']")
    assert gate.find("failure") is not None and (gate.get("name") or "").startswith(GATE)
    (cause,) = suite.iterfind(".//property[@name='cause']")
    assert (cause.get("value") or "").startswith(CAUSE)


def test_prometheus_has_gates_and_causes(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = checked(capsys, "prometheus", path)
    assert 'cause="pcie-generation",place="gpu1",likely="true"} 2.0' in text
    assert f'set="azure",measures="{GATE}",at_least="48 GB/s",verdict="fail"}} 1.0' in text


@pytest.mark.parametrize("format", ["markdown", "html", "text"])
def test_people_see_gates_and_causes(format: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = checked(capsys, format, path)
    assert GATE in text and "older generation than the GPU" in text


def test_a_report_of_a_run_that_was_not_checked_has_neither(document: Document) -> None:
    for format in ("markdown", "junit", "prometheus", "html"):
        text = wirespeed.render(document, format)
        assert GATE not in text
        assert "older generation" not in text or format in ("html", "markdown")  # they have causes


def test_markdown_for_an_issue_begins_with_the_cause_and_folds_tables(document: Document) -> None:
    lines = wirespeed.render(document, "markdown").splitlines()
    cause, fold = (
        next(i for i, line in enumerate(lines) if text in line) for text in (CAUSE[:20], "<details>")
    )
    table = next(i for i, line in enumerate(lines) if line.startswith("| GB/s"))
    assert cause < fold < table < lines.index("</details>") and lines[fold + 1] == ""
    one = wirespeed.render(document.only(document.testcases[0].name), "markdown")
    assert "<details>" not in one and "| GB/s" in one


def test_allowed_simulated_runs_pass_for_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "-t", "host_stream_copy", "--machine", "simulated:cpu-2-sockets", "--no-save"]
    outputs = {}
    for form in ("junit", "prometheus"):
        assert main([*command, "--allow-simulated", "--format", form]) == 0
        outputs[form] = capsys.readouterr().out
    assert 'skipped="0"' in outputs["junit"] and "SIMULATED" in outputs["junit"]
    assert 'simulated="true",verdict="pass"} 1.0' in outputs["prometheus"]
    document = wirespeed.run(["host_stream_copy"], machine="simulated:cpu-2-sockets")
    assert 'skipped="1"' in wirespeed.render(document, "junit")
    assert 'verdict="not judged"} 1.0' in wirespeed.render(document, "prometheus")


def measured(machine: str) -> Document:
    return wirespeed.run(tier="quick", machine=machine, samples=3, copies=1)


def test_one_fault_has_one_number_in_every_form() -> None:
    """The worst value, its place, and its share of what it should be: screen, tile, Nagios, Prometheus."""
    judged = Judged(measured("simulated:dgx-a100-8+pcie-width=8@gpu2"))
    figure = next(figure for figure in judged.overview.figures if figure.kind.name == "host_gpu")
    portion, value = str(share(figure.lead)), figure.lead.value or 0.0
    glance = number(value, GB, GLANCE)
    assert figure.worst is not None and figure.lead is figure.worst and "gpu2" in figure.place
    assert portion == str(judged.check.culprits[0].share) == str(share(judged.check.judgements[0]))
    screen = " ".join(render_check(judged, Style(100)).split())
    known = share(figure.lead)
    assert known is not None
    text = f"{portion} {number(known.whole, GB, GLANCE)} GB/s: {figure.place}; typical"
    assert f"{glance} GB/s" in screen and text in screen
    shown = tile(figure, "")
    assert shown.value == glance and shown.lines[0] == f"{portion}: {figure.place}"
    assert shown.lines[-1].startswith("typical ")
    assert f"host_gpu={value / GB:.4g}GB/s" in " ".join(brief_of_run(judged).figures)
    series = prometheus.part(judged, Style(80))
    (ratio,) = (r for labels, r in series["wirespeed_path_expected_ratio"] if labels["path"] == "host_gpu")
    (lowest,) = (
        r for labels, r in series["wirespeed_path_lowest_bytes_per_second"] if labels["path"] == "host_gpu"
    )
    assert lowest == figure.lead.value and f"{ratio:.0%} of expected" == portion
    assert [r for _, r in series["wirespeed_culprit_ratio"]] == [ratio]
    assert run_summary(judged).figures[0].worst == figure.lead.value


def test_a_kind_of_path_that_failed_leads_with_where_not_with_what_the_others_reach() -> None:
    judged = Judged(measured("simulated:dgx-a100-8+corrupt@gpu0->gpu3"))
    (figure,) = (figure for figure in judged.overview.figures if figure.kind.name == "gpu_gpu")
    assert figure.failed[0] == "gpu0 → gpu3" and figure.verdict is Verdict.FAIL
    screen = " ".join(render_check(judged, Style(120)).split())
    assert re.search(r"✖ GPU ↔ GPU failed \S+ gpu0 → gpu3 and \d+ more; others 1\d\d% of expected", screen)
    assert "gpu_gpu=UGB/s" in " ".join(brief_of_run(judged).figures)
    assert tile(figure, "").value == "failed"


def test_a_good_kind_of_path_shows_its_slowest_path() -> None:
    (figure, *_) = Judged(measured("simulated:dgx-a100-8")).overview.figures
    assert figure.worst is None and figure.lead is figure.slowest
    assert (figure.slowest.value or 0) < (figure.typical.value or 0)
