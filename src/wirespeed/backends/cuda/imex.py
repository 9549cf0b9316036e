"""IMEX channels, without which the driver denies fabric handles."""

from __future__ import annotations

import os
from pathlib import Path

_CHANNELS = Path("/dev/nvidia-caps-imex-channels")


def channels() -> str:
    """Describe the IMEX channels of this process."""
    names = sorted(path.name for path in _CHANNELS.glob("channel*")) if _CHANNELS.is_dir() else []
    if not names:
        return (
            f"no IMEX channel in {_CHANNELS}: load the driver with "
            "NVreg_CreateImexChannel0=1 or create one with nvidia-modprobe, and run nvidia-imex"
        )
    readable = [name for name in names if os.access(_CHANNELS / name, os.R_OK)]
    if not readable:
        return f"this user has no access to {', '.join(names)} in {_CHANNELS}"
    return f"IMEX {', '.join(readable)} is available: see `nvidia-imex-ctl -N` for its domain"
