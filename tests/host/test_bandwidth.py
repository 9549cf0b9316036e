"""The functions for people at a prompt, on the memory of this machine."""

from __future__ import annotations

import pytest

import wirespeed

FEW = {"samples": 2, "copies": 2}


@pytest.fixture(scope="module")
def node() -> str:
    machine = wirespeed.machine()
    return next(n.name for n in machine.numa if n.cpus and n.memory_bytes)


def test_memory(node):
    result = wirespeed.memory_bandwidth("1MiB", device=node, **FEW)
    assert not result.simulated and len(result.samples) == 2
    assert result.bytes == 2**20 and 1e5 < result.value < 1e13
    assert str(result).startswith("Memory Bandwidth (GB/s):\n └ max: ")
    assert repr(result).startswith("<Memory Bandwidth, ") and "\n" not in repr(result)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 2**18), ("float64", 2**17)])
def test_saxpy(node, dtype, size):
    result = wirespeed.memory_bandwidth_saxpy(size, dtype, device=node, **FEW)
    assert result.bytes == 2**20 and 1e5 < result.value < 1e13


def test_sizes_are_whole_lines(node):
    scaling = wirespeed.memory_bandwidth_scaling([1, 64, 100, 4096], device=node, **FEW)
    assert scaling.sizes == (64, 64, 128, 4096)
    lengths = wirespeed.memory_bandwidth_saxpy_scaling([16, 1024], device=node, **FEW)
    assert lengths.sizes == (16, 1024)


def test_what_host_memory_has_not(node):
    with pytest.raises(wirespeed.UsageError, match="are unknown"):
        wirespeed.theoretical_memory_bandwidth(node)
    with pytest.raises(wirespeed.UsageError, match="requires a GPU"):
        wirespeed.host2device_bandwidth(device=node)
