"""The backend of messages and shared buffers between the first and the last rank of a job."""

from __future__ import annotations

from typing import cast

from ...backends.base import Prepared
from ...backends.distributed.exchange import Exchange, JobBackend
from ...errors import WirespeedError
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import Message, Sharing
from ...options import RunOptions
from .connection import Connection
from .message_patterns import PreparedMessages
from .sharing_phases import PreparedSharing


class PairsBackend(JobBackend):
    """Runs messages and the phases of sharing a buffer between two ranks of a job.

    Attributes:
        exchange: The exchange of the job.
        machine: The machine of all ranks.
        local: The host of this process, as this process discovered it.
        options: Options of the run.
        grace: Additional time that another process may take at an exchange, in s.
    """

    name = "pairs"
    sample_seconds = 5e-3
    can_cancel = False  # a message that was sent cannot be cancelled

    def __init__(
        self, exchange: Exchange, machine: Machine, local: Machine, options: RunOptions, grace: float = 0.0
    ) -> None:
        super().__init__()
        self.exchange, self.processes = exchange, exchange.world.size
        self._connection = Connection(exchange, machine, local, options, grace, self.warn)

    def refuses(self, measurement: Measurement) -> str | None:
        """None for messages and shared buffers, and an empty reason for all other works."""
        return None if all(isinstance(work, Message | Sharing) for work in measurement.works) else ""

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Connect the two ends, and allocate the buffers that all samples use."""
        del options  # the backend has the options of the job
        self.exchange.check()
        work = measurement.works[0]
        kind = work.source.kind if isinstance(work, Message) else cast(Sharing, work).memory.kind
        self._connection.open(kind)
        if isinstance(work, Message):
            return PreparedMessages(self._connection, measurement, work)
        return PreparedSharing(self._connection, measurement, cast(tuple[Sharing, ...], measurement.works))

    def libraries(self) -> dict[str, str]:
        return self._connection.libraries()

    def late(self, stage: str, seconds: float) -> WirespeedError:
        error = self.exchange.world.late(stage, seconds)
        self.exchange.lose(error)
        return error

    def close(self) -> None:
        """Release all resources, unless a message may still be on its way."""
        self.exchange.close()
        if not self.exchange.lost:
            self._connection.close()
