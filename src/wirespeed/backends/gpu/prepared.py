"""A Measurement bound to streams: runs behind the gate, timed by events, and verified."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import BackendError, BackendLost, MeasurementTimeout, VerificationError
from ...measurement import Measurement, Sample
from ...model import Transfer
from ...options import RunOptions
from ..base import Prepared
from .bound_copy import Binder, BoundCopy, Buffers
from .device import TimedStream
from .gate import Gate

#: Copies enqueued in a stream before the release: its queue has room for about 1000 entries, and a copy may
#: take several.
_QUEUE_COPIES = 100
#: This many copies never fill a queue; after this many seconds of enqueueing, a queue is considered full.
_UNWATCHED_COPIES, _QUEUE_FULL_S = 32, 0.5
#: Copies that each stream gets per turn after the release.
_TURN_COPIES = 64
#: A load that ended before the measured transfers is repeated until it lasts this multiple of their time,
#: at most this many times.
LOAD_LASTS, _MOST_REPEATS = 1.5, 10_000
#: Time for work to end after a time-out or a cancellation, in s.
_CANCEL_GRACE_S = 3.0
_LONGEST_SLEEP_S = 1e-3


@dataclass(frozen=True)
class Signals:
    """Signals between the backend and its prepared measurements: stop requests, and stuck work."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    stuck: threading.Event = field(default_factory=threading.Event)


class GpuPrepared(Prepared):
    """A Measurement with filled buffers and streams that are ready.

    Destinations are poisoned when it is created and by every ``verify``. So the next ``verify`` finds what a
    sample did not write or wrote wrong. Loads are verified once: their rate does not count, and verifying
    them can take longer than measuring.

    Attributes:
        buffers: Buffers of each transfer, in the order of the Measurement.
    """

    def __init__(
        self,
        measurement: Measurement,
        engines: Sequence[int],
        binder: Binder,
        gate: Gate,
        signals: Signals,
        options: RunOptions,
    ) -> None:
        self._measurement = measurement
        self._binder, self._gate = binder, gate
        self._signals, self._options = signals, options
        self._left: list[int] = []
        self._verified = True
        self._loads_checked = False
        try:
            self._bound: list[BoundCopy] = [
                binder.bind(i, transfer, n, _sharing(transfer, measurement.transfers))
                for i, (transfer, n) in enumerate(zip(measurement.transfers, engines, strict=True))
            ]
            self._run_contents("filling the buffers of")
        except BaseException:
            self._give_back()
            raise
        #: Transfers whose work this process enqueues; of others it only fills or verifies buffers.
        self._moving = [bound for bound in self._bound if bound.lanes]
        self._measured = [bound for bound in self._moving if bound.measured]
        #: How often each of these makes the copies of a sample; only for loads not 1.
        self._repeats = [1.0] * len(self._moving)
        #: Copies of a sample, and how many each of these makes in it.
        self._copies = 1
        self._counts: list[int] = []
        self.buffers: list[Buffers] = [bound.buffers for bound in self._bound]

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def sample(self, copies: int) -> Sample:
        """Run every transfer ``copies`` times from a common start, and return the times.

        A copy of a chase is ``work.ACCESSES`` accesses on each multiprocessor.
        """
        self._gate.close_all()
        self.arm(copies)
        self._gate.release()
        return self.finish()

    def repeat(self, times: Sequence[float]) -> None:
        """From now on, make the copies of each transfer of the Measurement several times."""
        self._repeats = [n for n, bound in zip(times, self._bound, strict=True) if bound.lanes]

    def arm(self, copies: int) -> None:
        """Enqueue work behind the closed gate, as far as the queues have room."""
        self._verified, self._copies = False, copies
        if not self._moving:
            return
        self._counts = [
            max(1, math.ceil(copies * times)) if times != 1 else copies for times in self._repeats
        ]
        if not all(b.held for b in self._moving):
            self._gate.release()
        with self._watched(), self._unblocking(max(self._counts)):
            for lane in self._lanes():
                lane.device.use()
                self._gate.hold(lane.device, lane.stream)
            self._warm_up()
            self._left = self._put(self._counts, _QUEUE_COPIES)

    def finish(self) -> Sample:
        """After the release, enqueue the rest, wait for the end, and return the times of what it enqueued."""
        if not self._moving:
            return Sample((), (), 0.0)
        bound, first, stage = self._moving, self._measured[0].lane, f"running {self._measurement}"
        with self._watched():
            while any(self._left):
                self._left = self._put(self._left, _TURN_COPIES)
            self._await([first.end, *(b.lane.stop for b in bound)], stage)
        seconds = [b.lane.elapsed(b.lane.start, b.lane.stop) for b in bound]
        amounts = [b.amount * n for b, n in zip(bound, self._counts, strict=True)]
        self._adapt_loads(seconds)
        return Sample(
            tuple(seconds),
            tuple(amounts),
            first.elapsed(first.start, first.end if len(self._measured) > 1 else first.stop),
        )

    def verify(self) -> None:
        if self._verified:
            return
        fillers = self._binder.fillers
        checked = [bound for bound in self._bound if bound.measured or not self._loads_checked]
        self._loads_checked = True
        for bound in checked:
            for expected in bound.awaited():
                next(f for f in fillers if f.device is expected.region.device).compare(expected)
        self._run_contents("comparing the destinations of")
        self._verified = True
        failures = [
            VerificationError(expected.text, 8 * index, wrong, expected.words)
            for contents in fillers
            for expected, wrong, index in contents.compared()
            if wrong
        ]
        if failures:
            raise failures[0]
        for bound in checked:
            bound.check_account()

    def _lanes(self) -> list[TimedStream]:
        return [lane for bound in self._moving for lane, _ in bound.lanes]

    def _warm_up(self) -> None:
        """Enqueue a warm-up in each stream, then let the measured transfers start together.

        Loads continue independently: they must run before the others start.
        """
        first = self._measured[0].lane
        for bound in self._moving:
            bound.device.use()
            for _, work in bound.lanes:
                work.warm_up()
        for bound in self._measured[1:]:
            bound.lane.record(bound.lane.ready)
            first.wait(bound.lane.ready)
        for bound in (self._measured[0], *(b for b in self._moving if b is not self._measured[0])):
            lane = bound.lane
            if bound.measured and lane is not first:
                lane.wait(first.start)
            lane.record(lane.start)
            for other, _ in bound.lanes[1:]:
                other.wait(lane.start)

    def _put(self, left: Sequence[int], most: int) -> list[int]:
        """Enqueue a turn of the remaining copies in every stream; return the number of remaining copies.

        The end of a transfer is recorded as soon as its copies are enqueued: loads may take longer.
        """
        remaining = []
        for bound, copies in zip(self._moving, left, strict=True):
            bound.device.use()
            turn = copies if bound.lanes[0][1].loops else min(copies, most)
            for _, work in bound.lanes if turn else ():
                work.put(turn)
            remaining.append(copies - turn)
            if turn and not remaining[-1]:
                self._put_end(bound)
        of_measured = [i for i, bound in enumerate(self._moving) if bound.measured]
        if any(left[i] for i in of_measured) and not any(remaining[i] for i in of_measured):
            self._put_end_of_all()
        return remaining

    def _put_end(self, bound: BoundCopy) -> None:
        """Record the end of a transfer whose copies are all enqueued."""
        for lane, _ in bound.lanes[1:]:
            lane.record(lane.stop)
            bound.lane.wait(lane.stop)
        bound.lane.record(bound.lane.stop)

    def _put_end_of_all(self) -> None:
        """Record the end of all measured transfers, whose copies are all enqueued."""
        first = self._measured[0].lane
        for bound in self._measured[1:]:
            first.wait(bound.lane.stop)
        first.record(first.end)

    def _adapt_loads(self, seconds: Sequence[float]) -> None:
        """Repeat loads more often in the next samples if they ended before the measured transfers."""
        end = max(s for s, bound in zip(seconds, self._moving, strict=True) if bound.measured)
        for i, bound in enumerate(self._moving):
            if not bound.measured and 0 < seconds[i] < end:
                wanted = self._counts[i] / self._copies * LOAD_LASTS * end / seconds[i]
                self._repeats[i] = min(math.ceil(wanted), _MOST_REPEATS)

    def _run_contents(self, action: str) -> None:
        with self._watched():
            events = [contents.flush() for contents in self._binder.fillers]
            self._await(events, f"{action} {self._measurement}")

    def _await(self, events: Sequence[Any], stage: str) -> None:
        """Wait until events have happened, the time-out is reached or the sample is cancelled."""
        start = time.monotonic()
        happened = self._bound[0].device.driver.has_happened
        for event in events:
            while not happened(event):
                waited = time.monotonic() - start
                self._check(stage, waited)
                # Sleeping for a small fraction of the elapsed time costs nothing and frees the CPU.
                time.sleep(min(waited / 64, _LONGEST_SLEEP_S))

    def _check(self, stage: str, waited: float) -> None:
        """Raise an error if the sample was cancelled, or has waited too long."""
        if self._signals.cancelled.is_set():
            raise BackendError(f"{stage} was cancelled")
        if waited > self._options.timeout:
            raise MeasurementTimeout(stage, self._options.timeout)

    @contextmanager
    def _unblocking(self, copies: int) -> Iterator[None]:
        """Open the gate if enqueueing behind it takes too long.

        The driver decides how much of a queue a copy takes. When the queue is full, the next call waits for
        the gate, which this thread has to open.
        """
        guard = threading.Timer(_QUEUE_FULL_S, self._gate.open, (self._gate.serial,))  # not a later round
        if copies > _UNWATCHED_COPIES:
            guard.start()
        try:
            yield
        finally:
            guard.cancel()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Let work end after any error, so that buffers and streams can be reused."""
        try:
            yield
        except BackendLost:
            self._signals.stuck.set()
            self._gate.release()
            raise
        except BaseException as error:
            self._gate.release()
            deadline = time.monotonic() + _CANCEL_GRACE_S
            for lane in (*self._binder.lanes, *(contents.lane for contents in self._binder.fillers)):
                while not lane.is_idle:
                    if time.monotonic() > deadline:
                        self._signals.stuck.set()
                        raise BackendLost(
                            f"the GPU is busy {_CANCEL_GRACE_S:g} s after this error: {error}"
                        ) from error
                    time.sleep(_LONGEST_SLEEP_S)
            raise

    def abandon(self) -> None:
        """Let the enqueued work run out."""
        with suppress(BackendError), self._watched():
            raise BackendError("abandoned")

    def _give_back(self) -> None:
        """Release buffers and streams, unless work that never ended may still use them."""
        if self._signals.stuck.is_set():
            return
        self._binder.give_back()


#: Time between two looks at the end of a copy that the host's clock times, in s: 0.1% of a copy of 512 MiB at
#: 25 GB/s.
_LOOK_S = 20e-6


class HostTimed(GpuPrepared):
    """A Measurement that the host's clock times: a copy with the host in confidential computing mode.

    There the driver encrypts in the thread that enqueues, and events do not time what it does (NVIDIA's notes
    RN-12523-001). So nothing is enqueued before the start.
    """

    def arm(self, copies: int) -> None:
        self._verified, self._copies, self._counts = False, copies, [copies] * len(self._moving)
        self._gate.release()
        with self._watched():
            self._warm_up()
            self._await([bound.lane.start for bound in self._moving], f"warming up {self._measurement}")

    def finish(self) -> Sample:
        stage, left = f"running {self._measurement}", self._counts
        ends: dict[int, float] = {}
        happened = self._bound[0].device.driver.has_happened
        begin = time.perf_counter()
        with self._watched():
            while any(left):
                left = self._put(left, 1)
                self._check(stage, time.perf_counter() - begin)
            while len(ends) < len(self._moving):
                now = time.perf_counter() - begin
                for i, bound in enumerate(self._moving):
                    if i not in ends and happened(bound.lane.stop):
                        ends[i] = now
                self._check(stage, now)
                time.sleep(_LOOK_S)
        seconds = tuple(ends[i] for i in range(len(self._moving)))
        amounts = (bound.amount * n for bound, n in zip(self._moving, self._counts, strict=True))
        return Sample(seconds, tuple(amounts), max(seconds, default=0.0))


def _sharing(transfer: Transfer, all_of_them: Sequence[Transfer]) -> int:
    """The number of transfers that share a source or destination with one, including itself."""
    return max(
        sum(other.source == transfer.source for other in all_of_them),
        sum(other.destination == transfer.destination for other in all_of_them),
    )
