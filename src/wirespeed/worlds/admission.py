"""The sockets on which rank 0 listens, and the addresses of this host.

Who may join a job: processes that prove, in both directions, that they know its secret.

Nothing else is read from a connection, and nothing is sent on it, before that. The secret itself is never
sent. ``multiprocessing`` has a similar proof by HMAC-MD5, which some hosts forbid, and which differs between
versions of Python.

File descriptors and memory shared by the processes of a host.

Memory is anonymous (memfd), so a process that ends leaves nothing behind, and the size of ``/dev/shm`` does
not matter. Its descriptor is passed over a Unix socket, like the descriptors that the CUDA driver creates
for allocations.
"""

from __future__ import annotations

import ctypes
import hmac
import ipaddress
import mmap
import os
import re
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from ..errors import starting_threads
from ..files import cache_folder, new_file
from .base import Channel, WorldError

#: An address to connect to: host and port, or the name of a Unix socket.
Address = tuple[str, int] | str


def listen(secret: bytes, port: int = 0, host: str = "") -> list[socket.socket]:
    """Sockets that listen for the other ranks; the last is a Unix socket if that is possible.

    Args:
        secret: The secret of the job.
        port: The TCP port; 0 selects a free one.
        host: The name or address by which other ranks reach this host; only its interfaces are used. Empty,
            or a name that others resolve differently: all interfaces.

    Raises:
        WorldError: If the port is in use.
    """
    listeners = []
    for address in _interfaces(host) or [""]:
        dual = not address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in address else socket.AF_INET
        try:
            listeners.append(
                socket.create_server((address, port), family=family, backlog=1024, dualstack_ipv6=dual)
            )
        except OSError as error:
            raise WorldError(
                f"rank 0 cannot listen on port {port}: {error.strerror}; set MASTER_PORT to a free port"
            ) from error
    near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        near.bind(local_name(secret, listeners[0].getsockname()[1]))
        near.listen(1024)
        listeners.append(near)
    except OSError:
        near.close()
    for listener in listeners:
        listener.setblocking(False)
    return listeners


def local_name(secret: bytes, port: int) -> str:
    """The name of rank 0's Unix socket; abstract, so no file is created."""
    return "\0wirespeed-" + hmac.digest(secret, b"port %d" % port, "sha256").hex()[:32]


def is_here(host: str) -> bool:
    """Whether a name or address belongs to this host."""
    return bool(_own(host))


def _own(host: str) -> list[str]:
    """The addresses of a name that belong to this host; resolved, nothing is sent to them."""
    own = []
    with suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                if probe.getsockname()[0] == address[0] or _is_loopback(str(address[0])):
                    own.append(str(address[0]))
    return own


def _interfaces(host: str) -> list[str]:
    """The addresses on which rank 0 listens; empty for all.

    A host often resolves its own name to a loopback address, which other hosts cannot reach.
    """
    own = _own(host) if host else []
    if host != "localhost" and any(_is_loopback(address) and address != host for address in own):
        return []
    return own


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def addresses() -> list[str]:
    """The IPv4 addresses of this host, the loopback last."""
    try:
        routes = Path("/proc/net/fib_trie").read_text()
    except OSError:  # other hosts then use the name of this one
        return []
    local = dict.fromkeys(re.findall(r"\|-- (\S+)\n +/32 host LOCAL", routes))
    return sorted(local, key=lambda text: text.startswith("127."))


#: Environment variable with the secret of a job, for ranks that no launcher connects.
SECRET_VARIABLE = "WIRESPEED_JOB_SECRET"
#: Advice of errors about secrets.
SHARE_SECRET = f"set {SECRET_VARIABLE} to the same random text for all ranks (openssl rand -hex 32)"
SECRET_BYTES = 32
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_KEY_FILE = "job-key"
#: Process, user and group of the other end of a Unix socket.
_CREDENTIALS = struct.Struct("3i")


class NotAdmitted(ConnectionError):
    """The other end does not know the secret of this job."""


def admit(channel: Channel, secret: bytes, deadline: float) -> None:
    """Let the other end prove that it knows the secret, then prove the same to it; for rank 0.

    Args:
        channel: A new connection.
        secret: The secret of the job.
        deadline: Time of ``time.monotonic`` at which to give up, in s.

    Raises:
        NotAdmitted: If the proof is wrong.
        OSError, EOFError: If the other end says nothing, too much, or closes the connection.
    """
    mine = secrets.token_bytes(_NONCE_BYTES)
    channel.send_bytes(mine, deadline)
    answer = channel.receive_bytes(deadline, _NONCE_BYTES + _PROOF_BYTES)
    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"rank", mine, theirs)):
        channel.send_bytes(b"", deadline)
        raise NotAdmitted("it does not know the secret of this job")
    channel.send_bytes(_proof(secret, b"rank 0", mine, theirs), deadline)


def enter(channel: Channel, secret: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process knows the secret, and let it prove the same; as ``admit``.

    Raises:
        NotAdmitted: If either proof is wrong.
    """
    theirs = channel.receive_bytes(deadline, _NONCE_BYTES)
    mine = secrets.token_bytes(_NONCE_BYTES)
    channel.send_bytes(mine + _proof(secret, b"rank", theirs, mine), deadline)
    answer = channel.receive_bytes(deadline, _PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(secret, b"rank 0", theirs, mine)):
        raise NotAdmitted("it does not know the secret of this job")


def _proof(secret: bytes, role: bytes, leader: bytes, other: bytes) -> bytes:
    """What only those who know the secret can compute from the nonces of rank 0 and another rank."""
    return hmac.digest(secret, b"|".join((role, leader, other)), "sha256")


def same_user(sock: socket.socket) -> bool:
    """Whether the other end of a Unix socket belongs to this user or to root."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(peer)[1] in (os.geteuid(), 0)


def secret_of(environment: Mapping[str, str]) -> bytes:
    """The secret of a job whose ranks are in the environment.

    It is made from ``WIRESPEED_JOB_SECRET`` or else the user's key file, and from what identifies the job to
    torchrun or Slurm: ranks of two jobs of one user do not mix.

    Raises:
        WorldError: If there is neither the variable nor a file that only this user can read.
    """
    secret = environment.get(SECRET_VARIABLE, "").encode()
    job = [environment.get("TORCHELASTIC_RUN_ID", "")]
    if environment.get("SLURM_STEP_NUM_TASKS") == environment.get("WORLD_SIZE"):  # srun started the ranks
        job += [environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    return hmac.digest(secret or _key(), "\0".join(job).encode(), "sha256")


def _key() -> bytes:
    """The content of the user's key file, which is created at its first use."""
    path = Path(_KEY_FILE)
    try:
        path = cache_folder() / _KEY_FILE
        if not path.exists():
            _create(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(SECRET_BYTES)
    except OSError as error:
        where = error.filename or path
        raise WorldError(f"cannot use the key file {where}: {error.strerror}; {SHARE_SECRET}") from error
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise WorldError(
            f"the key file {path} must belong to this user and have mode 0600: delete it, or {SHARE_SECRET}"
        )
    if len(key) < SECRET_BYTES:
        raise WorldError(f"the key file {path} is too short: delete it, or {SHARE_SECRET}")
    return key


def _create(path: Path) -> None:
    """Create the key file complete, once, even if many ranks try at the same time."""
    with new_file(secrets.token_bytes(SECRET_BYTES), path.parent) as new:  # mode 0600
        with suppress(FileExistsError):
            path.hardlink_to(new)
        new.unlink()


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
