"""Send and receive over NCCL, for ranks that cannot open the memory of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...collectives.data_types import BY_NAME
from ...errors import BackendError
from . import library

if TYPE_CHECKING:
    from ...worlds.mpi import Move
    from ..call_tables import Failure
    from ..gpu.device import TimedStream


_UINT8 = BY_NAME["uint8"].code


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
        self._nccl = nccl = library.bindings()
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
        words = library.words_of(self._nccl, failed)
        return BackendError(f"NCCL failed: {words}; set NCCL_DEBUG=WARN to see the reason")

    def libraries(self) -> dict[str, str]:
        return library.libraries()

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
