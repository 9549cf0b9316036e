"""What was not verified, not measured or not compared is said, and is no success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judged import Judged
from wirespeed.judging.omissions import is_verified
from wirespeed.judging.verdict import Verdict
from wirespeed.results import baseline
from wirespeed.results.store import save

H200 = "simulated:hgx-h200-2"
PAIRS = "device_to_device_memcpy_read_ce"
HOST = "host_to_device_memcpy_ce"
CHECK = ["check", "--allow-simulated", "--no-save", "--machine"]


def measured(*names: str, machine: str = H200, **options: object) -> Document:
    return wirespeed.run(names, machine=machine, samples=3, copies=1, **options)


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit code, and what was printed, as one line."""
    code = main([*CHECK, *arguments])
    found = capsys.readouterr()
    return code, " ".join((found.out + found.err).split())


def test_a_baseline_of_which_nothing_applies_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    base = str(tmp_path / "base.json")
    for document, says in (
        (measured(PAIRS, size="256MiB"), f"it has {PAIRS} with other sizes (256 MiB ...)"),
        (measured(HOST), f"it has {HOST}, the run has {PAIRS}"),
    ):
        Path(base).write_bytes(baseline.encode(baseline.make([document])))
        code, text = checked(capsys, f"{H200}+speed@gpu0-gpu1=0.9", "-t", PAIRS, "--baseline", base)
        assert code == 2 and f"no value of this run can be compared with the baseline: {says}" in text


def test_what_is_not_compared_with_a_baseline_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    base, run = tmp_path / "base.json", tmp_path / "run.json"
    base.write_bytes(baseline.encode(baseline.make([measured(PAIRS, "device_local_copy")])))
    save(measured(PAIRS, HOST), run)
    assert main(["check", str(run), "--allow-simulated", "--baseline", str(base)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"baseline: 2 values not compared, not in the baseline: {HOST}" in text
    assert "baseline: 2 values not compared, not in this run: device_local_copy" in text
    assert main(["check", str(run), "--allow-simulated", "--baseline", str(base), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["baseline"] == {
        "compared": 2, "absent": {HOST: 2}, "uncertain": {}, "unmeasured": {"device_local_copy": 2},
    }  # fmt: skip
    document = wirespeed.load(run)
    html = wirespeed.render(Judged(document, Criteria(baseline=baseline.load(base))), "html")
    assert "not in the baseline" in html


def test_data_that_was_not_verified_is_no_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    fault = f"{H200}+corrupt@gpu1->gpu0"
    save(measured(PAIRS, machine=fault, verify=False), file)
    assert main(["check", "--allow-simulated", str(file)]) == 3
    text = " ".join(capsys.readouterr().out.split())
    begin = "WARN the testcase measured is as fast as expected (GPU ↔ GPU only), "
    assert f"{begin}but the data was not verified; 59 testcases were not measured" in text
    assert "measure again, and verify the data: without --no-verify" in text
    for form in ("table", "html", "markdown", "junit", "plot"):
        assert main(["show", str(file), "--format", form]) == 0
        assert "not verified" in capsys.readouterr().out, form
    slow = wirespeed.judge(measured(PAIRS, machine=f"{H200}+speed@gpu0-gpu1=0.5", verify=False))
    assert slow.verdict is Verdict.FAIL and slow.doubts == ("the data was not verified",)


def test_requested_testcases_that_measured_nothing_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, "simulated:cpu-2-sockets", "-t", PAIRS, "host_stream_triad")
    assert (
        code == 3
        and "WARN the testcase measured is as fast as expected (host memory only), but "
        f"{PAIRS} measured nothing: "
        in text
    )
    code, text = checked(
        capsys, "simulated:cpu-2-sockets", "-t", "host_stream_triad", "-p", "device_to_device"
    )
    assert code == 3 and "but device_to_device* measured nothing: " in text
    assert checked(capsys, "simulated:cpu-2-sockets", "-t", "host_stream_triad")[0] == 0
    code, text = checked(capsys, "simulated:cpu-2-sockets", "-t", PAIRS)
    assert code == 4 and f"NOT JUDGED no value could be judged; {PAIRS} measured nothing: " in text


def test_only_accepted_values_are_no_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(f'[[override]]\ntestcase = "{PAIRS}"\nreason = "known"\n')
    code, text = checked(capsys, f"{H200}+speed@gpu0-gpu1=0.5", "-t", PAIRS, "--overrides", str(file))
    assert code == 4
    assert "NOT JUDGED the overrides accept all values that could be judged; this is not a pass" in text


def test_values_that_a_passed_testcase_lacks_fail() -> None:
    document = measured(PAIRS, HOST)
    first, second = document.testcases

    def emptied(reason: str) -> Document:
        (table,) = first.tables
        cells = tuple(replace(cell, value=None, statistics=None, reason=reason) for cell in table.cells)
        result = replace(first, tables=(replace(table, cells=cells),))
        return replace(document, testcases=(result, second))

    check = wirespeed.judge(emptied(""))
    assert check.verdict is Verdict.FAIL
    assert check.judgements[0].why == "no value, and no reason why"
    assert wirespeed.judge(emptied("no peer access")).verdict is Verdict.WARN  # it was requested


GATES = """read = 2026-11-22
[[gate]]
measures = "host to GPU"
testcases = ["{testcase}"]
models = ["{model}"]
at_least = "20 GB/s"
source = "acceptance test"
"""


def test_gates_that_fit_no_gpu_are_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gates, file = tmp_path / "gates.toml", tmp_path / "run.json"
    save(measured(HOST), file)
    for model, testcase, code, says in (
        (
            "NVIDIA H100*",
            HOST,
            2,
            f"no threshold of {gates} is for 2 x NVIDIA H200; it has thresholds for: NVIDIA H100*",
        ),
        ("NVIDIA H200*", PAIRS, 4, f"no threshold of {gates} was compared"),
        ("NVIDIA H200*", HOST, 0, "pass host to GPU"),
    ):
        gates.write_text(GATES.format(model=model, testcase=testcase))
        for arguments in ([H200, "-t", HOST], ["", "--from", str(file)]):
            machine, *rest = arguments
            given = [*CHECK, machine, *rest] if machine else ["check", "--allow-simulated", *rest]
            assert main([*given, "--gates", str(gates)]) == code
            found = capsys.readouterr()
            assert "".join(says.split()) in "".join((found.out + found.err).split())  # paths are broken


def test_gates_of_some_of_several_runs_are_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gates, files = tmp_path / "gates.toml", [str(tmp_path / f"{i}.json") for i in range(2)]
    gates.write_text(GATES.format(model="NVIDIA H200*", testcase=HOST))
    for file, machine in zip(files, (H200, "simulated:dgx-a100-8"), strict=True):
        save(measured(HOST, machine=machine), Path(file))
    assert main(["check", "--allow-simulated", "--from", *files, "--gates", str(gates)]) == 4
    assert f",butnothresholdof{gates}wascompared" in "".join(capsys.readouterr().out.split())


def test_nothing_is_called_a_baseline_error_without_one() -> None:
    assert Judged(measured(PAIRS)).check.baseline is None
    with pytest.raises(UsageError, match="the run has no values"):
        good = measured(HOST)
        (result,) = good.testcases
        empty = replace(good, testcases=(replace(result, tables=()),))
        wirespeed.judge(empty, baseline=baseline.make([good]))


@pytest.mark.parametrize(
    ("checks", "code", "word"), [("1", 0, "data verified"), ("0", 3, "data not verified")]
)
def test_logs_say_whether_their_data_was_verified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, checks: str, code: int, word: str
) -> None:
    """The run itself and its log get the same answer; what a log does not say is no doubt."""
    log, file, imported = (tmp_path / name for name in ("log.txt", "run.json", "imported.json"))
    sizes = ("-b", "1G", "-e", "1G", "-g", "2")
    assert main(["all_reduce_perf", "--machine", H200, *sizes, "-c", checks, "--output", str(file)]) == 0
    log.write_text(capsys.readouterr().out)
    assert main(["import", str(log), "-o", str(imported)]) == 0
    assert word in capsys.readouterr().out
    for run in (file, imported):
        assert main(["check", str(run), "--allow-simulated"]) == code
        text = " ".join(capsys.readouterr().out.split())
        assert f"testcase · {word}" in text and ("with -c 1" in text) == bool(code)
        assert main(["check", str(run), "--allow-simulated", "--format", "junit"]) == code
        assert f'<property name="data" value="{word}" />' in capsys.readouterr().out
    silent = wirespeed.load_log("tests/data/published/nvbandwidth-a100-readme.txt", "dgx-a100-40g-8")
    assert is_verified(silent) is None and not wirespeed.judge(silent).doubts
