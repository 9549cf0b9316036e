"""Rendezvous of the processes of a job: rank 0 listens, the others connect to it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue
from typing import Any, Literal

import msgspec

from ..errors import starting_threads
from ..run_errors import SIGNALLED
from ..terminal import one_line
from ..version import __version__
from .admission import SHARE_SECRET, NotAdmitted, admit, enter, same_user
from .base import Member, World, WorldError, hostname
from .channel import Channel, InvalidMessage
from .crew import allow_open_files
from .listening import Address

_Purpose = Literal["link", "watch"]
_PURPOSES: tuple[_Purpose, ...] = ("link", "watch")
#: Maximum time for a new connection to prove that it belongs to the job, in s.
ADMISSION_S = 5.0
#: Maximum number of connections that are proving it at a time; more wait in the listener's queue.
_UNPROVEN_LIMIT = 256
#: Time after which one of them is closed for another, in s: a rank answers immediately.
_SILENT_S = 0.25
#: Maximum length of a message before a process has joined, in bytes.
_HELLO_LIMIT_BYTES = 4096
#: Maximum length of a refusal and of the name of a host, in characters.
_REFUSAL_CHARACTERS, _HOST_CHARACTERS = 1000, 255
#: Maximum length of the list of members, in bytes for each.
_MEMBER_LIMIT_BYTES = 4 * _HOST_CHARACTERS + 64
#: Maximum number of notes about connections that were refused.
_NOTES_LIMIT = 5
#: Maximum time to connect to an address, in s.
_CONNECT_S = 2.0
#: Time between two attempts, and between two looks at new connections, in s.
_POLL_S = 0.02


class _Hello(msgspec.Struct, array_like=True, frozen=True):
    """First message of a process after the proof; ``local`` is -1 if the launcher set no local rank."""

    name: Literal["wirespeed"]
    version: str
    rank: int
    size: int
    purpose: _Purpose
    host: str
    pid: int
    local: int


_Answer = tuple[Literal["welcome", "refused"], str]
#: Rank, host, process and local rank of all.
_Members = list[tuple[int, str, int, int]]


class _Lobby:
    """Where new connections prove, each in a thread, that they belong to the job."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._arrived: SimpleQueue[tuple[Channel, _Hello]] = SimpleQueue()
        #: The oldest first -> where it comes from, and since when.
        self._unproven: dict[Channel, tuple[str, float]] = {}
        self._changing = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._notes = 0
        self.refusal = ""

    def arrivals(self, listeners: Sequence[socket.socket]) -> list[tuple[Channel, _Hello]]:
        """Accept new connections for a moment; return those that have proved that they belong here."""
        if self._has_room():
            SIGNALLED.look()
            ready = set(wait(listeners, _POLL_S))
            for listener in (known for known in listeners if known in ready):
                with suppress(OSError):  # it has gone away
                    self._accept(listener.accept()[0])
        else:
            time.sleep(_POLL_S)
        proven = []
        with suppress(Empty):
            while True:
                proven.append(self._arrived.get_nowait())
        return proven

    def refuse(self, problem: str) -> None:
        """Note a refused connection: the first few are shown."""
        self.refusal = problem
        self._notes += 1
        if self._notes <= _NOTES_LIMIT:
            more = "; further notes are omitted" if self._notes == _NOTES_LIMIT else ""
            print(f"wirespeed: note: not admitted: {one_line(problem)}{more}", file=sys.stderr, flush=True)

    def hear(self, channel: Channel, secret: bytes, deadline: float, who: str) -> None:
        """Receive the hello of a connection in a thread; without a secret it need not prove anything."""
        with self._changing:
            self._unproven[channel] = (who, time.monotonic())
        thread = threading.Thread(
            target=self._hear, args=(channel, secret, deadline, who), name="admit a rank", daemon=True
        )
        with starting_threads():
            thread.start()
        self._threads = [*(known for known in self._threads if known.is_alive()), thread]

    def close(self) -> None:
        """Disconnect all that have not proved anything yet, or that came too late."""
        with self._changing:
            for channel in self._unproven:
                _disconnect(channel)
        for thread in self._threads:
            thread.join()
        while not self._arrived.empty():
            self._arrived.get()[0].close()

    def _has_room(self) -> bool:
        """Whether another connection may prove that it belongs to the job.

        A flood of silent connections takes the room only from itself: if there is none, the oldest one is
        closed of the address that has the most.
        """
        with self._changing:
            if len(self._unproven) < _UNPROVEN_LIMIT:
                return True
            crowd = Counter(who for who, _ in self._unproven.values())
            ((most, number),) = crowd.most_common(1)
            oldest, since = next((silent, at) for silent, (who, at) in self._unproven.items() if who == most)
            if time.monotonic() < since + _SILENT_S:
                return False
            del self._unproven[oldest]
            _disconnect(oldest)
        self.refuse(f"{most}: it is silent, like most of {number} connections from there")
        return True

    def _accept(self, sock: socket.socket) -> None:
        channel = Channel(sock)
        if sock.family == socket.AF_UNIX:
            who = "a process of this host"
            if not same_user(sock):
                self.refuse(f"{who}: it belongs to another user")
                channel.close()
                return
        else:
            who = "a connection from " + str(sock.getpeername()[0]).removeprefix("::ffff:")
        self.hear(channel, self._secret, time.monotonic() + ADMISSION_S, who)

    def _hear(self, channel: Channel, secret: bytes, deadline: float, who: str) -> None:
        try:
            if secret:
                admit(channel, secret, deadline)
            self._arrived.put((channel, channel.receive(deadline, _Hello, _HELLO_LIMIT_BYTES)))
            return
        except NotAdmitted as error:
            self.refuse(f"{who}: {error}")
        except InvalidMessage as error:
            self.refuse(f"{who}: it sent {error}")
        except TimeoutError:
            self.refuse(f"{who}: it does not speak")
        except (EOFError, OSError):
            pass  # a health check, or it tries again
        finally:
            with self._changing:
                self._unproven.pop(channel, None)
        channel.close()


def _disconnect(channel: Channel) -> None:
    """End a connection; the thread that reads it closes it."""
    with suppress(OSError):
        channel.socket.shutdown(socket.SHUT_RDWR)


def gather(
    listeners: Sequence[socket.socket],
    secret: bytes,
    size: int,
    launcher: str,
    timeout: float,
    look: Callable[[], None] = lambda: None,
    local: int = -1,
    inherited: Sequence[socket.socket] = (),
    partial: bool = False,
    **extra: Any,
) -> World:
    """On rank 0: wait for the others and return the World.

    Connections that do not prove that they know the secret, and ranks that do not fit, are refused with a
    note; the job goes on waiting.

    Args:
        listeners: What ``listen`` returned; they are closed at the end.
        secret: The secret of the job.
        size: Number of ranks.
        launcher: Description of the launcher.
        timeout: Maximum time for all ranks to join, and then for an exchange, in s.
        look: Called many times per second; raises if a rank cannot join any more.
        local: Local rank set by the launcher; -1 to number the processes of a host by rank.
        inherited: Connections to processes that this one started: nobody else has their other ends.
        partial: Whether the job goes on without ranks that do not join in time, if any other does.
        **extra: Further parameters of the World.

    Raises:
        WorldError: If ranks do not join in time.
    """
    deadline = time.monotonic() + timeout
    allow_open_files(len(_PURPOSES) * size)
    members = {0: Member(0, hostname(), os.getpid(), local)}
    channels: dict[_Purpose, dict[int, Channel]] = {purpose: {} for purpose in _PURPOSES}
    absent: dict[int, str] = {}
    refused: dict[int, str] = {}
    lobby = _Lobby(secret)
    with ExitStack() as joining, ExitStack() as stack:
        stack.callback(lobby.close)
        for listener in listeners:
            stack.enter_context(listener)
        for sock in inherited:
            lobby.hear(Channel(sock), b"", deadline, "a process that this one started")
        while any(len(known) < size - 1 for known in channels.values()):
            look()
            if time.monotonic() >= deadline:
                complete = {0}.union(set.intersection(*(set(known) for known in channels.values())))
                missing = [str(rank) for rank in range(size) if rank not in complete]
                if partial and len(complete) > 1:
                    absent = {
                        rank: one_line(refused.get(rank, f"did not join within {timeout:g} s"))
                        for rank in range(size)
                        if rank not in complete
                    }
                    break
                why = f" (not admitted: {one_line(lobby.refusal)})" if lobby.refusal else ""
                port = f", port {listeners[0].getsockname()[1]}" if listeners else ""
                raise WorldError(
                    f"timed out after {timeout:g} s: {len(missing)} of {size} ranks did not connect "
                    f"to rank 0 on {hostname()}{port}: {', '.join(missing[:8])}{why}"
                )
            for channel, hello in lobby.arrivals(listeners):
                known = channels[hello.purpose]
                problem = _problem(hello, size, known)
                try:
                    answer = ("refused", problem[:_REFUSAL_CHARACTERS]) if problem else ("welcome", "")
                    channel.send(answer, time.monotonic() + ADMISSION_S)
                except OSError as error:
                    problem = problem or f"rank {hello.rank}: {error}"
                if problem:
                    lobby.refuse(problem)
                    if misfit := _misfit(hello, size):
                        refused[hello.rank] = f"on {hello.host[:_HOST_CHARACTERS]} {misfit}"
                    channel.close()
                    continue
                known[hello.rank] = joining.enter_context(closing(channel))
                members[hello.rank] = Member(
                    hello.rank, one_line(hello.host)[:_HOST_CHARACTERS], hello.pid, hello.local
                )
        joined = joining.pop_all()  # the World closes them
    for rank in absent:
        members[rank] = Member(rank, "", 0, 0)
        for known in channels.values():
            if rank in known:
                known.pop(rank).close()
    ordered = _with_local_ranks([members[rank] for rank in range(size)])
    links = dict(sorted(channels["link"].items()))
    everyone = [(m.rank, m.host, m.pid, m.local_rank) for m in ordered]
    for rank, link in links.items():
        try:
            link.send(everyone, deadline + ADMISSION_S)
        except OSError as error:
            if partial:
                continue  # the first task that it gets finds out
            joined.close()
            raise WorldError(f"{members[rank]} ended while the ranks were joining") from error
    return World(ordered, 0, launcher, links, channels["watch"], timeout, absent=absent, **extra)


def _problem(hello: _Hello, size: int, known: Mapping[int, Channel]) -> str:
    """Why a rank cannot join; empty if it can."""
    if misfit := _misfit(hello, size):
        return f"rank {hello.rank} {misfit}"
    if hello.rank in known:
        return f"two processes have rank {hello.rank}: set a different RANK for every process"
    return ""


def _misfit(hello: _Hello, size: int) -> str:
    """Why a rank is not one of this job, after its name; empty if it may be one."""
    if hello.version != __version__:
        return f"runs wirespeed {hello.version}, rank 0 {__version__}: install the same version"
    if hello.size != size or not 0 < hello.rank < size:
        return f"is one of {hello.size} ranks, but rank 0 expects {size}: check WORLD_SIZE and RANK"
    return ""


def _with_local_ranks(members: Sequence[Member]) -> list[Member]:
    """Number the processes of each host in rank order, unless their launcher did."""
    count: dict[str, int] = {}
    numbered = []
    for member in members:
        local = count.get(member.host, 0)
        count[member.host] = local + 1
        own = local if member.local_rank < 0 else member.local_rank
        numbered.append(Member(member.rank, member.host, member.pid, own))
    return numbered


def connect(
    to: Sequence[Address],
    secret: bytes,
    rank: int,
    size: int,
    launcher: str,
    timeout: float,
    local: int = -1,
    inherited: Sequence[socket.socket] = (),
    partial: bool = False,
    **extra: Any,
) -> World:
    """On other ranks: connect to rank 0 and return the World.

    Args:
        to: Addresses of rank 0, tried in order.
        secret: The secret of the job.
        rank, size: Number of this rank, and of all.
        launcher, timeout, local, partial, **extra: As for ``gather``.
        inherited: The two connections that rank 0 made when it started this process, in place of addresses.

    Raises:
        WorldError: If rank 0 cannot be reached in time, is not of this job, or refuses this rank.
    """
    deadline = time.monotonic() + timeout
    where = "rank 0" + next((f" at {host[0]}:{host[1]}" for host in to if isinstance(host, tuple)), "")
    channels: dict[_Purpose, Channel] = {}
    doing = f"does not answer rank {rank}"
    with ExitStack() as stack:
        try:
            for i, purpose in enumerate(_PURPOSES):
                channel = Channel(inherited[i]) if inherited else _reach(to, secret, deadline, timeout)
                channels[purpose] = channel
                stack.callback(channel.close)
                me = (rank, size, purpose, hostname(), os.getpid(), local)
                channel.send(_Hello("wirespeed", __version__, *me), deadline)
                answer, text = channel.receive(deadline, _Answer, _HELLO_LIMIT_BYTES)
                if answer == "refused":
                    raise WorldError(one_line(text))
            doing = f"gave up: not all {size} ranks joined"
            limit = _MEMBER_LIMIT_BYTES * size + _HELLO_LIMIT_BYTES
            patience = timeout + ADMISSION_S if partial else 0.0  # rank 0 may have started later
            everyone = channels["link"].receive(deadline + patience, _Members, limit)
        except InvalidMessage as error:
            raise WorldError(f"{where} sent {error}") from error
        except (EOFError, OSError) as error:
            raise WorldError(f"{where} {doing}") from error
        members = [Member(index, one_line(host), pid, near) for index, host, pid, near in everyone]
        if [member.rank for member in members] != list(range(size)):
            raise WorldError(f"{where} sent a list of {len(members)} ranks where {size} are expected")
        stack.pop_all()  # the World closes them
    return World(members, rank, launcher, {0: channels["link"]}, {0: channels["watch"]}, timeout, **extra)


def _reach(to: Sequence[Address], secret: bytes, deadline: float, timeout: float) -> Channel:
    """Connect to rank 0 and prove in both directions that both belong to the job."""
    reason = "no address"
    while True:
        for address in to:
            name = "a process of this host" if isinstance(address, str) else address[0]
            try:
                channel = Channel(_dial(address))
            except OSError as error:
                reason = f"{name}: {error.strerror or error}"
                continue
            try:
                enter(channel, secret, min(deadline, time.monotonic() + ADMISSION_S))
                return channel
            except NotAdmitted as error:
                channel.close()
                raise WorldError(
                    f"{name} listens in place of rank 0, but {error}: another job uses this port, or the key "
                    f"files of the hosts differ; choose another MASTER_PORT, or {SHARE_SECRET}"
                ) from error
            except (EOFError, OSError) as error:  # too many connect together, or it is not rank 0
                reason = f"{name}: {error or 'closed the connection'}"
                channel.close()
        if time.monotonic() > deadline:
            port = next((address[1] for address in to if isinstance(address, tuple)), 0)
            raise WorldError(f"could not reach rank 0 within {timeout:g} s on port {port} ({reason})")
        time.sleep(_POLL_S)


def _dial(address: Address) -> socket.socket:
    """Connect to an address; a Unix socket only if this user listens."""
    if not isinstance(address, str):
        return socket.create_connection(address, timeout=_CONNECT_S)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_CONNECT_S)
        sock.connect(address)
        if same_user(sock):
            return sock
        raise PermissionError("it belongs to another user")
    except OSError:
        sock.close()
        raise
