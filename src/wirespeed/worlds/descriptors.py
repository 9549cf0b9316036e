"""File descriptors and memory shared by the processes of a host.

Memory is anonymous (memfd), so a process that ends leaves nothing behind, and the size of ``/dev/shm`` does
not matter. Its descriptor is passed over a Unix socket, like the descriptors that the CUDA driver creates
for allocations.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress

from .admission import same_user
from .base import WorldError

#: What a process sends to fetch a descriptor: its token.
_TOKEN = struct.Struct("<q")
#: Maximum number of processes that wait for a descriptor.
_BACKLOG_CONNECTIONS = 128
#: Maximum time for a process to say which descriptor it fetches, in s.
_REQUEST_S = 5.0


class Descriptors:
    """Serves descriptors of this process to others of the same user on this host.

    Attributes
    ----------
    address : str
        Address for ``fetch``; an abstract name, so no file is created.
    """

    def __init__(self) -> None:
        self.address = f"wirespeed-{os.getpid()}-{secrets.token_hex(8)}"
        self._offered: dict[int, int] = {}
        self._next = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.address)
        self._socket.listen(_BACKLOG_CONNECTIONS)
        threading.Thread(target=self._serve, name="hand out descriptors", daemon=True).start()

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
        with suppress(OSError):  # the socket is not connected
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for token in list(self._offered):
            self.withdraw(token)

    def _serve(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:  # closed
                return
            with connection, suppress(OSError):  # the other end is closed and reports that itself
                connection.settimeout(_REQUEST_S)
                (token,) = _TOKEN.unpack(connection.recv(_TOKEN.size).ljust(_TOKEN.size, b"\0"))
                descriptor = self._offered.get(token)
                if descriptor is None or not same_user(connection):
                    connection.sendall(b"\0")
                else:
                    socket.send_fds(connection, [b"\1"], [descriptor])


def fetch(address: str, token: int, timeout: float) -> int:
    """Return a copy of another process' descriptor.

    Parameters
    ----------
    address : str
        The address of its ``Descriptors``.
    token : int
        What ``offer`` returned there.
    timeout : float
        Maximum time, in s.

    Raises
    ------
    WorldError
        If that process cannot be reached, or does not serve the descriptor.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect("\0" + address)
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


class SharedMemory:
    """Memory that several processes have mapped.

    Parameters
    ----------
    descriptor : int
        Descriptor of the memory.
    size : int
        Size of the memory, in bytes.

    Attributes
    ----------
    descriptor : int
        Descriptor of the memory; closing it is up to its owner.
    address, bytes : int
        Address and size of the mapping in this process.
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
