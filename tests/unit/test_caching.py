"""Compiled code is kept in the user's cache folder: what is beside the package outlives uninstalling it."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import pytest

from wirespeed.backends import native
from wirespeed.backends.host import kernels
from wirespeed.backends.host.compiled import compiled
from wirespeed.caching import cache_folder


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
    for function in (kernels._arrive, native._run, native._timed):
        assert Path(function.stats.cache_path).is_relative_to(cache_folder() / "numba")


def test_no_other_package_is_affected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = numba.config.CACHE_DIR
    assert compiled("int64(int64)")(double)(21) == 42
    assert before == numba.config.CACHE_DIR and list((tmp_path / "wirespeed" / "numba").rglob("*.nbc"))


def test_a_folder_chosen_for_numba_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert compiled("int64(int64)")(double)(21) == 42 and list(tmp_path.rglob("*.nbc"))


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    function = compiled("int64(int64)")(double)
    assert function(21) == 42 and function.stats.cache_path is None
