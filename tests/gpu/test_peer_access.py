"""Peer access of real GPUs: good as they are, and broken for real."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.peer_gpu import VARIABLE
from wirespeed.backends import facts
from wirespeed.features.p2p.attempts import attempt_peers
from wirespeed.hardware.facts import Facts
from wirespeed.hardware.topology import Machine
from wirespeed.peer_access import Attempt, PeerAccess, PeerMechanism, PeerVerdict

M, V = PeerMechanism, PeerVerdict


@pytest.fixture
def two(machine: Machine, pair: tuple[str, str]) -> Machine:
    return machine.only([gpu.index for gpu in machine.gpus if gpu.name in pair])


def broken(two: Machine, monkeypatch: pytest.MonkeyPatch, fault: str) -> PeerAccess:
    root = Path(__file__).parents[2]
    paths = (str(root), str(root / "src"), *os.environ.get("PYTHONPATH", "").split(":"))
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, paths)))
    a, b = (gpu.index for gpu in two.gpus)
    monkeypatch.setenv(VARIABLE, fault.format(a=a, b=b))
    gpus = tuple(replace(gpu, backend="tests.fakes.broken_cuda") for gpu in two.gpus)
    return attempt_peers(replace(two, gpus=gpus), Facts(facts(two)))


def one_way(access: PeerAccess, two: Machine) -> dict[PeerMechanism, Attempt]:
    a, b = (gpu.name for gpu in two.gpus)
    return {attempt.mechanism: attempt for attempt in access.pairs[a, b]}


def test_good_gpus(two: Machine) -> None:
    access = attempt_peers(two, Facts(facts(two)))
    assert {a.verdict for a in access.attempts} <= {V.WORKS, V.NOT_OFFERED}, access.attempts
    assert access.verdict is V.WORKS and not access.unusable
    assert all(attempt.rate for attempt in access.attempts if attempt.mechanism is M.COPY)
    assert all(0 < (a.latency or 0) < 1e-3 for a in access.attempts if a.mechanism is M.FLAG)


def test_writes_that_go_elsewhere(two: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    access = broken(two, monkeypatch, "drop {a} {b}")
    found = one_way(access, two)
    verdicts = {m: found[m].verdict for m in (M.COPY, M.STORE, M.LOAD, M.FLAG, M.ORDER)}
    assert verdicts == {M.COPY: V.WRONG, M.STORE: V.WRONG, M.LOAD: V.WORKS, M.FLAG: V.HANGS, M.ORDER: V.HANGS}
    assert found[M.STORE].stale == found[M.STORE].words


def test_flags_that_are_never_seen(two: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = one_way(broken(two, monkeypatch, "unseen {a} {b}"), two)
    assert (found[M.STORE].verdict, found[M.FLAG].verdict) == (V.WORKS, V.HANGS)


def test_a_kernel_that_never_ends(two: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    access = broken(two, monkeypatch, "hang {a} {b}")
    assert one_way(access, two)[M.STORE].verdict is V.HANGS and not access.unusable
    assert time.monotonic() - started < 30


def test_peer_access_that_is_not_enabled(two: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    access = broken(two, monkeypatch, "closed {a} {b}")
    assert access.verdict is V.FAILS and not access.unusable
