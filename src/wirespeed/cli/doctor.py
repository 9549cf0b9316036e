"""``wirespeed doctor``: what may explain slow paths, with evidence and remedy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from .common import (
    FAILED,
    OK,
    WARNED,
    add_measuring,
    add_output,
    add_verbose,
    measuring,
    parser,
    style,
    texts_aside,
)

if TYPE_CHECKING:
    import argparse

    from ..document import Document


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser(name).parse_args(argv)
    if options.source and (options.output or options.testcase or options.prefix or options.machine):
        raise UsageError("a saved run is examined as it is: omit -t, -p, --machine and -o")
    if options.source and not options.measure:
        raise UsageError("--no-measure is about this machine, not about a saved run")
    if options.output and not options.measure:
        raise UsageError("-o saves a measurement; with --no-measure there is none")
    with texts_aside(options.output):
        return _examine(_document(options), options)


def _document(options: argparse.Namespace) -> Document:
    """Load a saved run, read only the facts of a machine, or measure."""
    if options.source:
        from ..results.store import load

        return load(options.source)
    if not options.measure:
        from ..api import described

        return described(options.machine)
    from ..api import run
    from ..progress import listener

    return run(**measuring(options), output=options.output, force=options.force, listeners=listener())


def _examine(document: Document, options: argparse.Namespace) -> int:
    """Print what was found; return the exit code."""
    from ..judging.causes import Weight
    from ..judging.diagnosis import diagnose
    from ..judging.verdicts import Verdict, judge
    from ..reports._doctor import render

    check = judge(document) if document.testcases else None
    found = diagnose(document, check)
    sys.stdout.write(render(document, found, check, style(options)))
    sys.stdout.flush()
    if any(finding.weight is Weight.DEFECT for finding in found.findings):
        return FAILED
    passed = WARNED if document.simulated else OK
    if check is None:
        return passed
    return {Verdict.FAIL: FAILED, Verdict.PASS: passed}.get(check.verdict, WARNED)


def _parser(name: str) -> argparse.ArgumentParser:
    arguments = parser(
        name,
        "Read what the system reports about this machine, measure (quick tier), and name what may explain\n"
        "slow paths: evidence, a command that confirms it, and a remedy.\n"
        "Exit codes: 0 nothing found, 1 a defect or a failed value, 2 invalid usage, 3 only warnings, or\n"
        "nothing could be judged.",
    )
    arguments.add_argument(
        "source", nargs="?", metavar="RUN.json", help="examine a saved run instead of this machine"
    )
    arguments.add_argument(
        "--no-measure", dest="measure", action="store_false", help="only read what the system reports"
    )
    add_measuring(arguments)
    arguments.set_defaults(tier="quick")
    out = arguments.add_argument_group("output")
    add_output(out)
    add_verbose(out)
    return arguments
