"""The functions for people at a prompt, on the first GPU and the first pair."""

from __future__ import annotations

import pytest

import wirespeed

FEW = {"samples": 3, "copies": 2}


@pytest.fixture(scope="module")
def gpu(machine: wirespeed.Machine) -> str:
    return machine.gpus[0].name


def test_memory_is_below_what_its_clock_allows(gpu):
    allowed = wirespeed.theoretical_memory_bandwidth(gpu)
    for result in (
        wirespeed.memory_bandwidth(device=gpu, **FEW),
        wirespeed.memory_bandwidth_saxpy(64 * 2**20, device=gpu, **FEW),
        wirespeed.memory_bandwidth_saxpy(64 * 2**20, "float64", device=gpu, **FEW),
    ):
        assert 0.4 * allowed.value < result.value < 1.05 * allowed.value
        assert not result.simulated


def test_scalings(gpu):
    scaling = wirespeed.memory_bandwidth_scaling([1, 4096, 2**28], device=gpu, **FEW)
    assert scaling.sizes == (1, 4096, 2**28) and scaling.samples[0] < scaling.samples[2]
    assert len(wirespeed.memory_bandwidth_saxpy_scaling([2**20, 2**24], device=gpu, **FEW)) == 2


def test_host_to_device(gpu):
    result = wirespeed.host2device_bandwidth("64MiB", device=gpu, **FEW)
    assert all(bandwidth.value > 1e8 for bandwidth in result)
    assert result["pinned", 0].value > 0.8 * result["pageable", 0].value


def test_pairs(pair):
    one = wirespeed.p2p_bandwidth(*pair, **FEW)
    both = wirespeed.p2p_bandwidth_bidirectional(*pair, **FEW)
    assert both.value > one.value > 1e8
    matrix = wirespeed.p2p_bandwidth_all(devices=pair, **FEW)
    assert matrix[0, 0] is None and matrix[0, 1].value == pytest.approx(one.value, rel=0.3)
    assert wirespeed.p2p_bandwidth_bidirectional_all(devices=pair, engine="sm", **FEW)[1, 0] is not None
