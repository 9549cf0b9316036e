"""Every kernel compiles for every architecture, with no GPU and no driver: by CUDA 12, and by CUDA 13."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import with_long
from wirespeed.backends.cuda import compiler
from wirespeed.backends.test_data import STEP
from wirespeed.errors import BackendError

driver = pytest.importorskip("cuda.bindings.driver")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

MAJOR = nvrtc.nvrtcVersion()[1]
FILES = sorted(path.stem for path in compiler.KERNELS.glob("*.cu"))
SOURCES = {name: compiler.cuda_source(name) for name in FILES}
SOURCES["collectives"] = (Path(wirespeed.__file__).parent / "backends/nccl/kernels/contents.cu").read_text()
#: CUDA 13 begins with Turing. CUDA 12 is for older GPUs, and for newer ones with older drivers.
ARCHITECTURES = [f"sm_{n}" for n in ((75, 80, 90, 100, 120) if MAJOR >= 13 else (70, 80, 90, 120))]
#: Those that CI compiles by CUDA 12 each day.
BY_12 = ["sm_80", "sm_120"]
#: What the sources do not distinguish from one of these: the smallest of them must do.
SIMILAR = [f"sm_{n}" for n in ((86, 87, 89, 103, 121) if MAJOR >= 13 else (72,))]


def test_all_files_are_there() -> None:
    assert FILES == ["blocks", "bulk", "chase", "contents", "copy", "gate", "peer", "stream"]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(
    "architecture", with_long(ARCHITECTURES, *(["sm_80", "sm_120"] if MAJOR >= 13 else []))
)
def test_kernels_compile(name: str, architecture: str, tmp_path: Path) -> None:
    assert compiler.compiled(SOURCES[name], architecture, tmp_path).startswith(compiler.ELF)


@pytest.mark.parametrize("architecture", SIMILAR)
def test_a_kernel_compiles_for_similar_architectures(architecture: str, tmp_path: Path) -> None:
    assert compiler.compiled(SOURCES["gate"], architecture, tmp_path).startswith(compiler.ELF)


@pytest.mark.parametrize("name", SOURCES)
def test_a_newer_architecture_has_ptx_of_the_newest_that_is_known(name: str, tmp_path: Path) -> None:
    newest = max(nvrtc.nvrtcGetSupportedArchs()[1:][0])
    code = compiler.compiled(SOURCES[name], "sm_999", tmp_path)
    assert f".target sm_{newest}\n".encode() in code
    assert code.endswith(b"\0")  # the driver reads up to there


def test_an_architecture_that_is_known_no_more_needs_the_extra_for_cuda_12(tmp_path: Path) -> None:
    old = "sm_70" if MAJOR >= 13 else "sm_35"
    with pytest.raises(BackendError, match=rf"does not support {old}; .*'wirespeed\[cuda12\]'"):
        compiler.compiled(compiler.cuda_source("gate"), old, tmp_path)


def test_the_version_is_that_of_the_library() -> None:
    _, major, minor = nvrtc.nvrtcVersion()
    assert compiler.nvrtc_version().startswith(f"{major}.{minor}.")


def test_these_bindings_have_every_name_of_the_driver_that_is_used() -> None:
    folders = [Path(wirespeed.__file__).parent / name for name in ("backends/cuda", "backends/nccl")]
    text = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    names = set(re.findall(r"driver\.((?:cu|CU)\w+)", text))
    assert len(names) > 50
    assert sorted(name for name in names if not hasattr(driver, name)) == []
    attributes = set(re.findall(r"CU_DEVICE_ATTRIBUTE_\w*[A-Z0-9]\b", text))
    assert sorted(name for name in attributes if not hasattr(driver.CUdevice_attribute, name)) == []


def test_sources_include_nothing() -> None:
    for path in compiler.KERNELS.iterdir():
        assert "#include" not in path.read_text()


def test_sources_distinguish_no_other_architectures() -> None:
    """Others are `SIMILAR` to one that compiles every source."""
    lines = [line for text in SOURCES.values() for line in text.splitlines() if "__CUDA_ARCH" in line]
    assert lines and set(lines) == {"#if __CUDA_ARCH__ >= 900"}


def test_host_and_kernels_agree_on_the_stages() -> None:
    for kernel, stages in (("copy_bulk", 8), ("copy_bulk_fine", 16)):
        body = compiler.cuda_source("bulk").split(f"void {kernel}(")[1].split("}")[0]
        assert f"copy_ring<{stages}>" in body


def test_host_and_kernels_agree_on_the_patterns() -> None:
    for name in ("contents", "blocks", "collectives"):
        assert f"index * 0x{STEP:X}ull" in SOURCES[name]


def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiler.compiled(compiler.cuda_source("gate"), "sm_90", tmp_path)
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiler.compiled(compiler.cuda_source("gate"), "sm_90", tmp_path) == first
    assert [path.suffix for path in tmp_path.iterdir()] == [".code"]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert compiler.compiled(compiler.cuda_source("gate"), "sm_90", file / "below")


def test_a_broken_kernel_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"rejected a kernel for sm_90: (.|\n)*nonsense"):
        compiler.compiled("nonsense", "sm_90", tmp_path)
