"""The GPUs of a machine are the largest set that its logs name; a run of some of them is one of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_assumed import A100, H100, all_reduce, between, to_gpus
from tests.features.imports.test_formats import imported
from wirespeed.errors import UsageError
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

LOGS = Path(__file__).parents[2] / "data/logs"
V100 = "Tesla V100-SXM2-32GB"


def peers(values: list[list[float]], buses: list[str], model: str) -> str:
    """The output of p2pBandwidthLatencyTest: copies between GPUs with these bus numbers, in GB/s."""
    devices = "".join(
        f"Device: {i}, {model}, pciBusID: {bus}, pciDeviceID: 0, pciDomainID:0\n"
        for i, bus in enumerate(buses)
    )
    matrix = "".join(f" {i} " + " ".join(f"{v:.2f}" for v in row) + "\n" for i, row in enumerate(values))
    return (
        f"[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n{devices}"
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        f"   D\\D {' '.join(map(str, range(len(buses))))}\n{matrix}\n"
    )


#: GPUs 0 and 1, and 2 and 3, are bridged; the others use PCIe 4.
BRIDGED = [[700, 50, 20, 20], [50, 700, 20, 20], [20, 20, 700, 50], [20, 20, 50, 700]]
RTX_3090 = "NVIDIA GeForce RTX 3090"
FOUR = peers(BRIDGED, ["1", "2", "3", "4"], RTX_3090)


def of_two(buses: tuple[str, str], bus: float) -> str:
    """An all-reduce of two of the four GPUs."""
    text = all_reduce(RTX_3090, 1, 2, bus)
    for i, name in enumerate(buses):
        text = text.replace(f"device  {i} [0000:{i:02}:00]", f"device  {i} [0000:{name}:00]")
    return text


@pytest.mark.parametrize(
    ("buses", "bus", "verdict", "members"),
    [
        (("01", "02"), 45.0, Verdict.PASS, (0, 1)),
        (("01", "02"), 15.0, Verdict.WARN, (0, 1)),
        (("01", "03"), 20.0, Verdict.PASS, (0, 2)),  # no bridge connects them
        (("aa", "bb"), 15.0, Verdict.WARN, ()),  # which GPUs they are is unknown
    ],
)
def test_a_collective_of_some_gpus_is_judged_by_their_links(
    buses: tuple[str, str], bus: float, verdict: Verdict, members: tuple[int, ...], tmp_path: Path
) -> None:
    text = FOUR + of_two(buses, bus)
    document = imported(tmp_path, text)
    run = next(result for result in document.testcases if result.collective)
    assert run.collective and run.collective.members == members and len(document.machine.gpus) == 4
    check = judge(document)
    collective = {j.verdict for j in check.judgements if j.key.table == "busbw"}
    assert collective == {Verdict.NOT_JUDGED if not members else verdict}


def test_copies_of_some_gpus_stand_at_their_places(tmp_path: Path) -> None:
    text = FOUR + peers([[700, 20], [20, 700]], ["4", "1"], RTX_3090)
    document = imported(tmp_path, text)
    again = next(r for r in document.testcases if r.name == "device_to_device_memcpy_write_ce_2")
    assert [(c.row, c.column, c.value) for c in again.tables[0].cells] == [(0, 3, 20e9), (3, 0, 20e9)]
    assert not judge(document).missing


def test_a_slow_run_of_all_and_a_fast_one_of_two_are_of_one_machine(tmp_path: Path) -> None:
    text = all_reduce(A100, 1, 8, 100.0) + all_reduce(A100, 1, 2, 240.0)
    for of_file in (text, all_reduce(A100, 1, 2, 240.0) + all_reduce(A100, 1, 8, 100.0)):
        document = imported(tmp_path, of_file)
        assert len(document.machine.gpus) == 8
        assert sorted(r.collective.ranks for r in document.testcases if r.collective) == [2, 8]
    pairs = [document.testcases[i].collective for i in range(2)]
    assert {pair.members for pair in pairs if pair and pair.ranks == 2} == {(0, 1)}


def test_some_gpus_of_a_given_machine(tmp_path: Path) -> None:
    """Who runs nccl-tests chooses the GPUs; a tool that uses all finds those that are there."""
    document = imported(tmp_path, all_reduce(H100, 1, 4, 360.0), "hgx-h100-8")
    assert len(document.machine.gpus) == 8 and judge(document).verdict is Verdict.PASS
    with pytest.raises(UsageError, match="has 7 GPUs, the machine hgx-h100-8 has 8"):
        imported(tmp_path, to_gpus([55.0] * 7, H100), "hgx-h100-8")


def test_ranks_on_two_hosts_are_no_part_of_one(tmp_path: Path) -> None:
    text = between(390.0, 390.0, 8) + all_reduce(H100, 2, 2, 40.0)
    document = imported(tmp_path, text)
    run = next(result for result in document.testcases if result.collective)
    assert {cell.expected for table in run.tables for cell in table.cells} == {None}


@pytest.mark.parametrize(
    "text",
    [
        all_reduce(A100, 1, 8, 200.0) + all_reduce(H100, 1, 8, 300.0),
        all_reduce(A100, 1, 8, 200.0) + to_gpus([55.0], H100),
        to_gpus([55.0], H100) + to_gpus([25.0], A100),
        (LOGS / "refused/two-models.txt").read_text(),
    ],
)
def test_gpus_that_are_not_of_one_machine_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is of two machines, .*; save the output of each"):
        imported(tmp_path, text)


def test_gpus_that_only_a_matrix_shows(tmp_path: Path) -> None:
    matrix = "\n".join(peers([[700] * 8] * 8, ["1"] * 8, V100).splitlines()[9:])
    document = imported(tmp_path, matrix + "\n" + all_reduce(V100, 1, 4, 70.0))
    assert [gpu.model for gpu in document.machine.gpus] == [V100] * 8


TITLE = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"


@pytest.mark.parametrize(
    "text",
    [
        FOUR.replace(TITLE, f"| RTX 3090 | {TITLE}"),
        FOUR.replace(TITLE, f"| {TITLE} | 550.54 |"),
        "<table><tr><td>" + FOUR + "</td></tr></table>\n",
        FOUR.replace("\n", "<br>\n"),
        "\n".join(f"| {line:60} |" for line in FOUR.splitlines()),
        FOUR.replace(TITLE, ""),
        "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)\n" + FOUR.replace(TITLE, f"<td>{TITLE}"),
    ],
)
def test_the_gpus_of_a_log_in_the_cell_of_a_table(text: str, tmp_path: Path) -> None:
    document = imported(tmp_path, text)
    assert [gpu.model for gpu in document.machine.gpus] == [RTX_3090] * 4
    assert document.testcases[0].name == "device_to_device_memcpy_write_ce"


def test_two_cells_are_two_runs_of_one_machine(tmp_path: Path) -> None:
    cell = FOUR
    document = imported(tmp_path, f"<td><pre>{cell}</pre></td>\n<td><pre>{cell}</pre></td>\n")
    assert len(document.machine.gpus) == 4 and len(document.imported) == 2


def test_the_limit_of_gpus_without_nvlink_is_that_of_their_slot(tmp_path: Path) -> None:
    """Not the sum of the paths over PCIe to all others."""
    document = wirespeed.load_log(LOGS / "subset-of-gpus.txt")
    run = next(result for result in document.testcases if result.collective)
    assert {cell.limit for table in run.tables if table.key == "busbw" for cell in table.cells} == {63.008e9}
