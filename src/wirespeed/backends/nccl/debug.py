"""What NCCL was set to, and what it did: settings from the environment and its files, and transports and
warnings from its log, the only place where NCCL reports them. Unless the user has requested a log, NCCL
writes it to memory.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

from ...files import file_in_memory
from ...hardware.facts import Fact, Known
from ..system_files import HERE, TreePath

#: Variables that change neither transport nor speed.
_HARMLESS = ("NCCL_DEBUG", "NCCL_VERSION", "NCCL_CONF_FILE", "NCCL_TESTS")
#: Lines of a file that set something.
_LINES = re.compile(r"^[ \t]*NCCL_.*$", re.MULTILINE)


def settings(root: TreePath = HERE) -> Fact:
    """The settings of NCCL: ``NAME=value`` in the environment, ``FILE: NAME=value`` from a file.

    Args:
        root: Folder that contains ``etc``; its tree has the variables.
    """
    variables = root.tree.environment
    values = [f"{name}={value}" for name, value in sorted(variables.items()) if matters(name)]
    own = variables.get("NCCL_CONF_FILE")
    for path in ("/etc/nccl.conf", str(Path(own).absolute()) if own else "~/.nccl.conf"):
        lines = [line.strip() for line in ((root / path).read(_LINES) or "").splitlines()]
        values += [f"{path}: {line}" for line in lines if matters(line.partition("=")[0])]
    return Fact(Known.NCCL_VARIABLES, tuple(values))


def matters(name: str) -> bool:
    """Whether a variable may change transport or speed."""
    return name.startswith("NCCL_") and not name.startswith(_HARMLESS)


#: The way of a channel in a line of the log (Ring up to 2.6); names of plug-ins may have blanks.
_VIA = re.compile(r"(?:Channel|Ring) \d+.* via (direct shared memory|NET/[^/\n]{1,60}/\S*|\S+)")
#: What the oldest versions say in place of a transport -> the transport.
_OLD_NAMES = {"direct shared memory": "SHM/direct"}
_NVLS = "NVLS multicast support is available"
#: What NCCL says of reductions by the NVLink switches, before it uses them or does not.
_NVLS_STATE = re.compile(r"NVLS multicast support is (not )?available|(Connected) (?:all )?NVLS|NVLS comm 0x")
#: The end of a way over the network whose data does not pass host memory.
_DIRECT = "GDRDMA"
#: Maximum number of transports that a fact names.
MOST_TRANSPORTS = 4
_WARNING = re.compile(r"NCCL WARN (.*)")
#: Variables of NCCL's log, and their values; the name of the file is added.
_VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET,NVLS", "NCCL_DEBUG_FILE": ""}
#: The file that a process of wirespeed has left in the variables of a program that it started.
_INHERITED = re.compile(r"/proc/\d+/fd/\d+")
_OWN_LOG = "NCCL_DEBUG, NCCL_DEBUG_SUBSYS or NCCL_DEBUG_FILE is set"


@cache
def log_of() -> Path | None:
    """The log of NCCL in this process, in memory; None if the user has requested one."""
    inherited = _INHERITED.fullmatch(os.environ.get("NCCL_DEBUG_FILE", ""))
    if not inherited and not _VARIABLES.keys().isdisjoint(os.environ):
        return None
    path = file_in_memory("nccl.log")
    os.environ.update(_VARIABLES | {"NCCL_DEBUG_FILE": str(path)})
    return path


class Debug:
    """What NCCL logs from now on. Must be created before NCCL is loaded."""

    def __init__(self) -> None:
        self._path = log_of()
        self._begin = len(self._path.read_bytes()) if self._path else 0

    def _text(self) -> str:
        return self._path.read_bytes()[self._begin :].decode(errors="replace") if self._path else ""

    def transports(self) -> str:
        """The transports between ranks as text: ``P2P/CUMEM, NET/IB``."""
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
        return Fact.of(Known.NCCL_TRANSPORTS, names or None, why="not in NCCL's log")

    def explained(self, words: str) -> str:
        """NCCL's words for an error, with the last warning of its log, as nccl-tests joins them."""
        warnings = _WARNING.findall(self._text())
        return " / ".join([words, *(warning.strip() for warning in warnings[-1:])])


def transports(log: str) -> tuple[str, ...]:
    """The transports in NCCL's log, the most frequent first: ``("P2P/CUMEM", "NET/IB")``.

    Lines of a channel end in ``via P2P/CUMEM/read``, ``via SHM/direct/direct`` or ``via NET/IB/0/GDRDMA``.
    """
    names = Counter(name for name, _ in ways(log))
    return tuple(name for name, _ in names.most_common(MOST_TRANSPORTS))


def nvls(message: str) -> bool | None:
    """Whether a line of NCCL's log says that the NVLink switches reduce; None if it says nothing of them."""
    match = _NVLS_STATE.search(message)
    return None if match is None else match[1] is None


def ways(log: str) -> list[tuple[str, bool]]:
    """The transport of each channel in NCCL's log, and whether it is GPUDirect RDMA."""
    found = [_OLD_NAMES.get(way, way).rstrip(",").split("/") for way in _VIA.findall(log)]
    return [("/".join(parts[:2]), _DIRECT in parts) for parts in found]
