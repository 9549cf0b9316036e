"""The options of sailbandwidth, which ``wirespeed nvbandwidth`` takes too."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .parser import Parser


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def _shape(text: str) -> int:
    return 0 if text == "-1" else positive(text)


def add_sail_options(
    parser: Parser, *, default: bool, note: str = "", blocks: Callable[[str], int] = _shape
) -> None:
    """Add the options.

    Args:
        parser: The parser of a program.
        default: Whether the program has the defaults of sailbandwidth.
        note: Added to the description.
        blocks: Parses the number of blocks, and of threads; 0 stands for -1.
    """
    group = parser.add_argument_group(
        "options of sailbandwidth",
        "The defaults of sailbandwidth are bulk copies by SMs, all copy engines and virtual-memory "
        f"allocations; those of nvbandwidth are ordinary copies, one engine and plain allocations.{note}",
    )
    add = group.add_argument
    off: dict[str, Any] = {"action": "store_false", "default": default}
    shape: dict[str, Any] = {"type": blocks, "default": 0, "metavar": "N"}
    add("--useNormalCopy", dest="bulk", help="ordinary copies by SMs, not bulk copies", **off)
    add("--nBlocks", dest="blocks", help="blocks of the copy kernel (-1: automatic)", **shape)
    add("--nThreads", dest="threads", help="threads per block (-1: automatic)", **shape)
    add("--isSingleDie", dest="all_engines", help="copies by one copy engine", **off)
    add(
        "--testLocalCopy", dest="local_copy", action="store_true",
        help="local copies on the diagonal of device-to-device tables",
    )  # fmt: skip
    add("--displayUR", action="store_true", help="also print the fraction of the limit, in %%")
    add("--disableVm", dest="virtual_memory", help="plain allocations", **off)
