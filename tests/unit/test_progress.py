"""The bars of a run: what they count, and the time that is left."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import TimeRemainingColumn

import wirespeed
from wirespeed.progress import Bars
from wirespeed.testcases import TABLE


class Watched(Bars):
    """Keeps what the bar of testcases showed."""

    def __init__(self) -> None:
        super().__init__()
        self.progress.live.console = Console(file=io.StringIO(), force_terminal=True)
        self.seen: list[tuple[float, float | None]] = []

    def testcase_ended(self, document, result):
        super().testcase_ended(document, result)
        (task, _) = self.progress.tasks
        self.seen.append((task.completed, task.total))


def test_what_is_waived_is_not_counted_as_done() -> None:
    bars = Watched()
    names = [
        "device_to_device_memcpy_read_ce",
        "device_to_device_memcpy_write_ce",
        "host_to_device_memcpy_ce",
    ]
    wirespeed.run(names, machine="simulated:pcie-2-no-p2p", listeners=[bars])
    assert bars.seen == [(0, 2), (0, 1), (1, 1)]


def test_the_time_that_is_left_follows_the_cells() -> None:
    bars = Watched()
    assert any(isinstance(column, TimeRemainingColumn) for column in bars.progress.columns)
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2")
    case = TABLE[0]
    bars.run_started(document, [case, case])
    bars.testcase_started(case, 4)
    bars.measuring(case, 1, "measuring")
    bars.measuring(case, 2, "measuring")
    task = bars.progress.tasks[0]
    assert (task.completed, task.total) == (0.5, 2) and task.time_remaining is not None
    bars.run_ended(document)
