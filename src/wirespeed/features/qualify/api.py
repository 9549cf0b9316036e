"""The qualification of nodes for Python."""

from __future__ import annotations

import os
from pathlib import Path

from ...api import described
from ...driver.jobs import join
from ...hardware.topology import Machine
from ...judging.judged import Judged
from ...run_errors import RunInterrupted
from ...units import parse_duration, parse_nics
from .cluster import Cluster
from .qualified_run import led, measured, simulated_nodes
from .slurm import topology as switches


def qualify(
    machine: str | None = None,
    *,
    over: str | None = None,
    within: float | str | None = None,
    seed: int = 0,
    topology: str | Path | None = None,
    nics: str = "",
    timeout: float = 60.0,
) -> Judged:
    """Find the slow nodes, NICs, cables and switches of a cluster: ``wirespeed qualify``.

    Call it in all processes of a job, as a launcher started them, or give simulated nodes.

    Args:
        machine: Simulated nodes, such as ``"simulated:dgx-a100-8x16"``; None for the nodes of this job.
        over: ``"tcp"``, ``"nccl"`` or ``"mpi"``; None for NCCL if all nodes have GPUs, else TCP.
        within: Maximum time, in s or such as ``"3min"``.
        seed: Random seed of the choice of partners.
        topology: File with the output of ``scontrol show topology``; None to ask Slurm.
        nics: What the NICs of a node carry, such as ``"8x400G"``.
        timeout: Maximum time for all processes to join, and of one round, in s.

    Returns:
        The run with its verdict; in a job, that of rank 0 has the qualification.

    Raises:
        UsageError: If an argument is invalid, or there is only one node.
        RunInterrupted: On Ctrl-C; it carries the Document.
        WirespeedError: If the nodes cannot be measured any more.
    """
    limit = parse_duration(within) if isinstance(within, str) else within
    given = parse_nics(nics).rate if nics else 0.0

    def qualified(cluster: Cluster, target: Machine) -> Judged:
        asked = {"seed": seed, "within": limit, "machine": machine}
        document, ended = measured(cluster, target, asked, given=given)
        if isinstance(ended, KeyboardInterrupt):
            raise RunInterrupted(document)
        if ended is not None:
            raise ended
        return Judged(document)

    blocks = switches(str(topology) if topology else None, os.environ)
    if machine is not None:
        return qualified(*simulated_nodes(machine, seed))
    world = join(1, (), timeout, partial=True)
    found = led(world, blocks, over, timeout, qualified)
    return Judged(described()) if found is None else found
