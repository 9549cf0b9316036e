"""What other packages add to wirespeed: their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib import metadata

#: Groups of entry points, each for one kind of addition.
BACKENDS, DEVICES = "wirespeed.backends", "wirespeed.devices"


def registered(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of a group."""
    return tuple(_all(tuple(sys.path)).select(group=group))


@lru_cache(maxsize=1)
def _all(path: tuple[str, ...]) -> Any:
    """Return the entry points of all groups; a search of hundreds of packages takes tens of ms."""
    del path  # part of the cache key
    from importlib import metadata

    return metadata.entry_points()
