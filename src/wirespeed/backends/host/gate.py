"""The gate of the threads: those of one process, or those of all processes of a host.

A clock in memory for those who can wait for a word but cannot read a clock: streams of GPUs.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...units import NANO
from . import kernels
from .compiled import atomic_load, atomic_store, compiled, now_ns, spin_hint
from .kernels import WORD

Words = np.ndarray[Any, np.dtype[np.int64]]
#: Number of expected threads of a gate that only ``kernels.open_gate`` opens.
NEVER = -1


class HostGate:
    """Words at which threads wait for each other; ``kernels`` defines their places.

    Attributes:
        words: One gate; or two that are used in turn, so that one process can reset a gate before threads of
            other processes arrive at it.
        timeout: Maximum time that a thread waits, in s.
        expected: Number of threads that open the gate when all have arrived.
    """

    def __init__(self, words: Words, timeout: float, expected: int) -> None:
        self._words = words
        self._round = 0
        words[:, kernels.TIMEOUT_NS // WORD] = round(timeout / NANO)
        self[kernels.EXPECTED] = expected

    @property
    def address(self) -> int:
        """Address of the gate of this round."""
        return int(self._current.ctypes.data)

    def __getitem__(self, place: int) -> int:
        return int(self._current[place // WORD])

    def __setitem__(self, place: int, value: int) -> None:
        self._words[:, place // WORD] = value

    def begin(self, *, resets: bool = True, running: int = 0) -> None:
        """Begin a round.

        Args:
            resets: Whether this process resets a gate: the only one, or that of the next round.
            running: Number of measured threads, until whose end the loads run.
        """
        self._round += 1
        if resets:
            following = self._words[(self._round + 1) % len(self._words)]
            for place in (kernels.ARRIVED, kernels.RELEASED, kernels.CANCEL):
                following[place // WORD] = 0
            following[kernels.RUNNING // WORD] = running

    def cancel(self) -> None:
        """Make the waiting and working threads of this round return soon."""
        self._current[kernels.CANCEL // WORD] = kernels.CANCELLED

    @property
    def _current(self) -> Words:
        current: Words = self._words[self._round % len(self._words)]
        return current


def private_gate(threads: int, timeout: float) -> HostGate:
    """The gate of a number of threads of this process."""
    return HostGate(np.zeros((1, kernels.ROWS // WORD), np.int64), timeout, threads)


def shared_gate(address: int, timeout: float) -> HostGate:
    """The gate of all processes of a host, in zeroed memory that all have mapped."""
    words = (ctypes.c_int64 * (2 * kernels.ROWS // WORD)).from_address(address)
    return HostGate(np.ctypeslib.as_array(words).reshape(2, -1), timeout, NEVER)


#: Offsets of the words: the time in µs, and the number of the round that has started and that is to stop.
CLOCK, STARTED, STOP = (i * 128 for i in range(3))
_NS_PER_TICK = 1000


@compiled("void(int64, int64)")
def tick(page: int, serial: int) -> None:
    """Write the time since a round has started, until it is stopped."""
    while atomic_load(page + STARTED) != serial:
        if atomic_load(page + STOP) == serial:
            return
        spin_hint()
    zero = now_ns()
    before = -1
    while atomic_load(page + STOP) != serial:
        ticks = (now_ns() - zero) // _NS_PER_TICK
        if ticks != before:
            atomic_store(page + CLOCK, ticks)
            before = ticks
        spin_hint()
