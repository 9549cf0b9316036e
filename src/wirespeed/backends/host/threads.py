"""Permanent threads: one per CPU, pinned to it, waiting for work without using the CPU."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from ...errors import BackendError, BackendLost, MeasurementTimeout

Result = TypeVar("Result")
Task = Callable[[], Result]
_Outcome = tuple[int, object, BaseException | None]
_Job = tuple[int, Task[object], "SimpleQueue[_Outcome]"]
#: CPU, number of earlier threads of the same run on it, whether it is pinned.
_Key = tuple[int, int, bool]
_ENDING = 1.0  # maximum time for an idle thread to end, in s


class Workers:
    """A pool of daemon threads, created on first use.

    Attributes
    ----------
    unpinned : dict[int, str]
        CPUs to which a thread could not be pinned -> reason.
    """

    def __init__(self) -> None:
        self.unpinned: dict[int, str] = {}
        self._inboxes: dict[_Key, SimpleQueue[_Job | None]] = {}
        self._threads: list[Thread] = []
        self._closed = False
        self._starting = Lock()

    def run(
        self,
        tasks: Sequence[tuple[int, Task[Result]]],
        *,
        pin: bool,
        timeout: float,
        stage: str,
        stop: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Run each task on its CPU, all at the same time, and return their results in order.

        The calling thread sleeps. When it is interrupted or the time is over, it calls ``stop`` and waits
        until no task runs, so that their memory can be freed.

        Raises
        ------
        MeasurementTimeout
            If not all tasks end in time; the message names the ``stage``.
        BackendError
            If no thread can be started, or the pool is closed, which frees the memory of a task.
        BackendLost
            If the tasks did not end even after ``stop``.
        """
        outcomes: SimpleQueue[_Outcome] = SimpleQueue()
        before: Counter[int] = Counter()
        inboxes = []
        for cpu, _ in tasks:
            inboxes.append(self._inbox((cpu, before[cpu], pin)))
            before[cpu] += 1
        results: dict[int, object] = {}
        failures: list[BaseException] = []
        posted = 0
        try:
            for index, (inbox, (_, task)) in enumerate(zip(inboxes, tasks, strict=True)):
                inbox.put((index, task, outcomes))
                posted += 1
            _collect(outcomes, posted, results, failures, timeout)
        except BaseException as error:
            stop()
            try:
                _collect(outcomes, posted, results, failures, timeout)
            except Empty:
                raise BackendLost(f"threads do not return from {stage}") from error
            if isinstance(error, Empty):
                raise MeasurementTimeout(stage, timeout) from None
            raise
        if failures:
            raise failures[0]
        return [results[i] for i in range(len(tasks))]  # type: ignore[misc]

    def close(self) -> bool:
        """End the threads; return whether they have ended, so that their memory is unused."""
        with self._starting:
            self._closed = True
        for inbox in self._inboxes.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join(_ENDING)
        return not any(thread.is_alive() for thread in self._threads)

    def _inbox(self, key: _Key) -> SimpleQueue[_Job | None]:
        with self._starting:
            if self._closed:
                raise BackendError("the measuring threads have ended")
            if key not in self._inboxes:
                inbox: SimpleQueue[_Job | None] = SimpleQueue()
                thread = Thread(target=self._serve, args=(key, inbox), name=f"cpu{key[0]}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise BackendError(
                        f"could not start a thread for CPU {key[0]}: {error}; "
                        "allow this process more threads (ulimit -u, pids.max of its control group)"
                    ) from error
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


def _collect(
    outcomes: SimpleQueue[_Outcome],
    number: int,
    results: dict[int, object],
    failures: list[BaseException],
    timeout: float,
) -> None:
    """Collect a number of outcomes. Raises Empty when the time is over."""
    deadline = time.monotonic() + timeout
    while len(results) < number:
        index, result, failure = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
        results[index] = result
        if failure is not None:
            failures.append(failure)
