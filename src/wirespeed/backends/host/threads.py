"""Permanent threads: one per CPU, pinned to it, waiting for work without using the CPU."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

from ...errors import BackendError, BackendLost, MeasurementTimeout, starting_threads

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
