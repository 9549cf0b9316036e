"""What links allow for values of a log, which tells less than a measurement."""

from __future__ import annotations

from dataclasses import replace

from ..data import efficiencies
from ..limits import JUDGED_BYTES, Allowance, allowances
from ..measurement import Measurement
from ..model import Access, Engine
from ..network import Network, rate_of
from ..topology import LinkKind

#: In the names of testcases that copy in both directions at once.
_BOTH_WAYS = "_bidirectional_"
#: Links between host and GPU.
_TO_HOST = (LinkKind.PCIE, LinkKind.C2C)
#: Lowest value of a log over that of a measurement: kernels and back ends of other tools may be slower than
#: ours, and no log tells clocks, slots or virtual machines. Published, of the line rate: 0.72 to 0.78 of the
#: memory (BabelStream on H100 NVL, p2pBandwidthLatencyTest on GTX 1650 SUPER, A100, H100); 0.61 of PCIe 3 to
#: a T4 in a virtual machine. Azure accepts 0.57 to 0.63 for V100s.
WIDER = 0.9


def allowed(network: Network, measurement: Measurement, testcase: str) -> list[Allowance]:
    """What the links allow for each Place of a Measurement of a log.

    Args:
        network: The links of the machine that the log is about.
        measurement: What a testcase measures.
        testcase: Its name.
    """
    widened = [_widened(allowance) for allowance in allowances(network, measurement, efficiencies())]
    return [_bridged(network, allowance, both_ways=_BOTH_WAYS in testcase) for allowance in widened]


def of_collective(network: Network, measurement: Measurement) -> list[Allowance]:
    """What the links allow for each Place of a collective of a log.

    Without NVLink, the bus bandwidth is at most that of PCIe. What sockets and bridges leave of it is
    unknown, so that a low value is not judged.
    """
    bounds, run = allowances(network, measurement, efficiencies()), measurement.collective
    if run is not None and run.bytes < JUDGED_BYTES:  # no log tells how long a collective takes to start
        return [replace(bound, expected=None) if bound.expected else bound for bound in bounds]
    if run is None or not run.judged or not run.members:
        return bounds
    ends = {network.machine.vertex(member) for member in run.members}
    own = [i for i, link in enumerate(network.links) if {link.source, link.destination} & ends]
    memory = network.unknown_memory("numa0")
    if memory is None or any(network.links[i].kind is LinkKind.NVLINK for i in own):
        return bounds
    used = tuple((i, 1.0, 1.0) for i in own if network.links[i].kind is LinkKind.PCIE)
    low, typical = (rate_of(r, Engine.NCCL, LinkKind.PCIE, Access.READ).efficiency for r in efficiencies())
    return [
        replace(
            bound, expected=(bound.limit * low, bound.limit * typical), peak=None, links=used,
            shared=((memory, 0.0),),
        ) if bound.limit and not bound.expected else bound
        for bound in bounds
    ]  # fmt: skip


def _widened(bound: Allowance) -> Allowance:
    """What links allow, with the range of values of other tools."""
    return (
        replace(bound, expected=(bound.expected[0] * WIDER, bound.expected[1])) if bound.expected else bound
    )


def _bridged(network: Network, bound: Allowance, *, both_ways: bool) -> Allowance:
    """What links allow for copies that the host may limit, so that low values are not judged.

    Unlike copies in one direction, those in both directions at once depend on the bridges of the host, which
    no log describes: some reach 11 of 31 GB/s to the GPU next to 25 GB/s from it. So do copies between GPUs
    without NVLink.
    """
    memory, gpus = network.unknown_memory("numa0"), {gpu.name for gpu in network.machine.gpus}
    links = [network.links[link] for link, *_ in bound.links]
    of_host = any(
        link.kind in _TO_HOST and (both_ways or {link.source, link.destination} <= gpus) for link in links
    )
    return (
        replace(bound, shared=((memory, 0.0),))
        if memory is not None and of_host and not bound.shared
        else bound
    )
