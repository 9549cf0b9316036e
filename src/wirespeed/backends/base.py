"""The classes that backends extend; the session uses backends only through them. A backend is one folder, or
one class in another package. It says which Measurements it runs, prepares one at a time, and takes Samples of
it; what a backend does not override has its default here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..document import RankInfo
from ..errors import BackendError, WirespeedError
from ..hardware.facts import Fact
from ..measurement import Measurement, Sample
from ..model import Role, Transfer
from ..options import RunOptions
from ..tables import State

if TYPE_CHECKING:
    from .distributed.job_process import Endpoint, JobContext


class Prepared:
    """A Measurement with its buffers, threads, streams and kernels bound; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Give the buffers back to the pool of the backend."""

    def warm_up(self) -> None:
        """Run once, untimed, if the number of samples is fixed."""
        self.sample(1)

    def sample(self, copies: int) -> Sample:
        """Run every work ``copies`` times from a common start and return the times.

        Raises:
            BackendError: If the hardware or a library reports an error.
            MeasurementTimeout: If a gate timed out.
        """
        raise NotImplementedError

    def verify(self) -> int | None:
        """Compare the destinations with the expected data after the last sample.

        Returns:
            Number of wrong elements of a collective, whose times are kept; None for other works.

        Raises:
            VerificationError: If a destination of a transfer has a wrong word.
        """
        return None


@dataclass(frozen=True)
class BackendDetails:
    """What a backend adds to the Document.

    Attributes:
        ranks: The ranks of collectives.
        device_memory: Use of device memory by purpose, in bytes.
        options: Further options of the Document.
        facts: What was found while measuring.
    """

    ranks: tuple[RankInfo, ...] = ()
    device_memory: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()


class Backend:
    """Runs Measurements on one kind of hardware or library; override ``refuses`` and ``prepare``.

    Attributes:
        name: Name of the backend: ``host``, ``cuda``, ``simulated``, ...
        sample_seconds: Minimum duration of a sample for the clock of this backend, in s.
        setup_s: Minimum time-out of a stage, in s. Until the first operation has ended, libraries are loaded,
            kernels compiled and ranks connected; after that it is 0, or what a long stage is expected to
            take.
        progressed: When it last ended a part of a stage, on the monotonic clock, in s: the time-out counts
            from there.
        can_cancel: Whether ``cancel`` ends the current operation.
        may_hang: Whether an operation may not return even if it is cancelled, because it waits for a library
            or for other processes: Ctrl-C does not wait for it.
        processes: Number of processes that measure together.
        virtual: Whether nothing is measured in real time.
        moves_files: Whether it runs transfers from and to files.
    """

    name: str
    sample_seconds: float
    setup_s: float = 0.0
    progressed: float = 0.0
    can_cancel: bool = True
    may_hang: bool = False
    processes: int = 1
    virtual: bool = False
    moves_files: bool = False

    def __init__(self) -> None:
        self._warnings: dict[str, None] = {}

    def refuses(self, measurement: Measurement) -> str | None:
        """None if the backend can run the Measurement, else the reason.

        The reason is empty if the Measurement is for another kind of backend. Of a backend for transfers,
        ``refuses_transfer`` is asked for each one.
        """
        if not measurement.transfers:
            return ""  # other backends run what is no transfer
        if not self.moves_files and any(transfer.calls for transfer in measurement.transfers):
            return ""
        for transfer in measurement.transfers:
            if reason := self.refuses_transfer(transfer):
                return f"{transfer}: {reason}"
        if all(transfer.role is Role.LOAD for transfer in measurement.transfers):
            return "no transfer is measured"
        return None

    def refuses_transfer(self, transfer: Transfer) -> str:
        """Why the backend cannot run a transfer; empty if it can."""
        raise NotImplementedError

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Bind the resources of a Measurement.

        Raises:
            BackendError: If memory or another resource is not available.
            Unreachable: If the Measurement is not possible on this machine.
        """
        raise NotImplementedError

    def renew(self) -> None:
        """Use other memory from now on: the addresses of buffers affect what is measured."""

    def warn(self, text: str) -> None:
        """Add a warning about values: threads that could not be pinned, memory on another NUMA node."""
        self._warnings[text] = None

    def drain_warnings(self) -> tuple[str, ...]:
        """The warnings since the last call, each once."""
        warnings, self._warnings = self._warnings, {}
        return tuple(warnings)

    def now(self) -> float:
        """The time of the clock for time budgets, in s; virtual time if simulated."""
        return time.monotonic()

    def elapsed(self) -> float:
        """The time of the run on the same clock, with the time of preparing and verifying, in s."""
        return self.now()

    def state(self) -> State:
        """The current state of the hardware; may take 10 ms per device."""
        return ()

    def counters(self) -> State:
        """Counters that take too long for ``state``; read before the first testcase and at the end."""
        return ()

    def busy(self) -> dict[str, str]:
        """The devices in use by others: name -> phrase to be read after "is"."""
        return {}

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Look at the links of transfers that run now, from another thread: idle links are slower.

        It may take 1 ms per device.
        """

    def libraries(self) -> dict[str, str]:
        """The libraries that it measures with: name -> version."""
        return {}

    def describe(self) -> BackendDetails:
        """The details that are added to the Document."""
        return BackendDetails()

    def cancel(self) -> None:
        """Make a sample in another thread return soon, if possible."""

    def close(self) -> None:
        """Release all resources."""

    # Backends of several processes.

    def gone(self) -> str:
        """Which other process ended, even while this one waits for it; empty if none did."""
        return ""

    def interrupted(self) -> str:
        """The failure that ended the job before Ctrl-C; empty if the user interrupted it.

        There are no exchanges between processes after this call.
        """
        return ""

    def late(self, stage: str, seconds: float) -> WirespeedError | None:
        """Identify the straggler after a time-out of a stage; return None if the run can continue."""
        return None

    def holds(self, device: str) -> bool:
        """Whether the memory of a device of this process can take part in a job."""
        return False

    def side(self, job: JobContext) -> Endpoint:
        """This process' hardware in a job."""
        raise BackendError(f"the backend {self.name} takes no part in jobs")
