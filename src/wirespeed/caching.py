"""Folder for compiled code; in the package, nothing would remove it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return this package's folder in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wirespeed"
