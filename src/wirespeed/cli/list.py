"""``wirespeed list``: testcases, and which of them can run, as plain text: rich would start slowly."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence

from ..backends import describe
from ..errors import ExitCode
from ..hardware.topology import Machine
from ..terminal import columns, escaped, visible
from ..testcases.table import PlanOptions, Testcase, select
from .option_groups import testcase_names
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:

    options = parser(name).parse_args(argv)
    machine = describe(options.machine, glance=True)
    cases = select(options.testcase)
    how = PlanOptions(tier=options.tier)
    reasons = {case: case.plan(machine, how).reason for case in cases}
    if options.format == "json":
        print(escaped(_json(reasons)))
    elif options.format == "names":  # of testcases that can run
        print(visible("\n".join(case.name for case, why in reasons.items() if not why)))
    else:
        print(visible(_listing(machine, columns(), reasons)), end="")
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "List all testcases, and show which of them can run here.",
        examples={
            "list": "what can run here",
            "list --tier full": "of another preset",
            "list --machine simulated:dgx-a100-8": "of another machine",
        },
        often="-t --tier --machine --format",
    )
    arguments.add_machine()
    arguments.add_options(names=["tier"])
    arguments.add("-t --testcase NAME+", "only these testcases", completer=testcase_names, by_project=True)
    arguments.add_format(("text", "json", "names"), "text")
    arguments.add(
        "--short", argparse.SUPPRESS, action="store_const", const="names", dest="format",
        default=argparse.SUPPRESS, by_project=True,
    )  # fmt: skip
    return arguments


def _json(reasons: Mapping[Testcase, str]) -> str:
    import json

    names = ("name", "index", "description", "counts", "engine", "unit", "tier")
    entries = []
    for case, why in reasons.items():
        entries.append({name: getattr(case, name) for name in names} | {"possible": not why, "reason": why})
    return json.dumps(entries, indent=2)


def _listing(machine: Machine, width: int, reasons: Mapping[Testcase, str]) -> str:
    """Testcases: those that can run, then the others by reason."""
    runnable = [case for case, why in reasons.items() if not why]
    where = f"on {machine.host or machine.name}" + (" (SIMULATED)" if machine.simulated else "")
    lines = [f"{len(runnable)} of {len(reasons)} testcases can run {where}", ""]
    lines += [line for case in runnable for line in _entry(case, width)]
    for reason in dict.fromkeys(r for r in reasons.values() if r):
        lines += ["", f"not possible here: {reason}", ""]
        lines += [line for case, why in reasons.items() if why == reason for line in _entry(case, width)]
    return "\n".join(lines) + "\n"


def _entry(case: Testcase, width: int) -> list[str]:
    index = "" if case.index is None else str(case.index)
    does = f"{case.description}; counts {case.counts}" if case.counts else case.description
    return [
        f"{index:>3} {case.name}",
        *textwrap.wrap(does, max(40, width), initial_indent=" " * 6, subsequent_indent=" " * 6),
    ]
