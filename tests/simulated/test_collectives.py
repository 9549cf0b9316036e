"""Collectives on simulated machines: golden files, read as programs read nccl-tests' text and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.backends.simulated.collectives import SimulatedProvider
from wirespeed.cli.main import main
from wirespeed.collectives.data_types import OPERATORS
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.document import RankInfo, Status
from wirespeed.errors import OutOfMemory
from wirespeed.features.nccl_tests.text import fixed
from wirespeed.features.nccl_tests.view import spread
from wirespeed.reports import Style, formats

Golden = Callable[[str, str], None]
A100, H200 = "simulated:dgx-a100-8", "simulated:hgx-h200-2"

#: In the form of nccl-tests 2.19.6; the numbers are made up.
THEIRS = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
        1024           256     float     sum      -1    10.50    0.10    0.17       0    11.25    0.09    0.16       0
  1073741824     268435456     float     sum      -1  12345.6   86.97  152.20       2    12000   89.48  156.59     N/A
# Out of bounds values : 1 FAILED
# Avg bus bandwidth    : 77.28 
#
"""  # noqa: E501, W291


def by_position(text: str) -> tuple[list[dict[str, Any]], float]:
    """Read the columns as operators' scripts do: lines that begin with a number, taken apart at spaces."""
    rows = []
    for line in text.splitlines():
        parts = line.split()
        if line.startswith("#") or not parts:
            continue
        rows.append({
            "size": int(parts[0]), "count": int(parts[1]), "type": parts[2], "redop": parts[3],
            "root": int(parts[4]),
            "time": float(parts[5]), "algbw": float(parts[6]), "busbw": float(parts[7]), "wrong": parts[8],
            "in_time": float(parts[9]), "in_algbw": float(parts[10]), "in_busbw": float(parts[11]),
            "in_wrong": parts[12],
        })  # fmt: skip
    average = re.search(r"^# Avg bus bandwidth\s+: (\S+)", text, re.MULTILINE)
    assert average
    return rows, float(average[1])


def by_column(text: str) -> list[tuple[str, ...]]:
    """Read the columns by their widths."""
    edges = (0, 12, 26, 36, 44, 52, 61, 69, 77, 85, 94, 102, 110, 118)
    return [
        tuple(line[a:b].strip() for a, b in pairwise(edges))
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]


def test_both_parsers_read_the_form_of_nccl_tests() -> None:
    rows, average = by_position(THEIRS)
    assert average == 77.28
    assert rows[1]["size"] == 2**30 and rows[1]["busbw"] == 152.2 and rows[1]["in_wrong"] == "N/A"
    assert by_column(THEIRS)[0] == (
        "1024", "256", "float", "sum", "-1", "10.50", "0.10", "0.17", "0", "11.25", "0.09", "0.16", "0",
    )  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        code = main(list(arguments))
    except SystemExit as error:
        assert isinstance(error.code, int)
        code = error.code
    return code, capsys.readouterr().out


def still(text: str) -> str:
    """Without what differs from place to place."""
    text = re.sub(r"Pid +\d+ on +\S+ ", "Pid      1 on       here ", text)
    text = re.sub(r'"pid": \d+', '"pid": 1', text)
    text = re.sub(r'"hostname": "[^"]*"', '"hostname": "here"', text)
    text = re.sub(r'"(start_time|end_time)": "[^"]*"', r'"\1": "2026-01-01 00:00:00"', text)
    text = re.sub(r'"env": \[[^]]*\]', '"env": []', text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", "2026-01-01 00:00:00", text, flags=re.MULTILINE)
    return text.replace(wirespeed.__version__, "0.0.0")


@pytest.mark.parametrize("name", OPERATIONS)
def test_text_of_every_operation(name: str, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    code, text = run(capsys, f"{name}_perf", "--machine", A100, "-g", "8", "-b", "8", "-e", "1G", "-f", "64")
    assert code == 0 and "SIMULATED" in text
    golden(f"collectives/{name}.txt", still(text))
    if name == "hypercube":
        return  # its operator is empty, there and here
    rows, average = by_position(text)
    assert len(rows) == 5 and average > 0
    for row in rows:
        assert row["busbw"] <= 300
        assert row["algbw"] == pytest.approx(row["size"] / row["time"] / 1e3, rel=0.05, abs=0.02)
    assert [tuple(map(str, (r["size"], r["count"]))) for r in rows] == [c[:2] for c in by_column(text)]


FORMS = {
    "per-iteration": ("-I", "1", "-K", "3", "-n", "10"),
    "cpu-time": ("-C", "1"),
    "stamps": ("-S", "1"),
    "unchecked": ("-c", "0"),
    "types": ("-d", "all", "-o", "avg"),
    "step": ("-b", "1M", "-e", "3M", "-i", "1M"),
    "graph": ("-G", "4"),
    "cycles": ("-N", "2"),
    "barriers": ("-z", "1", "-M", "1", "-R", "2"),
}


@pytest.mark.parametrize("form", FORMS)
def test_text_of_every_form(form: str, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    sizes = () if form == "step" else ("-b", "1K", "-e", "1M", "-f", "1024")
    code, text = run(capsys, "all_reduce_perf", "--machine", H200, "-g", "2", *sizes, *FORMS[form])
    assert code == 0
    golden(f"collectives/form-{form}.txt", still(text))


def test_roots(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, "broadcast_perf", "--machine", H200, "-g", "2", "-b", "1K", "-e", "1K", "-r", "all")
    assert [row["root"] for row in by_position(text)[0]] == [0, 1]


def test_json(capsys: pytest.CaptureFixture[str], golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ("all_reduce_perf", "--machine", H200, "-g", "2", "-b", "1K", "-e", "1M", "-f", "1024",
                 "-n", "4", "-I", "1", "-J")  # fmt: skip
    code, text = run(capsys, *arguments, str(path))
    assert code == 0 and text.startswith(f"# Writing JSON output to {path}")
    found = json.loads(path.read_text())
    assert found["version"] == 3 and found["config"]["step_factor"] == 1024
    assert found["config"]["blocking_collectives"] == "false" and found["config"]["ngpus"] == 2
    assert [(r["size"], r["count"], r["root"]) for r in found["results"]] == [
        (1024, 256, "    -1"),
        (2**20, 2**18, "    -1"),
    ]
    for result, row in zip(found["results"], by_column(text), strict=True):
        assert fixed(result["out_of_place"]["time"], 7).strip() == row[5]
        assert result["out_of_place"]["nwrong"] == result["in_place"]["nwrong"] == 0.0
        assert len(result["in_place_per_iter"]["times_us"]) == 4 == result["actual_iterations"]
    assert found["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert found["average_bus_bandwidth"]["okay"] == "unchecked" and found["wirespeed"]["simulated"]
    readable = still(json.dumps(found, indent=1)).replace(str(path), "out.json")
    golden("collectives/all_reduce.json", readable + "\n")
    _, text = run(capsys, *arguments, str(path))
    assert text.startswith(f"# Writing JSON output to {path}.0") and (tmp_path / "out.json.0").exists()


def test_json_as_nccl_tests_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Programs search its text: ``jsonDouble``, ``sanitizeJson`` and ``jsonRankInfo`` in ``src/util.cu``."""
    path = tmp_path / "out.json"
    run(capsys, "sendrecv_perf", "--machine", H200, "-g", "2", "-b", "1M", "-e", "1M", "-J", str(path))
    text = path.read_text()
    found = json.loads(text)
    start = str(path).replace("/", "\\/")
    assert text.startswith('{"version":3,"start_time":"20') and f'"-J","{start}"],"env":[' in text
    assert re.search(r'"out_of_place":\{"time":\d+\.\d{6},"alg_bw":\d+\.\d{6},"bus_bw":\d+\.\d{6},', text)
    assert '"nwrong":0.000000},"in_place":' in text and '"nwrong":null},"actual_iterations":20' in text
    assert re.search(r'"average_bus_bandwidth":\{"bandwidth":\d+\.\d{6},"okay":"unchecked"\}', text)
    (device,) = found["config"]["devices"]  # the first of each process
    assert device["device_hex"] == "0000:01:00" and list(device) == [
        "rank", "group", "pid", "hostname", "device", "device_hex", "device_info",
    ]  # fmt: skip
    keys = ["version", "start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
            "average_bus_bandwidth", "errors", "end_time", "wirespeed"]  # fmt: skip
    assert list(found) == keys
    imported = wirespeed.load_log(path)
    assert [(rank.rank, rank.device) for rank in imported.ranks] == [(0, 0), (1, 1)]


def test_json_lists_the_first_device_of_each_process(tmp_path: Path) -> None:
    document = wirespeed.run(["all_reduce"], machine=A100, sizes="1MiB", samples=1, copies=1)
    ranks = tuple(
        RankInfo(i, 0, 100 + i // 2, f"node{i // 4}.site", i % 4, f"00000000:0{i}:00", "GPU")
        for i in range(8)
    )
    placed = replace(document, ranks=ranks, options=document.options | {"threads": 1, "gpus": 2})
    log = tmp_path / "log.json"
    log.write_text(wirespeed.render(placed, "nccl-tests-json"))
    devices = json.loads(log.read_text())["config"]["devices"]
    assert [(d["rank"], d["hostname"], d["device_hex"]) for d in devices] == [
        (0, "node0", "0000:00:00"), (2, "node0", "0000:02:00"), (4, "node1", "0000:04:00"),
        (6, "node1", "0000:06:00"),
    ]  # fmt: skip
    log.write_text(log.read_text().replace('"ngpus":1', '"ngpus":2'))
    imported = wirespeed.load_log(log)
    assert [(rank.rank, rank.host, rank.device) for rank in imported.ranks] == [
        (i, f"node{i // 4}", i % 4) for i in range(8)
    ]


def test_columns_that_were_not_verified_are_as_wide_as_there(capsys: pytest.CaptureFixture[str]) -> None:
    """``writeBenchmarkLineBody`` prints ``    N/A`` in place of two blanks and six characters."""
    _, text = run(capsys, "sendrecv_perf", "--machine", H200, "-g", "2", "-b", "1M", "-e", "1M")
    (line,) = [line for line in text.splitlines() if re.match(r" +\d", line)]
    assert re.search(r"\d       0 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d    N/A$", line)
    _, text = run(capsys, "all_reduce_perf", "--machine", H200, "-g", "2", "-b", "1M", "-e", "1M", "-c", "0")
    (line,) = [line for line in text.splitlines() if re.match(r" +\d", line)]
    assert len(re.findall(r"\d    N/A", line)) == 2


def test_the_document_has_curves_that_every_report_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.json"
    code, text = run(capsys, "all_reduce_perf", "--machine", A100, "-g", "8", "-b", "1M", "-e", "1G", "-f",
                     "32", "-N", "3", "--output", str(path))  # fmt: skip
    assert code == 0
    document = wirespeed.load(path)
    (result,) = document.testcases
    _, algorithm, bus = result.tables
    assert [t.key for t in result.tables] == ["time", "algbw", "busbw"] and all(
        t.is_curve for t in result.tables
    )
    assert result.status is Status.PASSED and document.simulated
    for a, b in zip(algorithm.cells, bus.cells, strict=True):
        assert a.value and b.value and b.value == pytest.approx(a.value * 2 * 7 / 8)
        assert b.limit == 300e9 and len(b.samples) == 3 and b.statistics and b.statistics.n == 3
    for name in set(formats()) - {"vllm"}:  # constants of vLLM need a map of blocks
        assert "all_reduce" in wirespeed.render(document, name, Style(all_cells=True))
    table = list(csv.DictReader(io.StringIO(wirespeed.render(document, "csv"))))
    assert {row["table"] for row in table} == {"time", "algbw", "busbw"} and len(table) == 18
    assert len(by_position(text)[0]) == 9  # each cycle is printed
    again, average = by_position(wirespeed.render(document, "nccl-tests"))
    assert len(again) == 3 and average > 100
    assert all(len(line) <= 80 for line in wirespeed.render(document).splitlines())


def test_wrong_data_fails_the_run_and_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("all_reduce_perf", "--machine", f"{H200}+corrupt", "-g", "2", "-b", "1K", "-e", "1K")
    code, text = run(capsys, *arguments)
    rows, _ = by_position(text)
    assert code == 7 and rows[0]["wrong"] == rows[0]["in_wrong"] == "1"
    assert "# Out of bounds values : 2 FAILED" in text
    assert "all_reduce: failed: 1 wrong element in all_reduce float sum at 1024 B out of place" in text


def test_checks_end_at_the_first_one_with_wrong_elements(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, seeds = [0, 3, 5, 0, 0, 0], list[int]()

    def wrong(_: SimulatedProvider, seed: int) -> int:
        seeds.append(seed)
        return found.pop(0)

    monkeypatch.setattr(SimulatedProvider, "wrong", wrong)
    code, text = run(
        capsys, "all_reduce_perf", "--machine", H200, "-g", "2", "-b", "1K", "-e", "1K", "-c", "3"
    )
    rows, _ = by_position(text)
    assert code == 7 and rows[0]["wrong"] == "3" and rows[0]["in_wrong"] == "5"
    assert seeds == [1, 2, 3] and "validation: 3 " in text


def test_an_operation_that_only_names_operators_runs_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--machine", H200, "-g", "2", "-b", "1K", "-e", "1K", "-o")
    _, text = run(capsys, "sendrecv_perf", *arguments, "all")
    assert [row["redop"] for row in by_position(text)[0]] == list(OPERATORS)
    for name, operator, shown in (
        ("sendrecv", "sum", "sum"),
        ("sendrecv", "avg", "avg"),
        ("alltoall", "avg", "none"),
    ):
        _, text = run(capsys, f"{name}_perf", *arguments, operator)
        assert [row["redop"] for row in by_position(text)[0]] == [shown]


def test_a_number_of_ranks_that_is_no_power_of_two_is_skipped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("theirs.json", "run.json")]
    arguments = ("hypercube_perf", "--machine", A100, "-g", "6", "-b", "1M", "-e", "32M")
    code, text = run(capsys, *arguments, "-J", str(files[0]), "--output", str(files[1]))
    text = text.partition("\n")[2]
    assert code == 0 and text == wirespeed.render(wirespeed.load(files[1]), "nccl-tests")
    golden("collectives/hypercube-skipped.txt", still(text))
    content = json.loads(files[0].read_text())
    assert content["results"] == [] and content["errors"] == [""]
    assert content["average_bus_bandwidth"] == {"bandwidth": "nan", "okay": "unchecked"}
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "1")
    assert run(capsys, *arguments)[0] == 7


def test_faults_leave_what_was_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    code, _ = run(capsys, "all_reduce_perf", "--machine", f"{H200}+error", "-g", "2", "--output", str(path))
    document = wirespeed.load(path)
    assert (
        code == 3
        and document.testcases[0].status is Status.ERROR
        and "simulated error" in document.interrupted
    )
    code, _ = run(
        capsys, "all_reduce_perf", "--machine", f"{H200}+hang", "-g", "2", "-T", "1",
        "--output", str(path), "--force",
    )  # fmt: skip
    assert code == 4 and wirespeed.load(path).testcases[0].status is Status.TIMED_OUT


@pytest.mark.parametrize(
    ("sizes", "most", "measured"),
    [
        (("-b", "1G", "-e", "64G", "-f", "8"), 12 * 2**30, [2**30, 2**33]),
        (("-b", "32G", "-e", "32G"), 12 * 2**30, [12 * 2**30]),
        (("-b", "8G", "-e", "32G", "-i", "8G", "-c", "0"), 18 * 2**30, [2**33, 2**34]),
        (("-b", "8G", "-e", "8G"), 0, [2**33]),
    ],
)
def test_sizes_are_reduced_to_the_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, sizes: tuple[str, ...], most: int, measured: list[int]
) -> None:
    """By the rule of nccl-tests, which keeps 1 GiB and 1/16, and verifies with a third buffer."""
    file = str(tmp_path / "run.json")
    code, text = run(capsys, "all_reduce_perf", "--machine", A100, "-g", "8", *sizes, "--output", file)
    assert code == 0 and [row["size"] for row in by_position(text)[0]] == measured
    line = f"# Reducing maxBytes to {most} due to memory limitation"
    assert (line in text) == bool(most) and text == wirespeed.render(wirespeed.load(file), "nccl-tests")


def test_nothing_measured_is_no_success(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OutOfMemory("another process has it")

    monkeypatch.setattr(SimulatedProvider, "allocate", full)
    file = tmp_path / "run.json"
    code, text = run(
        capsys, "all_reduce_perf", "--machine", A100, "-g", "8", "-b", "1G", "-e", "1G", "-J", str(file)
    )
    assert code == 3 and re.search(r"# +1073741824 .* not measured: out of memory: rank 0 .* has it", text)
    assert re.search(
        r"^\S+: Test NCCL failure wirespeed:0 'out of memory: rank 0 .* / '$", text, re.MULTILINE
    )
    assert "# Avg bus" not in text and "# Out of bounds" not in text
    assert not {"out_of_bounds", "average_bus_bandwidth"} & json.loads(file.read_text()).keys()


def test_a_least_bandwidth(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("all_reduce_perf", "--machine", A100, "-g", "8", "-b", "1G", "-e", "1G")
    for least, code, word in (("200", 0, "OK"), ("400", 7, "FAILED")):
        monkeypatch.setenv("NCCL_TESTS_MIN_BW", least)
        got, text = run(capsys, *arguments)
        assert got == code and re.search(rf"Avg bus bandwidth    : \S+ {word}", text)


def test_numbers_keep_the_width_of_their_column() -> None:
    found = [fixed(v, 7) for v in (0.0, 9.999, 1234.567, 12345.67, 123456.7, 1234567.8, 12345678.0)]
    assert found == ["   0.00", "  10.00", "1234.57", "12345.7", " 123457", "1234568", "1.2e+07"]
    assert all(len(text) == 7 for text in found)
    assert [fixed(v, 6) for v in (345.012, 1e5, 1e7)] == ["345.01", "100000", " 1e+07"]


def test_percentiles_are_nearest_ranks() -> None:
    s = spread([float(i) for i in range(1, 101)])
    assert (s.min, s.max, s.p50, s.p95, s.p99, s.mean) == (1, 100, 51, 95, 99, 50.5)


@pytest.mark.parametrize(
    ("operation", "gigabytes", "verdict"),
    [
        ("all_reduce", 290, "pass"), ("all_reduce", 140, "fail"), ("all_reduce", 400, "pass"),
        ("all_reduce", 700, "implausible"), ("all_gather", 400, "implausible"), ("alltoallv", 10, "unknown"),
    ],
)  # fmt: skip
def test_the_bus_bandwidth_of_large_arrays_is_judged(
    operation: str, gigabytes: int, verdict: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.json"
    run(capsys, f"{operation}_perf", "--machine", A100, "-g", "8", "-b", "1M", "-e", "512M", "-f", "512",
        "--output", str(path))  # fmt: skip
    document = wirespeed.load(path)
    (result,) = document.testcases
    time, algorithm, bus = result.tables
    cells = tuple(replace(cell, value=gigabytes * 1e9) for cell in bus.cells)
    changed = replace(result, tables=(time, algorithm, replace(bus, cells=cells)))
    check = wirespeed.judge(replace(document, testcases=(changed,)))
    found = {(j.key.table, j.key.column, j.verdict.value): j.why for j in check.judgements}
    assert ("busbw", "512 MiB", verdict) in found
    why = "not limited" if operation == "alltoallv" else "buffers too small"
    assert found["busbw", "1 MiB", "unknown"].startswith(why)
    assert {table for table, *_ in found} == {"busbw"}  # time and algorithm bandwidth say the same
