"""No text of a file makes a line of a screen or an error, and none makes a line of any length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wirespeed
from tests.hostile.forging import FORGED, LONG, forged, forging
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.judging import judge as judging
from wirespeed.reports import formats
from wirespeed.reports.comparisons import FORMATS
from wirespeed.results.store import encode
from wirespeed.terminal import neutral_json

RECORDED = Path(__file__).parents[1] / "recorded"
TWO, FOUR = str(RECORDED / "two-h200.json"), str(RECORDED / "four-h200.json")
MACHINE = "simulated:hgx-h200-2"
#: Formats for programs and pages: a line may have several texts.
_DATA = {
    "json", "blocks-json", "csv", "html", "junit", "nvbandwidth-json", "nccl-tests-json", "markdown",
    "prometheus", "github",
}  # fmt: skip


@pytest.fixture(scope="module", params=["forged", "long"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved runs with a forged line, or a long end, in every text: transfers and a collective."""
    folder, end = tmp_path_factory.mktemp("forged"), FORGED if request.param == "forged" else LONG
    local = wirespeed.run(["0", "4", "host_stream_copy"], machine=MACHINE, samples=2, copies=1)
    plain = json.loads(encode(local))
    plain |= {"warnings": ["w"], "interrupted": "i", "libraries": {"numpy": "1"}}
    plain["testcases"][0]["warnings"] = ["w"]
    plain["testcases"][1] |= {"status": "failed", "reason": "r"}
    nccl = json.loads(encode(wirespeed.run(["all_reduce"], machine=MACHINE, sizes="8:64:x8")))
    for name, run in (("local", plain), ("other", plain | {"version": "9"}), ("nccl", nccl)):
        (folder / f"{name}.json").write_text(json.dumps(forging(run, end)))
    return folder


@pytest.fixture(autouse=True)
def wide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that does not wrap the forged texts, so that each line that they make is one of theirs."""
    monkeypatch.setenv("COLUMNS", "500")


@pytest.mark.parametrize("format", formats())
def test_formats(format: str, hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collectives = format.startswith("nccl") or format == "iterations"
    file = str(hostile / ("nccl.json" if collectives else "local.json"))
    for command in (["show", file, "--format", format], ["show", "-v", file, file, "--format", format]):
        assert main(command) == 0
        out = capsys.readouterr().out
        assert not forged(out)
        assert format in _DATA or max(map(len, out.splitlines())) <= 500


@pytest.mark.parametrize("format", FORMATS)
def test_comparisons(format: str, hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(hostile / "local.json"), str(hostile / "other.json")]
    for detail in ([], ["-v"]):
        assert main(["compare", *files, *detail, "--format", format]) in (0, 1, 3)
        out = capsys.readouterr().out
        assert not forged(out)
        assert format in _DATA or max(map(len, out.splitlines())) <= 500


def test_checks_and_diagnoses(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, simulated = str(hostile / "local.json"), "--allow-simulated"
    for command in (
        ["check", simulated, "--from", file], ["check", simulated, "-v", "--from", file, TWO],
        ["check", simulated, "--from", file, file, "--for", "slurm"], ["doctor", file],
        ["baseline", "make", file, "-o", f"{file}.base"], ["report", file, TWO, "-o", f"{file}.html"],
    ):  # fmt: skip
        main(command)
        out, err = capsys.readouterr()
        assert not forged(out + err) and max(map(len, (out + err).splitlines())) <= 512, command


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("gpus", lambda gpus: gpus[0].update(peers=[f"x{FORGED}"])),
        ("gpus", lambda gpus: gpus[0].update(peers=["x" * 3_000_000])),
        ("links", lambda links: links[0].update(destination=f"x{FORGED}")),
        ("name", None),
        ("others", None),
    ],
)
def test_errors_are_one_line(
    place: str, change: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads(Path(TWO).read_text())
    if change:
        change(run["machine"][place])
    else:
        run["machine"] |= {"name": f"{FORGED}{'x' * 100_000}", "noise": 7}
        run["machine"] |= {"others": {f"k{FORGED}": []}} if place == "others" else {}
    path, machine = tmp_path / "run.json", tmp_path / "machine.json"
    path.write_text(json.dumps(run))
    machine.write_text(json.dumps(run["machine"]))
    file = str(path)
    for command in (
        ["show", file], ["check", "--from", file], ["report", file], ["doctor", file], ["compare", TWO, file],
        ["baseline", "make", file, "-o", f"{file}.base"], ["machine", "--machine", str(machine)],
        ["check", "-q", "--from", file, TWO], ["report", file, TWO, "-o", str(tmp_path / "page.html")],
    ):  # fmt: skip
        assert main(command) in (2, 5), command
        out, err = capsys.readouterr()
        lines = [line for line in err.splitlines() if not line.startswith("saved to")]
        assert not out and len(lines) == 1 and len(lines[0]) <= 500 and "invalid" in lines[0] + "invalid", (
            command
        )
        assert lines[0].startswith("wirespeed: error: ")


def test_words_of_the_command_line_make_no_long_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", f"--tolerance=x{FORGED}{'x' * 100_000}"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and len(lines[0]) <= 500 and lines[0].endswith("(see `wirespeed check --help`)")


def test_texts_are_neutralised_before_they_are_decoded() -> None:
    texts = {
        r"a\nb": "a b", r"a\\nb": r"a\nb", r"a\\\nb": "a\\ b", r"a\u000aPASS": "a PASS", r"\u2028": "\ufffd",
        "\u2029": "\ufffd", "\x85": "\ufffd", r"\u0085": "\ufffd", r"\ud83d\ude00": "😀", "µ→…é": "µ→…é",
        "\u202e": "\ufffd", "\u2066": "\ufffd", r"\u001b[31m": "␛[31m", r"\r": "␍", r"\"\/": '"/',
        "\x7f": "␡", r"\u00b5": "µ",
    }  # fmt: skip
    data = ("{" + ",".join(f'"{i}":\n"{text}"' for i, text in enumerate(texts)) + "}").encode()
    assert list(msgspec.json.decode(neutral_json(data)).values()) == list(texts.values())


def broken(folder: Path, changes: dict[str, Any]) -> str:
    """A run of four GPUs with a changed link."""
    run = json.loads(Path(FOUR).read_text())
    run["machine"]["links"][-1] |= changes
    path = folder / f"broken{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(run))
    return str(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"destination": "`x`|y|gpu3"}, {"destination": "gpu9"}, {"source": "9/gpu0"},
        {"source": "other:gpu0"}, {"destination": ""}, {"kind": "memory"},
        {"source": "switch", "destination": "switch"},
    ],
)  # fmt: skip
def test_links_end_only_at_what_exists(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = broken(tmp_path, changes)
    assert main(["check", "--from", file]) == 2
    err = capsys.readouterr().err
    assert "is invalid: " in err and "link " in err and len(err.splitlines()) == 1


@pytest.fixture
def defective(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A run whose judgement ends in an error of wirespeed itself."""
    run = json.loads(Path(TWO).read_text())
    run["machine"]["name"] = "defective"
    path = tmp_path / "defective.json"
    path.write_text(json.dumps(run))
    real = judging.judge

    def judge(document: Document, *arguments: Any, **options: Any) -> Any:
        if document.machine.name == "defective":
            raise IndexError("tuple index out of range")
        return real(document, *arguments, **options)

    for module in ("judging.judge", "reports.style", "results.compare"):
        monkeypatch.setattr(f"wirespeed.{module}.judge", judge, raising=False)
    return str(path)


@pytest.mark.parametrize("kind", ["link", "defect"])
def test_a_broken_run_does_not_end_those_of_others(
    kind: str, defective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = defective if kind == "defect" else broken(tmp_path, {"destination": "nowhere"})
    for command, code, shown in (
        (["check", "--from", bad, TWO], 5, "PASS"),
        (["check", "--from", bad, TWO, "--for", "nagios"], 3, "1 of 2 files cannot be judged"),
        (["report", bad, TWO, "-o", str(tmp_path / "page.html")], 2, "(1 of 2 runs)"),
        (["show", bad, TWO, "--format", "prometheus"], 2, "wirespeed_run"),
        (["compare", TWO, "--to", bad, TWO], 5 if kind == "link" else 0,
         "85 same, 60 cannot tell" if kind == "link" else "145 same"),
    ):  # fmt: skip
        assert main(command) == code, command
        out, err = capsys.readouterr()
        assert shown in out + err and "Traceback" not in err
        assert ("internal error: IndexError" if kind == "defect" else "nowhere") in out + err or code == 0


def test_a_failing_machine_is_reported_beside_a_broken_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = tmp_path / "slow.json"
    fault = "simulated:hgx-h200-2+nvlinks=6@gpu1"
    assert main(["run", "-t", "4", "--machine", fault, "--samples", "2", "-q", "-o", str(slow)]) in (0, 1)
    bad = broken(tmp_path, {"destination": "nowhere"})
    command = ["check", "--allow-simulated", "--from", bad, str(slow), "--for", "slurm"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert out.startswith("WIRESPEED FAIL: 1 of 1 run: ") and "cannot be judged" in out
