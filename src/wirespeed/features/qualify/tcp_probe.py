"""How fast bytes arrive over TCP between two processes."""

from __future__ import annotations

import hmac
import math
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from statistics import fmean, median, pstdev
from typing import cast

#: Duration of one direction, and of its beginning that does not count: buffers and windows fill, in s.
SECONDS, _WARMUP_S = 0.5, 0.1
#: Parts of a direction whose rates are compared.
_PARTS = 8
#: Maximum time to connect and to wait for bytes, in s.
TIMEOUT_S = 5.0
#: Maximum number of connections that have not shown that they are of this job; the oldest of more is closed.
_MOST_ASKING = 256
_BUFFER_BYTES = 2**17
#: Positions of `tcpi_total_retrans` and `tcpi_segs_out` in Linux' `struct tcp_info` (linux/tcp.h), and the
#: size up to their end.
_SENT_AGAIN, _SENT, _TCP_INFO_BYTES = 100, 136, 140
#: Last byte of a direction, and what follows the messages of a size; all others are zero.
_END = 1
#: Fewest messages of a size whose times count; the first one, with which windows grow, does not.
_FEWEST_MESSAGES = 2

#: Address and port of a process.
Place = tuple[str, int]


class TcpProbe:
    """One end of connections with other processes of a job.

    Args:
        secret: The beginning of each connection is made from it, so that strangers are refused.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._listener.setblocking(False)
        self._asking: dict[socket.socket, bytearray] = {}  # connection -> what it has said, too little yet

    @property
    def port(self) -> int:
        """Where other processes connect."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        for peer in self._asking:
            peer.close()
        self._listener.close()

    def pair(self, place: Place | None, number: int, streams: int = 1) -> tuple[float, float, float] | None:
        """Send, then receive; without a place, receive from who connects, then send.

        Args:
            place: Where the other process listens.
            number: Number of the round: connections of other rounds are refused.
            streams: Number of connections that carry data at once, whose rates are added.

        Returns:
            Rate of what arrived in bytes per second, its relative standard error, and the share of what was
            sent that was sent again; None if nothing arrived.
        """
        with suppress(OSError), ExitStack() as stack:
            peers = [stack.enter_context(self.connection(place, number)) for _ in range(streams)]
            threads = stack.enter_context(_threads(streams, peers))
            sent = list(threads.map(_send, peers)) if place else []
            received = list(threads.map(_received, peers))
            sent = sent or list(threads.map(_send, peers))
            rate = sum(value for value, _ in received)
            # Streams vary independently of each other, so that their sum varies less.
            varies = math.sqrt(sum((value * share) ** 2 for value, share in received)) / rate if rate else 0.0
            return rate, varies, max(sent)
        return None  # which the qualification reports

    def connection(self, place: Place | None, number: int) -> socket.socket:
        """A connection for other exchanges; without a place, the next one of who connects.

        Raises:
            OSError: If there is none in time.
        """
        return self._connected(place, number) if place else self._accepted(number)

    def messages(
        self, place: Place | None, number: int, streams: int, plan: Sequence[tuple[int, float]], both: bool,
        most: float = math.inf,
    ) -> list[float] | None:  # fmt: skip
        """Send messages that the other process answers, and answer its messages.

        Args:
            place: Where the other process listens; without one, accept its connections, and send second.
            number: Number of the round.
            streams: Number of connections of a direction, of which each carries its messages by itself.
            plan: Bytes of a message of one connection, ascending, and how long to send such ones, in s.
            both: Whether to send and answer at the same time, over twice as many connections.
            most: Maximum time of all, in s.

        Returns:
            For each size the rate at which this process sent, with the answer, in bytes per second; None if
            the other one does not answer.
        """
        with suppress(OSError), ExitStack() as stack:
            count = 2 * streams if both else streams
            peers = [stack.enter_context(self.connection(place, number)) for _ in range(count)]
            threads = stack.enter_context(_threads(2 * streams, peers))
            for peer in peers:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first, second = peers[:streams], peers[-streams:]
            deadline = time.monotonic() + most
            sending, answering = (first, second) if place else (second, first)
            send = partial(threads.map, partial(_send_messages, plan=plan, deadline=deadline), sending)
            answer = partial(threads.map, partial(_answer_messages, plan=plan, deadline=deadline), answering)
            if both:
                times, answers = send(), answer()
                sent, _ = list(times), list(answers)
            elif place:
                sent, _ = list(send()), list(answer())
            else:
                _, sent = list(answer()), list(send())
            return [math.fsum(size / of_stream[i] for of_stream in sent) for i, (size, _) in enumerate(plan)]
        return None  # which the qualification reports

    def ring(self, place: Place, number: int) -> tuple[float, float] | None:
        """Send to the next process while receiving from the previous one; parameters as for ``pair``."""
        with (
            suppress(OSError), self._connected(place, number) as target, self._accepted(number) as source,
            _threads(1, [target, source]) as threads,
        ):  # fmt: skip
            threads.submit(_send, target)  # the receiver reports what did not arrive
            return _received(source)
        return None  # which the qualification reports

    def _connected(self, place: Place, number: int) -> socket.socket:
        peer = socket.create_connection(place, TIMEOUT_S)
        peer.sendall(self._token(number))
        return _timed_by_kernel(peer)

    def _accepted(self, number: int) -> socket.socket:
        """The next connection of a process of this job in this round.

        All that connect are heard at a time: one that says nothing delays no other.

        Raises:
            OSError: If there is none in time.
        """
        until = time.monotonic() + TIMEOUT_S
        token = self._token(number)
        while (left := until - time.monotonic()) > 0:
            for ready in wait([self._listener, *self._asking], left):
                if ready is self._listener:
                    self._greet()
                elif peer := self._heard(cast(socket.socket, ready), token):
                    return peer
        raise TimeoutError("no process of this job connects")

    def _greet(self) -> None:
        """Take a connection, which has to show that it is of this job."""
        with suppress(OSError):  # it has gone away
            peer, _ = self._listener.accept()
            peer.setblocking(False)
            self._asking[peer] = bytearray()
        if len(self._asking) > _MOST_ASKING:
            self._refuse(next(iter(self._asking)))

    def _heard(self, peer: socket.socket, token: bytes) -> socket.socket | None:
        """The connection if it has said the token; None if it has not said all yet, or is refused."""
        said = self._asking[peer]
        try:
            more = peer.recv(len(token) - len(said))
        except BlockingIOError:
            return None
        except OSError:
            more = b""
        said += more
        if more and len(said) < len(token):
            return None
        if not hmac.compare_digest(bytes(said), token):
            self._refuse(peer)
            return None
        del self._asking[peer]
        return _timed_by_kernel(peer)

    def _refuse(self, peer: socket.socket) -> None:
        del self._asking[peer]
        peer.close()

    def _token(self, number: int) -> bytes:
        return hmac.digest(self._secret, number.to_bytes(8, "little"), "sha256")


@contextmanager
def _threads(count: int, peers: Sequence[socket.socket]) -> Iterator[ThreadPoolExecutor]:
    """Threads that use connections; an error, also a signal, ends what they wait for."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        except BaseException:
            for peer in peers:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            raise


def _all_sent(peer: socket.socket, data: memoryview | bytes, deadline: float) -> None:
    """Send everything.

    Raises:
        TimeoutError: If that takes longer; each call of the kernel has a limit, too.
    """
    view = memoryview(data)
    while view:
        view = view[peer.send(view) :]
        if view and time.monotonic() > deadline:
            raise TimeoutError("the other process takes the bytes too slowly")


def _timed_by_kernel(peer: socket.socket) -> socket.socket:
    """Let the kernel end calls that take too long: Python would poll before each, and send in small pieces.

    Over loopback, that cost 7 % of the rate.
    """
    peer.settimeout(None)
    limit = struct.pack("@ll", int(TIMEOUT_S), int(TIMEOUT_S % 1 * 1e6))  # struct timeval
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        peer.setsockopt(socket.SOL_SOCKET, option, limit)
    return peer


def exactly(peer: socket.socket, size: int) -> bytes:
    """Receive this number of bytes."""
    data = b""
    while len(data) < size:
        if not (more := peer.recv(size - len(data))):
            raise ConnectionError("the other process ended")
        data += more
    return data


def _send(peer: socket.socket) -> float:
    """Send for the duration of one direction, then tell the end; the share of segments sent again.

    Raises:
        OSError: If the other end does not take the bytes in time.
    """
    data = bytes(_BUFFER_BYTES)
    before = _segments(peer)
    end = time.monotonic() + SECONDS
    deadline = end + TIMEOUT_S
    while time.monotonic() < end:
        _all_sent(peer, data, deadline)
    _all_sent(peer, bytes([_END]), deadline)
    again, sent = (after - first for after, first in zip(_segments(peer), before, strict=True))
    return again / sent if sent > 0 else 0.0


def _send_messages(peer: socket.socket, plan: Sequence[tuple[int, float]], deadline: float) -> list[float]:
    """Median time of a message of each size until it is answered, in s.

    Raises:
        OSError: If the other end does not answer in time.
    """
    data = memoryview(bytes(_BUFFER_BYTES))  # small, so that the memory of the nodes is no limit
    found = []

    def answered(size: int, begin: memoryview | bytes = data) -> None:
        for sent in range(0, size, _BUFFER_BYTES):
            _all_sent(peer, begin[: size - sent], deadline)
        exactly(peer, 1)

    for size, seconds in plan:
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end or len(times) <= _FEWEST_MESSAGES:
            answered(size)
            times.append(time.perf_counter() - start)
            if time.monotonic() > deadline:
                raise TimeoutError("messages take too long")
        answered(1, bytes([_END]))
        found.append(median(times[1:]))
    return found


def _answer_messages(peer: socket.socket, plan: Sequence[tuple[int, float]], deadline: float) -> None:
    """Receive messages of each size until their end, and answer each with a byte.

    Raises:
        OSError: If that takes too long, or the other end has ended.
    """
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    for size, _ in plan:
        ended = False
        while not ended:
            left = size
            while left and not ended:
                count = peer.recv_into(buffer[:left])
                if not count:
                    raise ConnectionError("the other process ended")
                ended = left == size and buffer[0] == _END
                left -= count
                if time.monotonic() > deadline:
                    raise TimeoutError("messages take too long")
            _all_sent(peer, b"\0", deadline)


def _segments(peer: socket.socket) -> tuple[int, int]:
    """Number of segments that were sent again, and sent at all; 0 where the kernel does not tell."""
    if not hasattr(socket, "TCP_INFO"):
        return 0, 0
    info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0, 0
    (again,), (sent,) = struct.unpack_from("=I", info, _SENT_AGAIN), struct.unpack_from("=I", info, _SENT)
    return again, sent


def _received(peer: socket.socket) -> tuple[float, float]:
    """Rate of the bytes that arrive after the warm-up until the end, and its relative standard error.

    It is the mean of the rates of its parts, so its error is their deviation over the root of their number.
    If the end does not come in time, because the path is very slow, the rate is that of what has arrived.
    """
    buffer = bytearray(_BUFFER_BYTES)
    times: list[float] = []
    sizes: list[int] = []
    while not sizes or buffer[sizes[-1] - 1] != _END:
        size = peer.recv_into(buffer)
        if not size:
            raise ConnectionError("the other process ended")
        times.append(time.monotonic())
        sizes.append(size)
        if times[-1] - times[0] > SECONDS + TIMEOUT_S:
            break
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
    return mean * _PARTS / (last - start), pstdev(parts) / mean / math.sqrt(_PARTS)
