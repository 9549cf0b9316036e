"""Logs of tools that operators have first, as people posted them, cut and without names of hosts.

Each text names its source, an issue, a pull request or a file of a public repository, as far as it is known.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Unit

INCOMPLETE = "the log may be incomplete"


def imported(tmp_path: Path, text: str, machine: str | None = None, nics: str | None = None) -> Document:
    path = tmp_path / "log.txt"
    path.write_text(text)
    return wirespeed.load_log(path, machine, nics)


def row(document: Document, name: str, key: str, label: str) -> dict[str, float | None]:
    """The values of one row of a table, by column, with ten digits."""
    (table,) = (t for r in document.testcases if r.name == name for t in r.tables if t.key == key)
    at = table.rows.labels.index(label)
    cells = [cell for cell in table.cells if cell.row == at]
    return {table.columns.labels[cell.column]: cell.value and digits(cell.value) for cell in cells}


def digits(value: float) -> float:
    """A value without the last digits, in which units may differ."""
    return float(f"{value:.10g}")


def doubts(document: Document) -> list[str]:
    return [warning for warning in document.warnings if INCOMPLETE in warning]


def verdict(document: Document) -> Verdict:
    return wirespeed.judge(document).verdict


def not_comparable(document: Document) -> int:
    return sum(
        len(table.values())
        for result in document.testcases
        if result.description.startswith("not comparable")
        for table in result.tables
    )


# bandwidthTest

#: https://github.com/mpicbg-scicomp/gearshifft/pull/82: the memory of the near socket, then of the far one.
SOCKETS = """$ numactl -m0 -N0 bandwidthTest
[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: Tesla P100-PCIE-16GB
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     12150.7

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     12890.6

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     443837.7


$ numactl -m1 -N1 bandwidthTest
CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: Tesla P100-PCIE-16GB
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     3783.4

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(MB/s)
   33554432                     2539.2
"""


def test_copies_of_bandwidth_test_to_the_far_socket_are_slow(tmp_path: Path) -> None:
    document = imported(tmp_path, SOCKETS)
    assert row(document, "host_to_device_memcpy_ce", "", "host") == {"gpu0": digits(12150.7 * 2**20)}
    assert row(document, "device_local_copy", "", "local") == {"gpu0": digits(443837.7 * 2**19)}
    assert row(document, "device_to_host_memcpy_ce_2", "", "host") == {"gpu0": digits(2539.2 * 2**20)}
    check = wirespeed.judge(document)
    assert check.testcases["host_to_device_memcpy_ce"] is Verdict.PASS
    assert check.testcases["device_to_host_memcpy_ce_2"] is Verdict.WARN  # the slot of a card
    assert doubts(document) and not_comparable(document) == 0


#: https://github.com/usadellab/Helixer/issues/22: one size of a range.
RANGE = """[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: GeForce RTX 2080 Ti
 Range Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   100000000\t\t\t13.1
"""


def test_a_range_of_bandwidth_test(tmp_path: Path) -> None:
    document = imported(tmp_path, RANGE)
    assert row(document, "host_to_device_memcpy_ce", "", "host") == {"gpu0": 13.1e9}
    assert any("lacks 'Result = PASS'" in warning for warning in doubts(document))
    assert not doubts(imported(tmp_path, RANGE + "\nResult = PASS\n"))
    assert verdict(imported(tmp_path, RANGE + "\nResult = FAIL\n")) is Verdict.FAIL
    for end in ("Result = ", "Result = P", "Result = PAS"):
        assert doubts(imported(tmp_path, f"{RANGE}\n{end}")) == doubts(imported(tmp_path, RANGE))
    more = RANGE.replace("100000000", "   50000000\t\t\t12.9\n   100000000")
    curve = row(imported(tmp_path, more), "bandwidthTest host to device, pinned over sizes", "", "rate")
    assert list(curve.values()) == [12.9e9, 13.1e9]
    cut = imported(tmp_path, more.replace("100000000\t\t\t13.1\n", "100000000"))
    assert row(cut, "host_to_device_memcpy_ce", "", "host") == {"gpu0": 12.9e9}
    assert any("is cut" in warning for warning in doubts(cut))


#: microsoft/superbenchmark, tests/benchmarks/micro_benchmarks: --mode=shmoo --csv. The last row, in MB/s, is
#: of an older version.
SHMOO = """[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: Tesla V100-PCIE-32GB
 Shmoo Mode

.................................................................................
bandwidthTest-H2D-Pinned, Bandwidth = 0.4 GB/s, Time = 0.00000 s, Size = 1000 bytes, NumDevsUsed = 1
bandwidthTest-H2D-Pinned, Bandwidth = 0.7 GB/s, Time = 0.00000 s, Size = 2000 bytes, NumDevsUsed = 1
bandwidthTest-H2D-Pinned, Bandwidth = 11659.1 MB/s, Time = 0.01098 s, Size = 134217728 bytes, NumDevsUsed = 1
Result = PASS
"""


@pytest.mark.parametrize(("second", "logs"), [(("Host to", "Device to"), 1), (("Host to",), 2)])
def test_runs_on_several_gpus_are_one_log_if_their_tables_are_the_same(
    tmp_path: Path, second: tuple[str, ...], logs: int
) -> None:
    """Else the table of the first GPU would look like one in which the second has no value."""

    def run(device: int, *directions: str) -> str:
        head, _, rest = RANGE.replace("Device 0", f"Device {device}").partition(" Host to")
        return head + "".join(f" {direction}{rest}\n" for direction in directions) + "Result = PASS\n\n"

    document = imported(tmp_path, run(0, "Host to", "Device to") + run(1, *second))
    assert len(document.imported) == logs
    rates = row(document, "host_to_device_memcpy_ce", "", "host")
    assert [rate for rate in rates.values() if rate] == [13.1e9] * (3 - logs)


def test_a_table_of_bandwidth_test_for_programs(tmp_path: Path) -> None:
    document = imported(tmp_path, SHMOO)
    assert row(document, "host_to_device_memcpy_ce", "", "host") == {"gpu0": digits(11659.1 * 2**20)}
    assert pytest.approx(digits(11659.1 * 2**20), rel=0.001) == 2**27 / 0.01098
    assert not doubts(document) and verdict(document) is Verdict.PASS
    each = "".join(
        f"[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device {i}: NVIDIA A100-SXM4-80GB\n"
        f"bandwidthTest-H2D-Pinned, Bandwidth = {rate} GB/s, Time = 0.00129 s, Size = 32000000 bytes, "
        "NumDevsUsed = 1\nResult = PASS\n"
        for i, rate in enumerate((24.7, 24.8, 24.6, 12.3))
    )
    check = wirespeed.judge(imported(tmp_path, each))
    assert [j.key.column for j in check.judgements if j.verdict is Verdict.FAIL] == ["gpu3"]
    assert len(check.judgements) == 4
    paged = imported(tmp_path, SHMOO.replace("-Pinned", "-Paged"))
    assert not_comparable(paged) == 4 and "bandwidthTest host to device, pageable" in [
        result.name for result in paged.testcases
    ]
    summed = imported(tmp_path, SHMOO.replace("Used = 1", "Used = 8"))
    assert any("the sum of 8 GPUs" in result.description for result in summed.testcases)


# nvidia-smi

#: https://github.com/NVIDIA/nccl/issues/1617
FOUR = """        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV6     NV6     NV6     PIX     SYS     6,14,22,30      3               N/A
GPU1    NV6      X      NV6     NV6     SYS     PIX     4,12,20,28      1               N/A
GPU2    NV6     NV6      X      NV6     SYS     SYS     7,15,23,31      7               N/A
GPU3    NV6     NV6     NV6      X      SYS     SYS     5,13,21,29      5               N/A
NIC0    PIX     SYS     SYS     SYS      X      SYS
NIC1    SYS     PIX     SYS     SYS     SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
#: https://github.com/NVIDIA/nccl-tests/issues/78: two of sixteen GPUs, in the layout of older drivers.
OLDER = """nvidia-smi topo -m
\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity
GPU0\t X \tNV6\tPIX\tPXB\t0-23,48-71
GPU1\tNV6\t X \tPIX\tPXB\t0-23,48-71
mlx5_0\tPIX\tPIX\t X \tPIX\t
"""


def facts(document: Document, name: str) -> dict[str, object]:
    return {fact.device: fact.value for fact in document.facts if fact.name == name}


def test_a_matrix_of_connections_is_facts(tmp_path: Path) -> None:
    document = imported(tmp_path, FOUR)
    assert facts(document, "active NVLinks") == dict.fromkeys(("gpu0", "gpu1", "gpu2", "gpu3"), 18.0)
    assert facts(document, "nearest NICs")["gpu1"] == "PIX NIC1"
    assert facts(document, "NUMA node of the GPU")["gpu2"] == "7"
    assert len(document.machine.gpus) == 4 and document.imported[0].unknown == 0
    assert verdict(document) is Verdict.NOT_JUDGED and not document.testcases
    older = imported(tmp_path, OLDER)
    assert facts(older, "active NVLinks") == {"gpu0": 6.0, "gpu1": 6.0}
    assert facts(older, "CPU affinity")["gpu1"] == "0-23,48-71" and not doubts(older)


def test_the_gpu_with_fewer_nvlinks_is_named(tmp_path: Path) -> None:
    odd = FOUR.replace("NV6", "NV12").replace(
        "GPU3    NV12     NV12     NV12 ", "GPU3    NV10     NV10     NV10 "
    )
    check = wirespeed.judge(imported(tmp_path, odd))
    assert check.verdict is Verdict.WARN and check.defects == ("NVLinks are down (gpu3)",)
    bridged = FOUR.replace("GPU2    NV6     NV6      X      NV6", "GPU2    SYS     SYS      X      SYS")
    assert "gpu2" in wirespeed.judge(imported(tmp_path, bridged)).defects[0]


def test_a_cut_matrix_keeps_its_complete_rows(tmp_path: Path) -> None:
    """https://github.com/NVIDIA/nccl/issues/1435 ends within the row of the last GPU."""
    document = imported(tmp_path, FOUR.partition("GPU3    NV6")[0] + "GPU3    NV6     NV6 ")
    assert len(facts(document, "active NVLinks")) == 3
    assert any("the row of GPU3 is cut" in warning for warning in doubts(document))


def links(gpu: int, count: int, inactive: tuple[int, ...] = ()) -> str:
    """Lines of ``nvidia-smi nvlink -s``, as in https://github.com/Azure/azhpc-diagnostics/issues/73."""
    lines = (f"         Link {i}: {'<inactive>' if i in inactive else '25.781 GB/s'}" for i in range(count))
    return "\n".join((f"GPU {gpu}: Tesla V100-SXM2-32GB (UUID: GPU-{gpu})", *lines, ""))


def test_inactive_links_of_one_gpu_of_several(tmp_path: Path) -> None:
    text = "nvidia-smi nvlink -s\n" + "".join(links(i, 6) for i in range(3)) + links(3, 6, (3, 5))
    document = imported(tmp_path, text)
    assert facts(document, "active NVLinks") == {"gpu0": 6.0, "gpu1": 6.0, "gpu2": 6.0, "gpu3": 4.0}
    assert facts(document, "line rate of each NVLink")["gpu0"] == "25.781 GB/s"
    check = wirespeed.judge(document)
    assert check.verdict is Verdict.WARN and check.defects == ("NVLinks are down (gpu3)",)
    assert [gpu.model for gpu in document.machine.gpus] == ["Tesla V100-SXM2-32GB"] * 4
    alike = imported(tmp_path, "".join(links(i, 6, (3, 5)) for i in range(2)))
    assert verdict(alike) is Verdict.NOT_JUDGED
    only = imported(tmp_path, "....\n" + links(3, 6, (3, 5)))
    assert facts(only, "inactive NVLinks") == {"gpu3": 2.0} and verdict(only) is Verdict.NOT_JUDGED
    none = "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)\n" + (
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    )
    assert facts(imported(tmp_path, none), "active NVLinks") == {"gpu0": 0.0}


def test_a_cut_list_of_links_is_no_defect(tmp_path: Path) -> None:
    text = links(0, 6) + links(1, 6)
    for kept in range(text.index("GPU 1"), len(text) - 8):
        document = imported(tmp_path, text[:kept] + "\n")
        assert verdict(document) is Verdict.NOT_JUDGED
        assert "gpu1" not in facts(document, "active NVLinks")


def test_facts_are_no_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, run = tmp_path / "topo.txt", tmp_path / "topo.json"
    log.write_text(FOUR)
    assert main(["import", str(log), "-o", str(run)]) == 4
    assert main(["check", "--from", str(run)]) == 4
    assert main(["doctor", str(run)]) == 4
    assert main(["report", str(run), "-o", str(tmp_path / "topo.html")]) == 0
    assert "PASS" not in capsys.readouterr().out


def test_facts_and_values_of_one_machine(tmp_path: Path) -> None:
    files = [tmp_path / "links.txt", tmp_path / "bandwidth.txt"]
    files[0].write_text(links(0, 6) + links(1, 6, (0,)))
    files[1].write_text(SHMOO.replace("V100-PCIE", "V100-SXM2"))
    document = wirespeed.load_log(files)
    assert len(document.machine.gpus) == 2 and wirespeed.judge(document).defects


#: https://github.com/NVIDIA/go-dcgm/issues/46: four of the GPUs of a host with V100s, in nvidia-smi's words.
MESH = """\t[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity[0m
GPU0\t X \tNV2\tNV1\tNV2\t0-19
GPU1\tNV2\t X \tNV2\tNV2\t0-19
GPU2\tNV1\tNV2\t X \tNV1\t0-19
GPU3\tNV2\tNV2\tNV1\t X \t0-19
"""


def test_links_to_gpus_that_are_not_shown_may_exist(tmp_path: Path) -> None:
    document = imported(tmp_path, MESH)
    assert facts(document, "NVLinks to the GPUs shown") == {"gpu0": 5, "gpu1": 6, "gpu2": 4, "gpu3": 5}
    assert verdict(document) is Verdict.NOT_JUDGED and not doubts(document)


def test_peer_access_below_the_matrix_changes_nothing(tmp_path: Path) -> None:
    access = "\n \tGPU0\tGPU1\tGPU2\tGPU3\n" + "".join(f" GPU{i}\tOK\tOK\tOK\tX\n" for i in range(4))
    assert imported(tmp_path, FOUR + access).facts == imported(tmp_path, FOUR).facts
    assert imported(tmp_path, FOUR + access).warnings == imported(tmp_path, FOUR).warnings
    lacking = access.replace("OK\tOK\tOK", "OK\tCNS\tGNS")
    says = "topo -p2p: the chipset does not support it for 2 pairs, the GPU does not support it for 2 pairs"
    for matrices in (lacking, lacking + lacking):  # of reads, and of writes
        assert any(says in warning for warning in imported(tmp_path, FOUR + matrices).warnings)


def test_two_hosts_in_one_file_are_no_machine(tmp_path: Path) -> None:
    again = imported(tmp_path, links(0, 6) + links(1, 6) + links(0, 6) + links(1, 6))
    assert not any("listed twice" in warning for warning in again.warnings)
    for other in (links(0, 6) + links(1, 6, (2,)), FOUR.replace("NV6", "NV4")):
        document = imported(tmp_path, FOUR + links(0, 6) + links(1, 6) + other)
        assert any("import each host's log" in warning for warning in document.warnings)


# perftest

HEAD = """---------------------------------------------------------------------------------------
                    {title} Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0108 PSN 0x63ad7d RKey 0x17eedf VAddr 0x007f760c947000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:255:255:05
---------------------------------------------------------------------------------------
"""
LINE = "---------------------------------------------------------------------------------------\n"
#: https://github.com/linux-rdma/perftest/issues/225: "My IB network card has a bandwidth of 100 Gbps". It
#: gives the average, from which the number of messages follows.
MIB_PER_S = (
    HEAD.format(title="RDMA_Write BW")
    + " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    + "Conflicting CPU frequency values detected: 2400.000000 != 1873.463000. CPU Frequency is not max.\n"
    + " 65536      664644           0.00               11728.47\t\t   0.187656\n"
    + LINE
)
#: https://github.com/openucx/ucx/issues/8852, which lost its rules and one hash.
WITHOUT_RULES = """[root@cn3 ~]#ib_read_bw  cn2  -a -F -d mlx5_1
                    RDMA_Read BW Test
 Dual-port       : OFF          Device         : mlx5_1
 Number of qps   : 1            Transport type : IB
 Mtu             : 4096[B]
 Link type       : IB
 #bytes     iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          1000             4.86               4.67               2.450225
 64         1000             155.40             155.39             2.545853
 128        1000             310.13             310.05             2.539960
"""
#: https://github.com/linux-rdma/perftest/issues/273, of small messages.
POST_LIST = (
    HEAD.format(title="RDMA_Write Post List BW")
    + " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    + " 8          224958464        0.00               0.48   \t\t   7.498617\n"
    + LINE
)
#: Documentation of spidernet-io/spiderpool on RoCE: ib_read_lat.
LATENCY = (
    HEAD.format(title="RDMA_Read Latency")
    + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    + "   99% percentile[usec]   99.9% percentile[usec]\n"
    + " 2       1000          6.88           16.81        7.04              7.06         0.31"
    + "      7.38    16.81\n"
    + LINE
)
#: https://github.com/linux-rdma/perftest/issues/65, with its stars.
BOLD = """#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
1024       1000             0.00               **5544.28**\t\t   5.677340

#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1024       1000             0.00               **920.13** \t\t   0.942218
"""


def test_rates_of_rdma(tmp_path: Path) -> None:
    document = imported(tmp_path, MIB_PER_S)
    assert row(document, "perftest RDMA_Write BW", "one-nic", "average") == {
        "64 KiB": digits(11728.47 * 2**20)
    }
    assert row(document, "perftest RDMA_Write BW", "rate", "messages") == {"64 KiB": 187656.0}
    assert any(
        "device mlx5_0, queue pairs: 1, RC, MTU 4096, link layer Ethernet" in w for w in document.warnings
    )
    assert document.imported[0].unknown == 0 and verdict(document) is Verdict.NOT_JUDGED
    small = imported(tmp_path, POST_LIST)
    assert row(small, "perftest RDMA_Write Post List BW", "one-nic", "average") == {"8 B": 0.06e9}
    plain = imported(tmp_path, WITHOUT_RULES)
    rates = row(plain, "perftest RDMA_Read BW", "one-nic", "peak")
    assert list(rates.values()) == [digits(rate * 2**20) for rate in (4.86, 155.4, 310.13)]
    two = imported(tmp_path, BOLD)
    assert pytest.approx(5544.28 * 2**20, rel=1e-5) == 5.677340e6 * 1024  # so that MB/sec are MiB/s
    assert row(two, "perftest", "one-nic", "average") == {"1 KiB": digits(5544.28 * 2**20)}
    assert row(two, "perftest_2", "one-nic", "average") == {"1 KiB": digits(920.13 * 2**20)}


@pytest.mark.parametrize(
    ("nics", "expected"),
    [
        ("1x100G", Verdict.PASS),
        ("8x100G", Verdict.PASS),
        ("1x200G", Verdict.FAIL),
        ("100 Gb/s", Verdict.NOT_JUDGED),
    ],
)
def test_the_line_rate_of_a_nic_judges_rdma(tmp_path: Path, nics: str, expected: Verdict) -> None:
    """One NIC carries the messages, whatever the host has; of a rate only, their number is unknown."""
    assert verdict(imported(tmp_path, MIB_PER_S, nics=nics)) is expected
    (tmp_path / "run.json").unlink(missing_ok=True)
    log = str(tmp_path / "log.txt")
    assert main(["import", log, "-o", str(tmp_path / "run.json")]) == 0
    code = main(["check", "--from", str(tmp_path / "run.json"), "--nics", nics])
    assert code == {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.NOT_JUDGED: 4}[expected]


def test_both_directions_may_reach_twice_the_line_rate(tmp_path: Path) -> None:
    both = MIB_PER_S.replace("RDMA_Write BW", "RDMA_Write Bidirectional BW").replace("11728.47", "23100.00")
    assert verdict(imported(tmp_path, both, nics="1x100G")) is Verdict.PASS
    one = imported(tmp_path, MIB_PER_S.replace("11728.47", "23100.00"), nics="1x100G")
    assert verdict(one) is not Verdict.PASS  # more than the line rate
    small = imported(tmp_path, POST_LIST, nics="1x100G")
    assert verdict(small) is Verdict.NOT_JUDGED  # small messages are not limited by the line rate


def test_the_slowest_of_repeated_rows_counts(tmp_path: Path) -> None:
    """With ``--run_infinitely``, a row follows every few seconds."""
    rows = MIB_PER_S.splitlines(keepends=True)
    at = next(i for i, line in enumerate(rows) if "11728.47" in line)
    slow = rows[at].replace("11728.47", " 5728.47")
    for repeated in ([rows[at], slow, rows[at]], [slow, rows[at]]):
        document = imported(tmp_path, "".join([*rows[:at], *repeated, *rows[at + 1 :]]), nics="1x100G")
        assert row(document, "perftest RDMA_Write BW", "one-nic", "average") == {
            "64 KiB": digits(5728.47 * 2**20)
        }
        assert verdict(document) is Verdict.FAIL


def test_latencies_of_rdma(tmp_path: Path) -> None:
    document = imported(tmp_path, LATENCY)
    name = "perftest RDMA_Read Latency"
    assert row(document, name, "latency", "typical") == {"2 B": pytest.approx(7.04e-6)}
    assert row(document, name, "latency", "99.9%") == {"2 B": pytest.approx(16.81e-6)}
    assert not_comparable(document) == 7
    duration = LATENCY.replace(
        "t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
        "   99% percentile[usec]   99.9% percentile[usec]",
        "t_avg[usec]    tps average",
    )
    duration = duration.replace(
        "6.88           16.81        7.04              7.06         0.31      7.38    16.81",
        "7.06      70824.36",
    )
    timed = imported(tmp_path, duration)
    assert row(timed, name, "rate", "transactions") == {"2 B": 70824.36}


def test_what_is_wrong_with_a_log_of_rdma(tmp_path: Path) -> None:
    refused = imported(tmp_path, HEAD.format(title="Send BW") + " Unable to init the socket connection\n")
    assert verdict(refused) is Verdict.FAIL
    failed = imported(tmp_path, MIB_PER_S + " Completion with error at client\n Failed status 12: wr_id 0\n")
    assert verdict(failed) is Verdict.FAIL and row(failed, "perftest RDMA_Write BW", "one-nic", "average")
    cut = imported(tmp_path, MIB_PER_S + MIB_PER_S.partition("11728")[0] + "\n")
    assert len(cut.imported) == 1 or any("is cut" in warning for warning in doubts(cut))
    negative = imported(tmp_path, MIB_PER_S.replace("11728.47", "-11728.47"))  # issue 82 of perftest
    assert any("below 0" in warning for warning in negative.warnings)


# Intel MPI Benchmarks

#: https://github.com/openhpc/ohpc/issues/207: the rate follows from size and time in MiB/s.
PING_PONG = """#---------------------------------------------------
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         1.59         0.00
            1         1000         1.77         0.54
         1024         1000         2.61       373.77
       262144          160        48.82      5121.09
"""
#: https://github.com/intel/mpi-benchmarks/issues/37: in MB/s, every byte twice, with a remark behind a row.
SEND_RECEIVE = """Sendrecv:
#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec] Mbytes/sec
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
262144 160 30.48 33.48 32.24 15660.37
524288 80 46.49 59.52 54.79 17616.61
1048576 40 164.35 258.68 217.49 8107.16 <- drops from here
2097152 20 824.89 936.35 893.57 4479.40
"""
#: Two groups in one table, as ``src_c/IMB_output.c`` of intel/mpi-benchmarks prints them with ``-multi 0``.
GROUPS = """#---------------------------------------------------
# Benchmarking Multi-PingPong
# ( 2 groups of 2 processes each running simultaneous )
#---------------------------------------------------
    Group     #bytes #repetitions      t[usec]   Mbytes/sec
        0          0         1000         0.35         0.00
        1          0         1000         0.45         0.00
        0       1024         1000         0.50      2048.00
        1       1024         1000         0.64      1600.00
"""
#: Azure/azurehpc, apps/imb-mpi/readme.md: an Allreduce of 1408 processes, below the heading of all versions.
ALLREDUCE = """#----------------------------------------------------------------
#    Intel(R) MPI Benchmarks 2019 Update 6, MPI-1 part
#----------------------------------------------------------------
# Date                  : Mon Nov 20 19:56:00 2023
# List of Benchmarks to run:

# Allreduce

#----------------------------------------------------------------
# Benchmarking Allreduce
# #processes = 1408
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0        10000         0.13         0.41         0.16
            8        10000        24.06        30.77        27.94
           16        10000        26.13        29.28        27.28


# All processes entering MPI_Finalize
"""


def test_ping_pong_is_the_latency_of_messages(tmp_path: Path) -> None:
    document = imported(tmp_path, PING_PONG)
    times = row(document, "message_mpi_host", "latency", "reused buffer")
    assert list(times.values()) == [pytest.approx(us * 1e-6) for us in (1.59, 1.77, 2.61, 48.82)]
    rates = row(document, "IMB PingPong, 2 processes", "bandwidth", "rate")
    assert rates["256 KiB"] == digits(5121.09 * 2**20) == pytest.approx(262144 / 48.82e-6, rel=0.001)
    assert wirespeed.render(document, "plot") and verdict(document) is Verdict.NOT_JUDGED


def test_rates_of_newer_versions_are_decimal(tmp_path: Path) -> None:
    document = imported(tmp_path, SEND_RECEIVE)
    rates = row(document, "IMB", "bandwidth", "rate")
    assert list(rates.values()) == [digits(rate * 1e6) for rate in (15660.37, 17616.61, 8107.16, 4479.4)]
    assert rates["256 KiB"] == pytest.approx(2 * 262144 / 33.48e-6, rel=0.001)
    windowed = PING_PONG.replace("PingPong", "Uniband").partition("       #bytes")[0] + (
        "       #bytes #repetitions   Mbytes/sec      Msg/sec\n"
        "            0         1000         0.00      2189915\n"
        "      1048576           10     12233.00        11666\n"
    )
    one_way = imported(tmp_path, windowed)
    assert row(one_way, "message_mpi_host", "bandwidth", "one way")["1 MiB"] == 12233e6
    assert row(one_way, "message_mpi_host", "rate", "one way")["0 B"] == 2189915.0


@pytest.mark.parametrize(("small", "large", "unit"), [(55.21, 10485.76, 1e6), (56.43, 10000.0, 2**20)])
def test_the_largest_message_shows_the_unit_of_rates(
    tmp_path: Path, small: float, large: float, unit: float
) -> None:
    """The time of the smallest, of two digits, is nearer to the other unit."""
    rows = f"      8    1000     0.14  {small}\n1048576      40   100.00  {large}\n"
    head, columns, _ = PING_PONG.partition("       #bytes #repetitions      t[usec]   Mbytes/sec\n")
    rates = row(imported(tmp_path, head + columns + rows), "IMB PingPong, 2 processes", "bandwidth", "rate")
    assert rates == {"8 B": digits(small * unit), "1 MiB": digits(large * unit)}


def test_runs_in_one_file_have_their_own_version_and_end(tmp_path: Path) -> None:
    older = ALLREDUCE.replace("Intel(R) MPI Benchmarks 2019 Update 6", "PALLAS MPI Benchmark Suite V2.2")
    document = imported(tmp_path, ALLREDUCE.partition("# All processes")[0] + older)
    assert [log.version for log in document.imported] == ["2019", "2.2"] and doubts(document)


@pytest.mark.parametrize(
    "head", ["#    Intel(R) MPI Benchmarks 2021.3, IMB-P2P part\n", "# IMB-MPI1-GPU PingPong\n"]
)
def test_other_programs_measure_other_things(tmp_path: Path, head: str) -> None:
    assert not_comparable(imported(tmp_path, head + PING_PONG)) == 8


def test_groups_that_share_a_table_are_kept_apart(tmp_path: Path) -> None:
    document = imported(tmp_path, GROUPS)
    for group, rate in ((0, 2048e6), (1, 1600e6)):
        rates = row(document, f"IMB Multi-PingPong of group {group}", "bandwidth", "rate")
        assert list(rates.values()) == [0.0, rate]


def test_collectives_of_many_processes(tmp_path: Path) -> None:
    document = imported(tmp_path, ALLREDUCE)
    name = "IMB Allreduce, 1408 processes"
    assert row(document, name, "latency", "maximum")["16 B"] == pytest.approx(29.28e-6)
    assert document.imported[0].version == "2019" and not doubts(document) and not_comparable(document) == 9
    assert doubts(imported(tmp_path, ALLREDUCE.partition("# All processes")[0]))
    cut = imported(tmp_path, ALLREDUCE.partition("        29.28")[0] + "\n")
    assert list(row(cut, name, "latency", "maximum")) == ["0 B", "8 B"]
    assert any("is cut" in warning for warning in doubts(cut))
    wrong = ALLREDUCE.replace("t_avg[usec]", "t_avg[usec]      defects").replace(
        "27.28", "27.28         3.00"
    )
    wrong = wrong.replace("0.16\n", "0.16         0.00\n").replace("27.94\n", "27.94         0.00\n")
    assert verdict(imported(tmp_path, wrong)) is Verdict.FAIL
    memory = ALLREDUCE.replace("26.13        29.28        27.28", "out-of-mem.; needed X=  1.234 GB")
    memory = memory.replace("16        10000         out", "16 out")
    assert any("not measured" in warning for warning in imported(tmp_path, memory).warnings)


@pytest.mark.parametrize(
    ("log", "instead"),
    [
        (" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "nvidia-smi topo -m"),
        (" \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n", "nvidia-smi topo -m"),
    ],
)
def test_what_to_run_in_place_of_what_is_not_read(tmp_path: Path, log: str, instead: str) -> None:
    document = imported(tmp_path, log)
    assert any(f"run {instead}" in warning for warning in document.warnings)
    assert not document.testcases and verdict(document) is Verdict.NOT_JUDGED


# All of them

EVERY = {
    "bandwidthTest": SHMOO, "topo": FOUR, "nvlink": links(0, 6) + links(1, 6),
    "rate": MIB_PER_S, "latency": LATENCY, "pingpong": PING_PONG,
    "sendrecv": SEND_RECEIVE, "allreduce": ALLREDUCE,
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_every_format_shows_them(tmp_path: Path, name: str) -> None:
    document = imported(tmp_path, EVERY[name])
    for format in ("table", "csv", "markdown", "prometheus", "junit", "html"):
        wirespeed.render(document, format)
    units = {table.unit for result in document.testcases for table in result.tables}
    assert units <= {Unit.RATE, Unit.TIME, Unit.FREQUENCY}


@pytest.mark.parametrize("name", EVERY)
def test_lines_of_a_launcher_before_them(tmp_path: Path, name: str) -> None:
    tagged = "\r\n".join(f"\x1b[32m[1,0]<stdout>: {line}\x1b[0m" for line in EVERY[name].splitlines())
    plain = imported(tmp_path, EVERY[name])
    marked = imported(tmp_path, tagged)
    assert (marked.testcases, marked.facts) == (plain.testcases, plain.facts)


def test_several_tools_in_one_file(tmp_path: Path) -> None:
    text = "\n".join(EVERY.values()).replace("V100-PCIE", "V100-SXM2")
    tools = [log.tool for log in imported(tmp_path, text).imported]
    assert list(dict.fromkeys(tools)) == [
        "bandwidthTest", "nvidia-smi", "perftest", "IMB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mib", "engine", "is_judged"),
    [(10239, "sm", True), (10240, "sm", False), (10240, "ce", True)],
)
def test_kernels_with_large_buffers_of_the_host_have_no_reference(
    tmp_path: Path, mib: int, engine: str, is_judged: bool
) -> None:
    """NVIDIA/nvbandwidth issues 41 and 42: the same GPU has 25.1 GB/s with buffers of 512 MiB."""
    name = f"host_to_device_memcpy_{engine}"
    document = imported(
        tmp_path,
        f"""$ ./nvbandwidth -t {name} -b {mib}
nvbandwidth Version: v0.8
Device 0: NVIDIA A100-SXM4-40GB (00000000:99:00)

Running {name}.
memcpy {engine.upper()} CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0     16.50

SUM {name} 16.50
""",
    )
    (result,) = document.testcases
    assert ("kernels are slower with buffers of 10 GiB or more" in result.description) is not is_judged
    assert (wirespeed.judge(document).verdict is Verdict.NOT_JUDGED) is not is_judged


def test_the_first_release_of_nvbandwidth_names_benchmarks(tmp_path: Path) -> None:
    """The readme of the first release: no line of a version, and another word before the name."""
    document = imported(
        tmp_path,
        """Running benchmark host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
          0         1
0      6.20     12.36
""",
    )
    assert row(document, "host_to_device_memcpy_ce", "", "host") == {"gpu0": 6.2e9, "gpu1": 12.36e9}


def test_simplep2p_that_ends_early_is_incomplete(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "data/logs/simplep2p-passed.txt").read_text()
    document = imported(tmp_path, text.removesuffix("Test passed\n"))
    assert "lacks 'Test passed'" in doubts(document)[0]


def test_each_heading_of_stream_begins_a_run(tmp_path: Path) -> None:
    """A post with the rates of a good and of a slow node: the second ones replaced the first ones."""
    table = """Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           {0}000.1     0.004873     0.004141     0.033827
Scale:          {0}000.2     0.004823     0.004370     0.030055
Add:            {0}000.5     0.006594     0.005846     0.026840
Triad:          {0}000.1     0.006789     0.005682     0.042516
"""
    document = imported(tmp_path, table.format(46) + "and the other node:\n" + table.format(23))
    values = {cell.value for result in document.testcases for t in result.tables for cell in t.cells}
    assert {46000.1e6, 23000.1e6} <= {value and round(value, 1) for value in values}
