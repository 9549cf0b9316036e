"""From CUDA C++ to machine code by NVRTC, kept on disk."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...caching import cache_folder
from ...errors import BackendError
from ...version import __version__
from .packages import BINDINGS, INSTALL, WHEELS, extra

KERNELS = Path(__file__).parent / "kernels"
#: How files of machine code begin; PTX is text.
ELF = b"\x7fELF"


@cache
def nvrtc_version() -> str:
    """Return the version of the NVRTC wheel that the installed bindings use, empty where there is none."""
    with suppress(PackageNotFoundError):
        major = int(version(BINDINGS).partition(".")[0])
        return version(WHEELS.get(major, WHEELS[max(WHEELS)]))
    return ""


def source(name: str, kernels: Path = KERNELS) -> str:
    """Return the source of the kernels in a file, with what all files share before it."""
    return (kernels / "common.cuh").read_text() + (kernels / f"{name}.cu").read_text()


def compiled(text: str, architecture: str, folder: Path | None = None) -> bytes:
    """Return what the driver loads for an architecture such as ``sm_90``.

    That is a cubin; PTX for the newest architecture before it where NVRTC does not know it.

    Parameters
    ----------
    folder
        Where machine code is kept; one that cannot be written is done without.

    Raises
    ------
    BackendError
        If NVRTC cannot be loaded, refuses the source, or does not compile for the architecture.
    """
    key = "\0".join((text, architecture, nvrtc_version(), __version__))
    path = (folder or cache_folder()) / f"{hashlib.sha256(key.encode()).hexdigest()}.code"
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
        from cuda.bindings import nvrtc

        _, *known = nvrtc.nvrtcGetSupportedArchs()
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"", 0, None, None)
    except (ImportError, RuntimeError) as error:  # a package is missing, or does not load
        raise BackendError(f"NVRTC cannot be used: {error}; {INSTALL}") from error
    target = _target(architecture, known[0])
    try:
        options = [f"--gpu-architecture={target}".encode(), b"--std=c++17"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _fetched(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise BackendError(
                f"NVRTC {nvrtc_version()} refused a kernel for {target}: {status.name}\n"
                + log.rstrip(b"\0").decode(errors="replace")
            )
        if target == architecture:
            return _fetched(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        return _fetched(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _target(architecture: str, known: Sequence[int]) -> str:
    """Return what to compile for: the architecture, or the newest before it, of which the driver makes code.

    Raises
    ------
    BackendError
        If NVRTC compiles for newer ones only.
    """
    number = int(architecture.removeprefix("sm_"))
    if number in known:
        return architecture
    older = [each for each in known if each < number]
    if not older:
        raise BackendError(
            f"NVRTC {nvrtc_version()} does not compile for {architecture}: that needs CUDA 12, "
            f"pip install 'wirespeed[{extra(12)}]'"
        )
    return f"compute_{max(older)}"


def _fetched(program: Any, size_of: Callable[..., Any], fetch: Callable[..., Any]) -> bytes:
    """Return bytes that NVRTC has made."""
    data = bytes(size_of(program)[1])
    fetch(program, data)
    return data
