"""The command line of sailbandwidth. Its version is 2.2.1 unless --compat is given."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial

from ...cli.parser import Parser
from ...cli.program_variables import COMPAT, version
from ...hardware.devices import Fault, FaultKind
from ...hardware.topology import Machine
from ...reports import DialectName
from .dialects import OF_SAILBANDWIDTH, VERSIONS
from .peer_program import MOST, PeerProgram, add_sail_options, positive

#: Variable that makes the data of one link wrong: the numbers of source and destination.
VERIFY = "SAILBW_VERIFY"
_NAME = "sailbandwidth"
_DEFAULT = "2.2.1"
_POSITIVE = "bufferSize, testSamples and loopCount must be greater than 0"
#: Options that need a PPU, each with whether it takes a number.
_OF_PPUS = {
    "enableSplitSizeReadOptimize": False, "enableVpipeIdReadOptimize": False,
    "useSingleLinkForIcnRead": False, "linkId": True, "vpipeIdForDie0": True, "vpipeIdForDie1": True,
}  # fmt: skip
#: Parses a whole number; whether the program takes it is another matter.
_whole = partial(positive, least=-MOST, kind="whole number")


def _blocks(text: str) -> int:
    """Parse a number of blocks or threads: 0 for -1, and -1 for what the program refuses."""
    value = _whole(text)
    return 0 if value == -1 else max(value, 0) or -1


def _compat(text: str) -> str:
    name = text if text in OF_SAILBANDWIDTH else f"{_NAME}-{text}"  # the default is parsed, too
    if name not in OF_SAILBANDWIDTH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {' nor '.join(_versions())}")
    return name


def _versions() -> list[str]:
    return [name.removeprefix(f"{_NAME}-") for name in OF_SAILBANDWIDTH]


def _add(parser: Parser) -> None:
    """Add the options of sailbandwidth; set what it lacks of nvbandwidth's."""
    parser.set_defaults(huge_pages=False, wants_huge_pages=False, pairs=-1, pair=None, version=False)
    parser.add("--perfFormatter", "&&&& PERF lines in place of SUM lines", dest="perf")
    parser.add(
        f"--compat {'|'.join(_versions())}",
        f"version whose list of testcases and output to use (${COMPAT}, else {_DEFAULT})", _compat,
        dest="dialect",
    )  # fmt: skip
    add_sail_options(parser, default=True, blocks=_blocks)
    group = parser.add_argument_group("options of sailbandwidth that need a PPU, and are ignored")
    for name, takes_number in _OF_PPUS.items():
        group.add(f"--{name} N" if takes_number else f"--{name}", "", _whole if takes_number else None)


def _version(arguments: Sequence[str]) -> DialectName:
    wanted = version(arguments, _versions(), _DEFAULT, list(VERSIONS))
    return next(name for name in OF_SAILBANDWIDTH if name == f"{_NAME}-{wanted}")


def _refusal(options: argparse.Namespace) -> str:
    """Why the program refuses the numbers; empty if it does not."""
    if any(value is not None and value <= 0 for value in (options.size, options.samples, options.copies)):
        return _POSITIVE
    for name, value in (("nBlocks", options.blocks), ("nThreads", options.threads)):
        if value < 0:
            return f"{name} must be -1 (auto) or greater than 0"
    return ""


def _ignored(options: argparse.Namespace) -> tuple[str, ...]:
    """The note on options that need a PPU."""
    given = []
    for name, takes_number in _OF_PPUS.items():
        value = getattr(options, name)
        if value is not None and value is not False:
            given.append(f"--{name} {value}" if takes_number else f"--{name}")
    if not given:
        return ()
    return (f"NOTE: there is no PPU; ignoring the following command(s): {' '.join(given)}.",)


def _faults(machine: Machine) -> tuple[Fault, ...]:
    """Wrong data between the devices or ranks that the variable names; the host has the number 0, too."""
    source, _, destination = os.environ.get(VERIFY, "").partition(",")
    if not (source.strip().isdecimal() and destination.strip().isdecimal()):
        return ()
    start, end = int(source), int(destination)
    ways = [f"gpu{start}->gpu{end} "]
    ways += [f"{node.name}->gpu{end} " for node in machine.numa if start == 0]
    ways += [f"gpu{start}->{node.name} " for node in machine.numa if end == 0]
    if max(start, end) < len(machine.ranks):
        source_rank, end_rank = machine.ranks[start], machine.ranks[end]
        ways.append(f"{start}/{source_rank.device}->{end}/{end_rank.device} ")
    return tuple(Fault(FaultKind.CORRUPT, way) for way in ways)


SAILBANDWIDTH = PeerProgram(_add, _version, _whole, _refusal, _ignored, _faults, dumps=True)
