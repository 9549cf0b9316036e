"""``wirespeed check`` of many runs and folders: formats, unreadable files, groups, one screen, age."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.cli.check_files import worst
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.errors import ExitCode, UsageError
from wirespeed.features.fleet import screen as many_runs
from wirespeed.judging.criteria import Criteria, MaxAge
from wirespeed.judging.judged import Judged, unjudged
from wirespeed.judging.run_summary import RunSummary, SummaryFigure
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import Style
from wirespeed.reports.checked_runs import CheckedRun
from wirespeed.results import read_many as many_files
from wirespeed.results.read_many import Unreadable
from wirespeed.results.store import files_in, save
from wirespeed.screens import check_formats
from wirespeed.units import format_age, parse_age

CASES = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce"]
CHECK = ["check", "--allow-simulated"]


def measured(fault: str = "", seed: int = 0) -> Document:
    return wirespeed.run(CASES, machine=f"simulated:hgx-h200-2{fault}", samples=3, copies=1, seed=seed)


def named(document: Document, host: str, **changes: Any) -> Document:
    machine = dataclasses.replace(document.machine, host=host)
    return replace(document, host=host, machine=machine, **changes)


@pytest.fixture(scope="module")
def good() -> Document:
    return measured()


@pytest.fixture(scope="module")
def bad() -> Document:
    return measured("+nvlinks=9@gpu0")


#: What is said of the folder of the fixture.
LEFT_OUT = (
    "wirespeed: left out of runs: 1 deeper folder and 1 other file; only *.json files and logs are read\n"
)


@pytest.fixture
def folder(good: Document, bad: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good and a bad run, one of them in a folder below, a truncated one, and what is ignored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "runs" / "rack1" / "old").mkdir(parents=True)
    save(named(good, "node1"), "runs/node1.json")
    save(named(bad, "node2"), "runs/rack1/node2.json")
    save(named(bad, "node3"), "runs/rack1/old/deeper.json")
    save(named(bad, "node4"), "runs/.hidden.json")
    Path("runs/truncated.json").write_bytes(Path("runs/node1.json").read_bytes()[:999])
    Path("runs/notes.txt").write_text("not a run")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*CHECK, *words])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_folder_is_its_files_and_those_one_level_below(folder: Path) -> None:
    found = ["runs/node1.json", "runs/truncated.json", "runs/rack1/node2.json"]
    assert sorted(files_in(["runs"])[0]) == sorted(found)
    assert files_in(["a.json", "runs/rack1", "-"])[0] == [
        "a.json",
        "runs/rack1/node2.json",
        "runs/rack1/old/deeper.json",
        "-",
    ]
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match="neither the folder empty nor"):
        files_in(["empty"])


def test_what_is_left_out_of_a_folder_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/node5.JSON").write_text("{}")
    Path("runs/rack1/new").mkdir()
    Path("runs/rack1/older.json").mkdir()
    text = "left out of runs: 3 deeper folders and 2 other files; only *.json files and logs are read"
    assert files_in(["runs", "runs/node1.json", "-"])[1] == [text]
    for command in (["check", "--allow-simulated", "--from", "runs"], ["report", "runs", "-o", "page.html"]):
        main(command)
        assert f"wirespeed: {text}\n" in capsys.readouterr().err
    assert not files_in(["runs/rack1/old"])[1]
    Path("runs/rack1/old/deeper.json").rename("runs/rack1/old/deeper.JSON")
    reason = r"run or log \(left out of runs/rack1/old: 1 other file; only \*.json files and logs are read\)"
    with pytest.raises(UsageError, match=reason):
        files_in(["runs/rack1/old"])


@pytest.mark.parametrize("format", check_formats())
def test_every_format_has_all_runs_and_files(
    format: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "runs", "--format", format)
    assert (code, err) == (ExitCode.FAIL, LEFT_OUT)
    assert (
        "node2" in out and "truncated.json is not a saved run of wirespeed" in out
    ) or format == "prometheus"
    if format == "text":
        rows = re.findall(r"^(FAIL|ERROR|PASS) +(\S+)", out, re.M)
        assert rows == [("FAIL", "node2"), ("ERROR", "truncated.json"), ("PASS", "node1")]
        assert "3 runs: 1 FAIL, 1 ERROR, 1 PASS; -v" in out
    elif format == "json":
        verdicts = {one["file"]: one["verdict"] for one in json.loads(out)["runs"]}
        assert verdicts == {
            "runs/node1.json": "pass", "runs/rack1/node2.json": "fail", "runs/truncated.json": "unreadable"
        }  # fmt: skip
    elif format == "junit":
        suites = ET.fromstring(out)
        assert [one.get("hostname") for one in suites] == ["node1", "node2", None]
        assert (suites.get("errors"), suites.get("tests")) == ("1", "5")
        assert int(suites.get("failures") or 0) >= 1
    elif format == "markdown":
        rows = [line.split(" | ")[:2] for line in out.splitlines() if line.startswith("| ")]
        assert rows[1:] == [["| ERROR", "truncated.json"], ["| FAIL", "node2"]] or rows[1][0] == "| ERROR"
    elif format == "prometheus":
        families = {one.name: one.samples for one in text_string_to_metric_families(out)}
        assert {one.labels["host"] for one in families["wirespeed_verdict"] if one.value} == {
            "node1",
            "node2",
        }
        assert [one.labels for one in families["wirespeed_file_unreadable"]] == [
            {"file": "runs/truncated.json"}
        ]
    else:
        assert out.count("<tr ") == 2 and "1 file not shown" in out


def test_several_runs_of_a_host_are_told_apart(
    folder: Path, bad: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    save(named(bad, "node1"), "again.json")
    out = run(capsys, "runs/node1.json", "again.json", "--format", "prometheus")[1]
    found = [
        (one.labels["file"], one.labels["verdict"])
        for family in text_string_to_metric_families(out)
        for one in family.samples
        if one.name == "wirespeed_verdict" and one.value
    ]
    assert found == [("runs/node1.json", "pass"), ("again.json", "fail")]


def test_codes_of_many_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "runs/node1.json", "runs/truncated.json")[0] == ExitCode.RUN
    assert run(capsys, "runs/truncated.json", "none.json")[0] == ExitCode.RUN
    code, out, err = run(capsys, "runs/node1.json", "none.json", "-q")
    assert (code, out) == (ExitCode.RUN, "") and err.count("\n") == 1 and "cannot read none.json" in err
    assert run(capsys, "runs/node1.json", "runs/node1.json")[0] == ExitCode.PASS
    assert main(["check", "runs"]) == ExitCode.USAGE
    assert "refusing to check a simulated machine (runs/node1.json)" in capsys.readouterr().err
    assert worst([0, 3]) == 3 and worst([3, 4]) == 3 and worst([4, 5]) == 5 and worst([5, 1, 4]) == 1


def test_a_set_of_gates_must_fit_a_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gates.toml").write_text(
        '[[gate]]\nmodels = ["NVIDIA B200"]\nmeasures = "host to device"\n'
        'testcases = ["host_to_device_memcpy_ce"]\nat_least = "50 GB/s"\nsize = "1MiB"\nsource = "x"\n'
    )
    code, out, err = run(capsys, "runs/node1.json", "runs/rack1/node2.json", "--gates", "gates.toml")
    assert code == ExitCode.USAGE and not out and err.count("\n") == 1


def test_processes_find_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, names = ["runs", "runs", "runs"], check_formats()
    alone = [run(capsys, *words, "--format", name) for name in names]
    monkeypatch.setattr(many_files, "_DOCUMENTS_PER_PROCESS", 4)
    monkeypatch.setattr(many_files.os, "sched_getaffinity", lambda _: {0, 1})
    for name, found in zip(names, alone, strict=True):
        if name in ("text", "prometheus"):
            assert run(capsys, *words, "--format", name) == found


def nodes(
    count: int, verdict: Verdict = Verdict.PASS, sentence: str = "", first: int = 0
) -> list[CheckedRun]:
    figures = tuple(
        SummaryFigure(title, ("x",), 5e10, 2.5e10, int(verdict.is_failure))
        for title in ("host ↔ GPU", "GPU ↔ GPU", "GPU memory", "host memory", "all-reduce")
    )
    return [
        CheckedRun(
            RunSummary(
                f"{i}.json", f"node{i:03}", "", "8 x A", verdict, sentence, f"{i} normal", figures, {}, False,
                f"mend {sentence}" if sentence else "", sentence,
            ), (),
        )
        for i in range(first, first + count)
    ]  # fmt: skip


def test_equal_findings_are_one_group_and_500_runs_are_one_screen() -> None:
    many = nodes(440)
    many += nodes(31, Verdict.FAIL, "a PCIe link runs at reduced width (gpu3)", 440)
    many += nodes(9, Verdict.WARN, "NVLink gpu0-nvswitch runs at 93% of expected", 471)
    many += nodes(4, Verdict.FAIL, "a sentence " * 25, 480)
    broken = [Unreadable(f"folder/{i}.json", f"folder/{i}.json is empty") for i in range(16)]
    text = many_runs.render(many, Style(), broken)
    assert len(text.splitlines()) <= 23 and max(map(len, text.splitlines())) <= 80
    assert text.count("\n  a PCIe link runs at reduced width (gpu3)\n") == 1 and "node440, node441" in text
    assert text.count("mend a PCIe link runs at reduced width (gpu3)") == 1
    assert re.search(r"^FAIL  +node440", text, re.M) and re.search(r"^WARN  +node471", text, re.M)
    assert "ERROR  0.json" in text and "PASS  node" not in text
    assert "500 runs: 35 FAIL, 16 ERROR, 9 WARN, 440 PASS; -v shows" in text
    shown = len(re.findall(r"^(?:FAIL|WARN|ERROR) ", text, re.M))
    assert f"and {60 - shown} more that do not pass" in text
    whole = many_runs.render(many, Style(verbose=True), broken)
    assert len(re.findall(r"^(?:FAIL|WARN|PASS|ERROR) ", whole, re.M)) == 500
    assert "node440, node441" in whole and " and 20 more" not in whole


def test_500_runs_that_pass_are_one_line() -> None:
    assert many_runs.render(nodes(500), Style()) == "500 runs: 500 PASS; -v shows the screen of each\n"


def test_many_findings_are_counted() -> None:
    many = [one for i in range(40) for one in nodes(1, Verdict.FAIL, f"fault {i}", i)]
    text = many_runs.render(many, Style())
    assert len(text.splitlines()) <= 23 and re.search(r"^and \d+ more findings; -v shows all$", text, re.M)


def test_seeds_of_one_fault_are_one_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The measured share differs by a percent from run to run; the finding does not."""
    files = []
    for seed in range(6):
        files.append(str(tmp_path / f"{seed}.json"))
        save(named(measured("+speed@gpu0-gpu1=0.705", seed), f"node{seed}"), files[-1])
    code, out, _ = run(capsys, *files)
    assert code == ExitCode.FAIL and out.count("remedy: ") == 1
    assert "\nnode0, node1, node2, node3, node4, node5:\n  NVLink gpu0-gpu1" in out


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [("2d", 172800.0, "2 days"), ("12h", 43200.0, "12 hours"), ("90min", 5400.0, "90 minutes"),
     ("1d", 86400.0, "1 day"), ("1w", 604800.0, "7 days"), ("30s", 30.0, "30 s")],
)  # fmt: skip
def test_ages(text: str, seconds: float, shown: str) -> None:
    assert parse_age(text) == seconds and format_age(seconds) == shown


@pytest.mark.parametrize("text", ["2", "2y", "-1d", "0d", "d", "1e99d", ""])
def test_ages_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_age(text)


def test_a_run_that_is_too_old_is_not_judged(bad: Document, good: Document) -> None:
    document = replace(bad, ended="2026-11-20T12:00:00Z")
    now = 1795176000.0 + 86400.0  # a day later
    assert not MaxAge(2 * 86400, now).stale(document)
    why = MaxAge(2 * 86400, now + 86401).stale(document)
    assert why == "the run is older than 2 days (2026-11-20 12:00 UTC)"
    assert "future" in MaxAge(3600, now - 2 * 86400).stale(document)
    assert "unknown" in MaxAge(3600, now).stale(replace(bad, ended="", started=""))
    assert not MaxAge(3600, now).stale(replace(bad, ended="", started="2026-11-21T11:30:00Z"))
    failed = replace(good.testcases[0], status=Status.FAILED, reason="wrong data")
    for one in (document, replace(good, ended=document.ended, testcases=(failed, *good.testcases[1:]))):
        by = Criteria(max_age=MaxAge(3600, now))
        judged = Judged(one, by)
        assert judged.check.verdict == "unknown" and not judged.check.culprits and not judged.check.wrong
        assert not judged.diagnosis.findings and set(judged.check.testcases.values()) == {"unknown"}
        for form in ("junit", "prometheus", "markdown", "html"):
            text = wirespeed.render(judged, form, Style(checked=True))
            assert "<failure" not in text and "<error" not in text and 'verdict="fail"} 1' not in text
            assert form != "prometheus" or 'verdict="not judged"} 1.0' in text
            assert form != "html" or '<span class="word">NOT JUDGED</span>' in text
    assert not unjudged(judged.check, "x").doubts


def test_max_age_on_the_command_line(folder: Path, bad: Document, capsys: pytest.CaptureFixture[str]) -> None:
    save(named(bad, "node8", ended="2020-01-01T00:00:00Z"), "old.json")
    save(named(bad, "node9", ended="2020-01-02T00:00:00Z"), "older.json")
    code, out, _ = run(capsys, "old.json", "--max-age", "2d")
    assert code in (ExitCode.WARN, ExitCode.NOT_JUDGED) and "NOT JUDGED  the run is older than 2 days" in out
    assert "baseline" not in out  # of good machines: it would judge an old run as little
    code, out, _ = run(capsys, "old.json", "older.json", "runs/node1.json", "--max-age", "2d")
    assert (
        code in (ExitCode.WARN, ExitCode.NOT_JUDGED)
        and "node8, node9:\n  the run is older than allowed" in out
    )
    assert "3 runs: 2 NOT JUDGED, 1 PASS" in out and out.count("remedy: measure again") == 1
    assert run(capsys, "old.json", "older.json")[0] == ExitCode.FAIL
    new = ["--machine", "simulated:hgx-h200-2", "-t", "0", "--no-save", "--max-age", "1s"]
    assert run(capsys, *new)[0] == ExitCode.PASS  # however long it takes


@pytest.mark.parametrize("format", check_formats())
def test_hostile_names_are_harmless(
    format: str, good: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"a\x1b[31m\n<b>|{i}.json") for i in range(3)]
    for file in files[:2]:
        save(named(good, "\x1b]0;title\x07\u202e"), file)
    Path(files[2]).write_text("{")
    for more in ([], ["-v"]):
        code, out, _ = run(capsys, *files, "--format", format, *more)
        assert code == ExitCode.RUN
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out)
        assert "<b>" not in out or format in ("text", "json", "prometheus")
    if format == "prometheus":
        assert len(list(text_string_to_metric_families(out))) > 10


def test_thresholds_learned_from_the_fleet(good, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for i in range(6):
        save(named(good, f"node{i}"), str(tmp_path / f"node{i}.json"))
    slow = msgspec.to_builtins(named(good, "node6"))
    for result in slow["testcases"]:
        for table in result["tables"]:
            for cell in table["cells"]:
                if result["name"] == CASES[0]:
                    cell["value"] *= 0.95
                    cell["samples"] = [value * 0.95 for value in cell["samples"]]
    save(msgspec.convert(slow, Document), str(tmp_path / "node6.json"))
    assert run(capsys, str(tmp_path))[0] == ExitCode.PASS
    code, text, _ = run(capsys, "--fleet", str(tmp_path))
    assert code == ExitCode.WARN and "1 WARN, 6 PASS" in text
    assert re.search(r"WARN +node6", text) and "threshold learned from this fleet" in text
    assert "5% below the median of this fleet's nodes of its model" in " ".join(text.split())


def test_a_fleet_needs_runs_to_compare(folder, capsys):
    assert run(capsys, "--fleet", "runs/node1.json")[0] == ExitCode.USAGE
    assert main([*CHECK, "--fleet"]) == ExitCode.USAGE
    assert "requires 5 runs of one model" in run(capsys, "--fleet", "runs")[2]
