"""``wirespeed nvbandwidth``: the command line of that program, which ``sailbandwidth.py`` shares.

They exit with 1 on invalid arguments, like those programs. Sampling stops automatically unless ``-i`` or
``--loopCount`` is given. nvbandwidth takes the options of sailbandwidth too; their defaults differ. The
version of nvbandwidth is 0.10 unless ``--compat`` is given.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ..document import Document, Status, TestcaseResult
from ..driver.listener import Listener
from ..errors import UnknownTestcase, WirespeedError
from ..exit_codes import ExitCode
from ..reports import Style, nvbandwidth, nvbandwidth_json
from ..reports.dialects import Dialect
from ..reports.nvbandwidth import DIALECTS, PROCESSES
from ..terminal import visible
from ..testcases import Testcase, find, missing, of_nvbandwidth, select
from ..testcases.subset import named_pair, only_pairs, random_pairs
from ..units import MIB, parse_duration
from .common import add_options, add_output, run_options, texts_aside, typed
from .job import add_job, lead
from .parser import Parser
from .sailbandwidth_options import add_sail_options, positive

#: Stopping criteria of a cell: looser than elsewhere, because these programs are run often.
PRECISION, TIME_BUDGET = 0.005, 0.3
#: Words after -s, and short options without a value that may be written together with it.
_WORDS = {"true": True, "1": True, "yes": True, "on": True,
          "false": False, "0": False, "no": False, "off": False}  # fmt: skip
_BUNDLE = re.compile(r"-([hlvdmjH]*s)([^=].*)", re.DOTALL)
#: Why other pairs are not measured.
_OTHER_PAIR, _NOT_CHOSEN = "not the pair of --pair", "not one of the pairs of --targetNumPairs"


@dataclass(frozen=True)
class PeerProgram:
    """A program with this command line.

    Parameters
    ----------
    name : str
        Its name.
    add : Callable
        Adds options that not all of these programs have; sets defaults of the others.
    """

    name: str
    add: Callable[[Parser], None]


class _Parser(Parser):
    """Parser that prints the usage and exits with 1 on invalid arguments."""

    def error(self, message: str) -> NoReturn:
        print(visible(f"ERROR: Invalid Arguments: {message}\n"), file=sys.stderr)
        self.print_help(sys.stderr)
        self.exit(ExitCode.FAIL)


def _boolean(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _WORDS[text.lower()]


def _separated(arguments: Sequence[str]) -> Iterator[str]:
    """Separate ``-svj`` into ``-s -vj``: after -s, argparse expects true or false."""
    for word in arguments:
        while (match := _BUNDLE.fullmatch(word)) and match[2].lower() not in _WORDS:
            yield f"-{match[1]}"
            word = f"-{match[2]}"
        yield word


def _pairs(text: str) -> int:
    return -1 if text == "-1" else positive(text)


def _mebibytes(text: str) -> int:
    return positive(text) * MIB


def parser_of(program: PeerProgram) -> Parser:
    """The parser of the program's options and of those that wirespeed adds."""
    arguments = _Parser(
        program.name,
        f"{program.name}'s command line. Sampling stops when the 95 % confidence interval of the "
        f"median is within {PRECISION:.1%} of it, or after {TIME_BUDGET:g} s per value (--time-budget), "
        "unless -i or --loopCount is given.",
        configured=False, add_help=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36),
    )  # fmt: skip
    add = arguments.add_argument
    add("-h", "--help", action="store_true", help="produce help message")
    add(
        "-b", "--bufferSize", dest="size", type=_mebibytes, default=512 * MIB, metavar="N",
        help="buffer size in MiB (512)",
    )  # fmt: skip
    add("-l", "--list", action="store_true", help="list available testcases")
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "metavar": "X"}
    add("-t", "--testcase", help="testcase(s) to run, by name or index", **several)
    add("-p", "--testcasePrefixes", help="testcase(s) to run, by prefix", **several)
    add("-v", "--verbose", action="store_true", help="print every sample; min, max and average in JSON")
    add(
        "-s", "--skipVerification", nargs="?", type=_boolean, const=True, default=False, metavar="true|false",
        help="skip the data check after copies",
    )  # fmt: skip
    add("-d", "--disableAffinity", dest="affinity", action="store_false", help="no CPU binding")
    add(
        "-i", "--testSamples", dest="samples", type=positive, metavar="N",
        help="samples (3 if only --loopCount is given)",
    )  # fmt: skip
    add("-m", "--useMean", dest="use_mean", action="store_true", help="mean instead of median")
    add(
        "-j", "--json", dest="format", action="store_const", const="json", default="text",
        help="JSON instead of text",
    )  # fmt: skip
    add(
        "--loopCount", dest="copies", type=positive, metavar="N",
        help="copies per sample (16 if only -i is given)",
    )  # fmt: skip
    program.add(arguments)
    own = arguments.add_argument_group("options of wirespeed")
    own.add_argument(
        "--machine", metavar="FILE|simulated:NAME", help="machine file or simulated machine (this machine)"
    )
    own.add_argument(
        "--time-budget", type=typed(parse_duration), default=TIME_BUDGET, metavar="TIME",
        help="maximum time per value (0.3s)",
    )  # fmt: skip
    add_output(own)
    add_options(own, names=["timeout", "seed"])
    add_job(own)
    return arguments


def _add(parser: Parser) -> None:
    """Add the options that nvbandwidth has and sailbandwidth lacks, and those of sailbandwidth."""
    add = parser.add_argument
    add(
        "-F", "--format", choices=["text", "json", "perf"], default="text",
        help="text (default), JSON, or text with &&&& PERF lines in place of SUM lines",
    )  # fmt: skip
    add("--perfFormatter", dest="perf", action="store_true", help="the same as --format perf")
    add(
        "-H", "--useHugePages", dest="huge_pages", action="store_true",
        help="fail if host buffers are not in huge pages",
    )  # fmt: skip
    add(
        "-P", "--targetNumPairs", dest="pairs", type=_pairs, default=-1, metavar="N",
        help="measure N random pairs of processes (-1: all); only in multinode device-to-device testcases",
    )  # fmt: skip
    add(
        "--pair", nargs=2, metavar="UUID",
        help="measure only this pair of GPUs in tables of pairs (`nvidia-smi -L` shows UUIDs)",
    )  # fmt: skip
    add("--version", action="store_true", help="show the version")
    add(
        "--compat", dest="dialect", default="0.10",
        choices=[name for name, dialect in DIALECTS.items() if dialect.program == "nvbandwidth"],
        help="version whose list of testcases, numbers and output to use (0.10)",
    )  # fmt: skip
    add_sail_options(
        parser, default=False, note=" With nvbandwidth, --nBlocks and --nThreads apply to ordinary copies."
    )


NVBANDWIDTH = PeerProgram("nvbandwidth", _add)


def parser(name: str) -> Parser:
    """The parser of the command."""
    return parser_of(NVBANDWIDTH)


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    return main_of(NVBANDWIDTH, argv)


def main_of(program: PeerProgram, argv: Sequence[str]) -> int:
    """Run the command line of ``program`` and return its exit code."""
    arguments = parser_of(program)
    options = arguments.parse_args(list(_separated(argv)))
    options.program = program.name
    dialect = DIALECTS[options.dialect]
    if options.help or options.version:
        print(dialect.start(), end="")
        if options.help:
            arguments.print_help()
        return ExitCode.PASS
    if options.list:
        print(dialect.start() + listing(dialect), end="")
        return ExitCode.PASS
    try:
        with texts_aside(options.output):
            return _run(options, [program.name, *argv])
    except WirespeedError as error:
        _say(options, str(error))
        return ExitCode.FAIL


def _say(options: argparse.Namespace, message: str) -> None:
    """Report why nothing was run, in the requested format."""
    if options.format == "json":
        print(nvbandwidth_json.error(message, options.dialect), end="")
    else:
        print(visible(f"ERROR: {message}"), file=sys.stderr)


def listing(dialect: Dialect) -> str:
    """The program's list of testcases."""
    cases = _listed(dialect, several=False)
    entries = [f"{case.index}, {case.name}:\n\t{case.description}\n\n" for case in cases]
    return "".join(["Index, Name:\n\tDescription\n=======================\n", *entries])


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from ..api import run
    from ..backends import connect, describe
    from ..driver.jobs import join
    from ..progress import listener

    if options.testcase and options.testcasePrefixes:
        _say(options, "-t and -p cannot be given at the same time")
        return ExitCode.FAIL
    machine = describe(options.machine)
    world = join(options.processes, arguments, options.timeout)
    several = world is not None or bool(machine.ranks)
    chosen = _choose(options, several)
    if options.pair:
        if world is None:
            named_pair(machine, options.pair)  # an unknown UUID is an error of the command line
        chosen = [only_pairs(case, partial(named_pair, uuids=options.pair), _OTHER_PAIR) for case in chosen]
    if options.pairs > 0 and several:
        choose = partial(random_pairs, count=options.pairs, seed=options.seed)
        chosen = [
            only_pairs(case, choose, _NOT_CHOSEN) if case.name.startswith(PROCESSES) else case
            for case in chosen
        ]
    elif options.pairs > 0:
        print("WARNING: --targetNumPairs is ignored: there is only one process", file=sys.stderr)
    if not machine.gpus and world is None:
        _say(options, "; ".join(["no GPU was found", *machine.notes]))
        return ExitCode.FAIL
    as_json = options.format == "json"
    style = Style(
        verbose=options.verbose,
        utilization=options.displayUR,
        dialect=options.dialect,
        perf=options.perf or options.format == "perf",
    )
    counted = options.samples is not None or options.copies is not None
    stop = {} if counted else {"precision": PRECISION, "time_budget": options.time_budget, "rounds": 1}

    def measure() -> Document:
        how = run_options(options, **{"time_budget": None, **stop}, verify=not options.skipVerification)
        return run(
            chosen,
            machine=machine,
            options=how,
            output=options.output,
            force=options.force,
            backends=connect(machine),  # released by the end of the process
            world=world,
            listeners=[*listener(), *([] if as_json else [Printer(style)])],
            command=" ".join(["wirespeed", *sys.argv[1:]]),
        )

    def show(document: Document) -> None:
        if as_json:
            print(nvbandwidth_json.render(document, style), end="")

    code = _code if DIALECTS[options.dialect].exact else _good
    return lead(world, measure, show, code, broken=ExitCode.FAIL)


def _code(document: Document) -> int:
    """The exit code of a run; nvbandwidth ignores unknown testcases."""
    known = all(result.status.good or result.status is Status.NOT_FOUND for result in document.testcases)
    return ExitCode.PASS if known and not document.interrupted else ExitCode.FAIL


def _listed(dialect: Dialect, *, several: bool) -> list[Testcase]:
    """The testcases of one process, or those of several processes too."""
    cases = of_nvbandwidth(dialect.testcases)
    return [case for case in cases if several or not case.name.startswith(PROCESSES)]


def _choose(options: argparse.Namespace, several: bool) -> list[Testcase]:
    """The requested testcases; by default all of this kind of job.

    nvbandwidth ignores a prefix that fits no testcase unless there is no other.
    """
    dialect = DIALECTS[options.dialect]
    known = _listed(dialect, several=True)
    if options.testcase:
        return [_find(name, dialect, known) for name in options.testcase]
    if prefixes := options.testcasePrefixes:
        fitting = [case for case in known if case.name.startswith(tuple(prefixes))]
        return fitting if fitting and dialect.exact else list(select(prefixes=prefixes, table=known))
    return _listed(dialect, several=several)


def _find(name: str, dialect: Dialect, known: Sequence[Testcase]) -> Testcase:
    """A testcase; if it does not exist, one that reports this when it runs."""
    if number := re.fullmatch(r"\s*([+-]?\d+)", name, re.ASCII):
        for case in known:
            if case.index == int(number[1]):
                return case
        return missing(name, f"Testcase index {name} {'out of bound' if dialect.exact else 'not found'}!")
    for case in known:
        if case.name == name:
            return case
    try:
        return find(name)
    except UnknownTestcase:
        return missing(name, f"Testcase {name} not found!")


class Printer(Listener):
    """Prints every testcase as soon as it has ended."""

    def __init__(self, style: Style) -> None:
        self.style = style

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Print versions, host and devices."""
        print(visible(nvbandwidth.header(document, self.style)), end="", flush=True)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        print(visible(nvbandwidth.testcase(document.machine, result, self.style)), end="", flush=True)

    def run_ended(self, document: Document) -> None:
        print(visible(nvbandwidth.footer(document)), end="", flush=True)


def _good(document: Document) -> int:
    """The exit code of a run: success also if all testcases were waived."""
    return ExitCode.PASS if document.good else ExitCode.FAIL
