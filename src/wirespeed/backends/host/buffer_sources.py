"""Where the buffers of transfers come from: the pool of this process, or memory shared between processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ...model import BUFFERS, Memory, Operation, Transfer
from ...options import RunOptions
from ...topology import Machine
from ..distributed.endpoint import LocalTransfer
from ..distributed.transports import TWO_SIDED
from ..word_pattern import keys_of
from . import kernels
from .bound_transfer import BoundTransfer, bypasses, split, whole_lines
from .memory import HostBuffer, HostBufferPool
from .threads import Task

#: Tasks with the CPUs on which they run.
Tasks = list[tuple[int, Task[Any]]]
#: Run tasks at the same time and return their results; the text names the stage.
Run = Callable[[Tasks, str], list[Any]]


class PoolBuffers:
    """Buffers from the pool of this process.

    Attributes:
        taken: Buffers to give back.
    """

    def __init__(self, pool: HostBufferPool, machine: Machine, options: RunOptions) -> None:
        self.taken: list[HostBuffer] = []
        self._pool, self._machine, self._options = pool, machine, options

    def bind(self, index: int, transfer: Transfer, rows: Iterator[int], run: Run) -> BoundTransfer:
        """Take the buffers of a transfer, and touch the new ones from threads of their nodes."""
        chase, cpus = transfer.operation is Operation.CHASE, transfer.executor.cpus
        sources, destinations = BUFFERS[transfer.operation]
        # Cycles of equal size have the same key, so that the next Measurement can reuse them.
        keys = keys_of(self._options.seed, -1 if chase else index)
        holds = (whole_lines(transfer), keys[0]) if chase else None
        return BoundTransfer(
            transfer,
            tuple(islice(rows, len(cpus))),
            helpers=(self._cpus_of(transfer.source) or cpus) if chase else cpus,
            sources=tuple(self._take(transfer.source, transfer, run, holds) for _ in range(sources)),
            destination=self._take(transfer.destination, transfer, run) if destinations else None,
            keys=keys,
            streaming=bypasses(transfer, self._machine),
            cached=whole_lines(transfer) <= self._machine.last_cache_bytes(),
        )

    def give_back(self) -> None:
        """Give all buffers back to the pool."""
        for buffer in self.taken:
            self._pool.give(buffer)
        self.taken.clear()

    def _take(
        self, memory: Memory, transfer: Transfer, run: Run, holds: tuple[int, ...] | None = None
    ) -> HostBuffer:
        node = next(n.index for n in self._machine.numa if n.name == memory.device)
        cpus = self._cpus_of(memory) or transfer.executor.cpus

        def touch(buffer: HostBuffer) -> None:
            parts = zip(cpus, split(buffer.bytes, len(cpus)), strict=True)
            tasks: Tasks = [(cpu, partial(kernels.touch, buffer.address, *part)) for cpu, part in parts]
            run(tasks, f"touching memory of {memory}")

        buffer = self._pool.take(node, whole_lines(transfer), touch, holds)
        self.taken.append(buffer)
        return buffer

    def _cpus_of(self, memory: Memory) -> tuple[int, ...]:
        return next(node.cores for node in self._machine.numa if node.name == memory.device)


class SharedBuffers:
    """Buffers that exist already, some of them in other processes.

    Attributes:
        pieces: The transfers of the Measurement, in its order, with the addresses of their buffers.
        cpus: CPUs of this process, which fill and compare the buffers that it owns.
        seed: Seed of the patterns, the same in all processes.
    """

    def __init__(self, pieces: Sequence[LocalTransfer], cpus: tuple[int, ...], seed: int) -> None:
        self._pieces, self._cpus, self._seed = pieces, cpus, seed

    def bind(self, index: int, transfer: Transfer, rows: Iterator[int], run: Run) -> BoundTransfer:
        """A transfer of which this process executes, fills or verifies something."""
        del run
        piece = self._pieces[index]
        executes = piece.moves and piece.means not in TWO_SIDED
        size = whole_lines(transfer)
        source, destination = (
            HostBuffer(at, size, 0, (at, size)) for at in (piece.source, piece.destination)
        )
        return BoundTransfer(
            transfer,
            tuple(islice(rows, len(transfer.executor.cpus) if executes else 0)),
            helpers=self._cpus,
            sources=(source,),
            destination=destination,
            keys=keys_of(self._seed, piece.index),
            streaming=True,
            fills=piece.owns_source,
            verifies=piece.owns_destination,
        )

    def give_back(self) -> None:
        """Do nothing: the buffers belong to the pool of the job."""


#: Binds the transfers of one Measurement: each of their threads takes a row of the shared table.
BufferSource = PoolBuffers | SharedBuffers
