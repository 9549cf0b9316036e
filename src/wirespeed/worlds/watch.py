"""Doing the same in all processes of a World, and seeing to it that it comes to an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import BackendError
from .base import World, WorldError

_LOOK = 0.05
#: How long a call may take to come back once it was cancelled, in s; if it cannot be; on Ctrl-C, after
#: which Open MPI's launcher kills within 0.2 s.
_GRACE, _HOPELESS, _HASTE = 5.0, 0.1, 0.02

T = TypeVar("T")
#: Until the first operation is done libraries are loaded, kernels compiled and ranks connected, which may
#: take this long, in s: a shorter time-out is meant for what follows.
SETUP_S = 30.0


class Watch:
    """Lets something be done in another thread, and sees to it that it comes to an end.

    Attributes
    ----------
    stage
        What is being done; said where it takes too long. The same on all ranks.
    stuck
        Whether a thread did not come back, so that the process cannot end in order.
    """

    def __init__(self, world: World, timeout: float) -> None:
        self.world = world
        self.timeout = timeout
        self.stage = "starting"
        self.stuck = False
        self._since, self._at_least = time.monotonic(), 0.0

    def at(self, stage: str, at_least: float = 0.0) -> None:
        """Begin a stage.

        Parameters
        ----------
        at_least
            Seconds that this stage may take even if the time-out is shorter.
        """
        self.stage, self._since, self._at_least = stage, time.monotonic(), at_least

    def run(self, work: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
        """Return what ``work`` returns.

        Parameters
        ----------
        cancel
            Makes it come back soon; None where that is not possible.

        Raises
        ------
        WirespeedError
            If it fails, another rank fails or ends, or a stage takes too long.
        """
        finished = threading.Event()
        found: list[T] = []
        crash: list[BaseException] = []

        def working() -> None:
            try:
                found.append(work())
            except BaseException as error:  # raised again in the watching thread
                crash.append(error)
            finally:
                finished.set()

        threading.Thread(target=working, name="measure", daemon=True).start()
        try:
            while not finished.wait(_LOOK):
                self.world.check()
                limit = max(self.timeout, self._at_least)
                if self.timeout and limit < time.monotonic() - self._since:
                    raise self.world.late(self.stage, limit)
        except BaseException as error:
            if not finished.is_set():
                if cancel:
                    threading.Thread(target=cancel, daemon=True).start()
                grace = _HASTE if isinstance(error, KeyboardInterrupt) else _GRACE if cancel else _HOPELESS
                self.stuck = not finished.wait(grace)
            raise
        if crash:
            if isinstance(crash[0], BackendError):  # often how the end of another rank looks from here
                self.world.check(1.0)
            self.world.fail(f"{self.world.me} failed while {self.stage}: {crash[0]}")
            raise crash[0]
        return found[0]


def agree_on(world: World, options: dict[str, object]) -> None:
    """Compare the options of all ranks.

    Raises
    ------
    WorldError
        With the first that differs, and where.
    """
    everyone = world.allgather(options, "comparing options")
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for name in sorted(first.keys() | other.keys()):
            if other.get(name) != first.get(name):
                raise WorldError(
                    f"the ranks have different options: {name} is {other.get(name)!r} on "
                    f"{world.members[rank]} and {first.get(name)!r} on rank 0"
                )
