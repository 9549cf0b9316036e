"""Block lists by every method: one block, fewer blocks than warps, pieces that are not whole, many blocks."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import wirespeed
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.errors import VerificationError
from wirespeed.features.blocks.testcases import DIRECTIONS
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import BlockList, Engine, Executor, Memory, MemoryKind, Method, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import KIB, MIB

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lists_arrive_by_every_method(machine: Machine, direction: str) -> None:
    if "all" in direction and len(machine.gpus) < 2:
        pytest.skip("it needs two GPUs")
    (result,) = wirespeed.run(
        [f"blocks_{direction}"], machine=machine, devices=[gpu.index for gpu in machine.gpus[:2]],
        sizes=(64, 4 * KIB, 28 * KIB, MIB + 64), block_counts=(1, 7, 300), samples=2, copies=2, rounds=1,
    ).testcases  # fmt: skip
    assert result.status == "passed", result.reason
    bulk = all(gpu.has_bulk_copy for gpu in machine.gpus)
    for table in result.tables:
        if bulk or "kernel_bulk" not in table.key:
            assert all(table.values()), table.key


@pytest.mark.parametrize("direction", ["host_to_device", "both_ways"])
def test_lists_and_the_computation_next_to_them(machine: Machine, direction: str) -> None:
    found = wirespeed.blocks(
        direction, machine=machine, devices=(0,), sizes=(16 * KIB,), blocks=(16, 256), while_computing=True,
    )  # fmt: skip
    points = [point for path in found.paths if path.while_computing for point in path.points]
    assert found.document.testcases[0].status == "passed" and points
    for point in points:
        assert point.rates.keys() == point.slowdown.keys() == point.computation_slowdown.keys()
        assert min(point.computation_slowdown.values()) > 0.9


@pytest.mark.parametrize("method", list(Method))
def test_a_wrong_word_of_a_block_is_found(machine: Machine, backend: CudaBackend, method: Method) -> None:
    gpu = machine.gpus[0]
    if method is Method.KERNEL_BULK and not gpu.has_bulk_copy:
        pytest.skip("no bulk copies")
    host, own = Memory(f"numa{gpu.numa}", MemoryKind.PINNED), Memory(gpu.name, MemoryKind.DEVICE)
    engine = {Method.KERNEL: Engine.SM, Method.KERNEL_BULK: Engine.SM_BULK}.get(method, Engine.CE)
    transfer = Transfer(
        own, host, Executor(gpu.name), engine, 100 * 4096, scattered=BlockList(method, 4096, 100)
    )
    with backend.prepare(Measurement((transfer,), ()), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()
        prepared.sample(1)
        destination = prepared.buffers[0].destination
        assert destination is not None
        ctypes.c_uint64.from_address(destination.host + 8 * 12345).value ^= 1
        with pytest.raises(VerificationError, match=f"offset {8 * 12345}"):
            prepared.verify()


@pytest.mark.parametrize("by", ["", "_cufile"])
@pytest.mark.parametrize("name", ["storage_to_device", "storage_from_device"])
def test_files_arrive(machine: Machine, tmp_path: Path, name: str, by: str) -> None:
    document = wirespeed.run(
        [f"{name}{by}"], machine=machine, storage=tmp_path, storage_size=64 * MIB, size=256 * KIB, samples=2,
        copies=2,
    )  # fmt: skip
    (result,) = document.testcases
    if by and any(lack in result.reason for lack in ("cuFile is not installed", "which is missing here")):
        pytest.skip(result.reason)
    assert result.status == "passed", result.reason
    assert all(value for table in result.tables for value in table.values()[:3])
    assert not by or "cuFile" in document.libraries
    assert list(tmp_path.iterdir()) == []
