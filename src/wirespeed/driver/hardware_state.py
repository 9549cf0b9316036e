"""The state of the hardware as backends report it: around each testcase, and slow counters around the run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tables import State

if TYPE_CHECKING:
    from ..backends.base import Backend


#: Reading the state takes 10 ms per GPU: the state after a testcase is also the state before the next one if
#: no more time than this has passed, in s.
STATE_MAX_AGE_S = 0.05


class HardwareState:
    """Readings of the backends of a run.

    Attributes:
        counted: Slow counters before the first testcase of each backend.
    """

    def __init__(self) -> None:
        self.counted: State = ()
        #: Last reading: time, backends, quantities.
        self._last: tuple[float, tuple[Backend, ...], State] = (-math.inf, (), ())
        self._counting: list[Backend] = []

    def before(self, watched: Sequence[Backend]) -> State:
        """The state before a testcase, perhaps a recent one, with counters not read before."""
        taken, backends, state = self._last
        if backends != tuple(watched) or time.monotonic() - taken > STATE_MAX_AGE_S:
            state = self.after(watched)
        new = [backend for backend in watched if backend not in self._counting]
        self._counting += new
        counted = tuple(quantity for backend in new for quantity in backend.counters())
        self.counted += counted
        return *state, *counted

    def after(self, watched: Sequence[Backend]) -> State:
        """The state after a testcase."""
        state = state_of(watched)
        self._last = (time.monotonic(), tuple(watched), state)
        return state

    def count(self) -> State:
        """The slow counters after the last testcase."""
        return tuple(quantity for backend in self._counting for quantity in backend.counters())


def state_of(watched: Sequence[Backend]) -> State:
    """The state that some backends report, each quantity once."""
    return tuple({quantity.key: quantity for backend in watched for quantity in backend.state()}.values())


def busy_of(watched: Sequence[Backend]) -> dict[str, str]:
    """The devices that other processes use, as some backends report it: device -> how."""
    return {device: how for backend in watched for device, how in backend.busy().items()}
