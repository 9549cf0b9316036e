"""The compiled kernels of the threads: the gate, the timed operations, fills, comparisons and cycles.
Importing this module compiles all of them or loads them from the cache. They release the GIL; addresses and
sizes are int64, sizes in bytes and whole lines of 64 bytes.
"""

from __future__ import annotations

from functools import partial

from ...model import Operation
from ..test_data import STEP
from .compiled import compiled, numba
from .intrinsics import (
    add_lines,
    as_words,
    atomic_add,
    atomic_load,
    atomic_store,
    bits_of,
    bits_of_pair,
    copy_bytes,
    copy_lines,
    give_way,
    load_word,
    now_ns,
    saxpy_lines,
    scale_lines,
    spin_hint,
    store_word,
    sum_lines,
    triad_lines,
    write_lines,
)

COPY, SCALE, ADD, TRIAD, SAXPY, READ, WRITE, CHASE, BLOCKS = range(9)

CODES = {
    Operation.COPY: COPY,
    Operation.SCALE: SCALE,
    Operation.ADD: ADD,
    Operation.TRIAD: TRIAD,
    Operation.SAXPY: SAXPY,
    Operation.READ: READ,
    Operation.WRITE: WRITE,
    Operation.CHASE: CHASE,
}


#: How the blocks of a list are copied, in place of ``streaming``: like whole buffers with or without the
#: caches, or by the C library's copy.
CACHED, STREAMED, BY_LIBRARY = range(3)
#: Bytes of an entry of a list: the offsets of a block in the source and in the destination.
ENTRY = 16

# mypy: disable-error-code="no-any-return"


#: Bytes of a word, and of a row. Each word of the gate and each thread has its own row: no two share a line.
WORD, ROW = 8, 128
ARRIVED, EXPECTED, RELEASED, CANCEL, RUNNING, TIMEOUT_NS, ROWS = (i * ROW for i in range(7))
#: Words of a thread's row.
START, END, AMOUNT, CARRY, STATUS = (i * 8 for i in range(5))
DONE, CANCELLED, TIMED_OUT = range(3)
#: Kinds of values: the words of a pattern, integers as doubles, and two integers as floats.
WORDS, DOUBLES, FLOATS = range(3)

#: Number of copies of a load: until the measured threads have ended.
ENDLESS = -1
#: Bytes (accesses, in a chase) after which a load checks whether to stop, and the least bytes between waits.
CHUNK_BYTES, CHASE_CHUNK_ACCESSES, LEAST_CHUNK_BYTES = 2**18, 2**12, 2**12
#: The accesses of a chase are a multiple of this.
CHASE_STEP_ACCESSES = 8
_SPINS_PER_CLOCK_CHECK = 64  # between two checks of the clock, about 2 µs


_jit = partial(compiled, error_model="numpy")


@_jit("int64(int64, int64, int64)")
def _spin(table: int, place: int, least: int) -> int:
    """Wait until a word is no smaller than a value, the sample is cancelled or the time is over."""
    deadline = now_ns() + atomic_load(table + TIMEOUT_NS)
    spins = 0
    while atomic_load(table + place) < least:
        cancelled = atomic_load(table + CANCEL)
        if cancelled != DONE:
            return cancelled
        spin_hint()
        spins += 1
        if spins % _SPINS_PER_CLOCK_CHECK == 0:
            if now_ns() > deadline:
                atomic_store(table + CANCEL, TIMED_OUT)
                return TIMED_OUT
            give_way()  # there may be fewer cores than threads
    return DONE


@_jit("int64(int64)")
def arrive(table: int) -> int:
    """Wait until all threads have arrived; the last one opens the gate. Return the outcome."""
    if atomic_add(table + ARRIVED, 1) + 1 == atomic_load(table + EXPECTED):
        if atomic_load(table + CANCEL) == DONE:
            atomic_store(table + RELEASED, now_ns())
            return DONE
        return atomic_load(table + CANCEL)
    return _spin(table, RELEASED, 1)


@_jit("int64()")
def clock() -> int:
    """The clock of all times, in ns."""
    return now_ns()


@_jit("int64(int64, int64)")
def open_gate(table: int, expected: int) -> int:
    """Open a gate that no thread opens, after the expected number of arrivals; return the outcome."""
    status = _spin(table, ARRIVED, expected)
    if status == DONE:
        atomic_store(table + RELEASED, now_ns())
    return status


@_jit("int64(int64, int64, int64, int64, int64, int64, int64, int64)")
def once(
    operation: int,
    streaming: int,
    destination: int,
    first: int,
    second: int,
    scalar: int,
    size: int,
    carry: int,
) -> int:
    """Run the operation over ``size`` bytes, follow a cycle for ``size`` accesses, or copy ``size`` blocks.

    The entries of the blocks are at ``second``, and the size of a block is ``scalar``.
    """
    if operation == COPY:
        copy_lines(destination, first, second, scalar, size, streaming)
    elif operation == SCALE:
        scale_lines(destination, first, second, scalar, size, streaming)
    elif operation == ADD:
        add_lines(destination, first, second, scalar, size, streaming)
    elif operation == TRIAD:
        triad_lines(destination, first, second, scalar, size, streaming)
    elif operation == SAXPY:
        saxpy_lines(destination, first, second, scalar, size, streaming)
    elif operation == READ:
        carry += sum_lines(first, size)
    elif operation == WRITE:
        write_lines(destination, first, second, scalar, size, streaming)
    elif operation == BLOCKS:
        for entry in range(second, second + ENTRY * size, ENTRY):
            origin, to = first + load_word(entry), destination + load_word(entry + WORD)
            if streaming == BY_LIBRARY:
                copy_bytes(to, origin, scalar)
            else:
                copy_lines(to, origin, 0, 0, scalar, streaming)
    else:
        for _ in range(size // CHASE_STEP_ACCESSES):
            carry = load_word(load_word(load_word(load_word(carry))))
            carry = load_word(load_word(load_word(load_word(carry))))
    return carry


@_jit("int64(int64, float64, int64)")
def _wait(table: int, due: float, load: int) -> int:
    """Wait until a time, or the end of the sample; return the outcome."""
    status = atomic_load(table + CANCEL)
    spins = 0
    while status == DONE and now_ns() < due and (load == 0 or atomic_load(table + RUNNING) > 0):
        spin_hint()
        spins += 1
        if spins % _SPINS_PER_CLOCK_CHECK == 0:
            give_way()
        status = atomic_load(table + CANCEL)
    return status


@_jit(
    "void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, float64,"
    "float64, float64)"
)
def work(
    table: int,
    row: int,
    operation: int,
    streaming: int,
    destination: int,
    first: int,
    second: int,
    scalar: int,
    size: int,
    carry: int,
    copies: int,
    chunk: int,
    delay: float,
    pace: float,
    pause: float,
) -> None:
    """Wait at the gate with the other threads, run a transfer, and write the times to ``row``.

    Args:
        copies: Number of times to run; ``ENDLESS`` for a load, which runs until no measured thread runs.
        chunk: Bytes (accesses in a chase, blocks of a list) after which the thread waits, and a load checks
            whether to stop.
        delay: Time from the release until it begins, in ns.
        pace: Fraction of the time for which it works.
        pause: Least time of one byte, in ns. Chunks are due at times from the start: late ones delay no
            others.
    """
    status = arrive(table)
    load = 1 if copies == ENDLESS else 0
    if delay > 0 and status == DONE:
        status = _wait(table, atomic_load(table + RELEASED) + delay, load)
    start = now_ns()
    busy = position = amount = done = 0
    waits = pace < 1 or pause > 0
    while status == DONE and (size > 0 and atomic_load(table + RUNNING) > 0 if load else done < copies):
        begin = now_ns() if waits else 0
        step = min(chunk, size - position)
        if operation == CHASE:
            carry = once(operation, 0, 0, 0, 0, 0, step, carry)
        elif operation == BLOCKS:
            entries = second + ENTRY * position
            carry = once(operation, streaming, destination, first, entries, scalar, step, carry)
        else:
            carry = once(
                operation, streaming, destination + position, first + position, second + position,
                scalar, step, carry,
            )  # fmt: skip
        amount += step
        position += step
        if position == size:
            position = 0
            done += 1
        if waits:
            busy += now_ns() - begin
            status = _wait(table, start + max(busy / pace, amount * pause), load)
        else:
            status = atomic_load(table + CANCEL)
    end = now_ns()
    if not load:
        atomic_add(table + RUNNING, -1)
    store_word(row + START, start)
    store_word(row + END, end)
    store_word(row + AMOUNT, amount)
    store_word(row + CARRY, carry)
    store_word(row + STATUS, status)


@_jit("float64(uint64)")
def _whole(word: int) -> float:
    """An integer below 2**48: 15 times it plus another one is exact as a double."""
    return numba.float64(numba.int64(word >> numba.uint64(16)))


@_jit("float32(uint64)")
def _small(word: int) -> float:
    """An integer below 2**20: 15 times it plus another one is exact as a float."""
    return numba.float32(numba.int64(word & numba.uint64(0xFFFFF)))


@_jit("uint64(uint64, uint64, int64, int64)")
def _pair(first: int, second: int, a: int, b: int) -> int:
    """A word with two floats: ``a`` times a number of the first plus ``b`` times one of the second."""
    a, b = numba.float32(a), numba.float32(b)
    low, high = numba.uint64(16), numba.uint64(40)
    return bits_of_pair(
        a * _small(first >> low) + b * _small(second >> low),
        a * _small(first >> high) + b * _small(second >> high),
    )


@_jit("uint64(int64, uint64, uint64, int64, int64)")
def _value(kind: int, first: int, second: int, a: int, b: int) -> int:
    """``a`` times the first number plus ``b`` times the second one; or the first word."""
    if kind == DOUBLES:
        return bits_of(a * _whole(first) + b * _whole(second))
    if kind == FLOATS:
        return _pair(first, second, a, b)
    return first


@_jit("void(int64, int64, int64, int64, uint64)")
def fill(base: int, begin: int, end: int, kind: int, key: int) -> None:
    """Write words ``begin`` to ``end`` of the pattern of a key to a buffer; see ``test_data``."""
    words = numba.carray(as_words(base + WORD * begin), (end - begin,))
    word = key + numba.uint64(begin) * numba.uint64(STEP)
    for i in range(end - begin):
        words[i] = _value(kind, word, word, 1, 0)
        word += numba.uint64(STEP)


@_jit("void(int64, int64, int64, int64, int64, uint64)")
def fill_blocks(base: int, entries: int, begin: int, end: int, block: int, key: int) -> None:
    """Write to the source of a list, for entries ``begin`` to ``end``, what belongs into the destination.

    The destination of a complete list is then one pattern: each block in its place.
    """
    for entry in range(entries + ENTRY * begin, entries + ENTRY * end, ENTRY):
        words = numba.carray(as_words(base + load_word(entry)), (block // WORD,))
        word = key + numba.uint64(load_word(entry + WORD) // WORD) * numba.uint64(STEP)
        for i in range(block // WORD):
            words[i] = word
            word += numba.uint64(STEP)


@_jit("int64(int64, int64, int64, int64, uint64, uint64, uint64, int64, int64)")
def count_wrong(
    base: int, begin: int, end: int, kind: int, step: int, first: int, second: int, a: int, b: int
) -> int:
    """The number of words from ``begin`` to ``end`` that are not the result of an operation.

    Args:
        kind: Kind of the values: ``WORDS``, ``DOUBLES`` or ``FLOATS``.
        step: Difference between successive words; 0 if all are equal.
        first, second: Keys of the sources.
        a, b: Factors of the sources.
    """
    words = numba.carray(as_words(base + WORD * begin), (end - begin,))
    first += numba.uint64(begin) * step
    second += numba.uint64(begin) * step
    wrong = 0
    for i in range(end - begin):
        wrong += words[i] != _value(kind, first, second, a, b)
        first += step
        second += step
    return wrong


@_jit("int64(int64, int64, uint64)")
def total(begin: int, end: int, key: int) -> int:
    """The wrapping sum of the words of a pattern from ``begin`` to ``end``."""
    result = numba.uint64(0)
    for i in range(begin, end):
        result += key + numba.uint64(i) * numba.uint64(STEP)
    return numba.int64(result)


@_jit("void(int64, int64, int64)")
def touch(base: int, begin: int, end: int) -> None:
    """Make the kernel place every page between two byte offsets."""
    for offset in range(begin, end, 4096):
        store_word(base + offset, 0)


@_jit("uint64(uint64, uint64)")
def _mixed(key: int, index: int) -> int:
    """A word that depends on every bit of the key and the index."""
    word = (key ^ index) * numba.uint64(STEP)
    word = (word ^ (word >> numba.uint64(32))) * numba.uint64(0xD6E8FEB86659FD93)
    return word ^ (word >> numba.uint64(29))


@_jit("int64(int64, int64, uint64)")
def shuffled(step: int, lines: int, key: int) -> int:
    """The line that a cycle over ``lines`` lines visits at a step.

    A keyed permutation of the smallest power of two that holds all lines, repeated while the result is out of
    range. So a cycle needs neither a table nor an order of construction: any thread can build or check any
    part of it.
    """
    bits = numba.uint64(1)
    while (1 << bits) < lines:
        bits += numba.uint64(1)
    mask = (numba.uint64(1) << bits) - numba.uint64(1)
    half = (bits + numba.uint64(1)) >> numba.uint64(1)
    line = numba.uint64(step)
    while True:
        for turn in range(4):
            word = _mixed(key, numba.uint64(turn))
            line = (line * (word | numba.uint64(1)) + (word >> numba.uint64(7))) & mask
            line ^= line >> half
        if line < lines:
            return numba.int64(line)


@_jit("UniTuple(int64, 2)(int64, int64, int64, int64, uint64, boolean)")
def cycle(base: int, lines: int, begin: int, end: int, key: int, build: bool) -> tuple[int, int]:
    """Build or check the steps ``begin`` to ``end`` of a cycle; each line holds the address of the next.

    Return the number of wrong words and the index of the first (lowest) one; 0 when building.
    """
    wrong, lowest = 0, 8 * lines
    here = shuffled(begin, lines, key)
    for step in range(begin, end):
        following = shuffled(step + 1 if step + 1 < lines else 0, lines, key)
        address, value = base + 64 * here, base + 64 * following
        if build:
            store_word(address, value)
        elif load_word(address) != value:
            wrong += 1
            lowest = min(lowest, 8 * here)
        here = following
    return wrong, lowest
