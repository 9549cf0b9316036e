"""The lines of NCCL in a log are readings: settings, transports, network and GPUDirect RDMA."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.facts import Facts, Known

_HEAD = "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) validation: 1\n"
_TABLE = """\
#  size   count   type   redop   root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
  1073741824  268435456  float  sum  -1  {time}  {rate}  {rate}  0  {time}  {rate}  {rate}  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {rate}
"""
#: Forms of lines: github.com/NVIDIA/nccl-tests/issues/293, 133 and 166; Mellanox/nv_peer_memory/issues/56.
_TWO_HOSTS = """\
#  Rank  0 Group  0 Pid   5425 on      node1 device  0 [0x81] NVIDIA A100-PCIE-40GB
#  Rank  1 Group  0 Pid   4962 on      node2 device  0 [0x81] NVIDIA A100-PCIE-40GB
node1:5425:5439 [0] NCCL INFO NCCL_SHM_DISABLE set by environment to 1.
node1:5425:5439 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to SYS
node1:5425:5439 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.
node1:5425:5439 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/{net}
node2:4962:4975 [0] NCCL INFO Channel 00 : 1[89000] -> 0[4d000] [send] via NET/{net}
node2:4962:4975 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
"""
_ONE_HOST = """\
#  Rank  0 Group  0 Pid   5425 on      node1 device  0 [0x01] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   5426 on      node1 device  1 [0x02] NVIDIA H100 80GB HBM3
node1:5425:5439 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.
node1:5425:5439 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
node1:5426:5440 [1] NCCL INFO Channel 01 : 1[1] -> 0[0] via SHM/direct/direct
"""


def _loaded(tmp_path: Path, lines: str, rate: float = 115.4) -> Document:
    table = _TABLE.format(rate=rate, time=round(2**30 / rate / 1e3, 1))
    (tmp_path / "log.txt").write_text(_HEAD + lines + table)
    return wirespeed.load_log(tmp_path / "log.txt")


def test_lines_of_two_hosts(tmp_path: Path) -> None:
    document = _loaded(tmp_path, _TWO_HOSTS.format(net="IBext_v8/0/GDRDMA"), 6.4)
    first, second = Facts(document.facts).of_each_host
    assert first.several(Known.NCCL_VARIABLES) == ("NCCL_NET_GDR_LEVEL=SYS", "NCCL_SHM_DISABLE=1")
    assert second.host == "node2" and second.several(Known.NCCL_VARIABLES) == ("NCCL_IB_DISABLE=0",)
    for of_host in (first, second):
        assert of_host.text(Known.NCCL_NETWORK) == "NET/IBext_v8" and of_host.text(Known.NCCL_GDR) == "on"
        assert not of_host.knows(Known.NCCL_TRANSPORTS)
    # With one GPU in each host, shared memory has no use: no defect.
    assert not wirespeed.judge(document).defects


@pytest.mark.parametrize(
    ("net", "cause", "evidence"),
    [
        ("Socket/0", "nccl-disabled", "NCCL used TCP sockets between the hosts"),
        ("IB/0", "peermem", "NCCL used NET/IB between the hosts without GPUDirect RDMA"),
        ("IB/0/GDRDMA", "", ""),
    ],
)
def test_the_network_that_nccl_used(net: str, cause: str, evidence: str, tmp_path: Path) -> None:
    from wirespeed.judging.causes import CAUSES, signs_of

    document = _loaded(tmp_path, _TWO_HOSTS.format(net=net), 0.6)
    signs = {
        (one.name, sign.text)
        for one in CAUSES
        for sign in signs_of(one, document.machine, Facts(document.facts))
    }
    assert ((cause, evidence) in signs) is bool(cause)
    assert cause == "peermem" or not any("GPUDirect" in text for _, text in signs)


def test_a_disabled_transport_explains_slow_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _loaded(tmp_path, _ONE_HOST, 9.9)
    facts = Facts(document.facts)
    assert facts.several(Known.NCCL_TRANSPORTS) == ("SHM/direct",)
    findings = wirespeed.diagnose(document).findings
    assert findings[0].cause.name == "nccl-disabled" and "NCCL_P2P_DISABLE=1" in findings[0].evidence
    saved = tmp_path / "run.json"
    assert main(["import", str(tmp_path / "log.txt"), "-o", str(saved)]) in (0, 1)
    main(["doctor", str(saved)])
    assert "older version" not in capsys.readouterr().out


def test_a_log_without_readings_is_no_older_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _loaded(tmp_path, "", 115.4)
    main(["import", str(tmp_path / "log.txt"), "-o", str(tmp_path / "run.json")])
    main(["doctor", str(tmp_path / "run.json")])
    out = " ".join(capsys.readouterr().out.split())
    assert "no readings of the system: it is a log of another tool" in out and "older version" not in out


LOGS = Path(__file__).parents[2] / "data" / "logs"


@pytest.mark.parametrize(
    ("line", "network", "direct"),
    [
        ("Channel 00/1 : 1[0] -> 0[0] [receive] via NET/NCCL RDMA Plugin v6/0/GDRDMA/Shared",
         "NET/NCCL RDMA Plugin v6", "on"),
        ("Channel 00/0 : 0[60] -> 1[60] [send] via NET/AWS Libfabric/0/GDRDMA comm 0x7f nRanks 16",
         "NET/AWS Libfabric", "on"),
        ("Ring 00 : 1[160] -> 0[160] [receive] via NET/Socket/0", "NET/Socket", "off"),
        ("Ring 00 : 0 -> 1 [send] via NET/IB/0/GDRDMA", "NET/IB", "on"),
        ("Using network Socket", "NET/Socket", ""),
        ("Using network AWS Libfabric", "NET/AWS Libfabric", ""),
    ],
)  # fmt: skip
def test_the_network_in_lines_of_all_versions(tmp_path: Path, line: str, network: str, direct: str) -> None:
    ranks = "".join(_TWO_HOSTS.splitlines(keepends=True)[:2])
    facts = Facts(_loaded(tmp_path, f"{ranks}node1:14:20 [0] NCCL INFO {line}\n", 2.6).facts)
    assert facts.text(Known.NCCL_NETWORK) == network and facts.text(Known.NCCL_GDR) == direct


def test_shared_memory_in_lines_of_old_versions(tmp_path: Path) -> None:
    ranks = "".join(_ONE_HOST.splitlines(keepends=True)[:2])
    line = "node1:14:20 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via direct shared memory\n"
    facts = Facts(_loaded(tmp_path, ranks + line).facts)
    assert facts.several(Known.NCCL_TRANSPORTS) == ("SHM/direct",)


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("gdr-plugin-name", ("NET/NCCL RDMA Plugin v6", "GPUDirect RDMA of NCCL on")),
        ("ring-lines", ("NET/AWS Libfabric", "GPUDirect RDMA of NCCL off")),
    ],
)
def test_doctor_shows_the_readings_of_a_log(
    log: str, shown: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", str(LOGS / f"{log}.txt")])
    out = " ".join(capsys.readouterr().out.split())
    assert all(text in out for text in shown)


def test_sockets_are_named_although_no_value_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _loaded(tmp_path, _TWO_HOSTS.format(net="Socket/0").replace("NCCL_SHM_DISABLE", "NCCL_ALGO"), 2.6)
    main(["doctor", str(tmp_path / "log.txt")])
    out = " ".join(capsys.readouterr().out.split())
    assert "also found: transports of NCCL are disabled or not used" in out
    assert "NCCL used TCP sockets between the hosts" in out and "make the RDMA devices visible" in out
