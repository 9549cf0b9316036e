# mypy: disable-error-code="untyped-decorator"
"""Run a table of calls of C functions without the interpreter and its lock.

Threads that call NCCL from Python contend for the lock, and a call of MPI from Python takes several times as
long as a small message.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ..units import NANO
from .host.compiled import cfunc, compiled, copy_bytes, emits, load_word, now_ns, types

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


def _failure(coded: int, calls: Sequence[Call]) -> Failure | None:
    """The call that failed, from what a compiled loop returned."""
    if coded < 0:
        return None
    return Failure(calls[coded & ((1 << _STATUS) - 1)][0], coded >> _STATUS)


class Functions:
    """C functions by name.

    Attributes:
        libraries: Loaded libraries; the first one that has a function is used.
        known: Addresses of functions that are in no library, by name.
    """

    def __init__(self, *libraries: Any, **known: int) -> None:
        self._libraries = libraries
        self._addresses: dict[str, int] = dict(known)

    def joined(self, other: Functions) -> Functions:
        """These functions, and those that another one has used."""
        return Functions(*self._libraries, **(self._addresses | other._addresses))

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

    def bind(self, calls: Sequence[Call]) -> Callable[[], Failure | None]:
        """A function that makes the calls; it returns the one that failed, or None."""
        table = self.table(calls)

        def run() -> Failure | None:
            return _failure(_run(table), calls)

        return run

    def timed(
        self, before: Sequence[Call], calls: Sequence[Call], after: Sequence[Call], rounds: int = 1
    ) -> tuple[Failure | None, float, float]:
        """Make three sequences of calls until one fails, and time the last two.

        Args:
            before: Untimed calls.
            calls: Timed calls.
            after: Calls at the end, such as waits.
            rounds: Number of times that ``calls`` are made.

        Returns:
            failed: The call that failed; None if all succeeded.
            calls_s: Time of ``calls``, in s.
            total_s: Time of ``calls`` and ``after``, in s.
        """
        failed, times = self._laps(before, calls, after, rounds, 1)
        start, between, end = times[0].tolist()
        return failed, (between - start) * NANO, (end - start) * NANO

    def laps(
        self, before: Sequence[Call], calls: Sequence[Call], after: Sequence[Call], count: int
    ) -> tuple[Failure | None, tuple[float, ...]]:
        """Make calls several times until one fails, and time each lap.

        Args:
            before: Untimed calls, once.
            calls: Timed calls of each lap.
            after: Untimed calls at the end of each lap.
            count: Number of laps.

        Returns:
            failed: The call that failed; None if all succeeded.
            seconds: Time of each lap, in s.
        """
        failed, times = self._laps(before, calls, after, 1, count)
        return failed, tuple(((times[:, 1] - times[:, 0]) * NANO).tolist())

    def _laps(
        self, before: Sequence[Call], calls: Sequence[Call], after: Sequence[Call], rounds: int, count: int
    ) -> tuple[Failure | None, Any]:
        """The call that failed, and for each lap three times, in ns."""
        parts = [self.table(part) for part in (before, calls, after)]
        times = np.zeros((count, 3), np.int64)
        return _failure(_timed(*parts, times, rounds), [*before, *calls, *after]), times

    def walk(self, before: Table, calls: Table, after: Table, count: int) -> tuple[Failure | None, Table]:
        """Make the calls of tables, like ``laps``.

        Returns:
            failed: The call that failed; None if all succeeded.
            times: For each lap its start, the end of ``calls`` and the end of ``after``, in ns.
        """
        times = np.zeros((count, 3), np.int64)
        coded = _timed(before, calls, after, times, 1)
        if coded < 0:
            return None, times
        row = np.concatenate([before, calls, after])[coded & ((1 << _STATUS) - 1)]
        name = next(name for name, address in self._addresses.items() if address == row[0])
        return Failure(name, coded >> _STATUS), times

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
