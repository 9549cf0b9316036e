"""C functions of the MPI library that mpi4py is linked with; handles are numbers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...errors import BackendError
from ..native import Call, Failure, Functions, copier


class MpiFunctions:
    """Makes calls of MPI without the Python interpreter.

    Attributes:
        mpi: The module ``mpi4py.MPI``.

    Attributes:
        functions: The C functions.
        status: Address of a status that is ignored.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        # The extension module resolves the functions of the library it is linked with, for any ABI of MPI.
        self.functions = Functions(ctypes.CDLL(mpi.__file__), copy=copier())
        self._status = np.zeros(self.status_bytes, np.uint8)
        self.status = int(self._status.ctypes.data)

    def handle(self, wrapped: Any) -> int:
        """The handle of a communicator, type or operator as a number."""
        return int(self._mpi._handleof(wrapped))

    @property
    def in_place(self) -> int:
        """Buffer argument for operations in place."""
        return int(self._mpi.IN_PLACE)

    @property
    def request_bytes(self) -> int:
        """Size of a request in bytes."""
        return int(self._mpi._sizeof(self._mpi.Request))

    @property
    def status_bytes(self) -> int:
        """Size of a status in bytes."""
        return int(self._mpi._sizeof(self._mpi.Status))

    def run(self, calls: list[Call]) -> None:
        """Make the calls.

        Raises:
            BackendError: If a call fails.
        """
        self.refuse(self.functions.bind(calls)())

    def timed(
        self, before: list[Call], calls: list[Call], after: list[Call], rounds: int = 1
    ) -> tuple[float, float]:
        """Make the calls; return the time of ``calls``, and of ``calls`` and ``after``, in s.

        Raises:
            BackendError: If a call fails.
        """
        failed, between, whole = self.functions.timed(before, calls, after, rounds)
        self.refuse(failed)
        return between, whole

    def laps(self, before: list[Call], calls: list[Call], after: list[Call], count: int) -> tuple[float, ...]:
        """Make the calls; return the time of ``calls`` in each lap, in s.

        Raises:
            BackendError: If a call fails.
        """
        failed, seconds = self.functions.laps(before, calls, after, count)
        self.refuse(failed)
        return seconds

    def refuse(self, failed: Failure | None) -> None:
        """Raise an error if a call failed.

        Raises:
            BackendError: If ``failed`` is a call.
        """
        if failed:
            raise BackendError(f"MPI failed in {failed.name}")
