"""Sends and receives by NCCL in a stream, for ranks that cannot open each other's memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from cuda.bindings import driver

from ...errors import BackendError
from ..cuda.device import TimedStream
from ..cuda.driver import check
from ..cuda.packages import INSTALL_NCCL

#: ncclUint8 in nccl.h.
_BYTES = 1
#: NCCL_UNIQUE_ID_BYTES in nccl.h.
_IDENTIFIER = 128


@dataclass(frozen=True)
class Send:
    """A buffer that goes to a peer, or comes from one."""

    address: int
    bytes: int
    peer: int
    sends: bool


def refuses(rank: int) -> tuple[str, bytes]:
    """Return why NCCL cannot be used, and on rank 0 the identifier by which all ranks meet."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast objects are of no use to pairs
    try:
        nccl = _bindings()
    except (ImportError, RuntimeError) as error:
        return f"NCCL cannot be used: {error}; {INSTALL_NCCL}", b""
    try:
        identifier = nccl.get_unique_id() if rank == 0 else None  # it owns the bytes behind its address
        return "", ctypes.string_at(identifier.ptr, _IDENTIFIER) if identifier is not None else b""
    except nccl.NCCLError as error:
        return f"NCCL failed: {error}", b""


def _bindings() -> Any:
    return import_module("nccl.bindings.nccl")


class NcclMessages:
    """A communicator of all ranks of a job.

    Raises
    ------
    BackendError
        If NCCL cannot connect them.
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
        """The communicator as C has it."""
        return int(self._comm)

    def libraries(self) -> dict[str, str]:
        """Return NCCL and its bindings."""
        number = int(self._nccl.get_version())
        return {
            "nccl": f"{number // 10000}.{number // 100 % 100}.{number % 100}",
            "nccl4py": version("nccl4py"),
        }

    def work(self, moves: Sequence[Send], lane: TimedStream) -> NcclWork:
        """Return the copies of a Measurement that this rank sends and receives."""
        return NcclWork(self._nccl, self._comm, moves, lane)

    def close(self) -> None:
        """Leave; not in order with the others, which may be gone."""
        try:
            self._nccl.comm_abort(self._comm)
        except self._nccl.NCCLError as error:
            raise BackendError(f"NCCL failed: {error}") from error


class NcclWork:
    """All that a rank sends and receives at a time, as one group in one stream.

    NCCL runs the operations of a communicator one after the other, so that both directions of a
    pair must be one operation.
    """

    loops = False

    def __init__(self, nccl: Any, comm: Any, moves: Sequence[Send], lane: TimedStream) -> None:
        stream = int(lane.stream)
        self._nccl = nccl
        self._calls = []
        for move in moves:
            function = nccl.send if move.sends else nccl.recv
            self._calls.append((function, (move.address, move.bytes, _BYTES, move.peer, comm, stream)))
        lane.device.use()
        self.put(1)  # it connects the peers, and waits for them, before there is a gate
        check(driver.cuStreamSynchronize, lane.stream)

    def warm_up(self) -> None:
        """Send a whole buffer: both sides must send as much."""
        self.put(1)

    def put(self, copies: int) -> None:
        """Enqueue ``copies`` copies."""
        nccl = self._nccl
        try:
            for _ in range(copies):
                nccl.group_start()
                for function, arguments in self._calls:
                    function(*arguments)
                nccl.group_end()
        except nccl.NCCLError as error:
            raise BackendError(f"NCCL failed: {error}") from error
