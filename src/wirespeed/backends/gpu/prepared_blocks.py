"""Lists of blocks that a GPU copies by each method, timed from the first call to the last byte."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import MeasurementTimeout
from ...measurement import Sample
from ...units import NANO
from .blocks import BlockCopies, LapTimes
from .prepared import GpuPrepared

#: Time for the threads of several GPUs to reach their common start, in ns.
_START_NS = 1_000_000


class GpuBlocks(GpuPrepared):
    """Block lists with filled pools.

    A thread for each GPU makes the calls of its lists, as servers have a process for each, and all begin at
    the same time. The calls of several lists of a GPU alternate.

    The lists wait for no gate: the time of the submission is part of the result.
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

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=not self._signals.stuck.is_set())
        super().__exit__(*error)

    def sample(self, copies: int) -> Sample:
        """Move the lists ``copies`` times, each from the first call to the last byte."""
        self._verified = False
        with self._watched():
            every = self._laps(copies)
        spent = {name: float(times[-1, 2] - times[0, 0]) * NANO for name, times in every.items()}
        wall = max(times[-1, 2] for times in every.values()) - min(times[0, 0] for times in every.values())
        submissions = [float((times[:, 1] - times[:, 0]).sum()) * NANO for times in every.values()]
        calls = np.concatenate([times[:, 2] - times[:, 0] for times in every.values()]) * NANO
        amounts = (bound.amount * copies for bound in self._moving)
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
