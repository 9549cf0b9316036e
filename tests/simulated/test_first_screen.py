"""The first hour: what ``wirespeed`` prints without options, two causes, many files, many sizes, Ctrl-C."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import still
from tests.simulated.test_check import both
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.overview import overview
from wirespeed.reports import Style
from wirespeed.run_errors import RunInterrupted
from wirespeed.screens.run import Tables, render

Golden = Callable[[str, str], None]
A100 = "simulated:dgx-a100-8"
TWO_CAUSES = f"{A100}+gen3@gpu3+throttle=0.6@gpu5"


@cache
def measured(machine: str) -> Document:
    return still(wirespeed.run(machine=machine, tier="quick", samples=3, copies=1))


def out_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("healthy", "simulated:hgx-h200-2"),
        ("eight", f"{A100}+nvlinks=6@gpu0+speed@gpu3-pcie1=0.5"),
        ("no-gpu", "simulated:cpu-2-sockets+busy@numa0"),
    ],
)
def test_golden_first_screens(name: str, machine: str, golden: Golden) -> None:
    document = measured(machine)
    both(f"run/{name}", lambda style: render(Judged(document), style), golden)


@pytest.mark.parametrize("width", [80, 120])
def test_eight_gpus_have_one_table_for_each_kind_of_path(width: int) -> None:
    document = measured(f"{A100}+nvlinks=6@gpu0")
    text = render(Judged(document), Style(width))
    tables, _, checked = text.partition("-v shows every table")
    assert tables.count("\n") <= 50 and max(map(len, text.splitlines())) <= width
    for kind in ("host ↔ GPU", "GPU ↔ GPU", "GPU memory", "host memory"):
        assert re.search(rf"^{kind}, GB/s +\w", tables, re.M), kind
    assert "\ncollectives at 1 GiB, bus bandwidth, GB/s" in tables and tables.count("✖138") == 14
    assert "✖ fail" in tables and "device_to_device_memcpy_write_ce: 56 values" in tables
    assert checked.count("FAIL") == 1 and "remedy" in checked


def test_tables_that_are_too_wide_are_their_ranges() -> None:
    document = measured(f"{A100}+nvlinks=6@gpu0")
    check = judge(document)
    lines = [str(part) for part in Tables(document, check, 40).all()]
    digest = next(line for line in lines if line.startswith("device_to_device_memcpy_read_ce: 56 values"))
    assert "lowest 138 GB/s (gpu6, gpu0), " in digest and digest.endswith("); ✖ 14 fail")


def test_the_plain_command_ends_with_where_it_was_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = ("--machine", "simulated:one-gpu.json", "--samples", 1, "--copies", 1, "-o", "a.json", "--force")
    machine = Path(__file__).parents[1] / "machines" / "one-gpu.json"
    plain = ("--machine", f"simulated:{machine}", *plain[2:])
    code, out, err = out_of(capsys, *plain)
    assert code == 0 and out.count("PASS") == 1 and "device_stream_triad" in out
    assert "\nlocal " not in out and re.search(r"\d+ values OK, \d+ not judged; \d+ testcases · data", out)
    assert err.splitlines()[0] == "saved to a.json" and "every table: wirespeed report a.json" in err
    _, verbose, err = out_of(capsys, *plain, "-v")
    assert "device_stream_write" in verbose and "values OK" in verbose and "every table" not in err
    _, chosen, _ = out_of(capsys, *plain, "-t", "device_stream_triad")
    assert "of limit" in chosen and "values OK" not in chosen
    _, every, _ = out_of(capsys, *plain, "--format", "table")
    assert "device_stream_write" in every and "values OK" not in every


def test_two_causes_are_answered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "two faults.json"
    wirespeed.run(
        ["host_to_device_memcpy_ce", "device_stream_triad"], machine=TWO_CAUSES, tier="quick", output=file
    )
    code, out, _ = out_of(capsys, "check", file, "--allow-simulated")
    text = " ".join(out.split())
    assert code == 1 and "generation than the GPU (gpu3); the GPU is throttled (gpu5)" in text
    assert "2 causes explain" in text and text.count("likely cause: ") == 2
    assert text.count("remedy") == 2 and "check cooling" in text and "reseat the card" in text
    assert f"wirespeed check --explain '{file}'" in text.replace("' ", "'")
    document = wirespeed.load(file)
    advice = overview(document, judge(document)).advice.do
    assert re.match(r"gpu3: .*; gpu5: check cooling", advice)


def test_a_log_of_many_sizes_is_a_summary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The format is that of nccl-tests 2.13 (`src/common.cu` of NVIDIA/nccl-tests)."""
    head = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8192 step: 8(bytes) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
    )
    head += "".join(
        f"#  Rank  {i} Group  0 Pid  9 on node1 device  {i} [0x{i}8] NVIDIA H100 80GB HBM3\n"
        for i in range(8)
    )
    head += (
        "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   "
        "algbw   busbw #wrong\n#        (B)    (elements)    (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)\n"
    )
    rows = [
        f"{size:12d} {size // 4:12d}  float  sum  -1 20.0 {size / 2e4:.2f} {size / 1.1e4:.2f} 0 "
        f"20.0 {size / 2e4:.2f} {size / 1.1e4:.2f} 0\n"
        for size in range(8, 8 * 1025, 8)
    ]
    log = tmp_path / "all_reduce.txt"
    log.write_text(head + "".join(rows) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n#\n")
    code, out, _ = out_of(capsys, "import", log)
    assert code == 0 and out.count("\n") < 100
    assert out.count("11 of 1024 points of each curve are shown; -v shows all") == 3
    assert re.search(r"^ *8 B ", out, re.M) and re.search(r"^ *8 KiB ", out, re.M)
    assert out_of(capsys, "import", log, "-v")[1].count("\n") > 3_000


def test_files_that_are_no_runs_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for i in range(70):
        (tmp_path / f"x{i:02}.json").write_text('{"a": 1}')
    (tmp_path / "odd.json").write_text("{")
    wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=1, copies=1, output=tmp_path / "run.json")
    code, _, err = out_of(capsys, "report", tmp_path, "-o", tmp_path / "page.html")
    assert code == 2 and len(err.splitlines()) <= 4
    assert "70 files (" in err and "x00.json" in err and "and 67 more)" in err and "odd.json" in err
    _, out, _ = out_of(capsys, "compare", tmp_path, "--to", tmp_path / "run.json")
    assert "70 files (" in " ".join(out.split()) and out.count("unreadable:") == 2


@pytest.mark.parametrize("command", [[], ["run", "-t", "0", "4"], ["check"]])
def test_ctrl_c_is_said_once(
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=1, copies=1)

    def interrupted(*_: object, **__: object) -> Document:
        raise RunInterrupted(replace(document, interrupted="Ctrl-C"))

    monkeypatch.setattr("wirespeed.api.run", interrupted)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    options = ["--machine", "simulated:hgx-h200-2", "--no-save"]
    options += ["--allow-simulated"] if command == ["check"] else []
    code, out, err = out_of(capsys, *command, *options)
    assert code == 130 and (out + err).count("Ctrl-C") == 1 and not err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)  # in a file, nobody sees it
    assert "interrupted" in out_of(capsys, *command, *options)[2]
    code, out, err = out_of(capsys, *command, *options, "-q")
    assert code == 130 and not out and err == "wirespeed: interrupted; 1 testcase begun\n"


def test_tables_say_the_size_of_buffers_that_is_not_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    run = ("run", "--machine", "simulated:hgx-h200-2", "--samples", 1, "--copies", 1, "--no-save")
    names = ("-t", "device_to_device_memcpy_read_ce", "host_stream_copy", "host_stream_triad", "host_latency")
    _, out, _ = out_of(capsys, *run, *names, "--size", "64MiB")
    assert out.count("64 MiB buffers") == 2  # the table of host memory has one, the latency has none
    _, out, _ = out_of(capsys, *run, *names)
    assert "buffers" not in out
    _, out, _ = out_of(capsys, *run, "--size", "64MiB")
    assert out.count("64 MiB buffers") == 1
