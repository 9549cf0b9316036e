"""How large packets may be on the way between two nodes: datagrams that no router may divide (RFC 8899). The
MTU of a route is what this node knows, and a switch that drops larger packets tells nobody; so datagrams of
several sizes are sent, and the other end says which arrived. That needs neither root nor ICMP.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
import time
from contextlib import suppress

from .tcp_probe import TIMEOUT_S, exactly

#: Option of a socket, and its value: never divide packets, and ignore what is known of the path (ip(7)).
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
#: Bytes of the headers of IPv4 and UDP, and the smallest MTU that is looked for: each host takes packets of
#: this size (RFC 791).
_HEADERS_BYTES, _LEAST_BYTES = 28, 576
#: Largest packet of IPv4; a loopback device claims more.
_MOST_BYTES = 2**16 - 1
#: Times that a packet is sent before it counts as lost, and how long it may take behind the question for it,
#: in s.
_TIMES, _BEHIND_S = 3, 0.05
_TOKEN_BYTES = 16
#: The first message: port and token of the datagrams, and MTU of the interface. Question: size of a packet,
#: or 0 at the end.
_HELLO, _QUESTION = struct.Struct(f"!H{_TOKEN_BYTES}sI"), struct.Struct("!I")


def largest_packet(control: socket.socket, mtu: int, *, first: bool) -> int:
    """The largest packet that arrives at the other end of a connection; both ends call it.

    Args:
        control: The connection, over IPv4.
        mtu: MTU of this node's interface, in bytes.
        first: Whether this end sends first; the other one must not.

    Returns:
        The size in bytes, at most the MTU of both ends; 0 if no datagram arrives.

    Raises:
        OSError: If the connection ends or times out.
    """
    control.settimeout(TIMEOUT_S)
    control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        datagrams.bind((_ipv4(control.getsockname()), 0))
        token = secrets.token_bytes(_TOKEN_BYTES)
        control.sendall(_HELLO.pack(datagrams.getsockname()[1], token, mtu))
        port, theirs, their_mtu = _HELLO.unpack(exactly(control, _HELLO.size))
        place = (_ipv4(control.getpeername()), port)
        found = 0
        for sends in (first, not first):
            if sends:
                found = _search(control, datagrams, place, theirs, min(mtu, their_mtu))
                control.sendall(_QUESTION.pack(0))
            else:
                _answer(control, datagrams, token)
        return found


def _ipv4(name: tuple[str, int]) -> str:
    return name[0].removeprefix("::ffff:")


def _search(
    control: socket.socket, datagrams: socket.socket, place: tuple[str, int], token: bytes, most: int
) -> int:
    """The largest size of packets that arrive, of at most ``most`` bytes; 0 if none does."""

    def arrives(size: int) -> bool:
        for _ in range(_TIMES):
            with suppress(OSError):  # larger than the interface sends, or the answer to an earlier one
                datagrams.sendto(token + bytes(size - _HEADERS_BYTES - len(token)), place)
            control.sendall(_QUESTION.pack(size))
            if exactly(control, 1) == b"\1":
                return True
        return False

    if arrives(min(most, _MOST_BYTES)):
        return most
    if not arrives(_LEAST_BYTES):
        return 0
    least = _LEAST_BYTES
    while most - least > 1:
        size = (least + most) // 2
        least, most = (size, most) if arrives(size) else (least, size)
    return least


def _answer(control: socket.socket, datagrams: socket.socket, token: bytes) -> None:
    """Say of each packet whether it has arrived, until the other end has no more questions."""
    arrived: set[int] = set()
    while size := _QUESTION.unpack(exactly(control, _QUESTION.size))[0]:
        until = time.monotonic() + _BEHIND_S
        while (
            size not in arrived and select.select([datagrams], [], [], max(0.0, until - time.monotonic()))[0]
        ):
            data = datagrams.recv(2**16)
            if data.startswith(token):
                arrived.add(len(data) + _HEADERS_BYTES)
        control.sendall(b"\1" if size in arrived else b"\0")
