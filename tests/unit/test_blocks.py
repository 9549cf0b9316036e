"""Block lists: on the host for real, on GPUs by a driver in memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import wirespeed
from tests.fakes import gpu as fake
from tests.fakes.gpu import MemoryBackend, MemoryDriver
from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.test_data import offsets
from wirespeed.document import TestcaseResult
from wirespeed.errors import UsageError, VerificationError
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import BlockList, Engine, Executor, Memory, MemoryKind, Method, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import KIB

MACHINE = Machine(
    "in memory",
    numa=(NumaNode(0, (0, 1), memory_bytes=2**34),),
    gpus=tuple(
        Gpu(i, "in memory", f"00000000:00:{6 + i:02x}", compute_capability="9.0", memory_bytes=2**34,
            backend=MemoryBackend.name, peers=(f"gpu{1 - i}",)) for i in range(2)
    ),
)  # fmt: skip
HOST = Memory("numa0", MemoryKind.PAGEABLE)


def listed(method: Method, block: int, blocks: int, cpus: tuple[int, ...] = (0,)) -> Measurement:
    transfer = Transfer(
        HOST, HOST, Executor("numa0", cpus=cpus), Engine.CPU, block * blocks,
        scattered=BlockList(method, block, blocks),
    )  # fmt: skip
    return Measurement((transfer,), ())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryDriver]:
    for module in ("cuda", "cuda.bindings", "pynvml"):
        monkeypatch.setitem(sys.modules, module, None)
    driver = MemoryDriver()
    monkeypatch.setattr(fake, "opened", [driver])
    yield driver
    assert driver.left == {}


@pytest.fixture
def backend(driver: MemoryDriver) -> Iterator[MemoryBackend]:
    backend = MemoryBackend(MACHINE)
    yield backend
    backend.close()


def measured(backend: MemoryBackend, testcase: str, **options: Any) -> TestcaseResult:
    how: dict[str, Any] = {"sizes": (64, 3 * KIB), "block_counts": (1, 7), "samples": 2, "copies": 2}
    document = wirespeed.run(
        [testcase], machine=MACHINE, backends=[backend], affinity=False, **(how | options)
    )
    return document.testcases[0]


def test_a_permutation_uses_each_block_of_both_pools_once() -> None:
    scattered = BlockList(Method.KERNEL, 192, 1000)
    places = offsets(scattered, 3)
    for column in range(2):
        assert sorted(places[:, column].tolist()) == [192 * i for i in range(1000)]
    assert not np.array_equal(places[:, 0], places[:, 1])
    assert np.array_equal(places, offsets(replace(scattered, method=Method.LOOP), 3))
    assert not np.array_equal(places, offsets(scattered, 4))


@pytest.mark.parametrize("method", [Method.LOOP, Method.KERNEL])
@pytest.mark.parametrize(("block", "blocks"), [(64, 1), (64, 1000), (28 * KIB, 33), (4096, 2)])
def test_lists_in_host_memory_arrive(method: Method, block: int, blocks: int) -> None:
    """Also with fewer blocks than threads, and several copies of a sample."""
    machine = wirespeed.machine()
    node = machine.numa[0]
    cpus = node.cores[:1] if method is Method.LOOP else node.cores
    backend = HostBackend(machine)
    try:
        with backend.prepare(listed(method, block, blocks, cpus), RunOptions()) as prepared:
            for copies in (1, 3):
                sample = prepared.sample(copies)
                assert sample.amounts == (float(copies * block * blocks),)
                prepared.verify()
    finally:
        backend.close()


def test_two_blocks_in_each_other_s_place_are_found() -> None:
    backend = HostBackend(wirespeed.machine())
    try:
        with backend.prepare(listed(Method.KERNEL, 128, 16), RunOptions()) as prepared:
            (bound,) = prepared.bound
            assert bound.entries is not None
            bound.entries[[3, 8], 1] = bound.entries[[8, 3], 1]
            wrong = min(int(bound.entries[i, 1]) for i in (3, 8))
            prepared.sample(1)
            with pytest.raises(VerificationError, match=f"offset {wrong}") as raised:
                prepared.verify()
            assert raised.value.wrong == 2 * 128 // 8
    finally:
        backend.close()


def test_a_block_that_is_not_moved_is_found() -> None:
    backend = HostBackend(wirespeed.machine())
    try:
        with backend.prepare(listed(Method.LOOP, 128, 16), RunOptions()) as prepared:
            prepared.sample(1)
            prepared.verify()
            (bound,) = prepared.bound
            assert bound.entries is not None
            bound.entries = bound.entries[:15]
            prepared.sample(1)
            with pytest.raises(VerificationError):
                prepared.verify()
    finally:
        backend.close()


@pytest.mark.parametrize("testcase", ["host_to_device", "device_to_host", "device_to_device"])
def test_lists_of_gpus_arrive_by_every_method(backend: MemoryBackend, testcase: str) -> None:
    result = measured(backend, f"blocks_{testcase}")
    assert result.status == "passed", result.reason
    paths, methods = (2, 5) if testcase != "device_to_device" else (4, 4)
    assert len(result.tables) == paths * methods
    for table in result.tables:
        assert len([value for value in table.values() if value]) == 4, table.title
        assert [cell.bytes for cell in table.cells] == [64, 7 * 64, 3 * KIB, 7 * 3 * KIB]


def test_calls_of_each_method(driver: MemoryDriver, backend: MemoryBackend) -> None:
    calls = driver.native.made
    measured(backend, "blocks_host_to_device", sizes=(64,), block_counts=(5,), samples=1, copies=1)
    laps = [lap.split() for lap in " ".join(calls).split(" synchronize")]
    first = [lap[1:] for lap in laps if lap]  # after making the context the current one
    loop, batch, kernel, bulk, staged = first[0::2][:5]  # each after a warm-up
    assert loop == 5 * ["move"] and batch == ["batch"] and kernel == bulk == ["launch"]
    assert staged == ["move", "launch"]


def test_a_wrong_byte_of_a_block_is_found(driver: MemoryDriver, backend: MemoryBackend) -> None:
    def damage(address: int, size: int) -> None:
        ctypes.c_uint8.from_address(address + size - 1).value ^= 1

    driver.damage = damage
    result = measured(backend, "blocks_host_to_device")
    assert result.status == "failed" and "loop of" in result.reason


def test_a_call_that_fails_has_its_name(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.native.refuses = "batch"
    result = measured(backend, "blocks_device_to_host")
    assert result.status == "error" and result.reason == "batch failed: status 7"
    kernel = next(table for table in result.tables if table.key == "gpu0->numa0 kernel")
    assert all(kernel.values())  # what can be measured is kept


def test_a_driver_without_batches(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.native.has_batch = False
    result = measured(backend, "blocks_host_to_device")
    batch = next(table for table in result.tables if table.key == "numa0->gpu0 batch")
    assert {cell.reason for cell in batch.cells} == {"this driver makes one copy at a time"}
    assert result.status == "passed"


def test_what_cannot_be_moved_as_a_list(backend: MemoryBackend) -> None:
    host, own = Memory("numa0", MemoryKind.PINNED), Memory("gpu0", MemoryKind.DEVICE)
    good = Transfer(
        host, own, Executor("gpu0"), Engine.CE, 256, scattered=BlockList(Method.STAGED, 64, 4)
    )
    assert backend.refuses(Measurement((good,), ())) is None
    for wrong, reason in (
        (replace(good, source=HOST), "pinned memory"),
        (replace(good, source=own), "between host memory and a GPU"),
        (replace(good, rate=1e9), "at full speed"),
        (replace(good, scattered=BlockList(Method.LOOP, 100, 4)), "a multiple of 64 B, not 100 B"),
    ):
        assert reason in (backend.refuses(Measurement((wrong,), ())) or "")
    assert "only one can run" in (backend.refuses(Measurement((good, good), ())) or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": "100"}, "multiple of 64 B, not 100 B"),
        ({"block_counts": "4:x"}, "not a list of numbers of blocks"),
        ({"block_counts": "0"}, "not a list of numbers of blocks"),
        ({"block_counts": (2**21,)}, "from 1 to 1048576 blocks"),
        ({"block_counts": ()}, "empty"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wirespeed.run(["blocks_host"], machine="simulated:cpu-2-sockets", **options)


def test_lists_that_are_too_large_are_waived_with_the_reason() -> None:
    (result,) = wirespeed.run(
        ["blocks_host"], machine="simulated:cpu-2-sockets", sizes="4KiB", block_counts=(16, 2**20), samples=1
    ).testcases
    reasons = [cell.reason for cell in result.tables[0].cells]
    assert reasons == ["", "4 GiB is too much: a list moves 1 GiB at most"]
