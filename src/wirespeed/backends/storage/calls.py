# mypy: disable-error-code="untyped-decorator"
"""Calls that read and write a file, in compiled code without the interpreter and its lock."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..host.compiled import (
    Values,
    atomic_add,
    cgutils,
    compiled,
    intrinsic,
    load_word,
    now_ns,
    store_word,
    types,
)
from ..test_data import STEP

_WORD, _INT = ir.IntType(64), ir.IntType(32)
#: ``STEP`` as a signed word.
_STEP = STEP - 2**64
#: Columns of the result of a thread: start and end in ns, error number, offset at which it happened,
#: offset of the last block, number of blocks with wrong data, offset of the first of these.
START, END, ERROR, AT, LAST, WRONG, FIRST_WRONG = range(7)
COLUMNS = 7
#: Error number of a call that moved fewer bytes than it should.
SHORT = -1


def _declared(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Type) -> ir.Function:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def _call(typing: Any, writes: Any, descriptor: Any, address: Any, size: Any, offset: Any) -> Any:
    """Read a block with ``pread``, or write it with ``pwrite``; return the number of bytes."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Values) -> Any:
        writes, descriptor, address, size, offset = values
        arguments = [
            builder.trunc(descriptor, _INT),
            builder.inttoptr(address, ir.IntType(8).as_pointer()),
            size,
            offset,
        ]
        kinds = [argument.type for argument in arguments]
        result = cgutils.alloca_once(builder, _WORD)
        with builder.if_else(builder.icmp_signed("!=", writes, _WORD(0))) as (write, read):
            with write:
                builder.store(builder.call(_declared(builder, "pwrite", _WORD, *kinds), arguments), result)
            with read:
                builder.store(builder.call(_declared(builder, "pread", _WORD, *kinds), arguments), result)
        return builder.load(result)

    return types.int64(*[types.int64] * 5), generate


@intrinsic
def _errno(typing: Any) -> Any:
    """The error number of the last call of this thread."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Values) -> Any:
        place = builder.call(_declared(builder, "__errno_location", _INT.as_pointer()), [])
        return builder.sext(builder.load(place), _WORD)

    return types.int64(), generate


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
        head = key + (offset >> 3) * _STEP
        tail = key + ((offset + block - 8) >> 3) * _STEP
        if writes:
            store_word(buffer, head)
            store_word(buffer + block - 8, tail)
        else:  # what an earlier call left there is no proof of this one
            store_word(buffer, ~head)
            store_word(buffer + block - 8, ~tail)
        moved = _call(writes, descriptor, buffer, block, offset)
        if moved != block:
            result[ERROR] = _errno() if moved < 0 else SHORT
            result[AT] = offset
            break
        result[LAST] = offset
        if not writes and (load_word(buffer) != head or load_word(buffer + block - 8) != tail):
            if not result[WRONG]:
                result[FIRST_WRONG] = offset
            result[WRONG] += 1
    result[END] = now_ns()
