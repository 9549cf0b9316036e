"""From the parsed form to the Transfers of a machine: names, executors, engines and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from ...hardware.devices import is_host, kind_of
from ...hardware.topology import Machine
from ...model import (
    Engine,
    Executor,
    Memory,
    MemoryKind,
    Operation,
    Transfer,
)
from ...statistics import grouped
from ...testcases.base import DEFAULT_SIZE
from ...testcases.device import CHASE_SIZE
from ...testcases.host import chase_size, streaming_size
from .syntax import Devices, LanguageError, Line, Source, Span, Statement

#: Largest number of transfers in a line.
MOST_TRANSFERS = 4096
_KERNELS = (Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)


@dataclass(frozen=True)
class Labelled:
    """A transfer with the label of its result.

    Attributes:
        work: The transfer.
        label: Its label, such as ``gpu0->gpu1``.
    """

    work: Transfer
    label: str


@dataclass(frozen=True)
class _End:
    """A device of one side: the name by which sides are paired, and its memory."""

    base: str
    memory: Memory


def resolve(line: Line, machine: Machine, size: int | None = None) -> list[Labelled]:
    """The transfers of a line on a machine.

    Args:
        line: The line.
        machine: The machine.
        size: Bytes of one buffer where the words say nothing; None for the default of its executor.

    Raises:
        LanguageError: If a name does not exist on the machine, or a transfer is not possible.
    """
    works: list[Labelled] = []
    statements: list[Statement] = []
    resolver = _Resolver(line.source, machine, size)
    for statement in line.statements:
        works += resolver.works(statement)
        statements += [statement] * (len(works) - len(statements))
        if len(works) > MOST_TRANSFERS:
            raise resolver.too_many(statement)
    return resolver.with_cores(works, statements)


class _Resolver:
    """Knows a machine and the text, for errors."""

    def __init__(self, source: Source, machine: Machine, size: int | None) -> None:
        self.source, self.machine, self.size = source, machine, size
        self.devices = {device.name: device for device in machine.devices}
        self.nodes = {node.name: node for node in machine.numa}

    def wrong(self, message: str, span: Span) -> LanguageError:
        return self.source.error(message, *span)

    def too_many(self, statement: Statement) -> LanguageError:
        return self.wrong(f"more than {MOST_TRANSFERS} transfers; use fewer devices", statement.span)

    def works(self, statement: Statement) -> list[Labelled]:
        """The works that a statement starts."""
        return [
            Labelled(self._transfer(statement, *flow, executor), _label(statement, *flow))
            for flow in self._pairs(statement)
            for executor in self._executors(statement, *flow)
        ]

    def _pairs(self, statement: Statement) -> list[tuple[_End, _End]]:
        """Pair the two sides: device by device if both name the same devices, else all with all."""
        sources, destinations = self.ends(statement.sources), self.ends(statement.destinations)
        if len(sources) > 1 and [end.base for end in sources] == [end.base for end in destinations]:
            return list(zip(sources, destinations, strict=True))
        if len(sources) * len(destinations) > MOST_TRANSFERS:
            raise self.too_many(statement)
        return list(product(sources, destinations))

    def ends(self, devices: Sequence[Devices]) -> list[_End]:
        """The memories of one side, in order."""
        return [end for named in devices for end in self._ends(named)]

    def _ends(self, devices: Devices) -> list[_End]:
        if devices.kind == "rank":
            ends = [self._rank(index, devices) for index in self._existing(devices)]
        else:
            ends = [self._device(f"{devices.kind}{index}") for index in self._existing(devices)]
        for wrapper in reversed(devices.wrappers):
            ends = [self._wrapped(wrapper, end, devices) for end in ends]
        return ends

    def _existing(self, devices: Devices) -> Sequence[int]:
        """The numbers of devices, which must exist."""
        existing = (
            [rank.index for rank in self.machine.ranks] if devices.kind == "rank"
            else [device.index for device in self.devices.values() if device.prefix == devices.kind]
        )  # fmt: skip
        if not existing:
            why = (
                f" ({'; '.join(self.machine.notes)})" if self.machine.notes and devices.kind == "gpu" else ""
            )
            advice = ": start several with --processes N or a launcher" if devices.kind == "rank" else ""
            wanted = "ranks" if devices.kind == "rank" else kind_of(f"{devices.kind}0").words[0]
            raise self.wrong(f"this machine has no {wanted}{why}{advice}", devices.span)
        if devices.indices is None:
            return existing
        for index in devices.indices:
            if index not in existing:
                name, known = f"{devices.kind}{index}", [f"{devices.kind}{i}" for i in existing]
                whole = existing == list(range(len(existing))) and len(existing) > 2
                listed = f"{known[0]} to {known[-1]}" if whole else ", ".join(known[:16])
                raise self.wrong(f"{name}: this machine has {listed}", devices.span)
        return devices.indices

    def _device(self, name: str) -> _End:
        """The memory of a device; host memory is pinned if a device executes."""
        kind = kind_of(name)
        return _End(name, Memory(name, MemoryKind.PINNED if kind.is_host else kind.memories[0]))

    def _rank(self, index: int, devices: Devices) -> _End:
        rank = self.machine.ranks[index]
        if devices.owned is not None:
            owned = f"{devices.owned.kind}{(devices.owned.indices or (0,))[0]}"
            if owned != rank.device:
                raise self.wrong(f"rank{index} owns {rank.device}, not {owned}", devices.owned.span)
        return _End(f"rank{index}", Memory(rank.device, kind_of(rank.device).memories[0], index))

    def _wrapped(self, wrapper: str, end: _End, devices: Devices) -> _End:
        """The nearest host memory of a GPU, or pageable host memory."""
        if end.memory.rank is not None:
            raise self.wrong(
                f"{wrapper}() is not possible for ranks, which own one memory each", devices.span
            )
        if wrapper == "near":
            if is_host(end.memory.device):
                raise self.wrong(
                    "near() takes a GPU: it is the NUMA node that is nearest to it", devices.span
                )
            index = self.devices[end.memory.device].node
            node = next((node.name for node in self.machine.numa if node.index == index), None)
            if node is None:
                raise self.wrong(f"the NUMA node of {end.memory.device} is unknown", devices.span)
            return _End(end.base, Memory(node, MemoryKind.PINNED))
        if MemoryKind.PAGEABLE not in kind_of(end.memory.device).memories:
            raise self.wrong("pageable() takes host memory, such as numa0 or near(gpu0)", devices.span)
        return replace(end, memory=replace(end.memory, kind=MemoryKind.PAGEABLE))

    def _transfer(
        self, statement: Statement, source: _End, destination: _End, executor: Executor
    ) -> Transfer:
        words, places = statement.words, statement.places
        given = source.memory, destination.memory
        kind = kind_of(executor.device)
        gpu = not kind.is_host
        if any(memory.kind is MemoryKind.FILE for memory in given):
            raise self.wrong("storage has testcases: `wirespeed run -p storage_`", statement.span)
        if not kind.engines:
            raise self.wrong(f"{executor} executes no transfers; name what does: by numa0", statement.span)
        operation = Operation.CHASE if statement.latency else Operation.COPY
        chases_by_kernel = statement.latency and Engine.SM in kind.engines
        engine = words.engine or (Engine.SM if chases_by_kernel else kind.engines[0])
        if engine not in kind.engines:
            *first, last = map(str, kind.engines)
            fitting = f"{', '.join(first)} or {last}" if first else last
            raise self.wrong(f"{executor} executes with {fitting}, not with {engine}", places["engine"])
        if statement.latency and engine not in (Engine.SM, Engine.SM_BULK, Engine.CPU):
            raise self.wrong(f"the engine {engine} only copies; a {operation} needs sm", places["engine"])
        origin, target = (self._allocated(memory, gpu, statement) for memory in given)
        if operation is Operation.CHASE:
            target = origin
        executor = self._shaped(executor, engine, operation, statement)
        return Transfer(
            origin, target, executor, engine, self._size(statement, gpu, operation), statement.role,
            operation,
        )  # fmt: skip

    def _allocated(self, memory: Memory, gpu: bool, statement: Statement) -> Memory:
        """A memory as its executor needs it: host memory is pageable for CPUs, pinned for GPUs."""
        if gpu:
            return memory
        if memory.kind is MemoryKind.DEVICE:
            kind = kind_of(memory.device)
            use = " or ".join(kind.engines[:2])
            raise self.wrong(f"CPUs cannot access the memory of a {kind.words[0]}; use {use}", statement.span)
        return replace(memory, kind=MemoryKind.PAGEABLE)

    def _executors(self, statement: Statement, source: _End, destination: _End) -> list[Executor]:
        """The devices that execute: the side that the arrow names, or those behind ``by``."""
        if statement.executors:
            chosen = self.ends(statement.executors)
            bases = [end.base for end in chosen]
            for side, end in ((statement.sources, source), (statement.destinations, destination)):
                if len(bases) > 1 and bases == [other.base for other in self.ends(side)]:
                    chosen = [other for other in chosen if other.base == end.base]  # each executes its own
                    break
        else:
            active, passive = (destination, source) if statement.pulls else (source, destination)
            if is_host(active.memory.device) and not is_host(passive.memory.device):
                active = passive  # CPUs cannot access the memory of devices
            chosen = [active]
        return [Executor(end.memory.device, end.memory.rank) for end in chosen]

    def _shaped(
        self, executor: Executor, engine: Engine, operation: Operation, statement: Statement
    ) -> Executor:
        """The executor with the shape of its kernel."""
        words = statement.words
        is_kernel = engine in _KERNELS and operation is not Operation.CHASE
        for name, is_fitting in (("blocks", is_kernel), ("threads", is_kernel or engine is Engine.CPU)):
            if getattr(words, name) and not is_fitting:
                use = f"only a kernel has {name}: use sm, sm_bulk or sm_split"
                raise self.wrong(use, statement.places[name])
        if not is_kernel:
            return executor  # CPUs get cores when all transfers are known
        return replace(executor, blocks=words.blocks or 0, threads=words.threads or 0)

    def with_cores(self, works: Sequence[Labelled], statements: Sequence[Statement]) -> list[Labelled]:
        """Give cores to the transfers by CPUs: no core works for two of them.

        Transfers that want a number of cores get the first free ones of their node; the others share the
        rest.
        """
        transfers = [each.work for each in works]
        cpus_of: dict[int, tuple[int, ...]] = {}
        for executor, indices in grouped(
            (each.executor, i) for i, each in enumerate(transfers) if each.engine is Engine.CPU
        ).items():  # fmt: skip
            rank = executor.rank
            cores = self.nodes[executor.device].cores if rank is None else self.machine.ranks[rank].cpus
            free = cores
            there = f"{executor.device} has {len(cores)} cores"
            wanted = {i: self._wanted(transfers[i], statements[i]) for i in indices}
            for i in (i for i in indices if wanted[i]):
                if wanted[i] > len(free):
                    few = f"{there}, {len(free)} of them free, not {wanted[i]}"
                    raise self.wrong(few, statements[i].span)
                cpus_of[i], free = free[: wanted[i]], free[wanted[i] :]
            sharing = [i for i in indices if not wanted[i]]
            if len(free) < len(sharing):
                few = f"{there}, {len(free)} of them free: too few for this line"
                raise self.wrong(few, statements[sharing[-1]].span)
            for place, i in enumerate(sharing):
                begin, end = (len(free) * edge // len(sharing) for edge in (place, place + 1))
                cpus_of[i] = free[begin:end]
        given = list(works)
        for i, cpus in cpus_of.items():
            executor = replace(transfers[i].executor, cpus=cpus)
            given[i] = replace(works[i], work=replace(transfers[i], executor=executor))
        return given

    def _wanted(self, transfer: Transfer, statement: Statement) -> int:
        """The number of cores that a transfer wants; 0 for a share."""
        return 1 if transfer.operation is Operation.CHASE else statement.words.threads or 0

    def _size(self, statement: Statement, gpu: bool, operation: Operation) -> int:
        if statement.words.size:
            return statement.words.size
        if operation is Operation.CHASE:
            return CHASE_SIZE if gpu else chase_size(self.machine)
        return self.size or (DEFAULT_SIZE if gpu else streaming_size(self.machine))


def _label(statement: Statement, source: _End, destination: _End) -> str:
    """The label of the result of a transfer: ``gpu0->gpu1``, or ``gpu0 from gpu1`` for a latency."""
    origin, target = (
        end.memory.device if end.memory.rank is None else f"rank{end.memory.rank}"
        for end in (source, destination)
    )
    return f"{target} from {origin}" if statement.latency else f"{origin}->{target}"
