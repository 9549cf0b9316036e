"""How fast bytes arrive over TCP between two processes."""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time
from statistics import fmean, pstdev

#: Duration of one direction, and of its beginning that does not count: buffers and windows fill, in s.
SECONDS, _WARMUP_S = 0.5, 0.1
#: Parts of a direction whose rates are compared.
_PARTS = 8
#: Maximum time to connect and to wait for bytes, in s.
TIMEOUT_S = 5.0
_BUFFER_BYTES = 2**17
#: Round trips of which the shortest counts: others wait for the processor.
_ROUND_TRIPS = 500
#: Positions of `tcpi_total_retrans` and `tcpi_segs_out` in Linux' `struct tcp_info` (linux/tcp.h), and the
#: size up to their end.
_SENT_AGAIN, _SENT, _TCP_INFO_BYTES = 100, 136, 140
#: Last byte of a direction; all others are zero.
_END = 1

#: Address and port of a process.
Place = tuple[str, int]


class TcpProbe:
    """One end of connections with other processes of a job.

    Attributes:
        secret: The beginning of each connection, so that strangers are refused.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._listener = socket.create_server(("", 0), backlog=64)
        self._listener.settimeout(TIMEOUT_S)

    @property
    def port(self) -> int:
        """Where other processes connect."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        self._listener.close()

    def pair(self, place: Place | None, number: int) -> tuple[float, float, float] | None:
        """Send, then receive; without a place, receive from who connects, then send.

        Args:
            place: Where the other process listens.
            number: Number of the round: connections of other rounds are refused.

        Returns:
            Rate of what arrived in bytes per second, its relative standard deviation during the measurement,
            and the share of what was sent that was sent again; None if nothing arrived.
        """
        try:
            with self._connected(place, number) if place else self._accepted(number) as peer:
                if place:
                    again = _send(peer)
                    return *_received(peer), again
                rate = _received(peer)
                return *rate, _send(peer)
        except OSError:
            return None  # which the qualification reports

    def round_trip(self, place: Place | None, number: int) -> float | None:
        """The shortest of many round trips in s; without a place, answer who connects, and return None."""
        try:
            with self._connected(place, number) if place else self._accepted(number) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if place is None:
                    while byte := peer.recv(1):
                        peer.sendall(byte)
                    return None
                trips = []
                for _ in range(_ROUND_TRIPS):
                    start = time.perf_counter()
                    peer.sendall(b"\1")
                    if not peer.recv(1):
                        return None
                    trips.append(time.perf_counter() - start)
                return min(trips)
        except OSError:
            return None  # which the qualification reports

    def ring(self, place: Place, number: int) -> tuple[float, float] | None:
        """Send to the next process while receiving from the previous one; parameters as for ``pair``."""
        try:
            with self._connected(place, number) as target, self._accepted(number) as source:
                sending = threading.Thread(target=_send_quietly, args=(target,))
                sending.start()
                try:
                    return _received(source)
                finally:
                    sending.join()
        except OSError:
            return None

    def _connected(self, place: Place, number: int) -> socket.socket:
        peer = socket.create_connection(place, TIMEOUT_S)
        peer.sendall(self._token(number))
        return peer

    def _accepted(self, number: int) -> socket.socket:
        """The next connection of a process of this job in this round."""
        until = time.monotonic() + TIMEOUT_S
        token = self._token(number)
        while time.monotonic() < until:
            peer, _ = self._listener.accept()
            peer.settimeout(TIMEOUT_S)
            try:
                if hmac.compare_digest(_exactly(peer, len(token)), token):
                    return peer
            except OSError:
                pass  # a stranger that says nothing
            peer.close()
        raise TimeoutError("no process of this job connects")

    def _token(self, number: int) -> bytes:
        return hmac.digest(self._secret, number.to_bytes(8, "little"), "sha256")


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data


def _send(peer: socket.socket) -> float:
    """Send for the duration of one direction, then tell the end; the share of segments sent again."""
    data = bytes(_BUFFER_BYTES)
    before = _segments(peer)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        peer.sendall(data)
    peer.sendall(bytes([_END]))
    again, sent = (after - first for after, first in zip(_segments(peer), before, strict=True))
    return again / sent if sent > 0 else 0.0


def _segments(peer: socket.socket) -> tuple[int, int]:
    """Number of segments that were sent again, and sent at all; 0 where the kernel does not tell."""
    if not hasattr(socket, "TCP_INFO"):
        return 0, 0
    info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0, 0
    (again,), (sent,) = struct.unpack_from("=I", info, _SENT_AGAIN), struct.unpack_from("=I", info, _SENT)
    return again, sent


def _send_quietly(peer: socket.socket) -> None:
    """Send in a thread; the receiver reports what did not arrive."""
    try:
        _send(peer)
    except OSError:
        return


def _received(peer: socket.socket) -> tuple[float, float]:
    """Rate of the bytes that arrive after the warm-up until the end, and its relative deviation."""
    buffer = bytearray(_BUFFER_BYTES)
    times: list[float] = []
    sizes: list[int] = []
    while not sizes or buffer[sizes[-1] - 1] != _END:
        size = peer.recv_into(buffer)
        if not size:
            raise ConnectionError("the other process ended")
        times.append(time.monotonic())
        sizes.append(size)
    # What was under way when the warm-up ended counts from the first arrival after it.
    first = next((i for i, at in enumerate(times) if at - times[0] >= _WARMUP_S), len(times))
    last = times[-1]
    if first >= len(times) - 1 or last <= times[first]:
        raise TimeoutError("too few bytes arrived to measure their rate")
    start = times[first]
    parts = [0.0] * _PARTS
    for at, size in zip(times[first + 1 :], sizes[first + 1 :], strict=True):
        parts[min(int((at - start) / (last - start) * _PARTS), _PARTS - 1)] += size
    mean = fmean(parts)
    return mean * _PARTS / (last - start), pstdev(parts) / mean
