"""``wirespeed doctor``: what may explain slow paths, with evidence and remedy."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, ExitCode, UsageError
from ..units import many
from .common import (
    add_expect,
    add_measuring,
    add_output,
    add_verbose,
    code_of,
    expected,
    measuring,
    style,
    texts_aside,
)
from .consumers import Answer, add_consumer, refuse_mixed
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document
    from ..judging.adaptive import Adaptive


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    usual = arguments.get_default("tier")
    options = arguments.parse_args(argv, Namespace(tier=None))  # to know whether the user gave one
    _check(options)
    if options.record is not None:
        from ..api import record

        files = record(options.record)
        print(f"recorded {many(files, 'file')}; examine them with: wirespeed doctor --root {options.record}")
        return ExitCode.PASS
    adaptive = None
    if options.measure and not (options.source or options.testcase or options.prefix or options.tier):
        from ..judging.adaptive import Adaptive

        adaptive = Adaptive(expected(options))
    options.tier = options.tier or usual
    with texts_aside(options.output):
        return _examine(_document(options, adaptive), options, adaptive)


def _check(options: Namespace) -> None:
    """Refuse options that contradict each other."""
    from ..results.output import STDOUT

    measuring_options = options.output or options.testcase or options.prefix or options.machine
    folder = "--root" if options.root is not None else "--record" if options.record is not None else ""
    refuse_mixed(options.consumer, bool(options.output and options.output.path == STDOUT))
    if options.consumer and options.record is not None:
        raise UsageError("--record judges nothing: omit --for")
    if options.root is not None and options.record is not None:
        raise UsageError("--record is about this machine, --root about another one: choose one of them")
    if options.source and folder:
        raise UsageError(f"{folder} is about a machine, not about a saved run: omit {options.source}")
    if options.source and measuring_options:
        raise UsageError("a saved run is examined as it is: omit -t, -p, --machine and -o")
    if options.source and not options.measure:
        raise UsageError("--no-measure is about this machine, not about a saved run")
    if folder and measuring_options:
        raise UsageError(f"{folder} measures nothing: omit -t, -p, --machine and -o")
    if options.output and not options.measure:
        raise UsageError("-o saves a measurement; with --no-measure there is none")


def _document(options: Namespace, adaptive: Adaptive | None) -> Document:
    """Load a saved run, read only the facts of a machine, or measure."""
    if options.source:
        from ..results.store import load

        return load(options.source)
    if options.root is not None or not options.measure:
        from ..api import described

        return described(options.machine, root=options.root)
    from ..api import run
    from ..progress import listener

    arguments = measuring(options) | {"output": options.output, "force": options.force}
    return run(**arguments, listeners=listener(), following=adaptive)


def _examine(document: Document, options: Namespace, adaptive: Adaptive | None) -> int:
    """Print what was found; return the exit code."""
    from ..judging.judged import Criteria, Judged
    from ..judging.verdict import Verdict
    from ..screens.doctor import render

    if adaptive and adaptive.concluded:
        judged = adaptive.concluded.renewed(document)
    else:
        judged = Judged(document, Criteria(expected=expected(options)))
    sys.stdout.write(render(judged, style(options), adaptive.steps if adaptive else ()))
    sys.stdout.flush()
    verdict = judged.concluded
    code = code_of(Verdict.UNKNOWN if document.simulated and verdict is Verdict.PASS else verdict)
    if not options.consumer:
        return code
    from ..screens.many_runs import host_of_run, reason_of_diagnosis

    return Answer(code, reason_of_diagnosis(judged), host_of_run(document))


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Read what the system reports about this machine, measure, and name what may explain slow paths:\n"
        "evidence, a command that confirms it, and a remedy. Measures what would show the defects that the\n"
        "system reports, and the quick preset if there are none or they do not explain what is slow; with\n"
        "-t, -p or --tier, what they select.",
        EXIT_CODES,
    )
    arguments.add_argument(
        "source", nargs="?", metavar="RUN.json", help="examine a saved run instead of this machine"
    )
    arguments.add_argument(
        "--no-measure", dest="measure", action="store_false", help="only read what the system reports"
    )
    arguments.add_argument(
        "--root", metavar="FOLDER",
        help="examine the system whose /sys and /proc are in a folder, or that --record recorded",
    )  # fmt: skip
    arguments.add_argument(
        "--record", metavar="FOLDER",
        help="record in a new folder what the system reports about this machine, to examine it elsewhere",
    )  # fmt: skip
    add_expect(arguments.add_argument_group("judgement"))
    add_measuring(arguments)
    arguments.set_defaults(tier="quick")
    out = arguments.add_argument_group("output")
    add_consumer(out)
    add_output(out)
    add_verbose(out)
    return arguments
