"""Compile functions with numba when their module is imported; cache them in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba

from ...caching import cache_folder


def compiled(signature: str, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function immediately, or load it from the cache; write the cache if possible.

    A folder set by the user (``NUMBA_CACHE_DIR``) is used.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        chosen = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = chosen or _folder()  # read when a function is decorated
            return numba.njit(signature, cache=True, nogil=True, **settings)(function)
        except (RuntimeError, OSError):  # no writable folder, or a full disk
            return numba.njit(signature, nogil=True, **settings)(function)
        finally:
            numba.config.CACHE_DIR = chosen

    return compile_


def _folder() -> str:
    """Return a writable cache folder.

    Raises
    ------
    OSError
        If it is not writable: numba would use a folder in the package, which an uninstall would leave behind.
    """
    folder = cache_folder() / "numba"
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable")
    return str(folder)
