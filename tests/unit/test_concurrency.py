"""Transfers that ran one after another, and collectives next to transfers."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

import wirespeed
from wirespeed.backends import describe
from wirespeed.backends.base import Backend, Prepared
from wirespeed.backends.mixed import MixedBackend, assigned
from wirespeed.data import efficiencies
from wirespeed.driver.concurrency import one_after_another
from wirespeed.errors import BackendError
from wirespeed.features.transfers.program import of_line
from wirespeed.hardware.limits import allowances
from wirespeed.hardware.link_graph import Network
from wirespeed.measurement import Measurement, Place, Reduce, Sample
from wirespeed.model import Engine
from wirespeed.options import RunOptions

TWO = describe("simulated:hgx-h200-2")
NETWORK = Network(TWO)


def measurement(line: str) -> Measurement:
    (found,) = of_line(line).testcase.plan(TWO).measurements
    return found


def sample(one: Measurement, *factors: float) -> Sample:
    """Return a sample whose transfers end at multiples of the typical time of the first one."""
    alone = allowances(NETWORK, Measurement(one.works[:1], one.places[:1]), efficiencies())[0]
    assert alone.expected
    time = one.transfers[0].bytes / alone.expected[1]
    seconds = tuple(factor * time for factor in factors)
    return Sample(seconds, tuple(float(t.bytes) for t in one.transfers), max(seconds))


@pytest.mark.parametrize(
    ("line", "ends", "serial"),
    [
        ("gpu0 -> gpu1; gpu0 -> gpu1", (1, 2), True),
        ("gpu0 -> gpu1; gpu1 -> gpu0", (2, 1), True),
        ("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1", (1, 2, 3), True),
        ("gpu0 -> gpu1; gpu0 -> gpu1", (2, 2), False),  # they share a link
        ("gpu0 -> gpu1; gpu1 -> gpu0", (1, 1), False),
        ("gpu0 -> gpu1; gpu0 -> gpu1", (1.3, 2), False),  # unequal shares
        ("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1", (1, 2, 2), False),
        ("gpu0 -> gpu1; numa0 -> gpu0", (1, 7.3), False),  # the second one is slower anyway
        ("gpu0 -> gpu1; load gpu0 -> gpu1", (1, 2), False),
        ("gpu0 -> gpu1; latency gpu0 <- gpu1", (1, 2), False),
        ("near(gpu0) -> gpu0; near(gpu1) -> gpu1", (1, 2), False),  # no queue in common: a slow link
    ],
)
def test_transfers_that_end_one_duration_apart_were_serialised(
    line: str, ends: tuple[float, ...], serial: bool
) -> None:
    one = measurement(line)
    found = one_after_another(NETWORK, one, [sample(one, *ends)] * 3)
    assert ("one after another (gpu" in found) is serial


@pytest.mark.parametrize(("wall", "serial"), [(2.0, True), (1.3, False), (1.0, False)])
def test_transfers_whose_clocks_start_at_their_turn_were_serialised(wall: float, serial: bool) -> None:
    """As two copies by one copy engine of an H200: each at full speed, together twice that of the link."""
    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1")
    both = sample(one, 1, 1)
    found = one_after_another(NETWORK, one, [replace(both, wall=wall * both.wall)] * 3)
    assert ("one after another" in found) is serial


@pytest.mark.parametrize(("last", "warned"), [(3, False), (6, True)])
@pytest.mark.parametrize("queued", [True, False])
def test_totals_that_are_as_high_as_expected_need_no_warning(last: float, warned: bool, queued: bool) -> None:
    """Four H200s: three copies from one GPU take turns at its links, which carry what they can."""
    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1; gpu0 -> gpu1")
    total = replace(one, places=(Place("", 0, 0, Reduce.WALL, (0, 1, 2)),))
    ends = (1, 1, 1) if queued else (1, 2, last)
    times = sample(one, *ends)
    times = replace(times, wall=last * sample(one, 1, 1, 1).wall)
    found = one_after_another(NETWORK, total, [times] * 3)
    assert ("one after another" in found) is warned
    assert "one after another" in one_after_another(NETWORK, one, [times] * 3)


def test_the_warning_is_in_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    from wirespeed.backends.simulated.prepared import SimulatedMeasurement

    one = measurement("gpu0 -> gpu1; gpu0 -> gpu1")
    late = sample(one, 1, 2)
    monkeypatch.setattr(SimulatedMeasurement, "sample", lambda self, copies: late)
    case = of_line("gpu0 -> gpu1; gpu0 -> gpu1").testcase
    document = wirespeed.run([case], machine=TWO)
    assert "one after another" in document.testcases[0].warnings[0]


class Part(Backend, Prepared):
    """A backend and what it prepares: it counts samples and knows whether the other part ran meanwhile."""

    sample_seconds = 1e-3

    def __init__(self, name: str, collectives: bool, engines: Collection[Engine] = tuple(Engine)) -> None:
        super().__init__()
        self.name, self.collectives, self.engines = name, collectives, engines
        self.warn(f"{name} warns")
        self.samples, self.closed = 0, False
        self.sampled = threading.Event()
        self.waits_for: Part | None = None
        self.fails = False

    def refuses(self, one: Measurement) -> str | None:
        if not {transfer.engine for transfer in one.transfers} <= set(self.engines):
            return "no such engine"
        return None if not one.is_mixed and self.collectives == (one.collective is not None) else ""

    def prepare(self, one: Measurement, options: RunOptions) -> Part:
        assert all(work.role.value == "measured" for work in one.works)  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def sample(self, copies: int) -> Sample:
        self.samples += 1
        self.sampled.set()
        if self.fails:
            raise BackendError("the load failed")
        if self.waits_for is not None:
            self.waits_for.sampled.clear()
            assert self.waits_for.sampled.wait(10), "the load does not run"
        return Sample((1e-3 * copies,), (float(copies),), 1e-3 * copies)

    def verify(self) -> int | None:
        return 0 if self.collectives else None


def parts(line: str) -> tuple[Any, Part, Part, Measurement]:
    one, nccl, cuda = measurement(line), Part("nccl", True), Part("cuda", False)
    backend, why = assigned([nccl, cuda], one)
    assert backend and not why
    return backend, nccl, cuda, one


def test_the_load_runs_while_the_other_part_is_measured() -> None:
    for line in ("all_reduce 1MiB; load gpu0 -> gpu1", "load all_reduce 1MiB; gpu0 -> gpu1"):
        backend, nccl, cuda, one = parts(line)
        measured, load = (nccl, cuda) if line.startswith("all") else (cuda, nccl)
        assert (backend.measuring, backend.loading) == (measured, load)
        with backend.prepare(one, RunOptions()) as prepared:
            prepared.warm_up()
            measured.waits_for = load
            found = prepared.sample(3)
            assert prepared.verify() == 0
        assert sorted(found.amounts) == [0.0, 3.0] and load.samples > 2 and load.closed and measured.closed
        assert not [thread for thread in threading.enumerate() if thread.name == "load"]
        assert backend.parts == (measured, load)


def test_an_error_of_the_load_ends_the_sample() -> None:
    backend, _, cuda, one = parts("all_reduce 1MiB; load gpu0 -> gpu1")
    with backend.prepare(one, RunOptions()) as prepared:
        prepared.warm_up()
        cuda.fails = True
        with pytest.raises(BackendError, match="the load failed"):
            prepared.sample(1)


def test_cpus_run_as_load_next_to_gpus() -> None:
    cuda, host = Part("cuda", False, {Engine.CE}), Part("host", False, {Engine.CPU})
    one = measurement("load numa0 -> void; near(gpu0) -> gpu0")
    backend, _ = assigned([host, cuda], one)
    assert isinstance(backend, MixedBackend) and (backend.measuring, backend.loading) == (cuda, host)
    with backend.prepare(one, RunOptions()) as prepared:
        assert prepared.sample(2).amounts == (0.0, 2.0)
    both, why = assigned([host, cuda], measurement("numa0 -> void; near(gpu0) -> gpu0"))
    assert both is None and why == "no such engine; no such engine"


def test_between_processes_there_is_no_load_of_another_backend() -> None:
    nccl, cuda = Part("nccl", True), Part("cuda", False)
    nccl.processes = 2
    backend, why = assigned([nccl, cuda], measurement("all_reduce 1MiB; load gpu0 -> gpu1"))
    assert backend is None and "possible in one process only" in why


def test_without_a_backend_for_one_part_there_is_a_reason() -> None:
    one = measurement("all_reduce 1MiB; load gpu0 -> gpu1")
    backend, why = assigned([Part("cuda", False)], one)
    assert backend is None and why == "there is no backend for it"


def test_a_simulated_collective_shares_links_with_transfers() -> None:
    def value(line: str) -> float:
        return wirespeed.transfer(line, machine=TWO).bandwidths.popitem()[1].value

    beside_peer = value("all_reduce 1GiB; load gpu0 -> gpu1")
    beside_loader = value("all_reduce 1GiB; load near(gpu*) -> gpu*")
    assert beside_peer < 0.6 * beside_loader
    assert value("gpu0 -> gpu1; load all_reduce") < 0.6 * value("gpu0 -> gpu1")
