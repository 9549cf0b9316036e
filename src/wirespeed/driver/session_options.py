"""What a Session runs, and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..document import Document
from ..facts import Fact
from ..options import RunOptions, documented
from ..quantities import State
from ..testcases import Testcase


class Observed(msgspec.Struct, frozen=True):
    """What the hardware of a host showed during a run.

    Attributes:
        before: Slow counters before the first testcase.
        after: The same after the last one.
        facts: Facts that were found while measuring.
    """

    before: State = ()
    after: State = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class SessionOptions:
    """What to run and how.

    Attributes:
        testcases: Testcases, in order.
        run: Options of the run.
        grace: Time that the Session waits beyond the time-out of a stage, in s, because the errors of
            backends with time-outs of their own are more specific.
        skip: Number of leading iterations of a sample that lateness does not count.
        command: Command line, for the Document.
        warnings: Warnings about the whole run.
        launcher: What started the processes of a job; empty for one process.
        described: Additional options for the Document, of a compatible command line.
        facts: What was read of this host, for the Document.
        following: Returns the testcases to measure next, for the Document of all that were measured; the run
            ends when there are none. None: the run ends after ``testcases``.
        gather: Returns what the other hosts of a job observed, for what this one did; None in one process.
        since: When the time limit of the run began, in s of the monotonic clock; None: when its Session
            began.
        earlier: Testcase -> its time in an earlier run of this machine, in s.
    """

    testcases: tuple[Testcase, ...]
    run: RunOptions = field(default_factory=RunOptions)
    grace: float = 0.0
    skip: int = 0
    command: str = ""
    warnings: tuple[str, ...] = ()
    launcher: str = ""
    described: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    following: Callable[[Document], Iterable[Testcase]] | None = None
    gather: Callable[[Observed], Observed] | None = None
    since: float | None = None
    earlier: Mapping[str, float] = field(default_factory=dict)


def recorded(options: SessionOptions) -> dict[str, Any]:
    """The options as the Document records them."""
    run = options.run
    rule = {name: value if math.isfinite(value) else None for name, value in vars(run.rule).items()}
    return {
        "testcases": [case.name for case in options.testcases],
        "rule": type(run.rule).__name__.lower(),
        **rule,
        **documented(run),
        **({"launcher": options.launcher, "share": run.share} if options.launcher else {}),
        **options.described,
    }
