"""Collectives between hosts: the NICs that a log names, those that the user gives, and what they allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_assumed import H100, all_reduce
from tests.features.imports.test_formats import imported
from wirespeed.cli.main import main
from wirespeed.data import gpu_sheet
from wirespeed.document import CollectiveInfo, Document, RankInfo
from wirespeed.features.imports.host_facts import NcclLines
from wirespeed.hardware.topology import LinkKind
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.published_network import RING, lines
from wirespeed.judging.verdict import Verdict
from wirespeed.results.imported_limits import UNKNOWN, between_hosts, with_network
from wirespeed.tables import BUSBW, Cell
from wirespeed.units import GIB, parse_nics

V100, H200, GB200 = "Tesla V100-PCIE-16GB", "NVIDIA H200", "NVIDIA GB200"


def info(host: str, text: str) -> str:
    return f"{host}:71:72 [3] NCCL INFO {text}\n"


def speeds(host: str, count: int, megabits: int) -> str:
    return "".join(
        info(
            host,
            f"NET/IB: [{i}] mlx5_{i}:uverbs{i}:1/IB provider=Mlx5 speed={megabits} context=0x7f ar=1",
        )
        for i in range(count)
    )


def using(host: str, names: list[str]) -> str:
    listed = " ".join(f"[{i}]{name}:1/RoCE" for i, name in enumerate(names))
    return info(host, f"NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.1<0>")


def logged(text: str, nccl: str) -> str:
    """A log of nccl-tests with lines of NCCL between the ranks and the table."""
    at = text.index("#  size")
    return text[:at] + nccl + text[at:]


def bus(document: Document) -> Cell:
    return next(table for table in document.testcases[0].tables if table.key == BUSBW).cells[0]


def network(document: Document) -> float | None:
    return next((x.capacity for x in document.machine.links if x.kind is LinkKind.NETWORK), None)


EFA = "NET/OFI Selected provider is efa, fabric is efa (found {} nics)"
LINES = {
    "speeds of two hosts": (H100, speeds("a", 8, 400_000) + speeds("b", 8, 400_000), 400.0),
    "lines of the other host are missing": (H100, speeds("a", 8, 400_000) + speeds("b", 2, 400_000), 400.0),
    "each process repeats them": (H100, speeds("a", 4, 200_000) * 8, 100.0),
    "only some are used": (
        H100, speeds("a", 10, 400_000) + using("a", ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]), 200.0,
    ),
    "excerpt without host": (H100, "NCCL INFO NET/IB: [0] mlx5_0:1/RoCE speed=100000\n", 12.5),
    "ports": (
        H100,
        info("a", "NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=100000 context=0x1")
        + info("a", "NET/IB: [1] mlx5_0:uverbs0:2/IB provider=Mlx5 speed=100000 context=0x1"), 25.0,
    ),
    "topology": (
        H100,
        "".join(info("a", f"+ NET[25.0] - NET/{i} (0/0/25.000000)") for i in (0, 1, 2, 3, 0, 1, 2, 3)), 100.0,
    ),
    "p5 of AWS": (
        H100,
        info("a", "NET/OFI Running on p5.48xlarge platform, topology") + info("a", EFA.format(32)), 400.0,
    ),
    "p4d with one NIC": (
        "NVIDIA A100-SXM4-40GB",
        info("a", "NET/OFI Running on p4d.24xlarge platform") + info("a", EFA.format(1)), 12.5,
    ),
    "p5en by its number of NICs": (H200, info("a", EFA.format(16)), 400.0),
    "p5e by its number of NICs": (H200, info("a", EFA.format(32)), 400.0),
    "p5e or p5en": (H200, info("a", EFA.format(4)), None),
    "unknown machine of AWS": (
        H100, info("a", "NET/OFI Running on g9.xlarge platform") + info("a", EFA.format(1)), None,
    ),
    "Azure": (H100, using("a", [f"mlx5_ib{i}" for i in range(8)]), 400.0),
    "only names": (H100, using("a", ["mlx5_0", "mlx5_1"]), None),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_nics_of_a_log(case: str) -> None:
    model, text, gigabytes = LINES[case]
    lines = NcclLines()
    assert all(lines.line(line) for line in text.splitlines())
    found = lines.found(model)
    assert found is not None and found.origin
    assert found.rate == (None if gigabytes is None else pytest.approx(gigabytes * 1e9))


@pytest.mark.parametrize(
    "text",
    [
        "", "# nThread 1 nGpus 8", info("a", "NET/IB : No device found."), info("a", "Using network Socket"),
        speeds("a", 8, 400_000) + info("a", "Using network Socket"),
        info("a", "NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=999999999999"),
        info("a", "NET/IB: [0] " + "m" * 10_000 + ":1/IB speed=1"),
        info("a", "NET/IB : Using " + "[0]:" * 9999),
    ],
)  # fmt: skip
def test_lines_that_name_no_nic(text: str) -> None:
    lines = NcclLines()
    for line in text.splitlines():
        assert lines.line(line) == ("NCCL INFO" in line)
    assert lines.found(H100) is None


def test_hosts_with_absurdly_many_nics_are_bounded() -> None:
    lines = NcclLines()
    for i in range(5000):
        lines.line(
            f"a:1:1 [0] NCCL INFO NET/IB: [0] mlx5_{i}:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x1"
        )
    found = lines.found(H100)
    assert found and found.rate and found.rate < 300 * 50e9


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (488.0, Verdict.PASS), (156.0, Verdict.PASS), (155.0, Verdict.WARN), (60.0, Verdict.WARN),
        (900.0, Verdict.WARN),
    ],
)  # fmt: skip
def test_collectives_between_hosts_are_judged_by_their_nics(
    busbw: float, verdict: Verdict, tmp_path: Path
) -> None:
    text = logged(all_reduce(H100, 2, 8, busbw), speeds("node0", 8, 400_000) + speeds("node1", 8, 400_000))
    document = imported(tmp_path, text)
    assert network(document) == 400e9 and document.imported[0].unknown == 0
    assert judge(document).verdict is verdict
    assert bus(document).peak == pytest.approx(750e9)  # 400 GB/s x 15/16 / (1/2)


def test_without_rates_of_nics_nothing_is_judged_until_they_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, run = tmp_path / "log", tmp_path / "run.json"
    log.write_text(logged(all_reduce(H100, 2, 8, 488.0), using("node0", ["mlx5_0", "mlx5_1"])))
    document = wirespeed.load_log(log)
    assert judge(document).verdict is Verdict.NOT_JUDGED and UNKNOWN in document.warnings
    assert any("names 2 NICs" in note for note in document.machine.notes)
    given = wirespeed.load_log(log, nics="8x400G")
    assert judge(given).verdict is Verdict.PASS and UNKNOWN not in given.warnings
    assert main(["import", str(log), "-o", str(run)]) == 0
    capsys.readouterr()
    for options, code in (([], 4), (["--nics", "8x400G"], 0), (["--nics", "1x25G"], 3)):
        assert main(["check", "--from", str(run), *options]) == code
        assert ("give the NICs of each host (--nics, such as 8x400G)" in capsys.readouterr().out) == (
            not options
        )
        assert main(["check", "--from", str(run), str(run), *options]) == code
        capsys.readouterr()
    assert main(["import", str(log), "--nics", "8x400G", "-o", str(tmp_path / "given.json")]) == 0
    assert main(["check", "--from", str(tmp_path / "given.json")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "x", "--nics", "8x"], "write it like 8x400G"),
        (["check", "--from", "x", "--nics", "0x400G"], "write it like 8x400G"),
        (["check", "--nics", "8x400G"], "--nics is for imported logs: give their files"),
    ],
)
def test_wrong_nics_are_an_error_of_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2 and message in capsys.readouterr().err


def test_a_measured_run_has_its_own_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.json"
    assert main(["run", "-t", "device_local_copy", "--machine", "simulated:hgx-h200-2", "--samples", "1",
                 "--copies", "1", "-q", "-o", str(run)]) == 0  # fmt: skip
    assert main(["check", "--from", str(run), "--allow-simulated", "--nics", "8x400G"]) == 2
    assert "--nics is for imported logs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("8x400G", 400.0), ("1x25g", 3.125), ("2 x 200 Gb/s", 50.0), ("16X100Gbps", 200.0), ("400 GB/s", 400.0),
     ("3200 Gb/s", 400.0), ("4x12.5G", 6.25)],
)  # fmt: skip
def test_rates_of_nics(text: str, gigabytes: float) -> None:
    assert parse_nics(text).rate == pytest.approx(gigabytes * 1e9)


@pytest.mark.parametrize(
    "text", ["", "8", "8x", "x400G", "0x400G", "8x0G", "-8x400G", "8x400", "8x400GB", "9999x400G"]
)
def test_what_is_no_rate_of_nics(text: str) -> None:
    with pytest.raises(wirespeed.UsageError, match="8x400G"):
        parse_nics(text)


def ranks(hosts: int, each: int) -> tuple[RankInfo, ...]:
    return tuple(RankInfo(i, 0, i, f"n{i // each}", i % each, "", H100) for i in range(hosts * each))


@pytest.mark.parametrize(
    ("operation", "hosts", "limit", "peak"),
    [
        ("all_reduce", 2, 187.5, 187.5), ("all_reduce", 16, 100 * 127 / 128 / (15 / 16), 100 * 2 * 127 / 128),
        ("all_gather", 2, 187.5, None), ("reduce_scatter", 4, 100 * 31 / 32 / (3 / 4), None),
        ("alltoall", 2, 100 * 15 / 64, None), ("broadcast", 2, 100.0, None), ("reduce", 2, 100.0, None),
    ],
)  # fmt: skip
def test_what_the_network_allows(operation: str, hosts: int, limit: float, peak: float | None) -> None:
    machine = with_network(
        wirespeed.load_log(PUBLISHED / "nvbandwidth-h100-azure.txt").machine, 100e9, "assumed"
    )
    run = CollectiveInfo(operation, "float", hosts * 8)
    found = between_hosts(machine, ranks(hosts, 8), run, 64 * GIB)
    assert found and found.limit == pytest.approx(limit * 1e9) and found.expected
    assert found.peak == (None if peak is None else pytest.approx(peak * 1e9))
    small = between_hosts(machine, ranks(hosts, 8), run, GIB // 2)
    assert small and small.limit == found.limit and small.expected is None
    assert between_hosts(machine, (), run, GIB) == between_hosts(machine, ranks(hosts, 8), run, GIB)


PUBLISHED = Path(__file__).parents[2] / "data/published"


@pytest.mark.parametrize(
    "operation", ["sendrecv", "gather", "scatter", "hypercube", "alltoallv", "unheard_of"]
)
def test_operations_whose_share_of_the_network_is_unknown(operation: str) -> None:
    machine = with_network(
        wirespeed.load_log(PUBLISHED / "nvbandwidth-h100-azure.txt").machine, 100e9, "assumed"
    )
    assert between_hosts(machine, ranks(2, 8), CollectiveInfo(operation, "float", 16), 8 * GIB) is None


def test_hosts_that_are_not_alike_are_not_judged() -> None:
    machine = with_network(
        wirespeed.load_log(PUBLISHED / "nvbandwidth-h100-azure.txt").machine, 100e9, "assumed"
    )
    for unlike in (ranks(1, 16), (*ranks(2, 8)[:15], RankInfo(15, 0, 15, "n0", 8, "", H100)), ranks(2, 4)):
        assert between_hosts(machine, unlike, CollectiveInfo("all_reduce", "float", 16), 8 * GIB) is None


def test_one_gpu_of_each_host_is_limited_by_its_pcie(tmp_path: Path) -> None:
    document = imported(tmp_path, logged(all_reduce(H100, 2, 1, 49.0), speeds("node0", 4, 400_000)))
    limit = bus(document).limit
    assert limit and limit < 64e9 < 200e9 and judge(document).verdict is Verdict.PASS


def test_gpus_that_nvlink_may_connect_over_hosts_are_not_limited_by_nics(tmp_path: Path) -> None:
    document = imported(tmp_path, logged(all_reduce(GB200, 2, 4, 800.0), speeds("node0", 4, 400_000)))
    assert judge(document).verdict is Verdict.NOT_JUDGED
    assert any("NVLink may connect all hosts" in note for note in document.machine.notes)
    assert any("NVLink may connect all hosts" in warning for warning in document.warnings)


@pytest.mark.parametrize(("hosts", "is_domain"), [(64, True), (65, False), (256, False)])
def test_more_gpus_than_nvlink_connects_are_limited_by_nics(
    hosts: int, is_domain: bool, tmp_path: Path
) -> None:
    """No machine whose NVLinks connect hosts has more than 256 GPUs; to try larger ones took minutes."""
    text = logged(all_reduce("NVIDIA GH200 120GB", hosts, 4, 90.0), speeds("node0", 4, 200_000))
    document = imported(tmp_path, text)
    assert any("NVLink may connect" in note for note in document.machine.notes) is is_domain
    assert network(document) == (None if is_domain else 100e9)
    limit = bus(document).limit
    assert limit is None or limit > 400e9 if is_domain else limit == pytest.approx(100e9, rel=0.02)


def test_ranks_of_a_host_with_one_bus_number_have_gpus_of_their_own(tmp_path: Path) -> None:
    """The four GPUs of a GH200 node are bus 1 of four PCI domains, and nccl-tests prints the bus only."""
    text = all_reduce("NVIDIA GH200 120GB", 8, 4, 90.0)
    document = imported(tmp_path, re.sub(r"device +\d+ \[0000:..:00\]", "device  0 [0x01]", text))
    assert [gpu.name for gpu in document.machine.gpus] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert {gpu.bus_id for gpu in document.machine.gpus} == {""}


def test_the_number_of_ranks_follows_from_the_bandwidths(tmp_path: Path) -> None:
    """Excerpts lack the lines of ranks: bus over algorithm bandwidth of an all-reduce of 16 is 15/8."""
    text = "".join(
        line + "\n" for line in all_reduce(H100, 2, 8, 375.0).splitlines() if "Rank" not in line
    ).replace("214.29", "200.00")  # fmt: skip
    (tmp_path / "log").write_text(text)
    document = wirespeed.load_log(tmp_path / "log", "hgx-h100-8", "8x400G")
    assert document.testcases[0].collective and document.testcases[0].collective.ranks == 16
    assert bus(document).peak == pytest.approx(750e9) and judge(document).verdict is Verdict.PASS


def test_hosts_whose_nvlinks_connect_only_some_gpus(tmp_path: Path) -> None:
    """NVLink of unknown capacity within a host is no limit; what PCIe between the pairs leaves is unknown."""
    nics = speeds("node0", 4, 400_000)
    fast = imported(
        tmp_path, logged(all_reduce("Tesla V100-SXM2-32GB", 2, 4, 40.0), speeds("node0", 4, 100_000))
    )
    assert judge(fast).verdict is Verdict.PASS and bus(fast).limit == pytest.approx(50e9 * 7 / 8 * 2)
    pairs = imported(tmp_path, logged(all_reduce("NVIDIA H200 NVL", 2, 8, 35.0), nics))
    assert judge(pairs).verdict is Verdict.NOT_JUDGED
    pairs = imported(tmp_path, logged(all_reduce("NVIDIA H200 NVL", 2, 8, 200.0), nics))
    assert judge(pairs).verdict is Verdict.PASS
    bare = imported(tmp_path, logged(all_reduce("NVIDIA L40S", 2, 8, 15.0), nics))
    assert judge(bare).verdict is Verdict.PASS and (bus(bare).limit or 0) < 32e9


def test_nics_given_for_gpus_that_nvlink_may_connect(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(all_reduce(GB200, 2, 4, 800.0))
    document = wirespeed.load_log(tmp_path / "log", nics="4x400G")
    assert judge(document).verdict is Verdict.NOT_JUDGED
    assert any("NVLink may connect all hosts" in warning for warning in document.warnings)


def large(busbw: float, operation: str = "all_reduce", model: str = H100, size: int = 4 * GIB) -> str:
    """A log of an operation of large arrays on two hosts with eight GPUs each."""
    text = all_reduce(model, 2, 8, busbw).replace("1073741824     268435456", f"{size}     {size // 4}")
    if operation == "all_reduce":
        return text
    half = f"{busbw * 8 / 15:.2f}  {busbw:.2f}"  # of an all-reduce
    factor = 16 / 15 if operation == "all_gather" else 1.0
    text = text.replace(half, f"{busbw * factor:.2f}  {busbw:.2f}")
    return text.replace("all_reduce_perf", f"{operation}_perf").replace("float     sum", "float    none")


@pytest.mark.parametrize(
    ("text", "nics", "verdict"),
    [
        # Rings: 0.869 of what NICs and NVLink allow is the slowest published one, 6% less are usual.
        (large(163.5, "all_gather"), "8x200G", Verdict.PASS),
        (large(163.2, "all_gather"), "8x200G", Verdict.WARN),
        (large(130.9, "all_gather"), "8x200G", Verdict.WARN),
        (large(130.6, "all_gather"), "8x200G", Verdict.FAIL),
        (large(150.0, "all_gather", size=2 * GIB), "8x200G", Verdict.WARN),  # smaller arrays are not compared
        (large(150.0, "all_gather", size=2 * GIB - 2**20), "8x200G", Verdict.PASS),
        (large(301.0), "8x400G", Verdict.PASS), (large(300.0), "8x400G", Verdict.WARN),  # NVLink is the limit
        # Where NICs limit switches that reduce, 0.859; less than half of that may be a ring.
        (large(302.9), "8x200G", Verdict.PASS), (large(302.5), "8x200G", Verdict.WARN),
        (large(131.0), "8x200G", Verdict.WARN), (large(130.6), "8x200G", Verdict.FAIL),
        (logged(large(242.5), info("node0", "Connected NVLS tree")), "8x200G", Verdict.WARN),
        (logged(large(242.0), info("node0", "Connected NVLS tree")), "8x200G", Verdict.FAIL),
        (logged(large(163.5), info("node0", "NCCL_ALGO set by environment to Ring")), "8x200G", Verdict.PASS),
        # One NIC carries what crosses between hosts in a ring of messages: 0.94 of its rate.
        (large(22.2, "sendrecv"), "8x200G", Verdict.PASS), (large(22.0, "sendrecv"), "8x200G", Verdict.WARN),
        (large(17.7, "sendrecv"), "8x200G", Verdict.WARN), (large(17.6, "sendrecv"), "8x200G", Verdict.FAIL),
        (large(22.2, "sendrecv"), "200 GB/s", Verdict.NOT_JUDGED),  # the number of NICs is not known
        (large(50.0, "sendrecv"), "8x200G", Verdict.PASS),  # over two of them
        (large(17.6, "sendrecv", size=2**27), "8x200G", Verdict.FAIL),
        (large(17.6, "sendrecv", size=2**26), "8x200G", Verdict.NOT_JUDGED),
        (large(17.6, "sendrecv", model="NVIDIA L40S"), "8x200G", Verdict.NOT_JUDGED),  # over PCIe
    ],
)  # fmt: skip
def test_what_others_reach_over_such_nics(text: str, nics: str, verdict: Verdict, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(text)
    assert judge(wirespeed.load_log(tmp_path / "log.txt", nics=nics)).verdict is verdict


@pytest.mark.parametrize(
    ("text", "nics", "says"),
    [
        (large(189.0, "all_gather"), "8x200G", "as fast as others over such NICs"),
        (large(330.0), "8x200G", "as fast as others over such NICs"),
        (large(470.0), "8x400G", "within what the NICs allow; that is an upper bound, no reference is known"),
    ],
)
def test_what_a_value_was_compared_with_is_said(text: str, nics: str, says: str, tmp_path: Path) -> None:
    """Two hosts with 8 x 400 Gb/s are faster than a ring, as fast as no other source is known to be."""
    (tmp_path / "log.txt").write_text(text)
    assert says in Judged(wirespeed.load_log(tmp_path / "log.txt", nics=nics)).overview.sentence


def test_a_log_that_names_its_nics_is_compared_with_others(tmp_path: Path) -> None:
    nccl = speeds("node0", 8, 200_000) + speeds("node1", 8, 200_000)
    (judged, _) = judge(imported(tmp_path, logged(large(17.6, "sendrecv"), nccl))).judgements
    assert judged.verdict is Verdict.FAIL and judged.why.endswith("compared with others over such NICs")


@pytest.mark.parametrize(("hosts", "alike"), [(1, 0), (2, 1), (16, 1), (17, 0)])
def test_hosts_that_published_rings_had(hosts: int, alike: int) -> None:
    """Larger networks have other bottlenecks; switches reduce for two hosts, and those of A100s do not."""
    known, before = gpu_sheet(H100), gpu_sheet("NVIDIA A100-SXM4-80GB")
    assert known and before
    sheet, older = known[1], before[1]
    assert len(list(lines(sheet, 400e9, hosts, "all_gather"))) == alike
    assert not list(lines(sheet, 400e9, hosts, "alltoall"))
    both = [line.how for line in lines(sheet, 200e9, hosts, "all_reduce")]
    assert both == [RING, "9.0"][: 2 if hosts == 2 else alike]
    assert len(list(lines(older, 50e9, hosts, "all_reduce"))) == alike
