"""Processes with their rank in the environment: torchrun, Kubernetes, a shell loop."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..errors import UsageError
from .base import World
from .rendezvous import connect, gather, listen

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def present(environment: Mapping[str, str]) -> bool:
    """Return whether the environment contains a rank.

    Raises
    ------
    UsageError
        If only some of the required variables are set.
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return False
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing and environment["WORLD_SIZE"] != "1":
        raise UsageError(
            f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}: set all of {', '.join(_NEEDED)}, "
            "or none"
        )
    return not missing


def join(environment: Mapping[str, str], timeout: float) -> World:
    """Return the World that the environment describes.

    Raises
    ------
    UsageError
        If a number is invalid.
    WorldError
        If the others do not join in time.
    """
    try:
        rank, size, port = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        local = int(environment.get("LOCAL_RANK", "-1"))
    except ValueError as error:
        raise UsageError(
            f"RANK, LOCAL_RANK, WORLD_SIZE and MASTER_PORT must be whole numbers: {error}"
        ) from error
    if not 0 <= rank < size:
        raise UsageError(f"RANK is {rank}; it must be from 0 to WORLD_SIZE - 1 = {size - 1}")
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun's agent listens on MASTER_PORT itself
    if not 0 < port < 2**16:
        raise UsageError(f"MASTER_PORT is {environment['MASTER_PORT']}; the port must be from 1 to 65535")
    launcher = "RANK and WORLD_SIZE in the environment"
    if rank == 0:
        return gather(listen(port), size, launcher, timeout, local=local)
    return connect([environment["MASTER_ADDR"]], port, rank, size, launcher, timeout, local)


def promised(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return the variable by which a launcher promises the most ranks, and their number; 1 without one."""
    found = [("", 1)]
    for name in (
        "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS",
    ):  # fmt: skip
        if name == "SLURM_NTASKS" and "SLURM_STEP_ID" not in environment:
            continue  # the batch script of a job, not a task started by srun
        if environment.get(name, "").isdecimal():
            found.append((name, int(environment[name])))
    return max(found, key=lambda pair: pair[1])
