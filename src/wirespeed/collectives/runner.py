"""Runs a collective over types, operators, roots and sizes.

Every process of the World runs the same; each knows all times, and rank 0 makes the Document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import BackendError, OutOfMemory, UsageError
from ..worlds.watch import SETUP_S, Watch
from .base import Case, Elapsed, Provider, Setting, Timing
from .record import Measured, Outcome

#: How the times of all threads become one: rank 0's, or by a function.
_REDUCE: tuple[Callable[[Sequence[float]], float], ...] = (
    lambda times: times[0],
    lambda times: sum(times) / len(times),
    min,
    max,
)


@dataclass(frozen=True)
class Options:
    """What to run and how.

    Parameters
    ----------
    sizes
        Bytes of the whole array.
    cycles
        How often all sizes are run; 0: until interrupted.
    checks
        How often the data is checked at each size.
    average
        Whose time counts: 0 rank 0's, 1 the mean, 2 the least, 3 the largest.
    skip
        How many leading iterations statistics leave out.
    unalign
        By how many elements the buffers are off their alignment.
    """

    settings: tuple[Setting, ...]
    sizes: tuple[int, ...]
    timing: Timing = field(default_factory=Timing)
    warmup: int = 1
    cycles: int = 1
    checks: int = 1
    average: int = 1
    skip: int = 0
    unalign: int = 0


Progress = Callable[[int, int], None]


class Runner:
    """One run.

    Parameters
    ----------
    outcomes
        What was found of each setting; grows while it runs, and holds what there is if it fails.
    progress
        Called in the measuring thread, on every rank, with the indices of a setting and of a size
        that is done; the size is -1 when a setting begins.
    """

    def __init__(self, watch: Watch, provider: Provider, options: Options, progress: Progress) -> None:
        self.watch = watch
        self.world = watch.world
        self.provider = provider
        self.options = options
        self.progress = progress
        self.outcomes = [Outcome(setting) for setting in options.settings]
        self.current = 0
        self._seed = 0
        self._warm = False

    def run(self) -> None:
        """Measure everything.

        Raises
        ------
        WirespeedError
            If the provider lacks an operation, or a rank fails, ends or does not come back.
        """
        provider = self.provider
        for setting in self.options.settings:
            if setting.operation.name not in provider.operations:
                raise UsageError(
                    f"{setting.operation.name} is not implemented over {provider.name}; "
                    f"choose one of {', '.join(provider.operations)}"
                )
        self.watch.run(self._all, provider.cancel if provider.can_cancel else None)

    def _at(self, stage: str) -> None:
        """Begin a stage; until the first operation is done it is part of setting up."""
        self.watch.at(stage, 0.0 if self._warm else SETUP_S)

    def _agree(self, value: object, doing: str) -> list[object]:
        self._at(doing)
        return self.world.allgather(value, doing)

    def _all(self) -> None:
        for i, (setting, outcome) in enumerate(zip(self.options.settings, self.outcomes, strict=True)):
            self.current = i
            self._at(f"preparing {setting}")
            refusals = [r for r in self._agree(self.provider.refuses(setting), f"agreeing on {setting}") if r]
            if refusals and len(self.options.settings) == 1:
                raise UsageError(f"{setting}: {refusals[0]}")
            if refusals:
                outcome.refused = str(refusals[0])
            else:
                self._allocate(setting, outcome)
                self._warm_up(setting, outcome)
            self.progress(i, -1)
            for cycle in self._cycles() if not outcome.refused else ():
                for j, size in enumerate(self.options.sizes):
                    if size not in outcome.waived:
                        self._measure(setting, outcome, j, cycle)
                    self.progress(i, j)
        self._agree(None, "ending")

    def _cycles(self) -> Iterator[int]:
        cycle = 0
        while not self.options.cycles or cycle < self.options.cycles:
            yield cycle
            cycle += 1

    def _case(self, setting: Setting, size: int, in_place: bool, timing: Timing | None = None) -> Case:
        ranks = self.provider.group.ranks
        counts = setting.operation.counts(size // setting.type.bytes, setting.type.bytes, ranks)
        return Case(setting, ranks, counts, in_place, timing or self.options.timing)

    def _allocate(self, setting: Setting, outcome: Outcome) -> None:
        """Have buffers for the largest size; where memory is short, for the largest that fits."""
        self._at(f"allocating for {setting}")
        slack = self.options.unalign * setting.type.bytes
        cases = {
            size: self._case(setting, size, False) for size in sorted(set(self.options.sizes), reverse=True)
        }
        too_large = {size: why for size, case in cases.items() if (why := self.provider.exceeds(case))}
        needed = {size: case.bytes + slack for size, case in cases.items() if size not in too_large}
        fitting, reasons = 0, {}
        for size in needed:
            try:
                self.provider.allocate(needed[size])
            except OutOfMemory as error:
                reasons[size] = f"{self.world.me}: {error}"
            else:
                fitting = size
                break
        reason = next(iter(reasons.values()), next(iter(too_large.values()), ""))
        answers = self._agree([fitting, reason], f"allocating for {setting}")
        pairs = [(int(a[0]), str(a[1])) for a in answers if isinstance(a, list)]
        smallest = min(size for size, _ in pairs)
        reason = next((text for size, text in pairs if size == smallest and text), reason)
        outcome.waived = too_large | {
            size: f"out of memory: {reasons.get(size, reason)}" for size in needed if size > smallest
        }
        if not smallest:
            raise BackendError(f"no size can be run: {reason}")
        if fitting != smallest:
            self.provider.allocate(needed[smallest])
        self.provider.register()

    def _warm_up(self, setting: Setting, outcome: Outcome) -> None:
        """Let the library set up what it needs for every range of sizes: each doubling, once."""
        size, largest = min(self.options.sizes), max(s for s in self.options.sizes if s not in outcome.waived)
        alone = Timing(iterations=1)
        while size <= largest and self.options.warmup:
            self._at(f"warming up {setting} at {size} B")
            self.provider.bind(self._case(setting, size, False, alone))
            for _ in range(self.options.warmup):
                self.provider.once()
            size *= 2

    def _measure(self, setting: Setting, outcome: Outcome, j: int, cycle: int) -> None:
        """Time one size out of place and in place, and check the data."""
        size = self.options.sizes[j]
        for in_place in (False, True):
            case = self._case(setting, size, in_place)
            where = f"{setting} at {size} B {'in place' if in_place else 'out of place'}"
            self._at(f"preparing {where}")
            self.provider.bind(case)
            checked = self.options.checks if setting.operation.checks_in_place or not in_place else 0
            if self.options.checks:
                self.provider.fill(0)
            self.provider.once()
            self._agree(None, f"timing {where}")
            self._warm = True
            self.provider.align()
            elapsed = self.provider.loop()
            rows = self._times(elapsed, f"gathering times of {where}")
            wrong = sum(self._check(where) for _ in range(checked))
            total = sum(int(str(n)) for n in self._agree(wrong, f"checking {where}")) if checked else None
            outcome.add(j, in_place, self._measured(rows, total), cycle)

    def _check(self, where: str) -> int:
        self._seed += 1
        self._at(f"checking {where}")
        self.provider.fill(self._seed)
        self.provider.once()
        return self.provider.wrong(self._seed)

    def _times(self, elapsed: list[Elapsed], doing: str) -> list[list[Elapsed]]:
        """Return what every thread of every process measured."""
        mine = [[e.seconds, e.cpu, list(e.iterations)] for e in elapsed]
        self._at(doing)
        return [
            [Elapsed(seconds, cpu, tuple(iterations)) for seconds, cpu, iterations in row]
            for row in self.world.allgather(mine, doing)
        ]

    def _measured(self, rows: list[list[Elapsed]], wrong: int | None) -> Measured:
        reduce = _REDUCE[self.options.average]
        every = [elapsed for row in rows for elapsed in row]
        by_process = [
            tuple(max(times) for times in zip(*(e.iterations for e in row), strict=True)) for row in rows
        ]
        return Measured(
            reduce([e.seconds for e in every]),
            reduce([e.cpu for e in every]),
            tuple(by_process) if by_process and by_process[0] else (),
            wrong,
        )
