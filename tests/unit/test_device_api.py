"""The headers of the kernels over NCCL's device API, and the kernels as NVRTC compiles them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from wirespeed.backends.cuda import compiler
from wirespeed.backends.nccl import calls as device_api
from wirespeed.backends.provider import Refused
from wirespeed.collectives.data_types import TYPES
from wirespeed.collectives.options import MAX_CTAS

LOADED = "7f0-7f1 r-xp 0 00:2f 1   {}\n7f1-7f2 rw-p 0 00:00 0\n"


def installed(folder: Path, version: int) -> Path:
    """Headers of a version; return the file that names the loaded library."""
    (folder / "include/nccl_device").mkdir(parents=True)
    (folder / "include/nccl_device/core.h").touch()
    (folder / "include/nccl.h").write_text(f"#define NCCL_MAJOR 2\n#define NCCL_VERSION_CODE {version}\n")
    maps = folder / "maps"
    maps.write_text(LOADED.format(folder / "lib/libnccl.so.2"))
    return maps


@pytest.mark.parametrize("library", ["lib/libnccl.so.2", "lib/x86_64-linux-gnu/libnccl.so.2.28.9"])
def test_headers_are_those_of_the_loaded_library(tmp_path: Path, library: str) -> None:
    folder = tmp_path / "with a space"
    maps = installed(folder, 22809)
    maps.write_text(LOADED.format(folder / library))
    found = device_api.headers(22809, maps)
    assert (found.folder, found.version) == (folder / "include", "22809")


def test_headers_of_another_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Refused, match=r"^-D requires the headers of NCCL 23003, which is loaded; .* has others$"
    ):
        device_api.headers(23003, installed(tmp_path, 22809))


def test_missing_headers_are_refused(tmp_path: Path) -> None:
    maps = installed(tmp_path, 22809)
    (tmp_path / "include/nccl_device/core.h").unlink()
    with pytest.raises(Refused, match=r"there is no nccl_device in .*include or .*: install NCCL's wheel"):
        device_api.headers(22809, maps)


def test_host_and_kernels_agree() -> None:
    text = device_api.source("float")
    for name, value in (
        ("THREADS", device_api._THREADS_PER_BLOCK), ("MOST_BLOCKS", MAX_CTAS),
    ):  # fmt: skip
        assert re.search(rf"\b{name} = {value}\b", text)
    assert {type.name for type in TYPES} == set(device_api._ELEMENTS) | set(device_api._MOVED)


@pytest.mark.parametrize(
    ("element", "architecture"), [("float", "sm_90"), ("Half", "sm_80"), ("uint8_t", "sm_100")]
)
def test_kernels_compile(element: str, architecture: str, tmp_path: Path) -> None:
    folder = next(
        (Path(root) / "include" for root in _nccl() if (Path(root) / "include/nccl_device").is_dir()), None
    )
    if folder is None:
        pytest.skip("NCCL's headers are not installed")
    headers = compiler.Headers(folder, "0", device_api._ABSENT)
    code = compiler.compiled(device_api.source(element), architecture, tmp_path, headers)
    assert code.startswith(compiler.ELF)
    for name in (
        "all_reduce_1",
        "all_reduce_2",
        "alltoall_1",
        "alltoall_2",
        "requirements",
        "communicator_bytes",
    ):
        assert name.encode() in code


def _nccl() -> list[str]:
    found = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    return list(found.submodule_search_locations or ()) if found else []
