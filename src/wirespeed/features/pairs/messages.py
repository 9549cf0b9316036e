"""Testcases of messages between the first and the last rank of a job: latency, bandwidth and rate over their
size, with the definitions of the OSU micro-benchmarks (``osu_latency``, ``osu_bw``, ``osu_bibw``,
``osu_mbw_mr``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...hardware.topology import Machine, Rank
from ...measurement import Axis, Measurement, Place, Reduce, Unit
from ...model import (
    MESSAGE_BANDWIDTH,
    MESSAGE_LATENCY,
    MESSAGE_RATE,
    BufferAge,
    Engine,
    Memory,
    MemoryKind,
    Message,
    MessagePattern,
)
from ...options import PlanOptions
from ...testcases.base import Layout, Pattern, Plan, Testcase, size_axis
from ...units import KIB, MIB

#: Number of concurrent messages for bandwidth and rate, as in osu_bw.
WINDOW = 64
#: Default message sizes, in bytes.
SIZES = (8, KIB, 64 * KIB, MIB, 32 * MIB)
#: Maximum size of an MPI message, in bytes: the count is an int.
MAX_MPI_BYTES = 2**31 - 1

#: Kinds of memory in the names of testcases.
GPU, HOST = "gpu", "host"
#: Reasons for waived testcases.
NO_JOB = (
    "requires two processes: start them with `mpirun -np 2 wirespeed run ...`, or, without MPI, with "
    "`wirespeed run --processes 2 ...`"
)
NO_GPUS = "requires a GPU for each rank"

_BUFFERS = Axis("buffer", ("reused buffer", "first message", "new buffer each time"))
_WAYS = Axis("ways", ("one way", "both ways, sum"))
_ONE_WAY = Axis("ways", _WAYS.labels[:1])


def ends(machine: Machine, memory: str) -> tuple[Memory, Memory] | str:
    """The memory of the first and the last rank, or the reason why there is none."""
    if len(machine.ranks) < 2:
        return NO_JOB
    if memory == GPU and not all(rank.device.startswith(GPU) for rank in machine.ranks):
        return NO_GPUS
    first, last = (_memory(machine, rank, memory) for rank in (machine.ranks[0], machine.ranks[-1]))
    return first, last


def _memory(machine: Machine, rank: Rank, memory: str) -> Memory:
    if memory == GPU:
        return Memory(rank.device, MemoryKind.DEVICE, rank.index)
    nearest = {gpu.name: f"numa{gpu.numa}" for gpu in machine.gpus}
    return Memory(nearest.get(rank.device, rank.device), MemoryKind.PAGEABLE, rank.index)


def between_ends(memory: str, chosen: tuple[int, ...] = ()) -> Pattern:
    """The pattern of curves over the message size."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        sizes = chosen or ((options.size,) if options.size else SIZES)
        pair = ends(machine, memory)
        if isinstance(pair, str):
            return Plan.waive(pair)
        if case.engine is Engine.MPI and max(sizes) > MAX_MPI_BYTES:
            return Plan.waive(
                f"a message of {max(sizes)} bytes is too large for MPI; the maximum is {MAX_MPI_BYTES}"
            )
        columns = size_axis("message", sizes)
        return Plan(
            (
                Layout(MESSAGE_LATENCY, "half round-trip time", _BUFFERS, columns, Unit.TIME),
                Layout(MESSAGE_BANDWIDTH, f"{WINDOW} concurrent messages", _WAYS, columns, Unit.RATE),
                Layout(MESSAGE_RATE, "messages one way", _ONE_WAY, columns, Unit.FREQUENCY),
            ),
            tuple(m for j, size in enumerate(sizes) for m in _of_size(j, Message(*pair, case.engine, size))),
        )

    return pattern


def _of_size(column: int, message: Message) -> Sequence[Measurement]:
    """The Measurements of one size, beginning with the first message."""
    window = replace(message, pattern=MessagePattern.WINDOW, count=WINDOW)
    both = replace(window, pattern=MessagePattern.WINDOW_BOTH)
    ages = ((1, BufferAge.FIRST), (0, BufferAge.REUSED), (2, BufferAge.FRESH))
    return (
        *(
            Measurement(
                (replace(message, age=age),),
                (Place(MESSAGE_LATENCY, row, column, Reduce.LATENCY, factor=0.5),),
            )
            for row, age in ages
        ),
        Measurement(
            (window,),
            (Place(MESSAGE_BANDWIDTH, 0, column), Place(MESSAGE_RATE, 0, column, factor=1 / message.bytes)),
        ),
        Measurement((both,), (Place(MESSAGE_BANDWIDTH, 1, column),)),
    )


def message(engine: Engine, memory: str) -> Testcase:
    """The testcase of an engine and a memory."""
    return Testcase(
        f"message_{engine}_{memory}",
        f"messages between the first and the last rank by {engine.upper()}, from {memory} memory",
        between_ends(memory),
        "messages",
        engine,
        counts="every byte of a message once; both ways the sum of both directions",
        tier="standard",
        swept=partial(between_ends, memory),
    )


TESTCASES = (message(Engine.MPI, HOST), message(Engine.MPI, GPU), message(Engine.NCCL, GPU))
