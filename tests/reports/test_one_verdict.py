"""Every view of a run shows the same verdict, whatever its state, and the exit code follows it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.cli.measuring import measured_code
from wirespeed.document import Document, Status
from wirespeed.errors import ExitCode
from wirespeed.features.fleet import screen as many_runs
from wirespeed.features.fleet.page import fleet_page
from wirespeed.hardware.facts import Fact, Known
from wirespeed.hardware.topology import Machine
from wirespeed.judging import diagnosis as diagnosing
from wirespeed.judging import judge as judging
from wirespeed.judging import overview as summing
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.gates import load as load_gates
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import Style
from wirespeed.reports.checked_runs import CheckedRun
from wirespeed.reports.html.notebook import notebook_html
from wirespeed.results import overrides
from wirespeed.screens import check as check_screen
from wirespeed.screens import doctor as doctor_screen

H200 = "simulated:hgx-h200-2"
A100 = "simulated:dgx-a100-8"
PAIRS, HOST = "device_to_device_memcpy_read_ce", "host_to_device_memcpy_ce"
_WORDS = "|".join(sorted({verdict.word.upper() for verdict in Verdict}, key=len, reverse=True))


def measured(
    *testcases: str, machine: str | Machine = H200, verify: bool = True, size: str | None = None
) -> Document:
    return wirespeed.run(testcases, machine=machine, samples=3, verify=verify, size=size)


def interrupted() -> Document:
    document = measured(HOST, PAIRS)
    first, second = document.testcases
    (table,) = second.tables
    lost = replace(table.cells[1], value=None, statistics=None, samples=(), reason="Ctrl-C")
    table = replace(table, cells=(table.cells[0], lost, *table.cells[2:]))
    ended = replace(second, status=Status.INTERRUPTED, reason="Ctrl-C", tables=(table,))
    return replace(document, testcases=(first, ended), interrupted="Ctrl-C")


def without_peers() -> Machine:
    """A machine one of whose eight GPUs has no peers."""
    machine = wirespeed.machine(A100)
    gpus = tuple(
        dataclasses.replace(gpu, peers=() if gpu.index == 3 else tuple({*gpu.peers} - {"gpu3"}))
        for gpu in machine.gpus
    )
    return dataclasses.replace(machine, gpus=gpus)


def without_driver() -> Document:
    """A machine with a GPU on the bus, and no driver: only its host memory is measured."""
    document = measured("host_stream_triad", machine="simulated:cpu-2-sockets")
    known = {Known.GPUS_ON_BUS: ("0000:01:00.0",), Known.DRIVER_LOADED: "off"}
    facts = [*document.facts, *(Fact(name, value) for name, value in known.items())]
    facts.append(Fact(Known.GPUS_OF_DRIVER, reason="NVML is not there"))
    return replace(document, facts=tuple(facts))


@dataclass(frozen=True)
class State:
    """A state of a run, and the verdict on it; with what its values are judged by."""

    document: Callable[[], Document]
    verdict: Verdict
    data: str = "data verified"
    gates: tuple[str, ...] = ()
    overrides: str = ""
    options: list[str] = field(default_factory=list)


ACCEPT = f'[[override]]\ntestcase = "{PAIRS}"\nreason = "known"\n'
STATES = {
    "pass": State(lambda: measured(HOST, PAIRS), Verdict.PASS),
    "warn": State(lambda: measured(PAIRS, machine=f"{A100}+speed@gpu3-nvswitch=0.88"), Verdict.WARN),
    "defect": State(lambda: measured(HOST, machine=f"{A100}+nvlinks=6@gpu3"), Verdict.WARN),
    "fail": State(lambda: measured(PAIRS, machine=f"{H200}+speed@gpu0-gpu1=0.5"), Verdict.FAIL),
    "implausible": State(lambda: measured(PAIRS, machine=f"{H200}+speed@gpu0-gpu1=3"), Verdict.FAIL),
    "busy": State(lambda: measured(PAIRS, machine=f"{H200}+busy@gpu1"), Verdict.BUSY),
    "unknown": State(lambda: measured(HOST, size="64KiB"), Verdict.NOT_JUDGED),
    "a kind of path unknown": State(
        lambda: measured(HOST, "device_local_copy", size="16MiB"), Verdict.NOT_JUDGED
    ),
    "a kind of path busy": State(lambda: measured(HOST, PAIRS, machine=f"{A100}+busy@gpu1"), Verdict.BUSY),
    "a busy CPU": State(
        lambda: measured(
            HOST,
            "host_stream_copy",
            "host_bandwidth_ladder",
            machine=f"{H200}+busy@numa0+speed@numa0-numa0=0.4",
        ),
        Verdict.PASS,
    ),
    "a GPU without peers": State(lambda: measured(HOST, machine=without_peers()), Verdict.FAIL),
    "some unknown": State(lambda: measured(HOST, "device_to_device_sm_scaling"), Verdict.PASS),
    "interrupted": State(interrupted, Verdict.INTERRUPTED),
    "unverified": State(lambda: measured(PAIRS, verify=False), Verdict.WARN, "data not verified"),
    "wrong data": State(
        lambda: measured(PAIRS, machine=f"{H200}+corrupt@gpu1->gpu0"),
        Verdict.FAIL,
        "wrong data",
    ),
    "error": State(lambda: measured(HOST, PAIRS, machine=f"{H200}+error"), Verdict.FAIL),
    "memory in use": State(lambda: measured(HOST, machine=f"{H200}+full@gpu0"), Verdict.BUSY),
    "out of memory": State(
        lambda: replace(
            document := measured(HOST, machine=f"{H200}+full@gpu0"),
            testcases=tuple(replace(one, busy={}) for one in document.testcases),
        ),
        Verdict.NOT_JUDGED,
    ),
    "nothing measured": State(lambda: measured(PAIRS, machine="simulated:cpu-2-sockets"), Verdict.NOT_JUDGED),
    "all overridden": State(
        lambda: measured(PAIRS, machine=f"{H200}+speed@gpu0-gpu1=0.5"), Verdict.NOT_JUDGED, overrides=ACCEPT
    ),
    "failed gate": State(
        lambda: measured(PAIRS, machine=f"{A100}+speed@gpu3-nvswitch=0.8"), Verdict.FAIL, gates=("azure",)
    ),
    "GPU gone": State(lambda: measured(HOST, machine=f"{A100}+gone@gpu3"), Verdict.FAIL),
    "no driver": State(without_driver, Verdict.WARN),
    "no gate compared": State(lambda: measured(HOST), Verdict.NOT_JUDGED, gates=("aws",)),
}


@dataclass(frozen=True)
class Case:
    """A state with its run, judged."""

    state: State
    document: Document
    judged: Judged
    file: Path
    options: list[str]

    @property
    def style(self) -> Style:
        return Style(width=100, checked=True)

    def shown(self, form: str) -> str:
        return wirespeed.render(self.judged, form, self.style)


@pytest.fixture(scope="module", params=STATES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    state, folder = STATES[request.param], tmp_path_factory.mktemp("state")
    document, file, options = state.document(), folder / "run.json", ["--allow-simulated"]
    wirespeed.save(document, file)
    accepted: tuple[overrides.Override, ...] = ()
    if state.overrides:
        (folder / "known.toml").write_text(state.overrides)
        accepted = overrides.load(folder / "known.toml")
        options += ["--overrides", str(folder / "known.toml")]
    options += [f"--gates={name}" for name in state.gates]
    judged = Judged(document, Criteria(accepted, gates=tuple(load_gates(name) for name in state.gates)))
    return Case(state, document, judged, file, options)


def words(text: str, pattern: str) -> str:
    """Return the verdict that a line of a text begins with, in lower case."""
    (found,) = re.findall(pattern.replace("WORD", f"({_WORDS})"), text, re.M)
    return str(found).lower()


class Classes(HTMLParser):
    """Texts of the elements of a page, by class."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self._classes: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "span":
            self._classes.append((dict(attrs).get("class") or "").split())

    def handle_endtag(self, tag: str) -> None:
        if tag == "span" and self._classes:
            self._classes.pop()

    def handle_data(self, data: str) -> None:
        for name in self._classes[-1] if self._classes else ():
            self.texts.setdefault(name, []).append(data)


def test_the_verdict_on_the_run(case: Case) -> None:
    """Each format and screen, parsed."""
    check, verdict = case.judged.check, case.state.verdict
    assert check.verdict is verdict
    node = run_summary(case.judged)
    doctor = doctor_screen.render(case.judged, case.style)
    (run,) = json.loads(case.shown("json"))["runs"]
    suite = ET.fromstring(case.shown("junit"))
    (junit,) = suite.iterfind("testsuite/properties/property[@name='verdict']")
    (state,) = re.findall(
        r'^wirespeed_verdict\{.*verdict="([^"]+)".*\} 1\.0$', case.shown("prometheus"), re.M
    )
    rows = list(csv.DictReader(io.StringIO(case.shown("csv"))))
    assert state == ("not judged" if verdict is Verdict.PASS else verdict.word)  # simulated
    found = {
        "table": words(case.shown("table"), r"^WORD  \d"),
        "plot": words(case.shown("plot"), r"^WORD  \d"),
        "markdown": words(case.shown("markdown"), r"^\*\*WORD\*\*: "),
        "markdown, closing": words(case.shown("markdown"), r"^WORD  \d"),
        "check": words(
            check_screen.render(case.judged, case.style),
            r"^WORD  [a-zN0-9P]",
        ),
        "doctor": words(doctor, r"^WORD  "),
        "nodes": words(many_runs.render([CheckedRun(node, ())], case.style), r"^WORD  "),
        "page": Classes(case.shown("html")).texts["word"][0].lower(),
        "page of nodes": Classes(fleet_page([node])).texts["word"][0].lower(),
        "repr": re.findall(r": ([a-z ]+); values: ", repr(check))[0],
        "JUnit": Verdict(junit.get("value") or "").word,
        "JSON": Verdict(run["verdict"]).word,
        **{f"CSV, row {i}": Verdict(row["run_verdict"]).word for i, row in enumerate(rows)},
    }
    if not case.options[1:]:  # without other criteria
        found["notebook"] = Classes(notebook_html(case.document)).texts["word"][0].lower()
    assert found == dict.fromkeys(found, verdict.word)


def test_the_verdicts_on_testcases(case: Case) -> None:
    check = case.judged.check
    expected = {name: verdict.word for name, verdict in check.testcases.items()}
    (run,) = json.loads(case.shown("json"))["runs"]
    suite = ET.fromstring(case.shown("junit"))
    rows = csv.DictReader(io.StringIO(case.shown("csv")))
    cases = [one for one in suite.iter("testcase") if one.get("name") in expected]
    headings = re.findall(r"^## (.+?): ([a-z ]+)", case.shown("markdown"), re.M)
    found = {
        "JSON": {name: Verdict(word).word for name, word in run["testcases"].items()},
        "CSV": {row["testcase"]: Verdict(row["testcase_verdict"]).word for row in rows},
        "JUnit": {
            str(one.get("name")): Verdict(str(of.get("value"))).word
            for one in cases
            for of in one.iterfind("properties/property[@name='verdict']")
        },
    }
    assert found == dict.fromkeys(found, expected)
    assert all(expected[name.replace("\\", "")] == word for name, word in headings)
    assert all(any(word == name for name, _ in headings) for word in expected) or not headings
    for one in cases:
        is_bad = one.find("failure") is not None or one.find("error") is not None
        assert is_bad is check.testcases[str(one.get("name"))].is_failure
        if not check.testcases[str(one.get("name"))].is_judged:
            assert one.find("skipped") is not None


def test_no_view_calls_what_was_judged_passed(case: Case) -> None:
    for form in ("table", "plot", "markdown", "csv", "junit", "html"):
        assert not re.search(r"\bpassed\b", case.shown(form)), form
    for screen in (
        check_screen.render(case.judged, case.style),
        doctor_screen.render(case.judged, case.style),
        case.shown("json"),
    ):
        assert "passed" not in screen


def test_whether_data_was_verified_is_its_own_word(case: Case) -> None:
    checked = check_screen.render(case.judged, case.style)
    if not any(table.values() for one in case.document.testcases for table in one.tables):
        assert "data verified" not in checked + case.shown("table") + case.shown("html")
        return  # nothing was verified
    data = case.state.data
    for form in ("table", "plot", "markdown", "html"):
        assert f" · {data}" in case.shown(form), form
    assert f'name="data" value="{data}"' in case.shown("junit")
    assert f" · {data}" in " ".join(checked.split())
    (run,) = json.loads(case.shown("json"))["runs"]
    assert run["data"] == data
    rows = csv.DictReader(io.StringIO(case.shown("csv")))
    measured = [row["data"] for row in rows if row["value"] and row["testcase_verdict"] == "pass"]
    assert set(measured) <= {data}


def test_the_exit_code_follows(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = case.state.verdict
    assert main(["check", *case.options, str(case.file)]) == verdict.exit_code
    assert main(["check", *case.options, str(case.file), str(case.file)]) == verdict.exit_code
    failed = wirespeed.judge(case.document).verdict.is_failure
    values = any(table.values() for one in case.document.testcases for table in one.tables)
    expected = ExitCode.FAIL if failed else ExitCode.PASS if values else ExitCode.NOT_JUDGED
    assert measured_code(Judged(case.document)) == expected
    if not case.options[1:]:
        passes = verdict is Verdict.PASS  # nothing simulated passes
        assert main(["doctor", str(case.file)]) == (ExitCode.NOT_JUDGED if passes else verdict.exit_code)
    capsys.readouterr()


def test_every_verdict_has_its_code() -> None:
    codes = {verdict: verdict.exit_code.value for verdict in Verdict}
    assert codes == {
        Verdict.IMPLAUSIBLE: 1, Verdict.FAIL: 1, Verdict.WARN: 3, Verdict.BUSY: 4, Verdict.INTERRUPTED: 4,
        Verdict.NOT_JUDGED: 4, Verdict.PASS: 0, Verdict.WAIVED: 4,
    }  # fmt: skip


def test_the_worst_run_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of which nothing is known is not hidden by one that passes."""
    files = {name: tmp_path / f"{name}.json" for name in ("pass", "unknown", "warn", "fail")}
    for name, file in files.items():
        wirespeed.save(STATES[name].document(), file)
    for names, code in (
        (("pass", "unknown"), 4), (("pass", "unknown", "warn"), 3), (("pass", "unknown", "warn", "fail"), 1),
    ):  # fmt: skip
        assert main(["check", "--allow-simulated", *(str(files[name]) for name in names)]) == code
    capsys.readouterr()


def test_diagnoses_are_of_the_same_check() -> None:
    document = STATES["fail"].document()
    assert diagnose(document) == diagnose(document, wirespeed.judge(document))


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--machine", H200, "--tier", "quick", "--no-save"],
        ["run", "--machine", H200, "-t", "0", "--no-save", "--json"],
        ["check", "--machine", H200, "-t", "0", "--no-save", "--allow-simulated"],
        ["check", "RUN", "--allow-simulated", "--for", "slurm"],
        ["doctor", "RUN", "--for", "slurm"],
        *(["show", "RUN", "--format", form] for form in ("table", "csv", "html", "prometheus")),
        ["report", "RUN", "-o", "OUT", "--format", "html"],
    ],
    ids=" ".join,
)
def test_a_command_judges_a_run_once(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wirespeed.save(measured(HOST), tmp_path / "run.json")
    files = {"RUN": str(tmp_path / "run.json"), "OUT": str(tmp_path / "out")}
    calls: list[str] = []

    def counted(module: ModuleType, name: str) -> None:
        of = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: (calls.append(name), of(*given))[1])

    counted(judging, "judge")
    counted(diagnosing, "diagnose")
    counted(summing, "overview")
    main([files.get(word, word) for word in command])
    assert "judge" in calls and len(set(calls)) == len(calls)
    capsys.readouterr()
