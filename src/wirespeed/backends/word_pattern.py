"""The contents of test buffers: the one definition, which numba, CUDA and numpy implement.

Word ``index`` of a pattern is ``key + index * STEP`` modulo 2**64: words differ for every key and index.
Smaller values are parts of a word; arithmetic with them is exact:

- a double is the integer ``word >> 16``, below 2**48;
- two floats are the lower 20 bits of ``word >> 16`` and of ``word >> 40``;
- four halves are 9 bits each, from bits 16, 28, 40 and 52;
- an element of n bits is the upper n bits.
"""

from __future__ import annotations

from hashlib import blake2b

#: Difference between successive words: 2**64 divided by the golden ratio, so that all bits change.
STEP = 0x9E3779B97F4A7C15
WORD_MASK = 2**64 - 1


def key_of(*numbers: int) -> int:
    """A key of 64 bits that depends on every bit of every number."""
    text = "/".join(map(str, numbers)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def keys_of(seed: int, transfer: int) -> tuple[int, int, int]:
    """The keys of a transfer: of its two sources, and of the destination before a sample."""
    return key_of(seed, transfer, 0), key_of(seed, transfer, 1), key_of(seed, transfer, 2)
