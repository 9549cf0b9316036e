"""How a run begins: the processes of its job are joined, the machine of all of them is described, and a
Document without results is made.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from ..document import SCHEMA, Document
from ..errors import UsageError
from ..hardware.devices import Gpu, NumaNode
from ..hardware.facts import Fact
from ..hardware.topology import Link, Machine, Rank
from ..options import RunOptions, documented
from ..tables import State
from ..testcases.table import Testcase
from ..version import __version__

if TYPE_CHECKING:
    from ..worlds.base import World


class Observed(msgspec.Struct, frozen=True):
    """What the hardware of a host showed during a run.

    Attributes:
        before: Slow counters before the first testcase.
        after: The same after the last one.
        facts: Facts that were found while measuring.
    """

    before: State = ()
    after: State = ()
    facts: tuple[Fact, ...] = ()


def timestamp() -> str:
    """The time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def blank(machine: Machine, **fields: Any) -> Document:
    """A Document of a machine without results, made by this version on this host now."""
    known: dict[str, Any] = {
        "schema": SCHEMA, "version": __version__, "host": platform.node(), "machine": machine,
        "python": platform.python_version(), "simulated": machine.simulated, "started": timestamp(),
    }  # fmt: skip
    return Document(**known | fields)


def begun(
    machine: Machine,
    testcases: Iterable[Testcase],
    options: RunOptions,
    *,
    command: str = "",
    launcher: str = "",
    warnings: tuple[str, ...] = (),
    described: Mapping[str, Any] | None = None,
    facts: tuple[Fact, ...] = (),
) -> Document:
    """The Document of a run before anything is measured.

    Args:
        machine: Machine that the run is planned for.
        testcases: What it measures, in order.
        options: Options of the run.
        command: Command line.
        launcher: What started the processes of a job; empty for one process.
        warnings: Warnings about the whole run.
        described: Additional options, such as those of a compatible command line.
        facts: What was read of this host.
    """
    return blank(
        machine,
        command=command,
        options={
            "testcases": [case.name for case in testcases],
            "rule": type(options.rule).__name__.lower(),
            **{name: value if math.isfinite(value) else None for name, value in vars(options.rule).items()},
            **documented(options),
            **({"launcher": launcher, "share": options.share} if launcher else {}),
            **(described or {}),
        },
        started="",
        warnings=warnings,
        facts=facts,
    )


T = TypeVar("T")

#: Why several processes measure no simulated machine.
ONE_PROCESS = (
    "a simulated machine is measured in one process: omit --processes and the launcher "
    "(simulated:nvl72 has ranks of its own)"
)
#: Maximum number of processes to start on a host.
_MOST_PROCESSES = 1024

#: The first use of a type by msgspec in several threads at once can crash the process.
_DECODING = threading.Lock()


def join(
    processes: int,
    arguments: Sequence[str],
    timeout: float,
    environment: Mapping[str, str] = os.environ,
    *,
    partial: bool = False,
) -> World | None:
    """Join the job and return the World of this process; None if it is the only process.

    Args:
        processes: Number of processes to start on this host if no launcher started any; 1 starts none.
        arguments: Command line of the started processes.
        timeout: Maximum time for all processes to join, in s.
        partial: Whether the job goes on without processes that do not join, as ``launchers.join`` says.

    Raises:
        WorldError: If the other processes do not join.
    """
    from ..worlds import launchers

    if not 1 <= processes <= _MOST_PROCESSES:
        raise UsageError(f"the number of processes must be from 1 to {_MOST_PROCESSES}, not {processes}")
    if launchers.promised(environment)[1] == 1 and processes == 1:
        return None
    world = launchers.join(
        timeout, processes=processes, arguments=arguments, environment=environment, partial=partial
    )
    if world.size > 1:
        return world
    world.close()
    return None


def gather_machine(world: World, local: Machine) -> Machine:
    """The Machine of all ranks; every process returns the same.

    Each rank owns one device: the GPU with its local rank, or host memory if no rank has a GPU. The
    description of a host is sent once per host.

    Raises:
        UsageError: If the machine is simulated, a host has more ranks than GPUs, or only some have GPUs.
    """
    if local.simulated:
        raise UsageError(ONE_PROCESS)
    content = replace(local, notes=(), numa=tuple(replace(node, free_bytes=0) for node in local.numa))
    digest = hashlib.blake2b(content.to_json(), digest_size=16).hexdigest()
    everyone = world.allgather([digest, [gpu.bus_id or gpu.name for gpu in local.gpus]], "describing ranks")
    digests = [digest for digest, _ in everyone]
    hosts = [member.host for member in world.members]
    unique = [(host, digest) for host, digest in zip(hosts, digests, strict=True)]
    mine = local.to_json() if unique.index(unique[world.rank]) == world.rank else b""
    sent = world.allgather(mine, "describing hosts")
    with _DECODING:
        machines = [
            msgspec.json.decode(sent[unique.index(unique[rank])], type=Machine) for rank in range(world.size)
        ]
    devices = _devices(world, machines, [visible for _, visible in everyone])
    cpus = _cpus(world, machines, devices, digests)
    ranks = tuple(_rank(i, *row) for i, row in enumerate(zip(hosts, devices, cpus, machines, strict=True)))
    name = f"{world.size} ranks on {len(world.hosts)} host{'s' if len(world.hosts) > 1 else ''}"
    return replace(machines[0], name=name, ranks=ranks, links=_links(machines, ranks))


def gather_facts(world: World, read: Callable[[], Sequence[Fact]]) -> tuple[Fact, ...]:
    """The facts of all hosts; the first rank of each host reads them. All ranks return the same.

    Args:
        world: The processes of the job.
        read: Returns the facts of this host.
    """
    facts = _of_hosts(world, read, list[Fact], "reading the facts of all hosts")
    return tuple(structs.replace(fact, host=host) for host in facts for fact in facts[host])


def gather_observed(world: World, observed: Observed) -> Observed:
    """What the other hosts observed during a run. All ranks must call it, and return the same.

    Args:
        world: The processes of the job.
        observed: What this process observed; of each host, the first rank counts.
    """
    hosts = _of_hosts(world, lambda: observed, Observed, "asking all hosts what they observed")
    return Observed(
        *(
            tuple(
                structs.replace(reading, host=host)
                for host, seen in hosts.items()
                if host
                for reading in of(seen)
            )
            for of in (attrgetter("before"), attrgetter("after"), attrgetter("facts"))
        )
    )


def _of_hosts(world: World, read: Callable[[], object], kind: type[T], doing: str) -> dict[str, T]:
    """What the first rank of each host reads, by host; the host of rank 0 is the empty text."""
    hosts = [member.host for member in world.members]
    speaks = hosts.index(hosts[world.rank]) == world.rank
    sent = world.allgather(msgspec.json.encode(read()) if speaks else b"", doing)
    with _DECODING:
        return {
            "" if host == hosts[0] else host: msgspec.json.decode(sent[hosts.index(host)], type=kind)
            for host in dict.fromkeys(hosts)
        }


def _rank(index: int, host: str, device: str, cpus: tuple[int, ...], machine: Machine) -> Rank:
    """A rank with what the description of its host says about its GPU."""
    gpu = next((gpu for gpu in machine.gpus if gpu.name == device), Gpu(0, ""))
    return Rank(index, host, device, cpus, gpu.model, gpu.bus_id, gpu.uuid)


def _devices(world: World, machines: Sequence[Machine], visible: Sequence[Sequence[str]]) -> list[str]:
    if not any(visible):
        return [_node(world.members[r].local_rank, m).name for r, m in enumerate(machines)]
    if without := [world.members[rank] for rank, gpus in enumerate(visible) if not gpus]:
        raise UsageError(
            f"{without[0]} sees no GPU, but other ranks do: use only hosts with GPUs, and check which GPUs "
            "the launcher makes visible to each rank (CUDA_VISIBLE_DEVICES)"
        )  # fmt: skip
    devices = []
    taken: set[tuple[str, str]] = set()
    for member, gpus, machine in zip(world.members, visible, machines, strict=True):
        preferred = gpus[member.local_rank : member.local_rank + 1]
        free = [bus for bus in (*preferred, *gpus) if (member.host, bus) not in taken]
        if not free:
            ranks = sum(other.host == member.host for other in world.members)
            raise UsageError(
                f"{ranks} ranks were started on {member.host}, but {member} can use only {len(gpus)} GPUs, "
                f"one per rank; start {len(gpus)} ranks on each host"
            )
        taken.add((member.host, free[0]))
        devices.append(machine.gpus[list(gpus).index(free[0])].name)
    return devices


def _node(local_rank: int, machine: Machine) -> NumaNode:
    nodes = [node for node in machine.numa if node.cpus and node.memory_bytes]
    if not nodes:
        raise UsageError("found no NUMA node with both cores and memory")
    return nodes[local_rank % len(nodes)]


def _cpus(
    world: World, machines: Sequence[Machine], devices: Sequence[str], digests: Sequence[str]
) -> list[tuple[int, ...]]:
    """Divide the cores of each NUMA node among the ranks that own its memory; none for GPUs."""
    cpus: list[tuple[int, ...]] = []
    for rank, (machine, device) in enumerate(zip(machines, devices, strict=True)):
        cores = next((node.cores for node in machine.numa if node.name == device), ())
        key = (world.members[rank].host, device, digests[rank])
        sharing = [
            r for r, member in enumerate(world.members) if (member.host, devices[r], digests[r]) == key
        ]
        place = sharing.index(rank)
        if len(cores) < len(sharing):  # some ranks share a core
            cpus.append(cores[place % len(cores) :][:1] if cores else ())
        else:
            cpus.append(cores[len(cores) * place // len(sharing) : len(cores) * (place + 1) // len(sharing)])
    return cpus


def _links(machines: Sequence[Machine], ranks: Sequence[Rank]) -> tuple[Link, ...]:
    """The links of all hosts, with vertices that are unique across hosts.

    A rank's device is ``3/gpu0``. Other vertices of the first host keep their name; on other hosts the name
    of the host is added. Every host gets separate NVLink switches: whether they are connected is unknown.
    """
    links: dict[Link, None] = {}
    bus_of = {(i, gpu.name): gpu.bus_id or gpu.name for i, m in enumerate(machines) for gpu in m.gpus}
    owner = {(r.host, bus_of.get((r.index, r.device), r.device)): r.index for r in reversed(ranks)}
    first = ranks[0].host
    for rank in ranks:

        def vertex(name: str, rank: Rank = rank) -> str:
            bus = bus_of.get((rank.index, name), name)
            if (rank.host, bus) in owner:
                of = ranks[owner[rank.host, bus]]
                return f"{of.index}/{of.device}"
            return name if rank.host == first else f"{rank.host}:{name}"

        for link in machines[rank.index].links:
            moved = replace(link, source=vertex(link.source), destination=vertex(link.destination))
            links[moved] = None
    return tuple(links)
