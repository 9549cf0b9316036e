"""Exchanges between the processes of a job, after which all continue in the same way: also errors, which
travel as plain values, so that all processes raise them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ... import errors
from ...terminal import visible
from ...worlds.base import RankLost, World, WorldError
from ..base import Backend

#: Kinds of errors as other processes hear of them; all others are errors of a backend.
_KINDS: dict[str, type[errors.WirespeedError]] = {
    "late": errors.MeasurementTimeout, "lost": errors.BackendLost, "unreachable": errors.Unreachable,
    "memory": errors.OutOfMemory,
}  # fmt: skip


def told(error: errors.WirespeedError) -> list[Any]:
    """An error as plain values."""
    if isinstance(error, errors.VerificationError):
        return ["wrong", str(error), error.offset, error.wrong, error.words, error.way]
    return [next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "error"), str(error)]


def heard(who: str, told: list[Any]) -> errors.WirespeedError:
    """Another process' error as one that can be raised here.

    Args:
        who: The other process, for the message.
        told: Result of ``told`` in that process.
    """
    kind, text, *more = told
    text = visible(text)
    if kind not in ("wrong", "late"):
        return _KINDS.get(kind, errors.BackendError)(f"{who}: {text}")
    error = errors.VerificationError("", *more) if kind == "wrong" else errors.MeasurementTimeout("", 0.0)
    error.args = (text if kind == "wrong" else f"{who}: {text}",)
    return error


#: Interval at which the other processes are checked.
_WATCH_INTERVAL_S = 0.1
#: Time to wait for news after Ctrl-C; Open MPI's launcher kills after 0.2 s.
_NEWS_S = 0.03
#: Why exchanges are not possible after Ctrl-C.
_INTERRUPTED = "interrupted"


class Exchange:
    """Steps that all processes take together.

    Args:
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
        self._watching = threading.Thread(target=self._watch, name="watch ranks", daemon=True)
        with errors.starting_threads():
            self._watching.start()

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
        except (RankLost, WorldError, errors.MeasurementTimeout) as error:
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
        except errors.WirespeedError as error:
            mine = [told(error), None]
        everyone = self.gather(mine, doing)
        for member, (wire_error, _) in zip(self.world.members, everyone, strict=True):
            if wire_error:
                failure = heard(str(member), wire_error)
                raise self.lose(failure) if isinstance(failure, errors.BackendLost) else failure
        return [value for _, value in everyone]

    def first(self, reasons: Iterable[str | None]) -> str:
        """The first of the reasons of all processes, by rank, with who gives it; empty if none has one."""
        told = zip(self.world.members, reasons, strict=True)
        return next((f"{member}: {reason}" for member, reason in told if reason), "")

    def on_lost(self, cancel: Callable[[], None]) -> None:
        """Add a function that is called, from another thread, when a process has ended."""
        self._cancels.append(cancel)

    def check(self) -> None:
        """Check that exchanges are possible.

        Raises:
            BackendLost: If they are not.
        """
        if self.lost:
            raise errors.BackendLost(self.lost)

    def lose(self, error: errors.WirespeedError) -> errors.BackendLost:
        """Record that the job cannot continue; return the exception to raise."""
        self.lost = self.lost or str(error)
        return errors.BackendLost(self.lost)

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
        if self._watching is not threading.current_thread():
            self._watching.join()

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


class JobBackend(Backend):
    """A backend whose steps all processes take together.

    Attributes:
        exchange: The exchange of the job.
    """

    may_hang = True
    exchange: Exchange

    def now(self) -> float:
        """Rank 0's clock at the last exchange, in s: the same in all processes."""
        return self.exchange.now

    def gone(self) -> str:
        return self.exchange.gone

    def interrupted(self) -> str:
        return self.exchange.interrupted()
