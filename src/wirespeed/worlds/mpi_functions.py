"""The C functions of the MPI that mpi4py uses, its handles as numbers, and calls of them as data."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..backends.native import Call, Functions, copier
from ..errors import BackendError


class MpiFunctions:
    """Calls of MPI that need no interpreter.

    Parameters
    ----------
    mpi
        The module ``mpi4py.MPI``.

    Attributes
    ----------
    status
        The address of a status that nobody reads.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        # The extension module finds the functions of the library that it was linked with, whatever its ABI.
        self.functions = Functions(ctypes.CDLL(mpi.__file__), copy=copier())
        self._status = np.zeros(self.status_bytes, np.uint8)
        self.status = int(self._status.ctypes.data)

    def handle(self, thing: Any) -> int:
        """Return the handle of a communicator, a type or an operator as a number."""
        return int(self._mpi._handleof(thing))

    @property
    def in_place(self) -> int:
        """What MPI is given for a buffer that is the other one, too."""
        return int(self._mpi.IN_PLACE)

    @property
    def request_bytes(self) -> int:
        """Size of a request."""
        return int(self._mpi._sizeof(self._mpi.Request))

    @property
    def status_bytes(self) -> int:
        """Size of a status."""
        return int(self._mpi._sizeof(self._mpi.Status))

    def run(self, calls: list[Call]) -> None:
        """Make calls.

        Raises
        ------
        BackendError
            With the first that fails.
        """
        self.refuse(self.functions.bind(calls)())

    def timed(
        self, before: list[Call], calls: list[Call], after: list[Call], rounds: int = 1
    ) -> tuple[float, float]:
        """Make calls; return the seconds of ``calls``, and of those and ``after``.

        Raises
        ------
        BackendError
            With the first that fails.
        """
        failed, between, whole = self.functions.timed(before, calls, after, rounds)
        self.refuse(failed)
        return between, whole

    def refuse(self, failed: str) -> None:
        """Raise what failed, if anything did.

        Raises
        ------
        BackendError
            If there is a name.
        """
        if failed:
            raise BackendError(f"MPI failed in {failed}")
