"""Jobs whose processes are threads: each has a World, a backend and buffers of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import local
from typing import Any

import pytest

from wirespeed.errors import WirespeedError
from wirespeed.worlds import rendezvous
from wirespeed.worlds.base import World
from wirespeed.worlds.listening import listen
from wirespeed.worlds.rendezvous import connect, gather

#: What a test that uses this module leaves open, which ends with the test.
AT_END = ExitStack()
SECRET = b"the secret of jobs of threads"


def worlds(size: int, timeout: float = 10.0) -> list[World]:
    """Return the Worlds of so many threads; `timeout` is that of exchanges, not of joining."""
    return _joined(size, timeout, lambda rank: None)


def worlds_on(monkeypatch: pytest.MonkeyPatch, hosts: Sequence[str], timeout: float = 10.0) -> list[World]:
    """The same, each on a host of that name."""
    here = local()
    monkeypatch.setattr(rendezvous, "hostname", lambda: here.name)

    def name(rank: int) -> None:
        here.name = hosts[rank]

    return _joined(len(hosts), timeout, name)


def _joined(size: int, timeout: float, before: Callable[[int], None]) -> list[World]:
    listeners = listen(SECRET, host="127.0.0.1")
    port = listeners[0].getsockname()[1]

    def one(rank: int) -> World:
        before(rank)
        if rank == 0:
            return gather(listeners, SECRET, size, "threads", 10.0)
        return connect([("127.0.0.1", port)], SECRET, rank, size, "threads", 10.0)

    with ThreadPoolExecutor(size) as pool:
        joined = list(pool.map(one, range(size)))
    for world in joined:
        world.timeout = timeout
        AT_END.callback(world.close)
    return joined


def together(some: list[World], work: Callable[[World], Any]) -> list[Any]:
    """Let all do something at once; an error is a result."""

    def one(world: World) -> Any:
        try:
            return work(world)
        except WirespeedError as error:
            return error

    with ThreadPoolExecutor(len(some)) as pool:
        return list(pool.map(one, some))
