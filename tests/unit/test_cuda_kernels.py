"""Every kernel compiles for every architecture, with no GPU and no driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirespeed.backends.cuda import compiler
from wirespeed.errors import BackendError

pytest.importorskip("cuda.core")

FILES = sorted(path.stem for path in compiler.KERNELS.glob("*.cu"))
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def test_all_files_are_there() -> None:
    assert FILES == ["bulk", "chase", "contents", "copy", "gate", "stream"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", FILES)
def test_kernels_compile(name: str, architecture: str, tmp_path: Path) -> None:
    assert compiler.cubin(compiler.source(name), architecture, tmp_path).startswith(b"\x7fELF")


def test_sources_include_nothing() -> None:
    for path in compiler.KERNELS.iterdir():
        assert "#include" not in path.read_text()


def test_host_and_kernels_agree_on_the_stages() -> None:
    for kernel, stages in (("copy_bulk", 8), ("copy_bulk_fine", 16)):
        body = compiler.source("bulk").split(f"void {kernel}(")[1].split("}")[0]
        assert f"copy_ring<{stages}>" in body


def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiler.cubin(compiler.source("gate"), "sm_90", tmp_path)
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiler.cubin(compiler.source("gate"), "sm_90", tmp_path) == first
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert compiler.cubin(compiler.source("gate"), "sm_90", file / "below")


def test_a_broken_kernel_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"refused a kernel for sm_90: (.|\n)*nonsense"):
        compiler.cubin("nonsense", "sm_90", tmp_path)
