"""Compilation of CUDA C++ to machine code by NVRTC, with a cache on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...errors import BackendError
from ...files import cache_folder, new_file, private_folder
from ...version import __version__
from ..gpu.gpu_driver import Headers
from .packages import BINDINGS, INSTALL, WHEELS, extra

KERNELS = Path(__file__).parent / "kernels"
#: First bytes of machine code files; PTX is text.
ELF = b"\x7fELF"


@cache
def nvrtc_version() -> str:
    """The version of the NVRTC wheel that the installed bindings use; empty if there is none."""
    with suppress(PackageNotFoundError):
        major = int(version(BINDINGS).partition(".")[0])
        return version(WHEELS.get(major, WHEELS[max(WHEELS)]))
    return ""


def cuda_source(name: str, kernels: Path = KERNELS) -> str:
    """The source of the kernels in a file, after the common source of all files."""
    return (kernels / "common.cuh").read_text() + (kernels / f"{name}.cu").read_text()


def compiled(
    text: str, architecture: str, folder: Path | None = None, headers: Headers | None = None
) -> bytes:
    """Code that the driver loads for an architecture such as ``sm_90``.

    A cubin, or PTX for the newest earlier architecture if NVRTC does not know this one.

    Args:
        folder: Folder of cached machine code; not used if it cannot be written.
        headers: Headers that the source includes.

    Raises:
        BackendError: If NVRTC cannot be loaded, rejects the source, or does not support the architecture.
    """
    included = headers.version if headers else ""
    key = "\0".join((text, architecture, nvrtc_version(), __version__, included))
    name = f"{hashlib.sha256(key.encode()).hexdigest()}.code"
    with suppress(OSError):
        return (_cached(folder) / name).read_bytes()
    code = _compile(text, architecture, headers)
    with suppress(OSError), new_file(code, _cached(folder)) as new:  # another process may write the same
        new.replace(new.with_name(name))
    return code


def _cached(folder: Path | None) -> Path:
    """The folder of cached code, which only this user can write; an OSError if there is none."""
    return private_folder(folder) if folder else cache_folder()


def _compile(text: str, architecture: str, headers: Headers | None) -> bytes:
    empty = [name.encode() for name in headers.empty] if headers else []
    try:
        from cuda.bindings import nvrtc

        _, *known = nvrtc.nvrtcGetSupportedArchs()
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"", len(empty), [b""] * len(empty), empty)
    except (ImportError, RuntimeError) as error:  # a package is missing or cannot be loaded
        raise BackendError(f"NVRTC cannot be used: {error}; {INSTALL}") from error
    target = _target(architecture, known[0])
    try:
        options = [f"--gpu-architecture={target}".encode(), b"--std=c++17"]
        if headers:
            options += [b"--device-as-default-execution-space", f"--include-path={headers.folder}".encode()]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _fetched(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise BackendError(
                f"NVRTC {nvrtc_version()} rejected a kernel for {target}: {status.name}\n"
                + log.rstrip(b"\0").decode(errors="replace")
            )
        if target == architecture:
            return _fetched(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        return _fetched(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _target(architecture: str, known: Sequence[int]) -> str:
    """The compilation target: the architecture, or the newest earlier one as PTX.

    Raises:
        BackendError: If NVRTC supports only newer ones.
    """
    number = int(architecture.removeprefix("sm_"))
    if number in known:
        return architecture
    older = [earlier for earlier in known if earlier < number]
    if not older:
        raise BackendError(
            f"NVRTC {nvrtc_version()} does not support {architecture}; use CUDA 12: "
            f"pip install 'wirespeed[{extra(12)}]'"
        )
    return f"compute_{max(older)}"


def _fetched(program: Any, size_of: Callable[..., Any], fetch: Callable[..., Any]) -> bytes:
    """Bytes that NVRTC has generated."""
    data = bytes(size_of(program)[1])
    fetch(program, data)
    return data
