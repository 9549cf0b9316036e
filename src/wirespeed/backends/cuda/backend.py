"""The backend that measures NVIDIA GPUs."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ..gpu.backend import GpuBackend
from .nvml import Nvml
from .packages import BINDINGS, BLAS_WHEELS, INSTALL, WHEELS, extra

_PACKAGES = (BINDINGS, *WHEELS.values(), *BLAS_WHEELS.values(), "nvidia-ml-py")


class CudaBackend(GpuBackend):
    """Backend for transfers of GPUs by CUDA."""

    name = "cuda"
    title = "CUDA"

    def without_blas(self) -> str:
        from .vmm import missing

        return missing()

    def open_monitor(self) -> Nvml | None:
        """NVML; None without it: discovery has reported the reason."""
        if find_spec("pynvml"):
            import pynvml

            with suppress(pynvml.NVMLError):
                return Nvml(pynvml)
        return None

    def libraries(self) -> dict[str, str]:
        versions = {"NVIDIA driver": self._machine.driver} if self._machine.driver else {}
        for package in _PACKAGES:
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        return versions

    def unusable(self) -> str:
        machine = self._machine
        supported = machine.cuda // 1000
        fitting = extra(supported)
        install = f"pip install 'wirespeed[{fitting}]'"
        try:
            needed = int(version(BINDINGS).split(".")[0])
        except PackageNotFoundError:
            return f"the Python package {BINDINGS} is missing: {install if fitting else INSTALL}"
        if not machine.cuda or supported >= needed:
            return ""
        return (
            f"the driver {machine.driver} supports CUDA {supported}.{machine.cuda % 1000 // 10}, but "
            f"{BINDINGS} requires {needed}.0: update the driver{f', or {install}' if fitting else ''}"
        )
