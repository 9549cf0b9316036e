"""Prometheus: the series of a node of eight GPUs, the alert rules and the dashboard, with promtool."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judged import Judged
from wirespeed.reports import Style
from wirespeed.reports.checked_runs import CheckedRun
from wirespeed.reports.prometheus import HELP, STATES, joined, part
from wirespeed.results.cells import placed
from wirespeed.results.store import save

INTEGRATIONS = Path(__file__).parents[2] / "integrations"
#: Set where the tests with promtool must not be skipped.
REQUIRED = "WIRESPEED_REQUIRE_PROMTOOL"
#: Metrics of reports of several runs, of published gates, and of all values.
ELSEWHERE = {
    "wirespeed_file_unreadable", "wirespeed_gate", "wirespeed_missing", "wirespeed_peer_access",
}  # fmt: skip
EVERY_VALUE = {
    "wirespeed_testcase_status", "wirespeed_bandwidth_bytes_per_second", "wirespeed_latency_seconds",
    "wirespeed_limit_bytes_per_second", "wirespeed_cells", "wirespeed_messages_per_second",
}  # fmt: skip

Series = dict[str, list[dict[str, str]]]


def measured(fault: str = "") -> Document:
    return wirespeed.run(machine=f"simulated:dgx-a100-8{fault}", tier="quick", samples=3, copies=1)


def real(document: Document) -> Document:
    """The run as if it had been measured: simulated ones prove nothing."""
    machine = dataclasses.replace(document.machine, simulated=False, host="node17")
    return replace(document, simulated=False, machine=machine, host="node17")


@pytest.fixture(scope="module")
def good() -> Document:
    return measured()


@pytest.fixture(scope="module")
def bad() -> Document:
    return measured("+nvlinks=6@gpu3")


def shown(document: Document | Judged, **style: Any) -> str:
    return wirespeed.render(document, "prometheus", Style(**style))


def values(text: str, name: str) -> dict[str, float]:
    """The values of a metric, by the labels other than the host."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == name else ():
            labels = {k: v for k, v in sample.labels.items() if k not in ("host", "simulated")}
            assert sample.timestamp is None
            found[" ".join(labels.values())] = sample.value
    return found


def verdict(text: str) -> str:
    (word,) = (word for word, value in values(text, "wirespeed_verdict").items() if value)
    return word


def test_a_node_of_eight_gpus_has_about_a_hundred_series(bad: Document) -> None:
    text = shown(bad)
    count = sum(not line.startswith("#") for line in text.splitlines())
    assert 80 <= count <= 120
    names = {family.name for family in text_string_to_metric_families(text)}
    assert names == set(HELP) - ELSEWHERE - EVERY_VALUE
    everything = shown(bad, all_cells=True)
    families = {family.name: family for family in text_string_to_metric_families(everything)}
    cells = [one for one in placed(bad) if one.cell.value is not None]
    of_values = EVERY_VALUE & set(families) - {"wirespeed_limit_bytes_per_second", "wirespeed_cells"}
    counts = {name: len(families[name].samples) for name in of_values}
    assert counts.pop("wirespeed_testcase_status") == len(bad.testcases)
    assert sum(counts.values()) == len(cells) > 1000
    assert set(text.splitlines()) < set(everything.splitlines())


def test_the_verdicts_of_run_devices_and_paths(good: Document, bad: Document) -> None:
    text = shown(real(bad))
    assert verdict(text) == "fail" and "simulated=" not in text
    assert set(values(text, "wirespeed_verdict")) == set(STATES)
    devices = values(text, "wirespeed_device_verdict")
    assert set(devices) == {
        "gpu3 fail",
        "numa0 pass",
        "numa1 pass",
        *(f"gpu{i} pass" for i in range(8) if i != 3),
    }
    paths = values(text, "wirespeed_path_verdict")
    assert {
        "gpu_gpu fail",
        "collectives fail",
        "host_gpu pass",
        "gpu_memory pass",
        "host_memory pass",
    } == set(paths)
    assert values(text, "wirespeed_path_bad_values")["gpu_gpu"] > 0
    median, lowest, limit = (
        values(text, f"wirespeed_path_{what}_bytes_per_second")["gpu_gpu"]
        for what in ("median", "lowest", "limit")
    )
    assert lowest < 0.6 * limit < median < limit
    share = values(text, "wirespeed_path_lowest_limit_ratio")["gpu_gpu"]
    assert share == pytest.approx(lowest / limit)
    at_devices = values(text, "wirespeed_device_lowest_bytes_per_second")
    assert at_devices["gpu3 gpu_gpu"] == lowest and at_devices["gpu3 host_gpu"] > 20e9
    assert len(at_devices) == 3 * 8 + 2
    text = shown(real(good))
    assert verdict(text) == "pass"
    assert {name.split()[-1] for name in values(text, "wirespeed_device_verdict")} == {"pass"}


@pytest.mark.parametrize(
    ("machine", "culprit", "failing"),
    [
        ("gh200-1+speed@gpu0-numa0=0.5", "C2C link gpu0-numa0", set()),
        ("hgx-h200-2+speed@gpu0-gpu1=0.8", "NVLink gpu0-gpu1", set()),
        ("hgx-h200-2+speed@gpu1=0.8", "gpu1", {"gpu1"}),
        ("dgx-a100-8+speed@gpu3-nvswitch=0.5", "NVLink gpu3-nvswitch", {"gpu3"}),
    ],
)
def test_a_device_fails_only_if_it_is_the_culprit(machine: str, culprit: str, failing: set[str]) -> None:
    """The healthy ends of a slow link between two devices do not fail; the culprit has a series."""
    document = real(wirespeed.run(machine=f"simulated:{machine}", tier="quick"))
    text = shown(document)
    assert verdict(text) == "fail"
    devices = values(text, "wirespeed_device_verdict")
    assert {name.split()[0] for name in devices if name.endswith(" fail")} == failing
    (found,) = values(text, "wirespeed_culprit_ratio").values()
    labels = series(text)["wirespeed_culprit_ratio"][0]
    assert labels["culprit"] == culprit and labels["of"] == "expected" and 0.4 < found < 0.9


def test_a_simulated_run_says_so_and_never_passes(good: Document) -> None:
    text = shown(good)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('simulated="true"' in line for line in lines)
    assert verdict(text) == "not judged" and 'verdict="pass"} 1.0' not in text


@pytest.mark.parametrize("change", ["status", "verify", "interrupted", "gates", "wrong data", "busy"])
def test_a_node_that_check_does_not_pass_never_looks_good(change: str, good: Document, bad: Document) -> None:
    from wirespeed.judging.gates import load

    document, gates, word = real(good), [], "fail"
    if change == "status":
        first = replace(document.testcases[0], status=Status.ERROR, reason="cuMemAlloc failed")
        document = replace(document, testcases=(first, *document.testcases[1:]))
    elif change == "verify":
        document, word = replace(document, options=document.options | {"verify": False}), "warn"
    elif change == "interrupted":
        first = replace(document.testcases[0], status=Status.INTERRUPTED, reason="Ctrl-C", tables=())
        document = replace(document, testcases=(first, *document.testcases[1:]), interrupted="Ctrl-C")
        word = "interrupted"
    elif change == "gates":
        gates = (load("azure"),)
        document = real(bad)
    elif change == "wrong data":
        document = real(measured("+corrupt@gpu3->gpu5"))
    else:
        document, word = real(measured("+busy@gpu1")), "busy"
    text = shown(Judged(document, Criteria(gates=gates)))
    assert verdict(text) == word
    devices = values(text, "wirespeed_device_verdict")
    if change == "wrong data":
        assert {"gpu3 fail", "gpu5 fail", "gpu0 pass"} <= set(devices)
    if change == "busy":
        assert {"gpu1 busy", "gpu0 pass"} <= set(devices)


def test_time_and_version(good: Document) -> None:
    text = shown(good)
    (info,) = values(text, "wirespeed_run_info")
    assert info.startswith(wirespeed.__version__)
    ended = replace(good, ended="2026-11-22T09:40:00Z")
    assert values(shown(ended), "wirespeed_run_end_timestamp_seconds") == {"": 1795340400.0}
    unknown = replace(good, ended="", started="")
    assert values(shown(unknown), "wirespeed_run_end_timestamp_seconds") == {"": 0.0}


def test_all_cells_are_on_request_everywhere(
    good: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "good.json"
    save(good, file)
    for command in (["show", str(file)], ["check", "--allow-simulated", str(file)]):
        few, all_ = [*command, "--format", "prometheus"], [*command, "--format", "prometheus", "--all-values"]
        counts = []
        for words in (few, all_):
            assert main(words) == 0
            counts.append(capsys.readouterr().out.count("\n"))
        assert counts[0] < 200 < 1000 < counts[1]
    for more, most in (([], 200), (["--all-values"], 5000)):
        assert main(["report", str(file), "-o", str(tmp_path / "x.prom"), *more]) == 0
        assert most / 10 < (tmp_path / "x.prom").read_text().count("\n") < most


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None and not os.environ.get(REQUIRED):
        pytest.skip("there is no promtool; Debian's package is called prometheus")
    assert found, f"{REQUIRED} is set, and there is no promtool"
    return found


def run_of(file: str, document: Document, style: Style) -> CheckedRun:
    judged = Judged(document, file=file)
    return CheckedRun.of(judged, part(judged, style))


def test_promtool_finds_nothing_wrong_with_the_metrics(promtool: str, good: Document, bad: Document) -> None:
    from wirespeed.results.read_many import Unreadable

    runs = [run_of("a.json", good, Style(all_cells=True)), run_of("b.json", bad, Style())]
    for text in (shown(bad), joined(runs, [Unreadable('c".json', "broken")], Style())):
        done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_alerts(promtool: str) -> None:
    folder = INTEGRATIONS / "prometheus"
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool, *words], cwd=folder, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr


def series(text: str) -> Series:
    """The labels of all series, by metric."""
    return {
        family.name: [dict(sample.labels) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((INTEGRATIONS / "grafana" / "wirespeed.json").read_text())
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard, and its legend."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def alerts() -> list[str]:
    text = (INTEGRATIONS / "prometheus" / "alerts.yml").read_text()
    return re.findall(r"^ +expr: (.+)$", text, re.M)


def checked(expression: str, known: Series) -> None:
    """Fail if a metric or a label of an expression is unknown, or a fixed label never has this value."""
    names = re.findall(r"\bwirespeed_\w+", expression)
    assert names, expression
    for name, selector in re.findall(r"\b(wirespeed_\w+)(?:\{(.*?)\})?", expression):
        assert name in known, f"{name} in {expression}"
        for label, operator, value in re.findall(r'(\w+)(=~|!~|!=|=)"(.*?)"', selector):
            values = {one.get(label) for one in known[name]}
            assert None not in values, f"{label} of {name} in {expression}"
            if operator in ("=", "!=") and "$" not in value:
                assert value in values | set(STATES), f'{label}="{value}" of {name} in {expression}'
    for grouped in re.findall(r"\b(?:by|without) \((.*?)\)", expression):
        for label in re.findall(r"\w+", grouped):
            assert all(label in one for name in names for one in known[name]), f"{label} in {expression}"


@pytest.fixture(scope="module")
def output(bad: Document) -> str:
    """What `check` of a failing node and of a broken file prints."""
    from wirespeed.results.read_many import Unreadable

    lost = measured("+gone@gpu5")
    made = [run_of("bad.json", real(bad), Style()), run_of("lost.json", real(lost), Style())]
    made.append(run_of("p2p.json", real(wirespeed.p2p("simulated:rtx4090-2+dropped@gpu0->gpu1")), Style()))
    return joined(made, [Unreadable("broken.json", "broken")], Style())


def test_the_queries_use_what_is_there(output: str) -> None:
    known = series(output)
    found = list(queries())
    assert len(found) > 12
    for expression in [*alerts(), *(expression for expression, _ in found)]:
        checked(expression, known)
    for expression, legend in found:
        (first, *_) = re.findall(r"\bwirespeed_\w+", expression)
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            assert all(label in one for one in known[first]), f"{label} of the legend of {expression}"
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert (
                all(label in one for one in known[name])
                and variable["definition"] == variable["query"]["query"]
            )
    used = {name for expression, _ in found for name in re.findall(r"\bwirespeed_\w+", expression)}
    assert used >= set(HELP) - EVERY_VALUE - {"wirespeed_gate"}  # nothing is exported that nobody sees


def test_wrong_queries_are_noticed(output: str) -> None:
    known = series(output)
    for wrong in (
        "wirespeed_verdicts", 'wirespeed_verdict{node="a"}', 'wirespeed_verdict{verdict="bad"}',
        "sum by (device) (wirespeed_verdict)", "up",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            checked(wrong, known)


def test_prometheus_answers_each_query_of_the_dashboard(promtool: str, output: str, tmp_path: Path) -> None:
    """Each query becomes a rule that alerts if it has a result; the series are those of a failing node."""
    inputs = [
        {"series": line.rpartition(" ")[0], "values": f"{float(line.rpartition(' ')[2]):.0f}x5"}
        for line in output.splitlines() if not line.startswith("#")
    ]  # fmt: skip
    rules, expected = [], []
    for i, (expression, _) in enumerate(queries()):
        filled = expression.replace("$host", ".*").replace("$path", ".*")
        rules.append({"alert": f"Query{i}", "expr": f"count({filled}) > 0"})
        expected.append({"alertname": f"Query{i}", "eval_time": "2m", "exp_alerts": [{"exp_labels": {}}]})
    # JSON is YAML.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": expected}
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
