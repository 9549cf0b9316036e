"""The cluster of a job: rank 0 leads, the others measure what it says."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ...backends.host.nic_facts import is_disabled
from ...errors import WirespeedError
from ...worlds.base import RankLost, World
from ...worlds.crew import Crew
from .job_nodes import OWN_S, introduce, introduction, work
from .node_facts import interface_of
from .process_cluster import ProcessCluster
from .tcp_probe import TcpProbe
from .transfer_cluster import TRANSFERS, TransferCluster, transfer

#: What carries the bytes between nodes.
OVER = ("tcp", "nccl", "mpi")
_SECRET_BYTES = 32
#: Maximum time between two tasks beyond the time-out, in s: inference and printing.
_PATIENCE_S = 60.0


def lead(
    world: World, blocks: Mapping[str, str], expected: Sequence[str], over: str | None,
    patience: float,
) -> ProcessCluster | TransferCluster:  # fmt: skip
    """The nodes of the job; on rank 0.

    Args:
        world: The processes.
        blocks, expected: As for `introduce`.
        over: One of `OVER`; None for NCCL if all nodes have GPUs and NCCL, else TCP.
        patience: Maximum time of a round, in s.

    Raises:
        WirespeedError: If NCCL or MPI is asked for, but processes are missing.
    """
    crew, secret = Crew(world), secrets.token_bytes(_SECRET_BYTES)
    probe = TcpProbe(secret)
    try:
        job = introduce(crew, secret, probe, blocks, expected, min(OWN_S, patience))
        if over is None:
            usable = len(job.gpus) == len(job.nodes) and not crew.lost and not job.without_nccl
            over = "nccl" if usable else "tcp"
        if over == "tcp":
            return ProcessCluster(crew, job, probe, patience)
        if crew.lost:
            rank, why = next(iter(crew.lost.items()))
            crew.dismiss(_PATIENCE_S)
            raise WirespeedError(
                f"rank {rank} {why}: --transport {over} requires all processes; "
                "--transport tcp goes on without some"
            )
        return TransferCluster(crew, job, probe, patience, over)
    except BaseException:
        probe.close()
        raise


def serve(world: World, patience: float) -> None:
    """Measure what rank 0 says, on other ranks.

    Raises:
        WirespeedError: If rank 0 or, over NCCL and MPI, another process has ended.
    """
    probes: list[TcpProbe] = []
    interface = ""

    def answer(task: Any) -> Any:
        nonlocal interface
        if not probes:
            probes.append(TcpProbe(bytes(task[0])))
            interface = interface_of(str(task[1]))
            return introduction(probes[0].port, task)
        return transfer(world, *task[1:])[1] if task[0] == TRANSFERS else work(probes[0], task)

    try:
        Crew(world).serve(answer, patience + _PATIENCE_S)
    except RankLost as error:
        if interface and is_disabled(interface):
            raise RankLost(f"{error}: {interface} of this node is down") from None
        raise
    finally:
        for probe in probes:
            probe.close()
