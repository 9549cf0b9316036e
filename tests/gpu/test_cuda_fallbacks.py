"""What stands in where a driver or a GPU refuses the usual way, on a GPU that does not refuse."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.errors import BackendError
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import MIB
from wirespeed.worlds.descriptors import SharedMemory


def test_streams_of_a_gpu_in_a_server_wait_by_themselves(backend: CudaBackend) -> None:
    assert backend._device("gpu0").has_stream_waits


@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_tells_the_host_that_the_gate_is_open(
    backend: CudaBackend, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirespeed.backends.gpu.device import TimedStream
    from wirespeed.backends.gpu.gate import Gate

    device = backend._device("gpu0")
    monkeypatch.setattr(device, "has_stream_waits", waits)
    page = SharedMemory.create(4096)
    word = ctypes.c_uint32.from_address(page.address + 64)
    gate, lane = Gate(device, 10.0, page), TimedStream(device)
    for value in (5, 6):
        gate.close_all()
        gate.hold(device, lane.stream)
        gate.write(device, lane.stream, 64, value)
        assert not lane.is_idle and word.value != value
        gate.open(gate.serial - 1)
        assert not lane.is_idle
        gate.release()
        device.driver.synchronize(lane.stream)
        assert word.value == value
    lane.destroy()
    gate.free()


def test_peer_access_is_disabled_and_enabled_again(
    backend: CudaBackend, pair: tuple[str, str], options: RunOptions
) -> None:
    a, b = (Memory(name, MemoryKind.DEVICE) for name in pair)
    transfer = Transfer(a, b, Executor(a.device), Engine.SM, MIB)
    for _ in range(2):
        with backend.prepare(Measurement((transfer,), ()), options) as prepared:
            prepared.sample(2)
            prepared.verify()
        assert backend._peers is not None
        backend._peers._give_way()
        assert not backend._peers._uses


def test_ptx_of_an_architecture_before_this_one(
    machine: Machine, options: RunOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from wirespeed.backends.cuda import compiler

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler, "_target", lambda *_: "compute_75")
    backend = CudaBackend(machine)
    gpu = Memory("gpu0", MemoryKind.DEVICE)
    transfer = Transfer(gpu, gpu, Executor("gpu0"), Engine.SM, MIB)
    try:
        with backend.prepare(Measurement((transfer,), ()), options) as prepared:
            prepared.sample(2)
            prepared.verify()
    except BackendError as error:  # NVRTC is newer than the driver
        assert re.search("UNSUPPORTED_PTX_VERSION.*install a newer NVRTC", str(error))
    assert b".target sm_75" in next(tmp_path.rglob("*.code")).read_bytes()
    backend.close()


def test_without_nvml_the_gpus_are_the_same(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirespeed.backends.cuda import discovery

    monkeypatch.setattr(discovery, "find_spec", lambda name: None if name == "pynvml" else object())
    found = discovery.discover(replace(machine, gpus=(), links=(), notes=()))
    # NVML counts the memory that the driver keeps, CUDA does not.
    same = [replace(gpu, backend="cuda", memory_bytes=0) for gpu in found.gpus]
    assert same == [replace(gpu, memory_bytes=0) for gpu in machine.gpus]
    assert found.driver == machine.driver and found.cuda == machine.cuda
