"""Exchanges between the processes of a job, after which all continue in the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import BackendLost, MeasurementTimeout, WirespeedError, starting_threads
from ...worlds.base import RankLost, World, WorldError
from .error_wire import heard, told

#: Interval at which the other processes are checked.
_WATCH_INTERVAL_S = 0.1
#: Time to wait for news after Ctrl-C; Open MPI's launcher kills after 0.2 s.
_NEWS_S = 0.03
#: Why exchanges are not possible after Ctrl-C.
_INTERRUPTED = "interrupted"


class Exchange:
    """Steps that all processes take together.

    Attributes:
        world: The processes of the job.
        cancel: Release everything that waits in this process; called from another thread when a process has
            ended.

    Attributes:
        now: Rank 0's clock at the last exchange, in s: the same in all processes.
        lost: Why exchanges are no longer possible; empty while they are.
        gone: Process that ended or failed, as reported outside of an exchange; empty if none.
    """

    def __init__(self, world: World, cancel: Callable[[], None]) -> None:
        self.world = world
        self.now = time.monotonic()  # this process' own clock until the first exchange
        self.lost = ""
        self.gone = ""
        self._cancels = [cancel]
        self._closed = threading.Event()
        with starting_threads():
            threading.Thread(target=self._watch, name="watch ranks", daemon=True).start()

    def gather(self, value: object, doing: str, patience: float = 0.0) -> list[Any]:
        """The values of all processes, by rank.

        Args:
            value: Plain value of this process.
            doing: Text that names the step in errors.
            patience: Additional time that another process may take, in s.

        Raises:
            BackendLost: If a process has ended, does not arrive in time, or is at another step.
        """
        self.check()
        try:
            everyone = self.world.allgather([time.monotonic(), value], doing, patience)
        except (RankLost, WorldError, MeasurementTimeout) as error:
            raise self.lose(error) from error
        self.now = everyone[0][0]
        return [value for _, value in everyone]

    def together(self, call: Callable[[], object], doing: str) -> list[Any]:
        """Call a function in every process and return all results, by rank.

        Raises:
            WirespeedError: In all processes, if the call fails in one.
        """
        mine: list[Any]
        try:
            mine = [None, call()]
        except WirespeedError as error:
            mine = [told(error), None]
        everyone = self.gather(mine, doing)
        for member, (wire_error, _) in zip(self.world.members, everyone, strict=True):
            if wire_error:
                failure = heard(str(member), wire_error)
                raise self.lose(failure) if isinstance(failure, BackendLost) else failure
        return [value for _, value in everyone]

    def on_lost(self, cancel: Callable[[], None]) -> None:
        """Add a function that is called, from another thread, when a process has ended."""
        self._cancels.append(cancel)

    def check(self) -> None:
        """Check that exchanges are possible.

        Raises:
            BackendLost: If they are not.
        """
        if self.lost:
            raise BackendLost(self.lost)

    def lose(self, error: WirespeedError) -> BackendLost:
        """Record that the job cannot continue; return the exception to raise."""
        self.lost = self.lost or str(error)
        return BackendLost(self.lost)

    def news(self) -> str:
        """Which process has ended, as far as is known a moment later; empty if none."""
        try:
            self.world.check(_NEWS_S)
        except RankLost as error:
            self.lose(error)
        return self.lost

    def interrupted(self) -> str:
        """After Ctrl-C, return which process has ended, if the launcher ended this one because of that.

        No further exchange is possible. Several backends may share an Exchange, and each asks.
        """
        lost = self.news()
        self.lost = lost or _INTERRUPTED
        return "" if lost == _INTERRUPTED else lost

    def close(self) -> None:
        """Stop watching the other processes."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_INTERVAL_S):
            try:
                self.world.check()
            except RankLost as error:
                self.lose(error)
                self.gone = str(error)
                for cancel in self._cancels:
                    cancel()
                return
