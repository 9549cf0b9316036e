"""Exchanges between the processes of a job, after which all go on in the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import BackendLost, MeasurementTimeout, WirespeedError
from ...worlds.base import RankLost, World, WorldError
from .error_wire import heard, told

_WATCH_INTERVAL_S = 0.1
#: How long to wait for news after Ctrl-C; Open MPI's launcher kills after 0.2 s.
_NEWS_S = 0.03


class Exchange:
    """What all processes do together, step by step.

    Parameters
    ----------
    cancel
        Called from another thread as soon as a process is gone: lets what waits in this one go.

    Attributes
    ----------
    now
        Rank 0's clock as of the last exchange, in s: the same in all processes.
    lost
        Why nothing can be exchanged any more; empty as long as it can.
    gone
        Which process ended or failed, as was heard outside of an exchange; empty if none.
    """

    def __init__(self, world: World, cancel: Callable[[], None]) -> None:
        self.world = world
        self.now = time.monotonic()  # this process' own clock until the first exchange
        self.lost = ""
        self.gone = ""
        self._cancels = [cancel]
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watch ranks", daemon=True).start()

    def gather(self, value: object, doing: str, patience: float = 0.0) -> list[Any]:
        """Give all processes the values of all.

        Parameters
        ----------
        patience
            Seconds longer than usual that another process may take.

        Raises
        ------
        BackendLost
            If one is gone, does not come, or does something else.
        """
        self.check()
        try:
            everyone = self.world.allgather([time.monotonic(), value], doing, patience)
        except (RankLost, WorldError, MeasurementTimeout) as error:
            raise self.lose(error) from error
        self.now = everyone[0][0]
        return [value for _, value in everyone]

    def together(self, call: Callable[[], object], doing: str) -> list[Any]:
        """Do something in this process and return what all have; an error in one is raised in all."""
        mine: list[Any]
        try:
            mine = [None, call()]
        except WirespeedError as error:
            mine = [told(error), None]
        everyone = self.gather(mine, doing)
        for member, (found, _) in zip(self.world.members, everyone, strict=True):
            if found:
                failure = heard(str(member), found)
                raise self.lose(failure) if isinstance(failure, BackendLost) else failure
        return [value for _, value in everyone]

    def on_lost(self, cancel: Callable[[], None]) -> None:
        """Call this too, from another thread, as soon as a process is gone."""
        self._cancels.append(cancel)

    def check(self) -> None:
        """Raise what was lost.

        Raises
        ------
        BackendLost
            If something was.
        """
        if self.lost:
            raise BackendLost(self.lost)

    def lose(self, error: WirespeedError) -> BackendLost:
        """Note that the job cannot go on; return what to raise."""
        self.lost = self.lost or str(error)
        return BackendLost(self.lost)

    def news(self) -> str:
        """Return whether another process is gone, as far as is known a moment later."""
        try:
            self.world.check(_NEWS_S)
        except RankLost as error:
            self.lose(error)
        return self.lost

    def interrupted(self) -> str:
        """After Ctrl-C: return which process is gone, if a launcher ended this one because of that.

        From now on nothing is exchanged.
        """
        lost = self.news()
        self.lost = self.lost or "interrupted"
        return lost

    def close(self) -> None:
        """Do not look after the others any more."""
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
