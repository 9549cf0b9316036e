"""What should be there: ``--expect``, also of configuration files, baselines, and all formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.errors import MachineError, UsageError
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judged import Judged
from wirespeed.judging.verdict import Verdict
from wirespeed.results import baseline
from wirespeed.results.inventory import Inventory, InventoryPart
from wirespeed.results.inventory import parse_inventory as parse
from wirespeed.results.store import load, save

A100 = "simulated:dgx-a100-8"
GONE = f"{A100}+gone@gpu3"
UNSEEN = "the GPU at 0000:04:00.0 is on the PCI bus, but the driver does not show it"
FAST = ("-t", "device_local_copy", "--allow-simulated", "--no-save")


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit code, and what was printed, as one line."""
    code = main(["check", *arguments])
    found = capsys.readouterr()
    return code, " ".join((found.out + found.err).split())


def measured(machine: str = A100, **options: object) -> wirespeed.Document:
    return wirespeed.run(["device_local_copy"], machine=machine, samples=3, copies=1, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of a whole machine, and of one whose driver does not show a GPU."""
    folder = tmp_path_factory.mktemp("runs")
    files = {machine: folder / f"{i}.json" for i, machine in enumerate((A100, GONE))}
    for machine, file in files.items():
        save(measured(machine), file)
    return {machine: str(file) for machine, file in files.items()}


def test_what_is_there_passes(capsys: pytest.CaptureFixture[str], runs: dict[str, str]) -> None:
    whole = "gpus=8,nvlinks=12,memory=1TiB,gpu-memory=40GiB,gpu-model=a100,numa=2,cpus=128"
    code, text = checked(capsys, runs[A100], "--allow-simulated", "--expect", whole)
    assert code == 0 and "PASS" in text


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ("gpus=9", "GPUs (expected: 9)"),
        ("nvlinks=18", "gpu0, gpu1, gpu2, gpu3 and 4 more have 12 active NVLinks (expected: 18)"),
        ("memory=2TiB", "the host has 1 TiB of memory (expected: 2 TiB)"),
        ("gpu-memory=80GiB", "have 40 GiB of memory (expected: 80 GiB)"),
        ("gpu-model=H200", "are NVIDIA A100-SXM4-40GB (expected: H200)"),
        ("nics=8", "0 NICs (expected: 8)"),
        ("numa=4", "the host has 2 NUMA nodes (expected: 4)"),
        ("cpus=256", "the host has 128 CPUs (expected: 256)"),
    ],
)
def test_each_part_can_be_missing(
    capsys: pytest.CaptureFixture[str], runs: dict[str, str], expected: str, says: str
) -> None:
    code, text = checked(capsys, runs[A100], "--allow-simulated", "--expect", expected)
    assert code == 1 and "FAIL" in text and says in text and "remedy" in text


@pytest.mark.parametrize(
    ("machine", "expected", "says", "remedy", "not_said"),
    [
        ("cpu-2-sockets", "gpus=8,nvlinks=18,gpu-memory=80GiB,gpu-model=H100", "0 GPUs (expected: 8)",
         "check their driver", "not compared"),
        ("dgx-a100-8", "gpu-model=H100,gpu-memory=80GiB,nvlinks=18",
         "gpu0, gpu1, gpu2, gpu3 and 4 more are NVIDIA A100-SXM4-40GB (expected: H100)", "nvidia-smi -L",
         "missing:"),
        ("dgx-a100-8+nvlinks=6@gpu0", "nvlinks=18",
         "gpu0 has 6 active NVLinks; gpu1, gpu2, gpu3, gpu4 and 3 more have 12 active NVLinks (expected: 18)",
         "fabric manager", "missing:"),
        ("h100-nvl-2", "nvlinks=18", "gpu0, gpu1 have 12 active NVLinks (expected: 18)", "bridges", "fabric"),
        ("pcie-2-no-p2p", "nvlinks=18", "gpu0, gpu1 have 0 active NVLinks", "may have no NVLink", "fabric"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_once_with_its_remedy(
    machine: str, expected: str, says: str, remedy: str, not_said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = ("-t", "host_stream_copy", "--samples", "1", "--copies", "1", "--no-save", "--allow-simulated")
    code, text = checked(capsys, "--machine", f"simulated:{machine}", *case, "--expect", expected)
    assert code == 1 and text.count(says) == 1 and remedy in text and not_said not in text


def test_a_gpu_that_is_gone_fails_without_being_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, "--machine", GONE, *FAST)
    assert code == 1 and f"FAIL {UNSEEN}" in text
    assert main(["doctor", "--no-measure", "--machine", GONE]) == 1
    assert f"missing: {UNSEEN}" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(MachineError, match=r"no GPU 'gpu9' .* write gone@gpu0"):
        wirespeed.run(["0"], machine=f"{A100}+gone@gpu9")
    with pytest.raises(MachineError, match="it cannot have this fault"):
        wirespeed.run(["0"], machine="simulated:cpu-2-sockets+gone@gpu0")


def test_faults_next_to_one_that_is_gone() -> None:
    document = measured(f"{GONE}+nvlinks=6@gpu0")
    assert [gpu.name for gpu in document.machine.gpus] == [f"gpu{i}" for i in (0, 1, 2, 4, 5, 6, 7)]
    found = [str(one) for one in Judged(document, Criteria(expected=parse("nvlinks=12"))).check.missing]
    assert found == [UNSEEN, "gpu0 has 6 active NVLinks (expected: 12)"]


@pytest.mark.parametrize("form", ["markdown", "junit", "prometheus", "html", "json"])
def test_every_format_has_what_is_missing(
    capsys: pytest.CaptureFixture[str], runs: dict[str, str], form: str
) -> None:
    arguments = ("--allow-simulated", "--format", form, "--expect", "gpus=8,nics=2")
    code, text = checked(capsys, runs[GONE], *arguments)
    assert code == 1
    assert "0000:04:00.0" in text
    if form == "json":
        (run,) = json.loads(text)["runs"]
        gpu, nic = run["missing"]
        assert (gpu["part"], gpu["where"], gpu["expected"], gpu["found"]) == ("gpus", ["0000:04:00.0"], 8, 7)
        assert (nic["part"], nic["verdict"], nic["text"]) == ("nics", "fail", "0 NICs (expected: 2)")
    elif form == "junit":
        assert '<testcase classname="wirespeed.inventory" name="gpus 0000:04:00.0" time="0">' in text
    elif form == "prometheus":
        assert 'part="gpus",where="0000:04:00.0",of_host="",verdict="fail"} 1.0' in text


def test_the_table_of_nodes_has_it(capsys: pytest.CaptureFixture[str], runs: dict[str, str]) -> None:
    code, text = checked(capsys, *runs.values(), "--allow-simulated")
    assert code == 1 and "the GPU at 0000:04:00.0" in text


def test_what_is_expected_is_compared_with_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is measured of it; the run says what it left out."""
    left_out = (
        "6 GPUs left out (--devices): 0000:03:00.0, 0000:04:00.0, 0000:05:00.0, 0000:06:00.0 and 2 more"
    )
    check = Judged(measured(devices="0,1"), Criteria(expected=parse("gpus=8,nvlinks=12"))).check
    assert [(one.verdict, str(one)) for one in check.missing] == [(Verdict.WAIVED, left_out)]
    assert check.verdict is Verdict.PASS
    assert {fact.device for fact in measured(devices="0,1").facts if fact.device.startswith("gpu")} == {
        "gpu0",
        "gpu1",
    }
    code, text = checked(capsys, "--machine", A100, "--devices", "0,1", *FAST, "--expect", "gpus=9")
    assert code == 1 and "FAIL 8 GPUs (expected: 9)" in text and left_out in text
    code, text = checked(capsys, "--machine", GONE, "--devices", "0,1", *FAST, "--expect", "gpus=8")
    assert code == 1 and f"FAIL {UNSEEN}" in text and "5 GPUs left out (--devices)" in text


@pytest.mark.parametrize("how", [["--no-measure"], ["-t", "device_local_copy"], []])
def test_doctor_compares_what_is_expected(capsys: pytest.CaptureFixture[str], how: list[str]) -> None:
    machine = "simulated:hgx-h200-2"
    assert main(["doctor", "--machine", machine, *how, "--expect", "gpus=2,nvlinks=18"]) == 4  # simulated
    assert "expected" not in capsys.readouterr().out.partition("PASS")[0]
    assert main(["doctor", "--machine", machine, *how, "--expect", "gpus=8"]) == 1
    assert "2 GPUs (expected: 8)" in capsys.readouterr().out


def test_a_baseline_has_an_inventory(
    capsys: pytest.CaptureFixture[str], runs: dict[str, str], tmp_path: Path
) -> None:
    """A machine that lacks a GPU is not of another model; one with other GPUs is."""
    file = tmp_path / "base.json"
    assert main(["baseline", "make", runs[A100], "-o", str(file)]) == 0
    (found,) = baseline.load(file).inventories.values()
    assert found.numbers[InventoryPart.GPUS] == 8 and found.numbers[InventoryPart.NVLINKS] == 12
    assert found.gpu_addresses[3] == "0000:04:00.0"
    judging = ("--allow-simulated", "--baseline", str(file))
    assert checked(capsys, runs[A100], *judging)[0] == 0
    code, text = checked(capsys, runs[GONE], *judging)
    assert code == 1 and f"FAIL {UNSEEN}" in text
    fewer = Judged(measured(f"{A100}+nvlinks=11@gpu2"), Criteria(baseline=baseline.load(file))).check
    assert [str(one) for one in fewer.missing] == ["gpu2 has 11 active NVLinks (expected: 12)"]
    with pytest.raises(UsageError, match="the baseline has no machine like"):
        assert Judged(measured("simulated:hgx-h200-2"), Criteria(baseline=baseline.load(file))).check


def test_a_baseline_of_machines_that_differ_is_refused() -> None:
    with pytest.raises(UsageError, match="the runs differ in nvlinks, from 11 to 12; omit the runs"):
        baseline.make([measured(), measured(f"{A100}+nvlinks=11@gpu2")])


def test_an_older_baseline_has_none(runs: dict[str, str], tmp_path: Path) -> None:
    made = json.loads(baseline.encode(baseline.make([load(runs[A100])])))
    del made["inventories"]
    (tmp_path / "old.json").write_text(json.dumps(made))
    old = baseline.load(tmp_path / "old.json")
    assert old.inventories == {}
    assert Judged(load(runs[A100]), Criteria(baseline=old)).check.verdict is Verdict.PASS
    with pytest.raises(UsageError, match="no machine like"):
        assert Judged(load(runs[GONE]), Criteria(baseline=old)).check


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, and a folder of the user's configuration."""
    (tmp_path / "project").mkdir(mode=0o700)
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def test_files_can_expect(capsys: pytest.CaptureFixture[str], configured: Path, runs: dict[str, str]) -> None:
    """The command line cannot lower what the user's file expects."""
    (configured / "home/wirespeed.toml").write_text('[check]\nexpect = ["gpus=9", "memory=2TiB"]\n')
    code, text = checked(capsys, runs[A100], "--allow-simulated", "--expect", "gpus=2")
    assert code == 1 and "8 GPUs (expected: 9)" in text and "(expected: 2 TiB)" in text
    assert main(["config"]) == 0
    assert "check.expect = gpus=9, memory=2TiB" in capsys.readouterr().out
    assert main(["list", "--short"]) == 0  # other commands have no such option


def test_a_project_cannot_replace_what_the_user_expects(
    capsys: pytest.CaptureFixture[str], configured: Path, runs: dict[str, str]
) -> None:
    (configured / "project/wirespeed.toml").write_text('[check]\nexpect = "gpus=1"\n')
    code, text = checked(capsys, runs[A100], "--allow-simulated")
    assert code == 2 and "a project's file cannot set 'expect'" in text


def test_wrong_use(capsys: pytest.CaptureFixture[str], runs: dict[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", runs[A100], "--expect", "gpu=8"])
    assert ended.value.code == 2 and "did you mean 'gpus'?" in capsys.readouterr().err


def test_a_page_of_a_run_with_expectations(runs: dict[str, str]) -> None:
    document, by = load(runs[A100]), Criteria(expected=Inventory({InventoryPart.NICS: 4}))
    judged = Judged(document, by)
    assert "0 NICs (expected: 4)" in wirespeed.render(judged, "html")
    assert judged.check.verdict is Verdict.FAIL
