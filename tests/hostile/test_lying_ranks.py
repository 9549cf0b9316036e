"""Ranks that know the secret and lie, strangers that say nothing, paths on which nearly nothing arrives."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from tests.features.qualify.test_qualify_job import Worlds, impatient, in_threads, quick, worlds  # noqa: F401
from wirespeed.errors import WirespeedError
from wirespeed.features.qualify import job, job_nodes, process_cluster, tcp_probe
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.tcp_probe import TcpProbe
from wirespeed.judging.qualification_verdict import verdict_of
from wirespeed.judging.verdict import Verdict
from wirespeed.qualification import EndMemory
from wirespeed.worlds.base import RankLost
from wirespeed.worlds.crew import Crew

#: What a rank says it received.
LIES: dict[str, Any] = {
    "nan": (math.nan, math.nan, math.nan), "infinity": (math.inf, 0.0, 0.0), "negative": (-1e9, 0.01, 0.0),
    "1e300": (1e300, 1e-300, 5.0), "texts": ("x", "y", "z"), "a short list": (1e9,), "no list": 7,
    "a table": {"rate": 1e9}, "a deep list": [[[[[[1.0]]]]]], "nothing": None,
}  # fmt: skip


def lying(rank: int, lie: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    """What ranks do, of which one gives another answer than that of its work."""

    def serve(world: Any) -> None:
        probes: list[TcpProbe] = []

        def answer(task: Any) -> Any:
            if not probes:
                probes.append(TcpProbe(bytes(task[0])))
                true = job_nodes.introduction(probes[0].port, task)
            else:
                true = job_nodes.work(probes[0], task)
            return lie(task, true) if world.rank == rank else true

        with suppress(RankLost):
            Crew(world).serve(answer, 10.0)
        for probe in probes:
            probe.close()

    return serve


def qualified(worlds: Worlds, size: int, serve: Callable[[Any], None]) -> Any:  # noqa: F811
    made = worlds(size)
    threads = in_threads(made, serve)
    cluster = job.lead(made[0], {}, [], "tcp", 5.0)
    found = Procedure(cluster).run()
    cluster.close()
    for world in made:
        world.close()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(("kind", "size"), [*((kind, 2) for kind in LIES), ("nan", 4), ("nothing", 4)])
def test_impossible_rates_are_findings(kind: str, size: int, worlds: Worlds, quick: None) -> None:  # noqa: F811
    """Neither a pass, nor a file that cannot be opened, nor a traceback."""

    def lie(task: Any, true: Any) -> Any:
        return LIES[kind] if task[0] == "pair" else true

    found = qualified(worlds, size, lying(1, lie))
    missing = [node.missing for node in found.nodes]
    assert not any(missing[:1] + missing[2:]) and found.fails
    wanted = "receives no data" if kind == "nothing" else "sent an invalid answer: "
    assert wanted in missing[1]
    assert verdict_of(found) is Verdict.FAIL
    values = [value for each in found.rounds for row in np.ravel(each.values) for value in np.ravel(row)]
    assert all(value is None or math.isfinite(float(value)) for value in values)


@pytest.mark.parametrize(
    "lie",
    [
        lambda true: (0, true[1]), lambda true: (true[0], {}), lambda true: (true[0],), lambda true: None,
        lambda true: (70000, true[1]), lambda true: (true[0], [*true[1][:6], math.nan, *true[1][7:]]),
        lambda true: "x" * 10**6,
    ],
)  # fmt: skip
def test_invalid_introductions_are_findings(
    lie: Callable[[Any], Any], worlds: Worlds, quick: None  # noqa: F811
) -> None:  # fmt: skip
    first, made = [True], worlds(3)

    def once(task: Any, true: Any) -> Any:
        return lie(true) if first and first.pop() else true

    threads = in_threads(made, lying(1, once))
    cluster = job.lead(made[0], {}, [], "tcp", 5.0)
    assert ["sent an invalid answer: " in node.missing for node in cluster.nodes] == [False, True, False]
    cluster.close()
    for world in made:
        world.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("answer", [[1.0], [1.0] * 99, [math.nan] * 6, "x"])
def test_invalid_messages_are_findings(answer: Any, worlds: Worlds, quick: None) -> None:  # noqa: F811
    made = worlds(2)
    threads = in_threads(made, lying(1, lambda task, true: answer if task[0] == "messages" else true))
    cluster = job.lead(made[0], {}, [], "tcp", 5.0)
    cluster.pairs([(0, 1)])
    values = cluster.sizes((0, 1), EndMemory.HOST, False, [1024, 2048])
    assert np.isnan(values[:, 1]).all() and "sent an invalid answer" in cluster.nodes[1].missing
    cluster.close()
    for world in made:
        world.close()
    for thread in threads:
        thread.join()


def test_silent_strangers_delay_nobody() -> None:
    """Before, each cost up to 5 s, and few of them a round."""
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    place = ("127.0.0.1", receiver.port)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(place)) for _ in range(60)]
        for peer in silent[:20]:
            peer.sendall(b"\1")
        stack.enter_context(socket.create_connection(place)).sendall(bytes(32))
        began = time.monotonic()
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(receiver.pair(None, 3, 4)))
        thread.start()
        assert sender.pair(place, 3, 4) is not None
        thread.join()
        assert found[0] is not None and time.monotonic() - began < 4.0
    for probe in (receiver, sender):
        probe.close()


def test_the_oldest_silent_connection_goes_first(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:  # noqa: F811
    monkeypatch.setattr(tcp_probe, "_MOST_ASKING", 3)
    probe = TcpProbe(b"secret")
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", probe.port))) for _ in range(4)]
        assert probe.pair(None, 1) is None
        assert silent[0].recv(1) == b""
        silent[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)
    probe.close()


def test_a_path_on_which_nearly_nothing_arrives_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that takes 1 kB/s: the sender gives up, and the receiver knows the rate."""
    monkeypatch.setattr(tcp_probe, "SECONDS", 0.2)
    monkeypatch.setattr(tcp_probe, "TIMEOUT_S", 0.5)
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    tcp_probe._timed_by_kernel(here)
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.05):
            with suppress(BlockingIOError):
                there.recv(50, socket.MSG_DONTWAIT)

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    with pytest.raises(OSError):
        tcp_probe._send(here)
    with pytest.raises(OSError):
        tcp_probe._send_messages(here, [(2**26, 0.01)], time.monotonic() + 0.5)
    assert time.monotonic() - began < 4.0
    ended.set()
    thread.join()
    for end in (here, there):
        end.close()


def test_a_slow_receiver_knows_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_probe, "SECONDS", 0.2)
    monkeypatch.setattr(tcp_probe, "TIMEOUT_S", 0.5)
    here, there = socket.socketpair()
    tcp_probe._timed_by_kernel(here)
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.01):
            there.send(bytes(10))

    thread = threading.Thread(target=drip)
    thread.start()
    rate, _ = tcp_probe._received(here)
    ended.set()
    thread.join()
    assert 200 < rate < 2000
    for end in (here, there):
        end.close()


@pytest.mark.parametrize(("rate", "seconds"), [(1e9, 0.32), (1e3, 5.0)])
def test_messages_end_with_their_round(
    rate: float, seconds: float, worlds: Worlds, quick: None, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """However slow the path is: 64 MiB at 1 kB/s would take a day."""
    monkeypatch.setattr(process_cluster, "TIMEOUT_S", 0.0)
    made = worlds(2)
    threads = in_threads(made, lying(1, lambda task, true: true))
    cluster = job.lead(made[0], {}, [], "tcp", 5.0)
    cluster._slowest[frozenset((0, 1))] = rate
    limits: list[float] = []

    def messages(self: TcpProbe, place: Any, number: int, streams: int, plan: Any, *more: Any) -> list[float]:
        limits.append(more[-1])
        return [1e6] * len(plan)

    monkeypatch.setattr(TcpProbe, "messages", messages)
    cluster.sizes((0, 1), EndMemory.HOST, True, [2**20, 2**25])
    assert limits == [pytest.approx(seconds, rel=0.2)] * 2
    cluster.close()
    for world in made:
        world.close()
    for thread in threads:
        thread.join()


def test_an_error_of_a_round_wakes_its_threads() -> None:
    """Such as that of a signal: what they wait for ends."""
    here, there = socket.socketpair()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), tcp_probe._threads(1, [here]) as threads:
        threads.submit(here.recv, 1)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 2.0
    for end in (here, there):
        end.close()
    assert issubclass(RankLost, WirespeedError)
