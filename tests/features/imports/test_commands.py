"""Commands in a log: the program of a table, its settings, and other programs that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_failed import LOGS as WHOLE
from wirespeed.document import Document
from wirespeed.features.imports.commands import Commands
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.unlike_rates import unlike
from wirespeed.judging.verdict import Verdict

LOGS = Path(__file__).parents[2] / "data/logs"
COMMAND = "./build/all_reduce_perf -b 1G -e 1G -f 2 -g 4\n"
FAST, SLOW = (
    (LOGS / "p2p-disabled-by-command.txt").read_text().removeprefix(COMMAND)
    .split(f"NCCL_P2P_DISABLE=1 {COMMAND}")
)  # fmt: skip
DISABLED = "transports of NCCL are disabled or not used"


def loaded(tmp_path: Path, text: str) -> Document:
    (tmp_path / "log.txt").write_text(text)
    return wirespeed.load_log(tmp_path / "log.txt")


def operations(document: Document) -> list[str]:
    return [result.collective.operation for result in document.testcases if result.collective]


def test_a_command_that_disables_a_transport_is_the_cause_and_no_link() -> None:
    document = wirespeed.load_log(LOGS / "p2p-disabled-by-command.txt")
    judged = Judged(document)
    assert [result.settings for result in document.testcases] == [(), ("NCCL_P2P_DISABLE=1",)]
    assert judged.verdict is Verdict.WARN and judged.overview.sentence == DISABLED
    assert not judged.check.culprits and "replace" not in judged.overview.advice.do
    assert list(unlike(document)) == [
        "all_reduce_2 with NCCL_P2P_DISABLE=1 reaches 5.2 GB/s at 1 GiB, all_reduce 224.8 "
        "(43.2 times as much)"
    ]


@pytest.mark.parametrize("rate", [3.1, 9.9, 31.4])
def test_a_disabled_transport_explains_any_rate_below_that_of_pcie(rate: float, tmp_path: Path) -> None:
    text = (LOGS / "p2p-disabled-info-only.txt").read_text()
    text = text.replace("3.47    5.20", f"{rate / 1.5:.2f}   {rate:.2f}")
    overview = Judged(loaded(tmp_path, text)).overview
    assert overview.sentence == DISABLED and "explains 2 of 2 slow values" in overview.extent


def test_a_disabled_transport_does_not_explain_a_rate_above_that_of_pcie(tmp_path: Path) -> None:
    text = (LOGS / "p2p-disabled-info-only.txt").read_text().replace("3.47    5.20", "21.20   31.80")
    document = loaded(tmp_path, text)
    assert DISABLED not in Judged(document).overview.sentence
    assert all(finding.cause.name != "nccl-disabled" or not finding.cells
               for finding in wirespeed.diagnose(document).findings)  # fmt: skip


#: What is written above the slow table -> the settings of its run.
ABOVE = {
    f"NCCL_P2P_DISABLE=1 {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"$ NCCL_DEBUG=INFO NCCL_P2P_DISABLE='1' {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"`NCCL_P2P_LEVEL=LOC {COMMAND.strip()}`\n": "NCCL_P2P_LEVEL=LOC",
    f"user@h:~$ env NCCL_P2P_DISABLE=1 {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"[root@node1 build]# sudo NCCL_P2P_DISABLE=1 {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"$ export NCCL_P2P_DISABLE=1\n$ {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"export NCCL_P2P_DISABLE=1\n{COMMAND}": "NCCL_P2P_DISABLE=1",
    f"export NCCL_P2P_DISABLE=1\nunset NCCL_P2P_DISABLE\n{COMMAND}": "",
    f"mpirun -np 4 -x NCCL_P2P_DISABLE=1 --bind-to none \\\n  {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"NCCL_DEBUG=WARN \\\nNCCL_P2P_DISABLE=1 \\\nmpirun -np 4 \\\n{COMMAND}": "NCCL_P2P_DISABLE=1",
    f"mpiexec -genv NCCL_P2P_DISABLE 1 -n 4 {COMMAND}": "NCCL_P2P_DISABLE=1",
    f"srun --export=ALL,NCCL_DEBUG=INFO,NCCL_P2P_DISABLE=1,A=2 -n4 {COMMAND}": "NCCL_P2P_DISABLE=1",
    "docker run --gpus all -e NCCL_P2P_DISABLE=1 --rm image all_reduce_perf -g 4\n": "NCCL_P2P_DISABLE=1",
    f"$ docker run --env=NCCL_P2P_DISABLE=1 -it image bash\nroot@abc:/# {COMMAND}": "NCCL_P2P_DISABLE=1",
    COMMAND: "",
    f"NCCL_P2P_DISABLE=0 {COMMAND}": "NCCL_P2P_DISABLE=0",
    f"NCCL_IB_DISABLE=1 {COMMAND}": "NCCL_IB_DISABLE=1",
    f"NCCL_SHM_DISABLE=1 {COMMAND}": "NCCL_SHM_DISABLE=1",
    "With NCCL_P2P_DISABLE=1 it gets slow:\n": "",
    f"I set NCCL_P2P_DISABLE=1 for this:\n{COMMAND}": "",
}


@pytest.mark.parametrize("above", ABOVE)
def test_the_settings_of_a_command_are_those_of_the_table_below_it(above: str, tmp_path: Path) -> None:
    document = loaded(tmp_path, COMMAND + FAST + above + SLOW)
    setting = ABOVE[above]
    assert [result.settings for result in document.testcases] == [(), (setting,) if setting else ()]
    judged, is_cause = Judged(document), "P2P" in setting and not setting.endswith("=0")
    assert (judged.overview.sentence == DISABLED) == is_cause
    assert judged.verdict is (Verdict.WARN if is_cause else Verdict.FAIL)
    assert not judged.check.culprits  # the other run shows the links to be fast


#: The same test is faster with a setting if it reaches less than 75% without it.
@pytest.mark.parametrize(("rate", "is_cause"), [(6.9, True), (7.0, False)])
def test_a_setting_with_which_the_same_test_is_faster_is_not_the_cause(
    rate: float, is_cause: bool, tmp_path: Path
) -> None:
    half = f"{rate / 1.5:.2f}  {rate:.2f}"
    faster = FAST.replace("149.89  224.84", half).replace("149.93  224.89", half)
    document = loaded(tmp_path, f"{COMMAND}{SLOW}NCCL_P2P_DISABLE=1 {COMMAND}{faster}")
    names = [finding.cause.name for finding in Judged(document).diagnosis.findings]
    assert ("nccl-disabled" in names) is is_cause
    assert ("with NCCL_P2P_DISABLE=1 7 (1.35 times as much)" in "".join(unlike(document))) is not is_cause


def test_a_setting_ends_with_its_command_and_that_of_a_shell_with_unset(tmp_path: Path) -> None:
    for first, between in (
        (f"NCCL_P2P_DISABLE=1 {COMMAND}", COMMAND),
        (f"$ export NCCL_P2P_DISABLE=1\n$ {COMMAND}", f"$ unset NCCL_P2P_DISABLE\n$ {COMMAND}"),
    ):
        document = loaded(tmp_path, first + SLOW + between + FAST)
        assert [result.settings for result in document.testcases] == [("NCCL_P2P_DISABLE=1",), ()]
        assert Judged(document).overview.sentence == DISABLED


def test_a_setting_before_the_output_of_another_tool_lasts(tmp_path: Path) -> None:
    text = f"$ export NCCL_P2P_DISABLE=1\n{WHOLE['STREAM']}$ {COMMAND}{SLOW}"
    assert loaded(tmp_path, text).testcases[-1].settings == ("NCCL_P2P_DISABLE=1",)


def test_a_slow_run_without_a_setting_still_fails_where_no_other_is_fast(tmp_path: Path) -> None:
    document = loaded(
        tmp_path, COMMAND + SLOW + COMMAND + FAST.replace("224.8", "140.8").replace("149.", "93.9")
    )
    assert judge(document).verdict.is_bad


#: A value that passes, also by what others with a switch reach (70% of the line rate), acquits its links.
@pytest.mark.parametrize(("rate", "is_fast"), [(209.0, True), (208.0, False)])
def test_a_link_that_another_value_shows_to_be_fast_is_no_culprit(
    rate: float, is_fast: bool, tmp_path: Path
) -> None:
    half = f"{rate / 1.5:.2f}  {rate:.2f}"
    fast = FAST.replace("149.89  224.84", half).replace("149.93  224.89", half)
    check = judge(loaded(tmp_path, COMMAND + fast + COMMAND + SLOW))
    assert check.verdict is Verdict.FAIL and bool(check.culprits) is not is_fast


def test_shared_memory_that_nccl_used_is_the_cause_without_a_setting(tmp_path: Path) -> None:
    text = (LOGS / "p2p-disabled-info-only.txt").read_text().removeprefix("NCCL_P2P_DISABLE=1 ")
    text = "".join(line for line in text.splitlines(keepends=True) if "set by environment" not in line)
    overview = Judged(loaded(tmp_path, text)).overview
    assert overview.sentence == DISABLED and overview.finding is not None
    assert overview.finding.evidence == "NVLink connects all GPUs, but NCCL used SHM/direct"


def test_the_name_of_a_collective_is_not_that_of_the_next_command() -> None:
    assert operations(wirespeed.load_log(LOGS / "two-commands.txt")) == ["all_reduce", "all_gather"]
    assert "broadcast" not in operations(wirespeed.load_log(LOGS / "next-command.txt"))


ROW = "  1073741824  268435456  float  {redop}  {root}  {half}  {half}\n"
HEADING = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n"


def table(redop: str, root: int, ratio: float) -> str:
    row = ROW.format(redop=redop, root=root, half=f"10737.4  100.00  {100 * ratio:.2f}  0")
    return HEADING + row + END


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("./all_gather_perf -g 8\n" + table("none", -1, 0.875), ["all_gather"]),
        ("Output of `all_gather_perf`:\n" + table("none", -1, 0.875), ["all_gather"]),
        ("# all_gather_perf\n" + table("none", -1, 0.875), ["all_gather"]),
        (table("none", -1, 0.875) + "# Collective test concluded: all_gather_perf\n", ["all_gather"]),
        (table("none", -1, 0.875) + "# Collective test concluded: all_gather_perf\n"
         + "./all_reduce_perf\n" + table("sum", -1, 1.75), ["all_gather", "all_reduce"]),
        # Neither prose nor a later command, nor one that the columns contradict.
        ("all_reduce_perf works, unlike this one:\n" + table("none", -1, 0.875), ["all_gather"]),
        (table("none", 0, 1.0) + "./all_gather_perf -g 8\n", ["broadcast"]),
        ("./all_gather_perf -g 8\n" + table("sum", -1, 1.75), ["all_reduce"]),
        ("./all_reduce_perf -g 8\n" + table("none", -1, 0.875), ["all_gather"]),
        ("./broadcast_perf -g 8\n" + table("none", -1, 0.875), ["all_gather"]),
        ("./sendrecv_perf -g 8\n" + table("none", -1, 0.875), ["all_gather"]),
        ("./all_reduce_perf -g 8; ./all_gather_perf -g 8\n" + table("none", -1, 0.875), ["all_gather"]),
    ],
)  # fmt: skip
def test_the_name_of_a_collective_agrees_with_its_columns(
    text: str, names: list[str], tmp_path: Path
) -> None:
    found = operations(loaded(tmp_path, text))
    assert len(found) == len(names)
    for name, one in zip(names, found, strict=True):
        assert name in one.split(" or ")


def test_what_fails_after_a_prompt_with_another_command_is_another_program(tmp_path: Path) -> None:
    document = wirespeed.load_log(LOGS / "other-program-fails.txt")
    assert judge(document).verdict is Verdict.PASS
    text = (LOGS / "other-program-fails.txt").read_text()
    for said in ("Segmentation fault (core dumped)", "Error: no device", "Killed", "./x: Assertion failed."):
        assert judge(loaded(tmp_path, f"{text}{said}\n")).verdict is Verdict.PASS
    without = text.replace("user@host:~$ mpirun -np 2 ./other-program\n", "")
    assert judge(loaded(tmp_path, without)).verdict is Verdict.PASS  # the tool has printed its last line
    again = text.replace("mpirun -np 2 ./other-program", "./p2pBandwidthLatencyTest") + "Killed\n"
    assert judge(loaded(tmp_path, again)).verdict is Verdict.FAIL


@pytest.mark.parametrize("tool", ["nccl-tests", "nvbandwidth", "p2p", "STREAM"])
@pytest.mark.parametrize(
    "said",
    [
        "[host:09093] *** An error occurred in MPI_Sendrecv", "configure: error: UCX support requested",
        "[host:09093] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
        "make: *** [Makefile:12: all] Error 2", "ssh: connect to host node2 port 22: failed",
    ],
)  # fmt: skip
def test_what_fails_after_the_last_line_of_a_tool_is_not_its_failure(
    tool: str, said: str, tmp_path: Path
) -> None:
    before, after = (judge(loaded(tmp_path, WHOLE[tool] + text)).verdict for text in ("", f"\n{said}\n"))
    assert before is after and not after.is_failure


def test_what_fails_long_before_a_run_is_not_its_failure(tmp_path: Path) -> None:
    for lines, verdict in ((20, Verdict.PASS), (19, Verdict.FAIL)):
        text = "Killed\n" + "checking for a compiler\n" * lines + FAST
        assert judge(loaded(tmp_path, text)).verdict is verdict
    topology = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-15\nGPU1\tNV12\t X \t0-15\n"
    for said in ("configure: error: UCX support requested but not found", "make: *** [all] Error 2"):
        for text in (f"{said}\n{COMMAND}{FAST}", f"{topology}\n{said}\n{COMMAND}{FAST}"):
            assert not judge(loaded(tmp_path, text)).verdict.is_failure


@pytest.mark.parametrize(
    "line",
    [
        "mpirun noticed that process rank 1 with PID 0 on node node2 exited on signal 9 (Killed).",
        "srun: error: node1: task 0: Exited with exit code 1", "time limit reached", "",
        "  1073741824  268435456  float  sum  -1  7163.5  149.89  224.84  0  7161.8  149.93  224.89  0",
        "83.1% (gpu0, gpu1) to 84.0% of the limit", "# nThread 1 nGpus 4 minBytes 8", "/bin/sh: ./tool: no",
        "all_reduce_perf is slow on this host", "0 -> 1 via P2P/CUMEM", "env: python: No such file",
    ],
)  # fmt: skip
def test_lines_that_are_no_commands(line: str) -> None:
    assert not Commands().line(line)


@pytest.mark.parametrize("line", ["A=" + '"a"' * 2000, "a@" + "a" * 8000, "A=a " * 2000, "`" * 8000])
def test_a_long_line_is_read_in_a_short_time(line: str) -> None:
    Commands().line(line)
