"""The classes that backends extend; the session uses backends only through them.

A backend is one folder, or one class in a package of somebody else. It says which Measurements it runs,
prepares one at a time, and takes Samples of it. What a backend does not override has the default here.

Load of another backend: a collective next to transfers, or CPUs next to GPUs, in one process.

What is measured runs on one backend, while the other one repeats the load in a second thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..document import RankInfo
from ..errors import BackendError, WirespeedError, starting_threads
from ..hardware.facts import Fact
from ..measurement import Measurement, Sample
from ..model import Collective, Role, Transfer, Work
from ..options import RunOptions
from ..tables import State

if TYPE_CHECKING:
    from .distributed.endpoint import Endpoint, JobContext


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

    @property
    def parts(self) -> tuple[Backend, ...]:
        """The backends that it consists of: it, or one that measures and one that repeats the load."""
        return (self,)

    def refuses(self, measurement: Measurement) -> str | None:
        """None if the backend can run the Measurement, else the reason.

        The reason is empty if the Measurement is for another kind of backend. Of a backend for transfers,
        ``refuses_transfer`` is asked for each one.
        """
        if not measurement.transfers or measurement.is_mixed:
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
        """The time of the run on the same clock, with that of preparing and verifying, in s."""
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
        """What is added to the Document."""
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


#: Duration of one sample of the load, in s: between two samples it pauses for less than 1 ms.
_LOAD_SAMPLE_S = 0.05
_MOST_COPIES = 1000


def parts_of(measurement: Measurement) -> tuple[Measurement, Measurement]:
    """The measured works with their places, and the load as a Measurement without places."""
    works = [work for work in measurement.works if isinstance(work, Transfer | Collective)]
    measured = tuple(work for work in works if work.role is Role.MEASURED)
    load = tuple(replace(work, role=Role.MEASURED) for work in works if work.role is Role.LOAD)
    return Measurement(measured, measurement.places), Measurement(load, ())


def assigned(backends: Sequence[Backend], measurement: Measurement) -> tuple[Backend | None, str]:
    """The backend that runs a Measurement: the first that does not refuse it; None with the reason.

    Args:
        backends: The backends of this process.
        measurement: What to run.
    """
    reasons = []
    for backend in backends:
        reason = backend.refuses(measurement)
        if reason is None:
            return backend, ""
        reasons.append(reason)
    why = "; ".join(filter(None, reasons)) or "there is no backend for it"
    if {work.role for work in measurement.works if isinstance(work, Transfer | Collective)} == set(Role):
        return _split(backends, measurement, why)
    return None, why


def _split(backends: Sequence[Backend], measurement: Measurement, why: str) -> tuple[Backend | None, str]:
    """The backend of measured works and of load for different backends; None with the reason."""
    (measuring, refused), (loading, other) = (assigned(backends, part) for part in parts_of(measurement))
    if measuring is None or loading is None:
        return None, refused or other
    several = max(measuring.processes, loading.processes) > 1
    if measuring is loading or several:
        return None, f"{why}; load of another backend is possible in one process only" if several else why
    if any(t.start for t in measurement.transfers if t.role is Role.LOAD):
        return None, "a load of another backend has no start offset: it runs all the time"
    if any(_is_load(measurement.works[i]) for place in measurement.places for i in place.transfers):
        return None, "the rate of a load of another backend is unknown"
    return MixedBackend(measuring, loading), ""


def _is_load(work: Work) -> bool:
    return isinstance(work, Transfer | Collective) and work.role is Role.LOAD


class MixedBackend(Backend):
    """Runs a Measurement whose load belongs to another backend than what is measured.

    Attributes:
        measuring, loading: Backends of the measured works and of the load.
    """

    def __init__(self, measuring: Backend, loading: Backend) -> None:
        self.measuring, self.loading = measuring, loading
        self.name = measuring.name
        self.sample_seconds = measuring.sample_seconds

    @property
    def parts(self) -> tuple[Backend, ...]:
        return self.measuring, self.loading

    def prepare(self, measurement: Measurement, options: RunOptions) -> MixedPrepared:
        measured, load = parts_of(measurement)
        with ExitStack() as stack:
            loading = stack.enter_context(self.loading.prepare(load, options))
            measuring = stack.enter_context(self.measuring.prepare(measured, options))
            loads = tuple(map(_is_load, measurement.works))
            return MixedPrepared(measuring, loading, loads, stack.pop_all())

    def now(self) -> float:
        """The time of the measuring backend, in s."""
        return self.measuring.now()


class MixedPrepared(Prepared):
    """Both parts with their resources.

    Attributes:
        measuring, loading: The measured part, and the load.
        loads: Whether each work of the whole Measurement is load.
        resources: Returns their resources.
    """

    def __init__(
        self, measuring: Prepared, loading: Prepared, loads: tuple[bool, ...], resources: ExitStack
    ) -> None:
        self._measuring, self._loading, self._resources = measuring, loading, resources
        self._loads = loads
        self._copies = 0

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def warm_up(self) -> None:
        """Run both parts once, untimed, one after the other."""
        self._measuring.warm_up()
        self._calibrate()

    def sample(self, copies: int) -> Sample:
        """Take a sample of the measured part while the load runs; the load has no times."""
        self._calibrate()
        with _repeated(lambda: self._loading.sample(self._copies)):
            sample = self._measuring.sample(copies)
        times = zip(sample.seconds, sample.amounts, strict=True)
        placed = [(0.0, 0.0) if load else next(times) for load in self._loads]
        seconds, amounts = zip(*placed, strict=True)
        return replace(sample, seconds=seconds, amounts=amounts)

    def verify(self) -> int | None:
        """Verify both parts; return the number of wrong elements of a collective."""
        counts = [count for part in (self._measuring, self._loading) if (count := part.verify()) is not None]
        return sum(counts) if counts else None

    def _calibrate(self) -> None:
        """Choose the number of copies of a sample of the load."""
        if not self._copies:
            self._loading.sample(1)
            wall = max(self._loading.sample(1).wall, 1e-9)
            self._copies = max(1, min(_MOST_COPIES, round(_LOAD_SAMPLE_S / wall)))


@contextmanager
def _repeated(call: Callable[[], object]) -> Iterator[None]:
    """Repeat a call in a thread until the context is left; its error is raised there."""
    stop, running, errors = threading.Event(), threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                running.set()
                call()
        except BaseException as error:  # raised by the measuring thread
            errors.append(error)

    thread = threading.Thread(target=repeat, name="load", daemon=True)
    with starting_threads():
        thread.start()
    running.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]
