"""What every backend provides. The session knows backends only through this.

A backend is one folder (or one class in somebody else's package): it says which Measurements it
runs, prepares one at a time, and takes Samples of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ..document import State
from ..errors import WirespeedError
from ..model import Measurement, Sample
from ..options import RunOptions
from ..topology import Machine

if TYPE_CHECKING:
    from .distributed.exchange import Exchange


@dataclass(frozen=True)
class CollectiveOptions:
    """How collectives are timed and verified, in nccl-tests' terms.

    Parameters
    ----------
    warmup
        Operations before the first sample.
    checks
        How often the data is verified; 0: not.
    average
        Whose time counts: 0 rank 0's, 1 the mean, 2 the least, 3 the largest.
    aggregate
        Operations grouped in each iteration.
    blocking
        0: all are enqueued, then waited for; 1: each is waited for, then all ranks meet; 2: each is
        waited for; 3: all ranks meet after each iteration, which does not count.
    graphs
        Launches of a graph of all iterations; 0: no graph.
    per_iteration
        Whether each iteration is timed on its own.
    skip
        Number of leading iterations that statistics leave out.
    unalign
        Number of elements by which the buffers begin behind their alignment.
    memory
        Whether the device memory that is taken is reported.
    """

    warmup: int = 1
    checks: int = 1
    average: int = 1
    aggregate: int = 1
    blocking: int = 0
    graphs: int = 0
    per_iteration: bool = False
    skip: int = 0
    unalign: int = 0
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class BackendOptions(RunOptions):
    """Options of a run, as a backend gets them, and its own.

    Parameters
    ----------
    grace
        Seconds more that the session leaves to backends whose own time-outs say more than its.
    collectives
        How collectives are timed.
    """

    grace: float = 0.0
    collectives: CollectiveOptions = field(default_factory=CollectiveOptions)


class Prepared(Protocol):
    """A Measurement whose buffers, threads, streams and kernels are bound; a context manager.

    Leaving the context gives the buffers back to the backend's pool.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def sample(self, copies: int) -> Sample:
        """Run every transfer ``copies`` times from a common start and return the times.

        Raises
        ------
        BackendError
            If the hardware or a library refuses.
        MeasurementTimeout
            If a gate gave up.
        """
        ...

    def verify(self) -> int | None:
        """Compare the destinations with what must be there after the last sample.

        Returns
        -------
        int or None
            Number of wrong elements of a collective, whose times stand whatever the data; otherwise None.

        Raises
        ------
        VerificationError
            If a word differs at the destination of a transfer.
        """
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """Optional protocol of a Prepared whose warm-up is not a sample."""

    def warm_up(self) -> None:
        """Run once, untimed, in place of the first sample of a fixed number."""


class Backend(Protocol):
    """Runs Measurements on one kind of hardware.

    Attributes
    ----------
    name
        ``host``, ``cuda``, ``simulated``.
    sample_seconds
        How long a sample must last for the clock of this backend, in s.
    warnings
        What the user must know of the way it measured (affinity that could not be set, memory
        that is not where it was asked for). The session reads and clears it after each testcase.
    """

    name: str
    sample_seconds: float
    warnings: list[str]

    def refuses(self, measurement: Measurement) -> str | None:
        """Return why this backend cannot run the Measurement; "" if others run such ones, None if it can."""
        ...

    def prepare(self, measurement: Measurement, options: BackendOptions) -> Prepared:
        """Bind everything that the Measurement needs.

        Raises
        ------
        BackendError
            If memory or another resource cannot be had.
        """
        ...

    def now(self) -> float:
        """Seconds on the clock that time budgets are kept on (virtual when simulated)."""
        ...

    def state(self) -> State:
        """Return the state of the hardware now."""
        ...

    def libraries(self) -> dict[str, str]:
        """Return name -> version of the libraries that it measures with."""
        ...

    def cancel(self) -> None:
        """Make a sample under way in another thread return soon, if that is possible."""
        ...

    def close(self) -> None:
        """Give back all that it holds."""
        ...


@runtime_checkable
class ReportsBusy(Protocol):
    """What a backend may offer besides: whether something else uses its hardware now."""

    def busy(self) -> dict[str, str]:
        """Return the devices that something else uses: name -> how, to be read after "is"; empty if idle."""
        ...


@runtime_checkable
class SpansProcesses(Protocol):
    """Optional protocol of backends whose measurements span several processes or libraries that can hang.

    Attributes
    ----------
    setup_s
        Seconds that a stage may take at least, even if the time-out is shorter: until the first operation is
        done, libraries are loaded, kernels compiled and ranks connected. 0 after that.
    can_cancel
        Whether ``cancel`` makes what is under way return.
    """

    setup_s: float
    can_cancel: bool

    def interrupted(self) -> str:
        """After Ctrl-C: return what ended the job, if not the user; from now on nothing is exchanged."""
        ...

    def late(self, stage: str, seconds: float) -> WirespeedError | None:
        """Return why the job ends if a stage took too long: which process is late. None: it goes on."""
        ...


@runtime_checkable
class Exchanging(Protocol):
    """Optional protocol of backends that exchange with other processes.

    Attributes
    ----------
    exchange
        Its ``gone`` says which process ended, even while a measurement waits for that one for ever.
    """

    exchange: Exchange


@runtime_checkable
class Describing(Protocol):
    """Optional protocol of backends that know more of a run than its measurements."""

    def describe(self) -> dict[str, Any]:
        """Return fields of the Document: ``ranks``, ``device_memory``, and ``options`` to be added."""
        ...


class Discoverer(Protocol):
    """A function that adds to a Machine what it finds: devices, links, notes."""

    def __call__(self, machine: Machine) -> Machine: ...
