"""The formats of other tools: what is understood, what is kept, and what is refused."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import GOLDEN
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.cli.main import main
from wirespeed.data import gpu_sheet, gpu_sheets
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.features.imports.scan import without_cut_line
from wirespeed.hardware.topology import LinkKind

PUBLISHED = Path(__file__).parents[2] / "data/published"
A100 = (PUBLISHED / "nvbandwidth-a100-readme.txt").read_text()


def imported(tmp_path: Path, text: str, machine: str | None = None) -> Document:
    path = tmp_path / "log.txt"
    path.write_text(text)
    return wirespeed.load_log(path, machine)


def values(document: Document, name: str, key: str = "") -> list[float]:
    (result,) = (r for r in document.testcases if r.name == name)
    (table,) = (t for t in result.tables if t.key == key)
    return table.values()


def test_the_samples_of_cuda_are_copies_by_copy_engines() -> None:
    document = wirespeed.load_log(PUBLISHED / "asked/p2p-h100-nccl-issue1264.txt")
    both = values(document, "device_to_device_bidirectional_memcpy_write_ce", "total")
    assert len(both) == 56 and both[0] == 742.21e9
    shown = sum(len(t.values()) for r in document.testcases for t in r.tables if r.name.startswith("p2p"))
    assert shown == 64 + 8  # through the host, and both ways within each GPU
    assert any("72 values not comparable" in text for text in document.warnings)


def test_pairs_without_access_are_not_copies_between_gpus(tmp_path: Path) -> None:
    text = (
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
        "Device: 0, NVIDIA GeForce RTX 4090, pciBusID: 41, pciDeviceID: 0, pciDomainID:0\n"
        "Device: 1, NVIDIA GeForce RTX 4090, pciBusID: 61, pciDeviceID: 0, pciDomainID:0\n"
        "Device=0 CANNOT Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n"
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        "   D\\D     0      1\n     0 915.89  20.72\n     1  20.28 923.19\n"
    )
    document = imported(tmp_path, text)
    readings = {fact.device: fact.value for fact in document.facts if fact.name == "no peer access to"}
    assert readings == {"gpu0": "gpu1", "gpu1": "gpu0"}
    assert [r.name for r in document.testcases] == [
        "p2pBandwidthLatencyTest through the host",
        "device_local_copy",
    ]
    assert values(
        document, document.testcases[0].name, "unidirectional-p2p-enabled-bandwidth-p2p-writes"
    ) == [
        20.72e9,
        20.28e9,
    ]
    assert values(document, "device_local_copy") == [915.89e9 / 2, 923.19e9 / 2]
    assert document.machine.gpus[1].bus_id == "00000000:61:00" and not document.machine.gpus[0].peers


STREAM = """-------------------------------------------------------------
STREAM version $Revision: 5.10 $
-------------------------------------------------------------
This system uses 8 bytes per array element.
Array size = 80000000 (elements), Offset = 0 (elements)
Number of Threads requested = 64
Number of Threads counted = 64
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          191038.9     0.007133     0.006700     0.007500
Scale:         133337.7     0.009700     0.009600     0.009900
Add:           155317.0     0.012500     0.012360     0.012700
Triad:         151312.2     0.012900     0.012690     0.013100
Solution Validates: avg error less than 1.000000e-13 on all three arrays
"""


def test_stream_is_the_memory_of_a_host_with_one_node(tmp_path: Path) -> None:
    document = imported(tmp_path, STREAM)
    assert values(document, "host_stream_triad") == [151312.2e6]
    assert document.imported[0].version == "5.10" and document.imported[0].unknown == 0
    one = imported(tmp_path, STREAM, "simulated:gh200-1")
    assert wirespeed.judge(one).judgements[0].limit == 512e9
    two = imported(tmp_path, STREAM, "simulated:cpu-2-sockets")
    assert all("not comparable" in r.description for r in two.testcases)


def test_stream_judges_what_shares_the_memory_of_the_host(tmp_path: Path) -> None:
    """Two logs of one machine: the rate of the CPUs in one of them is the capacity in the other."""
    log = tmp_path / "nvbandwidth.txt"
    log.write_text("Running all_to_host_memcpy_ce.\nmemcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n"
                   "   0     1\n0  52.00  52.10\n")  # fmt: skip
    document = wirespeed.load_log(log, "hgx-h100-2")
    assert document.testcases[0].tables[0].cells[0].shared


OSU = """# OSU MPI-CUDA Bandwidth Test v7.3
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size      Bandwidth (MB/s)
1                       1.33
1048576             45000.12
# OSU MPI Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
0                       0.90
8                       1.25
# OSU MPI Allreduce Latency Test v7.3
# Size       Avg Latency(us)
4                       3.50
"""


def test_osu(tmp_path: Path) -> None:
    document = imported(tmp_path, OSU)
    assert values(document, "message_mpi_gpu", "bandwidth") == [1.33e6, 45000.12e6]
    assert values(document, "message_mpi_host", "latency") == pytest.approx([0.9e-6, 1.25e-6])
    assert any("1 value not comparable" in text for text in document.warnings)
    assert wirespeed.render(document, "plot")


def test_mlc() -> None:
    document = wirespeed.load_log(PUBLISHED / "mlc-cnf-testbed.txt")
    assert values(document, "host_stream_read") == [90935.7e6, 90870.6e6]
    assert values(document, "mlc bandwidth between nodes") == [34457.4e6, 34387.1e6]
    assert len(values(document, "mlc peak bandwidth")) == 5


def test_logs_of_several_tools_in_one_file(tmp_path: Path) -> None:
    text = (GOLDEN / "collectives/all_reduce.txt").read_text() + STREAM + OSU
    tools = [log.tool for log in imported(tmp_path, text).imported]
    assert tools == ["nccl-tests", "STREAM", "OSU", "OSU", "OSU"]


def test_repeated_testcases_are_all_kept(tmp_path: Path) -> None:
    names = [r.name for r in imported(tmp_path, A100 + A100, "dgx-a100-40g-8").testcases]
    assert names[0] == "host_to_device_memcpy_ce" and names[3] == "host_to_device_memcpy_ce_2"


def test_repeated_sizes_of_nccl_tests_are_counted(tmp_path: Path) -> None:
    """A program that is started twice may print one table."""
    text = (GOLDEN / "collectives/all_reduce.txt").read_text()
    assert not any("repeated" in warning for warning in imported(tmp_path, text).warnings)
    rows = [line for line in text.splitlines() if re.match(r"\s+\d", line)]
    last = rows[-1].split()
    slower = rows[-1].replace(last[5], f"{2 * float(last[5]):.2f}")
    document = imported(tmp_path, text.replace(rows[-1], f"{rows[0]}\n{rows[-1]}\n{slower}"))
    assert [w for w in document.warnings if "; 2 repeated sizes; the last values count" in w]


@pytest.mark.parametrize(
    ("lines", "cut"),
    [
        (["size  time", "1024  17.25", "2048  1"], "2048  1"),
        (["size  time", "1024  17.25", "2"], "2"),  # a single number
        (["size  type  time", "1024  float  17.25", "2048  flo"], "2048  flo"),
        (["size  time", "1024  17.25", "2048  18.5 "], "2048  18.5 "),
        (["size  time", "1024   7.25", "2048  18.50"], ""),
        (["size  time", "1024  17.25", "done"], ""),  # no row
        (["host read  17.25", "host write  1"], "host write  1"),  # after a label
        (["host write  17.25", "host r"], ""),
        (["2048  1"], ""),  # nothing to compare it with
        ([], ""),
    ],
)
def test_a_row_that_ends_before_the_one_above_it_is_cut(lines: list[str], cut: str) -> None:
    kept = list(lines)
    assert without_cut_line(kept) == cut and kept == (lines[:-1] if cut else lines)


def test_what_launchers_add_is_removed(tmp_path: Path) -> None:
    text = (GOLDEN / "collectives/all_reduce.txt").read_text()
    tagged = "\r\n".join(f"\x1b[32m[1,0]<stdout>: {line}\x1b[0m" for line in text.splitlines())
    assert imported(tmp_path, tagged).testcases == imported(tmp_path, text).testcases


def test_utf_16_as_powershell_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(A100.encode("utf-16"))
    assert len(wirespeed.load_log(path, "dgx-a100-40g-8").testcases) == 3


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STREAM.encode())))
    assert wirespeed.load_log("-").imported[0].file == "standard input"


def test_a_truncated_log_has_what_it_contains(tmp_path: Path) -> None:
    text = A100[: A100.index("4    276.03")]
    document = imported(tmp_path, text, "dgx-a100-40g-8")
    assert len(values(document, "device_to_device_memcpy_write_ce")) == 4 * 7
    check = wirespeed.judge(document)
    assert check.testcases["device_to_device_memcpy_write_ce"].value == "pass"
    assert check.verdict.value == "warn"
    assert check.doubts == ("the log may be incomplete: 4 of 8 rows of device_to_device_memcpy_write_ce",)


@pytest.mark.parametrize("name", ["hgx-h200-2/nvbandwidth-json", "collectives/all_reduce"])
def test_broken_json_is_one_clear_line(name: str, tmp_path: Path) -> None:
    text = (GOLDEN / f"{name}.json").read_text()
    deep = text.replace("{", '{"version": ' + "[" * 10**5, 1)
    for broken in (text[: len(text) * 2 // 3], text[:-3], f"{STREAM}{text[:99]}", deep):
        with pytest.raises(UsageError, match=r"^log\.txt: the JSON is broken or incomplete at line \d+$"):
            imported(tmp_path, broken)


def test_a_sum_that_does_not_fit_is_a_warning(tmp_path: Path) -> None:
    text = (
        (PUBLISHED / "asked/nvbandwidth-a6000-issue50.txt")
        .read_text()
        .replace("SUM device_to_device_memcpy_read_ce 7", "SUM device_to_device_memcpy_read_ce 9")
    )
    assert any("add up to 715.5" in w for w in imported(tmp_path, text).warnings)


def test_unknown_lines_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    document = imported(tmp_path, A100 + "\nsegfault at 0\nhello\n", "dgx-a100-40g-8")
    assert document.imported[0].unknown == 1  # a line that says why the run failed is understood
    assert any("1 unknown line: 'hello'" in w for w in document.warnings)


#: Between the lines of a run, as people post them: marks, Open MPI's bindings and maps, UCX, HCOLL, RCCL.
NOISE = """```shell
$ mpirun -np 2 ./build/all_reduce_perf -b 1G -e 1G
NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=0,1 ./build/all_reduce_perf -b 1G -e 1G -g 2
export NCCL_IB_HCA=mlx5_0
<details><summary>log</summary>
[node1:12345] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/././.][./././.]
[node1:12345] MCW rank 1 is not bound (or bound to all available processors)
[node1:12345] Rank 0 bound to package[0][core:0-7]
 Data for JOB [15921,1] offset 0 Total slots allocated 2
 ========================   JOB MAP   ========================
 Data for node: node1\tNum slots: 2\tMax slots: 0\tNum procs: 2
 \tProcess OMPI jobid: [15921,1] App: 0 Process rank: 0 Bound: N/A
[1697219401.270166] [node02:3832 :0]        perftest.c:808  UCX  WARN CPU affinity is not set
[node1:111:0] [LOG_CAT_ML] component basesmuma is not available but requested in hierarchy
[LOG_CAT_SBGP] hcoll failed to get hca info
rccl-tests: Version develop:448c4c7
RCCL version : 2.22.3-develop:abc
HIP version  : 6.3.42131-fa1d09cbd
ROCm version : 6.3.0.0-39
Hostname     : node1
Librccl path : /opt/rocm/lib/librccl.so.1
</details>
~~~
"""


def test_noise_is_no_unknown_line_and_no_failure(tmp_path: Path) -> None:
    plain = (PUBLISHED.parent / "logs" / "ring-lines.txt").read_text()
    for place in (plain.index("#  "), plain.index("  1073741824"), len(plain)):
        noisy = imported(tmp_path, plain[:place] + NOISE + plain[place:])
        assert [log.unknown for log in noisy.imported] == [0], noisy.warnings
        assert noisy.testcases == imported(tmp_path, plain).testcases
    bad = imported(tmp_path, plain + "UCX  ERROR connection reset\n")
    assert bad.imported[0].unknown or wirespeed.judge(bad).verdict.is_bad  # an error is no noise


def test_what_a_log_lacks_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """All rows of topo -m end in "..."; three runs of nccl-tests follow."""
    log = PUBLISHED.parent / "logs" / "topo-abbreviated.txt"
    document = wirespeed.load_log(log)
    assert wirespeed.judge(document).doubts == (
        "the log may be incomplete: the rows of the GPUs are shortened",
    )
    assert len([w for w in document.warnings if w.startswith("imported from nccl-tests")]) == 1
    assert "CPU affinity" not in {fact.name for fact in document.facts}
    main(["doctor", str(log)])
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("are shortened") == 1 and "```" not in out and "is cut" not in out


def test_rows_that_are_cut_are_said_once(tmp_path: Path) -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\nGPU1\tNV4\t X \nGPU2\tNV4\tNV4\n"
    assert wirespeed.judge(imported(tmp_path, text)).doubts == (
        "the log may be incomplete: the row of GPU0 is cut, and 2 more",
    )


def test_an_error_in_the_log_fails(tmp_path: Path) -> None:
    text = A100.partition("Running host_to_device_bidirectional")[0]
    text += "Running device_to_host_memcpy_ce.\nERROR: CUDA_ERROR_ILLEGAL_ADDRESS\n"
    check = wirespeed.judge(imported(tmp_path, text, "dgx-a100-40g-8"))
    assert check.testcases["device_to_host_memcpy_ce"].value != "pass" and check.verdict.value == "fail"


def test_versions_with_other_testcases(tmp_path: Path) -> None:
    text = (
        "nvbandwidth Version: v0.10.0\nCUDA Runtime Version: 13.2 (13020)\n\nRunning device_local_read_sm.\n"
        "memory read local GPU(column) bandwidth (GB/s)\n     0\n 0  2900.00\n\n"
        "SUM device_local_read_sm 2900.00\nCOEFFICIENT_OF_VARIATION device_local_read_sm 0.01\n"
        "Running device_local_copy_tma.\nmemcpy TMA local GPU(column) bandwidth (GB/s)\n     0\n 0  1300.00\n"
    )
    document = imported(tmp_path, text, "hgx-h100-1")
    assert [(r.name, r.engine) for r in document.testcases] == [
        ("device_local_read_sm", "sm"), ("device_local_copy_tma", "sm_bulk"),
    ]  # fmt: skip
    assert document.machine.cuda == 13020 and document.imported[0].unknown == 0
    assert wirespeed.judge(document).verdict.value == "pass"


def test_the_data_sheets_agree_with_the_simulated_machines() -> None:
    compared = 0
    for build in MACHINES.values():
        machine = build()
        known = gpu_sheet(machine.gpus[0].model) if machine.gpus else None
        if known is None or machine.ranks:
            continue
        _, sheet = known
        for link in machine.links:
            if link.kind is LinkKind.MEMORY and link.source.startswith("gpu"):
                assert any(link.capacity == pytest.approx(rate, rel=0.001) for rate in sheet.memory_rates)
                compared += 1
            elif link.kind is LinkKind.NVLINK:
                assert link.capacity == pytest.approx(sheet.nvlinks(sheet.links[-1]), rel=0.001)
            elif link.kind is LinkKind.C2C and sheet.c2c:
                assert link.capacity in [rate * 1e9 for rate in sheet.c2c]
    assert compared >= 8


def test_every_model_has_one_data_sheet() -> None:
    models = [model for sheet in gpu_sheets().values() for model in sheet.models]
    assert len({model.lower() for model in models}) == len(models) > 150
    for name, sheet in gpu_sheets().items():
        assert sheet.source and sheet.memory_mib and sheet.capability, name
        assert all(
            tuple(sorted(set(values))) == values for values in (sheet.memory, sheet.links, sheet.c2c)
        ), name
        assert bool(sheet.nvlink) == bool(sheet.links) and (
            sheet.links or not (sheet.switch or sheet.all_links)
        ), name


@pytest.mark.parametrize(
    ("values", "links", "kind"),
    [("267.00", 12, LinkKind.NVLINK), ("89.00", 4, LinkKind.NVLINK), ("24.00", 0, LinkKind.PCIE)],
)
def test_links_between_few_gpus_follow_from_the_values(
    tmp_path: Path, values: str, links: int, kind: LinkKind
) -> None:
    text = (
        "nvbandwidth Version: v0.8\nDevice 0: NVIDIA A100-SXM4-80GB\nDevice 1: NVIDIA A100-SXM4-80GB\n"
        "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
        f"    0   1\n0   N/A   {values}\n1  {values}   N/A\n"
    )
    machine = imported(tmp_path, text).machine
    found = {link.kind: link for link in machine.links if link.source == "gpu0"}
    del found[LinkKind.MEMORY]
    if links:
        del found[LinkKind.PCIE]  # to the host
    assert found.keys() == {kind}
    assert found[kind].capacity == pytest.approx(links * 25e9 or 31.5e9, rel=0.001)


def test_every_derived_capacity_is_marked() -> None:
    machine = wirespeed.load_log(PUBLISHED / "nvbandwidth-h100-azure.txt").machine
    assert all(link.origin.startswith(("assumed", "unknown")) for link in machine.links)
    given = wirespeed.load_log(PUBLISHED / "nvbandwidth-a100-readme.txt", "simulated:dgx-a100-8").machine
    assert all(link.origin.startswith("assumed") for link in given.links) and not given.simulated


ERRORS = {
    "nothing": ("hello\n", "contains no output that is understood"),
    "empty": ("\n \n", "is empty"),
    "binary": ("\0\1\2", "is a binary file"),
    "header": ("nvbandwidth Version: v0.8\n", "is a log of nvbandwidth without values"),
}


@pytest.mark.parametrize("text", ERRORS)
def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    content, expected = ERRORS[text]
    (tmp_path / "log").write_text(content)
    assert main(["import", str(tmp_path / "log")]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


def test_each_command_says_which_logs_are_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a log whose reader was removed."""
    (tmp_path / "log").write_text("LIKWID MICRO BENCHMARK\nMByte/s:\t\t67893.12\n")
    for command in ("import", "check", "doctor", "report"):
        assert main([command, str(tmp_path / "log")]) == 2
        error = capsys.readouterr().err
        assert "p2pBandwidthLatencyTest, STREAM and BabelStream, OSU" in error and error.count("\n") == 1


def test_a_machine_that_does_not_fit(tmp_path: Path) -> None:
    for machine, expected in (
        ("hgx-h100-4", "has 8 GPUs, the machine hgx-h100-4 has 4"),
        ("hgx-h100-0", "cannot have 0 GPUs"),
        ("hgx-9", "there is no machine 'hgx-9'"),
    ):
        with pytest.raises(UsageError, match=expected):
            imported(tmp_path, A100, machine)
    other = tmp_path / "other.txt"
    other.write_text((PUBLISHED / "asked/nvbandwidth-a6000-issue50.txt").read_text())
    with pytest.raises(UsageError, match=r"import them separately"):
        wirespeed.load_log([other, PUBLISHED / "nvbandwidth-h100-azure.txt"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = str(PUBLISHED / "nvbandwidth-h100-azure.txt"), str(tmp_path / "node.json")
    assert main(["import", log, "-o", out]) == 0
    assert "imported from nvbandwidth v0.4, not measured by wirespeed" in capsys.readouterr().out
    assert main(["import", log, "-o", out]) == 2
    assert "exists; choose another name, or --force" in capsys.readouterr().err
    assert main(["import", log, "-o", out, "--force"]) == 0
    assert main(["check", "--from", out]) == 0
    assert main(["doctor", out]) == 0
    assert main(["compare", out, out]) == 0
    assert main(["baseline", "make", out, "-o", str(tmp_path / "baseline.json")]) == 0
    assert main(["check", "--from", out, "--baseline", str(tmp_path / "baseline.json")]) == 0
    assert main(["report", out, "-o", str(tmp_path / "node.html")]) == 0
    assert "not measured by wirespeed" in (tmp_path / "node.html").read_text()


def test_a_collective_that_is_not_known_keeps_its_values(tmp_path: Path) -> None:
    """The lines are those of nccl-tests 2.17; the program is one that it does not have."""
    text = (
        "# Collective test starting: all_swap_perf\n"
        "# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
        "#  Rank  0 Group  0 Pid   1234 on       host device  0 [0x07] NVIDIA A100-SXM4-40GB\n"
        "#  Rank  1 Group  0 Pid   1234 on       host device  1 [0x0f] NVIDIA A100-SXM4-40GB\n#\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   "
        "algbw   busbw #wrong\n"
        "        1024           256     float    none      -1    10.00    0.10    0.05      0    20.00    "
        "0.05    0.03    N/A\n"
        "        2048           512     float    none      -1    11.00    0.19    0.09      0     N/A     "
        "N/A     N/A    N/A\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.05 \n"
    )
    document = imported(tmp_path, text)
    (result,) = document.testcases
    assert result.name == "nccl-tests all_swap"
    assert result.description.endswith("no collective 'all_swap float' is known")
    table = result.tables[-1]
    assert (table.key, table.title) == ("busbw", "all_swap float: bus bandwidth")
    assert (table.rows.name, table.rows.labels) == ("buffers", ("out-of-place", "in-place"))
    assert (table.columns.name, table.columns.values, table.columns.unit) == ("size", (1024.0, 2048.0), "B")
    assert [(c.row, c.column, c.value) for c in table.cells] == [
        (0, 0, 0.05e9),
        (0, 1, 0.09e9),
        (1, 0, 0.03e9),
    ]
    assert any(
        "5 values not comparable" in text or "values not comparable" in text for text in document.warnings
    )
