"""What is discovered is what nvidia-smi says."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from wirespeed.hardware.topology import LinkKind, Machine


def handles() -> dict[str, Any]:
    from wirespeed.backends.cuda import cuda_driver  # needs the CUDA packages, which only GPU machines have

    return cuda_driver.handles()


def smi(fields: str) -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed")
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [[value.strip() for value in line.split(",")] for line in text.splitlines()]


def test_gpus(machine: Machine) -> None:
    rows = smi("name,pci.bus_id,memory.total,compute_cap,driver_version")
    assert len(machine.gpus) == len(rows)
    for gpu, (name, bus_id, memory, capability, driver) in zip(machine.gpus, rows, strict=True):
        assert gpu.model == name
        assert f"{gpu.bus_id}.0" == bus_id.lower()
        assert gpu.memory_bytes == pytest.approx(float(memory) * 2**20, rel=0.01)
        assert gpu.compute_capability == capability
        assert machine.driver == driver
    assert machine.cuda >= 12000


def test_pcie(machine: Machine) -> None:
    rows = smi("pcie.link.gen.max,pcie.link.width.max")
    for gpu, (generation, width) in zip(machine.gpus, rows, strict=True):
        ways = [x for x in machine.links if x.kind is LinkKind.PCIE and gpu.name in (x.source, x.destination)]
        assert [x.origin for x in ways] == [f"PCIe {generation} x{width}"] * 2


def test_cuda_has_the_same_gpus(machine: Machine) -> None:
    found = handles()
    assert list(found) == [gpu.bus_id for gpu in machine.gpus]


def test_multiprocessors_and_peers_are_what_the_driver_says(machine: Machine) -> None:
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    found = handles()
    for gpu in machine.gpus:
        device = found[gpu.bus_id]
        assert gpu.multiprocessors == driver.cuDeviceGetAttribute(attribute, device)[1]
        peers = [
            other.name
            for other in machine.gpus
            if other is not gpu and driver.cuDeviceCanAccessPeer(device, found[other.bus_id])[1]
        ]
        assert list(gpu.peers) == peers


def test_every_gpu_has_a_memory_link(machine: Machine) -> None:
    for gpu in machine.gpus:
        (link,) = [x for x in machine.links if x.source == x.destination == gpu.name]
        assert link.capacity is None or 1e11 < link.capacity < 2e13
