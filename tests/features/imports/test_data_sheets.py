"""Data sheets of GPUs: names, ambiguous names, machines with different GPUs, and short copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.imports.test_assumed import A100, all_reduce, between, to_gpus
from tests.features.imports.test_formats import imported
from wirespeed.data import gpu_sheet
from wirespeed.document import Document
from wirespeed.hardware.topology import LinkKind
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict

#: Names as nvidia-smi and logs print them -> the highest rate of the memory in GB/s, the largest number of
#: NVLinks, and generation and lanes of PCIe.
NAMES = {
    "NVIDIA A100-SXM4-80GB": (2039, 12, 4, 16),
    "A100-SXM4-40GB": (1555, 12, 4, 16),
    "NVIDIA A100 80GB PCIe": (1935, 12, 4, 16),
    "NVIDIA A100-PCIE-40GB": (1555, 12, 4, 16),
    "NVIDIA A800-SXM4-80GB": (2039, 8, 4, 16),
    "NVIDIA A30": (1224, 4, 4, 16),
    "NVIDIA A10G": (600, 0, 4, 16),
    "NVIDIA A2": (200, 0, 4, 8),
    "NVIDIA A40": (696, 4, 4, 16),
    "NVIDIA L4": (300, 0, 4, 16),
    "NVIDIA L20": (864, 0, 4, 16),
    "NVIDIA L40S": (864, 0, 4, 16),
    "Tesla T4": (320, 0, 3, 16),
    "Tesla V100-SXM2-32GB": (898, 6, 3, 16),
    "Tesla V100S-PCIE-32GB": (1134, 0, 3, 16),
    "Tesla V100-PCIE-16GB": (898, 0, 3, 16),
    "Quadro RTX 8000": (672, 2, 3, 16),
    "NVIDIA TITAN RTX": (672, 2, 3, 16),
    "NVIDIA H100 80GB HBM3": (3352, 18, 5, 16),
    "NVIDIA H100 PCIe": (2039, 12, 5, 16),
    "NVIDIA H100 NVL": (3939, 12, 5, 16),
    "NVIDIA H200": (4814, 18, 5, 16),
    "NVIDIA H200 NVL": (4814, 18, 5, 16),
    "NVIDIA H20": (4023, 18, 5, 16),
    "NVIDIA H800": (3352, 8, 5, 16),
    "NVIDIA B200": (8000, 18, 5, 16),
    "NVIDIA B300 SXM6 AC": (8184, 18, 6, 16),
    "NVIDIA GB200": (8000, 18, 0, 16),
    "HGX GB200": (8000, 18, 0, 16),
    "NVIDIA GB300": (8184, 18, 0, 16),
    "NVIDIA GH200 480GB": (4023, 18, 0, 16),
    "NVIDIA GB10": (273, 0, 0, 16),
    "NVIDIA RTX 6000 Ada Generation": (960, 0, 4, 16),
    "NVIDIA RTX A6000": (768, 4, 4, 16),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (1792, 0, 5, 16),
    "NVIDIA GeForce RTX 3090": (936, 4, 4, 16),
    "GeForce RTX 2080 Ti": (616, 2, 3, 16),
    "NVIDIA GeForce RTX 4090": (1008, 0, 4, 16),
    "nvidia geforce rtx 5090": (1792, 0, 5, 16),
    "NVIDIA GeForce RTX 4060 Ti": (288, 0, 4, 8),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_gpus(name: str) -> None:
    known = gpu_sheet(name)
    assert known is not None
    _, sheet = known
    links = sheet.links[-1] if sheet.links else 0
    assert (round(sheet.memory_rates[-1] / 1e9), links, sheet.pcie, sheet.lanes) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "GRID A100-10C",
        "NVIDIA A10-24Q",
        "AMD Instinct MI300X",
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        "Graphics Device",
        "x" * 10_000,
    ],
)
def test_parts_of_gpus_and_other_names_have_no_data_sheet(name: str) -> None:
    assert gpu_sheet(name) is None


def babelstream(device: str, megabytes: float) -> str:
    rows = "".join(
        f"{name}        {megabytes:.3f} 0.00100     0.00110     0.00105\n"
        for name in ("Copy", "Mul", "Add", "Triad", "Dot")
    )
    return (
        "BabelStream\nVersion: 5.0\nImplementation: CUDA\nRunning kernels 100 times\nPrecision: double\n"
        f"Array size: 268.4 MB (=0.3 GB)\nUsing CUDA device {device}\n"
        f"Function    MBytes/sec  Min (sec)   Max         Average\n{rows}"
    )


@pytest.mark.parametrize(
    ("device", "rate", "capacity", "verdict"),
    [
        ("NVIDIA GeForce RTX 3080", 700e3, 760.3, Verdict.PASS),
        ("NVIDIA GeForce RTX 3080", 840e3, 912.1, Verdict.PASS),
        ("Tesla T4", 240e3, 300.0, Verdict.PASS),
        ("Tesla T4", 310e3, 320.1, Verdict.PASS),
        ("NVIDIA H20", 2230e3, 2500.0, Verdict.PASS),
        ("NVIDIA H20", 3300e3, 4022.8, Verdict.PASS),
        ("NVIDIA H100 NVL", 2990e3, 3938.8, Verdict.PASS),
        ("NVIDIA H100 NVL", 2900e3, 3938.8, Verdict.WARN),
        ("NVIDIA H100 NVL", 2000e3, 3938.8, Verdict.FAIL),
        ("NVIDIA GeForce RTX 2060", 298e3, 336.0, Verdict.PASS),
        ("NVIDIA A40", 900e3, 696.1, Verdict.WARN),
        ("NVIDIA H100", 3000e3, None, Verdict.NOT_JUDGED),
        ("NVIDIA Foo 1", 3000e3, None, Verdict.NOT_JUDGED),
    ],
)
def test_the_smallest_rate_that_explains_the_values_is_assumed(
    device: str, rate: float, capacity: float | None, verdict: Verdict, tmp_path: Path
) -> None:
    document = imported(tmp_path, babelstream(device, rate))
    assert memory(document, "gpu0") == (None if capacity is None else pytest.approx(capacity * 1e9))
    assert judge(document).verdict is verdict


def memory(document: Document, gpu: str) -> float | None:
    return next(link.capacity for link in document.machine.links if link.source == link.destination == gpu)


def p2p(models: list[str], own: list[float], between: float) -> str:
    """A log of p2pBandwidthLatencyTest: copies within each GPU, and between each two, in GB/s."""
    devices = "".join(
        f"Device: {i}, {model}, pciBusID: {i + 1}, pciDeviceID: 0, pciDomainID:0\n"
        for i, model in enumerate(models)
    )
    rows = "".join(
        f"     {i} " + " ".join(f"{own[i] if i == j else between:.2f}" for j in range(len(models))) + "\n"
        for i in range(len(models))
    )
    return (
        f"[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n{devices}"
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        f"   D\\D {'      '.join(map(str, range(len(models))))}\n{rows}"
    )


R4090, R3090, R5090 = (f"NVIDIA GeForce RTX {n}" for n in (4090, 3090, 5090))


@pytest.mark.parametrize(
    ("models", "own", "verdict"),
    [
        ([R4090, R4090], [1015.3, 945.6], Verdict.PASS),  # one of them serves the display
        ([R4090, R3090, R5090], [1008.0, 850.0, 1540.0], Verdict.PASS),
        ([R4090, "NVIDIA Foo 1"], [1008.0, 500.0], Verdict.PASS),
        (["NVIDIA GeForce GTX 1650 SUPER"], [137.4], Verdict.PASS),
        ([R4090, R4090], [1015.3, 500.0], Verdict.FAIL), ([R4090, R4090], [500.0, 500.0], Verdict.FAIL),
        ([R5090, R5090], [2300.0, 2300.0], Verdict.PASS),  # a part is in the cache
        ([R5090, R5090], [3000.0, 3000.0], Verdict.WARN),
    ],
)  # fmt: skip
def test_copies_within_different_gpus(
    models: list[str], own: list[float], verdict: Verdict, tmp_path: Path
) -> None:
    document = imported(tmp_path, p2p(models, own, 6.6))
    assert judge(document).testcases["device_local_copy"] is verdict
    assert [gpu.model for gpu in document.machine.gpus] == models


def test_slots_of_desktop_machines_differ(tmp_path: Path) -> None:
    document = imported(tmp_path, to_gpus([26.3, 6.6, 13.1], R4090))
    capacities = [round((x.capacity or 0) / 1e9, 2) for x in document.machine.links if x.source == "numa0"]
    assert capacities == [0, 31.5, 31.5, 31.5]
    verdicts = {judgement.key.column: judgement.verdict for judgement in judge(document).judgements}
    assert verdicts == {"gpu0": Verdict.PASS, "gpu1": Verdict.WARN, "gpu2": Verdict.WARN}
    assert any(
        "gpu1 copies at most at 6.6 GB/s to or from the host, which PCIe 3 x8 or PCIe 4 x4 explains" in note
        for note in document.machine.notes
    )
    assert judge(imported(tmp_path, to_gpus([26.3, 6.6, 13.1], A100))).verdict is Verdict.FAIL


def test_copies_of_64_mib_are_judged(tmp_path: Path) -> None:
    old = to_gpus([26.0, 26.1], A100).replace("v0.10.0", "v0.2")
    assert judge(imported(tmp_path, old)).verdict is Verdict.PASS
    assert judge(imported(tmp_path, old.replace("26.10", "12.10"))).verdict is Verdict.FAIL
    for rate, verdict in ((370.0, Verdict.PASS), (140.0, Verdict.FAIL)):
        text = between(370.0, rate, 8).replace("v0.10.0", "v0.2")
        assert judge(imported(tmp_path, text)).verdict is verdict


def test_low_copies_in_both_directions_may_be_due_to_the_host(tmp_path: Path) -> None:
    text = to_gpus([26.0, 26.1], A100)
    both = text + "".join(text.partition("Running ")[1:]).replace(
        "host_to_device_", "host_to_device_bidirectional_"
    )
    for first, verdict in (("11.20", Verdict.PASS), ("10.30", Verdict.WARN), ("9.00", Verdict.FAIL)):
        low = both.replace("26.00     26.10", f"{first}     18.00", 2).replace(
            f"{first}     18.00", "26.00     26.10", 1
        )
        check = judge(imported(tmp_path, low))
        assert check.verdict is verdict
        bad = [j.key.column for j in check.judgements if j.verdict is not Verdict.PASS]
        assert bad == ([] if verdict is Verdict.PASS else ["gpu0"])


def test_a_path_between_sockets_is_no_nvlink(tmp_path: Path) -> None:
    """Four V100s of a POWER9 node: NVLink between two of a socket, the CPUs between the others."""
    names = ["Tesla V100-SXM2-16GB"] * 4
    text = p2p(names, [740.0] * 4, 29.0)
    for i, j in ((0, 1), (1, 0), (2, 3), (3, 2)):
        lines = text.splitlines()
        row = lines[-4 + i].split()
        row[1 + j] = "68.5"
        text = "\n".join([*lines[: -4 + i], " ".join(row), *lines[len(lines) - 3 + i :]]) + "\n"
    document = imported(tmp_path, text)
    links = [link for link in document.machine.links if link.kind is LinkKind.NVLINK]
    assert {(x.source, x.destination) for x in links} == {
        ("gpu0", "gpu1"), ("gpu1", "gpu0"), ("gpu2", "gpu3"), ("gpu3", "gpu2"),
    }  # fmt: skip
    assert {link.capacity for link in links} == {75e9} and judge(document).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("model", "bus", "capacity", "verdict"),
    [
        (R3090, 48.0, 56.25, Verdict.PASS), (R3090, 31.6, 56.25, Verdict.PASS),
        ("NVIDIA H100 NVL", 60.0, 318.7, Verdict.WARN),
        ("NVIDIA H100 NVL", 210.0, 318.7, Verdict.PASS), ("Tesla V100-SXM2-16GB", 45.0, 50.0, Verdict.PASS),
    ],
)  # fmt: skip
def test_collectives_of_two_gpus_show_their_nvlinks(
    model: str, bus: float, capacity: float, verdict: Verdict, tmp_path: Path
) -> None:
    """A slower one does not mean that there are none: the warning says "if bridged"."""
    document = imported(tmp_path, all_reduce(model, 1, 2, bus))
    link = next(link for link in document.machine.links if link.kind is LinkKind.NVLINK)
    assert link.capacity == pytest.approx(capacity * 1e9, rel=1e-3)
    check = judge(document)
    assert check.verdict is verdict
    assert verdict is Verdict.PASS or all("if bridged" in one.why for one in check.judgements)


@pytest.mark.parametrize(
    ("bus", "verdict"), [(31.4, Verdict.PASS), (20.0, Verdict.PASS), (12.0, Verdict.NOT_JUDGED)]
)
def test_two_desktop_cards_without_a_bridge_are_as_slow_as_pcie(
    bus: float, verdict: Verdict, tmp_path: Path
) -> None:
    """Through the memory of the host, they reach 12 GB/s, which says nothing of NVLinks."""
    document = imported(tmp_path, all_reduce(R3090, 1, 2, bus))
    assert not any(link.kind is LinkKind.NVLINK for link in document.machine.links)
    assert judge(document).verdict is verdict


@pytest.mark.parametrize(
    ("bus", "verdict"),
    [(20.0, Verdict.PASS), (5.0, Verdict.NOT_JUDGED), (40.0, Verdict.WARN)],
)
def test_collectives_over_pcie(bus: float, verdict: Verdict, tmp_path: Path) -> None:
    """Only a value that PCIe bounds says something: sockets and bridges may leave much less."""
    document = imported(tmp_path, all_reduce("NVIDIA L40S", 1, 4, bus))
    assert judge(document).verdict is verdict


@pytest.mark.parametrize(
    ("between", "verdict"), [(26.3, Verdict.PASS), (6.6, Verdict.NOT_JUDGED), (45.0, Verdict.IMPLAUSIBLE)]
)
def test_gpus_without_nvlink_copy_at_most_at_the_rate_of_pcie(
    between: float, verdict: Verdict, tmp_path: Path
) -> None:
    document = imported(tmp_path, p2p(["NVIDIA L40S"] * 2, [700.0, 700.0], between))
    assert judge(document).testcases["device_to_device_memcpy_write_ce"] is verdict
