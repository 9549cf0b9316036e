"""What programs that read nccl-tests' text see of a run that failed: never the lines of a complete one."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wirespeed
from wirespeed.backends import collective_backend, describe
from wirespeed.backends.provider import Elapsed
from wirespeed.backends.simulated import collectives
from wirespeed.backends.simulated.collectives import SimulatedProvider
from wirespeed.cli.main import main
from wirespeed.cli.measuring import speak_for_leader
from wirespeed.document import UNFINISHED
from wirespeed.driver import session, worker
from wirespeed.features.nccl_tests import command as nccl_tests
from wirespeed.features.nccl_tests import not_possible
from wirespeed.features.nccl_tests import options as nccl_tests_options
from wirespeed.features.nccl_tests.text import PrintedLines
from wirespeed.features.nccl_tests.view import View
from wirespeed.options import RunOptions
from wirespeed.testcases.collectives import COLLECTIVES
from wirespeed.worlds.base import World, WorldError
from wirespeed.worlds.launchers import alone

TWO = "simulated:hgx-h200-2"
SIZES = ("-g", "2", "-b", "1M", "-e", "4M", "-f", "2")
STOPPED = " .. HOST Test failure wirespeed:0"
#: The lines that public programs take for a run that is complete.
COMPLETE = re.compile(r"# Out of bounds values|# Avg bus bandwidth|Collective test concluded")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    return code, capsys.readouterr().out


def ending(text: str) -> list[str]:
    """The lines behind the table that are no comments."""
    lines = text.splitlines()
    last = max(i for i, line in enumerate(lines) if re.match(r"#\s+\(B\)|\s+\d+\s+\d+\s", line))
    return [
        re.sub(r"^( \.\. )?\S+?(:? )(pid \d+: )?Test", r"\1HOST\2Test", line)
        for line in lines[last + 1 :]
        if not line.startswith("#")
    ]


def fails_at(count: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something in place of the operation with a number."""
    original, calls = SimulatedProvider.once, []

    def once(self: SimulatedProvider) -> None:
        calls.append(1)
        if len(calls) == count:
            act()
        original(self)

    monkeypatch.setattr(SimulatedProvider, "once", once)


@pytest.mark.parametrize(
    ("fault", "more", "code", "lines"),
    [
        ("hang", ("-T", "1"), 4, ["HOST: Test timeout (1s) wirespeed:0", STOPPED]),
        (
            "error", (), 3,
            [
                "HOST: Test NCCL failure wirespeed:0 'simulated error in gpu0->gpu1 by gpu0 (sm) / '",
                STOPPED,
            ],
        ),
    ],
)  # fmt: skip
def test_a_run_that_fails_ends_as_that_of_nccl_tests(
    fault: str,
    more: tuple[str, ...],
    code: int,
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    saved, file = tmp_path / "run.json", tmp_path / "nccl.json"
    got, text = run(
        capsys, "all_reduce_perf", "--machine", f"{TWO}+{fault}", *SIZES, *more, "--output", str(saved), "-J",
        str(file),
    )  # fmt: skip
    assert got == code and not COMPLETE.search(text) and ending(text) == lines
    assert f" pid {os.getpid()}: Test failure" in text
    shown = wirespeed.render(wirespeed.load(saved), "nccl-tests")
    assert text.partition("\n")[2] == shown  # but for the line that names the JSON
    found = json.loads(file.read_text())
    assert not {"out_of_bounds", "average_bus_bandwidth"} & found.keys() and found["errors"][0]


def test_a_failure_in_the_middle_keeps_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The line of the size in which it fails ends after its first result."""

    def fail() -> None:
        raise collectives.BackendError("the GPU has fallen off the bus")

    fails_at(11, monkeypatch, fail)  # warm-ups and checks: three operations out of place and three in place
    saved = tmp_path / "run.json"
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, *SIZES, "--output", str(saved))
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d", line)]
    assert code == 3 and [(row[0], len(row)) for row in rows] == [("1048576", 13), ("2097152", 9)]
    assert not COMPLETE.search(text) and "Test NCCL failure wirespeed:0 'the GPU has fallen off" in text
    assert wirespeed.render(wirespeed.load(saved), "nccl-tests") == text


@pytest.mark.parametrize("early", [False, True])
def test_ctrl_c_is_no_complete_run(
    early: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrintedLines, "testcase_started" if early else "measuring", interrupt)
    code, text = run(capsys, "all_reduce_perf", "--machine", f"{TWO}+hang", *SIZES)
    assert code == 130 and not COMPLETE.search(text)
    assert re.search(r"^ \.\. \S+ pid \d+: Test failure wirespeed:0$", text, re.MULTILINE)
    assert "Test NCCL failure" not in text


#: What nccl-tests prints if there are too few GPUs (``writeDeviceReport`` in its ``src/util.cu``).
TOO_FEW = (
    "Invalid number of GPUs: 3 requested but only 2 were found.\n"
    "Please check the number of processes and GPUs per process.\n"
)


def without_devices(text: str) -> bool:
    """Whether a text has the header, no devices, and the line with which every failure ends."""
    return re.fullmatch(
        r"# nccl-tests version .*\n# Collective test starting: all_reduce_perf\n# nThread 1 nGpus \d .*\n"
        r"(?:# .*\n)*#\n# Using devices\n \.\. \S+ pid \d+: Test failure wirespeed:0\n", text
    ) is not None  # fmt: skip


@pytest.mark.parametrize(("first", "gpus"), [("", "3"), ("1", "2"), ("2", "1")])
def test_fewer_gpus_than_ranks(
    first: str, gpus: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_DEVICE", first)
    assert main(["all_reduce_perf", "--machine", TWO, "-g", gpus]) == 5
    captured = capsys.readouterr()
    assert without_devices(captured.out) and captured.err == TOO_FEW
    assert main(["all_reduce_perf", "--machine", TWO, "-g", gpus, "--format", "json"]) == 5
    captured = capsys.readouterr()
    assert not captured.out and captured.err == TOO_FEW


def test_fewer_gpus_than_processes_start_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_tests, "usable_gpus", lambda: 2)
    monkeypatch.setattr("wirespeed.worlds.launchers.join", None)
    assert main(["all_reduce_perf", "-g", "3"]) == 5
    captured = capsys.readouterr()
    assert without_devices(captured.out) and captured.err == TOO_FEW


@pytest.mark.parametrize("first", [True, False])
def test_without_a_gpu_it_fails_as_nccl_tests(
    first: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``cudaGetDeviceCount`` fails there in each process: testCudaError."""
    file = tmp_path / "out.json"
    monkeypatch.setattr(nccl_tests, "usable_gpus", lambda: 0)
    monkeypatch.setattr("wirespeed.worlds.launchers.join", None)
    if not first:
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert main(["all_reduce_perf", "-b", "8", "-e", "4G", "-f", "2", "-J", str(file)]) == 2
    captured = capsys.readouterr()
    header, _, failure = captured.out.rpartition("# Using devices\n") if first else ("", "", captured.out)
    assert re.fullmatch(
        r"\S+: Test CUDA failure wirespeed:0 'no CUDA-capable device is detected'\n"
        r" \.\. \S+ pid \d+: Test failure wirespeed:0\n", failure,
    )  # fmt: skip
    assert not COMPLETE.search(captured.out) and ("# Collective test starting" in header) == first
    assert captured.err.count("\n") == 1 and "no GPU was found" in captured.err and "--mpi" in captured.err
    if first:
        found = json.loads(file.read_text())
        assert found["results"] == [] and "no GPU was found" in found["errors"][0] and found["end_time"]
        assert found["config"]["maximum_bytes"] == 2**32
    else:
        assert not file.exists()


def test_the_first_gpu_is_that_of_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, expected in (("1", ["1", "2"]), (" +2 ", ["2", "3"]), ("-1", ["0", "1"]), ("", ["0", "1"])):
        monkeypatch.setenv("NCCL_TESTS_DEVICE", text)
        _, out = run(capsys, "all_reduce_perf", "--machine", "simulated:dgx-a100-8", "-g", "2", *SIZES)
        assert re.findall(r"^#  Rank +\d .* device +(\d) ", out, re.M) == expected
    for text in ("x", "1x", "-2", "1e3"):
        monkeypatch.setenv("NCCL_TESTS_DEVICE", text)
        with pytest.raises(SystemExit):
            main(["all_reduce_perf", "--machine", TWO, "-g", "1"])


@pytest.mark.parametrize(
    ("given", "local", "expected"),
    [
        (["-g", "4"], 2, (1, 1, 5)),
        (["-g", "4", "--launch", "here"], 0, (1, 4, 3)),
        (["-g", "1"], 2, (1, 1, 3)),
    ],
)
def test_a_process_in_place_of_a_gpu_takes_the_next_one(
    given: list[str], local: int, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``gpu0 + i`` in ``writeDeviceReport``; a process of a launcher has the GPUs from ``gpu0``, too."""
    monkeypatch.setenv("NCCL_TESTS_DEVICE", "3")
    made: list[tuple[int, ...]] = []
    module = "wirespeed.backends.nccl.provider"
    monkeypatch.setitem(
        sys.modules, module,
        SimpleNamespace(NcclProvider=lambda w, g, how: made.append((how.threads, how.gpus, how.first))),
    )  # fmt: skip
    arguments = nccl_tests_options.parser("all_reduce_perf").parse_args(given)
    options = nccl_tests_options.given("all_reduce_perf", arguments, ["all_reduce_perf"])
    ranks = options.threads * options.gpus
    per_process = ranks if "here" in given else 1
    operation = nccl_tests_options.chosen(options)
    wanted = not_possible.Request(options, operation, "nccl", per_process, (8,), None)
    world: Any = SimpleNamespace(local_rank=local)
    nccl_tests._maker(wanted, None)(world, world)
    assert made == [expected]


def test_the_devices_are_printed_while_the_ranks_connect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, seen = threading.Event(), []
    begin = PrintedLines.begin

    def begun(self: PrintedLines, document: wirespeed.Document) -> None:
        begin(self, document)
        printed.set()

    monkeypatch.setattr(PrintedLines, "begin", begun)
    monkeypatch.setattr(SimulatedProvider, "connect", lambda _: seen.append(printed.wait(60)))
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, *SIZES)
    assert code == 0 and seen == [True]
    assert text.count("# Using devices") == 1 and text.index("# Using devices") < text.index("#       size")


def test_the_headings_are_printed_before_the_ranks_warm_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, seen = threading.Event(), []
    head, once = PrintedLines.head, SimulatedProvider.once

    def headed(self: PrintedLines, view: View) -> None:
        head(self, view)
        printed.set()

    def warmed_up(self: SimulatedProvider) -> None:
        seen.append(printed.wait(60))
        once(self)

    monkeypatch.setattr(PrintedLines, "head", headed)
    monkeypatch.setattr(SimulatedProvider, "once", warmed_up)
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, *SIZES)
    assert code == 0 and all(seen) and text.count("out-of-place") == 1


def test_the_json_is_complete_at_every_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that is killed leaves what it was then."""
    file, once, seen = tmp_path / "out.json", SimulatedProvider.once, []

    def look(self: SimulatedProvider) -> None:
        seen.append(json.loads(file.read_text()))
        if len(seen) == 12:  # of the second size; saving waits for a moment after it has saved
            until = time.monotonic() + 30
            while not seen[-1]["results"] and time.monotonic() < until:
                time.sleep(0.02)
                seen[-1] = json.loads(file.read_text())
        once(self)

    def joined(*_: object, **__: object) -> World:
        seen.append(json.loads(file.read_text()))
        return alone()

    monkeypatch.setattr("wirespeed.worlds.launchers.join", joined)
    monkeypatch.setattr(SimulatedProvider, "once", look)
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, *SIZES, "-J", str(file))
    assert code == 0 and text.count("# Writing JSON output to") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    for found in seen:
        assert found["errors"][-1] == UNFINISHED and found["args"][0] == "all_reduce_perf"
        assert found["config"]["maximum_bytes"] == 4 * 2**20
        assert not {"end_time", "out_of_bounds", "average_bus_bandwidth"} & found.keys()
    counts = [len(found["results"]) for found in seen]
    assert counts[0] == 0 and counts == sorted(counts) and counts[11] > 0
    found = json.loads(file.read_text())
    assert found["errors"] == [""] and len(found["results"]) == 3 and found["end_time"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, WorldError("rank 1 does not join")])
def test_a_run_that_ends_before_it_has_begun_says_so(
    error: BaseException,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Ctrl-C, the end of a job, or ranks that do not join."""
    file = tmp_path / "out.json"

    def join(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("wirespeed.worlds.launchers.join", join)
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, *SIZES, "-J", str(file))
    assert code == (130 if error is KeyboardInterrupt else 1)
    assert re.search(r"^ \.\. \S+ pid \d+: Test failure wirespeed:0$", text, re.MULTILINE)
    assert json.loads(file.read_text())["errors"] == [
        UNFINISHED if error is KeyboardInterrupt else "rank 1 does not join"
    ]


def test_a_process_that_reports_in_place_of_rank_0_prints_the_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world: Any = SimpleNamespace(leaderless=True, rank=1, local_rank=1)
    speak_for_leader(world, "rank 0 ended unexpectedly", " .. host pid 7: Test failure wirespeed:0")
    captured = capsys.readouterr()
    assert captured.out == " .. host pid 7: Test failure wirespeed:0\n"
    assert captured.err == "wirespeed: error: rank 0 ended unexpectedly\n"


def test_each_result_is_printed_when_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[str] = []
    monkeypatch.setattr("wirespeed.features.nccl_tests.text._write", parts.append)
    assert main(["all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8"]) == 0
    _, _, first, second, _ = parts
    assert re.fullmatch(r" +8 +2 +float +sum +-1 +\S+ +\S+ +\S+ +0", first)
    assert re.fullmatch(r"( +\S+){3} +0\n", second)


class Clock:
    """A clock that only the operations advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_stage_that_makes_progress_is_not_late(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five warm-ups of 9 s are one stage; each of them is within the time-out of 10 s."""
    clock, looked = Clock(), threading.Event()
    for module in (session, worker, collective_backend):
        monkeypatch.setattr(module, "time", clock)

    def once(_: SimulatedProvider) -> None:
        looked.clear()
        clock.now += 9
        assert looked.wait(60)

    monkeypatch.setattr(SimulatedProvider, "once", once)
    monkeypatch.setattr(PrintedLines, "measuring", lambda *_: looked.set())
    code, text = run(
        capsys, "all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8", "-T", "10", "-w", "5"
    )
    assert code == 0 and "# Avg bus bandwidth" in text


def test_a_long_loop_has_the_time_that_its_operations_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limits = Clock(), []
    monkeypatch.setattr(collective_backend, "time", clock)
    backend = collectives.connect(describe(TWO), 2)
    backend._options = replace(backend._options, timeout=300.0)
    loop = SimulatedProvider.loop

    def once(_: SimulatedProvider) -> None:
        clock.now += 0.25

    def timed(self: SimulatedProvider) -> list[Elapsed]:
        limits.append(backend.setup_s)
        return loop(self)

    monkeypatch.setattr(SimulatedProvider, "once", once)
    monkeypatch.setattr(SimulatedProvider, "loop", timed)
    measurement = COLLECTIVES[0].plan(describe(TWO), RunOptions()).measurements[0]
    with backend.prepare(measurement, RunOptions()) as prepared:
        prepared.warm_up()
        prepared.sample(20_000)
        prepared.sample(2)
    assert limits == [300 + 2 * 0.25 * 20_000, 0] and backend.setup_s == 0
    backend.close()


def test_sizes_over_mpi_are_reduced_to_the_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two buffers, and one for MPI, in nine tenths of the free memory."""
    monkeypatch.setattr("wirespeed.worlds.launchers.join", lambda *_, **__: alone())
    monkeypatch.setattr(nccl_tests, "_maker", lambda *_: lambda *_: SimulatedProvider(describe(TWO), 1))
    monkeypatch.setattr("wirespeed.backends.mpi.provider.available_bytes", lambda: 10 * 2**20)
    code, text = run(capsys, "all_reduce_perf", "--mpi", "-b", "64G", "-e", "64G")
    most = 3 * 2**20 - 4096
    assert code == 0 and f"#\n# Reducing maxBytes to {most} due to memory limitation\n" in text
    assert re.search(rf"^ +{most} +{most // 4} ", text, re.MULTILINE)


def test_an_unknown_type_or_operator_is_that_of_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(
        capsys, "all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8", "-d", "fp4", "-o", "xor"
    )
    assert code == 0
    assert text.startswith(
        "invalid type fp4, defaulting to float .. \ninvalid op xor, defaulting to sum .. \n# nccl-tests "
    )
    assert re.search(r"^ +8 +2 +float +sum ", text, re.MULTILINE)


@pytest.mark.parametrize("words", [("-Q", "1"), ("--nonsense",), ("-b", "8", "--nonsense=3")])
def test_an_unknown_option_prints_the_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["all_reduce_perf", "--machine", TWO, *words])
    assert ended.value.code == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "invalid option '?'\nUSAGE: all_reduce_perf \n\t[-t,--nthreads <N>] threads per process \n\t[-g,"
    )
    assert captured.out.endswith(" \n\t[-h,--help]\n") and "unrecognized option '-" in captured.err


def test_an_option_of_other_commands_is_no_success_for_consumers(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "all_reduce_perf", "--machine", TWO, "--for", "nagios")
    assert code == 3 and " UNKNOWN: ambiguous option: --for" in text


def test_json_that_cannot_be_written_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.json"
    code, text = run(
        capsys, "all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8", "-J", str(path)
    )
    assert code == 0 and text.startswith(
        f"# skipping json output; {path} not accessible\n# nccl-tests version"
    )
    assert "# Avg bus bandwidth" in text and not path.parent.exists()


def test_the_mean_counts_every_cycle(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(
        capsys, "all_reduce_perf", "--machine", f"{TWO}+noise@sample=20%", "-g", "2", "-b", "1G", "-e", "1G",
        "-N", "3", "-n", "1",
    )  # fmt: skip
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d", line)]
    printed = [float(row[i]) for row in rows for i in (7, 11)]
    average = re.search(r"^# Avg bus bandwidth    : (\S+)", text, re.MULTILINE)
    assert len(rows) == 3 and len(set(printed)) > 3 and average
    assert float(average[1]) == pytest.approx(sum(printed) / 6, abs=0.006)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("-I", "1"), "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows "),
        (
            ("-I", "1", "-K", "3"),
            "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows; "
            "summary skips first 3 iterations ",
        ),
    ],
)
def test_texts_of_the_header(options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, "all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8", *options)
    assert line in text.splitlines()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"blocking": 1}, "# Blocking Enabled: wait and barrier after each inner iteration (-m) "),
        ({"blocking": 2}, "# Blocking Enabled: wait after each inner iteration (-m), no barrier "),
        (
            {"blocking": 3},
            "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier ",
        ),
        (
            {"parallel_init": True},
            "# Parallel Init Enabled: threads call into NcclInitRank concurrently ",
        ),
    ],
)
def test_texts_of_options_that_need_a_gpu(
    changes: dict[str, object], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    run(capsys, "all_reduce_perf", "--machine", TWO, "-g", "2", "-b", "8", "-e", "8", "--output", str(path))
    found = json.loads(path.read_text())
    found["options"] |= changes
    path.write_text(json.dumps(found))
    assert line in wirespeed.render(wirespeed.load(path), "nccl-tests").splitlines()


@pytest.mark.parametrize("name", ["all_reduce_perf_mpi", "alltoallv_perf_mpi"])
def test_names_of_programs_for_mpirun(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, name, "--machine", TWO, "-g", "2", "-b", "1K", "-e", "1K")
    assert code == 0 and f"# Collective test starting: {name}\n" in text
