"""How the provider of collectives uses NCCL.

Settings of NCCL that are not its defaults, from the environment and from its files.

Transports and warnings from NCCL's log, the only place where NCCL reports them.

Unless the user has requested a log, NCCL writes it to memory.

Send and receive over NCCL, for ranks that cannot open the memory of each other.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...collectives.operations import BY_NAME
from ...errors import BackendError
from ...files import file_in_memory
from ...hardware.facts import Fact, Known
from ..tree import HERE, TreePath

if TYPE_CHECKING:
    from ...worlds.mpi import Move
    from ..gpu.device import TimedStream
    from ..gpu.gpu_driver import GpuDriver
    from ..native import Failure, Functions


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
    """Return whether a variable may change transport or speed."""
    return name.startswith("NCCL_") and not name.startswith(_HARMLESS)


#: The way of a channel in a line of the log (Ring up to 2.6); names of plug-ins may have blanks.
_VIA = re.compile(r"(?:Channel|Ring) \d+.* via (direct shared memory|NET/[^/\n]{1,60}/\S*|\S+)")
#: What the oldest versions say in place of a transport -> the transport.
_OLD_NAMES = {"direct shared memory": "SHM/direct"}
_NVLS = "NVLS multicast support is available"
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


def ways(log: str) -> list[tuple[str, bool]]:
    """The transport of each channel in NCCL's log, and whether it is GPUDirect RDMA."""
    found = [_OLD_NAMES.get(way, way).rstrip(",").split("/") for way in _VIA.findall(log)]
    return [("/".join(parts[:2]), _DIRECT in parts) for parts in found]


#: Name of the backend whose GPUs NCCL uses.
GPU_BACKEND = "cuda"
INSTALL_NCCL = "pip install 'wirespeed[nccl]', or 'wirespeed[nccl12]' for drivers before 580"
_UINT8 = BY_NAME["uint8"].code
#: Size of ncclUniqueId, in bytes: NCCL_UNIQUE_ID_BYTES in nccl.h.
IDENTIFIER_BYTES = 128


def refuses(rank: int) -> tuple[str, bytes]:
    """Check whether NCCL can be used in this process.

    Returns:
        reason: Why NCCL cannot be used; empty if it can.
        identifier: Identifier of a new communicator on rank 0; empty on the others.
    """
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # sends and receives do not use multicast objects
    try:
        nccl = _bindings()
    except (ImportError, RuntimeError) as error:
        return f"NCCL cannot be used: {error}; {INSTALL_NCCL}", b""
    try:
        identifier = nccl.get_unique_id() if rank == 0 else None  # it owns the bytes behind its address
        return "", ctypes.string_at(identifier.ptr, IDENTIFIER_BYTES) if identifier is not None else b""
    except nccl.NCCLError as error:
        return f"NCCL failed: {error}", b""


def libraries() -> dict[str, str]:
    """The versions of NCCL and of its bindings."""
    return {"nccl": version_text(int(_bindings().get_version())), "nccl4py": version("nccl4py")}


def version_text(number: int) -> str:
    """A version of NCCL as people write it, of the number that ncclGetVersion returns."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def words_of(nccl: Any, failed: Failure) -> str:
    """The name of a call that failed, and NCCL's words for its status; calls of the driver have none."""
    if not failed.name.startswith("nccl"):
        return failed.name
    return f"{failed.name}: {nccl.get_error_string(failed.status)}"


def _bindings() -> Any:
    return import_module("nccl.bindings.nccl")


def functions(driver: GpuDriver, error: Callable[[Failure], BackendError]) -> Functions:
    """The C functions of NCCL, which must be loaded already, and of the driver."""
    from ..native import Functions

    return Functions(error, ctypes.CDLL("libnccl.so.2"), driver.native.library())


class NcclMessages:
    """A communicator for sends and receives.

    Attributes:
        size: Number of ranks.
        rank: Rank of this process.
        identifier: Identifier from rank 0.

    Raises:
        BackendError: If NCCL cannot connect the ranks.
    """

    def __init__(self, size: int, rank: int, identifier: bytes) -> None:
        self._nccl = nccl = _bindings()
        try:
            unique = nccl.UniqueId.from_buffer(bytearray(identifier))
            self._comm = nccl.comm_init_rank_config(size, unique, rank, nccl.Config())
        except nccl.NCCLError as error:
            raise BackendError(f"NCCL cannot connect the ranks: {error}") from error

    @property
    def handle(self) -> int:
        """Handle of the communicator for C functions."""
        return int(self._comm)

    def failed(self, failed: Failure) -> BackendError:
        """The error of a call that failed."""
        words = words_of(self._nccl, failed)
        return BackendError(f"NCCL failed: {words}; set NCCL_DEBUG=WARN to see the reason")

    def libraries(self) -> dict[str, str]:
        return libraries()

    def work(self, moves: Sequence[Move], lane: TimedStream) -> NcclWork:
        """The sends and receives of this rank in a Measurement, bound to a stream."""
        return NcclWork(self._nccl, self._comm, moves, lane)

    def close(self) -> None:
        """Abort the communicator, because other ranks may have ended.

        Raises:
            BackendError: If NCCL fails.
        """
        try:
            self._nccl.comm_abort(self._comm)
        except self._nccl.NCCLError as error:
            raise BackendError(f"NCCL failed: {error}") from error


class NcclWork:
    """The concurrent sends and receives of a rank, as one group in one stream.

    NCCL runs the operations of a communicator one after the other, so both directions of a pair must be in
    one group.

    Attributes:
        loops: Whether one call makes several copies; always false.
    """

    loops = False

    def __init__(self, nccl: Any, comm: Any, moves: Sequence[Move], lane: TimedStream) -> None:
        stream = int(lane.stream)
        self._nccl = nccl
        self._calls = []
        for move in moves:
            function = nccl.send if move.sends else nccl.recv
            self._calls.append((function, (move.address, move.bytes, _UINT8, move.peer, comm, stream)))
        lane.device.use()
        self.put(1)  # connects the peers before the gate is closed
        lane.device.driver.synchronize(lane.stream)

    def warm_up(self) -> None:
        """Send the complete buffers, because both sides must agree on the size."""
        self.put(1)

    def put(self, copies: int) -> None:
        """Enqueue ``copies`` copies.

        Raises:
            BackendError: If NCCL fails.
        """
        nccl = self._nccl
        try:
            for _ in range(copies):
                nccl.group_start()
                for function, arguments in self._calls:
                    function(*arguments)
                nccl.group_end()
        except nccl.NCCLError as error:
            raise BackendError(f"NCCL failed: {error}") from error
