"""Permanent threads and their gate: one per CPU, pinned to it, waiting for work without using the CPU. The
gate is common to the threads of one process, or of all processes of a host; its clock is in memory, for
streams of GPUs, which can wait for a word but cannot read a clock.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

import numpy as np

from ...errors import BackendError, BackendLost, MeasurementTimeout, starting_threads
from ...units import NANO
from . import kernels
from .kernels import WORD

Result = TypeVar("Result")
Task = Callable[[], Result]
_Outcome = tuple[int, object, BaseException | None]
_Job = tuple[int, Task[object], "SimpleQueue[_Outcome]"]
#: CPU, number of earlier threads of the same run on it, whether it is pinned.
_Key = tuple[int, int, bool]
#: Maximum time for an idle thread to end, in s.
_THREAD_END_S = 1.0
#: Minimum time for stopped tasks to return, in s: filling memory cannot be stopped.
_STOP_GRACE_S = 5.0


class Workers:
    """A pool of daemon threads, created on first use.

    Attributes:
        unpinned: CPUs to which a thread could not be pinned -> reason.
    """

    def __init__(self) -> None:
        self.unpinned: dict[int, str] = {}
        self._inboxes: dict[_Key, SimpleQueue[_Job | None]] = {}
        self._threads: list[Thread] = []
        self._closed = False
        self._starting = Lock()

    def start(
        self,
        tasks: Sequence[tuple[int, Task[Result]]],
        *,
        pin: bool,
        timeout: float,
        stage: str,
        stop: Callable[[], None] = lambda: None,
    ) -> RunningTasks[Result]:
        """Start each task on its CPU, all at the same time.

        Args:
            tasks: The CPU and the function of each task.
            pin: Whether each thread is pinned to its CPU.
            timeout: Maximum time from now until all tasks have ended, in s.
            stage: What the tasks do, for errors.
            stop: Make the tasks end soon.

        Raises:
            BackendError: If no thread can be started, or the pool is closed, which frees the memory of a
                task.
        """
        before: Counter[int] = Counter()
        inboxes = []
        for cpu, _ in tasks:
            inboxes.append(self._inbox((cpu, before[cpu], pin)))
            before[cpu] += 1
        running: RunningTasks[Result] = RunningTasks(timeout, stage, stop)
        with running.stopping():
            for inbox, (_, task) in zip(inboxes, tasks, strict=True):
                inbox.put((running.posted, task, running.outcomes))
                running.posted += 1
        return running

    def threads(self) -> list[tuple[int, int]]:
        """The CPU and the thread ID of each thread."""
        threads = zip(list(self._inboxes), list(self._threads), strict=False)  # others may be starting
        return [(cpu, thread.native_id) for (cpu, *_), thread in threads if thread.native_id is not None]

    def close(self) -> bool:
        """End the threads; return whether they have ended, so that their memory is unused."""
        with self._starting:
            self._closed = True
        for inbox in self._inboxes.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join(_THREAD_END_S)
        return not any(thread.is_alive() for thread in self._threads)

    def _inbox(self, key: _Key) -> SimpleQueue[_Job | None]:
        with self._starting:
            if self._closed:
                raise BackendError("the measuring threads have ended")
            if key not in self._inboxes:
                inbox: SimpleQueue[_Job | None] = SimpleQueue()
                thread = Thread(target=self._serve, args=(key, inbox), name=f"cpu{key[0]}", daemon=True)
                with starting_threads(f"CPU {key[0]}"):
                    thread.start()
                self._threads.append(thread)
                self._inboxes[key] = inbox
            return self._inboxes[key]

    def _serve(self, key: _Key, inbox: SimpleQueue[_Job | None]) -> None:
        cpu, _, pin = key
        if pin:
            try:
                os.sched_setaffinity(0, {cpu})  # 0: this thread
            except OSError as error:
                self.unpinned[cpu] = str(error.strerror)
        while (job := inbox.get()) is not None:
            index, task, outcomes = job
            try:
                outcomes.put((index, task(), None))
            except BaseException as error:  # raised in the calling thread
                outcomes.put((index, None, error))


class RunningTasks(Generic[Result]):
    """Tasks that were started together."""

    def __init__(self, timeout: float, stage: str, stop: Callable[[], None]) -> None:
        self.outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        self.posted = 0
        self._timeout, self._stage, self._stop = timeout, stage, stop
        self._deadline = time.monotonic() + timeout
        self._results: dict[int, object] = {}
        self._failures: list[BaseException] = []

    def results(self) -> list[Result]:
        """Wait until all tasks have ended, and return their results in order.

        The calling thread sleeps. When it is interrupted or the time is over, it stops the tasks and waits
        until none runs, so that their memory can be freed.

        Raises:
            MeasurementTimeout: If not all tasks end in time; the message names the stage.
            BackendLost: If the tasks did not end even after ``stop``.
        """
        with self.stopping():
            self._collect()
        if self._failures:
            raise self._failures[0]
        return [self._results[i] for i in range(self.posted)]  # type: ignore[misc]

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """After any error, stop the tasks and wait until none runs."""
        try:
            yield
        except BaseException as error:
            self._stop()
            self._deadline = time.monotonic() + max(self._timeout, _STOP_GRACE_S)
            why = MeasurementTimeout(self._stage, self._timeout) if isinstance(error, Empty) else error
            try:
                self._collect()
            except Empty:
                raise BackendLost(f"threads do not return from {self._stage}") from why
            if why is not error:
                raise why from None
            raise

    def _collect(self) -> None:
        """Collect all outcomes. Raises Empty when the time is over."""
        while len(self._results) < self.posted:
            index, result, failure = self.outcomes.get(timeout=max(0.0, self._deadline - time.monotonic()))
            self._results[index] = result
            if failure is not None:
                self._failures.append(failure)


Words = np.ndarray[Any, np.dtype[np.int64]]
#: Number of expected threads of a gate that only ``kernels.open_gate`` opens.
NEVER = -1


class HostGate:
    """Words at which threads wait for each other; ``kernels`` defines their places.

    Attributes:
        words: One gate; or two that are used in turn, so that one process can reset a gate before threads of
            other processes arrive at it.
        timeout: Maximum time that a thread waits, in s.
        expected: Number of threads that open the gate when all have arrived.
    """

    def __init__(self, words: Words, timeout: float, expected: int) -> None:
        self._words = words
        self._round = 0
        words[:, kernels.TIMEOUT_NS // WORD] = round(timeout / NANO)
        self[kernels.EXPECTED] = expected

    @property
    def address(self) -> int:
        """Address of the gate of this round."""
        return int(self._current.ctypes.data)

    def __getitem__(self, place: int) -> int:
        return int(self._current[place // WORD])

    def __setitem__(self, place: int, value: int) -> None:
        self._words[:, place // WORD] = value

    def begin(self, *, resets: bool = True, running: int = 0) -> None:
        """Begin a round.

        Args:
            resets: Whether this process resets a gate: the only one, or the gate of the next round.
            running: Number of measured threads, until whose end the loads run.
        """
        self._round += 1
        if resets:
            following = self._words[(self._round + 1) % len(self._words)]
            for place in (kernels.ARRIVED, kernels.RELEASED, kernels.CANCEL):
                following[place // WORD] = 0
            following[kernels.RUNNING // WORD] = running

    def cancel(self) -> None:
        """Make the waiting and working threads of this round return soon."""
        self._current[kernels.CANCEL // WORD] = kernels.CANCELLED

    @property
    def _current(self) -> Words:
        current: Words = self._words[self._round % len(self._words)]
        return current


def private_gate(threads: int, timeout: float) -> HostGate:
    """The gate of a number of threads of this process."""
    return HostGate(np.zeros((1, kernels.ROWS // WORD), np.int64), timeout, threads)


def shared_gate(address: int, timeout: float) -> HostGate:
    """The gate of all processes of a host, in zeroed memory that all have mapped."""
    words = (ctypes.c_int64 * (2 * kernels.ROWS // WORD)).from_address(address)
    return HostGate(np.ctypeslib.as_array(words).reshape(2, -1), timeout, NEVER)
