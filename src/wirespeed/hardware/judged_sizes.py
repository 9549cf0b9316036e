"""Which transfers are long enough for their rates to be judged: smaller ones are mostly starts of threads,
calls and kernels.
"""

from __future__ import annotations

import math

from ..model import Engine, MemoryKind, Method, Operation, Transfer
from ..thresholds.values import (
    JUDGED_BLOCK_S,
    JUDGED_BYTES,
    JUDGED_COPY_BYTES,
    JUDGED_COPY_S,
    JUDGED_KERNEL_BLOCK_S,
)
from .link_graph import Demand, Network
from .topology import LinkKind

#: Time of a block from which on a block list is judged, in s. What is staged moves its bytes several times.
_JUDGED_BLOCK_S = {
    **dict.fromkeys((Method.LOOP, Method.BATCH), JUDGED_BLOCK_S),
    **dict.fromkeys((Method.KERNEL, Method.KERNEL_BULK), JUDGED_KERNEL_BLOCK_S),
}  # fmt: skip
#: Largest cache of GPUs by compute capability, in bytes, from data sheets: A100, RTX 4090, H100 and H200,
#: B200, RTX 5090; and of all others. Two H200s copied 64 MiB at 0.90 of the rate of 1 GiB, 16 MiB at 1.13.
_GPU_CACHE_BYTES = {"8.0": 40e6, "8.9": 72e6, "9.0": 50e6, "10.0": 126e6, "12.0": 128e6}
_ANY_GPU_CACHE_BYTES = 128e6


def is_small(transfer: Transfer) -> bool:
    """Whether the start of a copy, or a cache, matters to its rate."""
    by_gpu = transfer.engine is not Engine.CPU
    least = JUDGED_COPY_BYTES if by_gpu and is_between(transfer) else JUDGED_BYTES
    return transfer.bytes < least and transfer.calls is None


def is_judged(network: Network, transfer: Transfer, demand: Demand, lowest: float | None) -> bool:
    """Whether link bandwidth limits a transfer, so that it can be judged.

    Args:
        network: The links.
        transfer: The transfer.
        demand: What it takes of them.
        lowest: Its lowest rate, in B/s.
    """
    kinds = (transfer.source.kind, transfer.destination.kind)
    if network.machine.confidential and MemoryKind.DEVICE in kinds and {*kinds} != {MemoryKind.DEVICE}:
        return False  # the driver encrypts it
    if calls := transfer.calls:  # how fast the medium is decides
        known = all(
            network.unknown_memory(e.device) is None for e in transfer.ends if e.kind is MemoryKind.FILE
        )
        return known and not calls.random and transfer.bytes >= JUDGED_COPY_S * (lowest or math.inf)
    return (
        transfer.operation is not Operation.CHASE
        and transfer.pace == 1
        and not transfer.executor.blocks
        and not transfer.executor.threads
        and _has_large_blocks(transfer, lowest)
        and (transfer.engine is Engine.CPU or MemoryKind.PAGEABLE not in kinds)
        and _is_large_enough(network, transfer, demand, lowest)
    )


def _has_large_blocks(transfer: Transfer, lowest: float | None) -> bool:
    """Whether a block list is as fast as one copy at its lowest rate in B/s; on CPUs caches decide."""
    scattered = transfer.scattered
    if scattered is None or lowest is None:
        return scattered is None
    least_s = math.inf if transfer.engine is Engine.CPU else _JUDGED_BLOCK_S.get(scattered.method, math.inf)
    is_long = scattered.block >= least_s * lowest and transfer.bytes >= JUDGED_COPY_S * lowest
    return is_long and not is_small(transfer)


def _is_large_enough(network: Network, transfer: Transfer, demand: Demand, lowest: float | None) -> bool:
    """Whether neither the start of the copies nor a cache decides their rate."""
    if transfer.engine is Engine.CPU:
        return transfer.bytes >= max(JUDGED_BYTES, network.machine.last_cache_bytes())
    if not is_small(transfer):
        return True
    gpu = next((gpu for gpu in network.machine.gpus if gpu.name == transfer.source.device), None)
    cache = _GPU_CACHE_BYTES.get(gpu.compute_capability if gpu else "", _ANY_GPU_CACHE_BYTES)
    if not is_between(transfer) and transfer.bytes < cache:
        return False
    far = any(network.links[link].kind is LinkKind.NETWORK for link in demand.weights)
    return not far and lowest is not None and transfer.bytes >= START_S[0] * lowest


#: Time that a copy of a smaller buffer takes besides moving its bytes, in s: at most, and typically.
#: Recorded on two H200s with 4 KiB to 1 GiB: 2.4 to 3.3 µs by copy
#: engines over NVLink, at most 2.1 µs by kernels, 2.3 to 7.0 µs within a GPU.
START_S = (10e-6, 3e-6)


def is_between(transfer: Transfer) -> bool:
    """Whether it connects two devices: the path limits it, not a cache."""
    ends = [(end.rank, end.device) for end in (transfer.source, transfer.destination)]
    return ends[0] != ends[1]
