"""Transfers between storage and a memory, in the language: how its words become calls of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...hardware.devices import STORAGE, Storage
from ...hardware.topology import Machine
from ...model import (
    FILE_ENGINES,
    GPU_FILE_ENGINES,
    HOST_FILE_ENGINES,
    Engine,
    FileCalls,
    Memory,
    MemoryKind,
    Transfer,
)
from ...units import format_size
from ..storage.testcases import RANDOM, SEQUENTIAL, executor_of, too_large, unfit
from .syntax import LanguageError, Span, Statement

#: Calls at a time, if the words do not say.
USUAL_DEPTH = 16
#: Words that only transfers with storage have, and those that they have not.
OF_FILES = ("depth", "random")
_OTHERS = ("blocks", "threads", "cpus", "broadcast")
#: Returns an error at a part of the text.
Wrong = Callable[[str, Span], LanguageError]


def is_file(memory: Memory | None) -> bool:
    """Whether a memory is storage."""
    return memory is not None and memory.kind is MemoryKind.FILE


def file_transfer(
    statement: Statement, ends: Sequence[Memory | None], machine: Machine, size: int | None, wrong: Wrong
) -> Transfer:
    """The transfer between storage and the memory of the host or a GPU.

    Args:
        statement: The words.
        ends: Source and destinations; None for void.
        machine: The machine.
        size: Default size of a call, in bytes.
        wrong: Makes errors.

    Raises:
        LanguageError: If the words do not fit, or the file is too small for them.
    """
    words, places = statement.words, statement.places
    if statement.latency:
        raise wrong(
            "storage has no latency of loads; the rate of random 4KiB depth=1 shows it", statement.span
        )
    if unfitting := next((name for name in _OTHERS if name in places), ""):
        raise wrong(
            f"a transfer with storage has no {unfitting}; it has {', '.join(FILE_ENGINES)}, a size, depth= "
            "and random",
            places[unfitting],
        )
    if statement.executors:
        raise wrong("CPUs of the host read and write storage; omit by", statement.executors[0].span)
    source, destination = ends[0], ends[1]
    if source is None or destination is None or is_file(source) is is_file(destination):
        raise wrong("storage is read to the memory of the host or a GPU, or written from it", statement.span)
    file, other = (source, destination) if is_file(source) else (destination, source)
    if other.rank is not None:
        raise wrong("storage is measured in one process; omit ranks", statement.span)
    device: Storage = next(one for one in machine.others[STORAGE.name] if one.name == file.device)
    executor, memory_bytes = executor_of(machine, device)
    if other.kind is not MemoryKind.DEVICE:
        executor, memory_bytes = executor_of(machine, device, other.device)
        other = Memory(other.device, MemoryKind.PAGEABLE)
    if not executor.cpus:
        raise wrong(f"{executor} has no usable CPUs, which would read and write storage", statement.span)
    engine = words.engine or Engine.IO
    usable = GPU_FILE_ENGINES if other.kind is MemoryKind.DEVICE else HOST_FILE_ENGINES
    if engine not in usable:
        memory = "a GPU" if other.kind is MemoryKind.DEVICE else "the memory of the host"
        names = " or ".join(usable)
        raise wrong(f"between storage and {memory} use {names}, not {engine}", places["engine"])
    block = words.size or size or (RANDOM if words.random else SEQUENTIAL)[0]
    moved = block * (depth := words.depth or USUAL_DEPTH)
    buffers = moved * (2 if other.kind is MemoryKind.DEVICE and engine is Engine.IO else 1)
    place = places.get("size", statement.span)
    if reason := unfit(block):
        raise wrong(reason, place)
    if reason := too_large(moved, buffers, device, memory_bytes):
        raise wrong(f"{depth} calls of {format_size(block)} at a time: it {reason}", place)
    return Transfer(
        *((file, other) if file is source else (other, file)), executor, engine, moved, statement.role,
        calls=FileCalls(block, depth, words.random),
    )  # fmt: skip
