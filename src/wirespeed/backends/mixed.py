"""Measurements whose load belongs to another backend than what is measured, such as a collective next to
transfers, or CPUs next to GPUs, in one process: one backend measures, while the other one repeats the load in
a second thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ..errors import starting_threads
from ..measurement import Measurement, Sample
from ..model import Collective, Role, Transfer, Work
from ..options import RunOptions
from .base import Backend, Prepared

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
