"""What the command lines of nvbandwidth and sailbandwidth share: the options of sailbandwidth, which
nvbandwidth takes too, and the record of a program.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...cli.parser import Parser
from ...hardware.devices import Fault
from ...hardware.topology import Machine
from ...reports import DialectName

#: Largest absolute number.
MOST = 2**40


def positive(text: str, least: int = 1, kind: str = "whole number of 1 or more") -> int:
    """Parse a whole number of 1 or more; of ``kind`` and of other least numbers if they are given."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a {kind}")
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
    add = group.add
    off: dict[str, Any] = {"action": "store_false", "default": default}
    add("--useNormalCopy", "ordinary copies by SMs, not bulk copies", dest="bulk", **off)
    add("--nBlocks N", "blocks of the copy kernel (-1: automatic)", blocks, dest="blocks", default=0)
    add("--nThreads N", "threads per block (-1: automatic)", blocks, dest="threads", default=0)
    add("--isSingleDie", "copies by one copy engine", dest="all_engines", **off)
    add("--testLocalCopy", "local copies on the diagonal of device-to-device tables", dest="local_copy")
    add("--displayUR", "also print the fraction of the limit, in %%")
    add("--disableVm", "plain allocations", dest="virtual_memory", **off)


@dataclass(frozen=True)
class PeerProgram:
    """A program with this command line.

    Attributes:
        add: Adds options that not all of these programs have; sets defaults of the others.
        version: Returns the version whose output to have, by the arguments: a value of ``Style.dialect``.
        whole: Parses the size of a buffer, and numbers of samples and copies.
        refusal: Returns why the program refuses its options, in its own words; empty if it does not.
        ignored: Returns notes on options that have no effect.
        faults: Returns the faults that a machine is to have, if it is simulated.
        dumps: Whether it writes files of wrong values.
    """

    add: Callable[[Parser], None]
    version: Callable[[Sequence[str]], DialectName]
    whole: Callable[[str], int] = positive
    refusal: Callable[[argparse.Namespace], str] = lambda _: ""
    ignored: Callable[[argparse.Namespace], tuple[str, ...]] = lambda _: ()
    faults: Callable[[Machine], tuple[Fault, ...]] = lambda _: ()
    dumps: bool = False
