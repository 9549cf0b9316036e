"""What is said of public logs: values above limits, what is not judged, dips, errors, and advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_assumed import H100, all_reduce, to_gpus
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.features.fleet import screen as many_runs
from wirespeed.judging.advice import of_error
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.overview import Overview
from wirespeed.judging.run_summary import run_summary
from wirespeed.judging.unlike_rates import unlike
from wirespeed.judging.verdict import Verdict, share
from wirespeed.reports import Style
from wirespeed.reports.checked_runs import CheckedRun

LOGS = Path(__file__).parents[2] / "data/logs"


def log(name: str, machine: str | None = None, nics: str | None = None) -> Document:
    return wirespeed.load_log(LOGS / f"{name}.txt", machine, nics)


def imported(tmp_path: Path, text: str, machine: str | None = None, nics: str | None = None) -> Document:
    path = tmp_path / "log.txt"
    path.write_text(text)
    return wirespeed.load_log(path, machine, nics)


def said(document: Document) -> Overview:
    return Judged(document).overview


def everything(document: Document) -> str:
    """The sentence, the extent and the advice."""
    overview = said(document)
    return f"{overview.sentence}\n{overview.extent}\n{overview.advice.do}\n{overview.advice.command}"


def test_values_above_an_assumed_limit_are_faster_than_the_machine_and_not_slow() -> None:
    document = log("above-limit-power9")
    judged = Judged(document)
    overview = judged.overview
    assert overview.verdict is Verdict.WARN
    assert overview.sentence == "2 values are faster than the assumed machine: up to 426% of its limit"
    assert "--machine" in overview.advice.do and "worse" not in everything(document)
    assert judged.diagnosis.slow == 0 and "2 values above the limit" in overview.extent


@pytest.mark.parametrize(("bus", "advice"), [(90.0, ""), (600.0, "--nics")])
def test_a_network_that_is_too_slow_for_the_values_is_not_the_network(
    bus: float, advice: str, tmp_path: Path
) -> None:
    document = imported(tmp_path, all_reduce(H100, 2, 8, bus), nics="1x400G")
    assert advice in said(document).advice.do and ("faster than" in said(document).sentence) == bool(advice)


@pytest.mark.parametrize(("bus", "verdict"), [(31.6, Verdict.PASS), (144.0, Verdict.WARN)])
def test_the_pcie_link_of_a_gpu_limits_it_whatever_the_nics_do(
    bus: float, verdict: Verdict, tmp_path: Path
) -> None:
    """Switches that reduce halve what a host sends, not what a GPU sends over PCIe."""
    document = imported(tmp_path, all_reduce("NVIDIA L40S", 2, 8, bus), nics="8x400G")
    assert judge(document).verdict is verdict


def test_a_tool_that_ran_on_one_device_lacks_nothing_on_the_others() -> None:
    document = log("lack-values")
    assert judge(document).verdict is Verdict.PASS and not judge(document).missing


def test_impossible_copies_between_gpus_are_wrong_data() -> None:
    for machine in (None, "rtx-5090-3"):
        document = log("p2p-above-link-rate", machine)
        assert judge(document).verdict is Verdict.FAIL
        assert "4 values above the limits" in said(document).sentence
        assert said(document).advice.command == "wirespeed p2p"


def test_a_machine_that_a_user_gives_for_unnamed_gpus_may_be_another(tmp_path: Path) -> None:
    text = to_gpus([55.0] * 2, H100).replace(f"Device 0: {H100}\nDevice 1: {H100}\n", "")
    document = imported(tmp_path, text, "rtx-4090-2")
    assert judge(document).verdict is Verdict.WARN and "--machine" in said(document).advice.do
    named = imported(tmp_path, to_gpus([55.0] * 2, "NVIDIA GeForce RTX 4090"))
    assert judge(named).verdict is Verdict.FAIL


#: A job of two hosts as it ends: the warnings of NCCL, then the failure (NCCL's issue 1052, shortened).
_FAILED = """# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5
# Using devices
#  Rank  0 Group  0 Pid  14159 on  node1 device  0 [0x4c] NVIDIA A100-PCIE-40GB
#  Rank  1 Group  0 Pid  65139 on  node2 device  0 [0x4c] NVIDIA A100-PCIE-40GB
{warnings}node1: Test NCCL failure common.cu:303 'remote process exited or there was a network error / '
 .. node1 pid 14159: Test failure common.cu:401
"""
_COMPLETION = (
    "node1:14159:14172 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
    "192.0.2.2<49212> with {status} (Send) localGid ::ffff:192.0.2.1 remoteGid ::ffff:192.0.2.2\n"
)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("error 4, opcode 0, len 0, vendor err 81", "disable ACS"),
        ("status=12 opcode=129 len=1048576 vendor err 129", "test the NICs of this pair"),
    ],
)
def test_the_first_broken_connection_is_the_cause(error: str, advice: str, tmp_path: Path) -> None:
    warnings = _COMPLETION.format(status=error) + _COMPLETION.format(
        status="status=5 opcode=0 len=0 vendor err 249"
    )
    document = imported(tmp_path, _FAILED.format(warnings=warnings))
    assert error in document.testcases[0].reason and said(document).advice.do.startswith(advice)


def test_gpus_are_reset_after_the_fabric_manager_was_restarted() -> None:
    document = log("nvls-after-fabricmanager-restart")
    assert judge(document).verdict is Verdict.FAIL
    assert "reset the GPUs, or restart the host" in said(document).advice.do


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            "CUDA error at test.cu:256 code=802(cudaErrorSystemNotReady)",
            "start nvidia-fabricmanager",
        ),
        ("cudaGetDeviceProperties returned 802", "start nvidia-fabricmanager"),
        ("Test CUDA failure common.cu:941 'system not yet initialized'", "start nvidia-fabricmanager"),
        ("Fabric status: Insufficient Resources", "restart its manager"),
        ("NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory", "reset the GPUs"),
        ("line 802: command not found", "run it again"),
    ],
)
def test_what_to_do_about_errors_that_are_often_posted(error: str, advice: str) -> None:
    assert advice in of_error(error, imported=True).do


def test_an_error_within_a_row_is_the_reason() -> None:
    document = log("error-glued-to-row")
    assert document.testcases[0].reason == (
        "node1: Test CUDA failure common.cu:389 'an illegal memory access was encountered'"
    )
    assert "kernel log" in said(document).advice.do
    assert not document.imported[0].doubts


@pytest.mark.parametrize(
    ("name", "judged", "lacking"),
    [
        ("quick-mode-not-judged", "as fast as others", "no rate of GPU memory was judged: buffers too small"),
        ("json-latency-only-pass", "within what the links allow", "no rate of host ↔ GPU was judged"),
    ],
)
def test_a_kind_of_path_of_which_nothing_is_judged_is_named_and_no_pass(
    name: str, judged: str, lacking: str
) -> None:
    document = log(name)
    assert judge(document).verdict is Verdict.WARN
    assert lacking in said(document).sentence and f"judged is {judged}" in said(document).sentence
    assert "--size" not in said(document).advice.command


def test_kinds_that_were_never_part_of_the_tool_do_not_count(tmp_path: Path) -> None:
    assert judge(imported(tmp_path, to_gpus([55.0] * 2, H100))).verdict is Verdict.PASS


def test_an_error_column_has_a_size_and_makes_no_headline() -> None:
    document = log("old-error-column")
    assert judge(document).verdict is Verdict.FAIL
    assert document.testcases[0].reason == "wrong data, an error of 1e+00, more than allowed in the log"
    assert [figure.typical.value for figure in said(document).figures] == [1.72e9]


@pytest.mark.parametrize(
    ("kind", "error", "wrong"),
    [
        ("float", "5e-07", 0), ("float", "1e-05", 0), ("float", "2e-05", 1), ("half", "5e-02", 0),
        ("half", "6e-02", 1), ("int32", "0e+00", 0), ("int32", "1e+00", 1),
    ],
)  # fmt: skip
def test_the_error_that_is_allowed_depends_on_the_type(
    kind: str, error: str, wrong: int, tmp_path: Path
) -> None:
    head = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
    row = f"  1048576  262144  {kind}  sum  571.5  1.83  3.20  0e+00  571.5  1.83  3.20  {error}\n"
    document = imported(tmp_path, head + row)
    assert sum(cell.wrong or 0 for t in document.testcases[0].tables for cell in t.cells) == wrong


def test_cached_sizes_make_no_headline() -> None:
    assert [figure.kind.name for figure in said(log("quick-mode-not-judged")).figures] == ["host_gpu"]


def test_gpus_whose_links_are_unknown_are_not_judged_by_the_nics() -> None:
    document = log("nics-without-links", nics="8x400G")
    assert judge(document).verdict is Verdict.NOT_JUDGED
    assert "10%" not in everything(document)


@pytest.mark.parametrize(
    ("name", "verdict", "text"),
    [
        ("slow-h100-30", Verdict.FAIL, "runs at 30% of expected"),
        ("slow-gb300-50", Verdict.WARN, "compared with others of this model"),
        ("slow-v100-25", Verdict.WARN, "assumed: PCIe 3 x16"),
        ("slow-babel-8-one-slow", Verdict.WARN, "run 8 of 8 of BabelStream Copy reaches 30% of the fastest"),
    ],
)
def test_a_slow_value_does_not_define_its_own_limit(name: str, verdict: Verdict, text: str) -> None:
    """Eight H100s at 30 %, C2C at half, PCIe at a quarter of the usual rate, and one of eight runs."""
    document = wirespeed.load_log(LOGS / f"{name}.txt")
    judged = Judged(document)
    assert judged.verdict is verdict
    assert text in everything(document) + "".join(j.why for j in judged.check.judgements)


def test_a_slow_value_makes_no_gate_impossible() -> None:
    document = wirespeed.load_log(LOGS / "slow-h100-30.txt", "hgx-h100-8")
    failed = wirespeed.gates(document, "azure").failures
    assert [result.gate.at_least for result in failed] == ["335 GB/s"]


@pytest.mark.parametrize("rate", [6.6, 3.2])
def test_the_value_of_one_gpu_does_not_define_its_limit(rate: float, tmp_path: Path) -> None:
    document = imported(tmp_path, to_gpus([rate], "Tesla T4"))
    judged = Judged(document)
    assert judged.check.verdict is Verdict.WARN and judged.diagnosis.slow == 1
    assert "100%" not in "".join(map(str, [share(j) for j in judged.check.judgements]))
    assert any("PCIe 3 x" in note and "explains" in note for note in document.machine.notes)
    assert judge(imported(tmp_path, to_gpus([9.4], "Tesla T4"))).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("percent", "verdict"),
    [(88.4, Verdict.PASS), (88.3, Verdict.WARN), (70.7, Verdict.WARN), (70.6, Verdict.FAIL)],
)
def test_rdma_passes_from_88_percent_of_the_nic(percent: float, verdict: Verdict, tmp_path: Path) -> None:
    rate = percent / 100 * 100 / 8 * 1e9 / 2**20
    text = (
        "                    RDMA_Write BW Test\n"
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        f" 65536      5000             {rate:.2f}            {rate:.2f}              0.176\n"
    )
    assert judge(imported(tmp_path, text, nics="1x100G")).verdict is verdict


def test_numbers_of_many_runs_are_not_cut() -> None:
    published = sorted((LOGS.parent / "published").rglob("*.txt"))
    runs = [CheckedRun(run_summary(Judged(wirespeed.load_log(path))), ()) for path in published]
    for width in (40, 60, 80):
        table = many_runs.render(runs, Style(width=width)).split("\n\n")[0]
        assert not re.search(r"(?<=\s)[\d.]+…", table) and max(map(len, table.splitlines())) <= width


@pytest.mark.parametrize(
    ("second", "text"), [(152.0, []), (148.0, ["all_reduce_2 reaches 148 GB/s at 1 GiB"])]
)
def test_runs_of_a_test_that_differ_are_named(second: float, text: list[str], tmp_path: Path) -> None:
    document = imported(tmp_path, all_reduce(H100, 1, 8, 200.0) + all_reduce(H100, 1, 8, second))
    assert [one.split(",")[0] for one in unlike(document)] == text


def test_pairs_that_differ_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(LOGS / "p2p-above-link-rate.txt")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "gpu2 → gpu1 reaches 14.3 GB/s, gpu0 → gpu1 128.1 (89% less)" in said
    assert not [*unlike(wirespeed.load_log(LOGS.parent / "published/asked/nvbandwidth-a6000-issue50.txt"))]


#: Public logs: verdict, and what sentence or advice says (issues 1435, 1161 and 814 of nccl, 82 and 294
#: of nccl-tests, 6327 of ucx, 34 of nvbandwidth; shortened, names replaced).
PUBLIC = {
    "all-gather-two-gpus": (Verdict.NOT_JUDGED, "no value could be judged"),
    "bridged-pair": (Verdict.NOT_JUDGED, "--machine NAME-N, such as hgx-h100-2"),
    "broadcast-over-sockets": (Verdict.WARN, "transports of NCCL are disabled or not used"),
    "osu-host-to-gpu": (Verdict.NOT_JUDGED, "no value could be judged"),
    "p2p-slower-than-host": (Verdict.WARN, "possibly, the IOMMU translates the addresses of GPUs"),
    "unconnected-rows": (Verdict.NOT_JUDGED, "measure several ranks in one job"),
    "wrong-data": (Verdict.FAIL, "Invalid value when checking the pattern"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_logs_get_their_right_answer(name: str) -> None:
    verdict, text = PUBLIC[name]
    document = log(name)
    assert judge(document).verdict is verdict and text in everything(document)


@pytest.mark.parametrize(
    ("name", "operation", "ranks"),
    [
        ("all-gather-two-gpus", "all_gather", 2), ("bridged-pair", "all_reduce", 2),
        ("broadcast-over-sockets", "broadcast", 2), ("unconnected-rows", "all_reduce", 1),
    ],
)  # fmt: skip
def test_collectives_of_public_logs(name: str, operation: str, ranks: int) -> None:
    (result,) = log(name).testcases
    assert result.collective is not None
    assert (result.collective.operation, result.collective.ranks) == (operation, ranks)


def test_settings_of_a_public_command() -> None:
    (result,) = log("broadcast-over-sockets").testcases
    assert "NCCL_IB_DISABLE=1" in result.settings and "NCCL_SOCKET_IFNAME=eth0" in result.settings


def test_commands_of_other_tools_are_no_unknown_lines() -> None:
    unknown = [imported.unknown for imported in log("osu-host-to-gpu").imported]
    assert sum(unknown) == 1  # the line of prose
