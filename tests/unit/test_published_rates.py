"""What published rates say of values: at the edges of the usual range, and of cells without a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.judging.judge import judge
from wirespeed.judging.published import OF_MODEL, Reference, References, tightened
from wirespeed.judging.verdict import Judgement, Verdict
from wirespeed.measurement import Unit
from wirespeed.results.cells import Key, placed
from wirespeed.tables import Statistics

RECORDED = Path(__file__).parents[1] / "recorded" / "two-h200.json"
TESTCASE = "device_stream_triad"


def run_with(factor: float | None) -> Document:
    """Two H200s as recorded; triads reach a share of the lowest usual rate, or have no value."""
    document = wirespeed.load(RECORDED)
    (measured, *_) = (one for one in placed(document) if one.key.testcase == TESTCASE)
    reference = References(document).of(measured)
    assert reference is not None and reference.model
    results = []
    for result in document.testcases:
        if result.name == TESTCASE:
            value = None if factor is None else factor * reference.least
            changed = {
                "value": value,
                "statistics": None,
                "samples": (),
                "reason": "lost" if value is None else "",
            }
            cells = tuple(replace(cell, **changed) for cell in result.tables[0].cells)
            result = replace(result, tables=(replace(result.tables[0], cells=cells),))
        results.append(result)
    return replace(document, testcases=tuple(results))


def verdicts(document: Document) -> set[tuple[Verdict, str]]:
    judged = judge(document).judgements
    return {(one.verdict, one.why) for one in judged if one.key.testcase == TESTCASE and one.key.column}


def test_the_lowest_usual_rate_passes_and_a_lower_one_does_not() -> None:
    assert verdicts(run_with(1.001)) == {(Verdict.PASS, "")}
    ((verdict, why),) = verdicts(run_with(0.999))
    assert verdict is Verdict.WARN and OF_MODEL in why


@pytest.mark.parametrize(("value", "verdict"), [(80.1, Verdict.WARN), (79.9, Verdict.FAIL)])
def test_a_fifth_below_the_lowest_usual_rate_fails(value: float, verdict: Verdict) -> None:
    """The range of the links is wider here, so that it does not decide."""
    reference = Reference(100.0, 110.0, 80.0, True, 2)
    judged = Judgement(Key("copy", "", "", "gpu0", 0), Unit.RATE, Verdict.PASS, value, 200.0, 50.0, 100.0)
    assert tightened(judged, reference).verdict is verdict


def test_a_value_that_is_missing_is_compared_with_nothing() -> None:
    """It is not "far below" what others reach: the reason why it is missing is what is known."""
    assert {why for _, why in verdicts(run_with(None))} == {"lost"}


def noisy(run: Document, deviation: float, samples: int) -> Document:
    """A run in which the samples of triads vary, few of which were taken."""
    results = []
    for result in run.testcases:
        if result.name == TESTCASE:
            cells = tuple(
                replace(cell, statistics=Statistics(samples, value, value, value, value, deviation))
                for cell in result.tables[0].cells if (value := cell.value or 0.0)
            )  # fmt: skip
            result = replace(result, tables=(replace(result.tables[0], cells=cells),))
        results.append(result)
    return replace(run, testcases=tuple(results))


@pytest.mark.parametrize(
    ("factor", "deviation", "samples", "verdict"),
    [
        (0.97, 0.02, 3, Verdict.PASS), (0.97, 0.001, 3, Verdict.WARN), (0.97, 0.02, 100, Verdict.WARN),
        (0.93, 0.5, 3, Verdict.PASS), (0.92, 0.5, 3, Verdict.WARN),  # at most 8 % are excused
    ],
)  # fmt: skip
def test_chance_explains_few_samples_that_vary(
    factor: float, deviation: float, samples: int, verdict: Verdict
) -> None:
    """Three and a half standard errors of the median, as the samples of the testcase vary."""
    ((found, _),) = verdicts(noisy(run_with(factor), deviation, samples))
    assert found is verdict


@pytest.mark.parametrize(("machine", "others"), [("gb200-4", False), ("hgx-b200-8", True)])
def test_few_ranks_are_compared_in_all_reduces_only(machine: str, others: bool) -> None:
    """All-gather and reduce-scatter of four ranks are slower than an all-reduce; of eight ones, alike."""
    cases = ["all_reduce", "all_gather", "reduce_scatter"]
    document = wirespeed.run(cases, machine=f"simulated:{machine}", size="1GiB", samples=2)
    compared = {
        one.key.testcase
        for one in placed(document)
        if one.key.table == "busbw" and References(document).of(one) is not None
    }
    assert compared == {"all_reduce", *(cases if others else ())}
