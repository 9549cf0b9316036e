"""Channels between processes: messages in MessagePack, each with a deadline and a limit. The connections of
``multiprocessing`` have neither a deadline within a message nor one for sending: a process that is stopped in
the middle of a message would hang its peer.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import msgspec

from ..run_errors import waited

_LENGTH_BYTES = 4
#: Maximum bytes that one call reads.
_READ_BYTES = 2**20
#: Maximum bytes of a message between processes that have joined.
MESSAGE_LIMIT_BYTES = 2**30


class InvalidMessage(ConnectionError):
    """A peer sent something that is not a message; to be read after "sent"."""


class Channel:
    """A connection to another process that carries messages of plain values.

    Attributes:
        sock: A connected stream socket; the channel owns it.
    """

    def __init__(self, sock: socket.socket) -> None:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.socket = sock

    def fileno(self) -> int:
        """The descriptor, to wait for messages; -1 if the channel is closed."""
        return self.socket.fileno()

    def send(self, value: object, deadline: float) -> None:
        """Send plain values; parameters and errors as for ``send_bytes``."""
        self.send_bytes(msgspec.msgpack.encode(value), deadline)

    def send_bytes(self, body: bytes, deadline: float) -> None:
        """Send one message.

        Args:
            body: The message.
            deadline: Time of ``time.monotonic`` at which to give up, in s.

        Raises:
            TimeoutError: If the peer does not read it in time.
            OSError: If the connection is closed.
        """
        self._limit(deadline)
        self.socket.sendall(len(body).to_bytes(_LENGTH_BYTES, "little") + body)

    def receive(self, deadline: float, kind: Any = Any, limit: int = MESSAGE_LIMIT_BYTES) -> Any:
        """The values of the next message.

        Args:
            deadline, limit: As for ``receive_bytes``.
            kind: The type that the values must have.

        Raises:
            InvalidMessage: If the message is too long, malformed, or has another type.
            TimeoutError, EOFError, OSError: As for ``receive_bytes``.
        """
        body = self.receive_bytes(deadline, limit)
        try:
            return msgspec.msgpack.decode(body, type=kind)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise InvalidMessage(f"an invalid message: {error}") from error

    def receive_bytes(self, deadline: float, limit: int) -> bytes:
        """The next message.

        Args:
            deadline: Time of ``time.monotonic`` at which to give up, in s.
            limit: Maximum length of the message, in bytes; nothing longer is allocated.

        Raises:
            InvalidMessage: If the message is too long.
            TimeoutError: If it does not arrive in time.
            EOFError, OSError: If the connection is closed.
        """
        size = int.from_bytes(self._read(_LENGTH_BYTES, deadline), "little")
        if size > limit:
            raise InvalidMessage(f"a message of {size} bytes where at most {limit} are allowed")
        return self._read(size, deadline)

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._limit(deadline)
            try:
                more = self.socket.recv(min(size - len(data), _READ_BYTES))
            except TimeoutError:
                if time.monotonic() < deadline:
                    continue  # another thread sends on this channel with an earlier deadline
                raise
            if not more:
                raise EOFError
            data += more
            if len(data) < size and time.monotonic() > deadline:
                raise TimeoutError
        return bytes(data)

    def _limit(self, deadline: float) -> None:
        self.socket.settimeout(max(deadline - time.monotonic(), 1e-3))


def arrived(channels: Iterable[Channel], seconds: float) -> list[Channel]:
    """The channels on which a message, or the end of the connection, has arrived.

    Args:
        channels: The channels to wait for; closed ones are left out.
        seconds: Maximum time to wait for the first, in s.
    """
    by_descriptor = {channel.fileno(): channel for channel in channels}
    by_descriptor.pop(-1, None)
    ready = set(waited(partial(wait, list(by_descriptor)), seconds))
    return [channel for descriptor, channel in by_descriptor.items() if descriptor in ready]
