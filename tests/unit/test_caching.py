"""Compiled code is kept in the user's cache folder: what is beside the package outlives uninstalling it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import pytest

from wirespeed.backends.host import kernels
from wirespeed.backends.host.compiled import compiled
from wirespeed.files import cache_folder, refusal
from wirespeed.worlds.admission import secret_of
from wirespeed.worlds.base import WorldError


def double(number: int) -> int:
    return 2 * number


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "wirespeed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "wirespeed"


@pytest.mark.skipif("NUMBA_CACHE_DIR" in os.environ, reason="another folder was chosen")
def test_kernels_are_kept_there() -> None:
    assert Path(kernels.arrive.stats.cache_path).is_relative_to(cache_folder() / "numba")


def test_no_other_package_is_affected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = numba.config.CACHE_DIR
    assert compiled("int64(int64)")(double)(21) == 42
    assert before == numba.config.CACHE_DIR and list((tmp_path / "wirespeed" / "numba").rglob("*.nbc"))


def test_a_folder_chosen_for_numba_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compiled("int64(int64)")(double)(21) == 42 and list(tmp_path.rglob("*.nbc"))


def test_a_folder_that_a_file_in_the_current_folder_names_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numba takes its settings from ``.numba_config.yaml``, whoever put it there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "planted"))
    assert compiled("int64(int64)")(double)(21) == 42
    assert list((tmp_path / "own").rglob("*.nbc")) and not (tmp_path / "planted").exists()


@pytest.mark.parametrize("text", ["debug: 1\ndump_bytecode: 1\ndisable_jit: 1", "{"])
def test_the_settings_of_a_folder_for_numba_are_not_obeyed(text: str, tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text(text)
    code = (
        "from wirespeed.backends.host.compiled import compiled\n"
        "double = compiled('int64(int64)')(lambda x: 2 * x)\n"
        "print(double(21), len(double.signatures))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("42 1\n", "")


def test_folders_are_created_for_this_user_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        folder = cache_folder("numba")
    finally:
        os.umask(before)
    for one in (folder, folder.parent, tmp_path / "a" / "b", tmp_path / "a"):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def _mode(folder: Path) -> None:
    folder.chmod(0o777)


def _group(folder: Path) -> None:
    folder.chmod(0o770)
    os.chown(folder, -1, 12345)


def _other_user(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


def _above(folder: Path) -> None:
    folder.parent.chmod(0o777)


@pytest.mark.parametrize("change", [_mode, _group, _other_user, _above])
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_what_others_can_write_is_not_executed(
    variable: str, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if os.geteuid() and change in (_other_user, _group):
        pytest.skip("only root can give files away")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "x"))
    function = compiled("int64(int64)")(double)
    assert function(21) == 42 and list(tmp_path.rglob("*.nbc"))
    for planted in tmp_path.rglob("*.nb[ci]"):
        planted.write_bytes(b"cos\nsystem\n(S'exit'\ntR.")  # would not be a function
    change(tmp_path / "x" / "wirespeed" / "numba" if variable == "XDG_CACHE_HOME" else tmp_path / "x")
    function = compiled("int64(int64)")(double)
    assert function(21) == 42 and function.stats.cache_path is None


def test_why_nothing_is_kept_is_in_the_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert refusal() == ""
    (tmp_path / "wirespeed").chmod(0o777)
    assert refusal() == (
        f"compiled code is not kept in {tmp_path}/wirespeed: other users can write it; remove it"
    )


@pytest.mark.parametrize("home", [None, "", ".", "/proc/nonexistent", "/proc/self/mem/x"])
def test_homes_that_cannot_be_used(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", home or "")
    if home is None:
        monkeypatch.delenv("HOME")
    with pytest.raises(OSError):
        cache_folder()
    assert refusal() == ""
    function = compiled("int64(int64)")(double)
    assert function(21) == 42 and function.stats.cache_path is None
    with pytest.raises(WorldError, match=r"cannot use the key file .* set WIRESPEED_JOB_SECRET"):
        secret_of({})


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    function = compiled("int64(int64)")(double)
    assert function(21) == 42 and function.stats.cache_path is None
