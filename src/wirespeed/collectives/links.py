"""What the links between the ranks of a collective allow, and the simulated provider's rates."""

from __future__ import annotations

from collections.abc import Sequence

from ..data import efficiencies
from ..errors import MachineError
from ..limits import Network, fair_shares, rate_of
from ..model import Access, Engine, Executor, Memory, MemoryKind, Transfer
from ..topology import LinkKind, Machine
from ..units import MIB


def ring(machine: Machine, ranks: int) -> tuple[Transfer, ...]:
    """Return the transfers from each rank's GPU to the next one's, of the first so many ranks.

    Raises
    ------
    MachineError
        If the machine has fewer.
    """
    if machine.ranks:
        ends = [Memory(rank.device, MemoryKind.DEVICE, rank.index) for rank in machine.ranks]
    else:
        ends = [Memory(gpu.name, MemoryKind.DEVICE) for gpu in machine.gpus]
    if len(ends) < ranks:
        raise MachineError(f"{ranks} ranks need {ranks} GPUs; {machine.name or machine.host} has {len(ends)}")
    chosen = ends[:ranks]
    return tuple(
        Transfer(end, chosen[(i + 1) % ranks], Executor(end.device, end.rank), Engine.SM, MIB)
        for i, end in enumerate(chosen)
    )


def bus_rate(machine: Machine, ranks: int) -> float:
    """Return the rate of the slowest hop of a ring of ranks, all hops at once, in B/s.

    Raises
    ------
    MachineError
        If there are not so many GPUs, or nothing joins them.
    """
    network = Network(machine)
    demands = [network.demand(transfer, machine.rates) for transfer in ring(machine, ranks)]
    return min(fair_shares(demands, network.capacities()))


def limit(machine: Machine, devices: Sequence[str]) -> float | None:
    """Return the line rate at which the slowest of some GPUs can send, in B/s.

    No collective's bus bandwidth exceeds it unless the switch reduces: the factor is derived from
    what must leave every rank. None where a rate is unknown, or the ranks are on several hosts.
    """
    rates = []
    for device in devices:
        for kind in (LinkKind.NVLINK, LinkKind.PCIE):
            found = [x.capacity for x in machine.links if x.source == device and x.kind is kind]
            if found:
                rates.append(sum(c for c in found if c) if all(found) else None)
                break
        else:
            return None
    known = [rate for rate in rates if rate]
    return min(known) if len(devices) > 1 and known and len(known) == len(rates) else None


def normal(machine: Machine, devices: Sequence[str]) -> tuple[float, float] | None:
    """Return the least bus bandwidth of large arrays that is normal among some GPUs, and the typical, in B/s.

    None where their limit is not known, or they are not joined by NVLink alone.
    """
    allowed = limit(machine, devices)
    joined = {x.source for x in machine.links if x.kind is LinkKind.NVLINK}
    if allowed is None or not joined.issuperset(devices):
        return None
    low, typical = (rate_of(rates, Engine.NCCL, LinkKind.NVLINK, Access.READ) for rates in efficiencies())
    return low.efficiency * allowed, typical.efficiency * allowed
