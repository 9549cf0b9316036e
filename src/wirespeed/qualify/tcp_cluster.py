"""The nodes of a job, measured over TCP between their processes.

The process with local rank i of each node is its rail i. Rank 0 says what to measure; the others obey.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..qualification import QualifiedNode
from .cluster import Values

if TYPE_CHECKING:
    from ..worlds.base import World

#: Duration of one direction, and of its beginning that does not count: buffers and windows fill, in s.
_SECONDS, _WARMUP_S = 0.4, 0.1
#: Maximum time to connect and to wait for bytes, in s.
_TIMEOUT_S = 5.0
_BUFFER_BYTES = 2**17
_TOKEN_BYTES = 16
_STOP = "stop"


class TcpCluster:
    """The nodes of a job.

    Parameters
    ----------
    world : World
        The processes of the job.
    blocks : Mapping[str, str]
        Host -> its block.
    spares : int
        Number of nodes at the end that are spares.
    """

    transport = "TCP"

    def __init__(self, world: World, blocks: Mapping[str, str], spares: int = 0) -> None:
        self.world = world
        self._started = time.monotonic()
        counts = {host: sum(member.host == host for member in world.members) for host in world.hosts}
        self.nodes = tuple(
            QualifiedNode(host, blocks.get(host, ""), "", counts[host], i >= len(counts) - spares)
            for i, host in enumerate(world.hosts)
        )
        self._ranks = [
            [member.rank for member in world.members if member.host == host] for host in world.hosts
        ]
        self._listener = socket.create_server(("", 0), backlog=64)
        self._listener.settimeout(_TIMEOUT_S)
        addresses = world.addresses()
        ports = world.allgather(self._listener.getsockname()[1], "exchanging ports")
        self._places = list(zip(addresses, ports, strict=True))
        token = world.broadcast(secrets.token_bytes(_TOKEN_BYTES), "exchanging the key of connections")
        self._secret = bytes(token)
        self._round = 0

    @property
    def rails(self) -> int:
        return min(node.rails for node in self.nodes)

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def own(self, nodes: Sequence[int]) -> Values:
        """Nothing: a node's own memory does not show over TCP."""
        return np.empty((len(nodes), 0))

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> Values:
        values = np.full((len(pairs), 2, self.rails), np.nan)
        answers = self._all(["pairs", [list(pair) for pair in pairs]])
        for i, pair in enumerate(pairs):
            for rail in range(self.rails):
                for direction, receiver in enumerate((pair[1], pair[0])):
                    rate = answers[self._ranks[receiver][rail]]
                    values[i, direction, rail] = np.nan if rate is None else rate
        return values

    def groups(self, groups: Sequence[Sequence[int]]) -> Values:
        """Rings in which each node sends to the next: the slowest path, times the number of rails."""
        answers = self._all(["rings", [list(group) for group in groups]])
        values = np.full(len(groups), np.nan)
        for i, group in enumerate(groups):
            rates = [answers[self._ranks[node][rail]] for node in group for rail in range(self.rails)]
            known = [rate for rate in rates if rate is not None]
            if len(known) == len(rates):
                values[i] = min(known) * self.rails
        return values

    def serve(self) -> None:
        """Do what rank 0 says, until it stops; called on all other ranks."""
        while self._all(None) is not None:
            pass

    def close(self) -> None:
        """Stop the other ranks; called on rank 0 when the job goes on."""
        self._all([_STOP, []])

    def release(self) -> None:
        self._listener.close()

    def _all(self, command: list[Any] | None) -> Any:
        """Let all ranks measure; the rates of all ranks in bytes per second, None at the end."""
        self._round += 1
        stage, groups = self.world.broadcast(command, "choosing the next round")
        if stage == _STOP:
            return None
        mine = self.world.hosts.index(self.world.me.host)
        rail = self._ranks[mine].index(self.world.rank)
        group = next((group for group in groups if mine in group), None)
        rate = None
        if group and rail < self.rails:
            place = group.index(mine)
            after = self._ranks[group[(place + 1) % len(group)]][rail]
            try:
                rate = self._ring(after) if stage == "rings" else self._pair(after, first=place == 0)
            except OSError:
                rate = None  # nothing answered, which the qualification reports
        return self.world.allgather(rate, "measuring between nodes")

    def _pair(self, other: int, *, first: bool) -> float:
        """Send, then receive, or the other way round; the received rate."""
        with self._connected(other) if first else self._accepted() as peer:
            if first:
                _send(peer)
                return _received(peer)
            rate = _received(peer)
            _send(peer)
            return rate

    def _ring(self, after: int) -> float:
        """Send to the next while receiving from the previous; the received rate."""
        with self._connected(after) as target, self._accepted() as source:
            sending = threading.Thread(target=_send_quietly, args=(target,))
            sending.start()
            try:
                return _received(source)
            finally:
                sending.join()

    @property
    def _token(self) -> bytes:
        """What a connection of this round begins with, so that one of an earlier round is refused."""
        return self._secret + self._round.to_bytes(4, "little")

    def _connected(self, rank: int) -> socket.socket:
        peer = socket.create_connection(self._places[rank], _TIMEOUT_S)
        peer.sendall(self._token)
        return peer

    def _accepted(self) -> socket.socket:
        """The next connection of a process of this job."""
        while True:
            peer, _ = self._listener.accept()
            peer.settimeout(_TIMEOUT_S)
            if hmac.compare_digest(_exactly(peer, len(self._token)), self._token):
                return peer
            peer.close()


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data


def _send(peer: socket.socket) -> None:
    """Send for the duration of one direction, then tell the end."""
    data = bytes(_BUFFER_BYTES)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        peer.sendall(data)
    # The receiver may still read what is under way; one byte of another value ends the direction.
    peer.sendall(b"\1")


def _send_quietly(peer: socket.socket) -> None:
    """Send in a thread; the receiver reports what did not arrive."""
    try:
        _send(peer)
    except OSError:
        return


def _received(peer: socket.socket) -> float:
    """Rate at which bytes arrive after the warm-up, until the end is told, in bytes per second."""
    buffer = bytearray(_BUFFER_BYTES)
    began = counting = last = 0.0
    total = 0
    while True:
        size = peer.recv_into(buffer)
        now = time.monotonic()
        if not size:
            raise ConnectionError("the other process ended")
        began = began or now
        if now - began >= _WARMUP_S:
            if counting:
                total += size
                last = now
            else:
                counting = now
        if buffer[size - 1] == 1:
            break
    if last <= counting:
        raise TimeoutError("too few bytes arrived to measure their rate")
    return total / (last - counting)
