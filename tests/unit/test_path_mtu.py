"""The largest packet that arrives at another process: over the loopback, which divides and drops nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from wirespeed.features.qualify import path_mtu
from wirespeed.features.qualify.path_mtu import largest_packet


class Dropping(socket.socket):
    """A socket whose network drops datagrams above a size, by turns with an error."""

    most: int = 0
    refused = 0

    def sendto(self, data: Any, place: Any, *more: Any) -> int:
        if len(data) + 28 > self.most:
            Dropping.refused += 1
            if Dropping.refused % 2:
                raise OSError(90, "Message too long")
            return len(data)
        return super().sendto(data, place, *more)


def measured(mtu: int, other: int) -> tuple[int, int]:
    """What both ends find, with these MTUs of their interfaces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    found: list[int] = []
    with here, there:
        thread = threading.Thread(target=lambda: found.append(largest_packet(there, other, first=False)))
        thread.start()
        mine = largest_packet(here, mtu, first=True)
        thread.join()
    return mine, found[0]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets only packets up to a size arrive, without waiting for those that are dropped."""

    def drops(most: int) -> None:
        monkeypatch.setattr(Dropping, "most", most)
        monkeypatch.setattr(path_mtu.socket, "socket", Dropping)
        monkeypatch.setattr(path_mtu, "_BEHIND_S", 0.001)

    return drops


def test_all_packets_arrive() -> None:
    assert measured(9000, 9000) == (9000, 9000)
    assert measured(9000, 1500) == (1500, 1500), "the smaller of both ends"
    assert measured(65536, 65536) == (65536, 65536), "more than a packet of IPv4 can have"


@pytest.mark.parametrize("most", [576, 577, 1279, 1280, 1400, 1499, 1500, 1501, 4200, 8999])
def test_the_exact_size_is_found(most: int, network: Callable[[int], None]) -> None:
    network(most)
    assert measured(9000, 9216) == (most, most)


def test_without_datagrams_it_is_unknown(network: Callable[[int], None]) -> None:
    network(0)
    assert measured(1500, 1500) == (0, 0)


def test_an_end_that_goes_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    there.close()
    with here, pytest.raises(OSError, match=r"ended|reset"):
        largest_packet(here, 1500, first=True)
