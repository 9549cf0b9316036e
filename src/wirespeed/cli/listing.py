"""``wirespeed list``: plain text, so that rich need not be imported."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..terminal import columns, visible
from ..testcases import TABLE, PlanOptions, Testcase, Tier
from ..topology import Machine
from .common import OK, add_machine, add_options, parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..backends import describe

    arguments = parser(name, "List all testcases, and show which of them can run here.")
    add_machine(arguments)
    add_options(arguments, names=["tier"])
    options = arguments.parse_args(argv)
    print(visible(listing(describe(options.machine, glance=True), options.tier, columns())), end="")
    return OK


def listing(machine: Machine, tier: str = Tier.STANDARD, width: int = 80) -> str:
    """Return all testcases: those that can run, then the others by reason."""
    options = PlanOptions(tier=Tier(tier))
    reasons = {case: case.plan(machine, options).reason for case in TABLE}
    runnable = [case for case in TABLE if not reasons[case]]
    where = f"on {machine.host or machine.name}" + (" (SIMULATED)" if machine.simulated else "")
    lines = [f"{len(runnable)} of {len(TABLE)} testcases can run {where}", ""]
    lines += [line for case in runnable for line in _entry(case, width)]
    for reason in dict.fromkeys(r for r in reasons.values() if r):
        lines += ["", f"not possible here: {reason}", ""]
        lines += [line for case in TABLE if reasons[case] == reason for line in _entry(case, width)]
    return "\n".join(lines) + "\n"


def _entry(case: Testcase, width: int) -> list[str]:
    index = "" if case.index is None else str(case.index)
    does = f"{case.description}; counts {case.counts}" if case.counts else case.description
    return [
        f"{index:>3} {case.name}",
        *textwrap.wrap(does, max(40, width), initial_indent=" " * 6, subsequent_indent=" " * 6),
    ]
