"""Pairs of GPUs that are slower than another way of the same log. Values are from public reports."""

from __future__ import annotations

from pathlib import Path

import wirespeed
from wirespeed.judging.check import Check
from wirespeed.judging.diagnosis import Diagnosis, diagnose
from wirespeed.judging.verdict import Verdict

_HEAD = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
_BY_HOST = "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n"
_DIRECT = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
#: Two RTX A6000 whose traffic an IOMMU translates.
_A6000 = """Device: 0, NVIDIA RTX A6000, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA RTX A6000, pciBusID: 25, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=1 CAN Access Peer Device=0
"""
_SLOW = """   D\\D     0      1
     0 673.50   1.70
     1   1.60 672.34
"""
#: github.com/NVIDIA/nccl/issues/814: every pair at 0.45 of the rate through the host.
_NCCL_814 = f"""{_HEAD}{_BY_HOST}   D\\D     0      1      2      3      4      5
     0 911.08  20.10  22.16  22.14  22.33  22.37
     1  20.39 920.20  22.26  22.24  22.34  22.22
     2  22.18  22.37 920.74  22.09  22.40  22.24
     3  22.24  22.42  22.25 922.37  20.46  22.24
     4  22.19  22.39  22.25  20.43 920.62  22.23
     5  22.09  22.30  22.22  22.32  22.38 921.96
{_DIRECT}   D\\D     0      1      2      3      4      5
     0 912.68   9.90   9.90   9.90   9.90   9.90
     1   9.90 922.37   9.90   9.90   9.90   9.90
     2  10.01  10.01 922.24  10.01  10.01  10.01
     3  10.23  10.23  10.23 921.83  10.23  10.23
     4   9.65   9.64   9.65   9.65 921.29   9.65
     5  10.22  10.22  10.22  10.22  10.22 922.37
"""
#: Healthy: two sockets of EPYC Turin; github.com/voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md.
_TURIN = f"""{_HEAD}{_DIRECT}   D\\D     0      1      2      3      4      5
     0 1488.10  56.57  56.57  50.97  55.61  55.59
     1   56.57 1416.77  56.57  51.01  55.60  55.64
     2   56.57  56.57 1415.11  50.97  55.62  55.64
     3   50.97  50.97  50.97 1375.60  50.16  50.45
     4   55.61  55.60  55.62  50.16 1408.87  55.60
     5   55.60  55.64  55.64  50.45  55.61 1489.91
"""
#: Healthy: NVLinks in pairs, the others over two sockets; github.com/NVIDIA/nccl-tests/issues/74.
_A40 = f"""{_HEAD}Device: 0, NVIDIA A40, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA A40, pciBusID: 2, pciDeviceID: 0, pciDomainID:0
Device: 2, NVIDIA A40, pciBusID: 41, pciDeviceID: 0, pciDomainID:0
Device: 3, NVIDIA A40, pciBusID: 42, pciDeviceID: 0, pciDomainID:0
Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2      3
     0 565.51  19.13  19.28  19.22
     1  19.42 566.23  19.46  19.77
     2  19.33  19.49 565.51  19.45
     3  19.23  19.80  19.43 566.33
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2      3
     0 565.51 101.60  50.07  50.37
     1 101.55 565.51  49.94  50.26
     2  49.70  50.39 565.71 101.60
     3  49.45  50.23 101.61 565.61
"""
#: The form of nvbandwidth 0.8, as in github.com/NVIDIA/nvbandwidth/issues/50.
_NVBANDWIDTH = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 13000
CUDA Driver Version: 13000
Driver Version: 580.95.05

Device 0: NVIDIA RTX A6000 (00000000:01:00)
Device 1: NVIDIA RTX A6000 (00000000:25:00)
Device 2: NVIDIA RTX A6000 (00000000:41:00)

"""
_COPIES = """Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0     25.50     24.26     25.30

SUM host_to_device_memcpy_ce 75.06

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1         2
 0     26.50     26.26     26.30

SUM device_to_host_memcpy_ce 79.06

"""


def _pairs(values: str) -> str:
    return f"""Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
{values}
SUM device_to_device_memcpy_read_ce 92.06

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


_ONE_SLOW = """ 0       N/A     21.34      3.35
 1     21.34       N/A     21.34
 2      3.34     21.35       N/A
"""
#: As if gpu2 were at the other socket.
_SOCKETS = """ 0       N/A     21.34      3.35
 1     21.34       N/A      3.34
 2      3.34      3.35       N/A
"""


def _checked(tmp_path: Path, log: str) -> tuple[Check, Diagnosis]:
    (tmp_path / "log.txt").write_text(log)
    document = wirespeed.load_log(tmp_path / "log.txt")
    check = wirespeed.judge(document)
    return check, diagnose(document, check)


def _warned(check: Check) -> list[tuple[str, str]]:
    return [(j.key.row, j.key.column) for j in check.judgements if j.verdict is Verdict.WARN]


def test_slower_than_through_the_host(tmp_path: Path) -> None:
    by_host = "   D\\D     0      1\n     0 673.20  22.20\n     1  21.98 673.20\n"
    log = _HEAD + _A6000 + _BY_HOST + by_host + _DIRECT + _SLOW
    check, diagnosis = _checked(tmp_path, log)
    assert check.verdict is Verdict.WARN and sorted(_warned(check)) == [("gpu0", "gpu1"), ("gpu1", "gpu0")]
    (finding,) = diagnosis.findings
    assert [finding.cause.name, *(cause.name for cause in finding.others)] == ["iommu", "acs", "bar1"]
    assert finding.cells == 2 and not finding.likely and diagnosis.unexplained == 0
    assert "1.60 GB/s" in finding.evidence and "21.98 GB/s" in finding.evidence
    assert [command.partition("  # ")[2] != "" for command in finding.commands] == [True] * 3


def test_a_slow_but_correct_host_has_no_single_cause(tmp_path: Path) -> None:
    check, diagnosis = _checked(tmp_path, _NCCL_814)
    assert check.verdict is Verdict.WARN and len(_warned(check)) == 30 and not check.culprits
    (finding,) = diagnosis.findings
    assert len(finding.others) == 2 and "without a fault" in finding.evidence


def test_one_way(tmp_path: Path) -> None:
    values = "   D\\D     0      1\n     0 673.50  12.20\n     1   2.00 672.34\n"
    check, _ = _checked(tmp_path, _HEAD + _A6000 + _DIRECT + values)
    assert check.verdict is Verdict.WARN and _warned(check) == [("gpu1", "gpu0")]
    assert [str(culprit) for culprit in check.culprits] == ["path gpu1->gpu0"]
    assert check.culprits[0].share == "16% of the other direction"


def test_copies_with_the_host_and_over_another_gpu_are_other_ways(tmp_path: Path) -> None:
    for copies, of in ((_COPIES, "through the host"), ("", "another GPU")):
        check, diagnosis = _checked(tmp_path, _NVBANDWIDTH + copies + _pairs(_ONE_SLOW))
        assert [str(culprit) for culprit in check.culprits] == ["path gpu0-gpu2"]
        assert of in check.culprits[0].share and len(_warned(check)) == 2
        assert diagnosis.findings[0].cause.name == "iommu"


def test_healthy_pairs_pass(tmp_path: Path) -> None:
    """A GPU behind another socket is slow with all others, which is no fault by itself."""
    for log in (_TURIN, _A40, _NVBANDWIDTH + _pairs(_SOCKETS)):
        check, _ = _checked(tmp_path, log)
        assert not _warned(check) and not check.culprits
