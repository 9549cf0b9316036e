"""Compiled code is kept in the user's cache folder: what is beside the package outlives uninstalling it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from wirespeed.files import cache_folder, refusal
from wirespeed.worlds.admission import secret_of
from wirespeed.worlds.base import WorldError


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "wirespeed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "wirespeed"


def test_folders_are_created_for_this_user_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        folder = cache_folder()
    finally:
        os.umask(before)
    for one in (folder, tmp_path / "a" / "b", tmp_path / "a"):
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
def test_a_folder_that_others_can_write_is_not_used(
    change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if os.geteuid() and change in (_other_user, _group):
        pytest.skip("only root can give files away")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    change(cache_folder())
    with pytest.raises(PermissionError):
        cache_folder()


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
    monkeypatch.setenv("HOME", home or "")
    if home is None:
        monkeypatch.delenv("HOME")
    with pytest.raises(OSError):
        cache_folder()
    assert refusal() == ""
    with pytest.raises(WorldError, match=r"cannot use the key file .* set WIRESPEED_JOB_SECRET"):
        secret_of({})
