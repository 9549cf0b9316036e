"""Messages of several sizes between ranks, as testcases of transfers that start together."""

from __future__ import annotations

from collections.abc import Sequence

from ..hardware.devices import kind_of
from ..hardware.topology import Machine
from ..measurement import Axis, Measurement, Place, Reduce
from ..model import Engine, Executor, Memory, MemoryKind, Transfer
from ..options import PlanOptions
from ..qualification import EndMemory
from ..testcases import Layout, Plan, Testcase

#: A path from a rank to another.
Hop = tuple[int, int]


def messages_between(name: str, hops: Sequence[Hop], sizes: Sequence[int], memory: EndMemory) -> Testcase:
    """The testcase of messages between ranks: a row for each hop, all at once, and a column for each size.

    Args:
        name: Its name.
        hops: Source and destination of each message.
        sizes: Bytes of a message.
        memory: Where messages are sent from and received.
    """

    def plan(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        rows = Axis("rank", tuple(f"rank{a}->rank{b}" for a, b in hops))
        columns = Axis("size", tuple(str(size) for size in sizes))
        measurements = tuple(
            Measurement(
                tuple(_message(machine, hop, size, memory) for hop in hops),
                tuple(Place("", row, column, Reduce.FIRST, (row,)) for row in range(len(hops))),
            )
            for column, size in enumerate(sizes)
        )
        return Plan((Layout("", case.title, rows, columns, case.unit),), measurements)

    return Testcase(name, f"messages between ranks, {memory}", plan, "messages between ranks", Engine.CE)


def _message(machine: Machine, hop: Hop, size: int, memory: EndMemory) -> Transfer:
    """A message that its source sends: of its device, or of pinned memory next to its GPU."""
    device = machine.ranks[hop[0]].device
    engine = Engine.CPU if kind_of(device).is_host else Engine.CE
    source, destination = (_memory(machine, rank, memory) for rank in hop)
    return Transfer(source, destination, Executor(device, hop[0], machine.ranks[hop[0]].cpus), engine, size)


def _memory(machine: Machine, rank: int, memory: EndMemory) -> Memory:
    device = machine.ranks[rank].device
    kind = kind_of(device)
    if memory is EndMemory.GPU or kind.is_host:
        return Memory(device, kind.memories[0], rank)
    near = next((gpu.numa for gpu in machine.gpus if gpu.name == device), 0)
    return Memory(f"numa{near}", MemoryKind.PINNED, rank)
