"""Markdown, JUnit, Prometheus and CSV are what those who read them expect."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from tests.conftest import still
from wirespeed.document import Status
from wirespeed.reports import Style
from wirespeed.reports.markdown import escaped
from wirespeed.reports.values import FOOTNOTES
from wirespeed.results.cells import placed

H200 = "simulated:hgx-h200-2"


@pytest.mark.parametrize("format", ["markdown", "junit", "prometheus", "plot"])
def test_text_of_a_recorded_run(recorded, golden, format):
    golden(f"two-h200/{format}.txt", wirespeed.render(recorded, format))


@pytest.mark.parametrize("format", ["markdown", "junit", "prometheus", "plot"])
def test_a_simulated_run_says_so_and_passes_nothing(format):
    text = wirespeed.render(wirespeed.run(["4"], machine=H200), format)
    assert "simulated" in text.lower()
    if format == "junit":
        assert ET.fromstring(text).get("skipped") == "1"
    if format == "prometheus":
        assert 'simulated="true",verdict="pass"} 0.0' in text and 'verdict="pass"} 1.0' not in text


def test_plots_of_curves_and_large_matrices(golden):
    curves = still(wirespeed.run(prefixes=["host_"], machine="simulated:cpu-2-sockets"))
    golden("cpu-2-sockets/plot.txt", wirespeed.render(curves, "plot"))
    many = wirespeed.run(["44"], machine="simulated:nvl72", samples=1, copies=1)
    text = wirespeed.render(many, "plot")
    assert max(map(len, text.splitlines())) <= 80
    assert sum(line.count("█") + line.count("▓") for line in text.splitlines()) >= 72 * 71
    colored = wirespeed.render(many, "plot", Style(color=True))
    assert "\x1b[38;5;16;48;5;228m" in colored


@pytest.mark.parametrize("width", [40, 80, 200])
def test_plots_fit_the_terminal(eight, width):
    for style in (Style(width), Style(width, color=True)):
        plain = wirespeed.render(eight, "plot", style)
        if not style.color:
            assert max(map(len, plain.splitlines())) <= width


def test_plots_show_outliers_first():
    machine = "simulated:dgx-a100-8+speed@gpu7=0.5"
    run = wirespeed.run(["host_to_device_memcpy_ce"], machine=machine, sizes="4KiB:256MiB:x16", samples=2)
    text = wirespeed.render(run, "plot")
    assert "A gpu7 (-" in text
    assert "B gpu0" in text
    assert "2 more curves, not drawn" in text


def test_markdown_tables_are_tables(recorded):
    lines = wirespeed.render(recorded, "markdown").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("|---")]
    assert len(starts) == 1 + sum(len(result.tables) for result in recorded.testcases)
    for i in starts:
        assert lines[i].count("|") == lines[i - 1].count("|") == lines[i + 1].count("|")


@pytest.mark.parametrize("format", ["markdown", "table"])
def test_marks_are_explained_below_the_table(recorded, format):
    result = recorded.testcases[0]
    plain = wirespeed.render(replace(recorded, testcases=(result,)), format)
    first, *others = result.tables[0].cells
    for mark, changes in (
        ("*", {"reason": "1.9 times the fastest of this phase"}),
        ("!", {"reason": "3 wrong elements", "wrong": 3}),
    ):
        table = replace(result.tables[0], cells=(replace(first, **changes), *others))
        text = wirespeed.render(replace(recorded, testcases=(replace(result, tables=(table,)),)), format)
        marked = [line for line in text.splitlines() if mark in line and line not in plain]
        assert len(marked) == 2, "the cell and its footnote"
        assert FOOTNOTES[mark] in (text.replace("\\", ""))
        assert "\\\\" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("[x](http://y)", r"\[x\](http\://y)"),
        ("# no\nheading", r"\# no heading"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("@somebody", "&#64;somebody"),
        ("`code` *b*", r"\`code\` \*b\*"),
        ("www.example.org", r"www\.example.org"),
        ("2026-11-21", "2026-11-21"),
        ("a_b_c", "a_b_c"),
        ("__a_b_", r"\_\_a_b\_"),
    ],
)
def test_markdown_shows_text_as_it_is(text, expected):
    assert escaped(text) == expected


def test_junit_says_what_failed():
    document = wirespeed.run(["0", "4", "44"], machine=f"{H200}+corrupt@gpu0->gpu1+speed@numa0->gpu0=0.4")
    suites = ET.fromstring(wirespeed.render(document, "junit"))
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    slow, wrong, waived = cases["host_to_device_memcpy_ce"], cases["device_to_device_memcpy_read_ce"], cases[
        "multinode_device_to_device_memcpy_read_ce"
    ]  # fmt: skip
    assert "below the expected range" in slow.find("failure").get("message")
    assert "wrong data" in wrong.find("failure").get("message")
    assert "two processes" in waived.find("skipped").get("message")
    assert (suites.get("tests"), suites.get("failures"), suites.get("skipped")) == ("3", "2", "1")


def test_junit_says_what_broke_off(recorded):
    broken = replace(recorded.testcases[0], status=Status.TIMED_OUT, reason="timed out after 1 s")
    document = replace(recorded, testcases=(broken,), interrupted="Ctrl-C")
    suites = ET.fromstring(wirespeed.render(document, "junit"))
    messages = [error.get("message") for error in suites.iter("error")]
    assert messages == ["timed out: timed out after 1 s", "run interrupted: Ctrl-C"]
    assert suites.get("errors") == "2"


def test_prometheus_has_every_value(recorded):
    text = wirespeed.render(recorded, "prometheus", Style(all_cells=True))
    families = {f.name: f for f in text_string_to_metric_families(text)}
    for family in families.values():
        assert family.type == "gauge" and family.documentation
        assert all(sample.timestamp is None for sample in family.samples)
    cells = [one for one in placed(recorded) if one.cell.value is not None]
    rates = families["wirespeed_bandwidth_bytes_per_second"].samples
    times = families["wirespeed_latency_seconds"].samples
    assert len(rates) + len(times) == len(cells)
    found = {tuple(sample.labels.values()): sample.value for sample in rates}
    one = cells[0]
    place = one.key.testcase, one.key.table, one.key.row, one.key.column
    assert found[recorded.machine.host or recorded.host, *place] == one.cell.value
    verdicts = families["wirespeed_cells"].samples
    assert sum(sample.value for sample in verdicts) == len(cells)
    run = {one.labels["verdict"]: one.value for one in families["wirespeed_verdict"].samples}
    assert sum(run.values()) == 1 and run[str(wirespeed.judge(recorded).verdict)] == 1


def test_csv_has_limits_and_places_on_curves():
    document = wirespeed.run(["device_to_device_sm_scaling"], machine=H200, samples=1)
    rows = list(csv.DictReader(io.StringIO(wirespeed.render(document, "csv"))))
    assert {float(row["at"]) for row in rows} >= {1.0, 132.0}
    assert all(float(row["limit"]) > 0 for row in rows)
