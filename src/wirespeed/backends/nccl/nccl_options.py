"""How the provider of collectives uses NCCL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NcclOptions:
    """How NCCL is used.

    Attributes:
        threads, gpus: Number of threads per process, and of GPUs per thread.
        first: CUDA's index of the first GPU; -1 to choose it by the local rank.
        unalign: Offset of the buffers from an aligned address, in elements.
        registration: Registration of buffers: 0 none, 1 per rank, 2 symmetric.
        policy: CTA policy of NCCL; -1 for NCCL's default.
        null_stream: Whether operations use the default stream.
        parallel_init: Whether each thread initialises its own ranks.
        bus_ids: PCI bus IDs of the GPUs, one per rank of this process; empty to use ``first``.
        p2p_peers: Maximum number of ranks that a rank exchanges messages with, for NCCL 2.30 or later; 0 if
            unknown.
        implementation, blocks: Implementation with kernels of the device API, and blocks of their grid; 0 for
            the functions of NCCL.
    """

    threads: int = 1
    gpus: int = 1
    first: int = -1
    unalign: int = 0
    registration: int = 0
    policy: int = -1
    null_stream: bool = False
    parallel_init: bool = False
    bus_ids: tuple[str, ...] = ()
    p2p_peers: int = 0
    implementation: int = 0
    blocks: int = 0
