"""From CUDA C++ to cubin by NVRTC, kept on disk."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...caching import cache_folder
from ...errors import BackendError
from ...version import __version__
from .nvml import INSTALL

KERNELS = Path(__file__).parent / "kernels"
#: NVRTC's wheel is called so for CUDA 13, and with the suffix for CUDA 12.
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


@cache
def nvrtc_version() -> str:
    """Return the version of the installed NVRTC wheel, empty where there is none."""
    for name in _NVRTC:
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def source(name: str, kernels: Path = KERNELS) -> str:
    """Return the source of the kernels in a file, with what all files share before it."""
    return (kernels / "common.cuh").read_text() + (kernels / f"{name}.cu").read_text()


def cubin(text: str, architecture: str, folder: Path | None = None) -> bytes:
    """Return the machine code of a source for an architecture such as ``sm_90``.

    Parameters
    ----------
    folder
        Where machine code is kept; one that cannot be written is done without.

    Raises
    ------
    BackendError
        If NVRTC cannot be loaded or refuses the source.
    """
    key = "\0".join((text, architecture, nvrtc_version(), __version__))
    path = (folder or cache_folder()) / f"{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    with suppress(OSError):
        return path.read_bytes()
    code = _compile(text, architecture)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may do the same: a file appears whole, under its name, or not at all.
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)
    return code


def _compile(text: str, architecture: str) -> bytes:
    try:
        from cuda.core import Program, ProgramOptions

        program = Program(text, "c++", ProgramOptions(std="c++17", arch=architecture))
        code = program.compile("cubin").code
    except (ImportError, RuntimeError, OSError) as error:  # a package is missing, or does not load
        raise BackendError(f"NVRTC cannot be used: {error}; {INSTALL}") from error
    except Exception as error:
        if type(error).__name__ != "NVRTCError":  # not a public name of cuda.core
            raise
        raise BackendError(f"NVRTC {nvrtc_version()} refused a kernel for {architecture}: {error}") from error
    if not isinstance(code, bytes):
        raise BackendError(f"NVRTC {nvrtc_version()} gave no cubin for {architecture}")
    return code
