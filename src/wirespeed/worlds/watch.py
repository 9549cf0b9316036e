"""Run work in all processes of a World, with time-outs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import BackendError
from .base import World, WorldError

_LOOK = 0.05
#: Time for work to return after a cancellation, in s; if it cannot be cancelled; on Ctrl-C, after which
#: Open MPI's launcher kills within 0.2 s.
_GRACE, _HOPELESS, _HASTE = 5.0, 0.1, 0.02

T = TypeVar("T")
#: Minimum time-out until the first operation is done, in s: libraries are loaded, kernels compiled and ranks
#: connected. A shorter time-out applies to later stages.
SETUP_S = 30.0


class Watch:
    """Run work in another thread and enforce time-outs.

    Attributes
    ----------
    stage : str
        Current stage, for error messages; the same on all ranks.
    stuck : bool
        Whether a thread did not return, so that the process cannot end in order.
    """

    def __init__(self, world: World, timeout: float) -> None:
        self.world = world
        self.timeout = timeout
        self.stage = "starting"
        self.stuck = False
        self._since, self._at_least = time.monotonic(), 0.0

    def at(self, stage: str, at_least: float = 0.0) -> None:
        """Start a stage.

        Parameters
        ----------
        at_least : float
            Minimum time-out of this stage, in s.
        """
        self.stage, self._since, self._at_least = stage, time.monotonic(), at_least

    def run(self, work: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
        """Run ``work`` and return its result.

        Parameters
        ----------
        cancel : callable or None
            Makes ``work`` return soon; None if it cannot be cancelled.

        Raises
        ------
        WirespeedError
            If it fails, another rank fails or ends, or a stage exceeds the time-out.
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
            if isinstance(crash[0], BackendError):  # often caused by the end of another rank
                self.world.check(1.0)
            self.world.fail(f"{self.world.me} failed while {self.stage}: {crash[0]}")
            raise crash[0]
        return found[0]


def agree_on(world: World, options: dict[str, object]) -> None:
    """Compare the options of all ranks.

    Raises
    ------
    WorldError
        For the first option that differs, with the rank.
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
