"""Every engine, operation and kind of memory on real GPUs, with the data verified."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.errors import BackendError, MeasurementTimeout, VerificationError
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement, Place, Sample
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer
from wirespeed.options import RunOptions
from wirespeed.tables import THROTTLED
from wirespeed.units import KIB, MIB

SIZES = (1, 7, 8, 15, 16, 17, 4096, 65_537, MIB + 13)
ODD = 70 * MIB + 5  # large enough for the kernels of large buffers
WORDS = (8, 16, 24, MIB, MIB + 8)


def device(name: str) -> Memory:
    return Memory(name, MemoryKind.DEVICE)


def host(machine: Machine, kind: MemoryKind = MemoryKind.PINNED) -> Memory:
    return Memory(f"numa{machine.gpus[0].numa}", kind)


def copy(source: Memory, destination: Memory, executor: str, engine: Engine, size: int) -> Transfer:
    return Transfer(source, destination, Executor(executor), engine, size)


def run(backend: CudaBackend, options: RunOptions, *transfers: Transfer, copies: int = 2) -> Sample:
    measurement = Measurement(transfers, ())
    assert backend.refuses(measurement) is None
    with backend.prepare(measurement, options) as prepared:
        prepared.sample(1)
        prepared.verify()
        sample = prepared.sample(copies)
        prepared.verify()
    assert all(seconds > 0 for seconds in sample.seconds)
    assert sample.wall > 0
    return sample


def usable(machine: Machine, engine: Engine) -> None:
    if engine is Engine.SM_BULK and float(machine.gpus[0].compute_capability) < 9:
        pytest.skip("no bulk copies before compute capability 9.0")


GPU_ENGINES = (Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT)


@pytest.mark.parametrize("size", (*SIZES, ODD))
@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_copies_between_host_and_gpu(
    backend: CudaBackend, machine: Machine, options: RunOptions, engine: Engine, size: int
) -> None:
    usable(machine, engine)
    for ends in ((host(machine), device("gpu0")), (device("gpu0"), host(machine))):
        sample = run(backend, options, copy(*ends, "gpu0", engine, size))
        passes = 4 if engine is Engine.SM_SPLIT else 1  # what counts as one copy
        assert sample.amounts == (2.0 * passes * size,)


@pytest.mark.parametrize("size", (*SIZES, ODD))
@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_copies_within_a_gpu(
    backend: CudaBackend, machine: Machine, options: RunOptions, engine: Engine, size: int
) -> None:
    usable(machine, engine)
    run(backend, options, copy(device("gpu0"), device("gpu0"), "gpu0", engine, size))


@pytest.mark.parametrize("size", (*SIZES, ODD))
@pytest.mark.parametrize("engine", GPU_ENGINES)
@pytest.mark.parametrize("pulls", [True, False])
@pytest.mark.parametrize("virtual", [True, False])
def test_copies_between_gpus(
    backend: CudaBackend,
    machine: Machine,
    options: RunOptions,
    pair: tuple[str, str],
    engine: Engine,
    size: int,
    pulls: bool,
    virtual: bool,
) -> None:
    usable(machine, engine)
    a, b = pair
    run(
        backend,
        replace(options, virtual_memory=virtual),
        copy(device(a), device(b), b if pulls else a, engine, size),
    )


@pytest.mark.parametrize("engine", [Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT])
@pytest.mark.parametrize(("blocks", "threads"), [(1, 64), (3, 32), (7, 0), (16, 0), (0, 64), (1000, 32)])
def test_chosen_grids(
    backend: CudaBackend,
    machine: Machine,
    options: RunOptions,
    engine: Engine,
    blocks: int,
    threads: int,
) -> None:
    usable(machine, engine)
    for size in (5, 1000, 3 * MIB + 1):
        transfer = copy(device("gpu0"), host(machine), "gpu0", engine, size)
        run(backend, options, replace(transfer, executor=Executor("gpu0", blocks=blocks, threads=threads)))


@pytest.mark.parametrize("operation", [o for o in Operation if o is not Operation.COPY and not o.is_latency])
@pytest.mark.parametrize("size", (*WORDS, 70 * MIB + 8))
def test_stream_operations(
    backend: CudaBackend, options: RunOptions, operation: Operation, size: int
) -> None:
    run(
        backend,
        options,
        replace(copy(device("gpu0"), device("gpu0"), "gpu0", Engine.SM, size), operation=operation),
    )


CHASING = pytest.mark.parametrize("engine", [Engine.SM, Engine.SM_BULK])


@CHASING
def test_chase(backend: CudaBackend, machine: Machine, options: RunOptions, engine: Engine) -> None:
    usable(machine, engine)
    for memory in (device("gpu0"), host(machine)):
        transfer = replace(copy(memory, memory, "gpu0", engine, 2 * MIB), operation=Operation.CHASE)
        sample = run(backend, options, transfer, copies=1)
        assert 50e-9 < sample.seconds[0] / sample.amounts[0] < 20e-6


@CHASING
def test_chase_in_a_peer(
    backend: CudaBackend, machine: Machine, options: RunOptions, pair: tuple[str, str], engine: Engine
) -> None:
    usable(machine, engine)
    a, b = pair
    transfer = replace(copy(device(b), device(b), a, engine, 2 * MIB), operation=Operation.CHASE)
    sample = run(backend, options, transfer, copies=1)
    assert 200e-9 < sample.seconds[0] / sample.amounts[0] < 20e-6


def test_flags_between_two_gpus(backend: CudaBackend, options: RunOptions, pair: tuple[str, str]) -> None:
    a, b = pair
    flags = replace(copy(device(a), device(b), a, Engine.SM, 4 * KIB), operation=Operation.SIGNAL)
    for copies in (1, 3):
        sample = run(backend, options, flags, copies=copies)
        assert 500e-9 < sample.seconds[0] / sample.amounts[0] < 100e-6


def test_pageable_memory(backend: CudaBackend, machine: Machine, options: RunOptions) -> None:
    pageable = host(machine, MemoryKind.PAGEABLE)
    for ends in ((pageable, device("gpu0")), (device("gpu0"), pageable)):
        for size in (17, 8 * MIB + 3):
            run(backend, options, copy(*ends, "gpu0", Engine.CE, size))


def test_loads_run_beside(backend: CudaBackend, machine: Machine, options: RunOptions) -> None:
    there = copy(host(machine), device("gpu0"), "gpu0", Engine.CE, 32 * MIB)
    back = replace(copy(device("gpu0"), host(machine), "gpu0", Engine.CE, 64 * MIB), role=Role.LOAD)
    sample = run(backend, options, there, back, copies=4)
    assert sample.seconds[1] > 0.5 * sample.seconds[0]
    assert sample.wall == sample.seconds[0]


def test_a_load_outlasts_what_it_disturbs(
    backend: CudaBackend, machine: Machine, options: RunOptions
) -> None:
    chase = Transfer(
        device("gpu0"), device("gpu0"), Executor("gpu0"), Engine.SM, 2 * MIB, operation=Operation.CHASE
    )
    load = replace(copy(host(machine), device("gpu0"), "gpu0", Engine.CE, MIB), role=Role.LOAD)
    with backend.prepare(Measurement((chase, load), (Place("", 0, 0),)), options) as prepared:
        prepared.sample(1)
        samples = [prepared.sample(2) for _ in range(5)]
        prepared.verify()
    # Another process may have the GPU for a slice of time, within which the chase of one sample waits.
    assert any(sample.seconds[1] > sample.seconds[0] for sample in samples)


def test_both_ways_overlap(backend: CudaBackend, options: RunOptions, pair: tuple[str, str]) -> None:
    a, b = pair
    there = copy(device(a), device(b), a, Engine.CE, 256 * MIB)
    back = copy(device(b), device(a), b, Engine.CE, 256 * MIB)
    alone = run(backend, options, there, copies=4)
    both = run(backend, options, there, back, copies=4)
    assert both.wall < 1.7 * alone.wall  # one after the other would take twice as long
    assert both.wall >= 0.99 * max(both.seconds)


def test_many_small_copies_pass_the_queue(backend: CudaBackend, options: RunOptions) -> None:
    sample = run(backend, options, copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, 4096), copies=3000)
    assert sample.amounts == (3000 * 4096.0,)


def test_all_engines(backend: CudaBackend, options: RunOptions) -> None:
    transfer = copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, 256 * MIB + 5)
    run(backend, replace(options, all_engines=True), transfer)


@pytest.mark.parametrize("waits", [True, False])
def test_both_gates(machine: Machine, options: RunOptions, waits: bool) -> None:
    backend = CudaBackend(machine)
    backend._device("gpu0").has_stream_waits &= waits
    run(backend, options, copy(host(machine), device("gpu0"), "gpu0", Engine.CE, MIB))
    backend.close()


@pytest.mark.parametrize("engine", GPU_ENGINES)
@pytest.mark.parametrize("to_host", [True, False])
def test_one_wrong_bit_is_found(
    backend: CudaBackend, machine: Machine, options: RunOptions, engine: Engine, to_host: bool
) -> None:
    usable(machine, engine)
    from cuda.bindings import driver

    size, at = 8 * MIB + 9, 5 * MIB + 803
    ends = (device("gpu0"), host(machine)) if to_host else (host(machine), device("gpu0"))
    with backend.prepare(Measurement((copy(*ends, "gpu0", engine, size),), ()), options) as prepared:
        for _ in range(2):
            prepared.sample(1)
            destination = prepared.buffers[0].destination
            assert destination is not None
            value = bytearray(1)
            driver.cuMemcpyDtoH(value, destination.address + at, 1)
            value[0] ^= 0x10
            driver.cuMemcpyHtoD(destination.address + at, bytes(value), 1)
            with pytest.raises(VerificationError) as caught:
                prepared.verify()
            assert caught.value.offset == at // 8 * 8
            assert caught.value.wrong == 1
            assert caught.value.words == size // 8 + 1
        prepared.sample(1)
        prepared.verify()


def test_what_is_not_written_is_found(
    backend: CudaBackend, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirespeed.backends.gpu.stream_ops import EngineCopy

    transfer = copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, 128 * MIB)
    with backend.prepare(Measurement((transfer,), ()), options) as prepared:
        prepared.sample(1)
        prepared.verify()
        monkeypatch.setattr(EngineCopy, "put", lambda self, copies: None)  # the warm-up copies 64 MiB
        prepared.sample(1)
        with pytest.raises(VerificationError) as caught:
            prepared.verify()
        assert caught.value.offset == 64 * MIB
        assert caught.value.wrong == 64 * MIB // 8


def test_a_gate_that_is_never_released(backend: CudaBackend, options: RunOptions) -> None:
    transfer = copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, MIB)
    with backend.prepare(Measurement((transfer,), ()), replace(options, timeout=0.3)) as prepared:
        prepared._gate.close_all()
        prepared.arm(1)
        with pytest.raises(MeasurementTimeout, match="gpu0->gpu0"):
            prepared.finish()
        prepared.sample(1)
        prepared.verify()


def test_cancelling_ends_a_sample(backend: CudaBackend, options: RunOptions) -> None:
    transfer = copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, MIB)
    with backend.prepare(Measurement((transfer,), ()), options) as prepared:
        prepared._gate.close_all()
        prepared.arm(1)
        timer = threading.Timer(0.2, backend.cancel)
        timer.start()
        with suppress(BackendError):  # a copy that ends at once is not cancelled; none would time out
            prepared.finish()
        timer.join()


def test_the_pool_gives_way(machine: Machine, options: RunOptions) -> None:
    backend = CudaBackend(machine)
    run(backend, options, copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, MIB))
    free, total = backend._device("gpu0").memory()
    third, half = free // 3 // MIB * MIB, free * 9 // 20 // MIB * MIB
    for size in (third, half):  # together they are more than there is
        run(backend, options, copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, size), copies=1)
    with pytest.raises(BackendError, match=r"not enough memory on gpu0: .*, .* is free"):
        backend.prepare(
            Measurement((copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, total),), ()), options
        )
    run(backend, options, copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, MIB))
    backend.close()


def test_buffers_are_used_again(backend: CudaBackend, options: RunOptions) -> None:
    measurement = Measurement((copy(device("gpu0"), device("gpu0"), "gpu0", Engine.CE, 16 * MIB),), ())
    with backend.prepare(measurement, options) as first:
        before = {b.address for b in (first.buffers[0].sources[0], first.buffers[0].destination) if b}
    with backend.prepare(measurement, options) as second:
        after = {b.address for b in (second.buffers[0].sources[0], second.buffers[0].destination) if b}
    assert before == after


def test_state_and_libraries(backend: CudaBackend, machine: Machine) -> None:
    state = {quantity.name: quantity for quantity in backend.state() if quantity.device == "gpu0"}
    assert state["SM clock"].value > 1e8 and state["SM clock"].unit == "Hz"
    assert state["temperature"].value > 0
    assert isinstance(state[THROTTLED].value, tuple)
    assert {"cuda-bindings", "nvidia-ml-py", "NVIDIA driver"} <= backend.libraries().keys()
    assert backend.libraries()["NVIDIA driver"] == machine.driver
