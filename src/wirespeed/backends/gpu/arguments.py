"""Kernel arguments, laid out once for many launches."""

from __future__ import annotations

import ctypes
from typing import Any


class Arguments:
    """Values and the array of pointers to them, as a launch requires.

    Attributes:
        values: ctypes scalars. A launch reads them when it is enqueued; they may be changed afterwards.
        address: Address of the array.
    """

    def __init__(self, *values: Any) -> None:
        self.values = values
        self._pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self.address = ctypes.addressof(self._pointers)


def pointer(address: int) -> ctypes.c_void_p:
    """A pointer argument."""
    return ctypes.c_void_p(address)


def wide(value: int) -> ctypes.c_uint64:
    """A 64-bit argument."""
    return ctypes.c_uint64(value)


def narrow(value: int) -> ctypes.c_uint32:
    """A 32-bit argument."""
    return ctypes.c_uint32(value)
