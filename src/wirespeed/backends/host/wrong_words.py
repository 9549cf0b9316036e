"""Compare a destination with its source, once a word is known to be wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...wrong_words import MOST_LISTED, WrongWord, WrongWords
from ..word_pattern import STEP, WORD_MASK
from .kernels import WORD

#: Words that are compared at a time.
_CHUNK = 2**20
Words = np.ndarray[Any, np.dtype[np.uint64]]


def examined(
    destination: int, source: int, ranges: Iterable[tuple[int, int]], key: int, before: int
) -> WrongWords:
    """What is wrong in the copy of a pattern.

    Args:
        destination, source: Addresses of the buffers.
        ranges: First byte and end of the parts to compare.
        key: Key of the pattern.
        before: What every word of the destination was before the copy.
    """
    listed: list[WrongWord] = []
    ever, always, source_wrong, unwritten, copied = 0, WORD_MASK, 0, 0, 0
    for first, end in ranges:
        for begin in range(first // WORD, end // WORD, _CHUNK):
            indices = np.arange(begin, min(begin + _CHUNK, end // WORD), dtype=np.uint64)
            expected = indices * np.uint64(STEP) + np.uint64(key & WORD_MASK)
            actual, held = (_words(base, begin, indices.size) for base in (destination, source))
            (wrong,) = np.nonzero(actual != expected)
            if not wrong.size:
                continue
            due, got, had = expected[wrong], actual[wrong], held[wrong]
            ever |= int(np.bitwise_or.reduce(due ^ got))
            always &= int(np.bitwise_and.reduce(due ^ got))
            left = got == np.uint64(before & WORD_MASK)
            source_wrong += int(np.count_nonzero(had != due))
            unwritten += int(np.count_nonzero(left))
            copied += int(np.count_nonzero(~left & (got == had)))
            most = MOST_LISTED - len(listed)
            columns = (array[:most].tolist() for array in (indices[wrong], due, got, had))
            listed += [
                WrongWord(index, right, now, of_source, before & WORD_MASK)
                for index, right, now, of_source in zip(*columns, strict=True)
            ]
    return WrongWords(tuple(listed), ever, always, source_wrong, unwritten, copied)


def _words(base: int, begin: int, count: int) -> Words:
    """Words of a buffer, without a copy."""
    memory = (ctypes.c_char * (WORD * count)).from_address(base + WORD * begin)
    return np.frombuffer(memoryview(memory), np.uint64)
