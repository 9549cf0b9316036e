"""``wirespeed nvbandwidth``: the command line of that program, which ``sailbandwidth.py`` shares. They exit
with 1 on invalid arguments, like those programs. Sampling stops automatically unless ``-i`` or
``--loopCount`` is given. nvbandwidth takes the options of sailbandwidth too; their defaults differ. The
version of nvbandwidth is 0.10 unless ``--compat`` is given.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from ...backends import connect, describe
from ...cli import program_variables as environment
from ...cli.measuring import lead, measured
from ...cli.option_values import run_options
from ...cli.parser import Parser
from ...cli.run_files import texts_aside
from ...document import Document
from ...driver.jobs import ONE_PROCESS, blank, join
from ...errors import ExitCode, WirespeedError
from ...hardware.topology import Machine
from ...judging.judged import Judged
from ...reports import DialectName, Style
from ...terminal import visible
from ...testcases.selections import named_pair
from ...testcases.table import Testcase
from ...units import MIB, parse_duration
from ...worlds.launchers import promised
from . import json as nvbandwidth_json
from . import text as nvbandwidth
from .dialects import DIALECTS, NOT_SIMULATED, SIMULATED, VERSIONS, Dialect
from .dumps import Dumps
from .peer_program import PeerProgram, add_sail_options
from .printer import Printer
from .sailbandwidth import SAILBANDWIDTH
from .versions import restricted, selected

#: Stopping criteria of a cell: looser than elsewhere, because these programs are run often.
PRECISION, TIME_BUDGET = 0.005, 0.3
#: Words after -s, and short options without a value that may be written together with it.
_WORDS = {"true": True, "1": True, "yes": True, "on": True,
          "false": False, "0": False, "no": False, "off": False}  # fmt: skip
_BUNDLE = re.compile(r"-([hlvdmjH]*s)([^=].*)", re.DOTALL)
#: The version of nvbandwidth whose output is printed by default.
_DEFAULT: DialectName = "0.10"
#: What nvbandwidth says when it refuses to run, and on huge pages.
_NO_PREFIX = "Specified list of testcase prefixes did not match any testcases"
_PAIRS = (
    "ERROR: Invalid targetNumPairs value: {}. Must be -1 (all pairs), 0 (no pairs), or a positive number."
)
_TOO_MANY = (
    "ERROR: targetNumPairs ({count}) exceeds maximum possible pairs ({most}) for worldSize {ranks}. "
    "Use -1 for all pairs or specify a value <= {most}."
)
_HUGE = (
    "NOTE: Huge pages were requested, but Transparent Huge Pages (THP) are not enabled on this system. The "
    "option will be ignored. Enable THP with 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled' if "
    "you wish to use this feature."
)


class _Refused(WirespeedError):
    """An error in nvbandwidth's own words."""


class _Parser(Parser):
    """Parser that prints the arguments and the usage, and exits with 1, on invalid arguments.

    What is wrong goes to standard error: nvbandwidth does not say it.
    """

    def __init__(self, program: str, does: str, dialect: Dialect, arguments: Sequence[str]) -> None:
        super().__init__(
            program, does, configured=False, add_help=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36),
        )  # fmt: skip
        self._dialect, self._arguments = dialect, (self.prog, *arguments)

    def error(self, message: str) -> NoReturn:
        dialect = self._dialect
        given = "".join(f"{argument} " for argument in self._arguments)
        text = f"{dialect.start()}ERROR: Invalid Arguments \n{given}{dialect.after_usage}\n\n"
        print(visible(f"{text}{self.format_help()}"), flush=True)
        print(visible(f"ERROR: {message}"), file=sys.stderr)
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


def _parser(program: PeerProgram, name: str, given: Sequence[str] = ()) -> Parser:
    """The parser of the program's options and of those that wirespeed adds.

    Args:
        program: The program.
        name: Its name.
        given: The command line, for the version and for messages.
    """
    version = program.version(given)
    dialect = DIALECTS[version]

    def mebibytes(text: str) -> int:
        return program.whole(text) * MIB

    arguments = _Parser(
        name,
        f"{name}'s command line. Sampling stops when the 95% confidence interval of the "
        f"median is within {PRECISION:.1%} of it, or after {TIME_BUDGET:g} s per value (--time-budget), "
        "unless -i or --loopCount is given.",
        dialect, given,
    )  # fmt: skip
    add = arguments.add
    add("-h --help", "produce help message")
    add(
        "-b --bufferSize N", f"buffer size in MiB ({dialect.default_mebibytes})", mebibytes, dest="size",
        default=dialect.default_mebibytes * MIB,
    )  # fmt: skip
    add("-l --list", "list available testcases")
    add("-t --testcase X+", "testcase(s) to run, by name or index")
    add("-p --testcasePrefixes X+", "testcase(s) to run, by prefix")
    add("-v --verbose", "print every sample; min, max and average in JSON")
    add(
        "-s --skipVerification true|false", "skip the data check after copies", _boolean, nargs="?",
        const=True, default=False,
    )  # fmt: skip
    add("-d --disableAffinity", "no CPU binding", action="store_false", dest="affinity")
    add("-i --testSamples N", "samples (3 if only --loopCount is given)", program.whole, dest="samples")
    add("-m --useMean", "mean instead of median", dest="use_mean")
    add(
        "-j --json", "JSON instead of text", action="store_const", dest="format", const="json", default="text"
    )
    add("--loopCount N", "copies per sample (16 if only -i is given)", program.whole, dest="copies")
    program.add(arguments)
    arguments.set_defaults(dialect=version)
    own = arguments.add_argument_group("options of wirespeed")
    own.add(
        "--machine FILE|simulated:NAME",
        f"machine file or simulated machine (${environment.MACHINE}, else this machine)",
        default=environment.machine(),
    )  # fmt: skip
    own.add(
        "--time-budget TIME",
        "maximum time per value (0.3s)",
        parse_duration,
        default=TIME_BUDGET,
        by_project=True,
    )
    own.add_output()
    own.add_options(names=["timeout", "seed"])
    own.add_job()
    return arguments


def _add(parser: Parser) -> None:
    """Add the options that nvbandwidth has and sailbandwidth lacks, and all of sailbandwidth."""
    add = parser.add
    add(
        "-F --format", "text (default), JSON, or text with &&&& PERF lines in place of SUM lines",
        choices=["text", "json", "perf"], default="text",
    )  # fmt: skip
    add("--perfFormatter", "the same as --format perf", dest="perf")
    add(
        "-H --useHugePages", "host buffers in huge pages, as always; a note if they are switched off",
        dest="wants_huge_pages",
    )  # fmt: skip
    add("--huge-pages", "fail if host buffers are not in huge pages")
    add(
        "-P --targetNumPairs N",
        "measure N random pairs of processes, each in one direction (-1: all, 0: none); only in "
        "multinode device-to-device testcases", int, dest="pairs", default=-1,
    )  # fmt: skip
    add(
        "--pair UUID", "measure only this pair of GPUs in tables of pairs (`nvidia-smi -L` shows UUIDs)",
        nargs=2,
    )  # fmt: skip
    add("--version", "show the version")
    add(
        "--compat", "version whose list of testcases, numbers and output to use "
        f"(${environment.COMPAT}, else {_DEFAULT})", dest="dialect", choices=list(VERSIONS),
    )  # fmt: skip
    add_sail_options(
        parser, default=False, note=" With nvbandwidth, --nBlocks and --nThreads apply to ordinary copies."
    )


def _version(arguments: Sequence[str]) -> DialectName:
    others = [name.partition("-")[2] for name in DIALECTS if name not in VERSIONS]
    return environment.version(arguments, list(VERSIONS), _DEFAULT, others)


NVBANDWIDTH = PeerProgram(_add, _version)


def _main(program: PeerProgram, name: str, argv: Sequence[str]) -> int:
    """Run the command line of a program and return its exit code."""
    words = list(_separated(argv))
    arguments = _parser(program, name, words)
    options = arguments.parse_args(words)
    dialect = DIALECTS[options.dialect]
    if options.version:
        print(dialect.start(), end="")
    elif options.help:
        print(dialect.start(), end="")
        arguments.print_help()
    elif options.list:
        several = options.processes > 1 or promised()[1] > 1
        print(nvbandwidth.list_text(dialect, several=several), end="")
    else:
        try:
            with texts_aside(options.output):
                return _run(program, options, [name, *argv])
        except WirespeedError as error:
            _say(options, error)
            return ExitCode.FAIL
    return ExitCode.PASS


def _say(
    options: argparse.Namespace, error: WirespeedError, known: tuple[Document, Style] | None = None
) -> None:
    """Report why nothing was run, in the requested format, after what the program has printed before.

    Args:
        options: The options.
        error: Why.
        known: What describes the machine, once it is known, and how.
    """
    dialect, own, text = DIALECTS[options.dialect], isinstance(error, _Refused), nvbandwidth_json
    if options.format == "json":
        said = str(error)
        shown = text.render(Judged(known[0]), known[1], said) if known else text.error(said, options.dialect)
        print(shown, end="")
        return
    started = nvbandwidth.header(*known) if known else dialect.start() if own else ""
    print(visible(started), end="", flush=True)
    message = visible(str(error) if own else f"ERROR: {error}")
    print(message, file=sys.stdout if own and dialect.refuses_on_output else sys.stderr)


def _style(options: argparse.Namespace, machine: Machine, ignored: tuple[str, ...]) -> Style:
    huge_pages = machine.transparent_huge_pages or ("always" if machine.simulated else "")
    return Style(
        verbose=options.verbose,
        utilization=options.displayUR,
        dialect=options.dialect,
        perf=options.perf or options.format == "perf",
        notes=(_HUGE,) if options.wants_huge_pages and huge_pages not in ("always", "madvise") else (),
        ignored=ignored,
        empty_tables=options.pairs == 0,
    )


def _chosen(options: argparse.Namespace, ranks: int) -> list[Testcase]:
    """The requested testcases, for a number of processes or of simulated ranks."""
    dialect = DIALECTS[options.dialect]
    cases = selected(
        options.testcase, options.testcasePrefixes, dialect.testcases, several=ranks > 1, exact=dialect.exact
    )
    if not cases:
        raise _Refused(_NO_PREFIX)
    most = ranks * (ranks - 1)
    if options.pairs > most > 0:
        raise _Refused(_TOO_MANY.format(count=options.pairs, most=most, ranks=ranks))
    return cases


def _run(program: PeerProgram, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from ...progress import listener

    dialect = DIALECTS[options.dialect]
    both = dialect.both if options.testcase and options.testcasePrefixes else ""
    pairs_refused = _PAIRS.format(options.pairs) if options.pairs < -1 else ""
    if reason := both or program.refusal(options) or pairs_refused:
        raise _Refused(reason)
    machine, ignored = describe(options.machine), program.ignored(options)
    if (faults := program.faults(machine)) and not machine.simulated:
        ignored = (*ignored, NOT_SIMULATED)
    elif faults:
        machine = replace(machine, faults=(*machine.faults, *faults))
    if machine.simulated and options.processes > 1:
        raise WirespeedError(ONE_PROCESS)
    world = join(options.processes, arguments, options.timeout)
    ranks = len(machine.ranks) if world is None else world.size

    def refused(error: WirespeedError, known: tuple[Document, Style] | None = None) -> int:
        if world is None or world.rank == 0:
            _say(options, error, known)
        if world is not None:
            world.close()
        return ExitCode.FAIL

    if not machine.gpus and (world is None or not any(world.allgather(len(machine.gpus), "counting GPUs"))):
        return refused(WirespeedError("; ".join(["no GPU was found", *machine.notes])))
    style = _style(options, machine, ignored)
    try:
        chosen = _chosen(options, ranks)
    except WirespeedError as error:  # nvbandwidth has described the machine by then
        return refused(error, (blank(machine, started="", options={"size": options.size}), style))
    if options.pair and world is None:
        named_pair(machine, options.pair)  # an unknown UUID is an error of the command line
    if options.pairs > 0 and ranks <= 1:
        print("WARNING: --targetNumPairs is ignored: there is only one process", file=sys.stderr)
    pairs = options.pairs if options.pairs >= 0 and ranks > 1 else None
    dumps = Dumps(SIMULATED if faults else "") if program.dumps else None
    counted, as_json = (options.samples, options.copies) != (None, None), options.format == "json"
    stop = {} if counted else {"precision": PRECISION, "time_budget": options.time_budget, "rounds": 1}

    def measure() -> Document:
        how = run_options(options, **{"time_budget": None, **stop}, verify=not options.skipVerification)
        cases = restricted(chosen, options.pair, pairs, options.seed)
        watching = [*listener(), *filter(None, [dumps]), *([] if as_json else [Printer(style, dumps)])]
        backends = connect(machine)  # released by the end of the process
        return measured(
            options, cases, machine=machine, options=how, backends=backends, world=world, listeners=watching
        )

    def show(judged: Judged) -> None:
        if as_json:
            print(nvbandwidth_json.render(judged, style), end="")

    def code(document: Document) -> int:
        return ExitCode.PASS if nvbandwidth.is_success(document, dialect) else ExitCode.FAIL

    return lead(world, measure, show, lambda judged: code(judged.document), broken=ExitCode.FAIL)


main, parser = partial(_main, NVBANDWIDTH), partial(_parser, NVBANDWIDTH)
main_of_sailbandwidth = partial(_main, SAILBANDWIDTH)
parser_of_sailbandwidth = partial(_parser, SAILBANDWIDTH)
