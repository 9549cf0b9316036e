"""numba, and functions compiled when their module is imported, with a cache in the user's cache folder. numba
is imported without the settings of the current folder: it obeys a file ``.numba_config.yaml`` there, whoever
wrote it, also when it compiles, and the file can redirect caches, whose content is executed. The variables
``NUMBA_...`` still count. A program that imported numba before keeps its settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...files import cache_folder, private_folder

_FILE = ".numba_config.yaml"


@contextmanager
def _unseen() -> Iterator[None]:
    """Hide the file from `os.path.isfile`, by which numba looks for it."""
    original = os.path.isfile

    def isfile(path: Any) -> bool:
        return path != _FILE and original(path)

    os.path.isfile = isfile
    try:
        yield
    finally:
        os.path.isfile = original


_is_first = "numba" not in sys.modules
with _unseen():
    import numba
    from numba import cfunc, types
    from numba.core import cgutils, config
    from numba.extending import intrinsic
if _is_first:
    config._config_fname = os.devnull  # is no file: read when numba compiles

__all__ = ["cfunc", "cgutils", "intrinsic", "numba", "types"]


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


# mypy: disable-error-code="untyped-decorator"
