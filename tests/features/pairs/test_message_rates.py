"""Rates of messages: more is better, everywhere."""

from __future__ import annotations

from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.measurement import Axis, Unit
from wirespeed.reports import Style
from wirespeed.results.baseline import make
from wirespeed.statistics import summarise
from wirespeed.tables import Cell, Table


def with_rate(rate: float) -> Document:
    """A run whose one value is a rate of messages."""
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2")
    samples = (rate * 0.999, rate, rate * 1.001)
    cell = Cell(row=0, column=0, value=rate, copies=1, statistics=summarise(samples), samples=samples)
    axis = Axis("message", ("1 B",))
    table = Table("rate", "messages one way", Unit.FREQUENCY, axis, axis, (cell,))
    return replace(document, testcases=(replace(document.testcases[0], name="pt2pt", tables=(table,)),))


def test_twice_the_rate_is_better() -> None:
    slow, fast = with_rate(1e6), with_rate(2e6)
    (change,) = wirespeed.compare(slow, fast).changes
    assert change.outcome.value == "better" and change.change > 0
    (change,) = wirespeed.compare(fast, slow).changes
    assert change.outcome.value == "worse" and change.change < 0


def test_a_baseline_fails_the_slower_alone() -> None:
    baseline = make([with_rate(2e6)])
    assert wirespeed.judge(with_rate(4e6), baseline=baseline).verdict.value == "pass"
    assert wirespeed.judge(with_rate(1e6), baseline=baseline).verdict.value == "fail"


def test_it_is_shown_in_millions() -> None:
    document = with_rate(2.5e6)
    text = wirespeed.render(document, "prometheus", Style(all_cells=True))
    assert "wirespeed_messages_per_second{" in text and 'testcase="pt2pt"' in text and " 2500000.0" in text
    assert "2.50" in wirespeed.render(document, "table") and " 2.50 M/s" in wirespeed.render(document, "plot")
