from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wirespeed
from wirespeed.cli.main import main
from wirespeed.results.store import decode

Golden = Callable[[str, str], None]
TWO = ["--machine", "simulated:hgx-h200-2"]
SMALL = ["--machine", "simulated:pcie-2-no-p2p"]


def call(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["run", "--help"], ["--help"], ["nvbandwidth", "--help"]):
        code, out, err = call(*arguments, capsys=capsys)
        assert code == 0 and out and not err
    assert call("--version", capsys=capsys)[1] == f"wirespeed {wirespeed.__version__}\n"


def test_run_prints_saves_and_says_where(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = call("run", "-t", "0", "-p", "device_to_host_memcpy_c", *TWO, capsys=capsys)
    (path,) = folder.glob("wirespeed-*.json")
    assert code == 0 and f"saved to {path.name}" in err
    assert [r.name for r in wirespeed.load(path).testcases] == [
        "host_to_device_memcpy_ce",
        "device_to_host_memcpy_ce",
    ]
    assert call("show", str(path), capsys=capsys)[1] == out


@pytest.mark.parametrize("arguments", [["-t", "4"], ["--size", "1MiB", "-t", "4"], ["-o", "d.json", "-t4"]])
def test_options_without_a_command_are_those_of_run(
    arguments: list[str], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, out, _ = call(*arguments, *TWO, capsys=capsys)
    (path,) = folder.glob("*.json")
    assert code == 0 and "device_to_device_memcpy_read_ce" in out
    assert wirespeed.load(path).options["tier"] == "quick"  # as without any argument
    assert call(*arguments, "--help", capsys=capsys)[1].startswith("usage: wirespeed run")


def test_the_document_on_standard_output_is_all_that_is_there(folder: Path) -> None:
    for command in (["run", "-t", "0"], ["check", "-t", "0", "--allow-simulated"], ["nvbandwidth", "-t0"]):
        done = subprocess.run(
            [sys.executable, "-m", "wirespeed", *command, *TWO, "-o", "-"], capture_output=True, cwd=folder
        )
        assert done.returncode == 0 and decode(done.stdout, "out").good
        assert b"SIMULATED" in done.stderr and not list(folder.iterdir())


def test_a_folder_gets_a_document_with_a_name_of_its_own(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "runs").mkdir()
    for where in ("runs", "runs/", "."):
        assert call("run", "-t", "0", *TWO, "-o", where, capsys=capsys)[0] == 0
        (path,) = (folder / where).glob("wirespeed-*.json")
        assert wirespeed.load(path).good
        path.unlink()
    code, _, err = call("run", "-t", "0", *TWO, "-o", "none/", capsys=capsys)
    assert code == 5 and "the folder does not exist" in err and not (folder / "none").exists()


def test_devices_and_pipes_are_written_directly(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, _, err = call("run", "-t", "0", *TWO, "-o", "/dev/null", capsys=capsys)
    assert code == 0 and "saved" not in err and Path("/dev/null").is_char_device()
    code, _, err = call("run", "-t", "0", *TWO, "-o", "/dev/full", capsys=capsys)
    assert code == 5 and "the disk is full" in err


@pytest.mark.parametrize("format", ["table", "json", "csv", "nvbandwidth", "nvbandwidth-json"])
def test_every_format_on_a_run_and_on_its_document(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("run", "-t", "4", *TWO, "-o", "d.json", "--format", format, capsys=capsys)
    assert code == 0
    assert call("show", "d.json", "--format", format, "-v", capsys=capsys)[0] == 0
    assert call("show", "d.json", "--format", format, capsys=capsys)[1] == out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "-t", "nonsense"], 2, "no testcase is called 'nonsense'"),
        (["run", "-p", "nonsense"], 2, "no testcase starts with 'nonsense'"),
        (["run", "--size", "0"], 2, "out of range"),
        (["run", "--size", "x"], 2, "is not a size"),
        (["run", "--precision", "200%"], 2, "more than 0% and less than 100%"),
        (["run", "--samples", "0"], 2, "samples and copies must be from 1 to"),
        (["run", "--samples", "3", "--precision", "1%"], 2, "give one kind or the other"),
        (["run", "--tier", "huge"], 2, "invalid choice"),
        (["run", "--timeout", "never"], 2, "is not a duration"),
        (["run", "--format", "pdf"], 2, "there is no format 'pdf'; choose one of table, plot, json"),
        (["run", "--machine", "simulated:x"], 2, "'x' is neither a simulated machine nor a machine file"),
        (["run", "--machine", "x.json"], 2, "machine file 'x.json' does not exist"),
        (["run", *TWO, "-o", "none/d.json"], 5, "the folder does not exist"),
        (["run", "--sizes", "8:1", *TWO], 2, "is a range of no sizes"),
        (["run", "--devices", "x"], 2, "is not a list of GPU indices"),
        (["run", "--devices", "9", *TWO], 2, "GPU 9 does not exist"),
        (["run", "--frobnicate"], 2, "unrecognized arguments: --frobnicate (see"),
        (["run", "--wihtin", "20s"], 2, "--wihtin 20s (did you mean --within?)"),
        (["check", "--basline=x.json"], 2, "--basline=x.json (did you mean --baseline?)"),
        (["show", "x.json", "--fromat", "json"], 2, "--fromat json (did you mean --format?)"),
        (["run", "--precision", "5"], 2, "(did you mean 5%?)"),
        (["frobnicate"], 2, "unknown command 'frobnicate'; `wirespeed --help` lists all commands"),
        (["chek"], 2, "unknown command 'chek' (did you mean 'check'?)"),
        (["--format", "pdf"], 2, "there is no format 'pdf'"),
        (["--frobnicate"], 2, "unrecognized arguments: --frobnicate"),
        (["show"], 2, "required"),
        (["show", "none.json"], 2, "cannot read none.json"),
        (["machine", "--format", "xml"], 2, "invalid choice"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = call(*arguments, capsys=capsys)
    assert found == code and says in err and not out
    assert len(err.splitlines()) == 1


def test_what_failed_is_in_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    for fault in ("corrupt", "error", "lost"):
        code, out, _ = call("run", "-t", "4", "--machine", f"{TWO[1]}+{fault}", capsys=capsys)
        assert code == 1 and "device_to_device_memcpy_read_ce: " in out
    assert call("run", "-t", "0", "4", *SMALL, capsys=capsys)[0] == 0  # one of them is waived
    code, out, _ = call("run", "-t", "4", *SMALL, capsys=capsys)
    assert code == 4 and "1 skipped" in out  # nothing could be measured


def test_list(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    for name in ("pcie-2-no-p2p", "cpu-2-sockets"):
        code, out, _ = call("list", "--machine", f"simulated:{name}", capsys=capsys)
        assert code == 0
        golden(f"{name}/list.txt", out)


def test_machine(capsys: pytest.CaptureFixture[str], golden: Golden, folder: Path) -> None:
    for name in ("hgx-h200-2", "cpu-2-sockets", "dgx-a100-8", "nvl72"):
        golden(f"{name}/machine.txt", call("machine", "--machine", f"simulated:{name}", capsys=capsys)[1])
    (folder / "m.json").write_text(call("machine", *TWO, "--format", "json", capsys=capsys)[1])
    assert call("machine", "--machine", "m.json", capsys=capsys) == call("machine", *TWO, capsys=capsys)


def test_this_machine_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("machine", capsys=capsys)
    assert code == 0 and "numa0" in out
    code, out, _ = call("list", capsys=capsys)
    assert code == 0 and "SIMULATED" not in out


class TestNvbandwidth:
    """The compatible command line; it exits with 1 on invalid arguments, as the original does."""

    def call(self, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
        return call("nvbandwidth", *arguments, capsys=capsys)

    @pytest.mark.parametrize(
        ("program", "count", "local_copy"),
        [("nvbandwidth", 44, 38), ("nvbandwidth --compat 0.8", 35, 34), ("sailbandwidth", 35, 34)],
    )
    def test_list_is_in_the_order_of_the_version(
        self, program: str, count: int, local_copy: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = call(*program.split(), "-l", capsys=capsys)
        assert code == 0
        indices = re.findall(r"^(\d+), (\w+):$", out, re.M)
        assert [int(i) for i, _ in indices] == list(range(count))
        assert indices[4][1] == "device_to_device_memcpy_read_ce"
        assert indices[local_copy][1] == "device_local_copy"

    def test_several_testcases_after_one_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = self.call("-t", "4", "5", "-s", "true", *TWO, capsys=capsys)
        assert code == 0 and re.findall(r"^SUM (\w+)", out, re.M) == [
            "device_to_device_memcpy_read_ce",
            "device_to_device_memcpy_write_ce",
        ]
        again = self.call("-t", "4", "-t5", "-s", *TWO, capsys=capsys)
        assert again[:2] == (0, out)

    def test_prefix(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = self.call("-p", "device_to_device", *TWO, capsys=capsys)
        assert code == 0 and len(re.findall(r"^Running device_to_device", out, re.M)) == 14
        assert self.call("-p", "device_to_device", "x", *TWO, capsys=capsys)[:2] == (0, out)
        code, out, err = self.call("-p", "x", *TWO, capsys=capsys)
        assert code == 1 and err == "Specified list of testcase prefixes did not match any testcases\n"
        assert out.endswith("Device 1: NVIDIA H200 SIMULATED (00000000:02:00)\n\n")

    def test_an_unknown_testcase_is_reported_and_the_others_run(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = self.call("-t", "nonsense", "4", "99", "-1", *TWO, capsys=capsys)
        assert code == 0
        assert out.index("ERROR: Testcase nonsense not found!\nRunning device_to_device")
        assert "ERROR: Testcase index 99 out of bound!\nERROR: Testcase index -1 out of bound!\n" in out
        code, out, _ = call("sailbandwidth", "--compat=2.1", "-t", "99", "4", *TWO, capsys=capsys)
        assert code == 1 and "ERROR: Testcase index 99 not found!\n\nRunning device_to_device" in out

    @pytest.mark.parametrize(
        "arguments",
        [
            ["-b", "0"],
            ["-b", "x"],
            ["-i", "0"],
            ["-s", "maybe"],
            ["--nBlocks", "-2"],
            ["--what"],
            ["-F", "xml"],
            ["-P", "x"],
            ["--pair", "GPU-1"],
            ["--compat", "0.3"],
            ["stray"],
        ],
    )
    def test_invalid_arguments(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = self.call(*arguments, *TWO, capsys=capsys)
        given = " ".join(["wirespeed nvbandwidth", *arguments, *TWO])
        start = f"nvbandwidth Version: v0.10.0\nBuilt from Git version: wirespeed {wirespeed.__version__}\n\n"
        assert out.startswith(f"{start}ERROR: Invalid Arguments \n{given} :\n\nusage: ") and out.endswith(
            "\n\n"
        )
        assert code == 1 and err.startswith("ERROR: ") and err.count("\n") == 1

    def test_counts_are_fixed_only_where_they_are_given(
        self, capsys: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        for arguments, counts in {
            (): ("precise", None, None),
            ("-i", "5"): ("fixed", 5, 16),
            ("--loopCount", "2"): ("fixed", 3, 2),
        }.items():
            out = ("-o", "d.json", "--force")
            assert self.call("-t", "0", *arguments, *TWO, *out, capsys=capsys)[0] == 0
            options = wirespeed.load("d.json").options
            assert (options["rule"], options.get("samples"), options.get("copies")) == counts

    def test_a_small_buffer_brings_a_note(self, capsys: pytest.CaptureFixture[str]) -> None:
        note = (
            "NOTE: You have chosen a buffer size that is smaller than the default buffer size. It is "
            "suggested to use the default buffer size (64MB) to achieve maximal peak bandwidth."
        )
        small = ("-t", "0", "-b", "63", "-i", "1", *TWO)
        old, new = ("--compat", "0.8"), note.replace("64MB", "512MB")
        assert f"\n\n{note}\nCUDA Runtime" in self.call(*small, *old, capsys=capsys)[1]
        assert f"\n\n{new}\nCUDA Runtime" in self.call(*small, capsys=capsys)[1]
        content = json.loads(self.call(*small, *old, "-j", capsys=capsys)[1])
        assert content["nvbandwidth"]["warning"] == note
        assert "smaller" not in self.call("-t", "0", *TWO, capsys=capsys)[1]
        assert "smaller" not in self.call("-b", "64", "-t", "0", *TWO, "--compat", "0.4", capsys=capsys)[1]

    def test_json_and_its_errors(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = self.call("-j", "-t", "6", "none", "-v", "-m", *TWO, capsys=capsys)
        content = json.loads(out)["nvbandwidth"]
        names = [
            t["name"].removeprefix("device_to_device_bidirectional_memcpy_") for t in content["testcases"]
        ]
        assert names == ["read_ce", "read_ce_read1", "read_ce_read2", "read_ce_total", "none"]
        assert content["testcases"][0]["bandwidth_matrix"][0][0] == "N/A"
        assert content["testcases"][0]["average"] > 380
        assert content["testcases"][4]["status"] == "ERROR"
        assert content["testcases"][4]["error"] == "Testcase none not found!"
        why = "You cannot specify both testcase and testcasePrefix options at the same time"
        code, out, _ = self.call("-j", "-t", "4", "-p", "x", capsys=capsys)
        assert code == 1 and json.loads(out)["nvbandwidth"]["error"] == why
        code, out, err = self.call("-t", "4", "-p", "x", capsys=capsys)
        assert code == 1 and out.startswith("nvbandwidth Version: v0.10.0\n") and err == f"{why}\n"
        code, out, _ = self.call("-j", "-p", "x", *TWO, capsys=capsys)
        content = json.loads(out)["nvbandwidth"]
        assert (
            code == 1
            and content["error"] == "Specified list of testcase prefixes did not match any testcases"
        )
        assert len(content["GPU Device list"]) == 2 and "testcases" not in content

    def test_sailbandwidth_has_its_defaults(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        code, out, _ = call("sailbandwidth", "-t", "20", *TWO, "-o", "d.json", capsys=capsys)
        assert code == 0 and out.startswith("sailbandwidth Version: v2.2.1\nHGGC Runtime")
        document = wirespeed.load("d.json")
        assert document.testcases[0].engine == "sm_bulk"
        assert document.options["virtual_memory"] is True and document.options["all_engines"] is True
        plain = ["--useNormalCopy", "--isSingleDie", "--disableVm", "--nBlocks", "16", "--nThreads=-1"]
        out = ("-o", "d.json", "--force")
        assert call("sailbandwidth", "-t", "20", *plain, *TWO, *out, capsys=capsys)[0] == 0
        document = wirespeed.load("d.json")
        assert document.testcases[0].engine == "sm" and document.options["blocks"] == 16
        assert document.options["virtual_memory"] is False and document.options["all_engines"] is False

    def test_utilization_and_local_copies(self, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["-t", "4", "0", "--displayUR", "--testLocalCopy", *TWO]
        code, out, _ = self.call(*arguments, capsys=capsys)
        assert code == 0 and out.count("utilization ratio (%)") == 1
        assert "N/A" not in out and re.search(r"^ 0     \d\d\.\d\d     82\.\d\d$", out, re.M)
        out = self.call(*arguments, "-j", capsys=capsys)[1]
        matrix = json.loads(out)["nvbandwidth"]["testcases"][0]["utilization_matrix"]
        assert float(matrix[0][1]) == pytest.approx(82.3, abs=0.5)

    def test_no_gpu_is_an_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = self.call("--machine", "simulated:cpu-2-sockets", capsys=capsys)
        assert code == 1 and err == "ERROR: no GPU was found\n" and not out

    def test_wrong_data_fails_and_a_waived_testcase_does_not(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = self.call("-t", "0", "--machine", f"{TWO[1]}+corrupt", capsys=capsys)
        assert code == 1 and "ERROR: host_to_device_memcpy_ce: wrong data" in out
        code, out, _ = self.call("-t", "4", *SMALL, capsys=capsys)
        assert code == 0 and "Waived: device_to_device_memcpy_read_ce: no GPU has peer access" in out

    def test_ranks_bring_the_multi_process_testcases(self, capsys: pytest.CaptureFixture[str]) -> None:
        machine = Path(__file__).parents[1] / "machines/four-ranks.json"
        code, out, _ = self.call("--machine", f"simulated:{machine}", "-i", "1", capsys=capsys)
        assert code == 0 and len(re.findall(r"^Running", out, re.M)) == 55

    def test_the_recorded_output_of_the_original_has_the_same_form(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Titles, SUM lines, their order and the columns' positions, from a run on two H200s."""
        _, out, _ = self.call(*TWO, capsys=capsys)
        sums = re.findall(r"^SUM (\S+) \d+\.\d\d$", out, re.M)
        assert len(sums) == 44 + 2 * 6
        lines = out.splitlines()
        at = lines.index("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)")
        assert lines[at + 1] == "           0         1"
        assert re.fullmatch(r" 0       N/A    \d{3}\.\d\d", lines[at + 2])
        assert re.fullmatch(r" 1    \d{3}\.\d\d       N/A", lines[at + 3])
        assert lines[at + 4] == "" and lines[at + 5].startswith("SUM device_to_device_memcpy_read_ce ")
        assert re.fullmatch(
            r"COEFFICIENT_OF_VARIATION device_to_device_memcpy_read_ce 0\.\d\d", lines[at + 6]
        )
        assert lines[-3].startswith("NOTE: The reported results may not reflect")


OPTIONS = """run list machine show nvbandwidth -t -p -v -j -s -b -i -m -d -l -o --size --samples --copies
--precision --time-budget --tier --timeout --seed --format --no-verify --bufferSize --loopCount
--displayUR --nBlocks -F -H -P --pair --compat --version -svj --perfFormatter --devices --sizes --pageable
--blocks --bulk 0,1 1k:8k
quick full 0 4 34 -1 64 1KiB 5% 2s true json csv table d.json ../x simulated:hgx-h200-2"""
words = st.one_of(
    st.sampled_from(OPTIONS.split()),
    st.text(max_size=8).filter(lambda text: "\x00" not in text),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(["run", "list", "show", "machine", "nvbandwidth", "sailbandwidth"]),
    arguments=st.lists(words, max_size=6),
)
def test_no_arguments_yield_a_traceback(
    command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    machine = [] if command == "show" else SMALL
    code, _, err = call(command, *arguments, *machine, capsys=capsys)
    assert code in (0, 1, 2, 4, 5) and "Traceback" not in err


@pytest.mark.parametrize(
    ("shell", "code", "says"),
    [
        ("show d.json > /dev/full", 5, "standard output: No space left on device"),
        ("show d.json >&-", 0, ""),
        ("show d.json --format plot | PYTHONIOENCODING=utf-8 cat", 0, ""),
    ],
)
def test_output_that_cannot_be_written(shell: str, code: int, says: str, folder: Path) -> None:
    wirespeed.run(["0"], machine="simulated:hgx-h200-2", output=folder / "d.json")
    done = subprocess.run(
        f"{sys.executable} -m wirespeed {shell}", shell=True, capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr


def test_signals_in_a_row_end_a_run_once(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "wirespeed",
        "run",
        "-p",
        "host_stream",
        "--size",
        "32MiB",
        "--time-budget",
        "1s",
        "-o",
        "d.json",
    ]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    while not (folder / "d.json").exists() and process.poll() is None:
        time.sleep(0.05)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    _, text = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in text
    assert wirespeed.load(folder / "d.json").interrupted == "Ctrl-C"


def test_a_signal_in_a_callback_ends_the_run(folder: Path) -> None:
    """Python ignores exceptions in callbacks of weak references: the signal must not be lost there."""
    command = (
        "import os, signal, time, weakref\n"
        "from wirespeed.cli import main\n"
        "class Thing: pass\n"
        "def end(_):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.1)\n"
        "def wait():\n"
        "    thing = Thing(); seen = weakref.ref(thing, end); del thing\n"
        "    time.sleep(20)\n"
        "main._dispatch = lambda _: wait()\n"
        "main.entry()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, timeout=15
    )
    assert (done.returncode, done.stderr) == (130, "wirespeed: interrupted\n")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m wirespeed list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert "testcases can run" in done.stdout and not done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, wirespeed; wirespeed.__all__; wirespeed.TESTCASES; wirespeed.machine();"
        "heavy = {'numpy', 'rich', 'mpi4py', 'cuda', 'nccl'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("command", "without"),
    [
        (["list"], ("features.imports", "judging", "reports", "results", "features.qualify")),
        (
            ["show", "RUN", "--format", "csv"],
            ("features.imports", "backends", "features.transfers", "screens"),
        ),
        (["show", "RUN", "--format", "nvbandwidth"], ("features.imports", "judging.judge", "screens")),
        (
            ["check", "RUN", "--allow-simulated"],
            ("features.imports", "features.transfers", "features.qualify.command"),
        ),
    ],
    ids=" ".join,
)
def test_a_command_loads_only_what_it_needs(
    command: list[str], without: tuple[str, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run.json"
    wirespeed.save(wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=2), run)
    code = (
        "import sys; from wirespeed.cli.main import main; main(sys.argv[1:]); sys.stdout.flush();"
        "print(*sys.modules, file=sys.stderr)"
    )
    words = [str(run) if word == "RUN" else word for word in command]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    unneeded = tuple(f"wirespeed.{name}." for name in without)
    assert [name for name in done.stderr.split() if f"{name}.".startswith(unneeded)] == []


def test_the_public_names_are_these() -> None:
    for name in wirespeed.__all__:
        assert getattr(wirespeed, name) is not None
    assert dir(wirespeed) == sorted(wirespeed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        wirespeed.nonsense  # noqa: B018


@pytest.mark.parametrize("command", ["run", "check", "p2p", "blocks", "doctor"])
@pytest.mark.parametrize(("name", "form"), [("x.html", "html"), ("x.md", "markdown"), ("x.txt", "table")])
def test_a_measurement_is_not_saved_under_the_name_of_another_format(
    command: str, name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    with pytest.raises(SystemExit) as ended:
        main([command, "--machine", "simulated:hgx-h200-2", "-o", str(file)])
    text = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2 and not file.exists()
    assert f"is the name of {form}: write -o {file.with_suffix('.json')}" in text and f"-o {file}`" in text
