"""Transports and warnings from NCCL's log, the only place where NCCL reports them.

Unless the user has requested a log, NCCL writes it to a temporary file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from pathlib import Path

from ...facts import Fact, Known

#: The way of a channel in a line of the log.
VIA = re.compile(r"Channel \d+.* via (\S+)")
_NVLS = "NVLS multicast support is available"
#: Maximum number of transports that a fact names.
MOST_TRANSPORTS = 4
_WARNING = re.compile(r"NCCL WARN (.*)")


#: Variables of NCCL's log, and their values; the name of the file is added.
_VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET,NVLS", "NCCL_DEBUG_FILE": ""}
_OWN_LOG = "NCCL_DEBUG, NCCL_DEBUG_SUBSYS or NCCL_DEBUG_FILE is set"


class Debug:
    """The log of NCCL. Must be created before NCCL is loaded."""

    def __init__(self) -> None:
        self._path: Path | None = None
        if not _VARIABLES.keys().isdisjoint(os.environ):
            return
        handle, name = tempfile.mkstemp(prefix="wirespeed-nccl-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        os.environ.update(_VARIABLES | {"NCCL_DEBUG_FILE": name})

    def _text(self) -> str:
        return self._path.read_text(errors="replace") if self._path and self._path.exists() else ""

    def transports(self) -> str:
        """The transports between ranks for people: ``P2P/CUMEM, NET/IB``."""
        if self._path is None:
            return f"see NCCL's log ({_OWN_LOG})"
        text = self._text()
        names = [*transports(text), *(["NVLS: the switch reduces"] if _NVLS in text else [])]
        return ", ".join(names) or "no connection between ranks"

    def fact(self) -> Fact:
        """The transports between ranks as a fact."""
        if self._path is None:
            return Fact(Known.NCCL_TRANSPORTS, reason=_OWN_LOG)
        names = transports(self._text())
        return Fact(Known.NCCL_TRANSPORTS, names or None, reason="" if names else "not in NCCL's log")

    def explained(self, words: str) -> str:
        """NCCL's words for an error, with the last warning of its log, as nccl-tests joins them."""
        warnings = _WARNING.findall(self._text())
        return " / ".join([words, *(warning.strip() for warning in warnings[-1:])])

    def close(self) -> None:
        """Remove the temporary file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def transports(log: str) -> tuple[str, ...]:
    """The transports in NCCL's log, the most frequent first: ``("P2P/CUMEM", "NET/IB")``.

    Lines of a channel end in ``via P2P/CUMEM/read``, ``via SHM/direct/direct`` or ``via NET/IB/0/GDRDMA``.
    """
    names = Counter("/".join(name.rstrip(",").split("/")[:2]) for name in VIA.findall(log))
    return tuple(name for name, _ in names.most_common(MOST_TRANSPORTS))
