"""A log that says that it failed is a run that failed; one that may lack lines is no pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from tests.conftest import GOLDEN
from tests.features.imports.test_formats import OSU, STREAM, imported
from wirespeed.cli.main import main
from wirespeed.errors import UsageError
from wirespeed.features.imports.scan import number, says_failure, scaled, status_of
from wirespeed.hardware.limits import Allowance, allowances
from wirespeed.judging.check import Check
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

PUBLISHED = Path(__file__).parents[2] / "data/published"
BABELSTREAM = """BabelStream
Version: 5.0
Implementation: CUDA
Running kernels 100 times
Precision: double
Array size: 268.4 MB (=0.3 GB)
Total size: 805.3 MB (=0.8 GB)
Using CUDA device NVIDIA H200
Driver: 12080
Memory: DEFAULT
Init: 0.051200 s (=15728 MBytes/sec)
Read: 0.000452 s (=1781406 MBytes/sec)
Function    MBytes/sec  Min (sec)   Max         Average
Copy        4010000.000 0.00100     0.00110     0.00105
Mul         4000000.000 0.00100     0.00110     0.00105
Add         4150000.000 0.00100     0.00110     0.00105
Triad       4150000.000 0.00100     0.00110     0.00105
Dot         4480000.000 0.00100     0.00110     0.00105
"""
P2P = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA H100 80GB HBM3, pciBusID: 2, pciDeviceID: 0, pciDomainID:0
P2P Connectivity Matrix
     D\\D     0     1
     0       1     1
     1       1     1
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 2474.76 390.19
     1 390.36 2512.44
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.25   3.05
     1   3.15   2.35

   CPU     0      1
     0   2.15   1.55
     1   1.65   2.25

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary.
"""
MLC = """Intel(R) Memory Latency Checker - v3.11
Measuring idle latencies for sequential access (in ns)...
                Numa node
Numa node            0       1
       0          85.1   140.2
       1         140.3    85.5
Measuring Peak Injection Memory Bandwidths for the system
ALL Reads        :      181223.5
Stream-triad like:      147942.5
Measuring Loaded Latencies for the system
Inject  Latency Bandwidth
Delay   (ns)    MB/sec
 00000  250.51   181000.5
 20000   90.12     2000.5
Measuring cache-to-cache transfer latency (in ns)...
Local Socket L2->L2 HIT  latency        48.0
Local Socket L2->L2 HITM latency        48.1
"""
WARNED = {Verdict.PASS, Verdict.NOT_JUDGED}  # what a healthy log of each tool comes to


def nvbandwidth(form: str = "nvbandwidth") -> str:
    """A whole log of four testcases, as nvbandwidth prints them."""
    cases = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce",
             "device_to_device_bidirectional_memcpy_write_ce", "device_local_copy"]  # fmt: skip
    return wirespeed.render(wirespeed.run(cases, machine="simulated:hgx-h200-2", samples=1, copies=1), form)


def whole_logs() -> dict[str, str]:
    return {
        "nvbandwidth": nvbandwidth(),
        "nvbandwidth-json": nvbandwidth("nvbandwidth-json"),
        "nccl-tests": (GOLDEN / "collectives/all_reduce.txt").read_text(),
        "nccl-tests-json": (GOLDEN / "collectives/all_reduce.json").read_text(),
        "STREAM": STREAM,
        "BabelStream": BABELSTREAM,
        "p2p": P2P,
        "mlc": MLC,
        "OSU": OSU[OSU.index("# OSU MPI Latency") : OSU.index("# OSU MPI Allreduce")],
    }


LOGS = whole_logs()
#: Lines after which the rest says nothing of the run; OSU has no last line.
ENDS = {
    "nccl-tests": "# Avg bus bandwidth", "nvbandwidth": "NOTE: The reported", "OSU": "0     ",
    "mlc": "Local Socket L2->L2 HIT ",
}  # fmt: skip


def checked(folder: Path, text: str) -> Check | None:
    """The judgement on a log; None if it is refused."""
    try:
        return judge(imported(folder, text))
    except UsageError:
        return None


@pytest.mark.parametrize("tool", LOGS)
def test_a_log_that_is_cut_is_no_pass_and_no_failure(tool: str, tmp_path: Path) -> None:
    text = LOGS[tool]
    whole = checked(tmp_path, text)
    assert whole is not None and whole.verdict in WARNED
    last = text.index(ENDS[tool]) if tool in ENDS else len(text.rstrip()) - 1
    if tool in ("STREAM", "p2p"):
        last = text.rstrip().rindex("\n") + 1  # of the closing line, nothing is needed
    ends = [i + 1 for i in range(last) if text[i] == "\n"]
    places = {*ends, *(i for end in ends for i in (end - 2, end + 9)), last}
    for at in sorted(place for place in places if 20 < place <= last)[:: 1 + len(places) // 60]:
        check = checked(tmp_path, text[:at])
        if check is None:
            assert tool.endswith("json") or at < len(text) // 5, text[:at]
            continue
        assert check.verdict in (Verdict.WARN, Verdict.NOT_JUDGED), text[:at][-200:]
        if tool != "OSU" or text[at - 1] != "\n":  # OSU's programs print no last line
            assert any("incomplete" in doubt for doubt in check.doubts), text[:at][-200:]


FAILURES = {
    "BabelStream": ("Validation failed on a[]. Average error 0.5", "FAILED validation of a[0]: 1 (is) != 2"),
    "STREAM": ("Failed Validation on array a[], AvgRelAbsErr > epsilon (1e-13)",),
    "nccl-tests": (
        "node1: Test NCCL failure common.cu:958 'unhandled cuda error'",
        "node1: Test CUDA failure a.cu:5 'x'", " .. node1 pid 77: Test failure common.cu:12",
        "node1: Test timeout (300s) common.cu:523", "# error: a remote process exited",
        "# all_reduce: error: rank 3 is gone", "# the run ended early: it",
    ),
    "nvbandwidth": (
        "[CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access in expression cuCtxSynchronize()",
        " Invalid value when checking the pattern at 0x7f0", "Error: something",
        "ASSERT in expression x == y",
    ),
    "OSU": (
        "DATA VALIDATION ERROR: ./osu_latency exited with status 1 on message size 8.", "16  2.50   Fail",
    ),
    "mlc": ("alloc_mem_onnode(): unable to mbind: error",),
    "p2p": ("Cuda failure p2p.cu:60: 'invalid device ordinal'",),
}  # fmt: skip
#: What shells, MPI and Slurm say below any log.
OTHERS = (
    "Segmentation fault (core dumped)", "Killed", "/bin/sh: line 1:  4711 Terminated  ./tool",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "mpirun noticed that process rank 1 with PID 0 on node node2 exited on signal 9 (Killed).",
    "Traceback (most recent call last):",
)  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "line"), [(tool, line) for tool, lines in FAILURES.items() for line in (*lines, OTHERS[0])]
)
def test_a_log_that_says_that_it_failed_fails(tool: str, line: str, tmp_path: Path) -> None:
    text = LOGS[tool]
    lines = text.splitlines()
    for at in (len(lines) // 2, len(lines)):
        check = checked(tmp_path, "\n".join([*lines[:at], line, *lines[at:]]) + "\n")
        assert check is not None and check.verdict is Verdict.FAIL
        reasons = [one.why for one in check.judgements]
    assert line == "16  2.50   Fail" or any(line.strip("# ")[:9] in why for why in reasons)


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("tool", ["nvbandwidth-json", "nccl-tests-json", "STREAM"])
def test_words_of_shells_and_launchers_fail_any_log(tool: str, line: str, tmp_path: Path) -> None:
    for text in (f"{LOGS[tool]}{line}\n", f"{line}\n{LOGS[tool]}"):
        check = checked(tmp_path, text)
        assert check is not None and check.verdict is Verdict.FAIL


@pytest.mark.parametrize("tool", ["nccl-tests", "nccl-tests-json", "nvbandwidth", "OSU", "STREAM"])
def test_what_failed_before_a_run_that_has_values_did_not_fail_it(tool: str, tmp_path: Path) -> None:
    """As ssh says at each host; without values, it is the reason."""
    line = "Failed to add the host to the list of known hosts (/home/user/.ssh/known_hosts)."
    check = checked(tmp_path, f"{line}\n{LOGS[tool]}")
    assert check is not None and check.verdict in WARNED
    if tool == "nccl-tests":
        check = checked(tmp_path, f"{LOGS[tool]}and it fails with -R\n")
        assert check is not None and check.verdict in WARNED
        head = LOGS[tool].splitlines()[:3]
        check = checked(tmp_path, "\n".join([line, *head]) + "\n")
        assert check is not None and check.verdict is Verdict.FAIL


HARMLESS = (
    "WARNING: There was an error initializing an OpenFabrics device.", "0 errors", "errors: 0",
    "no errors found", "node1:1:2 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin symbol",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "+ mpirun --mca orte_abort_on_non_zero_status 1 ./all_reduce_perf", "hello",
    "[node1:4711] Error: coll_hcoll_module.c:312 - mca_coll_hcoll_comm_query() Hcol library init failed",
    "[node1][[23,1],0][btl_openib_component.c:1670:init_one_device] error obtaining device attributes for "
    "mlx5_0 errno says Success",
    "operating in a condition that could result in memory corruption or",
    "other system errors; your job may hang, crash, or produce silent",
    "data corruption.  The use of fork() (or system() or other calls that",
    "* hwloc 2.0.2 has encountered what looks like an error from the operating system.",
    "* Error occurred in topology.c line 1048",
)  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_no_failure(line: str, tmp_path: Path) -> None:
    assert not says_failure(line)
    check = checked(tmp_path, f"{line}\n{STREAM}{line}\n")
    assert check is not None and check.verdict is Verdict.NOT_JUDGED


def test_wrong_data_is_another_status_than_an_error() -> None:
    assert status_of("DATA VALIDATION ERROR").value == "failed"
    assert status_of("Test NCCL failure").value == "error"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Out of bounds values : 0 OK", "Out of bounds values : 5 FAILED"),
        ("# Avg bus bandwidth    : 81.6962", "# Avg bus bandwidth    : 81.6962 FAILED"),
    ],
)
def test_results_of_nccl_tests(before: str, after: str, tmp_path: Path) -> None:
    text = LOGS["nccl-tests"]
    assert before in text
    document = imported(tmp_path, text.replace(before, after))
    assert not document.testcases[0].status.good
    assert judge(document).verdict is Verdict.FAIL


def test_nccl_tests_cut_after_five_rows_says_where(tmp_path: Path) -> None:
    lines = LOGS["nccl-tests"].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("   "))
    document = imported(tmp_path, "\n".join(lines[: first + 5]))
    (doubt,) = document.imported[0].doubts
    assert doubt.startswith("the log may be incomplete: it ends after ")
    assert sum(len(table.values()) for table in document.testcases[0].tables) == 5 * 2 * 3


def test_a_broken_row_of_nccl_tests(tmp_path: Path) -> None:
    lines = LOGS["nccl-tests"].splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("   "))
    lines[at] = lines[at][:60]
    document = imported(tmp_path, "\n".join(lines))
    assert any("parts of 1 row of the table" in doubt for doubt in document.imported[0].doubts)
    assert judge(document).verdict in (Verdict.WARN, Verdict.NOT_JUDGED)


@pytest.mark.parametrize("okay", ["false", "", None, "perhaps", False])
@pytest.mark.parametrize("part", ["out_of_bounds", "average_bus_bandwidth"])
def test_json_of_nccl_tests_that_is_not_okay(part: str, okay: object, tmp_path: Path) -> None:
    content = json.loads(LOGS["nccl-tests-json"])
    content[part] = {"okay": okay}
    assert judge(imported(tmp_path, json.dumps(content))).verdict is Verdict.FAIL


def test_json_of_nccl_tests_without_a_result_or_with_errors(tmp_path: Path) -> None:
    content = json.loads(LOGS["nccl-tests-json"])
    failed = content | {"errors": ["unhandled cuda error"]}
    assert judge(imported(tmp_path, json.dumps(failed))).verdict is Verdict.FAIL
    empty = imported(tmp_path, json.dumps(content | {"results": []}))
    assert (
        judge(empty).verdict is Verdict.NOT_JUDGED and "before the first size" in empty.imported[0].doubts[0]
    )
    content["results"][0] = {"size": 8}
    assert judge(imported(tmp_path, json.dumps(content))).verdict is Verdict.FAIL
    content = json.loads(LOGS["nccl-tests-json"])
    del content["average_bus_bandwidth"]
    without = judge(imported(tmp_path, json.dumps(content)))
    assert without.doubts and without.verdict in (Verdict.WARN, Verdict.NOT_JUDGED)
    assert (
        judge(imported(tmp_path, LOGS["nccl-tests-json"].replace('"errors": []', '"errors": [""]'))).verdict
        in WARNED
    )


@pytest.mark.parametrize(
    "status", ["Failed", "Running", "", None, "OK", "Error", "passed?", 1, ["Passed"], "Not Found"]
)
def test_status_in_the_json_of_nvbandwidth(status: object, tmp_path: Path) -> None:
    content = json.loads(LOGS["nvbandwidth-json"])
    content["nvbandwidth"]["testcases"][0]["status"] = status
    check = judge(imported(tmp_path, json.dumps(content)))
    assert check.verdict is Verdict.FAIL
    assert check.testcases["host_to_device_memcpy_ce"] is Verdict.FAIL
    assert check.testcases["device_local_copy"] is Verdict.PASS
    del content["nvbandwidth"]["testcases"][0]["status"]
    assert judge(imported(tmp_path, json.dumps(content))).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth_matrix": None}, {"bandwidth_matrix": []}, {"bandwidth_matrix": [["1.0"], ["x"]]},
        {"bandwidth_matrix": [["1.0", "2.0"], ["3.0"]]}, {"error": "wrong data"}, {"name": None},
        {"bandwidth_matrix": [["N/A", "N/A"]]},
    ],
)  # fmt: skip
def test_broken_testcases_in_the_json_of_nvbandwidth(change: dict[str, object], tmp_path: Path) -> None:
    content = json.loads(LOGS["nvbandwidth-json"])
    content["nvbandwidth"]["testcases"][0] |= change
    assert judge(imported(tmp_path, json.dumps(content))).verdict is Verdict.FAIL


def test_an_error_of_the_whole_json_fails(tmp_path: Path) -> None:
    content = json.loads(LOGS["nvbandwidth-json"])
    content["nvbandwidth"]["error"] = "CUDA_ERROR_NO_DEVICE"
    assert judge(imported(tmp_path, json.dumps(content))).verdict is Verdict.FAIL


def test_an_excerpt_of_nvbandwidth_needs_no_closing_note(tmp_path: Path) -> None:
    excerpt = LOGS["nvbandwidth"].partition("NOTE: SIMULATED")[0].replace("\nhgx-h200-2\nDevice", "\nDevice")
    document = imported(tmp_path, excerpt)
    assert judge(document).verdict is Verdict.PASS
    assert any("an excerpt: testcases may be missing" in warning for warning in document.warnings)


def test_copies_back_are_no_kernel_of_babelstream(tmp_path: Path) -> None:
    document = imported(tmp_path, BABELSTREAM)
    assert "device_stream_read" not in [result.name for result in document.testcases]
    assert document.imported[0].unknown == 0 and judge(document).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("unit", "bytes_per_second"),
    [("MB/s", 4010000e6), ("MiB/s", 4010000 * 2**20), ("MiBytes/sec", 4010000 * 2**20)],
)
def test_units_of_babelstream(unit: str, bytes_per_second: float, tmp_path: Path) -> None:
    document = imported(tmp_path, BABELSTREAM.replace("Function    MBytes/sec", f"Function    {unit}"))
    assert document.testcases[0].tables[0].values() == [bytes_per_second]


@pytest.mark.parametrize(
    ("text", "size"), [("256.0 MiB", 256 * 2**20), ("256.0 MB", 256 * 10**6), ("268.4 MB", 2**28)]
)
def test_the_size_of_an_array_of_babelstream(text: str, size: int, tmp_path: Path) -> None:
    document = imported(tmp_path, BABELSTREAM.replace("268.4 MB (", f"{text} ("))
    assert document.testcases[0].tables[0].cells[0].bytes == 2 * size


def test_babelstream_may_run_one_kernel(tmp_path: Path) -> None:
    lines = BABELSTREAM.replace("Running kernels", "Running  Running Triad").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith(("Copy", "Mul", "Add", "Dot")))
    assert judge(imported(tmp_path, text)).verdict is Verdict.PASS
    mean = text.partition("Function")[0] + "Runtime (seconds): 0.1\nBandwidth (GB/s):  4150.000\n"
    mean = mean.replace("Running  Running Triad", "Running triad")
    assert imported(tmp_path, mean).testcases[0].tables[0].values() == [4150e9]


def test_osu_with_validation(tmp_path: Path) -> None:
    text = "# OSU MPI Latency Test v7.3\n# Size  Avg Latency(us)  Validation\n8   1.25   Pass\n"
    text += "16   1.30   Pass\n"
    document = imported(tmp_path, text)
    assert document.testcases[0].tables[0].values() == pytest.approx([1.25e-6, 1.3e-6])
    assert judge(document).verdict is Verdict.NOT_JUDGED
    assert judge(imported(tmp_path, text.replace("1.30   Pass", "1.30   Fail"))).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["Latency", "Bandwidth", "Multiple Bandwidth / Message Rate"])
@pytest.mark.parametrize(
    "row", ["1e-400 1.50 1.50", "8 1e-400 1e-400", "8 1e-320 1e-320", "8 0.00 0.00", "8 1.00"]
)
def test_tiny_numbers_of_osu(kind: str, row: str, tmp_path: Path) -> None:
    document = imported(tmp_path, f"# OSU MPI {kind} Test v7.3\n# Size  Value\n4 1.00 1.00\n{row}\n")
    for form in ("table", "plot", "csv", "json", "markdown"):
        assert wirespeed.render(document, form)


def test_numbers_have_a_largest_value() -> None:
    assert number("1e18") == 1e18 and number("-1e18") == -1e18
    for word in ("1.1e18", "-1.1e18", "1e19"):
        with pytest.raises(ValueError, match="out of range"):
            number(word)


@pytest.mark.parametrize(
    ("value", "kept"), [(1e18, True), (2e18, False), (1e-18, True), (1e-19, False), (0.0, True)]
)
def test_values_in_base_units_have_a_range(value: float, kept: bool) -> None:
    assert scaled([value / 4], 4.0) == ((value,) if kept else (None,))


def test_a_log_cut_between_two_writes_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = LOGS["nvbandwidth"]
    (tmp_path / "log").write_text(text[: text.rindex("\n", 0, text.index("Write2 bandwidth"))])
    assert main(["import", str(tmp_path / "log"), "-o", str(tmp_path / "run.json")]) == 0
    for form in ("nvbandwidth", "nvbandwidth-json"):
        capsys.readouterr()
        assert main(["show", str(tmp_path / "run.json"), "--format", form]) == 0
        assert "Write1 bandwidth" in (shown := capsys.readouterr().out)
        assert "Write2 bandwidth" not in shown
    assert main(["check", "--from", str(tmp_path / "run.json"), "--allow-simulated"]) == 3


@pytest.mark.parametrize(
    ("of", "old", "new", "codes"),
    [
        ("nvbandwidth", "", "", (0, 0)),
        ("nccl-tests", "# Avg bus", "node1: *** JOB 12 CANCELLED DUE TO TIME LIMIT ***\n# Avg bus", (1, 1)),
        ("nvbandwidth", "393.57", "93.57", (1, 1)),
    ],
)
def test_an_import_ends_as_the_check_of_it(
    tmp_path: Path, of: str, old: str, new: str, codes: tuple[int, int]
) -> None:
    text = LOGS[of]
    assert old in text
    (tmp_path / "log").write_text(text.replace(old, new) if old else text)
    run = str(tmp_path / "run.json")
    imported_code = main(["import", str(tmp_path / "log"), "-o", run])
    assert (imported_code, main(["check", run, "--allow-simulated"])) == codes


def test_equal_names_are_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an import grows with the number of testcases, not with its square."""
    planned: list[object] = []

    def counting(*arguments: Any) -> list[Allowance]:
        planned.append(arguments)
        return allowances(*arguments)

    monkeypatch.setattr("wirespeed.results.imported_limits.allowances", counting)
    one = "Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n  0\n0 1900.00\n\n"
    document = imported(tmp_path, "nvbandwidth Version: v0.8\nDevice 0: NVIDIA H200\n" + one * 300)
    assert [r.name for r in document.testcases[::299]] == ["device_local_copy", "device_local_copy_300"]
    assert len(planned) == 1


def test_the_load_of_a_latency_is_a_rate_without_bytes(tmp_path: Path) -> None:
    spec = "simulated:cpu-2-sockets"
    measured = wirespeed.run(["host_loaded_latency"], machine=spec, samples=1, copies=1)
    document = imported(tmp_path, wirespeed.render(measured, "nvbandwidth"), spec)
    for own, found in zip(measured.testcases[0].tables, document.testcases[0].tables, strict=True):
        assert (own.key, own.unit) == (found.key, found.unit)
        assert found.values() == pytest.approx(own.values(), rel=1e-3)
        assert [cell.bytes for cell in found.cells] == [cell.bytes for cell in own.cells]


#: https://github.com/NVIDIA/nvbandwidth/issues/13: why is this testcase waived?
WAIVED = """nvbandwidth Version: v0.2
Built from Git version: 6cefdda

NOTE: This tool reports current measured bandwidth on your system.
Additional system-specific tuning may be required to achieve maximal peak bandwidth.

CUDA Runtime Version: 12010
CUDA Driver Version: 12000
Driver Version: 525.125.06

Device 0: NVIDIA GeForce RTX 2080 Ti
Device 1: NVIDIA GeForce RTX 2080 Ti

Waiving device_to_device_memcpy_write_ce.
"""


def test_a_log_in_which_everything_is_waived_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "waived.txt"
    log.write_text(WAIVED)
    assert main(["check", "--from", str(log)]) == 4
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "NOT JUDGED no value could be judged; device_to_device_memcpy_write_ce measured nothing: waived in "
        "the log: no GPU has peer access to another; this is not a pass"
    ) in shown
    assert "unknown line" not in shown


#: https://github.com/NVIDIA/nccl-tests/issues/249, without its last lines: why is the bus bandwidth 0?
ONE_RANK = """ nThread 1 nGpus 1 minBytes 8 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 5 agg iters: 1 validation: 1 graph: 0
 Blocking Enabled: wait for completion and barrier after each collective

 Using devices
  Rank  0 Group  0 Pid    127 on worker-0 device  0 [0x00] NVIDIA A10G

                                                              out-of-place                       in-place
       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1     7.33    0.00    0.00      0     0.33    0.02    0.00      0
    16777216       4194304     float     sum      -1    75.13  223.31    0.00      0     0.34 49344.0    0.00      0
"""  # noqa: E501


def test_the_bus_bandwidth_of_one_rank_is_0_by_definition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "one.txt"
    log.write_text(ONE_RANK)
    assert main(["check", "--from", str(log)]) == 4
    shown = " ".join(capsys.readouterr().out.split())
    assert "one rank sends nothing: its bus bandwidth is 0 by definition" in shown
    assert "the log may be incomplete: it lacks its last lines" in shown


def _tests(sizes: list[int], step: str) -> str:
    head = f"# nThread 1 nGpus 2 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {step} "
    head += "warmup iters: 5 iters: 20\n"
    head += "# Using devices\n#  Rank  0 Group  0 Pid 1 on node-a device  0 [0x05] NVIDIA H100\n"
    head += "#  Rank  1 Group  0 Pid 1 on node-a device  1 [0x06] NVIDIA H100\n#\n"
    head += "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    head += "     time   algbw   busbw #wrong\n"
    head += "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
    head += "            (us)  (GB/s)  (GB/s)\n"
    rows = "".join(
        f"{size:>12} {size // 4:>12} float sum -1 " + f"{size / 1e5:.2f} 100.00 100.00 0 " * 2 + "\n"
        for size in sizes
    )
    return f"{head}{rows}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.0\n#\n"


@pytest.mark.parametrize(
    ("sizes", "step", "doubt"),
    [
        ([2**20, 2**21, 2**22, 2**23], "2(factor)", ""),
        ([2**20, 2**21, 2**23], "2(factor)", "1 row between 2097152 and 8388608 B"),
        ([2**20, 2**23], "2(factor)", "2 rows between 1048576 and 8388608 B"),
        ([2**20, int(2**21.45), 2**22], "2(factor)", ""),
        ([2**20, 2 * 2**20, 3 * 2**20], "1048576(bytes)", ""),
        ([2**20, 2 * 2**20, 4 * 2**20], "1048576(bytes)", "1 row between 2097152 and 4194304 B"),
    ],
)
def test_a_missing_row_is_a_doubt(sizes: list[int], step: str, doubt: str, tmp_path: Path) -> None:
    (log := tmp_path / "log.txt").write_text(_tests(sizes, step))
    document = wirespeed.load_log(log)
    found = [warning for warning in document.warnings if "row" in warning and "between" in warning]
    assert ([doubt in warning for warning in found] == [True]) if doubt else not found
    assert (judge(document).doubts != ()) is bool(doubt)


MATRIX = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12090
CUDA Driver Version: 12090
Driver Version: 575.57.08

node-a
Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:3b:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.30     55.40

SUM host_to_device_memcpy_ce 110.70

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    370.10
 1    370.20       N/A

SUM device_to_device_memcpy_read_ce 740.30

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


@pytest.mark.parametrize(
    ("old", "new", "doubt"),
    [
        ("", "", ""),
        (
            " 1    370.20       N/A\n",
            " 1    370.20       N/A\n 1    100.00       N/A\n",
            "row 1 occurs twice",
        ),
        ("SUM device_to_device_memcpy_read_ce 740.30\n", "", "no sum of device_to_device_memcpy_read_ce"),
    ],
)
def test_doubled_rows_and_missing_sums_are_doubts(old: str, new: str, doubt: str, tmp_path: Path) -> None:
    (log := tmp_path / "log.txt").write_text(MATRIX.replace(old, new) if old else MATRIX)
    doubts = judge(wirespeed.load_log(log)).doubts
    assert any(doubt in text for text in doubts) if doubt else not doubts


@pytest.mark.parametrize(
    "prose",
    [
        "3. **#wrong column**: Any non-zero value indicates data corruption.",
        "You should observe this without hangs or segmentation faults.",
        "To terminate all instances of it, and when they fail:",
        "| #wrong > 0 | Data corruption: a failure of the hardware |",
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_sentences_around_code_blocks_are_no_failures(prose: str, before: bool, tmp_path: Path) -> None:
    """READMEs of clouds explain their tables; an error that a program printed fails a run in a post."""
    fenced = f"```text\n{BABELSTREAM}```\n"
    assert not imported(tmp_path, f"{prose}\n{fenced}" if before else f"{fenced}{prose}\n").interrupted
    for line in ("CUDA failure 2: out of memory", "gpu1: Test CUDA failure common.cu:895 'unknown error'"):
        inside = fenced.replace("Dot  ", f"{line}\nDot  ")
        assert judge(imported(tmp_path, f"{prose}\n{inside}")).verdict is Verdict.FAIL
        assert judge(imported(tmp_path, f"{fenced}{line}\n{prose}")).verdict is Verdict.FAIL
    unbalanced = f"{fenced}```\n{prose.replace('#wrong', 'wrong')}\nError: validation failed on Dot."
    assert judge(imported(tmp_path, unbalanced)).verdict is Verdict.FAIL
