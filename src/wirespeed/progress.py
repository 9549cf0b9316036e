"""Progress on standard error, if it is a terminal, and how long a long run takes before it begins."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .document import Document, Status, TestcaseResult
from .driver.listener import Listener
from .driver.run_plan import run_plan
from .errors import WirespeedError
from .options import PlanOptions, RunOptions, declared
from .terminal import one_line
from .testcases.table import Testcase
from .units import many

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Width of the bar.
_WIDTH = 24
#: Typical time of preparing and verifying a measurement, in s; its share in a testcase's time.
_PREPARING_S = 0.2
#: Runs that are expected to take longer say so before they begin, in s.
LONG_S = 120.0
#: Minimum time of measuring from which the remaining time is estimated, in s.
_LEAST_S = 1.0


def listener() -> list[Listener]:
    """Listeners that show progress; empty if standard error is no terminal, or one that moves no cursor."""
    return [Bars()] if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else []


class Announcement(Listener):
    """Says, before a long run begins, how long it takes and how to shorten it; not in virtual time.

    Attributes:
        options: The options of the run.
    """

    def __init__(self, options: RunOptions) -> None:
        self.options = options

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Print one line on standard error if the run is long."""
        if document.simulated or self.options.within is not None:
            return
        planned = [entry for entry in run_plan(testcases, document.machine, self.options) if not entry.reason]
        seconds = math.fsum(entry.seconds for entry in planned)
        if seconds > LONG_S:
            values = many(sum(entry.values for entry in planned), "value")
            quick = "" if self.options.tier == "quick" else ", or --tier quick"
            print(
                f"{values} take about {seconds / 60:.0f} min; for less: --within 2min{quick}", file=sys.stderr
            )


class Bars(Listener):
    """How many of the testcases that can be measured have ended, the time left, and the current measurement.

    The length of the bar is in units of the time that testcases may take. The remaining time follows from the
    speed since the first measurement, which also compiles; until then none is shown.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._started = time.monotonic()
        self._document: Document | None = None
        self._weights: dict[str, float] = {}  #: testcase that can be measured -> typical time in s
        self._ended: set[str] = set()
        self._current = ""
        #: Testcase that has begun -> number of measurements in all rounds, and those that are done.
        self._begun: dict[str, tuple[int, int]] = {}
        self._since: tuple[float, float] | None = None  #: time and work done at the end of a measurement
        self.live = Live(console=Console(stderr=True), get_renderable=self.render, transient=True)

    def render(self) -> RenderableType:
        """A line with the bar, and below it the current measurement."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1, 0, 0))
        done, total = self.work
        line.add_row(
            f"{len(self._ended)} of {many(len(self._weights), 'testcase')}",
            ProgressBar(total or None, done, width=_WIDTH),
            _clock(time.monotonic() - self._started),
            self.left,
        )
        return Group(line, Text(self._current, no_wrap=True, overflow="ellipsis", style="dim"))

    @property
    def work(self) -> tuple[float, float]:
        """The work that is done, and all of it."""
        weights = dict(self._weights)  # another thread renders
        done = sum(weights[name] for name in tuple(self._ended))
        parts = ((name, min(1.0, part / total)) for name, (total, part) in tuple(self._begun.items()))
        return done + sum(weights.get(name, 0.0) * part for name, part in parts), sum(weights.values())

    @property
    def left(self) -> str:
        """The remaining time; empty if it is unknown."""
        done, total = self.work
        if self._since is None:
            return ""
        passed, finished = time.monotonic() - self._since[0], done - self._since[1]
        if finished <= 0 or passed < _LEAST_S:
            return ""
        return f"about {_clock(passed / finished * (total - done))} left"

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Show the number of testcases that can be measured."""
        self._document = document
        self.run_extended(testcases)
        self.live.start()

    def run_extended(self, testcases: Sequence[Testcase]) -> None:
        """Add to the number of testcases."""
        assert self._document is not None
        weights = {case.name: _weight(case, self._document) for case in testcases}
        self._weights |= {name: weight for name, weight in weights.items() if weight}

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self._weights.setdefault(case.name, _PREPARING_S)
        self._begun[case.name] = measurements, 0
        self.measuring(case, 0, "preparing")

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Show the measurement and its stage."""
        total, _ = self._begun.get(case.name, (1, 0))
        count = f", {done + 1} of {max(total, done + 1)}" if total > 1 else ""
        self._current = one_line(f"{case.name}{count}: {stage}")
        self._begun[case.name] = total, done
        self._begin()

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Advance the bar; do not count waived testcases."""
        self._begun.pop(result.name, None)
        if result.status is Status.WAIVED:
            self._weights.pop(result.name, None)
        elif result.name in self._weights:
            self._ended.add(result.name)
        self._begin()

    def run_ended(self, document: Document) -> None:
        """Clear the screen for the report."""
        self.live.stop()

    def _begin(self) -> None:
        """Keep the time at which the first measurement has ended."""
        if self._since is None and self.work[0]:
            self._since = time.monotonic(), self.work[0]


def _clock(seconds: float) -> str:
    """Format a duration as minutes and seconds."""
    whole = math.ceil(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def _weight(case: Testcase, document: Document) -> float:
    """The typical time of a testcase in s, or with fixed counts in measurements; 0 if it is waived."""
    options: dict[str, Any] = document.options
    names = [field.name for field, _ in declared(PlanOptions) if field.name in options]
    try:
        plan = case.plan(document.machine, PlanOptions(**{name: options[name] for name in names}))
    except WirespeedError:  # shown when its turn comes
        return 0.0
    count = len(plan.measurements)
    budget = (options.get("time_budget") or 1.0) * count
    return float(min(budget, options.get("testcase_budget") or math.inf)) + _PREPARING_S * count
