# mypy: disable-error-code="untyped-decorator"
"""Tables of calls of C functions, made without the interpreter and its lock: threads that call NCCL from
Python contend for the lock, and a call of MPI from Python takes several times as long as a small message.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ..errors import BackendError
from ..units import NANO
from .host.compiled import cfunc, compiled, types
from .host.intrinsics import copy_bytes, emits, load_word, now_ns

#: Name of a function and its arguments: addresses, handles and numbers.
Call = tuple[str, tuple[int, ...]]

#: Calls in the form in which compiled code makes them: one row of words for each.
Table = np.ndarray[Any, np.dtype[np.int64]]

#: Maximum number of arguments of a call: MPI_Sendrecv has twelve.
_MAX_ARGUMENTS = 12
_WORD = ir.IntType(64)
#: Position of the status of a call that failed in what compiled loops return, above its index.
_STATUS = 32


@dataclass(frozen=True)
class Failure:
    """A call that failed.

    Attributes:
        name: Name of the function.
        status: What it returned.
    """

    name: str
    status: int


@emits(types.int32, types.UniTuple(types.int64, _MAX_ARGUMENTS + 1))
def _call(builder: ir.IRBuilder, row: Any) -> Any:
    """Call the function at the address in the first word with the other words, and return its status.

    A function with fewer arguments ignores the rest, and an ``int`` argument uses the lower half of a word,
    by the calling conventions of x86-64 (System V) and arm64.
    """
    words = [builder.extract_value(row, i) for i in range(_MAX_ARGUMENTS + 1)]
    kind = ir.FunctionType(ir.IntType(32), [_WORD] * _MAX_ARGUMENTS)
    return builder.call(builder.inttoptr(words[0], kind.as_pointer()), words[1:])


@compiled("int64(int64[:,::1])")
def _run(table: Any) -> int:
    """Make the calls; return the index of the first one that failed, and its status above it, or -1."""
    for i in range(table.shape[0]):
        t = table[i]
        words = (t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12])
        status = _call(words)
        if status != 0:
            return int(i | (status & 0x7FFFFFFF) << _STATUS)
    return -1


@lru_cache(maxsize=1)
def copier() -> int:
    """The address of a function that copies bytes and returns 0; arguments: to, from, size."""

    @cfunc("int32(int64, int64, int64)")
    def copy(to: int, origin: int, size: int) -> Any:
        copy_bytes(to, origin, size)
        return 0

    _KEPT.append(copy)
    return int(copy.address)


@lru_cache(maxsize=1)
def list_copier() -> int:
    """The address of a function that copies blocks and returns 0.

    Its arguments: addresses of the lists of destinations and sources, size of a block, number of blocks.
    """

    @cfunc("int32(int64, int64, int64, int64)")
    def copy(to: int, origin: int, size: int, count: int) -> Any:
        for place in range(0, 8 * count, 8):
            copy_bytes(load_word(to + place), load_word(origin + place), size)
        return 0

    _KEPT.append(copy)
    return int(copy.address)


@lru_cache(maxsize=1)
def waiter() -> int:
    """The address of a function that waits until a time in ns, and returns 0; argument: where the time is."""

    @cfunc("int32(int64)")
    def wait(place: int) -> Any:
        while now_ns() < load_word(place):
            pass
        return 0

    _KEPT.append(wait)
    return int(wait.address)


#: References that keep compiled code alive while C code has its address.
_KEPT: list[Any] = []


@compiled("int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64)")
def _timed(before: Any, table: Any, after: Any, times: Any, rounds: int) -> int:
    """Make the calls of ``before``, then in each lap those of ``table`` in rounds and those of ``after``.

    Each row of ``times`` is a lap; it receives the starts of ``table`` and ``after`` and the end, in ns.
    Returns the index of the call that failed, at which everything ends, and its status above it, or -1.
    """
    failed = _run(before)
    if failed >= 0:
        return int(failed)
    for lap in range(times.shape[0]):
        times[lap, 0] = now_ns()
        for _ in range(rounds):
            failed = _run(table)
            if failed >= 0:
                return int(before.shape[0] + failed)
        times[lap, 1] = now_ns()
        failed = _run(after)
        if failed >= 0:
            return int(before.shape[0] + table.shape[0] + failed)
        times[lap, 2] = now_ns()
    return -1


class Functions:
    """C functions by name. When a call fails, no further one is made, and its error is raised.

    Attributes:
        error: Returns the error of a call that failed.
        libraries: Loaded libraries; the first one that has a function is used.
        known: Addresses of functions that are in no library, by name.
    """

    def __init__(self, error: Callable[[Failure], BackendError], *libraries: Any, **known: int) -> None:
        self._error, self._libraries = error, libraries
        self._addresses: dict[str, int] = dict(known)

    def joined(self, other: Functions) -> Functions:
        """These functions, and those that another one has used."""
        return Functions(self._error, *self._libraries, **(self._addresses | other._addresses))

    def address(self, name: str) -> int:
        """The address of a function.

        Raises:
            AttributeError: If no library has it.
        """
        if name not in self._addresses:
            library = next(
                (candidate for candidate in self._libraries if hasattr(candidate, name)), self._libraries[-1]
            )
            self._addresses[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        return self._addresses[name]

    def bind(self, calls: Sequence[Call]) -> Callable[[], None]:
        """A function that makes the calls."""
        table = self.table(calls)

        def run() -> None:
            self._refuse(_run(table), [table])

        return run

    def timed(
        self, before: Sequence[Call], calls: Sequence[Call], after: Sequence[Call], rounds: int = 1
    ) -> tuple[float, float]:
        """Make three sequences of calls, and time the last two.

        Args:
            before: Untimed calls.
            calls: Timed calls.
            after: Calls at the end, such as waits.
            rounds: Number of times that ``calls`` are made.

        Returns:
            calls_s: Time of ``calls``, in s.
            total_s: Time of ``calls`` and ``after``, in s.
        """
        ((start, between, end),) = self.walk(
            [*map(self.table, (before, calls, after))], rounds=rounds
        ).tolist()
        return (between - start) * NANO, (end - start) * NANO

    def laps(
        self, before: Sequence[Call], calls: Sequence[Call], after: Sequence[Call], count: int
    ) -> tuple[float, ...]:
        """Make calls several times; return the time of each lap, in s.

        Args:
            before: Untimed calls, once.
            calls: Timed calls of each lap.
            after: Untimed calls at the end of each lap.
            count: Number of laps.
        """
        times = self.walk([*map(self.table, (before, calls, after))], count)
        return tuple(((times[:, 1] - times[:, 0]) * NANO).tolist())

    def walk(self, tables: Sequence[Table], count: int = 1, rounds: int = 1) -> Table:
        """Make the calls of three tables, like ``timed`` and ``laps``.

        Returns:
            For each lap its start, the end of the second and the end of the third table, in ns.
        """
        times = np.zeros((count, 3), np.int64)
        self._refuse(_timed(*tables, times, rounds), tables)
        return times

    def _refuse(self, coded: int, tables: Sequence[Table]) -> None:
        """Raise the error of a call that failed, from what a compiled loop returned."""
        if coded >= 0:
            row = np.concatenate(tables)[coded & ((1 << _STATUS) - 1)]
            name = next(name for name, address in self._addresses.items() if address == row[0])
            raise self._error(Failure(name, coded >> _STATUS))

    def rows(self, name: str, count: int, *columns: Any) -> Table:
        """A table of many calls of one function; each argument is a number, or an array with one for each."""
        table = np.zeros((count, _MAX_ARGUMENTS + 1), np.int64)
        table[:, 0] = self.address(name)
        for i, column in enumerate(columns):
            table[:, i + 1] = column
        return table

    def table(self, calls: Sequence[Call]) -> Table:
        """One row of words per call: the address of the function, then the arguments."""
        table = np.zeros((len(calls), _MAX_ARGUMENTS + 1), np.int64)
        for row, (name, arguments) in zip(table, calls, strict=True):
            row[: len(arguments) + 1] = (self.address(name), *arguments)
        return table
