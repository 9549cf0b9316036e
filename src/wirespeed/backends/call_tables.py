"""Tables of calls of C functions, made by C (``native/calls.c``) without the interpreter and its lock:
threads that call NCCL from Python contend for the lock, and a call of MPI from Python takes several times as
long as a small message. Tables are checked here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BackendError
from ..native import I64, function, library
from ..units import NANO

#: Name of a function and its arguments: addresses, handles and numbers.
Call = tuple[str, tuple[int, ...]]

#: Calls in the form in which C makes them: one row of words for each.
Table = np.ndarray[Any, np.dtype[np.int64]]

#: Maximum number of arguments of a call: MPI_Sendrecv has twelve.
_MAX_ARGUMENTS = 12
#: Position of the status of a call that failed in what C returns, above its index.
_STATUS = 32
#: Functions of wirespeed that tables call between the others: copy bytes (to, from, size); copy the blocks of
#: a list (addresses of the arrays of their addresses to and from, size of a block, number of blocks); wait
#: until a time in ns (address of the time).
COPY, COPY_LIST, WAIT_UNTIL = "ws_copy", "ws_copy_list", "ws_wait_until"

_call_all = function("ws_call_all", I64, I64, I64)
_call_timed = function("ws_call_timed", I64, I64, I64, I64, I64)


@dataclass(frozen=True)
class Failure:
    """A call that failed.

    Attributes:
        name: Name of the function.
        status: What it returned.
    """

    name: str
    status: int


class Functions:
    """C functions by name. When a call fails, no further one is made, and its error is raised.

    Attributes:
        error: Returns the error of a call that failed.
        libraries: Loaded libraries; the first one that has a function is used, after wirespeed's own.
    """

    def __init__(self, error: Callable[[Failure], BackendError], *libraries: Any) -> None:
        self._error, self._libraries = error, (library(), *libraries)
        self._addresses: dict[str, int] = {}

    def joined(self, other: Functions) -> Functions:
        """These functions, and those that another one has used."""
        both = Functions(self._error, *self._libraries[1:])
        both._addresses = self._addresses | other._addresses
        return both

    def address(self, name: str) -> int:
        """The address of a function.

        Raises:
            AttributeError: If no library has it.
        """
        if name not in self._addresses:
            of = next((one for one in self._libraries if hasattr(one, name)), self._libraries[-1])
            self._addresses[name] = ctypes.cast(getattr(of, name), ctypes.c_void_p).value or 0
        return self._addresses[name]

    def bind(self, calls: Sequence[Call]) -> Callable[[], None]:
        """A function that makes the calls."""
        table = self.table(calls)
        where = _checked(table)

        def run() -> None:
            self._refuse(_call_all(*where), [table])

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
        before, calls, after = map(_checked, tables)
        all_three = (I64 * 6)(*before, *calls, *after)
        times = np.zeros((count, 3), np.int64)
        self._refuse(_call_timed(ctypes.addressof(all_three), times.ctypes.data, count, rounds), tables)
        return times

    def _refuse(self, coded: int, tables: Sequence[Table]) -> None:
        """Raise the error of a call that failed, from what C returned."""
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


def _checked(table: Table) -> tuple[int, int]:
    """The address of a table, and the number of its calls.

    Raises:
        ValueError: If it is no table of calls, or a call has no function.
    """
    formed = table.dtype == np.int64 and table.ndim == 2 and table.shape[1] == _MAX_ARGUMENTS + 1
    if not formed or not table.flags.c_contiguous or not table[:, 0].all():
        raise ValueError(f"not a table of calls: {table.dtype} {table.shape}")
    return int(table.ctypes.data), len(table)
