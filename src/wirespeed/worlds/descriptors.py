"""File descriptors and memory shared by the processes of a host. Memory is anonymous (memfd), so a process
that ends leaves nothing behind, and the size of ``/dev/shm`` does not matter. Its descriptor is passed over a
Unix socket, like the descriptors that the CUDA driver creates for allocations.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait

from ..errors import starting_threads
from .admission import same_user
from .base import WorldError

#: What a process sends to fetch a descriptor: its token.
_TOKEN = struct.Struct("<q")
#: Maximum number of processes that wait for a descriptor.
_BACKLOG_CONNECTIONS = 128
#: Maximum time for a process to say which descriptor it fetches, in s.
_REQUEST_S = 5.0
#: Time between two attempts to connect, in s.
_POLL_S = 0.01


class Descriptors:
    """Serves descriptors of this process to others of the same user on this host.

    Attributes:
        address: Address for ``fetch``; an abstract name, so no file is created.
    """

    def __init__(self) -> None:
        self.address = f"wirespeed-{os.getpid()}-{secrets.token_hex(8)}"
        self._offered: dict[int, int] = {}
        self._next = 0
        self._closing = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.address)
        self._socket.listen(_BACKLOG_CONNECTIONS)
        self._socket.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="hand out descriptors", daemon=True)
        with starting_threads():
            self._thread.start()

    def offer(self, descriptor: int) -> int:
        """Take ownership of a descriptor and serve it; return its token."""
        self._next += 1
        self._offered[self._next] = descriptor
        return self._next

    def withdraw(self, token: int) -> None:
        """Close a descriptor; processes that have fetched it keep their copy."""
        os.close(self._offered.pop(token))

    def close(self) -> None:
        """Close all served descriptors and the socket."""
        self._closing = True
        with suppress(OSError):  # the socket is not connected
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._socket.close()
        for token in list(self._offered):
            self.withdraw(token)

    def _serve(self) -> None:
        """Answer all connections at a time: one that says nothing delays no other."""
        asking: dict[socket.socket, float] = {}  # until when each may ask
        while not self._closing:
            ready = wait([self._socket, *asking], _REQUEST_S if asking else None)
            for connection in [peer for peer in asking if peer in ready or asking[peer] < time.monotonic()]:
                del asking[connection]
                with connection, suppress(OSError):  # the other end is closed and reports that itself
                    self._answer(connection)
            if self._socket in ready:
                try:
                    connection = self._socket.accept()[0]
                except OSError:  # it has gone away, or this is being closed
                    continue
                if same_user(connection):
                    connection.setblocking(False)
                    asking[connection] = time.monotonic() + _REQUEST_S
                else:
                    connection.close()
        for connection in asking:
            connection.close()

    def _answer(self, connection: socket.socket) -> None:
        (token,) = _TOKEN.unpack(connection.recv(_TOKEN.size).ljust(_TOKEN.size, b"\0"))
        descriptor = self._offered.get(token)
        if descriptor is None:
            connection.sendall(b"\0")
        else:
            socket.send_fds(connection, [b"\1"], [descriptor])


def fetch(address: str, token: int, timeout: float) -> int:
    """A copy of another process' descriptor.

    Args:
        address: The address of its ``Descriptors``.
        token: What ``offer`` returned there.
        timeout: Maximum time, in s.

    Raises:
        WorldError: If that process cannot be reached, or does not serve the descriptor.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            _dial(connection, "\0" + address, time.monotonic() + timeout)
            if not same_user(connection):
                raise PermissionError("it belongs to another user")
            connection.sendall(_TOKEN.pack(token))
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError as error:
        raise WorldError(
            f"a descriptor could not be fetched over the Unix socket @{address}: {error}; the processes of a "
            "host must share its network namespace"
        ) from error
    if not descriptors:
        raise WorldError(f"the process at @{address} does not hand out its descriptor {token}")
    return int(descriptors[0])


def _dial(connection: socket.socket, address: str, deadline: float) -> None:
    """Connect, also while more processes connect at the same time than the socket queues."""
    while True:
        try:
            connection.connect(address)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


class SharedMemory:
    """Memory that several processes have mapped.

    Args:
        descriptor: Descriptor of the memory.
        size: Size of the memory, in bytes.

    Attributes:
        descriptor: Descriptor of the memory; closing it is up to its owner.
        address, bytes: Address and size of the mapping in this process.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.bytes = size
        self._mapping = mmap.mmap(descriptor, size, mmap.MAP_SHARED)
        self._anchor = ctypes.c_char.from_buffer(self._mapping)
        self.address = ctypes.addressof(self._anchor)

    @classmethod
    def create(cls, size: int) -> SharedMemory:
        """Create zeroed memory."""
        descriptor = os.memfd_create("wirespeed")
        try:
            os.ftruncate(descriptor, size)
            return cls(descriptor, size)
        except (OSError, ValueError):
            os.close(descriptor)
            raise

    def unmap(self) -> None:
        """Unmap the memory; the descriptor is not closed."""
        del self._anchor
        self._mapping.close()
