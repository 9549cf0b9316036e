"""Transports and warnings from NCCL's log, the only place where NCCL reports them.

Unless the user has requested a log, NCCL writes it to a temporary file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from pathlib import Path

_VIA = re.compile(r" via (\S+)")
_WARNING = re.compile(r"NCCL WARN (.*)")


class Debug:
    """The log of NCCL. Must be created before NCCL is loaded."""

    def __init__(self) -> None:
        self._path: Path | None = None
        if "NCCL_DEBUG" in os.environ:
            return
        handle, name = tempfile.mkstemp(prefix="wirespeed-nccl-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        os.environ["NCCL_DEBUG"] = "INFO"
        os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,P2P,SHM,NET,NVLS"
        os.environ["NCCL_DEBUG_FILE"] = name

    def _text(self) -> str:
        return self._path.read_text(errors="replace") if self._path and self._path.exists() else ""

    def transports(self) -> str:
        """Return the transports between ranks, the most frequent first: ``P2P/CUMEM, NET/IB``."""
        if self._path is None:
            return "see NCCL's log (NCCL_DEBUG is set)"
        text = self._text()
        found = Counter("/".join(name.rstrip(",").split("/")[:2]) for name in _VIA.findall(text))
        names = [name for name, _ in found.most_common(4)]
        if "NVLS multicast support is available" in text:
            names.append("NVLS: the switch reduces")
        return ", ".join(names) or "no connection between ranks"

    def warnings(self) -> str:
        """Return the last warning; empty if there is none."""
        found = _WARNING.findall(self._text())
        return str(found[-1]).strip() if found else ""

    def close(self) -> None:
        """Remove the temporary file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
