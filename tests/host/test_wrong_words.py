"""Wrong data in host memory: who is to blame is found by comparing the source, too."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import wirespeed
from wirespeed.backends.host import contents, prepared
from wirespeed.backends.host.contents import examined
from wirespeed.backends.test_data import STEP, WORD_MASK
from wirespeed.errors import MOST_LISTED

KEY, BEFORE, COUNT = 0x1234_5678_9ABC_DEF0, -3, 2**20 + 512


def buffers() -> tuple[Any, Any]:
    """A destination and a source with the pattern."""
    pattern = np.arange(COUNT, dtype=np.uint64) * np.uint64(STEP) + np.uint64(KEY)
    return pattern.copy(), pattern


@pytest.mark.parametrize(
    ("case", "counts", "says"),
    [
        ("destination", (0, 0, 0), "the source is intact"),
        ("unwritten", (0, 2, 0), "they were never written"),
        ("both", (2, 0, 2), "the source has the same wrong words"),
        ("one", (1, 0, 1), "1 of them are wrong at the source, too"),
    ],
)
def test_what_the_source_says(case: str, counts: tuple[int, ...], says: str) -> None:
    destination, source = buffers()
    places = [7, 2**20 + 100]  # in the first chunk, and in the second one
    destination[places] = BEFORE & WORD_MASK if case == "unwritten" else destination[places] ^ np.uint64(5)
    source[{"both": places, "one": places[:1]}.get(case, [])] ^= np.uint64(5)
    found = examined(destination.ctypes.data, source.ctypes.data, [(0, 4096), (4096, 8 * COUNT)], KEY, BEFORE)
    assert (found.source_wrong, found.unwritten, found.copied) == counts and found.blame(2) == says
    assert [word.index for word in found.listed] == places
    assert [word.expected for word in found.listed] == [(KEY + i * STEP) & WORD_MASK for i in places]
    assert case == "unwritten" or found.ever == found.always == 5
    assert {word.before for word in found.listed} == {BEFORE & WORD_MASK}


def test_a_list_of_wrong_words_has_an_end() -> None:
    destination, source = buffers()
    destination[:] = 0
    found = examined(destination.ctypes.data, source.ctypes.data, [(0, 8 * COUNT)], KEY, BEFORE)
    assert len(found.listed) == MOST_LISTED and found.blame(COUNT) == "the source is intact"


@pytest.mark.parametrize(
    ("of_source", "says"), [(False, "the source is intact"), (True, "the same wrong words")]
)
def test_a_copy_says_who_is_to_blame(of_source: bool, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = contents.verify

    def damaged(bound: Any, *more: Any) -> None:
        for buffer in (bound.destination, *(bound.sources[:1] if of_source else ())):
            ctypes.c_uint64.from_address(buffer.address + 4096).value ^= 1
        check(bound, *more)

    monkeypatch.setattr(prepared, "verify", damaged)
    document = wirespeed.run(["host_stream_copy"], size="1MiB", samples=1, copies=1)
    (result,) = document.testcases
    assert result.status == "failed" and "the first at byte offset 4096; the source " in result.reason
    assert result.reason.endswith(says)
