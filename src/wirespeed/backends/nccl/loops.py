"""Loops of operations on the ranks of one thread, in every timing mode. The calls of a loop are prepared in
advance, so that nothing is decided while it is timed; neither the calls nor the waits hold the interpreter's
lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Any, TypeVar

from ...collectives.data_types import BY_NAME, OPERATORS
from ...errors import BackendError, BackendLost
from ..call_tables import Call, Functions
from ..provider import Case, Elapsed
from .calls import RankGpu, Site, calls, grouped, in_context

_SUM, _FLOAT = OPERATORS.index("sum"), BY_NAME["float"].code
#: Graphs and their executable graphs, one per rank.
Captured = list[tuple[Any, Any]]
#: Makes prepared calls.
Run = Callable[[], None]
T = TypeVar("T")
_CANCELLED = "the operation was cancelled because another rank failed or a stage timed out"


class Loop:
    """A case bound to the ranks of one thread.

    Attributes:
        functions: Functions of NCCL and of the driver.
        cancelled: Set when the communicators are aborted.
        case: The loop.
        sites: The ranks of the thread with their GPUs.
        shifts: Offset of the buffers of each operation, in bytes.
        meet: Waits on the host until all threads of all processes have come there.
    """

    def __init__(
        self,
        functions: Functions,
        cancelled: Event,
        case: Case,
        sites: Sequence[tuple[Site, RankGpu]],
        shifts: Sequence[int],
        meet: Run,
    ) -> None:
        self._functions, self._cancelled = functions, cancelled
        self._timing = case.options
        self._case = case
        self._sites = [site for site, _ in sites]
        self._gpus = [gpu for _, gpu in sites]
        self._shifts = shifts
        self._meet = meet
        self._waiting = functions.bind(self._waits())

    def once(self) -> None:
        """Run the first operation and wait for it; as a graph if the loop is one."""
        first = self._bind(calls(self._case, self._sites, 0))
        if self._timing.graphs:
            captured = self._capture([first])
            self._launch(captured)
            self._wait()
            self._destroy(captured)
        else:
            first()
            self._wait()

    def align(self) -> None:
        """Synchronise the ranks with an all-reduce of one element."""
        self._bind(self._alignment())()
        self._wait()

    def time(self) -> Elapsed:
        """Run the loop and return its times."""
        if self._timing.graphs:
            return self._graph()
        if self._timing.blocking or self._timing.per_iteration:
            return self._stepwise()
        return self._free_running()

    def _program(self) -> list[list[Call]]:
        by_shift: dict[int, list[Call]] = {}
        iterations = []
        for i in range(self._timing.iterations):
            iteration: list[Call] = []
            for shift in self._shifts[i * self._timing.aggregate : (i + 1) * self._timing.aggregate]:
                if shift not in by_shift:
                    by_shift[shift] = calls(self._case, self._sites, shift)
                iteration += by_shift[shift]
            iterations.append(grouped(iteration) if self._timing.aggregate > 1 else iteration)
        return iterations

    def _alignment(self) -> list[Call]:
        return grouped([
            ("ncclAllReduce", (gpu.scratch, gpu.scratch + 8, 1, _FLOAT, _SUM, site.comm, site.stream))
            for site, gpu in zip(self._sites, self._gpus, strict=True)
        ])  # fmt: skip

    def _waits(self) -> list[Call]:
        return [
            call for site in self._sites for call in in_context(site, site.driver.synchronize(site.stream))
        ]

    def _marks(self, count: int) -> tuple[list[list[Any]], list[Run]]:
        """``count`` events per rank, and functions that record each of them on all ranks."""
        events = [gpu.events(count) for gpu in self._gpus]
        marks = [
            self._bind([
                call
                for site, mine in zip(self._sites, events, strict=True)
                for call in in_context(site, site.driver.record(int(mine[i]), site.stream))
            ])
            for i in range(count)
        ]  # fmt: skip
        return events, marks

    def _bind(self, calls: Sequence[Call]) -> Run:
        return partial(self._made, self._functions.bind(calls))

    def _made(self, call: Callable[[], T]) -> T:
        """Make calls; an error if the operation was cancelled meanwhile, whatever it made fail."""
        try:
            return call()
        finally:
            if self._cancelled.is_set():
                raise BackendLost(_CANCELLED)

    def _wait(self) -> None:
        try:
            self._made(self._waiting)
        except BackendLost:
            raise
        except BackendError:
            for gpu in self._gpus:
                gpu.wait()  # raises the error of the driver
            raise

    def _elapsed(self, spent: float, enqueued: float, iterations: tuple[float, ...] = ()) -> Elapsed:
        count = self._timing.operations * max(1, self._timing.graphs)
        return Elapsed(spent / count, enqueued / count, iterations)

    def _free_running(self) -> Elapsed:
        """Time a loop that waits once, after all operations."""
        flat = [call for iteration in self._program() for call in iteration]
        before = [*self._alignment(), *self._waits()]
        enqueued, spent = self._made(lambda: self._functions.timed(before, flat, self._waits()))
        return self._elapsed(spent, enqueued)

    def _stepwise(self) -> Elapsed:
        """Time a loop with waits and synchronisation after iterations, or with events around each."""
        timing, count = self._timing, self._timing.iterations
        paired = timing.blocking == 3  # the time between iterations does not count
        program = [self._bind(iteration) for iteration in self._program()]
        edges = [(2 * i, 2 * i + 1) if paired else (i, i + 1) for i in range(count)]
        events, marks = self._marks(edges[-1][1] + 1 if timing.per_iteration else 0)
        self.align()
        counted, now = 0.0, time.perf_counter
        start = now()
        for i, run in enumerate(program):
            before, after = edges[i]
            began = now()
            if marks:
                marks[before]()
            run()
            if timing.blocking:
                self._wait()
            if paired:
                if marks:
                    marks[after]()
                counted += now() - began
            if timing.blocking in (1, 3):
                self._meet()
        if marks and not paired:
            marks[-1]()
        enqueued = now() - start
        self._wait()
        spent = now() - start
        if paired:
            spent = enqueued = counted
        iterations = tuple(
            max(self._gpus[0].driver.elapsed(mine[a], mine[b]) for mine in events) / timing.aggregate
            for a, b in (edges if marks else ())
        )
        return self._elapsed(spent, enqueued, iterations)

    def _graph(self) -> Elapsed:
        captured = self._capture([self._bind(iteration) for iteration in self._program()])
        self.align()
        start = time.perf_counter()
        for _ in range(self._timing.graphs):
            self._launch(captured)
        enqueued = time.perf_counter() - start
        self._wait()
        spent = time.perf_counter() - start
        self._destroy(captured)
        return self._elapsed(spent, enqueued)

    def _capture(self, program: Sequence[Run]) -> Captured:
        """A graph of the calls of each rank. Other threads may allocate memory meanwhile."""
        for gpu in self._gpus:
            gpu.use()
            gpu.driver.begin_capture(gpu.stream)
        for run in program:
            run()
        graphs = [gpu.driver.end_capture(gpu.stream) for gpu in self._gpus]
        captured = []
        for gpu, graph in zip(self._gpus, graphs, strict=True):  # not allowed during a capture
            gpu.use()
            captured.append((graph, gpu.driver.executable(graph)))
        return captured

    def _launch(self, captured: Captured) -> None:
        for gpu, (_, executable) in zip(self._gpus, captured, strict=True):
            gpu.use()
            gpu.driver.launch_graph(executable, gpu.stream)

    def _destroy(self, captured: Captured) -> None:
        for gpu, (graph, executable) in zip(self._gpus, captured, strict=True):
            gpu.driver.destroy_graph(graph, executable)
