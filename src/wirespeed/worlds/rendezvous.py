"""Rendezvous of the processes of a job: rank 0 listens, the others connect to it."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..version import __version__
from .base import Member, World, WorldError, hostname
from .channel import Channel

_NAME: Literal["wirespeed"] = "wirespeed"
_Purpose = Literal["link", "watch"]
_PURPOSES: tuple[_Purpose, ...] = ("link", "watch")


class _Hello(msgspec.Struct, array_like=True, frozen=True):
    """First message of a process after connecting; ``local`` is -1 if the launcher set no local rank."""

    name: Literal["wirespeed"]
    version: str
    rank: int
    size: int
    channel: _Purpose
    host: str
    pid: int
    local: int


def listen(port: int = 0, address: str = "") -> socket.socket:
    """Return a listening socket; port 0 selects a free one.

    Raises
    ------
    WorldError
        If the port is in use.
    """
    family = socket.AF_INET6 if not address and socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        return socket.create_server(
            (address, port), family=family, backlog=1024, dualstack_ipv6=family == socket.AF_INET6
        )
    except OSError as error:
        raise WorldError(
            f"rank 0 cannot listen on port {port}: {error.strerror}; set MASTER_PORT to a free port"
        ) from error


def addresses() -> list[str]:
    """Return the IPv4 addresses of this host, the loopback last."""
    try:
        routes = Path("/proc/net/fib_trie").read_text()
    except OSError:  # other hosts then use the name of this one
        return []
    found = dict.fromkeys(re.findall(r"\|-- (\S+)\n +/32 host LOCAL", routes))
    return sorted(found, key=lambda text: text.startswith("127."))


def gather(
    listener: socket.socket,
    size: int,
    launcher: str,
    timeout: float,
    look: Callable[[], None] = lambda: None,
    local: int = -1,
    **extra: Any,
) -> World:
    """On rank 0: wait for the others and return the World.

    Parameters
    ----------
    look : callable
        Called several times per second; raises if a rank cannot join any more.
    local : int
        Local rank set by the launcher; -1 to number the processes of a host by rank.

    Raises
    ------
    WorldError
        If ranks do not join in time, or are not the expected ones.
    """
    deadline = time.monotonic() + timeout
    members = {0: Member(0, hostname(), os.getpid(), local)}
    channels: dict[_Purpose, dict[int, Channel]] = {purpose: {} for purpose in _PURPOSES}
    with listener:
        while any(len(found) < size - 1 for found in channels.values()):
            listener.settimeout(0.2)
            look()
            try:
                channel = Channel(listener.accept()[0])
                soon = min(deadline, time.monotonic() + 5)
                hello = channel.receive(soon, _Hello, 4096)
                known = channels[hello.channel]
                problem = _problem(hello, size, known)
                channel.send(["refused", problem] if problem else ["welcome", ""], soon)
            except TimeoutError:
                if time.monotonic() < deadline:
                    continue  # no connection, or one that sends nothing
                missing = [str(rank) for rank in range(size) if rank not in members]
                raise WorldError(
                    f"timed out after {timeout:g} s: {len(missing)} of {size} ranks did not connect "
                    f"to rank 0 on {hostname()}: {', '.join(missing[:8])}"
                ) from None
            except (EOFError, OSError):
                continue  # a port scanner, a health check, or a closed connection
            if problem:
                raise WorldError(problem)
            known[hello.rank] = channel
            members[hello.rank] = Member(hello.rank, hello.host, hello.pid, hello.local)
    ordered = _with_local_ranks([members[rank] for rank in range(size)])
    links = dict(sorted(channels["link"].items()))
    for link in links.values():
        link.send([[m.rank, m.host, m.pid, m.local_rank] for m in ordered], deadline)
    return World(ordered, 0, launcher, links, channels["watch"], timeout, **extra)


def _problem(hello: _Hello, size: int, known: dict[int, Channel]) -> str:
    rank = hello.rank
    if hello.version != __version__:
        return f"rank {rank} runs {_NAME} {hello.version}, rank 0 {__version__}: install the same version"
    if hello.size != size or not 0 < rank < size:
        return (
            f"rank {rank} is one of {hello.size} ranks, but rank 0 expects {size}: check WORLD_SIZE and RANK"
        )
    if rank in known:
        return f"two processes have rank {rank}: set a different RANK for every process"
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
    hosts: Sequence[str],
    port: int,
    rank: int,
    size: int,
    launcher: str,
    timeout: float,
    local: int = -1,
    **extra: Any,
) -> World:
    """On other ranks: connect to rank 0 and return the World.

    Parameters
    ----------
    hosts : Sequence[str]
        Names or addresses of rank 0's host, tried in order.
    local : int
        As for ``gather``.

    Raises
    ------
    WorldError
        If rank 0 cannot be reached in time, or rejects this rank.
    """
    deadline = time.monotonic() + timeout
    found: dict[str, Channel] = {}
    for purpose in _PURPOSES:
        channel = Channel(_reach(hosts, port, deadline, timeout))
        try:
            hello = _Hello(_NAME, __version__, rank, size, purpose, hostname(), os.getpid(), local)
            channel.send(hello, deadline)
            answer, text = channel.receive(deadline)
        except (EOFError, OSError) as error:
            raise WorldError(f"rank 0 at {hosts[0]}:{port} does not answer rank {rank}") from error
        if answer != "welcome":
            raise WorldError(text)
        found[purpose] = channel
    try:
        members = [Member(*fields) for fields in found["link"].receive(deadline)]
    except (EOFError, TimeoutError) as error:
        raise WorldError(f"rank 0 at {hosts[0]}:{port} gave up: not all {size} ranks joined") from error
    return World(members, rank, launcher, {0: found["link"]}, {0: found["watch"]}, timeout, **extra)


def _reach(hosts: Sequence[str], port: int, deadline: float, timeout: float) -> socket.socket:
    reason = "no address"
    while True:
        for host in hosts:
            try:
                return socket.create_connection((host, port), timeout=2)
            except OSError as error:
                reason = f"{host}: {error.strerror or error}"
        if time.monotonic() > deadline:
            raise WorldError(f"could not reach rank 0 within {timeout:g} s on port {port} ({reason})")
        time.sleep(0.02)
