"""The cycles that chases follow."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.backends.host import kernels
from wirespeed.backends.host.bound_transfer import chase_unit, split


@settings(max_examples=60)
@given(lines=st.integers(2, 5000), key=st.integers(0, 2**64 - 1))
def test_a_cycle_visits_every_line_once(lines, key):
    assert {kernels.shuffled(step, lines, key) for step in range(lines)} == set(range(lines))


@settings(max_examples=20)
@given(lines=st.integers(2, 3000), parts=st.integers(1, 7), key=st.integers(0, 2**64 - 1))
def test_parts_built_apart_make_one_cycle(lines, parts, key):
    memory = np.zeros(8 * lines, np.int64)
    base = memory.ctypes.data
    for begin, end in split(64 * lines, parts):
        kernels.cycle(base, lines, begin // 64, end // 64, key, True)
    line, seen = 0, set()
    while line not in seen:
        seen.add(line)
        line = (int(memory[8 * line]) - base) // 64
    assert len(seen) == lines


@pytest.mark.parametrize("lines", [2**10, 2**14, 20_000])
def test_no_stride_is_frequent(lines):
    """Else a prefetcher could guess the next line."""
    visited = [kernels.shuffled(step, lines, 12345) for step in range(lines)]
    strides = Counter(b - a for a, b in pairwise(visited))
    assert strides.most_common(1)[0][1] < lines / 50
    assert abs(np.corrcoef(visited[1:], visited[:-1])[0, 1]) < 0.1


def test_unit_of_a_chase_shrinks_as_accesses_get_slower():
    assert [chase_unit(2**n) for n in (12, 18, 19, 22, 23)] == [2**20, 2**20, 2**17, 2**17, 2**15]


@given(size=st.integers(1, 2**20).map(lambda n: 64 * n), parts=st.integers(1, 200))
def test_split_covers_everything_in_whole_lines(size, parts):
    pieces = split(size, parts)
    assert len(pieces) == parts
    assert pieces[0][0] == 0
    assert pieces[-1][1] == size
    assert all(a[1] == b[0] for a, b in pairwise(pieces))
    assert all(begin % 64 == end % 64 == 0 and begin <= end for begin, end in pieces)
