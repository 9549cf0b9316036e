"""numba, without the settings of the current folder.

numba obeys a file ``.numba_config.yaml`` there, whoever wrote it, when it is imported and again when it
compiles: the file can redirect caches, whose content is executed. The variables ``NUMBA_...`` still count. A
program that imported numba before keeps its settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
