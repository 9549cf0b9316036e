"""The C functions: every build of the kernels computes the same, wrong sizes are refused at the seam, and a
library that cannot be used is an error of one line.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from wirespeed import native
from wirespeed.backends import test_data
from wirespeed.backends.host import kernels
from wirespeed.errors import BackendLost
from wirespeed.native import compile as compiling

Array = np.ndarray[tuple[int], np.dtype[np.uint64]]


@pytest.fixture(params=compiling.BUILDS.get(platform.machine(), {"plain": ()}))
def build(request: pytest.FixtureRequest) -> Iterator[str]:
    before = kernels.build()
    if not kernels.choose(request.param.encode()):
        pytest.skip("this CPU has no such instructions")
    yield request.param
    kernels.choose(before.encode())


def lines(count: int) -> Array:
    """A buffer of lines that begins at one, between two lines that must not change."""
    memory = np.full(8 * (count + 3), 0xDEAD, np.uint64)
    first = -memory.ctypes.data // 8 % 8
    return memory[first + 8 : first + 8 * (count + 1)]


def guards(buffer: Array) -> set[int]:
    base = buffer.base
    first = (buffer.ctypes.data - base.ctypes.data) // 8
    return set(base[:first].tolist()) | set(base[first + buffer.size :].tolist())


@pytest.mark.parametrize("streaming", [0, 1])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 131])
def test_operations(build: str, streaming: int, count: int) -> None:
    to, a, b = (lines(count) for _ in range(3))
    for buffer, key in ((a, 11), (b, 12)):
        kernels.fill(buffer.ctypes.data, 0, buffer.size, kernels.DOUBLES, key)
    x, y = a.view(np.float64), b.view(np.float64)
    for code, due in (
        (kernels.COPY, a), (kernels.SCALE, (7 * x).view(np.uint64)), (kernels.ADD, (x + y).view(np.uint64)),
        (kernels.TRIAD, (x + 7 * y).view(np.uint64)), (kernels.WRITE, np.full(a.size, 7, np.uint64)),
    ):  # fmt: skip
        to[:] = 1
        kernels.once(code, streaming, *(v.ctypes.data for v in (to, a, b)), 7, a.nbytes, 0)
        assert np.array_equal(to, due) and guards(to) == {0xDEAD}
    for buffer, key in ((a, 11), (b, 12)):
        kernels.fill(buffer.ctypes.data, 0, buffer.size, kernels.FLOATS, key)
    kernels.once(kernels.SAXPY, streaming, *(v.ctypes.data for v in (to, a, b)), 15, a.nbytes, 0)
    assert np.array_equal(to.view(np.float32), np.float32(15) * a.view(np.float32) + b.view(np.float32))
    total = kernels.once(kernels.READ, 0, 0, a.ctypes.data, 0, 0, a.nbytes, 5)
    assert total % 2**64 == (int(a.sum(dtype=np.uint64)) + 5) % 2**64


@pytest.mark.parametrize("kind", [kernels.WORDS, kernels.DOUBLES, kernels.FLOATS])
def test_patterns_follow_their_definition(build: str, kind: int) -> None:
    key, begin, end, buffer = 2**64 - 3, 3, 79, lines(10)
    kernels.fill(buffer.ctypes.data, begin, end, kind, key)
    word = test_data.words(key, begin, end - begin)
    if kind == kernels.DOUBLES:
        due = (word >> np.uint64(16)).astype(np.float64).view(np.uint64)
    elif kind == kernels.FLOATS:
        halves = [(word >> np.uint64(s) & np.uint64(0xFFFFF)).astype(np.float32) for s in (16, 40)]
        due = np.stack(halves, axis=1).reshape(-1).view(np.uint64)
    else:
        due = word
    assert np.array_equal(buffer[begin:end], due) and set(buffer[:begin]) | set(buffer[end:]) == {0xDEAD}
    arguments = (buffer.ctypes.data, begin, end, kind, test_data.STEP, key, key, 1, 0)
    assert kernels.count_wrong(*arguments) == 0
    buffer[begin] ^= np.uint64(1)
    buffer[end - 1] ^= np.uint64(2**63)
    assert kernels.count_wrong(*arguments) == 2
    assert kernels.total(begin, end, key) % 2**64 == int(word.sum(dtype=np.uint64))


def test_constants_and_combinations_are_compared(build: str) -> None:
    buffer = lines(9)
    buffer[:] = 5
    assert kernels.count_wrong(buffer.ctypes.data, 0, buffer.size, kernels.WORDS, 0, 5, 0, 1, 0) == 0
    first, second = (test_data.words(key, 0, buffer.size) >> np.uint64(16) for key in (2**40, 2**50))
    buffer[:] = (3.0 * first + 2.0 * second).view(np.uint64)
    for b, wrong in ((2, 0), (4, buffer.size)):
        step = test_data.STEP
        found = kernels.count_wrong(
            buffer.ctypes.data, 0, buffer.size, kernels.DOUBLES, step, 2**40, 2**50, 3, b
        )
        assert found == wrong


@pytest.mark.parametrize("how", [kernels.CACHED, kernels.STREAMED, kernels.BY_LIBRARY])
def test_block_lists(build: str, how: int) -> None:
    source, to = lines(8), lines(8)
    source[:] = np.arange(source.size)
    entries = np.array([[128, 0], [0, 384]], np.int64)
    arguments = (kernels.BLOCKS, how, to.ctypes.data, source.ctypes.data, entries.ctypes.data, 128, 2, 9)
    assert kernels.once(*arguments) == 9
    assert to[:16].tolist() == list(range(16, 32)) and to[48:].tolist() == list(range(16))
    assert set(to[16:48]) == guards(to) == {0xDEAD}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((9, 0, 0, 0, 0, 0, 64, 0), "no operation 9"),
        ((-1, 0, 0, 0, 0, 0, 64, 0), "no operation -1"),
        ((kernels.COPY, 3, 0, 0, 0, 0, 64, 0), "stores 3"),
        ((kernels.COPY, 0, 0, 0, 0, 0, 65, 0), "not multiples of 64"),
        ((kernels.COPY, 0, 0, 0, 0, 0, -64, 0), "not multiples of 64"),
        ((kernels.COPY, 0, 8, 0, 0, 0, 64, 0), "not the begin of a line"),
        ((kernels.TRIAD, 0, 0, 0, 32, 0, 64, 0), "not the begin of a line"),
        ((kernels.CHASE, 0, 0, 0, 0, 0, 7, 0), "not multiples of 8"),
        ((kernels.BLOCKS, 0, 0, 0, 8, 100, 1, 0), "not whole lines"),
        ((kernels.BLOCKS, 2, 0, 0, 8, 0, 1, 0), "not whole lines"),
    ],
)
def test_wrong_sizes_are_refused(arguments: tuple[int, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kernels.once(*arguments)


def test_other_wrong_arguments_are_refused() -> None:
    for call in (
        lambda: kernels.fill(4, 0, 1, 0, 0),
        lambda: kernels.fill_blocks(0, 0, 0, 1, 12, 0),
        lambda: kernels.count_wrong(4, 0, 1, 0, 0, 0, 0, 0, 0),
        lambda: kernels.shuffled(4, 4, 0),
        lambda: kernels.cycle(0, 4, 0, 5, 0, True),
        lambda: kernels.work(0, 0, kernels.COPY, 0, 0, 0, 0, 0, 64, 0, 1, 0, 1.0),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
    with pytest.raises(ctypes.ArgumentError):
        native.function("ws_clock", native.I64, native.I64)("not a number")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library that is loaded instead."""
    copy = tmp_path / native.LIBRARY.name
    shutil.copy(native.LIBRARY, copy)
    monkeypatch.setattr(native, "LIBRARY", copy)
    native.library.cache_clear()
    yield copy
    native.library.cache_clear()


def refused() -> str:
    with pytest.raises(BackendLost) as caught:
        native.library()
    text = str(caught.value)
    assert "\n" not in text and text.endswith("pip install -e .)")
    return text


def test_a_missing_library(elsewhere: Path) -> None:
    elsewhere.unlink()
    assert f"is missing ({elsewhere})" in refused()


def test_a_library_of_another_machine(elsewhere: Path) -> None:
    content = bytearray(elsewhere.read_bytes())
    content[18:20] = (183 if platform.machine() == "x86_64" else 62).to_bytes(2, "little")
    elsewhere.write_bytes(content)
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    assert f"is for {other}, not for {platform.machine()}" in refused()


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF\2\1"])
def test_a_damaged_library(content: bytes, elsewhere: Path) -> None:
    elsewhere.write_bytes(content)
    assert "cannot be loaded" in refused()


def test_a_library_of_other_sources(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "abi", lambda: compiling.abi() + 1)
    assert "compiled from other sources" in refused()


def test_a_command_without_the_library_ends_with_one_line(tmp_path: Path) -> None:
    package = tmp_path / "wirespeed"
    source = Path(native.__file__).parents[1]
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("*.so.1", "__pycache__", "docs"))
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", "run", "-t", "numa_to_numa_memcpy_read_cpu", "--no-save"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert "the library of C functions is missing" in done.stderr


needs_compiler = pytest.mark.skipif(not compiling.local_compiler(), reason="no C compiler")


@needs_compiler
def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    compiling.compile_library(tmp_path / "strict.so", flags=["-Werror"])
    loaded = ctypes.CDLL(str(tmp_path / "strict.so"))
    assert loaded.ws_abi() & 0xFFFFFFFF == compiling.abi()
    assert [path.name for path in tmp_path.iterdir()] == ["strict.so"]


@needs_compiler
def test_an_error_of_the_compiler_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        compiling.CompileError, match=r"cc failed \(status 1\): .*error: .*; install"
    ) as caught:
        compiling.compile_library(tmp_path / "x.so", flags=["-std=none"])
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiling.local_compiler() == ()
    with pytest.raises(compiling.CompileError, match="no C compiler was found: install a C compiler"):
        compiling.compile_library(tmp_path / "x.so")
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")  # one that cannot make a program
    (tmp_path / "cc").chmod(0o755)
    assert compiling.local_compiler() == ()


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
def test_builds_have_their_instructions(tmp_path: Path) -> None:
    if not shutil.which("objdump"):
        pytest.skip("no objdump")
    compiling.compile_library(tmp_path / "x.so")
    text = subprocess.check_output(["objdump", "-d", "--no-show-raw-insn", tmp_path / "x.so"], text=True)
    for stored in (r"movntdq +%xmm", r"vmovntdq +%ymm", r"vmovntdq +%zmm"):
        assert re.search(stored, text), stored
