"""The CUDA backend: NVIDIA GPUs, through the driver and NVRTC; no toolkit is needed.

``discovery`` describes the GPUs with NVML; ``backend`` measures and is imported, with the CUDA
bindings, only where measuring starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...topology import Machine

if TYPE_CHECKING:
    from ..base import Backend


def discover(machine: Machine) -> Machine:
    """Add the GPUs that CUDA sees here, their links and peers to a Machine."""
    from . import discovery

    return discovery.discover(machine)


def connect(machine: Machine) -> Backend | None:
    """Return the backend for the GPUs of this machine, None where it is simulated or has none."""
    if machine.simulated or not machine.gpus:
        return None
    from .backend import CudaBackend

    return CudaBackend(machine)
