"""Testcases of the phases in which two processes share a buffer, with and without over-allocation: the first
rank owns the buffer; the last rank opens it and copies a part of it, or receives that part.
"""

from __future__ import annotations

from dataclasses import replace

from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce, Unit
from ...model import BufferAge, Engine, Message, MessagePattern, Sharing
from ...testcases.base import Layout, Pattern, Plan, PlanOptions, Testcase
from ...units import GIB, KIB, MIB, format_size
from .messages import GPU, HOST, ends

#: Size of the buffer and of the copied part, in bytes.
BUFFER, COPIED = GIB, MIB
#: Over-allocations, in bytes; 2 MiB is the granularity of virtual-memory management.
OVER = (0, 1, 4 * KIB, 64 * KIB, MIB, 2 * MIB, 2 * MIB + 1)
#: Memory -> mechanism of sharing -> engine that copies or sends.
MECHANISMS = {
    GPU: {"ipc": Engine.CE, "vmm-fd": Engine.CE, "fabric": Engine.CE, "mpi": Engine.MPI, "nccl": Engine.NCCL},
    HOST: {"shm": Engine.CPU, "mpi": Engine.MPI},
}

#: Tables of the over-allocation reproducer.
WARM_UP, WITH, WITHOUT = "warm-up", "with", "without"
_OPENED = "the last rank opens a buffer of the first rank and copies a part of it"
_SENT = "the first rank sends a part of its buffer to the last rank"


def exact(size: int) -> str:
    """A size to the byte: ``2 MiB + 1 B``."""
    whole = size // MIB * MIB
    return f"{format_size(whole)} + {size - whole} B" if whole and size != whole else format_size(size)


def phases(memory: str, mechanism: str, copied: int, over: tuple[int, ...]) -> Pattern:
    """The pattern over-allocations x phases; each sample visits all, so that drift affects all."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        pair, size = ends(machine, memory), case.buffer_size(machine, options)
        if isinstance(pair, str):
            return Plan.waive(pair)
        works = tuple(Sharing(*pair, mechanism, size, more, min(copied, size)) for more in over)
        names = works[0].phases
        places = tuple(
            Place("", i, j, Reduce.LATENCY, (i * len(names) + j,))
            for i in range(len(works))
            for j in range(len(names))
        )
        rows = Axis("over-allocated", tuple(map(exact, over)))
        layout = Layout("", case.title, rows, Axis("phase", names), Unit.TIME, rows_alike=True)
        return Plan((layout,), (Measurement(works, places),))

    return pattern


def sharing(
    mechanism: str,
    memory: str,
    buffer: int = BUFFER,
    copied: int = COPIED,
    over: tuple[int, ...] = OVER,
    group: str = "sharing",
) -> Testcase:
    """The testcase of a mechanism and a memory; ``group`` begins its name."""
    does = _SENT if mechanism in ("mpi", "nccl") else _OPENED
    return Testcase(
        f"{group}_{mechanism.replace('-', '_')}_{memory}",
        f"{does}: the time of each phase, with and without over-allocation ({mechanism}, {memory} memory)",
        phases(memory, mechanism, copied, over),
        "time of each phase",
        MECHANISMS[memory][mechanism],
        size=buffer,
        counts="",
        unit=Unit.TIME,
        tier="full",
    )


def reproducer(memory: str, iterations: int, repeats: int, copied: int, buffer: int, more: int) -> Testcase:
    """A testcase that sends from new over-allocated buffers, then from exact ones.

    Args:
        memory: ``gpu`` or ``host``.
        iterations, repeats: Number of new buffers, and of messages from each.
        copied, buffer, more: Size of a message, of a buffer, and of the over-allocation, in bytes. A message
            that is larger than an exact buffer is all of it.
    """

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        del options
        pair = ends(machine, memory)
        if isinstance(pair, str):
            return Plan.waive(pair)
        single = Message(*pair, Engine.MPI, copied, MessagePattern.EACH, 1, BufferAge.FRESH, copied)
        repeated = replace(single, count=repeats)

        def of(key: str, row: int, sent: Message) -> Measurement:
            places = tuple(Place(key, row, j, Reduce.LATENCY, (j,)) for j in range(sent.count))
            return Measurement((sent,), places)

        sizes = {WITH: buffer + more, WITHOUT: buffer}
        rows = Axis("allocation", tuple(map(str, range(iterations))))
        columns = Axis("message", tuple(map(str, range(repeats))))
        titles = {key: f"a buffer of {size} bytes ({key} overalloc)" for key, size in sizes.items()}
        small = Layout(
            WARM_UP, "a small buffer", Axis("allocation", ("-1",)), Axis("message", ("0",)), Unit.TIME
        )
        return Plan(
            (small, *(Layout(key, title, rows, columns, Unit.TIME) for key, title in titles.items())),
            (
                of(WARM_UP, 0, single),
                *(
                    of(key, i, replace(repeated, bytes=min(copied, size), room=size))
                    for key, size in sizes.items()
                    for i in range(iterations)
                ),
            ),
        )

    counts = f"{format_size(copied)} of a buffer of {format_size(buffer)}"
    return Testcase(
        f"overalloc_{Engine.MPI}_{memory}", _SENT, pattern, "", Engine.MPI, counts=counts, unit=Unit.TIME,
        tier="full",
    )  # fmt: skip


SHARING = tuple(sharing(mechanism, memory) for memory, known in MECHANISMS.items() for mechanism in known)
