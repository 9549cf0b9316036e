"""The times of testcases in earlier runs of this machine, from a small file in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..document import Document, Status, TestcaseResult
from ..files import cache_folder, new_file, read_own
from ..hardware.topology import Machine
from ..options import RunOptions, documented
from ..testcases.table import TABLE
from .listener import Listener

#: Name of the file, its maximum size in bytes, and the maximum number of kinds of runs in it.
_FILE, _MOST_BYTES, _MOST_KINDS = "times.json", 2**20, 16
#: Options that hardly change how long a testcase takes.
_IRRELEVANT = ("within", "seed", "tier")

#: Testcases whose names mean the same in every run.
_NAMES = frozenset(case.name for case in TABLE)


def kind_of_run(machine: Machine, options: RunOptions) -> str:
    """A name for runs that take about the same time: of this machine, with these options."""
    relevant = {name: value for name, value in documented(options).items() if name not in _IRRELEVANT}
    devices = [gpu.name for gpu in machine.gpus], [(node.name, len(node.cpus)) for node in machine.numa]
    text = repr((machine.host, devices, options.rule, options.concurrent, options.sizes, relevant))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def earlier_times(of_kind: str) -> Mapping[str, float]:
    """Testcase -> its time in the last run of a kind, in s; empty without one."""
    of_cases = _load().get(of_kind, {})
    times = of_cases.items() if isinstance(of_cases, dict) else ()
    return {name: float(s) for name, s in times if isinstance(s, int | float) and 0 < s < float("inf")}


def _load() -> dict[str, Any]:
    """The whole file; empty if there is none, or if it is not ours to read."""
    try:
        times = json.loads(read_own(cache_folder() / _FILE, _MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return times if isinstance(times, dict) else {}


class RunTimes(Listener):
    """Keeps the times of the complete testcases of a run.

    Attributes:
        of_kind: The kind of the run.
    """

    def __init__(self, of_kind: str) -> None:
        self._kind = of_kind

    def run_ended(self, document: Document) -> None:
        """Keep the times; a run with a time limit, which may have shortened them, adds only new ones."""
        measured = [result for result in document.testcases if result.seconds]
        first = {result.engine: result.name for result in reversed(measured)}  # they load libraries
        times = {
            result.name: round(result.seconds, 3)
            for result in measured
            if _complete(result) and result.name in _NAMES and result.name not in first.values()
        }
        if not times:
            return
        before = dict(earlier_times(self._kind))
        merged = times | before if document.options.get("within") is not None else before | times
        others = [(name, old) for name, old in _load().items() if name != self._kind]
        kept = dict([*others[-(_MOST_KINDS - 1) :], (self._kind, merged)])
        with suppress(OSError):  # without a folder, times are estimated
            folder = cache_folder()
            with new_file(json.dumps(kept).encode(), folder, _FILE) as written:
                written.replace(folder / _FILE)


def _complete(result: TestcaseResult) -> bool:
    """Whether a testcase measured all of its values."""
    cells = [cell for table in result.tables for cell in table.cells]
    return result.status is Status.PASSED and bool(cells) and all(cell.value is not None for cell in cells)
