"""A share is of what is expected, or of the limit, and says which."""

from __future__ import annotations

import pytest

from wirespeed.judging.key_figures import KeyFigure
from wirespeed.judging.path_kinds import HOST_GPU
from wirespeed.judging.suspects import Culprit, Suspect, SuspectKind, of_expected
from wirespeed.judging.verdict import Judgement, Verdict, share
from wirespeed.measurement import Unit
from wirespeed.reports.figure_texts import extent
from wirespeed.results.cells import Key

KEY = Key("host_to_device_memcpy_ce", "", "host", "gpu0")


def judged(value: float | None, verdict: Verdict, normal: float | None, limit: float | None) -> Judgement:
    return Judgement(KEY, Unit.RATE, verdict, value, limit, normal and normal * 0.9, normal)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (judged(46e9, Verdict.PASS, 50e9, 60e9), "92% of expected"),
        (judged(30e9, Verdict.NOT_JUDGED, None, 60e9), "50% of limit"),
        (judged(90e9, Verdict.IMPLAUSIBLE, 50e9, 60e9), "150% of limit"),
        (judged(25e9, Verdict.FAIL, 50e9, None), "50% of expected"),
        (judged(25e9, Verdict.NOT_JUDGED, None, None), "None"),
        (judged(None, Verdict.FAIL, 50e9, 60e9), "None"),
    ],
)
def test_what_a_share_is_of(one: Judgement, text: str) -> None:
    assert str(share(one)) == text


def test_a_key_figure_says_what_each_of_its_shares_is_of() -> None:
    typical = judged(46e9, Verdict.PASS, 50e9, 60e9)
    figure = KeyFigure(HOST_GPU, Verdict.FAIL, typical, typical, judged(20e9, Verdict.FAIL, 50e9, 60e9))
    assert extent(figure) == "40% of expected 50.0 GB/s: host → gpu0; typical 46.0"
    above = KeyFigure(HOST_GPU, Verdict.FAIL, typical, typical, judged(90e9, Verdict.IMPLAUSIBLE, 50e9, 60e9))
    assert extent(above) == "150% of limit 60.0 GB/s: host → gpu0; typical 46.0"
    unknown = KeyFigure(HOST_GPU, Verdict.NOT_JUDGED, *[judged(46e9, Verdict.NOT_JUDGED, None, None)] * 2)
    assert extent(unknown) == "no limit known"


def test_a_slow_place_has_the_lowest_share_of_its_failing_values() -> None:
    """Not that of its peers, which may be faster than expected: the figures would contradict it."""
    slow = Culprit((Suspect(SuspectKind.GPU, ("gpu3",)),), 0.5, (4, 7, 9))
    assert of_expected(slow, {4: 0.56, 7: 0.54, 2: 0.1}).share == "54% of expected"
    assert of_expected(slow, {2: 0.1}).share == "50% of what its peers reach"
