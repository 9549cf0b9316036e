"""Large messages between two nodes: their testcases, and what they show."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...hardware.devices import kind_of
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce
from ...model import Engine, Executor, Memory, MemoryKind, Transfer
from ...options import PlanOptions
from ...qualification import (
    OF_SEVERAL,
    EndMemory,
    PartKind,
    Qualification,
    SizeCurve,
    SlowPart,
    Stage,
    part_name,
)
from ...testcases.table import Layout, Plan, Testcase
from ...thresholds.clusters import JUDGED_SIZES
from ...units import KIB
from .limits import below as below_limit
from .pairing import Pair
from .recorder import RoundRecorder

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


#: Sizes of messages, in bytes, and the longest time that one may take, but for the smallest, in s.
_SIZES = tuple(128 * KIB << i for i in range(10))
_LONGEST_MESSAGE_S = 0.6
#: How often a slow path is measured again before it is blamed.
_CONFIRMATIONS = 2


def by_sizes(
    procedure: RoundRecorder, pair: Pair, suspects: Sequence[SlowPart]
) -> tuple[list[SlowPart], list[SlowPart]]:
    """Measure large messages between two nodes, which confirm and find paths below their limits.

    Args:
        procedure: Measures and records.
        pair: The nodes.
        suspects: What is slow by the rounds of pairs.

    Returns:
        left: The suspects of which they say nothing, still to be confirmed.
        confirmed: Slow paths.
    """
    paths = procedure.qualification.paths.items()
    rate = min((min(values) for (a, b, _), values in paths if {a, b} == set(pair)), default=0.0)
    sizes = sizes_at(rate)
    memories = procedure.cluster.memories
    for memory in memories:
        for both in (False, True):
            if procedure.in_time(Stage.SIZES, "large messages"):
                _measure(procedure, pair, memory, both, sizes)
    left, confirmed = confirmed_by_sizes(procedure.qualification, pair, suspects, memories)
    procedure.notes += [
        f"{part_name(part, procedure.cluster.nodes)} had slow paths, but not with large messages"
        for part in suspects
        if part.kind is PartKind.ALIKE and not any(part.rail == each.rail for each in (*left, *confirmed))
    ]
    rails = {part.rail for part in suspects if part.limited}
    # Where paths vary as much as that nothing can be judged, messages do, too.
    below = below_by_sizes(procedure.qualification) if procedure.qualification.compared else []
    more = [part for part in below if part.rail not in rails]
    found: list[SlowPart] = []
    for memory in memories:
        for both in (False, True):
            mine = [part for part in more if (part.memory, part.both) == (memory, both)]
            for _ in range(_CONFIRMATIONS):
                if mine and not procedure.in_time(Stage.SIZES, "confirmation"):
                    left, mine = [*left, *mine], []
                if mine:
                    _measure(procedure, pair, memory, both, sizes)
                    slow = {part.rail for part in below_by_sizes(_with_last(procedure.qualification))}
                    mine = [part for part in mine if part.rail in slow]
            found += [msgspec.structs.replace(part, confirmed=True) for part in mine]
    return left, confirmed + _of_all(found, len(memories))


def _of_all(parts: Sequence[SlowPart], memories: int) -> list[SlowPart]:
    """Slow paths, those of all kinds of memory once: the slowest, with no memory."""
    same: dict[tuple[int, bool], list[SlowPart]] = {}
    for part in parts:
        same.setdefault((part.rail, part.both), []).append(part)
    merged = []
    for of_rail in same.values():
        worst = min(of_rail, key=lambda part: part.value)
        sends = {part.nodes if part.sends else () for part in of_rail}
        whole = len(of_rail) == memories > 1 and len(sends) == 1
        merged += [msgspec.structs.replace(worst, memory=None)] if whole else of_rail
    return merged


def _measure(
    procedure: RoundRecorder, pair: Pair, memory: EndMemory, both: bool, sizes: Sequence[int]
) -> None:
    """A round of messages, recorded and reported."""
    started = procedure.cluster.seconds()
    rows = procedure.cluster.sizes(pair, memory, both, sizes)
    fields = {"sizes": tuple(sizes), "memory": memory, "both": both}
    procedure.ended(Stage.SIZES, [pair] * len(sizes), rows, started, **fields)


def _with_last(qualification: Qualification) -> Qualification:
    """Only the last of the rounds of messages."""
    *others, last = qualification.rounds
    rounds = (*(each for each in others if each.stage is not Stage.SIZES), last)
    return msgspec.structs.replace(qualification, rounds=rounds)


def sizes_at(rate: float) -> list[int]:
    """The sizes of messages on a path with a rate in bytes per second: large, so that start-up is short."""
    fits = [size for size in _SIZES if size <= _LONGEST_MESSAGE_S * rate]
    return fits[-JUDGED_SIZES:] if len(fits) > JUDGED_SIZES else list(_SIZES[:JUDGED_SIZES])


def confirmed_by_sizes(
    qualification: Qualification, pair: Pair, suspects: Sequence[SlowPart], memories: Sequence[EndMemory]
) -> tuple[list[SlowPart], list[SlowPart]]:
    """Which suspects large messages between two nodes confirm: they are below their limits, too.

    Args:
        qualification: With messages of several sizes.
        pair: The nodes.
        suspects: Slow parts.
        memories: Where messages are sent from; the first is that of the rounds of pairs.

    Returns:
        left: Those of which messages say nothing, or not the same. Of rails of many nodes they decide: more
            connections fill a path.
        confirmed: Those that are confirmed; with the memory if messages from another one are fast.
    """
    left: list[SlowPart] = []
    confirmed: list[SlowPart] = []
    for part in suspects:
        ways = [pair, pair[::-1]] if part.sends is None else [part.nodes[:2]]
        reaches: dict[EndMemory, list[bool]] = {}
        for curve in qualification.curves if part.limited and part.kind in OF_SEVERAL else ():
            ends = (curve.source, curve.target)
            limit = qualification.limit_of(ends, curve.rail)
            if limit and ends in ways and part.rail in (curve.rail, -1) and not curve.both:
                reaches.setdefault(curve.memory, []).append(curve.large >= limit.least)
        usual, *others = (reaches.get(memory, []) for memory in memories)
        if not usual or all(usual):
            left += [part] if not usual or part.kind is PartKind.PATH else []
            continue
        fast = bool(others) and all(other and all(other) for other in others)
        confirmed.append(msgspec.structs.replace(part, confirmed=True, memory=memories[0] if fast else None))
    return left, confirmed


def below_by_sizes(qualification: Qualification) -> list[SlowPart]:
    """The paths whose large messages reach less than the NICs carry, the slowest first; not confirmed yet.

    Of each kind of memory, and one direction before both at once: if the former is slow, so is the latter.
    """
    found: list[SlowPart] = []
    slow: set[tuple[object, ...]] = set()
    kinds: dict[tuple[object, bool], list[SizeCurve]] = {}
    for curve in qualification.curves if qualification.has_limits else ():
        kinds.setdefault((curve.memory, curve.both), []).append(curve)
    for (_, both), curves in sorted(kinds.items(), key=lambda kind: kind[0][1]):
        large = {(curve.source, curve.target, curve.rail): curve.large for curve in curves}
        for part in below_limit(qualification, large, both=both):
            key = (curves[0].memory, part.rail)
            if key not in slow:
                slow.add(key)
                found.append(msgspec.structs.replace(part, memory=curves[0].memory, both=both))
    return sorted(found, key=lambda part: part.value)
