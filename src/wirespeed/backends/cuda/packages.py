"""Which Python packages the backend needs, by what the driver supports."""

from __future__ import annotations

BINDINGS = "cuda-bindings"
#: The wheels of NVRTC by CUDA version; both may be there, and the bindings load their own.
WHEELS = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
#: What to do where a package is missing.
INSTALL = "pip install 'wirespeed[cuda]', or 'wirespeed[cuda12]' for drivers before 580"
INSTALL_NCCL = "pip install 'wirespeed[nccl]', or 'wirespeed[nccl12]' for drivers before 580"


def extra(cuda: int) -> str:
    """Return the extra for drivers that support CUDA up to a major version; empty where there is none.

    Drivers are backward compatible, so the newest extra is for all newer drivers too.
    """
    if cuda >= max(WHEELS):
        return "cuda"
    return f"cuda{cuda}" if cuda in WHEELS else ""
