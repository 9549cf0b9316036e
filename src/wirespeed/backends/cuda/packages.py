"""The names of the Python packages that the CUDA backend needs, by the CUDA version of the driver."""

from __future__ import annotations

BINDINGS = "cuda-bindings"
#: NVRTC wheels by CUDA version; both may be installed, and the bindings load their own.
WHEELS = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
#: Wheels of cuBLAS, for `memory_bandwidth_saxpy(cublas=True)`.
BLAS_WHEELS = {12: "nvidia-cublas-cu12", 13: "nvidia-cublas"}
#: Instruction if a package is missing.
INSTALL = "pip install 'wirespeed[cuda]', or 'wirespeed[cuda12]' for drivers before 580"
INSTALL_BLAS = "pip install 'wirespeed[cublas]', or 'wirespeed[cublas12]' for drivers before 580"
NVML_MISSING = f"the Python package nvidia-ml-py is missing: {INSTALL}"


def extra(cuda: int) -> str:
    """The extra for drivers that support CUDA up to a major version; empty if there is none.

    Drivers are backward compatible, so the newest extra also serves all newer drivers.
    """
    if cuda >= max(WHEELS):
        return "cuda"
    return f"cuda{cuda}" if cuda in WHEELS else ""
