# mypy: disable-error-code="untyped-decorator"
"""Calls that read and write a file, in compiled code without the interpreter and its lock: each thread makes
one call at a time, or one thread keeps several in the queues of an io_uring, whose layout is that of
``include/uapi/linux/io_uring.h`` of Linux.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ...backends.host.compiled import cgutils, compiled, types
from ...backends.host.intrinsics import atomic_add, declared, emits, load_word, now_ns, store_word
from ...backends.test_data import STEP

_WORD, _INT, _LOW = ir.IntType(64), ir.IntType(32), 0xFFFFFFFF
#: ``STEP`` as a signed word.
_STEP = STEP - 2**64
#: Columns of the result of a thread: start and end in ns, error number, offset at which it happened,
#: offset of the last block, number of blocks with wrong data, offset of the first of these.
START, END, ERROR, AT, LAST, WRONG, FIRST_WRONG = range(7)
COLUMNS = 7
#: Error number of a call that moved fewer bytes than it should.
SHORT = -1
#: Columns of the description of an io_uring: its descriptor; address of the end of the submissions; mask of
#: their positions and address of the entries; addresses of the begin and the end of the completions; mask of
#: their positions and address of the entries.
RING, SUBMITTED, SUBMISSION_MASK, SUBMISSIONS, TAKEN, COMPLETED, COMPLETION_MASK, COMPLETIONS = range(8)
#: Number of the system call ``io_uring_enter``, and its flag that makes it wait for completions.
ENTER, GET_EVENTS = 426, 1
#: Operations of a submission, and sizes of entries in bytes.
_READ, _WRITE, _SUBMISSION_BYTES, _COMPLETION_BYTES = 22, 23, 64, 16
#: Errors of ``io_uring_enter`` after which it is called again: EINTR, EAGAIN, EBUSY.
_AGAIN = (4, 11, 16)


@emits(types.int64, *[types.int64] * 5)
def _call(builder: ir.IRBuilder, writes: Any, descriptor: Any, address: Any, size: Any, offset: Any) -> Any:
    """Read a block with ``pread``, or write it with ``pwrite``; return the number of bytes."""
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    arguments = [builder.trunc(descriptor, _INT), place, size, offset]
    kinds = [argument.type for argument in arguments]
    write, read = (declared(builder, name, _WORD, *kinds) for name in ("pwrite", "pread"))
    return builder.call(builder.select(builder.icmp_signed("!=", writes, _WORD(0)), write, read), arguments)


@emits(types.int64)
def _errno(builder: ir.IRBuilder) -> Any:
    """The error number of the last call of this thread."""
    place = builder.call(declared(builder, "__errno_location", _INT.as_pointer()), [])
    return builder.sext(builder.load(place), _WORD)


@emits(types.int64, *[types.int64] * 3)
def _enter(builder: ir.IRBuilder, ring: Any, submissions: Any, waits: Any) -> Any:
    """Submit what was added, and wait for a completion if ``waits`` is 1; return how many it submitted."""
    kind = ir.FunctionType(_WORD, [_WORD], var_arg=True)
    function = cgutils.get_or_insert_function(builder.module, kind, "syscall")
    flags = builder.mul(waits, _WORD(GET_EVENTS))
    return builder.call(function, [_WORD(ENTER), ring, submissions, waits, flags, _WORD(0), _WORD(0)])


@emits(types.int64, types.int64)
def _load_half(builder: ir.IRBuilder, address: Any) -> Any:
    """The word of 32 bits at an address that the kernel writes."""
    place = builder.inttoptr(address, _INT.as_pointer())
    return builder.zext(builder.load_atomic(place, "acquire", 4), _WORD)


@emits(types.void, types.int64, types.int64)
def _store_half(builder: ir.IRBuilder, address: Any, value: Any) -> Any:
    """Write a word of 32 bits that the kernel reads."""
    place = builder.inttoptr(address, _INT.as_pointer())
    builder.store_atomic(builder.trunc(value, _INT), place, "release", 4)


@compiled("void(int64, int64, int64, int64, int64)")
def _mark(writes: int, buffer: int, block: int, offset: int, key: int) -> None:
    """Write the first and the last word of a block into a buffer; before a read, what it must not find."""
    head = key + (offset >> 3) * _STEP
    tail = key + ((offset + block - 8) >> 3) * _STEP
    if writes:
        store_word(buffer, head)
        store_word(buffer + block - 8, tail)
    else:  # what an earlier call left there is no proof of this one
        store_word(buffer, ~head)
        store_word(buffer + block - 8, ~tail)


@compiled("void(int64, int64, int64, int64, int64, int64[::1])")
def _check(writes: int, buffer: int, block: int, offset: int, key: int, result: Any) -> None:
    """Record a call that has moved its block; compare the first and the last word of what it read."""
    result[LAST] = offset
    head = key + (offset >> 3) * _STEP
    tail = key + ((offset + block - 8) >> 3) * _STEP
    if not writes and (load_word(buffer) != head or load_word(buffer + block - 8) != tail):
        if not result[WRONG]:
            result[FIRST_WRONG] = offset
        result[WRONG] += 1


@compiled("int64(int64, int64, int64, int64, int64, int64, int64[::1])")
def move_block(
    writes: int, descriptor: int, buffer: int, block: int, offset: int, key: int, result: Any
) -> int:
    """Read or write one block; return whether it was moved. Parameters are those of ``move``."""
    _mark(writes, buffer, block, offset, key)
    moved = _call(writes, descriptor, buffer, block, offset)
    if moved != block:
        result[ERROR] = _errno() if moved < 0 else SHORT
        result[AT] = offset
        return 0
    _check(writes, buffer, block, offset, key, result)
    return 1


@compiled("int64(int64)")
def draw(drawn: int) -> int:
    """Draw the number of the next block."""
    return int(atomic_add(drawn, 1))


@compiled("void(int64, int64, int64, int64, int64, int64[::1], int64, int64, int64, int64, int64[::1])")
def move(
    writes: int, descriptor: int, buffer: int, block: int, origin: int, order: Any, first: int, count: int,
    drawn: int, key: int, result: Any,
) -> None:  # fmt: skip
    """Draw the next block until there is none, and read it or write it.

    The first and the last word of every block depend on its place in the file: they are written into it, or
    compared after it was read.

    Args:
        writes: 1 to write, 0 to read.
        descriptor: Descriptor of the file.
        buffer: Address of the buffer of this thread.
        block: Size of a block, in bytes.
        origin: Where the blocks begin in the file, in bytes.
        order: Order of the blocks.
        first: Position in the order with which the threads begin together.
        count: Number of blocks that the threads move together.
        drawn: Address of the number of blocks that were drawn.
        key: Key of the contents.
        result: Receives the columns above.
    """
    result[START] = now_ns()
    while True:
        i = atomic_add(drawn, 1)
        if i >= count:
            break
        offset = origin + order[(first + i) % order.shape[0]] * block
        if not move_block(writes, descriptor, buffer, block, offset, key, result):
            break
    result[END] = now_ns()


@compiled(
    "void(int64, int64, int64[::1], int64[::1], int64, int64, int64[::1], int64, int64, int64, int64, "
    "int64[:, ::1])"
)
def move_by_ring(
    writes: int, descriptor: int, ring: Any, buffers: Any, block: int, origin: int, order: Any, first: int,
    count: int, drawn: int, key: int, results: Any,
) -> None:  # fmt: skip
    """As ``move``, by one thread with as many calls at a time as there are buffers.

    Args:
        writes, descriptor, block, origin, order, first, count, drawn, key: As there.
        ring: Description of the io_uring.
        buffers: Addresses of the buffers.
        results: For each buffer the columns above; start and end only in the first row.
    """
    depth = buffers.shape[0]
    free = np.arange(depth)
    spare, queued, flying, goes_on = depth, 0, 0, True
    results[0, START] = now_ns()
    tail, head = _load_half(ring[SUBMITTED]), _load_half(ring[TAKEN])
    while True:
        while goes_on and spare:
            i = atomic_add(drawn, 1)
            if i >= count:
                goes_on = False
                break
            spare -= 1
            slot = free[spare]
            offset = origin + order[(first + i) % order.shape[0]] * block
            _mark(writes, buffers[slot], block, offset, key)
            results[slot, AT] = offset
            entry = ring[SUBMISSIONS] + (tail & ring[SUBMISSION_MASK]) * _SUBMISSION_BYTES
            store_word(entry, (_WRITE if writes else _READ) | descriptor << 32)
            store_word(entry + 8, offset)
            store_word(entry + 16, buffers[slot])
            store_word(entry + 24, block)
            store_word(entry + 32, slot)
            tail = (tail + 1) & _LOW
            queued += 1
            if spare:  # at once, as fio does: of several, the kernel would hold the first until the last
                _store_half(ring[SUBMITTED], tail)
                entered = _enter(ring[RING], queued, 0)
                if entered > 0:
                    queued -= entered
                    flying += entered
        if not queued and not flying:
            break
        _store_half(ring[SUBMITTED], tail)
        entered = _enter(ring[RING], queued, 1)
        if entered >= 0:
            queued -= entered
            flying += entered
        else:
            number = _errno()
            if number not in _AGAIN:
                results[0, ERROR] = number
                break
        end = _load_half(ring[COMPLETED])
        while head != end:
            entry = ring[COMPLETIONS] + (head & ring[COMPLETION_MASK]) * _COMPLETION_BYTES
            slot, moved = load_word(entry), load_word(entry + 8) & _LOW
            if moved == block:
                _check(writes, buffers[slot], block, results[slot, AT], key, results[slot])
            else:
                results[slot, ERROR] = _LOW + 1 - moved if moved >> 31 else SHORT
                goes_on = False
            free[spare] = slot
            spare += 1
            flying -= 1
            head = (head + 1) & _LOW
        _store_half(ring[TAKEN], head)
    results[0, END] = now_ns()
