"""What other packages add to wirespeed: their entry points."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib import metadata

#: Groups of entry points, each for one kind of addition.
BACKENDS, DEVICES = "wirespeed.backends", "wirespeed.devices"


def registered(group: str) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of a group."""
    return _of_group(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _of_group(group: str, path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    if group not in _texts(path):
        return ()
    from importlib import metadata  # it takes tens of ms, and few systems have such packages

    return tuple(metadata.entry_points(group=group))


@lru_cache(maxsize=1)
def _texts(path: tuple[str, ...]) -> str:
    """The descriptions of the entry points of all installed packages."""
    texts = []
    for folder in map(Path, path):
        with suppress(OSError):  # not a folder
            for about in folder.iterdir():
                if about.name.endswith("-info"):
                    with suppress(OSError):
                        texts.append((about / "entry_points.txt").read_text(errors="replace"))
    return "\n".join(texts)
