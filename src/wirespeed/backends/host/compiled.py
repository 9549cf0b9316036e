"""Compile functions with numba when their module is imported; cache them in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...caching import cache_folder, private_folder
from .numba_library import numba


def compiled(signature: str, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function immediately, or load it from the cache; write the cache if possible.

    A folder set by the user (``NUMBA_CACHE_DIR``) is used, but none that other settings of numba name:
    loading the cache executes what is in it.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        chosen = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = _folder()  # read when a function is decorated
            return numba.njit(signature, cache=True, nogil=True, **settings)(function)
        except (RuntimeError, OSError):  # no writable folder, or a full disk
            return numba.njit(signature, nogil=True, **settings)(function)
        finally:
            numba.config.CACHE_DIR = chosen

    return compile_


def _folder() -> str:
    """A writable cache folder.

    Raises:
        OSError: If others can write it, or this user cannot: numba would use a folder in the package, which
            an uninstall would leave behind.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folder = private_folder(Path(chosen)) if chosen else cache_folder("numba")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable")
    return str(folder)
