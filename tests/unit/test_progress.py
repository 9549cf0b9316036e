"""The progress of a run: what it counts, and the time that is left."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

import wirespeed
from tests.conftest import own_time
from wirespeed import progress
from wirespeed.document import Document, TestcaseResult
from wirespeed.options import RunOptions
from wirespeed.progress import Bars
from wirespeed.testcases.table import TABLE, Testcase, select


class Watched(Bars):
    """Keeps what was shown after each testcase."""

    def __init__(self) -> None:
        super().__init__()
        self.live.console = Console(file=io.StringIO(), force_terminal=True)
        self.seen: list[str] = []

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        super().run_started(document, testcases)
        self.seen.append(text(self))

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        super().testcase_ended(document, result)
        self.seen.append(text(self))


def text(bars: Bars, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(bars.render())
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test changes."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", own_time(monotonic=lambda: now[0]))
    return now


def test_only_what_can_be_measured_is_counted() -> None:
    bars = Watched()
    names = [
        "device_to_device_memcpy_read_ce",
        "device_to_device_memcpy_write_ce",
        "host_to_device_memcpy_ce",
    ]
    wirespeed.run(names, machine="simulated:pcie-2-no-p2p", listeners=[bars])
    counts = [shown.partition("testcase")[0] for shown in bars.seen]
    assert counts == ["0 of 1 ", "0 of 1 ", "0 of 1 ", "1 of 1 "]


def test_the_time_that_is_left_follows_the_measurements(clock: list[float]) -> None:
    bars = Watched()
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:dgx-a100-8")
    first, second = TABLE[:2]
    bars.run_started(document, [first, second])
    bars.testcase_started(first, 8)
    clock[0] += 60  # compiling says nothing of the rest
    bars.measuring(first, 0, "preparing numa0->gpu0 by gpu0 (ce)")
    assert "0 of 2 testcases" in text(bars) and " 1:00 " in text(bars) and "left" not in text(bars)
    assert "\nhost_to_device_memcpy_ce, 1 of 8: preparing numa0->gpu0 by gpu0 (ce)\n" in text(bars)
    for done in range(1, 9):
        bars.measuring(first, done, "measuring")
        clock[0] += 2
        assert ("left" in text(bars)) is (done > 1), done
    bars.testcase_ended(document, document.testcases[0])
    bars.testcase_started(second, 8)
    assert "1 of 2 testcases" in text(bars) and "about 0:19 left" in text(bars)  # 8 of 16 / 7 s
    clock[0] += 14
    assert "about 0:35 left" in text(bars)  # it grows while nothing ends
    bars.run_ended(document)


def test_a_long_stage_is_cut_to_the_width() -> None:
    bars = Watched()
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2", listeners=[bars])
    bars.measuring(TABLE[0], 1, "x" * 200)
    lines = text(bars, 60).splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 60 and lines[1].endswith("…")
    assert document.good


def test_testcases_of_different_length_have_different_weights() -> None:
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:dgx-a100-8", tier="quick")
    few, many = select(["all_to_host_sum_ce", "host_to_device_memcpy_ce"])
    assert 0 < progress._weight(few, document) < progress._weight(many, document)
    (impossible,) = select(["multinode_device_to_device_memcpy_read_ce"])
    assert progress._weight(impossible, document) == 0


def test_rounds_of_several_testcases_add_up(clock: list[float]) -> None:
    """Each round visits every testcase: what is done of one remains when the next one is measured."""
    bars, done = Watched(), []
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:dgx-a100-8")
    cases = TABLE[:2]
    bars.run_started(document, cases)
    for case in cases:
        bars.testcase_started(case, 16)
    for number in range(1, 17):
        for case in cases:
            bars.measuring(case, number, "measuring")
            done.append(bars.work[0])
    bars.run_ended(document)
    assert done == sorted(done) and done[-1] == bars.work[1] > done[15] > done[0] > 0


@pytest.mark.parametrize(("testcases", "within", "says"), [
    (["blocks_host"], None, "103 values take about 9 min"), (["blocks_host"], 60.0, ""),
    (["host_stream_triad"], None, ""),
])  # fmt: skip
def test_a_long_run_says_how_long_it_takes_before_it_begins(
    testcases: list[str], within: float | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = wirespeed.run(["host_stream_triad"], machine="simulated:cpu-2-sockets")
    machine = replace(document.machine, simulated=False)
    real = structs.replace(document, machine=machine, simulated=False)
    options = RunOptions(within=within)
    progress.Announcement(options).run_started(real, select(testcases))
    said = capsys.readouterr().err
    assert said.startswith(says) and bool(said) is bool(says)
    assert not says or said.endswith("for less: --within 2min, or --tier quick\n")
    progress.Announcement(options).run_started(document, select(testcases))
    assert capsys.readouterr().err == ""  # virtual time
