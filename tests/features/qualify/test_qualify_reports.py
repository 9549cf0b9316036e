"""Public reports of two slow nodes, each with its machines rebuilt: the cause that was found is named."""

from __future__ import annotations

import functools

import msgspec
import pytest

import wirespeed
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.simulated_cluster import parse_cluster
from wirespeed.hardware.facts import Fact, Known
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.qualification_verdict import UNEXPLAINED, first_words, verdict_of
from wirespeed.judging.verdict import Verdict
from wirespeed.qualification import Qualification

SPARKS, EIGHT = "dgx-spark-2", "dgx-a100-8x2"
#: Cause, host and evidence.
Named = tuple[str, str, str]

described = functools.cache(wirespeed.described)


def judged(spec: str, *changes: Fact) -> tuple[Qualification, list[Named], str]:
    """The qualification of two simulated nodes, the causes of its slow paths, and what to do first."""
    cluster = parse_cluster(spec)
    assert cluster
    found = Procedure(cluster).run()
    document = msgspec.structs.replace(
        described(f"simulated:{cluster.machine}"), qualification=found, facts=(*cluster.facts, *changes)
    )
    assert verdict_of(found) is Verdict.FAIL and cluster.seconds() <= 20
    causes = [(f.cause.name, f.host, f.evidence) for f in diagnose(document).findings if f.cells]
    return found, causes, first_words(document, found)[2].do


def rates(found: Qualification) -> tuple[float, float]:
    """The slowest and the fastest slow path, in bytes per second."""
    values = [part.value for part in found.culprits if part.limited]
    return min(values), max(values)


def test_sparks_with_one_endpoint_small_packets_and_no_named_hca() -> None:
    """dgx-spark-playbooks, issue 102 and pull request 103: 3 of 25 GB/s with a single cable of 200 Gbit/s."""
    both = "".join(f"+endpoint@node{i}+mtu=1500@node{i}+node=0.4@node{i}" for i in range(2))
    found, causes, _ = judged(f"{SPARKS}{both}")
    assert rates(found)[1] < 3.3e9
    assert {(name, host) for name, host, _ in causes} == {
        (name, host) for name in ("nic-endpoint", "mtu") for host in ("node0", "node1")
    }
    endpoint = "roceP2p1s0f0 carries nothing, rocep1s0f0 of the same card and port all data"
    assert ("nic-endpoint", "node0", endpoint) in causes


def test_sparks_whose_nics_came_up_slow() -> None:
    """dgx-spark-playbooks, pull request 108: 13 of 200 Gbit/s, ports and PCIe links healthy, no errors."""
    found, causes, do = judged(f"{SPARKS}+node=0.07@node0+node=0.07@node1")
    assert 1.5e9 < rates(found)[0] < 1.7e9 and causes == []
    assert do == UNEXPLAINED.do and "switch both nodes off and on, with their power supplies" in do


def test_gpu_memory_without_gpudirect() -> None:
    """Mooncake, issue 1459: 15 GB/s from and to GPU memory, 47 GB/s by the host's, with 400 Gbit/s."""
    found, causes, _ = judged(f"{EIGHT}+gpudirect@node0+gpudirect@node1")
    assert 13e9 < rates(found)[0] <= rates(found)[1] < 16e9
    evidence = (
        "NCCL used NET/IB between the hosts without GPUDirect RDMA; the module nvidia_peermem is not loaded"
    )
    assert causes == [("peermem", host, evidence) for host in ("node0", "node1")]


def test_one_numa_node_per_socket() -> None:
    """nccl-tests, issue 293: A100 PCIe in servers of AMD; NUMA Nodes Per Socket 4 in the BIOS was faster."""
    _, causes, _ = judged(f"{EIGHT}+nps1@node0+nps1@node1")
    evidence = "1 NUMA node per socket, gpu0 below a root port of an AMD CPU"
    assert causes == [("whole-sockets", host, evidence) for host in ("node0", "node1")]


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ((), "nvidia_peermem: off on node0, on on node1"),
        ((Fact(Known.PEERMEM, "on", host="node0"), Fact(Known.NCCL_GDR, "on", host="node0"),
          Fact(Known.NCCL_VARIABLES, ("NCCL_NET_GDR_LEVEL=SYS",), host="node1")),
         "NCCL settings: none on node0, NCCL_NET_GDR_LEVEL=SYS on node1"),
    ],
)  # fmt: skip
def test_gpudirect_on_one_host_only(changes: tuple[Fact, ...], evidence: str) -> None:
    """nccl-tests, issue 350: by the module, or by a setting that only one host has."""
    _, causes, _ = judged(f"{EIGHT}+gpudirect@node0", *changes)
    assert ("node-settings", "node0", evidence) in causes
    assert ("peermem" in {name for name, *_ in causes}) is (not changes)
