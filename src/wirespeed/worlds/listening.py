"""The sockets on which rank 0 listens, and the addresses of this host."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from contextlib import suppress
from pathlib import Path

from .base import WorldError

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
