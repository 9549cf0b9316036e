"""Rates and start offsets on real GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import MIB

ENGINES = pytest.mark.parametrize("engine", [Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT])


def local(engine: Engine = Engine.CE, size: int = 64 * MIB) -> Transfer:
    memory = Memory("gpu0", MemoryKind.DEVICE)
    return Transfer(memory, memory, Executor("gpu0"), engine, size)


@ENGINES
@pytest.mark.parametrize("rate", [1e9, 5e9, 20e9])
def test_a_rate_is_held_and_not_exceeded(
    backend: CudaBackend, machine: Machine, options: RunOptions, engine: Engine, rate: float
) -> None:
    if engine is Engine.SM_BULK and float(machine.gpus[0].compute_capability) < 9:
        pytest.skip("no bulk copies before compute capability 9.0")
    for size in (16 * MIB, MIB + 13, 4096):
        one = replace(local(engine, size), rate=rate)
        with backend.prepare(Measurement((one,), ()), options) as prepared:
            samples = [prepared.sample(max(1, 32 * MIB // size // 20)) for _ in range(3)]
            prepared.verify()
        found = max(sample.amounts[0] / sample.seconds[0] for sample in samples)
        assert found <= rate * 1.001
        assert found > (0.9 * rate if size >= 16 * MIB else 0)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.TRIAD, Operation.SCALE])
def test_other_operations_in_pieces_are_verified(
    backend: CudaBackend, options: RunOptions, operation: Operation
) -> None:
    one = replace(local(Engine.SM, 16 * MIB + 8), operation=operation, rate=5e9)
    with backend.prepare(Measurement((one,), ()), options) as prepared:
        for _ in range(2):
            sample = prepared.sample(2)
            prepared.verify()
    assert sample.amounts[0] / sample.seconds[0] == pytest.approx(5e9, rel=0.1)


def test_a_start_offset_is_no_part_of_the_time(backend: CudaBackend, options: RunOptions) -> None:
    one, late = local(Engine.SM), replace(local(Engine.CE), start=3e-3)
    with backend.prepare(Measurement((one, late), ()), options) as prepared:
        prepared.sample(1)
        sample = prepared.sample(1)
        prepared.verify()
    assert max(sample.seconds) < 2e-3
    assert 3e-3 < sample.wall < 3e-3 + 2 * max(sample.seconds) + 1e-3


def test_a_load_is_held_to_a_rate(backend: CudaBackend, options: RunOptions) -> None:
    load = replace(local(Engine.CE, 8 * MIB), rate=2e9, role=Role.LOAD)
    with backend.prepare(Measurement((local(Engine.SM), load), ()), options) as prepared:
        samples = [prepared.sample(100) for _ in range(4)]
        prepared.verify()
    assert samples[-1].amounts[1] / samples[-1].seconds[1] == pytest.approx(2e9, rel=0.1)
    assert samples[-1].seconds[1] > samples[-1].seconds[0]
