"""The C functions that the threads run (``native/work.c``, ``gate.c``, ``buffers.c``): the gate, the timed
operations, fills, comparisons and cycles. Sizes are checked here: in bytes, and whole lines of 64 bytes.
"""

from __future__ import annotations

import ctypes

from ...model import Operation
from ...native import F64, I64, U64, function
from ..test_data import STEP, WORD_MASK

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

#: Bytes of a word, of a line, and of a row. Each word of the gate and each thread has its own row: no two
#: share a line.
WORD, LINE, ROW = 8, 64, 128
ARRIVED, EXPECTED, RELEASED, CANCEL, RUNNING, TIMEOUT_NS, ROWS = (i * ROW for i in range(7))
#: Words of a thread's row.
START, END, AMOUNT, CARRY, STATUS = (i * 8 for i in range(5))
DONE, CANCELLED, TIMED_OUT = range(3)
#: Kinds of values: the words of a pattern, integers as doubles, and two integers as floats.
WORDS, DOUBLES, FLOATS = range(3)

#: Number of copies of a load: until the measured threads have ended.
ENDLESS = -1
#: Bytes (accesses, in a chase) after which a load checks whether to stop.
CHUNK_BYTES, CHASE_CHUNK_ACCESSES = 2**18, 2**12
#: The accesses of a chase are a multiple of this.
CHASE_STEP_ACCESSES = 8

#: Destination, first and second source, the factor or constant (the size of a block), the size, the sum or
#: position.
_OPERANDS = (I64,) * 6

#: Wait until all threads have arrived at the gate at an address; the last one opens it. Returns the outcome.
arrive = function("ws_arrive", I64, I64)
#: Open a gate that no thread opens, after the expected number of arrivals; return the outcome.
open_gate = function("ws_open_gate", I64, I64, I64)
#: The clock of all times, in ns.
clock = function("ws_clock", I64)
_once = function("ws_once", I64, I64, I64, *_OPERANDS)
_work = function("ws_work", None, I64, I64, I64, I64, *_OPERANDS, I64, I64, F64)
_touch = function("ws_touch", None, I64, I64, I64)
_fill = function("ws_fill", None, I64, I64, I64, I64, U64)
_fill_blocks = function("ws_fill_blocks", None, *(I64,) * 5, U64)
_count_wrong = function("ws_count_wrong", I64, *(I64,) * 4, U64, U64, U64, I64, I64)
_shuffled = function("ws_shuffled", I64, I64, I64, U64)
_cycle = function("ws_cycle", I64, *(I64,) * 4, U64, ctypes.c_int32, ctypes.POINTER(I64))
_build = function("ws_build", ctypes.c_char_p)
#: Choose a build of the kernels by its name in bytes, for tests; whether this CPU can run it.
choose = function("ws_choose", ctypes.c_int32, ctypes.c_char_p)


def build() -> str:
    """The build of the kernels that was chosen for this CPU."""
    name: bytes = _build()
    return name.decode()


def once(
    operation: int, streaming: int, destination: int, first: int, second: int, scalar: int, size: int,
    carry: int,
) -> int:  # fmt: skip
    """Run the operation over ``size`` bytes, follow a cycle for ``size`` accesses, or copy ``size`` blocks.

    The entries of the blocks are at ``second``, and the size of a block is ``scalar``. Returns the sum of a
    read, or the position in a cycle.
    """
    _check(operation, size, size, (destination, first, second), scalar, streaming)
    return int(_once(operation, streaming, destination, first, second, scalar, size, carry))


def work(
    gate: int, row: int, operation: int, streaming: int, destination: int, first: int, second: int,
    scalar: int, size: int, carry: int, copies: int, chunk: int, pace: float,
) -> None:  # fmt: skip
    """Wait at the gate with the other threads, run a transfer, and write the times to ``row``.

    Args:
        gate, row: Addresses of the gate, and of the row of results.
        operation, streaming, destination, first, second, scalar, size, carry: As in `once`.
        copies: Number of times to run; ``ENDLESS`` for a load, which runs until no measured thread runs.
        chunk: Bytes (accesses in a chase, blocks of a list) after which the thread waits, and a load checks
            whether to stop.
        pace: Fraction of the time for which it works.
    """
    _check(operation, size, chunk, (destination, first, second), scalar, streaming)
    if size and chunk <= 0:
        raise ValueError(f"a thread cannot work in chunks of {chunk}")
    operands = (destination, first, second, scalar, size, carry)
    _work(gate, row, operation, streaming, *operands, copies, chunk, pace)


def touch(base: int, begin: int, end: int) -> None:
    """Make the kernel place every page between two byte offsets."""
    _touch(base, begin, end)


def fill(base: int, begin: int, end: int, kind: int, key: int) -> None:
    """Write words ``begin`` to ``end`` of the pattern of a key to a buffer; see ``test_data``."""
    _fill(_whole_words(base), begin, end, kind, key)


def fill_blocks(base: int, entries: int, begin: int, end: int, block: int, key: int) -> None:
    """Write to the source of a list, for entries ``begin`` to ``end``, what belongs into the destination.

    The destination of a complete list is then one pattern: each block in its place.
    """
    _fill_blocks(_whole_words(base), entries, begin, end, _whole_words(block), key)


def count_wrong(
    base: int, begin: int, end: int, kind: int, step: int, first: int, second: int, a: int, b: int
) -> int:
    """The number of words from ``begin`` to ``end`` that are not the result of an operation.

    Args:
        base: Address of the buffer.
        begin, end: Positions, in words.
        kind: Kind of the values: ``WORDS``, ``DOUBLES`` or ``FLOATS``.
        step: Difference between successive words; 0 if all are equal.
        first, second: Keys of the sources.
        a, b: Factors of the sources.
    """
    return int(_count_wrong(_whole_words(base), begin, end, kind, step, first, second, a, b))


def total(begin: int, end: int, key: int) -> int:
    """The wrapping sum of the words of a pattern from ``begin`` to ``end``."""
    count = end - begin
    return (count * key + STEP * (count * (begin + end - 1) // 2)) & WORD_MASK


def shuffled(step: int, lines: int, key: int) -> int:
    """The line that a cycle over ``lines`` lines visits at a step."""
    if not 0 <= step < lines:
        raise ValueError(f"a cycle over {lines} lines has no step {step}")
    return int(_shuffled(step, lines, key))


def cycle(base: int, lines: int, begin: int, end: int, key: int, build: bool) -> tuple[int, int]:
    """Build or check the steps ``begin`` to ``end`` of a cycle; each line holds the address of the next.

    Return the number of wrong words and the index of the first (lowest) one; without a meaning when building.
    """
    if not 0 <= begin <= end <= lines:
        raise ValueError(f"a cycle over {lines} lines has no steps {begin} to {end}")
    if begin == end:
        return 0, lines * LINE // WORD
    lowest = I64()
    wrong = int(_cycle(_whole_words(base), lines, begin, end, key, build, ctypes.byref(lowest)))
    return wrong, lowest.value


def _check(
    operation: int, size: int, chunk: int, addresses: tuple[int, ...], scalar: int, streaming: int
) -> None:
    """Refuse what the C functions would do wrong: unaligned addresses and incomplete lines.

    Raises:
        ValueError: With what is wrong.
    """
    unit = {CHASE: CHASE_STEP_ACCESSES, BLOCKS: 1}.get(operation, LINE)
    if not (COPY <= operation <= BLOCKS and CACHED <= streaming <= BY_LIBRARY):
        raise ValueError(f"there is no operation {operation} with stores {streaming}")
    if size < 0 or size % unit or chunk % unit:
        raise ValueError(f"operation {operation} of {size} in parts of {chunk}: not multiples of {unit}")
    lines = addresses[:2] if operation == BLOCKS else addresses
    if any(address % LINE for address in lines):
        raise ValueError(f"operation {operation} at an address that is not the begin of a line")
    if operation == BLOCKS and (scalar <= 0 or (streaming != BY_LIBRARY and scalar % LINE)):
        raise ValueError(f"blocks of {scalar} bytes are not whole lines")


def _whole_words(value: int) -> int:
    """An address or a size.

    Raises:
        ValueError: If it is not a multiple of a word.
    """
    if value % WORD:
        raise ValueError(f"{value} is not a multiple of {WORD} bytes")
    return value
