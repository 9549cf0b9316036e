"""What is wrong at a destination, and whether the source or the way is to blame."""

from __future__ import annotations

from dataclasses import dataclass

#: Largest number of wrong words that are listed.
MOST_LISTED = 4096


@dataclass(frozen=True)
class WrongWord:
    """One wrong word.

    Attributes:
        index: Position in the buffer, in words of 8 bytes.
        expected, actual: What it should be, and what it is.
        source: What the source contains there.
        before: What the destination contained before the copy.
    """

    index: int
    expected: int
    actual: int
    source: int
    before: int


@dataclass(frozen=True)
class WrongWords:
    """The wrong words of a destination whose source could be read, too.

    Attributes:
        listed: The first of them.
        ever, always: Bits that are wrong in at least one of all, and in each of them.
        source_wrong: How many are wrong at the source.
        unwritten: How many still are what the destination contained before.
        copied: How many others are what the source contains.
    """

    listed: tuple[WrongWord, ...]
    ever: int
    always: int
    source_wrong: int
    unwritten: int
    copied: int

    def blame(self, wrong: int) -> str:
        """What the comparison with the source says of all ``wrong`` words."""
        if self.unwritten == wrong:
            return "they were never written"
        if not self.source_wrong:
            return "the source is intact"
        if self.copied == wrong:
            return "the source has the same wrong words"
        return f"{self.source_wrong} of them are wrong at the source, too"
