"""Outputs as people post them: with prefixes, cut, joined, without heads. Each yields what its poster found.

Names and addresses were replaced; long ones were cut. Files without a source here are cuts of such posts that
show one point.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.judging.key_figures import key_figures
from wirespeed.judging.overview import overview, remedy, unknown_memory
from wirespeed.judging.replanned import with_host_memory
from wirespeed.judging.verdict import Verdict
from wirespeed.units import GB, parse_memory

FOLDER = Path(__file__).parents[2] / "data/reports"
MICRO, MB = 1e-6, 1e6


@dataclass(frozen=True)
class Report:
    """What a posted output says.

    Attributes:
        source: Where it was posted.
        verdict: The verdict on it.
        values: Testcase -> some of its values, in base units.
        says: Part of the reason of its failure, of its doubts, or of what is not comparable.
        count: Number of its values; 0: not tested.
    """

    source: str
    verdict: Verdict
    values: dict[str, tuple[float, ...]]
    says: str = ""
    count: int = 0


UNKNOWN, WARN, FAIL, PASS = Verdict.NOT_JUDGED, Verdict.WARN, Verdict.FAIL, Verdict.PASS
_STREAM = {"host_stream_copy": (31000.1 * MB,), "host_stream_triad": (33100.4 * MB,)}
_OSU = {"message_mpi_host": (1.53 * MB, 1262.07 * MB, 1784.32 * MB, 1785.15 * MB)}
REPORTS = {
    "mlc-3.5-loaded-latency-quoted-row": Report(
        "community.intel.com, m-p/1126268", UNKNOWN, {"mlc loaded latency": (98.94e-9, 81.96e-9)}, count=38
    ),
    "mlc-3.5-peak-injection-after-prompt": Report("cncf/cnf-testbed#129", UNKNOWN, {}, count=5),
    "mlc-last-row-complete": Report(
        "", UNKNOWN, {"mlc loaded latency": (87.81e-9,), "mlc loaded bandwidth": (9723.8 * MB,)}
    ),
    "nccl-2019-milliseconds": Report("", UNKNOWN, {"all_reduce": (293 * MICRO, 3.58 * GB)}),
    "nccl-583-no-hash-8xa100": Report("NVIDIA/nccl#583", UNKNOWN, {}, "before the first size"),
    "nccl-excerpt-72-ranks": Report("", UNKNOWN, {"all_reduce": (20299 * MICRO, 423.16 * GB, 834.57 * GB)}),
    "nccl-exclusive-process": Report("", FAIL, {}, "busy or unavailable"),
    "nccl-failure-only": Report("", FAIL, {}, "system not yet initialized"),
    "nccl-hydra-label": Report("", WARN, {"all_reduce": (1626.5 * MICRO, 4.09 * GB)}, count=60),
    "nccl-in-ucx-10055-rows": Report(
        "openucx/ucx#10055", UNKNOWN, {"all_reduce": (6.11 * GB, 9.19 * GB)}, "last line"
    ),
    "nccl-indented-tag": Report("", UNKNOWN, {"alltoall": (212.76 * MICRO,)}, count=42),
    "nccl-launch-failure-with-warn": Report("", FAIL, {}, "Cuda failure 1 'invalid argument'"),
    "nccl-ompi-tag-indented-allgather": Report(
        "bottlerocket-os/bottlerocket-kernel-kit#313", UNKNOWN, {"alltoall": (2.46 * GB,)}, "last line", 54
    ),
    "nccl-sendrecv-without-name": Report("", PASS, {"sendrecv": (72.1 * GB, 73.47 * GB)}),
    "nccl-srun-padded-label": Report("", UNKNOWN, {"all_gather": (1456.6 * MICRO, 0.78 * GB)}),
    "nccl-tests-5-nccl1-layout": Report("NVIDIA/nccl-tests#5", FAIL, {}, "unhandled cuda error"),
    "nccl-tests-82-warn-between-broadcast": Report(
        "NVIDIA/nccl-tests#82", UNKNOWN, {}, "broadcast or gather or scatter", 6
    ),
    "nccl-tests-107-two-unconnected": Report("NVIDIA/nccl-tests#107", UNKNOWN, {}, "did not connect them"),
    "nccl-tests-118-invalid-device": Report("NVIDIA/nccl#118", FAIL, {}, "invalid device ordinal"),
    "nccl-tests-167-min-max-sweep": Report(
        "NVIDIA/nccl-tests#167", UNKNOWN, {"all_reduce_float_max": (), "all_reduce_float_min": ()},
        "last line is cut",
    ),
    "nccl-tests-249-no-hash-one-gpu": Report("NVIDIA/nccl-tests#249", UNKNOWN, {}, "parts of 1 row"),
    "nccl-tests-280-indentation-lost": Report("NVIDIA/nccl-tests#280", FAIL, {}, "unhandled CUDA error", 18),
    "nccl-tests-287-one-gpu-inplace-fast": Report(
        "NVIDIA/nccl-tests#287", UNKNOWN, {}, "last line is cut", 24
    ),
    "nccl-tests-322-failure-after-rows": Report(
        "NVIDIA/nccl-tests#322", FAIL, {"all_reduce": (110.84 * GB,)}, "unhandled cuda error", 30
    ),
    "nccl-timestamps": Report(
        "", UNKNOWN, {"nccl-tests all_reduce or reduce_scatter": (45.46 * MICRO, 44.9 * MICRO)}
    ),
    "nccl-two-jobs-interleaved": Report(
        "", UNKNOWN, {"all_reduce": (383.41 * GB,), "all_reduce_2": (383.13 * GB,)}, "did not connect them"
    ),
    "nccl-without-hash": Report("", FAIL, {"all_gather": (129.05 * GB, 128.84 * GB)}, "an error of 1e+00"),
    "nvbandwidth-24-values-quoted": Report(
        "NVIDIA/nvbandwidth#24", UNKNOWN,
        {"host_to_device_memcpy_sm": (35.19 * GB,), "device_to_host_memcpy_sm": (52.77 * GB,)}, count=16,
    ),
    "nvbandwidth-34-invalid-value": Report("NVIDIA/nvbandwidth#34", FAIL, {}, "Invalid value when checking"),
    "nvbandwidth-39-h200-not-permitted": Report(
        "NVIDIA/nvbandwidth#39", FAIL, {}, "CUDA_ERROR_NOT_PERMITTED"
    ),
    "nvbandwidth-not-permitted": Report("", FAIL, {}, "in MultinodeMemoryAllocationUnicast"),
    "nvbandwidth-superbench-669-waived": Report(
        "microsoft/superbenchmark#669", UNKNOWN, {"host_to_device_memcpy_ce": (337.55 * GB,)}, "add up to", 11
    ),
    "ompi-prompt-only-mlc-3.10-head": Report("intel/PerfSpect#37", UNKNOWN, {}, "incomplete"),
    "osu-aws-7035-mbw-mr-48-pairs": Report(
        "aws/aws-parallelcluster#7035", UNKNOWN, {}, "last line is cut", 24
    ),
    "osu-date-and-tag": Report("", UNKNOWN, _OSU, count=4),
    "osu-device-host": Report("", UNKNOWN, {}, "from GPU memory to host memory", 1),
    "osu-eessi-716-two-tools-joined": Report(
        "EESSI/software-layer#716", UNKNOWN, {"message_mpi_gpu": (93130.52 * MB,)}
    ),
    "osu-last-row-complete": Report(
        "", UNKNOWN, {"OSU MPI Allreduce Latency": (39.08 * MICRO, 38.11 * MICRO, 42.66 * MICRO)}, count=3
    ),
    "osu-libfabric-859-latency-banner": Report(
        "ofi-cray/libfabric-cray#859", UNKNOWN, {"message_mpi_host": ()}
    ),
    "osu-mpich-label": Report("", UNKNOWN, _OSU, count=4),
    "osu-ompi-4919-put-bw": Report("open-mpi/ompi#4919", UNKNOWN, {"OSU MPI_Put Bandwidth": ()}, "last line"),
    "osu-pdsh": Report("", UNKNOWN, _OSU, count=4),
    "osu-prrte-tag": Report("", UNKNOWN, _OSU, count=4),
    "osu-srun-label": Report("", UNKNOWN, _OSU, count=4),
    "osu-ucx-4274-drop-at-2048": Report("openucx/ucx#4274", UNKNOWN, {"message_mpi_host": (1785.15 * MB,)}),
    "osu-ucx-9462-bibw-device-host": Report(
        "openucx/ucx#9462", UNKNOWN, {}, "from GPU memory to host memory"
    ),
    "p2p-cannot-access": Report(
        "", PASS, {"p2pBandwidthLatencyTest through the host": (9.91 * GB, 9.92 * GB, 9.93 * GB)}, count=8
    ),
    "p2p-ginkgo-164-v100-head": Report("ginkgo-project/ginkgo#164", UNKNOWN, {}, "incomplete"),
    "p2p-matrix-of-zeros": Report(
        "", WARN, {"p2pBandwidthLatencyTest through the host": (11.36 * GB, 11.37 * GB)}, "its last line", 8
    ),
    "p2p-matrix-without-head": Report(
        "", UNKNOWN, {"device_to_device_memcpy_write_ce": (9.9 * GB, 9.91 * GB)}
    ),
    "p2p-mixed-models-cannot": Report("aikitoria/open-gpu-kernel-modules#5", UNKNOWN, {}, "incomplete"),
    "p2p-nccl-1264-trailing-blanks": Report("NVIDIA/nccl#1264", UNKNOWN, {}, "1 of 8 rows", 72),
    "p2p-rtx6000pro-markdown-collapsed": Report(
        "voipmonitor/rtx6kpro", UNKNOWN, {"device_to_device_memcpy_write_ce": ()}, "last line is cut"
    ),
    "stream-revyos-warning-head": Report("docs.revyos.dev, benchmark/stream", UNKNOWN, {}, "no Copy, Scale"),
    "stream-srun-label": Report("", UNKNOWN, _STREAM, count=4),
    "stream-two-sockets": Report("", UNKNOWN, {"host_stream_triad": (308500 * MB,)}, count=4),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_a_posted_output_says_what_its_poster_found(name: str) -> None:
    report = REPORTS[name]
    document = wirespeed.load_log(FOLDER / f"{name}.txt")
    check = wirespeed.judge(document)
    assert check.verdict is report.verdict
    found = {result.name: [v for t in result.tables for v in t.values()] for result in document.testcases}
    for testcase, values in report.values.items():
        assert [v for v in values if not any(v == pytest.approx(other) for other in found[testcase])] == []
    texts = [text for r in document.testcases for text in (r.reason, r.description)]
    assert report.says in "; ".join((*texts, *(doubt for log in document.imported for doubt in log.doubts)))
    if report.count:
        assert sum(map(len, found.values())) == report.count


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nccl-failure-only", "nvidia-fabricmanager"), ("nccl-exclusive-process", "compute_mode"),
        ("nvbandwidth-not-permitted", "nvidia-imex"), ("nccl-launch-failure-with-warn", "NCCL's warning"),
        ("nccl-tests-118-invalid-device", "nvidia-smi -L"),
        ("p2p-matrix-of-zeros", "run it again to the end"),
        ("nccl-tests-322-failure-after-rows", "NCCL_DEBUG=WARN"),
        ("nvbandwidth-34-invalid-value", "another transport or algorithm"),
    ],
)  # fmt: skip
def test_the_remedy_is_that_of_the_error(name: str, remedy: str) -> None:
    document = wirespeed.load_log(FOLDER / f"{name}.txt")
    advice = overview(document, wirespeed.judge(document)).advice
    assert remedy in f"{advice.do} {advice.command}" and "dmesg" not in advice.command


def test_the_key_figure_of_a_curve_is_that_of_its_largest_size() -> None:
    document = wirespeed.load_log(FOLDER / "nccl-two-hosts-dip.txt")
    (figure,) = key_figures(document, wirespeed.judge(document))
    assert figure.typical.value == 6.44e9 and figure.title == "all-reduce 1 GiB"


def test_the_memory_of_the_host_of_a_log_is_that_of_all_sockets() -> None:
    document = wirespeed.load_log(FOLDER / "stream-two-sockets.txt")
    assert "all sockets" in unknown_memory(document, wirespeed.judge(document))
    whole = with_host_memory(document, parse_memory("16x3200"))
    assert wirespeed.judge(whole).verdict is PASS
    half = with_host_memory(document, parse_memory("8x3200"))
    assert "all sockets" in overview(half, wirespeed.judge(half)).advice.do


def test_of_a_sweep_over_threads_the_best_is_judged_in_any_order(tmp_path: Path) -> None:
    text = (FOLDER / "stream-srun-label.txt").read_text()
    slow = text.replace("31000.1", "5000.1").replace("33100.4", "5100.4")
    (tmp_path / "log.txt").write_text(slow + text + slow)
    document = wirespeed.load_log(tmp_path / "log.txt")
    values = {result.name: result.tables[0].values()[0] for result in document.testcases}
    assert values["host_stream_copy"] == 31000.1 * MB
    assert values["host_stream_copy_2"] == values["host_stream_copy_3"] == 5000.1 * MB
    assert sum(len(t.values()) for r in document.testcases for t in r.tables) == 12


def test_notices_of_open_mpi_are_no_failure(tmp_path: Path) -> None:
    notice = "[node1:4711] 8 more processes have sent help message help-mtl-ofi.txt / OFI call fail\n"
    notice += (
        '[node1:4711] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages\n'
    )
    (tmp_path / "log.txt").write_text(notice + (FOLDER / "osu-device-host.txt").read_text())
    assert wirespeed.judge(wirespeed.load_log(tmp_path / "log.txt")).verdict is UNKNOWN


@pytest.mark.parametrize("space", [" ", "\u00a0"])
def test_excerpts_without_any_head(space: str, tmp_path: Path) -> None:
    text = (
        "memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)\n"
        "   0      1\n 0 N/A 270.11\n 1 270.12 N/A\n\n"
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n   0      1\n 0 25.11 25.12\n\n"
        "SUM host_to_device_memcpy_ce 50.23\n\n"
        "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n   0      1\n 0 25.21 25.22\n\n"
        "Copy:   293612.7  0.014749  0.014628  0.014765\n"
        "# Size      Bandwidth (MB/s)\n8    7.5\n"
        " 8388608   2097152   float    sum   -1   992.6   8.45   16.20    0   986.0   8.51   16.31   0\n"
    )
    (tmp_path / "log.txt").write_text(text.replace(" ", space))
    document = wirespeed.load_log(tmp_path / "log.txt")
    found = {result.name: [v for t in result.tables for v in t.values()] for result in document.testcases}
    assert found["device_to_device_bidirectional_memcpy_read_ce"] == [270.11 * GB, 270.12 * GB]
    assert found["host_to_device_memcpy_ce"] == [25.11 * GB, 25.12 * GB]
    assert found["unnamed"] == [25.21 * GB, 25.22 * GB]  # to one GPU at a time, or to all at once
    assert found["host_stream_copy"] == [293612.7 * MB] and found["OSU"] == [7.5 * MB]
    assert found["all_reduce"][-1] == 16.31 * GB
    assert wirespeed.judge(document).doubts


def test_a_row_that_its_poster_cut_costs_no_other(tmp_path: Path) -> None:
    lines = (FOLDER / "nvb-gpu7-nop2p.txt").read_text().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if line.startswith(" 3 "))
    for shorter in ([], [lines[cut][:30] + "\n"]):
        (tmp_path / "log.txt").write_text("".join([*lines[:cut], *shorter, *lines[cut + 1 :]]))
        document = wirespeed.load_log(tmp_path / "log.txt")
        (table,) = document.testcases[0].tables
        assert [cell.row for cell in table.cells if cell.column == 0 and cell.value] == [1, 2, 4, 5, 6]
        assert any("7 of 8 rows" in doubt for doubt in document.imported[0].doubts)


HEAD = (
    "#                                                     out-of-place                       in-place\n"
    "#     size     count   type  redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong\n"
)
SLOW = (
    "   67108864  16777216  float  sum  -1   892.0   75.24  141.07   0   886.0   75.74  142.01   0\n"
    " 1073741824 268435456  float  sum  -1 13512.8   79.46  148.99   0 13484.0   79.63  149.31   0\n"
)
FAST = SLOW.replace("13512.8   79.46  148.99", "10312.8  104.12  195.22")


def test_the_tables_of_several_runs_are_runs(tmp_path: Path) -> None:
    """As posted to NVIDIA/nccl#1411: only the tables, below a variable each; no value is lost."""
    log = tmp_path / "log.txt"
    log.write_text(f"NCCL_CROSS_NIC=0\n{HEAD}{SLOW}\nNCCL_CROSS_NIC=1\n{HEAD}{FAST}")
    slow, fast = wirespeed.load_log(log).testcases
    assert (slow.name, fast.name) == ("all_reduce", "all_reduce_2")
    values = [[v for table in result.tables for v in table.values()] for result in (slow, fast)]
    assert 148.99 * GB in values[0] and 195.22 * GB in values[1] and [*map(len, values)] == [12, 12]
    log.write_text(f"{HEAD}{HEAD}{SLOW}")  # a heading that is repeated before the first row
    assert [result.name for result in wirespeed.load_log(log).testcases] == ["all_reduce"]


@pytest.mark.parametrize(
    ("machine", "nics", "asked"),
    [
        (None, None, "name the GPUs of each host (--machine NAME-N"),
        ("hgx-h100-8", None, "give the NICs of each host (--nics"),  # 16 ranks, by the bus bandwidth
        ("hgx-h100-8", "8x400G", ""),
        ("hgx-h100-16", None, ""),
    ],
)
def test_what_a_log_lacks_is_asked_for(
    machine: str | None, nics: str | None, asked: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_text(HEAD + SLOW)
    document = wirespeed.load_log(log, machine=machine, nics=nics)
    check = wirespeed.judge(document)
    assert document.testcases[0].collective is not None and document.testcases[0].collective.ranks == 16
    assert overview(document, check).advice.do.startswith(asked or ("", "find"))
    assert (check.verdict is UNKNOWN) is bool(asked)
    matrix = "memcpy SM CPU(row) -> GPU(column) bandwidth (GB/s)\n  0  1\n0  35.19  35.25\n"
    log.write_text(f"Running host_to_device_memcpy_sm.\n{matrix}")
    document = wirespeed.load_log(log)
    assert remedy(document, wirespeed.judge(document)).startswith("name the GPUs (--machine NAME-N")


def test_a_label_in_brackets_is_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    for text, says in (
        ("[1,0]<stdout>:# nothing known\n", "neither a saved run nor a log"), ('[{"a": 1}]', "other JSON"),
    ):  # fmt: skip
        log.write_text(text)
        assert main(["check", str(log)]) == 2
        assert says in capsys.readouterr().err


def test_the_nics_judge_messages_between_hosts(tmp_path: Path) -> None:
    """As in openucx/ucx#7947 and #8851: two NICs of 100 Gb/s, one or both of them used, one or both ways."""
    log = tmp_path / "log.txt"
    both = "# OSU MPI Bi-Directional Bandwidth Test v5.8\n# Size  Bandwidth (MB/s)\n1  1.35\n"
    one = "#OSU MPI Bandwidth Test v5.6.2\n# Size  Bandwidth (MB/s)\n65536  9000.0\n"
    for text, nics, verdict in (
        (f"{one}4194304  23065.67\n", None, UNKNOWN), (f"{one}4194304  23065.67\n", "2x100G", PASS),
        (f"{one}4194304  12280.00\n", "2x100G", PASS), (f"{one}4194304  10065.67\n", "2x100G", WARN),
        (f"{one}4194304  8065.67\n", "2x100G", FAIL),
        (f"{both}4194304  18865.67\n", "1x100G", WARN), (f"{both}4194304  24609.96\n", "1x100G", PASS),
    ):  # fmt: skip
        log.write_text(text)
        document = wirespeed.load_log(log, nics=nics)
        check = wirespeed.judge(document)
        assert check.verdict is verdict, text
        assert remedy(document, check).startswith("give the NICs") is (nics is None)


@pytest.mark.parametrize("machine", [None, "rtx-a6000-6"])
def test_what_slows_down_the_host_explains_no_pair_slower_than_it(
    machine: str | None, tmp_path: Path
) -> None:
    """As in NVIDIA/nccl#814: 22 GB/s through the host, 10 to 12 GB/s by peer access."""
    ends, log = range(6), tmp_path / "log.txt"
    log.write_text("".join(
        f"Unidirectional P2P={title} Matrix (GB/s)\n   D\\D {'  '.join(map(str, ends))}\n" + "".join(
            f"   {i} {'  '.join('912.14' if i == j else str(rate) for j in ends)}\n" for i in ends)
        for title, rate in (("Disabled Bandwidth", 22.2), ("Enabled Bandwidth (P2P Writes)", 10.14),
                            ("Enabled Bandwidth (P2P Reads)", 12.43))
    ))  # fmt: skip
    document = wirespeed.load_log(log, machine=machine)
    finding, *more = wirespeed.diagnose(document).findings
    assert [finding.cause.name, *(other.name for other in finding.others)] == ["iommu", "acs", "bar1"]
    assert finding.cells == 60 and not more


def test_the_hosts_of_a_job_that_do_not_reach_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        "# nThread 1 nGpus 1 minBytes 128 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20\n"
        "#  Rank  0 Group  0 Pid 3689 on node1 device  0 [0x01] NVIDIA GeForce RTX 4090\n"
        "#  Rank  1 Group  0 Pid 3867 on node2 device  0 [0x01] NVIDIA GeForce RTX 4090\n"
        "node2:3867:3867 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 192.0.2.1<38007> "
        "failed : No route to host\n"
        "node1: Test NCCL failure common.cu:1012 'unhandled system error'\n"
    )
    document = wirespeed.load_log(log)
    assert "NCCL_SOCKET_IFNAME" in overview(document, wirespeed.judge(document)).advice.do
