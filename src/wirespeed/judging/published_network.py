"""What published rates say between hosts: of messages over one NIC, and of large collectives of hosts whose
eight GPUs use all NICs. Rates are compared as shares of what the NICs carry, so that those of several models
say what is usual: a ring reaches the rate of the NICs, or of NVLink, if that is lower; where the switches of
two hosts reduce, it is up to twice as much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..data import GpuSheet, gpu_sheet, norms
from ..data.norms import OBSERVED, Path, PublishedRate
from ..statistics import grouped
from ..thresholds.values import LARGE_OF_HOSTS, MOST_HOSTS, OVER_LINE, RING_OF_NVLINK
from ..units import GB, parse_size

#: GPUs of a host with NVLink switches, all of which take part.
HOST_GPUS = 8
#: Operations that are alike in a ring.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
#: NICs of a host, as rows give them, and the rate in the name of one.
_NICS, _NIC = re.compile(r"\b(\d+)x(\d+)G\b"), re.compile(r"(\d+)G\b")


class NetworkShare(NamedTuple):
    """A published rate as a share of what the links allow, with the GPU or NIC, and the publisher."""

    share: float
    model: str
    publisher: str


class NetworkLine(NamedTuple):
    """What links allow at most.

    Attributes:
        how: ``ring``, or the compute capability of the GPUs, if the switches of two hosts reduce.
        rate: Bus bandwidth, in B/s.
    """

    how: str
    rate: float


#: Messages of several pairs, over all NICs.
_SEVERAL = "osu_mbw_mr"
#: Key of the rates of messages over one NIC, and of rings.
MESSAGE, RING = "message", "ring"
#: The oldest GPUs whose switches can reduce.
_NVLS_CAPABILITY = 9, 0


def has_nvls(sheet: GpuSheet) -> bool:
    """Whether the NVLink switches of a GPU's machines reduce."""
    capability = tuple(map(int, sheet.capability.split(".")))
    return sheet.switch and not sheet.c2c and capability >= _NVLS_CAPABILITY


def lines(sheet: GpuSheet, network: float, hosts: int, operation: str) -> Iterator[NetworkLine]:
    """Yield what NICs and NVLink allow for a collective of hosts with eight GPUs each.

    Switches that reduce are no line of their own where NVLink limits them more than the NICs.

    Args:
        sheet: The GPUs.
        network: Rate of all NICs of a host in one direction, in B/s.
        hosts: Number of hosts.
        operation: The operation.
    """
    if not sheet.switch or sheet.many_hosts or operation not in OPERATIONS or not 1 < hosts <= MOST_HOSTS:
        return
    nvlink, ranks = sheet.nvlinks(sheet.links[-1]), hosts * HOST_GPUS
    yield NetworkLine(RING, min(network, RING_OF_NVLINK * nvlink))
    twice = network * 2 * (ranks - 1) / ranks
    if operation == OPERATIONS[0] and hosts == 2 and has_nvls(sheet) and twice <= nvlink:
        yield NetworkLine(sheet.capability, twice)


def shares(how: str) -> tuple[NetworkShare, ...]:
    """The published rates of messages, of rings, or of GPUs of a compute capability whose switches reduce."""
    return _shares().get(how, ())


@norms.of_observations
def _shares(rows: tuple[PublishedRate, ...]) -> dict[str, tuple[NetworkShare, ...]]:
    """The published rates of networks as shares of line rates, by what they are alike in."""
    found = grouped(pair for row in rows if row.kind in OBSERVED for pair in _shared(row))
    return {how: tuple(ones) for how, ones in found.items()}


def _shared(row: PublishedRate) -> Iterator[tuple[str, NetworkShare]]:
    """Yield a rate as a share, by what it is like.

    A rate that exceeds a ring's was reached by switches that reduce.
    """
    subject = row.subject
    nic = _NIC.search(row.model) if subject.path is Path.NODE_NODE else None
    if nic and subject.direction == "one_way" and subject.operation != _SEVERAL:
        yield MESSAGE, NetworkShare(row.rate / (int(nic[1]) * GB / 8), row.model, row.publisher)
    nics, hosts = _NICS.search(row.platform), re.fullmatch(r"(\d+)x8", subject.devices)
    sheet = gpu_sheet(row.model)
    if subject.path is not Path.COLLECTIVE_NODES or not (nics and hosts and sheet) or not _is_large(row.size):
        return
    network = int(nics[1]) * int(nics[2]) * GB / 8
    possible = list(lines(sheet[1], network, int(hosts[1]), subject.operation))
    ring = [line for line in possible if line.how == RING and row.rate <= line.rate * (1 + OVER_LINE)]
    for line in ring or [line for line in possible if line.how != RING]:
        yield line.how, NetworkShare(row.rate / line.rate, sheet[0], row.publisher)


def _is_large(size: str) -> bool:
    """Whether the size of an array, as a source gives it, is compared; sources without one give the best."""
    return not size or parse_size(size.rpartition("-")[2]) >= LARGE_OF_HOSTS
