"""The machine of a log is assumed: what is assumed fails nothing unless a value confirms it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.features.imports.test_failed import BABELSTREAM
from tests.features.imports.test_formats import STREAM, imported
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.topology import Link, LinkKind
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.verdict import Verdict

B300, H100, A100 = "NVIDIA B300 SXM6 AC", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def line(values: list[float]) -> str:
    return "".join(f"{value:10.2f}" for value in values)


def to_gpus(values: list[float], model: str) -> str:
    """An excerpt of nvbandwidth: copies from the host to GPUs of a model, in GB/s."""
    devices = "".join(f"Device {i}: {model}\n" for i in range(len(values)))
    return (
        f"nvbandwidth Version: v0.10.0\n{devices}\nRunning host_to_device_memcpy_ce.\n"
        f"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n  "
        f"{''.join(f'{i:10d}' for i in range(len(values)))}\n 0{line(values)}\n\n"
    )


def between(rate: float, slow: float, count: int) -> str:
    """An excerpt of nvbandwidth: copies between H100s, of which the first is slow."""
    devices = "".join(f"Device {i}: {H100}\n" for i in range(count))
    rows = "".join(
        f" {i}"
        + "".join(f"{'N/A' if i == j else slow if not i * j else rate:>10}" for j in range(count))
        + "\n"
        for i in range(count)
    )
    return (
        f"nvbandwidth Version: v0.10.0\n{devices}\nRunning device_to_device_memcpy_read_ce.\n"
        f"memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n  "
        f"{''.join(f'{i:10d}' for i in range(count))}\n{rows}\n"
    )


def all_reduce(model: str, hosts: int, gpus: int, bus: float) -> str:
    """A log of nccl-tests: all-reduce of 1 GiB over GPUs of some hosts, at a bus bandwidth in GB/s."""
    ranks = "".join(
        f"#  Rank {r:2d} Group  0 Pid {r + 9} on node{r // gpus} device {r % gpus:2d} "
        f"[0000:{r:02x}:00] {model}\n"
        for r in range(hosts * gpus)
    )
    count = hosts * gpus
    half = f"  9000.0  {bus * count / 2 / max(1, count - 1):.2f}  {bus:.2f}   0"
    return (
        "# nccl-tests version 2.17.6\n# Collective test starting: all_reduce_perf\n"
        "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) iters: 20\n"
        f"{ranks}#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        f"  1073741824     268435456     float     sum      -1{half}{half}\n"
        f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {bus}\n"
    )


def host_link(document: Document) -> Link:
    return next(x for x in document.machine.links if (x.source, x.destination) == ("numa0", "gpu0"))


@pytest.mark.parametrize(
    ("value", "model", "name", "verdict"),
    [
        (55.6, B300, "PCIe 5 x16", "pass"), (27.0, B300, "PCIe 4 x16 or PCIe 5 x8", "fail"),
        (26.1, H100, "PCIe 4 x16 or PCIe 5 x8", "fail"), (13.2, A100, "PCIe 3 x16 or PCIe 4 x8", "fail"),
        (6.6, A100, "PCIe 3 x8 or PCIe 4 x4", "fail"), (3.3, A100, "PCIe 3 x4", "fail"),
        (100.0, B300, "", "pass"), (55.4, H100, "", "pass"),
        (13.2, "NVIDIA L40S", "PCIe 3 x16 or PCIe 4 x8", "warn"),
    ],
)  # fmt: skip
def test_slow_values_define_no_limit(
    value: float, model: str, name: str, verdict: str, tmp_path: Path
) -> None:
    """The slot of a card may be older or narrower; GPUs of PCIe 6 run in hosts of PCIe 5."""
    document = imported(tmp_path, to_gpus([value] * 7, model))
    link = host_link(document)
    assert link.assumed and "in place of" not in link.origin
    assert judge(document).verdict == verdict
    copies = f"copies at most at {value} GB/s to or from the host, which"
    explained = any(copies in warning for warning in document.warnings)
    assert explained == bool(name)
    assert not name or any(f"which {name} explains" in warning for warning in document.warnings)


def test_a_gpu_that_is_slower_than_the_others_fails(tmp_path: Path) -> None:
    check = judge(imported(tmp_path, to_gpus([55.6] * 6 + [27.1], B300)))
    assert [j.key.column for j in check.judgements if j.verdict is Verdict.FAIL] == ["gpu6"]


@pytest.mark.parametrize(
    ("value", "model", "verdict"),
    [(34.0, H100, Verdict.FAIL), (2.0, H100, Verdict.FAIL), (70.0, H100, Verdict.WARN),
     (17.0, "NVIDIA L40S", Verdict.WARN), (2.0, "NVIDIA L40S", Verdict.WARN)],
)  # fmt: skip
def test_no_standard_rate_explains_it(value: float, model: str, verdict: Verdict, tmp_path: Path) -> None:
    """The name of a module says what its slot is; that of a card does not, however slow it is."""
    check = judge(imported(tmp_path, to_gpus([value] * 4, model)))
    assert {j.verdict for j in check.judgements} == {verdict} and check.verdict is verdict
    if verdict is Verdict.WARN:
        assert all("assumed: PCIe" in j.why for j in check.judgements)


def test_a_given_machine_is_assumed_too(tmp_path: Path) -> None:
    check = judge(imported(tmp_path, to_gpus([20.0] * 8, H100), "simulated:dgx-a100-8"))
    assert check.verdict is not Verdict.FAIL
    check = judge(imported(tmp_path, to_gpus([26.0] * 7 + [12.0], H100), "simulated:dgx-a100-8"))
    assert check.verdict is Verdict.FAIL


def test_nvlinks_of_all_gpus(tmp_path: Path) -> None:
    """No module has six of its eighteen links because it is slow."""
    document = imported(tmp_path, between(132.0, 132.0, 8))
    link = next(x for x in document.machine.links if x.kind is LinkKind.NVLINK)
    assert "18 links x 26.562 GB/s" in link.origin and "from the values" not in link.origin
    assert judge(document).verdict is judge(imported(tmp_path, between(250.0, 250.0, 8))).verdict
    assert judge(document).verdict is Verdict.FAIL
    slow = judge(imported(tmp_path, between(390.0, 132.0, 8)))
    assert slow.verdict is Verdict.FAIL
    assert any("gpu0" in suspect.ends for culprit in slow.culprits for suspect in culprit.suspects)


@pytest.mark.parametrize(
    ("rate", "settings", "verdict"),
    [
        (478.0, "", Verdict.PASS), (452.0, "", Verdict.PASS), (436.0, "", Verdict.WARN),
        (360.0, "", Verdict.WARN), (250.0, "", Verdict.FAIL), (100.0, "", Verdict.FAIL),
        (360.0, "NCCL_NVLS_ENABLE=0 ", Verdict.PASS), (290.0, "NCCL_NVLS_ENABLE=0 ", Verdict.WARN),
        (230.0, "NCCL_NVLS_ENABLE=0 ", Verdict.FAIL),
    ],
)  # fmt: skip
def test_all_reduce_of_eight_by_the_switches_and_by_rings(
    rate: float, settings: str, verdict: Verdict, tmp_path: Path
) -> None:
    command = f"$ {settings}./build/all_reduce_perf -b 1G -e 1G -g 8\n" if settings else ""
    check = judge(imported(tmp_path, command + all_reduce(H100, 1, 8, rate)))
    assert check.verdict is verdict


def test_memory_of_a_gpu(tmp_path: Path) -> None:
    slow = (
        BABELSTREAM.replace("4010000", "1010000").replace("4000000", "1000000").replace("4150000", "1150000")
    )
    assert judge(imported(tmp_path, slow)).verdict is Verdict.FAIL
    one = judge(imported(tmp_path, BABELSTREAM.replace("4010000", "1010000")))
    assert one.testcases["device_stream_copy"] is Verdict.FAIL


def test_a_capacity_that_was_read_fails(tmp_path: Path) -> None:
    document = imported(tmp_path, to_gpus([34.0] * 4, H100))
    links = tuple(_read(link) for link in document.machine.links)
    machine = wirespeed.Machine(**(vars(document.machine) | {"links": links}))
    assert judge(replace(document, machine=machine)).verdict is Verdict.FAIL


def _read(link: Link) -> Link:
    return Link(link.source, link.destination, link.kind, link.capacity, link.origin)


def test_gpus_with_nvlinks_are_not_limited_by_pcie(tmp_path: Path) -> None:
    """How the NVLinks of four V100s connect them depends on the machine, so that no limit is known."""
    document = imported(tmp_path, all_reduce("Tesla V100-SXM2-32GB", 1, 4, 70.0))
    assert document.machine.name == "v100-sxm2-4"
    assert {cell.limit for table in document.testcases[0].tables for cell in table.cells} == {None}
    assert judge(document).verdict is Verdict.NOT_JUDGED


def test_eight_v100_use_all_their_links(tmp_path: Path) -> None:
    document = imported(tmp_path, all_reduce("Tesla V100-SXM2-32GB", 1, 8, 135.0))
    links = [link for link in document.machine.links if link.kind is LinkKind.NVLINK]
    assert {link.capacity for link in links} == {150e9} and not any("nvswitch" in str(x) for x in links)
    assert judge(document).verdict is Verdict.PASS
    assert judge(imported(tmp_path, all_reduce("Tesla V100-SXM2-32GB", 1, 8, 30.0))).verdict is Verdict.WARN


def test_ranks_of_several_nodes(tmp_path: Path) -> None:
    text = all_reduce("NVIDIA GB300", 2, 4, 680.0)
    own = imported(tmp_path, text)
    assert (len(own.machine.gpus), len(own.ranks)) == (4, 8)
    assert judge(own).verdict is Verdict.NOT_JUDGED
    domain = imported(tmp_path, text, "gb300-8")
    assert len(domain.machine.gpus) == 8 and judge(domain).verdict is Verdict.PASS
    with pytest.raises(wirespeed.UsageError, match="has 4 GPUs, the machine gb300-6 has 6"):
        imported(tmp_path, text, "gb300-6")


def test_processes_of_nvbandwidth_name_gpus(tmp_path: Path) -> None:
    processes = "".join(
        f"Process {i} (node{i // 2}): device {i % 2}: HGX GB200 (0000000{i % 2}:01:00)\n" for i in range(4)
    )
    name = "multinode_device_to_device_memcpy_read_ce"
    text = f"nvbandwidth Version: v0.7\n{processes}\n" + between(798.0, 798.0, 4).partition("\n\n")[
        2
    ].replace("device_to_device_memcpy_read_ce", name)
    document = imported(tmp_path, text)
    assert [gpu.model for gpu in document.machine.gpus] == ["HGX GB200"] * 2
    assert document.machine.name == "gb200-2" and document.machine.host == "node0"
    assert [(rank.host, rank.device) for rank in document.ranks] == [
        ("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1),
    ]  # fmt: skip
    assert document.imported[0].unknown == 0


def test_host_memory_can_be_given_for_a_saved_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.json"
    (tmp_path / "log").write_text(STREAM)
    assert main(["import", str(tmp_path / "log"), "-o", str(run)]) == 0
    capsys.readouterr()
    for options, code, text in (
        ([], 4, "unknown capacity of host memory"), (["--host-memory", "6x4800"], 0, "of expected 184 GB/s"),
        (["--host-memory", "12x6400"], 1, "of expected 492 GB/s"),
    ):  # fmt: skip
        assert main(["check", "--from", str(run), *options]) == code
        assert text in capsys.readouterr().out


def test_a_cause_explains_a_curve_of_a_collective(tmp_path: Path) -> None:
    """Six values of three sizes that agree within 1 %: two of them have the size that a run would have."""
    rows = "\n".join(
        f"  {size}     {size // 4}     float     sum      -1   {size / rate / 1e3:.1f}  {rate}  {rate}      0"
        f"   {size / rate / 1e3:.1f}  {rate}  {rate}      0"
        for size, rate in ((2**30, 115.4), (2**31, 115.9), (2**32, 116.3))
    )
    log = tmp_path / "log.txt"
    log.write_text(f"""\
# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 4294967296 step: 2(factor) validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1000 on      node1 device  0 [0x01] NVIDIA H100 PCIe
#  Rank  1 Group  0 Pid   1000 on      node1 device  1 [0x21] NVIDIA H100 PCIe
#  size   count   type   redop   root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
{rows}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 115.887
#
""")  # fmt: skip
    document = wirespeed.load_log(log)
    diagnosis = wirespeed.diagnose(document)
    assert diagnosis.slow == 6 and diagnosis.unexplained == 0
    assert diagnosis.findings[0].cells == 6 and diagnosis.findings[0].others


@pytest.mark.parametrize(
    ("line", "rate", "verdict", "says"),
    [
        ("", 478.0, Verdict.PASS, "all_reduce: the NVLink switches reduce (NVLS): assumed"),
        ("", 360.0, Verdict.WARN, "as slow as without NVLS"),
        ("NVLS multicast support is available on dev 0", 478.0, Verdict.PASS, "as NCCL's lines say"),
        ("NVLS multicast support is available on dev 0", 340.0, Verdict.FAIL, "far slower than usual"),
        ("NVLS multicast support is not available on dev 0", 360.0, Verdict.WARN, "a ring, without NVLS"),
        ("NCCL_NVLS_ENABLE set by environment to 0.", 360.0, Verdict.PASS, "NCCL_NVLS_ENABLE=0 is set"),
    ],
)
def test_what_reduces_is_read_and_said(
    line: str, rate: float, verdict: Verdict, says: str, tmp_path: Path
) -> None:
    lines = f"node0:1:1 [0] NCCL INFO {line}\n" if line else ""
    judged = Judged(imported(tmp_path, lines + all_reduce(H100, 1, 8, rate)))
    assert judged.verdict is verdict
    text = " ".join(str(judged).split())
    assert says in text + " ".join(one.why for one in judged.check.judgements)
