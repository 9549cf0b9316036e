"""Lists of blocks that a GPU copies by each method, timed from the first call to the last byte."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import MeasurementTimeout, Unreachable
from ...measurement import Sample
from ...units import NANO, format_time
from .blocks import BlockCopies, LapTimes
from .prepared import LOAD_LASTS, GpuPrepared

#: Launches of a computation next to block lists: those that show how long one takes without them, those in
#: addition to what the lists need, and the most that a queue has room for.
_ALONE_LAUNCHES, _MORE_LAUNCHES, _MOST_LAUNCHES = 8, 2, 900
#: Time for the threads of several GPUs to reach their common start, in ns.
_START_NS = 1_000_000


class GpuBlocks(GpuPrepared):
    """Block lists with filled pools, and perhaps a computation on the same GPU as load.

    A thread for each GPU makes the calls of its lists, as servers have a process for each, and all begin at
    the same time. The calls of several lists of a GPU alternate.

    The lists wait for no gate: the time of the submission is part of the result. The launches of the
    computation are enqueued behind the gate before. They last longer than the lists: how many ran meanwhile
    follows from the time of the rest, in which they run as fast as without lists.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._of_gpus: dict[str, BlockCopies] = {}
        for bound in self._measured:
            for lane, work in bound.lanes:
                assert isinstance(work, BlockCopies)
                first = self._of_gpus.setdefault(lane.device.name, work)
                if first is not work:
                    first.join(work)
        self._threads = ThreadPoolExecutor(len(self._of_gpus), "block lists")
        self._start = np.zeros(1, np.int64)
        for lists in self._of_gpus.values() if len(self._of_gpus) > 1 else ():
            lists.begin_at(int(self._start.ctypes.data))
        self._load = next((bound for bound in self._moving if not bound.measured), None)
        #: Time of a launch of the computation without lists, and of the lists next to it, in s.
        self._launch_s = self._lap_s = 0.0

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=not self._signals.stuck.is_set())
        super().__exit__(*error)

    def sample(self, copies: int) -> Sample:
        """Move the lists ``copies`` times, each from the first call to the last byte."""
        self._verified = False
        with self._watched():
            every, computed = (self._laps(copies), 0.0) if self._load is None else self._beside(copies)
        spent = {name: float(times[-1, 2] - times[0, 0]) * NANO for name, times in every.items()}
        wall = max(times[-1, 2] for times in every.values()) - min(times[0, 0] for times in every.values())
        submissions = [float((times[:, 1] - times[:, 0]).sum()) * NANO for times in every.values()]
        calls = np.concatenate([times[:, 2] - times[:, 0] for times in every.values()]) * NANO
        amounts = (b.amount * (copies if b.measured else computed) for b in self._moving)
        return Sample(
            tuple(spent[b.device.name] for b in self._moving), tuple(amounts), float(wall) * NANO,
            submitted=max(submissions), calls=tuple(calls.tolist()),
        )  # fmt: skip

    def _laps(self, copies: int) -> dict[str, LapTimes]:
        """Move the lists of all GPUs, each ``copies`` times, from a common start; return the times of each.

        Raises:
            BackendError: If a call failed.
            MeasurementTimeout: If the calls do not return: a GPU hangs.
        """
        timeout = self._options.timeout
        self._start[0] = time.monotonic_ns() + _START_NS
        try:
            every = self._threads.map(
                lambda lists: lists.laps(copies), self._of_gpus.values(), timeout=timeout
            )
            return dict(zip(self._of_gpus, every, strict=True))
        except TimeoutError:
            raise MeasurementTimeout(f"running {self._measurement}", timeout) from None

    def _beside(self, copies: int) -> tuple[dict[str, LapTimes], float]:
        """Move the lists while the GPU computes; return their times, and how many launches ran meanwhile.

        Raises:
            Unreachable: If the lists take longer than the launches for which a queue has room.
        """
        if not self._launch_s:
            self._computed(_ALONE_LAUNCHES, 0)  # the first ones are slower
            self._launch_s = self._computed(_ALONE_LAUNCHES, 0)[1] / _ALONE_LAUNCHES
            self._lap_s = float(max(map(np.ptp, self._laps(1).values()))) * NANO
        while True:
            needed = math.ceil(LOAD_LASTS * self._lap_s * copies / self._launch_s) + _MORE_LAUNCHES
            launches = min(needed, _MOST_LAUNCHES)
            times, computing_s = self._computed(launches, copies)
            lists_s = float((times[:, 2] - times[:, 0]).sum()) * NANO
            self._lap_s = max(self._lap_s, lists_s / copies)
            if computing_s >= lists_s:
                computed = max(0.0, launches - (computing_s - lists_s) / self._launch_s)
                return dict.fromkeys(self._of_gpus, times), computed
            if launches == _MOST_LAUNCHES:
                raise Unreachable(
                    f"takes {format_time(lists_s / copies)}: longer than the computations that a queue of "
                    "the GPU has room for"
                )
            self._lap_s *= 2

    def _computed(self, launches: int, copies: int) -> tuple[LapTimes, float]:
        """Compute, and move the lists from the same start; return their times and that of computing, in s."""
        assert self._load is not None
        (lane, work), *_ = self._load.lanes
        self._gate.close_all()
        with self._unblocking(launches):
            lane.device.use()
            self._gate.hold(lane.device, lane.stream)
            lane.record(lane.start)
            work.put(launches)
            lane.record(lane.stop)
        self._gate.release()
        (times,) = self._laps(copies).values()
        self._await([lane.stop], f"computing next to {self._measurement}")
        return times, lane.elapsed(lane.start, lane.stop)
