"""MPI: its library, a limit on the time that it takes to start and to end, and messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import WirespeedError
from .base import RANK_VARIABLES, World, WorldError, has_mpi

INSTALL = "install it with `pip install 'wirespeed[mpi]'`, or mpi4py for the MPI of this cluster"

#: Minimum of the maximum time that MPI may take to start, in s: it loads libraries and connects all ranks.
MPI_START_S = 30.0
#: Maximum time that MPI may take to end, in s: ranks wait for rank 0, which shows the results before.
MPI_END_S = 60.0
#: Time by which other ranks report after rank 0, whose end makes the launcher end them, in s.
_AFTER_LEADER_S = 2.0
#: Maximum of these limits, in s: select takes no more than 292 years.
_LONGEST_S = 1e9
#: A process that ends another one, unless its standard input is closed in time.
_WATCHDOG = """
import os, select, signal, sys
pid, seconds, text = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    os.write(2, text.encode())
    os.kill(int(pid), signal.SIGKILL)
"""


@contextmanager
def limited(seconds: float, doing: str) -> Iterator[None]:
    """End this process if MPI does not come back: MPI waits for ever for a rank that is stopped.

    MPI starts and ends without letting other threads of Python run, so that another process watches it.

    Args:
        seconds: Maximum time, in s.
        doing: What MPI does; to be read after "MPI did not".
    """
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "")
    who = f" (rank {rank})" if rank else ""
    text = f"MPI did not {doing} within {seconds:g} s{who}: a rank is stopped or cannot reach the others"
    until = min(seconds, _LONGEST_S) + (0.0 if rank in ("", "0") else _AFTER_LEADER_S)
    watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(os.getpid()), str(until),
         f"wirespeed: error: {text}\n"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        watchdog.kill()
        watchdog.communicate()


def finalize() -> None:
    """Finalise MPI, if it is in use, within ``MPI_END_S``."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        with limited(MPI_END_S, "end"):
            mpi.Finalize()


def library() -> Any:
    """The module ``mpi4py.MPI``.

    Raises:
        WorldError: If mpi4py or the MPI library is missing.
    """
    try:
        import mpi4py

        # Only one thread at a time calls MPI. Support for threads adds up to half of the time of a small
        # operation, and the benchmarks that users compare with do without it.
        mpi4py.rc.thread_level = os.environ.get("MPI4PY_RC_THREAD_LEVEL", "single")
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise WorldError(f"MPI cannot be used: {error}; {INSTALL}") from error
    return MPI


def version(mpi: Any) -> str:
    """Name and version of the MPI library: ``Open MPI v5.0.11``, ``MPICH 5.0.2``."""
    text: str = mpi.Get_library_version()  # MPICH prints several aligned lines
    return " ".join(text.split(",")[0].split("\n")[0].replace("Version:", "").split())


def libraries(mpi: Any) -> dict[str, str]:
    """The versions of MPI and mpi4py."""
    import mpi4py

    return {"mpi": version(mpi), "mpi4py": mpi4py.__version__}


def in_use() -> dict[str, str]:
    """The versions of MPI and mpi4py if this process has started MPI; else nothing."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return libraries(mpi) if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else {}


class MessagesRefused(WirespeedError):
    """MPI cannot carry messages between the processes of this World."""


@dataclass(frozen=True)
class Move:
    """A buffer that is sent to a peer, or received from it.

    Attributes:
        address: Address of the buffer.
        bytes: Size of the buffer.
        peer: The other rank.
        sends: Whether this rank sends.
        tag: Distinguishes the message from others between the two ranks; NCCL goes by their order.
    """

    address: int
    bytes: int
    peer: int
    sends: bool
    tag: int = 0


class Messages:
    """Messages from and to buffers, given by their addresses, between the ranks of a World.

    Raises:
        MessagesRefused: If mpi4py is missing, or MPI did not start the processes.
    """

    #: Maximum number of concurrent messages.
    _WINDOW = 16
    #: Maximum bytes of a message, which every MPI can count in an int.
    _MOST = 2**30

    def __init__(self, world: World) -> None:
        if not has_mpi():  # starting it would leave the shared memory of ranks that end early
            raise MessagesRefused("MPI did not start the processes: start all with mpirun or srun")
        try:
            self._mpi = library()
        except WorldError as error:
            raise MessagesRefused(str(error)) from error
        everyone = self._mpi.COMM_WORLD
        if (everyone.Get_rank(), everyone.Get_size()) != (world.rank, world.size):
            raise MessagesRefused(
                f"MPI has {everyone.Get_size()} ranks, this job {world.size}: start all with mpirun or srun"
            )
        self._comm = everyone

    def move(self, moves: Sequence[Move], copies: int) -> None:
        """Send and receive all buffers ``copies`` times, concurrently, and wait for the last."""
        calls = [
            (self._comm.Isend if move.sends else self._comm.Irecv, self._part(move, begin), move)
            for move in moves
            for begin in range(0, move.bytes, self._MOST)
        ]
        for first in range(0, copies, self._WINDOW):
            window = range(min(self._WINDOW, copies - first))
            self._mpi.Request.Waitall(
                [start(part, move.peer, move.tag) for _ in window for start, part, move in calls]
            )

    def _part(self, move: Move, begin: int) -> list[Any]:
        size = min(self._MOST, move.bytes - begin)
        return [self._mpi.memory.fromaddress(move.address + begin, size), self._mpi.BYTE]
