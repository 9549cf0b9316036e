"""World: the processes that take part in a run. However they were launched, every other rank has two channels
to rank 0. The first carries the exchanges of the program, always with a time-out. On the second, a process
reports its failure, and closing it shows that the process has ended; so the others can end and name that
rank, even while they wait for something else.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from ..errors import MeasurementTimeout, WirespeedError
from ..terminal import one_line
from ..units import some
from .channel import Channel, InvalidMessage, arrived

#: Sequence number of an answer that holds rank 0's error.
_FAILED = -1
#: Time for other processes to report their stage after a time-out, in s.
REPORT_GRACE_S = 3.0
#: Maximum time for a report to another process that does not read, in s.
_REPORT_SEND_S = 0.5
#: Maximum length of the text of a report, in characters, and of the report, in bytes.
_REPORT_CHARACTERS = 10_000
_REPORT_LIMIT_BYTES = 2**16
#: Maximum time between two looks for reports, in s.
_CHECK_INTERVAL_S = 0.02
#: Variables that launchers of MPI set.
MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE")
#: Variables with which launchers number the ranks.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")

#: A value for an exchange: its number, its purpose and the value.
_Question = tuple[int, str, Any]
#: What rank 0 sends to all: the number of the exchange and all values, or ``_FAILED`` and the error.
_Answer = tuple[int, Any]
#: A report on the second channel: its kind and a text.
_Report = tuple[Literal["failed", "interrupted", "late", "bye"], str]


def has_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher started this process, whatever sets its rank."""
    return any(name in environment for name in MPI_VARIABLES)


class WorldError(WirespeedError):
    """The processes could not be joined, or disagree on what to do."""


class RankLost(WirespeedError):
    """Another process of the job has ended or failed."""


@dataclass(frozen=True)
class Member:
    """One process of a job."""

    rank: int
    host: str
    pid: int
    local_rank: int

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


@dataclass(eq=False)
class World:
    """This process and the others of its job.

    Attributes:
        members: All processes, by rank.
        rank: Number of this process.
        launcher: Description of the launcher.
        links, watches: Rank -> channel for data and for failures: to all others on rank 0, to rank 0
            elsewhere.
        timeout: Maximum time of an exchange, in s.
        end: Ends this process immediately.
        finish: Called at the end.
        absent: Ranks that did not join, where that is allowed -> why. Their host is the empty text.
        leaderless: Whether rank 0 has ended or does not answer: another process must report.
    """

    members: Sequence[Member]
    rank: int
    launcher: str
    links: dict[int, Channel]
    watches: dict[int, Channel]
    timeout: float
    end: Callable[[int], NoReturn] = os._exit
    finish: Callable[[], None] = lambda: None
    absent: Mapping[int, str] = field(default_factory=dict)
    leaderless: bool = False
    _sequence: int = 0
    _ended: str = ""

    def __post_init__(self) -> None:
        self._checking = threading.Lock()  # the measuring thread also checks for failures
        self._late: dict[int, str] = {}
        self._said_bye: set[int] = set()

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def me(self) -> Member:
        return self.members[self.rank]

    @property
    def local_rank(self) -> int:
        """Number of this process among the processes of its host."""
        return self.me.local_rank

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the ranks that joined, without duplicates."""
        return tuple(dict.fromkeys(member.host for member in self.members if member.host))

    def allgather(self, value: object, doing: str, patience: float = 0.0) -> list[Any]:
        """Exchange values: return the value of each process, by rank. All must call it for the same purpose.

        Args:
            value: Values that MessagePack supports: numbers, texts, bytes, lists, mappings.
            doing: Purpose, for error messages; to be read after "while".
            patience: Time that the others may take beyond the time-out, in s.

        Raises:
            MeasurementTimeout: If a process does not answer; rank 0 knows and reports which one.
            RankLost: If a process has ended or reported a failure.
            WorldError: If the processes do different things.
        """
        self._sequence += 1
        if self.size == 1:
            return [value]
        deadline = time.monotonic() + self.timeout + patience
        try:
            exchange = self._collect if self.rank == 0 else self._ask
            return exchange(value, doing, deadline)
        except WirespeedError as error:
            if self.rank == 0:
                self.fail(str(error))
                for link in self.links.values():  # they wait for an answer
                    with suppress(OSError):  # it has ended and needs no message
                        link.send([_FAILED, str(error)], time.monotonic() + _REPORT_SEND_S)
            raise

    def addresses(self) -> dict[int, str]:
        """On rank 0: the IP address of each rank that joined, as rank 0's host reaches it."""
        remote = {
            rank: link.socket.getpeername()[0].removeprefix("::ffff:")
            for rank, link in self.links.items()
            if link.socket.family != socket.AF_UNIX
        }
        own = next((self.links[rank].socket.getsockname()[0] for rank in remote), "127.0.0.1")
        return {rank: remote.get(rank, own.removeprefix("::ffff:")) for rank in (0, *self.links)}

    def barrier(self, doing: str) -> None:
        """Wait until all processes have called it."""
        self.allgather(None, doing)

    def broadcast(self, value: object, doing: str) -> Any:
        """Rank 0's value."""
        return self.allgather(value if self.rank == 0 else None, doing)[0]

    def _collect(self, value: object, doing: str, deadline: float) -> list[Any]:
        """On rank 0: collect all values and send them to all ranks."""
        values, missing = {0: value}, list[Member]()
        for rank, link in self.links.items():
            try:
                sequence, activity, values[rank] = link.receive(deadline, _Question)
            except TimeoutError:
                missing.append(self.members[rank])
                continue
            except (EOFError, OSError) as error:
                raise RankLost(self.reason_for(rank, doing, error)) from None
            if (sequence, activity) != (self._sequence, doing):
                raise WorldError(f"{self.members[rank]} is {one_line(activity)} while rank 0 is {doing}")
        if missing:
            raise MeasurementTimeout(f"waiting for {_names(missing)} before {doing}", self.timeout)
        all_values = [values[rank] for rank in range(self.size)]
        for rank, link in self.links.items():
            try:
                link.send([self._sequence, all_values], deadline + REPORT_GRACE_S)
            except TimeoutError:
                stage = f"waiting for {self.members[rank]} to receive while {doing}"
                raise MeasurementTimeout(stage, self.timeout) from None
            except OSError as error:
                raise RankLost(self.reason_for(rank, doing, error)) from None
        return all_values

    def _ask(self, value: object, doing: str, deadline: float) -> list[Any]:
        """On other ranks: send the value to rank 0 and receive all values."""
        link = self.links[0]
        try:
            link.send([self._sequence, doing, value], deadline)
            sequence, values = link.receive(deadline + REPORT_GRACE_S, _Answer)  # rank 0 reports who is late
        except TimeoutError:
            self.leaderless = True
            raise MeasurementTimeout(f"waiting for {self.members[0]} while {doing}", self.timeout) from None
        except (EOFError, OSError) as error:
            raise RankLost(self.reason_for(0, doing, error)) from None
        if sequence == _FAILED:
            raise RankLost(one_line(str(values)))
        if sequence != self._sequence or not isinstance(values, list) or len(values) != self.size:
            raise WorldError(f"{self.members[0]} sent an answer to something else while {doing}")
        return values

    def reason_for(self, rank: int, doing: str, error: Exception) -> str:
        """Why a connection cannot be used: its error, or the last report of that rank if it ended."""
        if not isinstance(error, InvalidMessage):
            try:
                self.check(REPORT_GRACE_S)
            except RankLost as lost:
                return str(lost)
        self.leaderless = self.leaderless or rank == 0
        if isinstance(error, InvalidMessage):
            return f"{self.members[rank]} sent {error} while {doing}"
        return f"{self.members[rank]} ended unexpectedly while {doing}"

    def check(self, patience: float = 0.0) -> None:
        """Check whether another process has failed or ended.

        Args:
            patience: Maximum time to wait for a report, in s.

        Raises:
            RankLost: With the reason. Rank 0 has informed the others.
        """
        until = time.monotonic() + patience
        while True:
            with self._checking:
                watches = {w: rank for rank, w in self.watches.items() if rank not in self._said_bye}
                ends = [end for watch in arrived(watches, 0.0) if (end := self._hear(watches[watch], watch))]
                if ends and not self._ended:
                    # A launcher that has lost a process interrupts the others; their reports say no more.
                    _, self._ended = min(ends, key=lambda end: end[0] == "interrupted")
                    if self.rank == 0:
                        self._tell(self._ended)
            if self._ended:
                raise RankLost(self._ended)
            if (left := until - time.monotonic()) <= 0:
                return
            arrived(watches, min(left, _CHECK_INTERVAL_S))

    def _hear(self, rank: int, watch: Channel) -> tuple[str, str] | None:
        """Receive the report of a rank; return its kind and text if that rank has ended."""
        kind = "failed"
        try:
            kind, text = watch.receive(time.monotonic() + REPORT_GRACE_S, _Report, _REPORT_LIMIT_BYTES)
            text = one_line(text)
        except (EOFError, OSError) as error:
            invalid = isinstance(error, InvalidMessage)
            text = f"{self.members[rank]} {f'sent {error}' if invalid else 'ended unexpectedly'}"
            self.leaderless = self.leaderless or rank == 0
        if kind == "late":
            self._late[rank] = text
        elif kind == "bye":
            self._said_bye.add(rank)
        else:
            return kind, text
        return None

    def fail(self, reason: str, *, interrupted: bool = False) -> None:
        """Report to the others that this process has failed; they end.

        Args:
            reason: Why.
            interrupted: Whether a signal ended it, perhaps because another process has ended, which is then
                the reason.
        """
        if not self._ended:
            self._ended = reason
            self._tell(reason, "interrupted" if interrupted else "failed")

    def _tell(self, reason: str, kind: str = "failed") -> None:
        for watch in self.watches.values():
            with suppress(OSError):  # it has ended and needs no message
                watch.send([kind, reason[:_REPORT_CHARACTERS]], time.monotonic() + _REPORT_SEND_S)

    def late(self, stage: str, seconds: float) -> WirespeedError:
        """Identify the straggler after a time-out outside of an exchange.

        Each process calls it after its own time-out, and reports its stage. A process that does not report is
        stuck; one that is in another stage than rank 0 is what the others wait for.

        Returns:
            The error to raise; the others have been informed.
        """
        if self.size == 1:
            return MeasurementTimeout(stage, seconds)
        if self.rank != 0:
            self._tell(stage, "late")
        try:
            until = time.monotonic() + REPORT_GRACE_S + (0 if self.rank == 0 else REPORT_GRACE_S)
            while time.monotonic() < until and (self.rank != 0 or len(self._late) < self.size - 1):
                self.check(0.05)
        except RankLost as error:
            return error
        if self.rank != 0:
            self.leaderless = True
            return MeasurementTimeout(f"{stage}: {self.members[0]} does not answer", seconds)
        silent = [member for member in self.members[1:] if member.rank not in self._late]
        elsewhere = [self.members[rank] for rank, where in self._late.items() if where != stage]
        if silent:
            stage = f"{stage}: {_names(silent)} does not answer"
        elif elsewhere:
            at = self._late[elsewhere[0].rank]
            stage = f"{stage}: {_names(elsewhere)} is still {at}"
        late = MeasurementTimeout(stage, seconds)
        self.fail(str(late))
        return late

    def close(self) -> None:
        """Leave the World in order."""
        self._tell("", "bye")
        for channel in (*self.links.values(), *self.watches.values()):
            channel.close()
        self.finish()

    def leave(self, code: int) -> NoReturn:
        """End this process immediately, even if a thread is stuck; then the others are not waited for."""
        sys.stdout.flush()
        sys.stderr.flush()
        if code and self.rank != 0:
            self._outlast_leader()
        for watch in self.watches.values():  # they wait for the connection to close
            watch.close()
        self.end(code)

    def _outlast_leader(self) -> None:
        """Wait until rank 0 has ended: a launcher ends all processes when one fails.

        Before that, rank 0 has to save the results.
        """
        until = time.monotonic() + 2 * REPORT_GRACE_S
        with self._checking, suppress(EOFError, OSError):  # TimeoutError is an OSError
            while 0 in self.watches and time.monotonic() < until:
                self.watches[0].receive(until, limit=_REPORT_LIMIT_BYTES)


def _names(members: Sequence[Member]) -> str:
    return some([str(member) for member in members], 4)


def hostname() -> str:
    """The name by which processes recognise that they share a host."""
    return platform.node() or "localhost"
