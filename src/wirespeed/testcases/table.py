"""The table of testcases, and functions that select from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import UnknownTestcase
from ..features import offered
from ..hardware.topology import Machine
from ..model import Engine
from . import collectives, device, host, processes
from .base import Layout, Pattern, Plan, PlanOptions, Testcase, Tier, WaivedCell

__all__ = [
    "TABLE", "Layout", "Pattern", "Plan", "PlanOptions", "Testcase", "Tier", "WaivedCell", "find", "missing",
    "select",
]  # fmt: skip

#: All testcases, in the order in which they run: first of the core, then of features.
TABLE: tuple[Testcase, ...] = (
    *device.TESTCASES, *device.OWN, *processes.TESTCASES, *collectives.COLLECTIVES, *host.TESTCASES,
    *device.ATTACHED, *(case for cases in offered("testcases") for case in cases),
)  # fmt: skip


def find(wanted: str, table: Sequence[Testcase] = TABLE) -> Testcase:
    """The testcase with this name, or with this nvbandwidth index.

    Raises:
        UnknownTestcase: If there is none; the message suggests the nearest names.
    """
    wanted = str(wanted)  # an index may be a number
    for case in table:
        if wanted == case.name or (case.index is not None and wanted == str(case.index)):
            return case
    if wanted.isascii() and wanted.isdigit():
        raise UnknownTestcase(f"no testcase has the index {wanted}; `wirespeed list` shows them")
    from difflib import get_close_matches

    near = get_close_matches(wanted, [case.name for case in table], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`wirespeed list` shows them"
    raise UnknownTestcase(f"no testcase is called {wanted!r}; {hint}")


def select(
    names: Iterable[str] = (), prefixes: Iterable[str] = (), table: Sequence[Testcase] = TABLE
) -> tuple[Testcase, ...]:
    """The testcases with these names (or indices) and those with these prefixes, each once.

    With neither, all of them.

    Raises:
        UnknownTestcase: If a name does not exist, or no name starts with a prefix.
    """
    names, prefixes = tuple(names), tuple(prefixes)
    if not names and not prefixes:
        return tuple(table)
    chosen = [find(name, table) for name in names]
    for prefix in prefixes:
        fitting = [case for case in table if case.name.startswith(prefix)]
        if not fitting:
            raise UnknownTestcase(f"no testcase starts with {prefix!r}; {_near_prefix(prefix, table)}")
        chosen += fitting
    return tuple(dict.fromkeys(chosen))


def _near_prefix(prefix: str, table: Sequence[Testcase]) -> str:
    """The prefix that is probably meant, or how to see all names."""
    from difflib import get_close_matches

    begins = dict.fromkeys(
        case.name[:end] for case in table
        for end in (*(i for i, letter in enumerate(case.name) if letter == "_"), len(case.name))
    )  # fmt: skip
    near = get_close_matches(prefix.rstrip("_*"), begins, 1)
    return f"did you mean {near[0]}?" if near else "`wirespeed list` shows them"


def missing(name: str, reason: str) -> Testcase:
    """What stands for a missing testcase: its result is *not found*, and the run continues."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        raise UnknownTestcase(reason)

    return Testcase(name, "", pattern, "", Engine.CPU)
