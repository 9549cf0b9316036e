"""``wirespeed check``: is this machine as fast as it should be? One screen and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RunInterrupted, UsageError
from .common import FAILED, OK, WARNED, add_measuring, add_verbose, measuring, parser, style, typed

if TYPE_CHECKING:
    import argparse

    from ..results.baseline import Baseline
    from ..results.document import Document
    from ..results.overrides import Override


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser(name).parse_args(argv)
    from ..results import baseline, overrides

    accepted = overrides.load(options.overrides) if options.overrides else ()
    against = baseline.load(options.baseline) if options.baseline else None
    interrupted = None
    try:
        if options.source:
            from ..results.store import load

            document = load(options.source)
            _refuse_simulated(document.simulated, options)
        else:
            document = _measure(options, accepted, against)
    except RunInterrupted as error:
        document, interrupted = error.document, error
    from ..reports._check import render
    from ..verdicts import Verdict, judge

    check = judge(document, accepted, against, options.tolerance, options.ignore_busy)
    sys.stdout.write(render(document, check, style(options)))
    sys.stdout.flush()
    if interrupted:
        raise interrupted
    return {Verdict.FAIL: FAILED, Verdict.PASS: OK}.get(check.verdict, WARNED)


def _measure(options: argparse.Namespace, accepted: Sequence[Override], against: Baseline | None) -> Document:
    """Find out all that is wrong with the options, wait for an idle machine, and measure."""
    from ..api import run, wait_idle
    from ..backends import describe
    from ..results.overrides import check_links
    from .progress import listener

    machine = describe(options.machine)
    _refuse_simulated(machine.simulated, options)
    check_links(accepted, machine)
    if against:
        against.entries(machine)
    if options.wait_idle:
        wait_idle(machine, options.wait_idle)
    arguments = measuring(options) | {"machine": machine}
    return run(**arguments, output=options.output, listeners=listener())


def _refuse_simulated(simulated: bool, options: argparse.Namespace) -> None:
    if simulated and not options.allow_simulated:
        raise UsageError("a simulated machine has no health; --allow-simulated checks it all the same")


def _parser(name: str) -> argparse.ArgumentParser:
    from ..units import parse_duration, parse_fraction

    arguments = parser(
        name,
        "Measure (or take a saved run), hold every value against what the hardware can do, and say what is\n"
        "slow. Exit codes: 0 pass, 1 fail, 3 only warnings, or nothing could be judged, 2 wrong use.",
    )
    judging = arguments.add_argument_group("what to judge by")
    judging.add_argument(
        "--from", dest="source", metavar="RUN.json", help="judge a saved run, measure nothing"
    )
    judging.add_argument("--overrides", metavar="FILE.toml", help="known deviations that are accepted")
    judging.add_argument("--baseline", metavar="FILE", help="what good machines of this model reach")
    judging.add_argument(
        "--tolerance",
        type=typed(parse_fraction),
        default=0.05,
        metavar="PERCENT",
        help="fail so far under the baseline (default: 5%%)",
    )
    judging.add_argument(
        "--ignore-busy", action="store_true", help="judge devices that another process uses all the same"
    )
    judging.add_argument("--allow-simulated", action="store_true", help="check a simulated machine")
    judging.add_argument(
        "--wait-idle", type=typed(parse_duration), metavar="TIME", help="wait so long for an idle machine"
    )
    add_measuring(arguments)
    arguments.set_defaults(tier="quick")
    out = arguments.add_argument_group("output")
    out.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="also save the Document")
    add_verbose(out)
    return arguments
