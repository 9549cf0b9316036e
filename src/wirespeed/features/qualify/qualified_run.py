"""A qualification as a run: from the nodes to its Document, for the command and for Python."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from ...backends import describe
from ...document import UNFINISHED, Document
from ...driver.jobs import blank, timestamp
from ...errors import UsageError, WirespeedError
from ...hardware.topology import Machine
from ...qualification import Qualification
from ...run_errors import SIGNALLED
from ...worlds.base import World
from .cluster import Cluster
from .job import lead, serve
from .procedure import Procedure
from .simulated_cluster import parse_cluster
from .slurm import hosts_of

T = TypeVar("T")
_SIMULATED = "simulated:"
#: What is wrong if there are no several nodes.
_SEVERAL = (
    "qualify requires several nodes: start it with mpirun or srun on all of them (one is measured by "
    "`wirespeed check`), or try --machine simulated:dgx-a100-8x16"
)


def simulated_nodes(machine: str, seed: int) -> tuple[Cluster, Machine]:
    """Simulated nodes, and the machine that each of them is.

    Raises:
        UsageError: If the text is not one of several nodes.
    """
    spec, cluster = machine.removeprefix(_SIMULATED), None
    if spec != machine:
        cluster = parse_cluster(spec, seed=seed)
    if cluster is None:
        raise UsageError(
            f"--machine {machine} is not several nodes: write e.g. simulated:dgx-a100-8x64, "
            "or start wirespeed qualify on real nodes with mpirun or srun"
        )
    return cluster, describe(_SIMULATED + cluster.machine)


def led(
    world: World | None,
    blocks: Mapping[str, str],
    over: str | None,
    timeout: float,
    measure: Callable[[Cluster, Machine], T],
) -> T | None:
    """What a function returns for the nodes of a job, on rank 0; the others obey, and have None.

    Raises:
        UsageError: If there is only one node.
        WirespeedError: On other ranks, if rank 0 has ended.
    """
    if world is None:
        raise UsageError(_SEVERAL)
    try:
        if world.rank:
            serve(world, timeout)
            return None
        expected = hosts_of(os.environ.get("SLURM_JOB_NODELIST", ""))
        cluster = lead(world, blocks, expected, over, timeout)
        try:
            if len(cluster.nodes) < 2:
                raise UsageError(_SEVERAL)
            return measure(cluster, describe(None))
        finally:
            with suppress(WirespeedError):  # they may have ended
                cluster.close()
    finally:
        world.close()


def measured(
    cluster: Cluster,
    machine: Machine,
    asked: Mapping[str, Any],
    *,
    given: float = 0.0,
    command: str = "",
    said: Callable[[Document, Qualification], None] = lambda document, qualification: None,
) -> tuple[Document, BaseException | None]:
    """Measure nodes; return the run, and what ended it early.

    Args:
        cluster: The nodes.
        machine: The machine of each node, or of this one.
        asked: ``within`` in s or None, ``seed``, and further options of the run for its Document.
        given: What the NICs of a node carry in one direction, in B/s; 0 for what their ports say.
        command: Command line, for the Document.
        said: Called after each round, with what is known.
    """
    began = timestamp()

    def known(qualification: Qualification, interrupted: str) -> Document:
        seconds = math.fsum(each.seconds for each in qualification.rounds)
        return blank(
            machine, command=command, options=dict(asked), started=began, ended=timestamp(), seconds=seconds,
            interrupted=interrupted, qualification=qualification, facts=cluster.facts,
        )  # fmt: skip

    procedure = Procedure(
        cluster, math.inf if asked["within"] is None else asked["within"], asked["seed"],
        said=lambda qualification: said(known(qualification, UNFINISHED), qualification), given=given,
    )  # fmt: skip
    try:
        return known(procedure.run(), ""), None
    except KeyboardInterrupt as error:
        SIGNALLED.heard()
        return known(procedure.qualification, "interrupted"), error
    except WirespeedError as error:
        return known(procedure.qualification, str(error)), error
