"""Intrinsics for memory that numba lacks: streaming stores, atomics, a clock, and hints to the CPU. Addresses
are plain int64. numba's cache of compiled kernels does not notice changes in this file: after a change, touch
``kernels.py``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from llvmlite import ir

from .compiled import cgutils, intrinsic, types

Values = Sequence[Any]


def emits(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function that emits its instructions with a builder, and returns its value.

    Args:
        result: Type of the value.
        arguments: Types of the arguments.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Values) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if value is None else value

        @wraps(emit)  # numba reads the names of the arguments
        def typed(typing: Any, *given: Any) -> Any:
            return result(*arguments), generate

        return intrinsic(typed)

    return decorate


#: Bytes of a vector: one cache line on almost every supported CPU.
LINE = 64
_UNROLL = 4
_CLOCK_MONOTONIC = 1
_MACHINE = platform.machine()
_WORD = ir.IntType(64)
_LINE_OF_WORDS = ir.VectorType(_WORD, 8)
_LINE_OF_DOUBLES = ir.VectorType(ir.DoubleType(), 8)
_LINE_OF_FLOATS = ir.VectorType(ir.FloatType(), 16)

#: LLVM's name and arguments of the instruction that marks a spin loop, and of the fence that orders
#: streaming stores. On arm64 the streaming store (STNP) is ordered like any other store, by the release
#: after a copy.
_SPIN_HINT = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}.get(_MACHINE)
_STORE_FENCE = {"x86_64": ("llvm.x86.sse.sfence", ())}.get(_MACHINE)


def declared(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Type) -> ir.Function:
    """Declare a function of the C library or of LLVM."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _instruction(builder: ir.IRBuilder, known: tuple[str, tuple[int, ...]] | None) -> None:
    """Issue an instruction without a result, if the CPU has it."""
    if known is not None:
        name, numbers = known
        arguments = [ir.IntType(32)(n) for n in numbers]
        builder.call(declared(builder, name, ir.VoidType(), *(a.type for a in arguments)), arguments)


def _pointer(builder: ir.IRBuilder, address: Any, pointee: ir.Type) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


@emits(types.int64)
def now_ns(builder: ir.IRBuilder) -> Any:
    """CLOCK_MONOTONIC in ns."""
    pair = ir.LiteralStructType([_WORD, _WORD])
    place = cgutils.alloca_once(builder, pair)
    clock = ir.IntType(32)
    function = declared(builder, "clock_gettime", ir.IntType(32), clock, pair.as_pointer())
    builder.call(function, [clock(_CLOCK_MONOTONIC), place])
    seconds, nanoseconds = (builder.load(cgutils.gep_inbounds(builder, place, 0, i)) for i in (0, 1))
    return builder.add(builder.mul(seconds, _WORD(10**9)), nanoseconds)


@emits(types.void)
def spin_hint(builder: ir.IRBuilder) -> Any:
    """Tell the core that it is spinning, so that its sibling thread runs faster."""
    _instruction(builder, _SPIN_HINT)


@emits(types.void)
def give_way(builder: ir.IRBuilder) -> Any:
    """Yield this CPU to another waiting thread."""
    builder.call(declared(builder, "sched_yield", ir.IntType(32)), [])


@emits(types.int64, types.int64, types.int64)
def atomic_add(builder: ir.IRBuilder, address: Any, value: Any) -> Any:
    """Add to the word at an address and return its previous value."""
    return builder.atomic_rmw("add", _pointer(builder, address, _WORD), value, "seq_cst")


@emits(types.int64, types.int64)
def atomic_load(builder: ir.IRBuilder, address: Any) -> Any:
    """The word at an address that other threads write."""
    return builder.load_atomic(_pointer(builder, address, _WORD), "acquire", 8)


@emits(types.void, types.int64, types.int64)
def atomic_store(builder: ir.IRBuilder, address: Any, value: Any) -> Any:
    """Write a word that other threads read."""
    builder.store_atomic(value, _pointer(builder, address, _WORD), "release", 8)


@emits(types.int64, types.int64)
def load_word(builder: ir.IRBuilder, address: Any) -> Any:
    """The word at an address."""
    return builder.load(_pointer(builder, address, _WORD))


@emits(types.void, types.int64, types.int64)
def store_word(builder: ir.IRBuilder, address: Any, value: Any) -> Any:
    """Write the word at an address."""
    builder.store(value, _pointer(builder, address, _WORD))


@emits(types.CPointer(types.uint64), types.int64)
def as_words(builder: ir.IRBuilder, address: Any) -> Any:
    """Convert an address to the pointer from which ``numba.carray`` makes an array."""
    return _pointer(builder, address, _WORD)


@emits(types.uint64, types.float64)
def bits_of(builder: ir.IRBuilder, number: Any) -> Any:
    """The 64 bits of a double."""
    return builder.bitcast(number, _WORD)


@emits(types.uint64, types.float32, types.float32)
def bits_of_pair(builder: ir.IRBuilder, low: Any, high: Any) -> Any:
    """The 64 bits of two floats, the first one in the lower half."""
    low, high = (builder.zext(builder.bitcast(value, ir.IntType(32)), _WORD) for value in (low, high))
    return builder.or_(low, builder.shl(high, _WORD(32)))


@emits(types.void, types.int64, types.int64, types.int64)
def copy_bytes(builder: ir.IRBuilder, to: Any, origin: Any, size: Any) -> Any:
    """Copy bytes from one address to another by the C library."""
    byte = ir.IntType(8).as_pointer()
    target, source = (builder.inttoptr(value, byte) for value in (to, origin))
    cgutils.raw_memcpy(builder, target, source, size, 1)


def _each_line(
    builder: ir.IRBuilder, size: Any, body: Callable[[Any, int], None], unroll: int = _UNROLL
) -> None:
    """Generate loops that call ``body(byte offset, lines)`` over whole lines, ``unroll`` at a time."""
    lines = builder.lshr(size, _WORD(LINE.bit_length() - 1))
    blocks = builder.udiv(lines, _WORD(unroll))
    with cgutils.for_range(builder, blocks) as loop:
        body(builder.mul(loop.index, _WORD(unroll * LINE)), unroll)
    done = builder.mul(blocks, _WORD(unroll))
    with cgutils.for_range(builder, builder.sub(lines, done)) as loop:
        body(builder.mul(builder.add(loop.index, done), _WORD(LINE)), 1)


def _vectors(builder: ir.IRBuilder, base: Any, offset: Any, lines: int, vector: ir.Type) -> list[Any]:
    """Pointers to consecutive lines."""
    first = builder.add(base, offset)
    return [_pointer(builder, builder.add(first, _WORD(i * LINE)), vector) for i in range(lines)]


def _sweep(sources: int, combine: Callable[..., Any], vector: ir.VectorType) -> Any:
    """The intrinsic that stores ``combine(builder, scalar, *loaded)`` over a whole buffer.

    Its arguments: destination, first and second source, the scalar, the bytes (whole lines), and
    whether the stores bypass the caches.
    """

    @emits(types.void, *[types.int64] * 6)
    def sweep(
        builder: ir.IRBuilder, destination: Any, first: Any, second: Any, scalar: Any, size: Any,
        streaming: Any,
    ) -> Any:  # fmt: skip
        if vector is not _LINE_OF_WORDS:
            scalar = builder.sitofp(scalar, vector.element)
        first_lane = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        spread = builder.shuffle_vector(first_lane, first_lane, mask)
        hint = builder.module.add_metadata([ir.IntType(32)(1)])

        def body(offset: Any, lines: int, bypass: bool) -> None:
            loaded = [
                [builder.load(p, align=LINE) for p in _vectors(builder, base, offset, lines, vector)]
                for base in (first, second)[:sources]
            ]
            for i, place in enumerate(_vectors(builder, destination, offset, lines, vector)):
                value = combine(builder, spread, *(line[i] for line in loaded))
                store = builder.store(value, place, align=LINE)
                if bypass:
                    store.set_metadata("nontemporal", hint)

        with builder.if_else(builder.icmp_signed("!=", streaming, _WORD(0))) as (stream, keep):
            with stream:
                _each_line(builder, size, lambda offset, lines: body(offset, lines, True))
                _instruction(builder, _STORE_FENCE)
            with keep:
                _each_line(builder, size, lambda offset, lines: body(offset, lines, False))

    return sweep


def _times(builder: ir.IRBuilder, a: Any, b: Any) -> Any:
    return builder.fmul(a, b, flags=("contract",))


def _plus(builder: ir.IRBuilder, a: Any, b: Any) -> Any:
    return builder.fadd(a, b, flags=("contract",))  # fuses with a product, if the CPU can


copy_lines = _sweep(1, lambda builder, scalar, a: a, _LINE_OF_WORDS)
write_lines = _sweep(0, lambda builder, scalar: scalar, _LINE_OF_WORDS)
scale_lines = _sweep(1, lambda builder, scalar, a: _times(builder, scalar, a), _LINE_OF_DOUBLES)
add_lines = _sweep(2, lambda builder, scalar, a, b: _plus(builder, a, b), _LINE_OF_DOUBLES)
triad_lines = _sweep(
    2, lambda builder, scalar, a, b: _plus(builder, a, _times(builder, scalar, b)), _LINE_OF_DOUBLES
)
saxpy_lines = _sweep(
    2, lambda builder, scalar, a, b: _plus(builder, _times(builder, scalar, a), b), _LINE_OF_FLOATS
)


@emits(types.int64, types.int64, types.int64)
def sum_lines(builder: ir.IRBuilder, source: Any, size: Any) -> Any:
    """The wrapping sum of all words of whole lines; the loads are independent of each other."""
    unroll = 2 * _UNROLL
    zero = ir.Constant(_LINE_OF_WORDS, [0] * 8)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(unroll)]

    def body(offset: Any, lines: int) -> None:
        places = _vectors(builder, source, offset, lines, _LINE_OF_WORDS)
        for total, place in zip(sums, places, strict=False):  # a single line adds to the first sum
            builder.store(builder.add(builder.load(total), builder.load(place, align=LINE)), total)

    _each_line(builder, size, body, unroll)
    result: Any = _WORD(0)
    for total in sums:
        line = builder.load(total)
        for lane in range(8):
            result = builder.add(result, builder.extract_element(line, ir.IntType(32)(lane)))
    return result
