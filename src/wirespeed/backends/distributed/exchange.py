"""Errors of one process in plain values, so that all processes can raise them.

Exchanges between the processes of a job, after which all continue in the same way.

The transports between processes: shared memory, or messages.

Selection of the transport of each pair of ranks: the best one that works.

Buffers that processes share: this process' own, and those of others that it has opened.

They are kept for later Measurements: exporting and opening can take longer than a copy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import (
    BackendError,
    BackendLost,
    MeasurementTimeout,
    OutOfMemory,
    Unreachable,
    VerificationError,
    WirespeedError,
    starting_threads,
)
from ...hardware.devices import GPU, kind_of
from ...model import Memory, MemoryKind, Transfer
from ...terminal import visible
from ...worlds.base import RankLost, World, WorldError
from ..base import Backend
from .endpoint import MPI, NCCL, TWO_SIDED, Allocation, Endpoint, Handle

#: Kinds of errors as other processes hear of them; all others are errors of a backend.
_KINDS: dict[str, type[WirespeedError]] = {
    "late": MeasurementTimeout, "lost": BackendLost, "unreachable": Unreachable, "memory": OutOfMemory,
}  # fmt: skip


def told(error: WirespeedError) -> list[Any]:
    """An error as plain values."""
    if isinstance(error, VerificationError):
        return ["wrong", str(error), error.offset, error.wrong, error.words, error.way]
    return [next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "error"), str(error)]


def heard(who: str, told: list[Any]) -> WirespeedError:
    """Another process' error as one that can be raised here.

    Args:
        who: The other process, for the message.
        told: Result of ``told`` in that process.
    """
    kind, text, *more = told
    text = visible(text)
    if kind not in ("wrong", "late"):
        return _KINDS.get(kind, BackendError)(f"{who}: {text}")
    error = VerificationError("", *more) if kind == "wrong" else MeasurementTimeout("", 0.0)
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
        with starting_threads():
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


#: Transports by shared memory that reach another host.
FAR = ("fabric",)


class TransportSelector:
    """Transports with their failures so far; the same in all processes.

    Attributes:
        exchange: Exchanges with the other processes.
        side: Hardware of this process.
        share: The only transport to use; None: the best one that works for each pair.
        warn: Report a transport that does not work.
    """

    def __init__(
        self, exchange: Exchange, side: Endpoint, share: str | None, warn: Callable[[str], None]
    ) -> None:
        self._exchange, self._side, self._share, self._warn = exchange, side, share, warn
        self._hosts = [member.host for member in exchange.world.members]
        self._failed: dict[tuple[int | None, int | None, str], str] = {}
        self._messages: dict[str, str] = {}

    def of(self, transfer: Transfer) -> str:
        """The best transport for a transfer that has not failed.

        Raises:
            Unreachable: If none is left; the message contains the reason for each.
            BackendError: The same, if the user selected the transport.
        """
        source, destination = transfer.source.rank, transfer.destination.rank
        assert source is not None and destination is not None
        if source == destination:
            return self._side.plain
        near = self._hosts[source] == self._hosts[destination]
        reasons = []
        for means in self._candidates(transfer):
            if means in TWO_SIDED:
                reason = self._can_send(means)
            elif means not in self._side.mechanisms:
                reason = "this hardware does not support it"
            elif not near and means not in FAR:
                reason = "it does not reach another host"
            else:
                reason = self._failed.get((source, destination, means), "")
            if not reason:
                return means
            reasons.append(f"{means}: {reason}")
        where = "within a host" if near else "with another host"
        text = f"memory cannot be shared {where}: {'; '.join(reasons)}"
        raise Unreachable(text) if self._share is None else BackendError(text)

    def fails(self, transfer: Transfer, means: str, reason: str) -> None:
        """Record that a transport does not work between the ranks of a transfer, in its direction."""
        source, destination = transfer.source.rank, transfer.destination.rank
        self._failed[source, destination, means] = reason
        if self._share is None:
            self._warn(
                f"{means} does not work between ranks {source} and {destination}; trying the next transport: "
                f"{reason}"
            )

    def _candidates(self, transfer: Transfer) -> tuple[str, ...]:
        if self._share is not None:
            return (self._share,)
        gpu = kind_of(transfer.executor.device) is GPU
        return (*self._side.mechanisms, *((NCCL, MPI) if gpu else (MPI,)))

    def _can_send(self, means: str) -> str:
        """Why a transport cannot send messages; empty if it can. All processes ask together, once."""
        if means not in self._messages:
            self._messages[means] = self._connect(means)
        return self._messages[means]

    def _connect(self, means: str) -> str:
        answers = self._exchange.together(lambda: self._side.can_send(means), f"asking for {means}")
        if reason := self._exchange.first(reason for reason, _ in answers):
            return reason
        told = [token for _, token in answers]
        try:
            self._exchange.together(lambda: self._side.connect(means, told), f"connecting {means}")
        except BackendLost:
            raise
        except WirespeedError as error:
            return str(error)
        return ""


@dataclass(eq=False)
class Own:
    """A buffer of this process.

    Attributes:
        number: Number by which other processes refer to it.
        means: Transport that can export it.
        memory: Memory that it is in.
        allocation: Its address and size.
        handle: What other processes open; None until it is exported.
    """

    number: int
    means: str
    memory: Memory
    allocation: Allocation
    handle: Handle | None = None


class SharedBufferPool:
    """The buffers of one process.

    Attributes:
        side: Hardware of this process, which allocates, exports and opens.
    """

    def __init__(self, side: Endpoint) -> None:
        self._side = side
        self._free: list[Own] = []
        self._taken: list[Own] = []
        self._opened: dict[tuple[int, int], Allocation] = {}
        self._next = 0

    def take(self, memory: Memory, means: str, size: int) -> Own:
        """A buffer of at least ``size`` bytes that a transport can export, or for messages in pinned memory.

        Raises:
            BackendError: If it cannot be allocated.
        """
        fitting = [
            own for own in self._free
            if (own.means, own.memory) == (means, memory) and own.allocation.bytes >= size
        ]  # fmt: skip
        if fitting:
            own = min(fitting, key=lambda own: own.allocation.bytes)
            self._free.remove(own)
        else:
            of_host = self._side.pinned if memory.kind is MemoryKind.PINNED else None
            allocation = (of_host or self._side.mechanisms[means].allocate)(self._side.where, size)
            self._next += 1
            own = Own(self._next, means, memory, allocation)
        self._taken.append(own)
        return own

    def export(self, own: Own) -> Handle:
        """The handle of a buffer."""
        if own.handle is None:
            own.handle = self._side.mechanisms[own.means].export(own.allocation)
        return own.handle

    def open(self, rank: int, number: int, handle: Handle) -> int:
        """The address of another rank's buffer, opened in this process.

        Args:
            rank, number: The rank that owns the buffer, and its number there.
            handle: What the owner exported.
        """
        if (rank, number) not in self._opened:
            opened = self._side.mechanisms[handle.means].open(self._side.where, handle)
            self._opened[rank, number] = opened
        return self._opened[rank, number].address

    def give_back(self) -> None:
        """Give all taken buffers back to the pool."""
        self._free += self._taken
        self._taken.clear()

    def close_opened(self) -> None:
        """Unmap the buffers of other processes; they must still exist."""
        for opened in self._opened.values():
            opened.release()
        self._opened.clear()

    def free(self) -> None:
        """Free the buffers of this process; all others must have unmapped them."""
        for own in (*self._free, *self._taken):
            own.allocation.release()
        self._free.clear()
        self._taken.clear()
