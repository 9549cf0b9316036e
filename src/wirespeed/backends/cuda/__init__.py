"""The CUDA backend: NVIDIA GPUs, through the driver and NVRTC; no toolkit is needed. ``discovery`` describes
the GPUs with NVML; what measures is imported, with the CUDA bindings, only when measuring starts.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system_files import HERE, TreePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...hardware.facts import Fact
    from ...hardware.topology import Machine
    from ..base import Backend
    from ..gpu.gpu_driver import GpuDriver

#: Marks the GPUs that this backend discovered.
NAME = "cuda"


def discover(machine: Machine, root: TreePath = HERE) -> Machine:
    """Add the GPUs that CUDA sees, their links and peers to a Machine."""
    from . import discovery

    return discovery.discover(machine, root)


def glance(machine: Machine, root: TreePath = HERE) -> Machine:
    """Like ``discover``, without initialising CUDA where NVML allows peer access.

    CUDA then rarely denies it.
    """
    from . import discovery

    return discovery.discover(machine, root, exact=False)


def facts(machine: Machine, root: TreePath) -> Iterator[Fact]:
    """Yield which GPUs the driver shows, and the facts of those that this backend discovered."""
    from .discovery import is_present

    own = [gpu for gpu in machine.gpus if gpu.backend == NAME]
    if not own and not is_present(root):
        return
    from ...hardware.facts import Fact, Known
    from . import gpu_facts
    from .nvml import Silence
    from .packages import NVML_MISSING
    from .recorded_nvml import opened

    if find_spec("pynvml") is None and not root.tree.recorded:
        yield Fact(Known.GPUS_OF_DRIVER, reason=NVML_MISSING)
        return
    library: Any = Silence() if root.tree.recorded else import_module("pynvml")
    try:
        nvml = opened(root, library)
    except library.NVMLError as error:
        yield Fact(Known.GPUS_OF_DRIVER, reason=f"NVML reports {error}")
        return
    try:
        yield gpu_facts.shown(nvml)
        if own:
            yield from gpu_facts.facts(own, nvml, root)
    finally:
        nvml.close()


@cache
def warm_up() -> None:
    """Start to initialise the driver in the background; that takes a quarter of a second.

    Errors are reported by the first user of the driver.
    """
    if Path("/proc/driver/nvidia/version").exists() and find_spec("cuda"):
        with suppress(RuntimeError):  # no further thread can be started: then the first user initialises it
            threading.Thread(target=_initialise, name="initialise CUDA", daemon=True).start()


def _initialise() -> None:
    with suppress(ImportError, RuntimeError):
        from cuda.bindings import driver

        driver.cuInit(0)


def open_driver() -> GpuDriver:
    """The CUDA driver.

    Raises:
        BackendError: If the Python package for it is missing.
    """
    try:
        from .cuda_driver import CudaDriver
    except ImportError as error:
        from ...errors import BackendError
        from .packages import INSTALL

        raise BackendError(f"the CUDA driver cannot be used: {error}; {INSTALL}") from error
    return CudaDriver()


def connect(machine: Machine) -> Backend | None:
    """The backend for the GPUs that CUDA discovered; None if there are none or they are simulated."""
    own = tuple(gpu for gpu in machine.gpus if gpu.backend == NAME)
    if machine.simulated or not own:
        return None
    from .cuda_driver import CudaBackend

    return CudaBackend(replace(machine, gpus=own))
