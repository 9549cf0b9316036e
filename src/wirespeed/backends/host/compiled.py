"""Functions that numba compiles when their module is imported, kept in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba

from ...caching import cache_folder


def compiled(signature: str, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile at once; from the cache, or into it where it can be written.

    A folder that the user chose for numba (``NUMBA_CACHE_DIR``) is taken.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        chosen = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = chosen or _folder()  # read when a function is decorated
            return numba.njit(signature, cache=True, nogil=True, **settings)(function)
        except (RuntimeError, OSError):  # no folder that can be written; a full disk
            return numba.njit(signature, nogil=True, **settings)(function)
        finally:
            numba.config.CACHE_DIR = chosen

    return compile_


def _folder() -> str:
    """Return a folder that can be written.

    Raises
    ------
    OSError
        If it cannot: numba would go on to a folder within the package, which uninstalling would leave.
    """
    folder = cache_folder() / "numba"
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written")
    return str(folder)
