"""The protocols that backends implement; the session uses backends only through them.

A backend is one folder, or one class in a package of somebody else. It says which Measurements it runs,
prepares one at a time, and takes Samples of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ..document import State
from ..errors import WirespeedError
from ..model import Measurement, Sample, Transfer
from ..options import RunOptions

if TYPE_CHECKING:
    from .distributed.exchange import Exchange


class Prepared(Protocol):
    """A Measurement with its buffers, threads, streams and kernels bound; a context manager.

    Leaving the context returns the buffers to the pool of the backend.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def sample(self, copies: int) -> Sample:
        """Run every work ``copies`` times from a common start and return the times.

        Raises
        ------
        BackendError
            If the hardware or a library reports an error.
        MeasurementTimeout
            If a gate timed out.
        """
        ...

    def verify(self) -> int | None:
        """Compare the destinations with the expected data after the last sample.

        Returns
        -------
        int or None
            Number of wrong elements of a collective, whose times are kept; None for other works.

        Raises
        ------
        VerificationError
            If a destination of a transfer has a wrong word.
        """
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """Optional protocol of a Prepared whose warm-up differs from a sample."""

    def warm_up(self) -> None:
        """Run once, untimed, if the number of samples is fixed."""


class Backend(Protocol):
    """Runs Measurements on one kind of hardware or library.

    Attributes
    ----------
    name : str
        Name of the backend: ``host``, ``cuda``, ``simulated``, ...
    sample_seconds : float
        Minimum duration of a sample for the clock of this backend, in s.
    warnings : list[str]
        Conditions that may affect the values: threads that could not be pinned, memory on another NUMA node.
        The session reads and clears them after each testcase.
    """

    name: str
    sample_seconds: float
    warnings: list[str]

    def refuses(self, measurement: Measurement) -> str | None:
        """Return None if the backend can run the Measurement, else the reason.

        The reason is empty if the Measurement is for another kind of backend.
        """
        ...

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Bind the resources of a Measurement.

        Raises
        ------
        BackendError
            If memory or another resource is not available.
        Unreachable
            If the Measurement is not possible on this machine.
        """
        ...

    def now(self) -> float:
        """Return the time of the clock for time budgets, in s; virtual time if simulated."""
        ...

    def state(self) -> State:
        """Return the current state of the hardware."""
        ...

    def libraries(self) -> dict[str, str]:
        """Return the libraries that it measures with: name -> version."""
        ...

    def cancel(self) -> None:
        """Make a sample in another thread return soon, if possible."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@runtime_checkable
class RenewsBuffers(Protocol):
    """Optional protocol of backends that keep buffers from one Measurement to the next."""

    def renew(self) -> None:
        """Use other memory from now on: the addresses of buffers affect what is measured."""


@runtime_checkable
class ReportsBusy(Protocol):
    """Optional protocol of backends that know whether other processes use their hardware."""

    def busy(self) -> dict[str, str]:
        """Return the devices in use by others: name -> phrase to be read after "is"."""
        ...


@runtime_checkable
class KeepsVirtualTime(Protocol):
    """Optional protocol of backends that measure nothing in real time."""

    def elapsed(self) -> float:
        """Return the virtual time of the run, with that of preparing and verifying, in s."""
        ...


@runtime_checkable
class CountsErrors(Protocol):
    """Optional protocol of backends with counters that take too long for ``state``."""

    def counters(self) -> State:
        """Return the counters; called when the first testcase begins and after the last one."""
        ...


@runtime_checkable
class ObservesLinks(Protocol):
    """Optional protocol of backends that watch links while data moves, because idle links are slower."""

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Look at the links of transfers that run now, from another thread; may take 1 ms per device."""
        ...


@runtime_checkable
class SpansProcesses(Protocol):
    """Optional protocol of backends that span several processes, or use libraries that can hang.

    Attributes
    ----------
    setup_s : float
        Minimum time-out of a stage, in s. Until the first operation has ended, libraries are loaded, kernels
        compiled and ranks connected; after that it is 0.
    can_cancel : bool
        Whether ``cancel`` ends the current operation.
    """

    setup_s: float
    can_cancel: bool

    def interrupted(self) -> str:
        """Return the failure that ended the job before Ctrl-C; empty if the user interrupted it.

        There are no exchanges between processes after this call.
        """
        ...

    def late(self, stage: str, seconds: float) -> WirespeedError | None:
        """Identify the straggler after a time-out of a stage; return None if the run can continue."""
        ...


@runtime_checkable
class Exchanging(Protocol):
    """Optional protocol of backends that exchange results with other processes.

    Attributes
    ----------
    exchange : Exchange
        The exchange of the job; its ``gone`` names a process that ended, even during a measurement that
        waits for this process.
    """

    exchange: Exchange


@runtime_checkable
class Describing(Protocol):
    """Optional protocol of backends that add fields to the Document."""

    def describe(self) -> dict[str, Any]:
        """Return fields of the Document: ``ranks``, ``device_memory``, more ``options`` and ``facts``."""
        ...


def renew(backends: Iterable[Backend]) -> None:
    """Make backends use other memory in the next round."""
    for backend in backends:
        if isinstance(backend, RenewsBuffers):
            backend.renew()
