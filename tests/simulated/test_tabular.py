"""What every result of a public function offers: one line, a notebook's table, a data frame."""

from __future__ import annotations

import dataclasses
import html.parser
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

import wirespeed
from tests.reports.test_hostile import STRINGS, spoiled
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import ExitCode, MissingPackage, UsageError
from wirespeed.features.history.history_file import add
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Axis
from wirespeed.reports.html.notebook import _text
from wirespeed.reports.records import TIMES
from wirespeed.results.cells import Key
from wirespeed.tables import Cell
from wirespeed.terminal import Tabular

SLOW, GOOD = "simulated:dgx-a100-8+nvlinks=6@gpu3", "simulated:dgx-a100-8"
MATRIX, CASES = "device_to_device_memcpy_read_ce", ("0", "host_latency", "all_reduce")


def run(machine: str, *cases: str) -> Document:
    return wirespeed.run([MATRIX, *cases], machine=machine, samples=3, copies=1)


@pytest.fixture(scope="module")
def document() -> Document:
    return run(SLOW, *CASES, "device_to_device_sm_scaling", "host_to_device_memcpy_sm")


@pytest.fixture(scope="module")
def results(document: Document) -> dict[str, Any]:
    """A result of each kind, and those that are empty."""
    good, check = run(GOOD, *CASES), wirespeed.judge(document)
    empty = wirespeed.described(SLOW)
    return {
        "document": document,
        "matrix": document.only(MATRIX),
        "curves": document.only("device_to_device_sm_scaling"),
        "latencies": document.only("host_latency"),
        "one row": document.only("host_to_device_memcpy_ce"),
        "empty document": empty,
        "check": check,
        "empty check": wirespeed.judge(empty),
        "diagnosis": wirespeed.diagnose(document, check),
        "empty diagnosis": wirespeed.diagnose(good),
        "gates": wirespeed.gates(document, "azure", check),
        "comparison": wirespeed.compare(good, document),
        "baseline": wirespeed.baseline([good]),
        "judged": wirespeed.check([MATRIX], machine=SLOW, samples=3, copies=1),
        "block map": wirespeed.blocks(sizes="4KiB,1MiB", blocks="16,1024", machine="simulated:hgx-h200-2"),
        "peer access": wirespeed.p2p("simulated:rtx5090-4+acs"),
        "history": wirespeed.history([good, document]),
        "qualified": wirespeed.qualify("simulated:dgx-a100-8x8+nic=0.5@node3.2"),
        "machine": wirespeed.machine(SLOW),
        "empty machine": wirespeed.Machine("nothing"),
        "transfers": wirespeed.transfer("gpu0 -> gpu1; latency gpu0 <- gpu1", machine=SLOW, samples=3),
        "bandwidth": wirespeed.memory_bandwidth(machine=SLOW, samples=3),
        "bandwidth curve": wirespeed.memory_bandwidth_scaling("1MiB:64MiB:x4", machine=SLOW, samples=3),
        "bandwidth pairs": wirespeed.p2p_bandwidth_all(machine=SLOW, samples=3),
        "bandwidth theory": wirespeed.theoretical_memory_bandwidth(machine=SLOW),
    }  # fmt: skip


NAMES = (
    "document", "matrix", "curves", "latencies", "one row", "empty document", "check", "empty check",
    "diagnosis", "empty diagnosis", "gates", "comparison", "baseline", "history", "machine", "empty machine",
    "transfers", "bandwidth", "bandwidth curve", "bandwidth pairs", "bandwidth theory",
)  # fmt: skip
#: Results with equal columns.
TWINS = {
    "empty document": "document", "empty check": "check", "empty diagnosis": "diagnosis",
    "empty machine": "machine", "transfers": "document", "bandwidth pairs": "document",
}  # fmt: skip
#: Hostile texts.
EVIL = {
    "all": "".join(text for name, text in STRINGS.items() if name not in ("long", "words"))
    + " $x^2$ $\\frac{1$",
    "long": STRINGS["long"],
}


class Markup(html.parser.HTMLParser):
    """Elements of a text, which must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] = self.found.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_public_function_returns_something_of_this_kind() -> None:
    """Or a text, a number or nothing."""
    others = {str, int, None}
    public = {name: getattr(wirespeed, name) for name in wirespeed.__all__}
    for name, function in public.items():
        if inspect.isfunction(function):
            found = eval(function.__annotations__["return"], public | vars(sys.modules[function.__module__]))
            assert found in others or issubclass(found, Tabular), name


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_one_short_line(results: dict[str, Any], name: str) -> None:
    text = repr(results[name])
    assert text.startswith("<") and text.endswith(">") and "\n" not in text and 15 < len(text) <= 100
    assert ("simulated" in text.lower()) == (name != "empty machine")


def test_the_parts_of_results_are_lines_too(results: dict[str, Any]) -> None:
    document, check = results["document"], results["check"]
    result = document.testcases[0]
    table = result.tables[0]
    parts = (
        result, table, table.cells[0], check.judgements[0], results["diagnosis"].findings[0],
        results["diagnosis"].findings[0].cause, results["gates"].results[0], results["comparison"].changes[0],
        wirespeed.TESTCASES[0],
    )  # fmt: skip
    texts = [repr(part) for part in parts]
    assert all(text.startswith("<") and "\n" not in text and len(text) <= 100 for text in texts), texts
    assert texts[0] == f"<TestcaseResult {MATRIX}: measured, 1 table with 56 cells>"
    assert repr(wirespeed.RunOptions(size="64MiB", samples=5)) == "RunOptions(size=67108864, samples=5)"


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_show_tables_without_scripts_and_links(results: dict[str, Any], name: str) -> None:
    text = results[name]._repr_html_()
    markup = Markup(text)
    assert not markup.found.keys() & {"script", "a", "img", "iframe", "link", "object", "form"}
    assert "id" not in markup.attributes and not any(one.startswith("on") for one in markup.attributes)
    assert markup.found["style"] == 1 and len(text) < 60_000
    assert ("table" in markup.found) == (not name.startswith("empty"))
    assert ("SIMULATED" in markup.text) == (name != "empty machine")


def test_a_notebook_shows_the_verdict_its_cause_and_the_slow_cells(results: dict[str, Any]) -> None:
    text = Markup(results["document"]._repr_html_()).text
    assert "FAIL NVLinks are down (gpu3)" in text
    assert re.search(r"5\d% of expected 249 GB/s: gpu\d → gpu\d; typical 27\d", text)
    assert results["matrix"]._repr_html_().count('class="w4 bad"') == 14
    assert "✖ fail" in Markup(results["check"]._repr_html_()).text
    assert "nvidia-smi nvlink" in Markup(results["diagnosis"]._repr_html_()).text
    assert "✖ worse" in Markup(results["comparison"]._repr_html_()).text
    large = wirespeed.compare(results["document"], results["document"])
    assert len(large.changes) > 40 and "to_pandas() has all" in large._repr_html_()


def test_tables_that_nobody_reads_are_described(document: Document) -> None:
    result = document.only(MATRIX).testcases[0]
    axis = Axis("GPU", tuple(f"gpu{i}" for i in range(24)))
    cells = tuple(Cell(i, j, 1e9) for i in range(24) for j in range(24) if i != j)
    table = msgspec.structs.replace(result.tables[0], rows=axis, columns=axis, cells=cells)
    large = msgspec.structs.replace(document, testcases=(msgspec.structs.replace(result, tables=(table,)),))
    text = large._repr_html_()
    assert "552 values: lowest" in text and len(text) < 10_000


@pytest.fixture(scope="module", params=EVIL)
def hostile(request: pytest.FixtureRequest, document: Document) -> Document:
    small = document.only(MATRIX, "host_to_device_memcpy_ce", "device_to_device_sm_scaling")
    return spoiled(small, EVIL[request.param])


def near(document: Document) -> Document:
    """Return a Document whose values agree, as those of a baseline must."""
    return msgspec.structs.replace(document, testcases=document.testcases[1:2])


FORMS: dict[str, Callable[[Document], Any]] = {
    "document": lambda one: one,
    "check": wirespeed.judge,
    "diagnosis": wirespeed.diagnose,
    "gates": lambda one: wirespeed.gates(one, "azure"),
    "comparison": lambda one: wirespeed.compare(one, one),
    "baseline": lambda one: wirespeed.baseline([near(one)]),
    "machine": lambda one: one.machine,
    "transfers": wirespeed.Transfers,
}


@pytest.mark.parametrize("form", FORMS)
def test_hostile_documents_are_text(hostile: Document, form: str) -> None:
    result = FORMS[form](hostile)
    markup = Markup(result._repr_html_())
    assert not markup.found.keys() & {"script", "img", "a", "svg/onload"} and markup.found["style"] == 1
    assert not any(one.startswith("on") for one in markup.attributes)
    shown = markup.text + repr(result)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert len(repr(result)) <= 100 and "\n" not in repr(result)


def test_a_notebook_draws_maps_and_peer_access(results: dict[str, Any]) -> None:
    blocks, peers = results["block map"]._repr_html_(), results["peer access"]._repr_html_()
    assert blocks.count("<table") >= 4 and 'class="m' in blocks and "1 path like numa0-&gt;gpu0" in blocks
    assert "⁻" not in blocks and "e-14" not in blocks
    assert peers.count("hangs</td>") == 12 and "export NCCL_P2P_DISABLE=1" in peers
    assert "ECAP_ACS+6.w=0000" in peers and "remedy" in peers
    assert repr(results["peer access"].peers) == "<PeerAccess of 4 GPUs: hangs 12>"
    assert "peer access hangs 12" in repr(results["peer access"])


def test_times_are_times_in_notebooks() -> None:
    """Also those of calls beside rates, whose rows have the unit of the rate."""
    row = {"p50": 3.48e-5, "value": 2e9, "unit": "B/s"}
    assert [_text(name, row) for name in ("p50", "value")] == ["34.8 µs", "2.00 GB/s"]
    assert {"latency", "submission", "p50", "p99", "first"} == TIMES


def test_functions_take_files(document: Document, tmp_path: Path) -> None:
    good, slow = tmp_path / "good.json", tmp_path / "slow.json"
    wirespeed.save(run(GOOD, *CASES), good)
    wirespeed.save(document, slow)
    check = wirespeed.judge(slow)
    assert (check.ok, check.exit_code, check.verdict.word) == (False, 1, "fail")
    assert repr(wirespeed.diagnose(str(slow))) == repr(wirespeed.diagnose(document))
    assert wirespeed.compare(good, slow).changes and wirespeed.compare([good, good], [slow]).changes
    assert wirespeed.gates(slow, "azure").results and wirespeed.baseline(good).models
    assert wirespeed.render(slow) == wirespeed.render(document)
    assert wirespeed.doctor(slow).diagnosis.findings[0].cause.name == "nvlinks"
    for call in (wirespeed.judge, wirespeed.render, wirespeed.doctor, wirespeed.baseline):
        with pytest.raises(wirespeed.DocumentError, match=r"cannot read .*nothing.json"):
            call(tmp_path / "nothing.json")
        with pytest.raises(UsageError, match="a run is a Document or the name of a file, not int"):
            call(3) if call is not wirespeed.baseline else call([3])


def test_a_pass_of_a_simulated_run_is_not_ok(document: Document) -> None:
    check = wirespeed.judge(run(GOOD, *CASES))
    assert (check.verdict, check.ok, check.exit_code) == (Verdict.PASS, False, ExitCode.NOT_JUDGED)
    real = dataclasses.replace(check, simulated=False)
    assert (real.ok, real.exit_code) == (True, ExitCode.PASS)


def test_check_and_doctor_measure_as_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = wirespeed.check(machine="simulated:hgx-h200-2+speed@gpu0-gpu1=0.5")
    assert judged.document.peers is not None and judged.document.options["tier"] == "quick"
    assert (judged.ok, judged.exit_code) == (False, 1) and "NVLink gpu0-gpu1 runs at 50%" in str(judged)
    assert "remedy" in str(judged)
    found = wirespeed.doctor(machine=SLOW)
    assert found.diagnosis.findings[0].cause.name == "nvlinks" and found.document.testcases
    assert not wirespeed.doctor(machine=SLOW, measure=False).document.testcases
    assert wirespeed.check(machine=GOOD, expected="gpus=9", prefixes=["host_st"]).check.missing
    with pytest.raises(UsageError, match="not both"):
        wirespeed.doctor(judged.document, machine=SLOW)


@pytest.mark.parametrize(
    ("block", "blocks", "wrong"),
    [
        ("64KiBx", 100, "not a size"),
        (0, 100, "out of range"),
        ("64KiB", "100x", "whole number"),
        (64, 0, "1 to"),
    ],
)
def test_the_best_method_takes_sizes(results: dict[str, Any], block: Any, blocks: Any, wrong: str) -> None:
    found = results["block map"]
    assert found.best("4KiB", 100) is found.best(4096, 100)
    with pytest.raises(UsageError, match=wrong):
        found.best(block, blocks)


def test_history_and_qualify_are_those_of_the_commands(
    results: dict[str, Any], document: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import wirespeed.features.qualify.job  # a package of the same name

    files = [tmp_path / f"{i}.json" for i in range(2)]
    for i, file in enumerate(files):
        wirespeed.save(msgspec.structs.replace(document, started=f"2026-11-0{i + 1}T00:00:00Z"), file)
    history = wirespeed.history(map(str, files))
    assert main(["history", *map(str, files)]) == 0 and str(history) == capsys.readouterr().out
    assert "2 runs; not judged: 2 runs, 8 are needed" in repr(history)
    file = tmp_path / "history.sqlite"
    add(file, document, "pass")
    assert len(wirespeed.history(file=file, since="9999d").past.runs) == 1
    with pytest.raises(UsageError, match="not both"):
        wirespeed.history(files, file=file)
    with pytest.raises(UsageError, match="choose a machine with --host"):
        wirespeed.history(file=file, host="nowhere")

    qualified = results["qualified"]
    code = main(["qualify", "--machine", "simulated:dgx-a100-8x8+nic=0.5@node3.2", "--no-save"])
    assert code == qualified.exit_code == 1 and "node3" in capsys.readouterr().out
    assert "node3" in repr(qualified) and qualified.document.qualification.excluded == ("node3",)
    assert inspect.isfunction(wirespeed.qualify)
    with pytest.raises(UsageError, match="qualify requires several nodes"):
        wirespeed.qualify()
    with pytest.raises(UsageError, match="is not several nodes"):
        wirespeed.qualify("simulated:dgx-a100-8")


@pytest.mark.parametrize("name", NAMES)
def test_data_frames_have_the_same_types_with_and_without_rows(results: dict[str, Any], name: str) -> None:
    pytest.importorskip("pandas")
    frame = results[name].to_pandas()
    assert name.startswith("empty") == frame.empty
    assert {str(kind) for kind in frame.dtypes} <= {"float64", "Int64", "boolean", "string", "object"}
    if name in TWINS:
        assert frame.dtypes.equals(results[TWINS[name]].to_pandas().dtypes)


def test_data_frames_are_tidy(results: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    document = results["document"]
    frame = document.to_pandas()
    cells = [cell for result in document.testcases for table in result.tables for cell in table.cells]
    assert len(frame) == len(cells) and frame["value"].tolist() == [cell.value for cell in cells]
    assert set(frame["unit"]) == {"B/s", "s"} and frame["simulated"].all()
    row = frame[frame["testcase"] == MATRIX].iloc[0]
    assert row["share"] == pytest.approx(row["value"] / row["limit"]) and row["least"] < row["normal"]
    assert frame.groupby("testcase")["share"].min().idxmin() == "device_to_device_sm_scaling"
    pairs = results["bandwidth pairs"]
    wide = pairs.to_pandas().pivot(index="row", columns="column", values="value")
    assert wide.loc["gpu0", "gpu1"] == pairs["gpu0", "gpu1"].value and wide.shape == (8, 8)
    assert results["bandwidth curve"].to_pandas()["at"].tolist() == [2**20, 2**22, 2**24, 2**26]
    moved = results["comparison"].to_pandas()
    assert (moved["outcome"] == "worse").sum() >= 16 and moved["change"].min() < -0.4
    assert results["diagnosis"].to_pandas().loc[0, "cause"] == "nvlinks"
    gates = results["gates"].to_pandas()
    assert gates.loc[0, "verdict"] == "fail" and gates.loc[0, "lowest"] < gates.loc[0, "threshold"]
    assert len(results["machine"].to_pandas()) == len(results["machine"].links)


@pytest.mark.parametrize(
    "name", ["check", "diagnosis", "gates", "comparison", "baseline", "history", "machine"]
)
def test_the_columns_are_documented(results: dict[str, Any], name: str) -> None:
    pytest.importorskip("pandas")
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    assert [column for column in results[name].to_pandas().columns if f"`{column}`" not in page] == []


def test_a_testcase_without_cells_has_one_row() -> None:
    pytest.importorskip("pandas")
    document = wirespeed.run([MATRIX], machine="simulated:pcie-2-no-p2p")
    frame = document.to_pandas()
    assert frame["status"].unique().tolist() == ["waived"] and frame["reason"].str.contains("peer").all()


def test_a_missing_package_is_named(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [one for one in sys.modules if one.partition(".")[0] == "pandas"] or ["pandas"]:
        monkeypatch.setitem(sys.modules, module, None)
    for name in NAMES:
        with pytest.raises(MissingPackage, match=r"^to_pandas\(\) needs pandas.*: pip install pandas$"):
            results[name].to_pandas()


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e18])
@pytest.mark.parametrize("case", [MATRIX, "host_to_device_memcpy_ce", "device_to_device_sm_scaling"])
def test_values_that_no_hardware_has_can_be_shown(document: Document, case: str, value: float) -> None:
    (result,) = document.only(case).testcases
    cells = tuple(
        msgspec.structs.replace(cell, value=value, samples=(value,) * 3) for cell in result.tables[0].cells
    )
    for several in (cells, cells[:1]):
        table = msgspec.structs.replace(result.tables[0], cells=several)
        odd = msgspec.structs.replace(document, testcases=(msgspec.structs.replace(result, tables=(table,)),))
        assert case in Markup(odd._repr_html_()).text and len(repr(odd)) <= 100
        wirespeed.diagnose(odd, wirespeed.judge(odd))
        pytest.importorskip("pandas")
        assert (odd.to_pandas()["value"] == value).all()


def test_a_document_with_some_testcases(document: Document) -> None:
    assert [one.name for one in document.only(MATRIX, "all_reduce").testcases] == [MATRIX, "all_reduce"]
    with pytest.raises(UsageError, match="no testcase 'all_reduc'; did you mean 'all_reduce'"):
        document.only("all_reduc")


def test_forms_are_imported_when_asked_for() -> None:
    code = (
        "import sys, wirespeed; document = wirespeed.described('simulated:hgx-h200-2'); repr(document);"
        "assert not {'pandas', 'jinja2'} & set(sys.modules);"
        "assert not any(name.startswith('wirespeed.reports') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_colours_of_notebooks_have_enough_contrast() -> None:
    """In any theme: text that is not the theme's own has a background of the style."""
    style = (Path(wirespeed.__file__).parent / "reports/html/notebook.css").read_text()
    rules = [rule for rule in re.findall(r"\{(.*?)\}", style) if " color: " in rule or "background" in rule]
    texts = [re.findall(r"color: #(\w+);", rule) for rule in rules]
    assert all("background" in rule for rule in rules) and len(rules) >= 10
    for rule, text in zip(rules, texts, strict=True):
        ground = re.findall(r"background: #(\w+);", rule)
        assert contrast(ground[0], (text or ["fff"])[0]) >= 4.5, rule


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG between two colours."""

    def luminance(color: str) -> float:
        full = color if len(color) == 6 else "".join(digit * 2 for digit in color)
        parts = [int(full[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["document", "matrix", "transfers"])
def test_data_frames_have_verdict_expected_and_limit(results: dict[str, Any], name: str) -> None:
    frame = results[name].to_pandas()
    check = wirespeed.judge(getattr(results[name], "document", results[name]))
    judged = {judgement.key: judgement for judgement in check.judgements}
    found = 0
    for row in frame.to_dict("records"):
        judgement = judged.get(Key(row["testcase"], row["table"], row["row"], row["column"], row["bytes"]))
        if judgement is not None and judgement.value is not None:
            assert row["verdict"] == str(judgement.verdict)
            assert row["expected"] == judgement.normal or judgement.normal is None
            found += 1
    assert found > 1 and {"verdict", "expected", "limit"} <= {*frame.columns}
    if name == "matrix":
        slow = frame[frame.verdict == "fail"]
        assert len(slow) == 14 and (slow.value < 0.6 * slow.expected).all()


def test_what_prints_is_in_the_unit_of_tables(results: dict[str, Any]) -> None:
    for name in ("bandwidth", "bandwidth curve", "bandwidth pairs", "bandwidth theory"):
        assert " GB/s" in repr(results[name]) and "(GB/s)" in str(results[name])
        assert "GiB/s" not in repr(results[name]) + str(results[name])


@pytest.mark.parametrize("name", ["bandwidth", "bandwidth curve", "bandwidth pairs", "transfers"])
def test_plots_are_pictures_in_notebooks(
    results: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As IPython says it: the shell of a kernel has the attribute ``kernel``, that of a terminal has not."""
    shown: list[object] = []
    shell = SimpleNamespace(kernel=object())
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(display, "display", shown.append, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    results[name].plot()
    assert shown == [results[name]] and not capsys.readouterr().out
    del shell.kernel
    results[name].plot()
    assert len(shown) == 1 and capsys.readouterr().out
