"""What the GPU tests share: the machine as it is discovered, and an open backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wirespeed.backends import discover
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.hardware.topology import Machine
from wirespeed.options import RunOptions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a GPU."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def machine() -> Machine:
    found = discover()
    if not found.gpus:
        pytest.skip("no GPU")
    return found


@pytest.fixture(scope="session")
def backend(machine: Machine) -> Iterator[CudaBackend]:
    backend = CudaBackend(machine)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def pair(machine: Machine) -> tuple[str, str]:
    """Two GPUs that are peers."""
    for gpu in machine.gpus:
        if gpu.peers:
            return gpu.name, gpu.peers[0]
    pytest.skip("no two GPUs that are peers")


@pytest.fixture
def options() -> RunOptions:
    return RunOptions(seed=7, timeout=20)
