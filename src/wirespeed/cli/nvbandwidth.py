"""``wirespeed nvbandwidth`` and ``wirespeed sailbandwidth``: the command lines of those programs.

They exit with 1 on invalid arguments, like those programs. Sampling stops automatically unless ``-i`` or
``--loopCount`` is given. Both take the same options; their defaults differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..document import Document, TestcaseResult
from ..driver.listener import Listener
from ..errors import UnknownTestcase, WirespeedError
from ..reports import Style, nvbandwidth, nvbandwidth_json
from ..terminal import visible
from ..testcases import Testcase, find, missing, of_nvbandwidth, select
from ..units import MIB, parse_duration
from .common import Parser, add_options, add_output, run_options, texts_aside, typed
from .job import add_job, lead

_FAILED = 1
#: Stopping criteria of a cell: looser than elsewhere, because these programs are run often.
PRECISION, TIME_BUDGET = 0.005, 0.3
#: Testcases of nvbandwidth, including those of its build for several processes.
_ALL = of_nvbandwidth("0.8")
TESTCASES = _ALL[:35]


class _Parser(Parser):
    """Parser that prints the usage and exits with 1 on invalid arguments."""

    def error(self, message: str) -> NoReturn:
        print(visible(f"ERROR: Invalid Arguments: {message}\n"), file=sys.stderr)
        self.print_help(sys.stderr)
        self.exit(_FAILED)


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "on": True,
              "false": False, "0": False, "no": False, "off": False}  # fmt: skip
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return values[text.lower()]


def _shape(text: str) -> int:
    return 0 if text == "-1" else _positive(text)


def _mebibytes(text: str) -> int:
    return _positive(text) * MIB


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def _parser(program: str) -> _Parser:
    parser = _Parser(
        prog=f"wirespeed {program}", add_help=False,
        description=f"{program}'s command line. Sampling stops when the 95 % confidence interval of the "
        f"median is within {PRECISION:.1%} of it, or after {TIME_BUDGET:g} s per cell (--time-budget), "
        "unless -i or --loopCount is given.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36),
    )  # fmt: skip
    add = parser.add_argument
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
        "-i", "--testSamples", dest="samples", type=_positive, metavar="N",
        help="samples (3 if only --loopCount is given)",
    )  # fmt: skip
    add("-m", "--useMean", dest="use_mean", action="store_true", help="mean instead of median")
    add("-j", "--json", action="store_true", help="JSON instead of text")
    add(
        "--loopCount", dest="copies", type=_positive, metavar="N",
        help="copies per sample (16 if only -i is given)",
    )  # fmt: skip
    sail = parser.add_argument_group(
        "options of sailbandwidth",
        "The defaults of sailbandwidth are bulk copies by SMs, all copy engines and virtual-memory "
        "allocations; those of nvbandwidth are ordinary copies, one engine and plain allocations."
        + (
            "" if program == SAIL else " With nvbandwidth, --nBlocks and --nThreads apply to ordinary copies."
        ),
    )
    add = sail.add_argument
    off: dict[str, Any] = {"action": "store_false", "default": program == SAIL}
    shape: dict[str, Any] = {"type": _shape, "default": 0, "metavar": "N"}
    add("--useNormalCopy", dest="bulk", help="ordinary copies by SMs, not bulk copies", **off)
    add("--nBlocks", dest="blocks", help="blocks of the copy kernel (-1: automatic)", **shape)
    add("--nThreads", dest="threads", help="threads per block (-1: automatic)", **shape)
    add("--isSingleDie", dest="all_engines", help="copies by one copy engine", **off)
    add(
        "--testLocalCopy", dest="local_copy", action="store_true",
        help="local copies on the diagonal of device-to-device tables",
    )  # fmt: skip
    add("--displayUR", action="store_true", help="also print the fraction of the limit, in %%")
    add("--disableVm", dest="virtual_memory", help="plain allocations", **off)
    own = parser.add_argument_group("options of wirespeed")
    own.add_argument(
        "--machine", metavar="FILE|simulated:NAME", help="machine file or simulated machine (this machine)"
    )
    own.add_argument(
        "--time-budget", type=typed(parse_duration), default=TIME_BUDGET, metavar="TIME",
        help="maximum time per cell (0.3s)",
    )  # fmt: skip
    add_output(own)
    add_options(own, names=["timeout", "seed"])
    add_job(own)
    return parser


NV, SAIL = "nvbandwidth", "sailbandwidth"


def main(program: str, argv: Sequence[str]) -> int:
    """Run the command line of ``program`` and return its exit code."""
    parser = _parser(program)
    options = parser.parse_args(argv)
    options.program = program
    if options.help:
        print(nvbandwidth.version(program), end="")
        parser.print_help()
        return 0
    if options.list:
        print(nvbandwidth.version(program) + listing(), end="")
        return 0
    try:
        with texts_aside(options.output):
            return _run(options, [program, *argv])
    except WirespeedError as error:
        _say(options, str(error))
        return _FAILED


def _say(options: argparse.Namespace, message: str) -> None:
    """Report why nothing was run, in the requested format."""
    if options.json:
        print(nvbandwidth_json.error(message), end="")
    else:
        print(visible(f"ERROR: {message}"), file=sys.stderr)


def listing() -> str:
    """Return nvbandwidth's list of testcases."""
    entries = [f"{case.index}, {case.name}:\n\t{case.description}\n\n" for case in TESTCASES]
    return "".join(["Index, Name:\n\tDescription\n=======================\n", *entries])


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from ..api import run
    from ..backends import connect, describe
    from ..driver.jobs import join
    from ..progress import listener

    if options.testcase and options.testcasePrefixes:
        _say(options, "-t and -p cannot be given at the same time")
        return _FAILED
    machine = describe(options.machine)
    world = join(options.processes, arguments, options.timeout)
    chosen = _choose(options, world is not None or bool(machine.ranks))
    if not machine.gpus and world is None:
        _say(options, "; ".join(["no GPU was found", *machine.notes]))
        return _FAILED
    style = Style(verbose=options.verbose, utilization=options.displayUR)
    counted = options.samples is not None or options.copies is not None
    stop = {} if counted else {"precision": PRECISION, "time_budget": options.time_budget}

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
            listeners=[*listener(), *([] if options.json else [Printer(style, options.program)])],
            command=" ".join(["wirespeed", *sys.argv[1:]]),
        )

    def show(document: Document) -> None:
        if options.json:
            print(nvbandwidth_json.render(document, style), end="")

    return lead(world, measure, show)


def _choose(options: argparse.Namespace, several: bool) -> list[Testcase]:
    """Return the requested testcases; by default all of this kind of job."""
    if options.testcase:
        return [_find(name) for name in options.testcase]
    if options.testcasePrefixes:
        return list(select(prefixes=options.testcasePrefixes, table=_ALL))
    return list(_ALL) if several else list(TESTCASES)


def _find(name: str) -> Testcase:
    """Return a testcase; if it does not exist, one that reports this when it runs."""
    try:
        return find(name)
    except UnknownTestcase:
        what = "index " if name.removeprefix("-").isdigit() else ""
        return missing(name, f"Testcase {what}{name} not found!")


class Printer(Listener):
    """Prints every testcase as soon as it has ended."""

    def __init__(self, style: Style, program: str) -> None:
        self.style = style
        self.program = program

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        """Print versions, host and devices."""
        print(visible(nvbandwidth.header(document, self.program)), end="", flush=True)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Print its tables."""
        print(visible(nvbandwidth.testcase(document.machine, result, self.style)), end="", flush=True)

    def run_ended(self, document: Document) -> None:
        """Print the closing notice."""
        print(visible(nvbandwidth.footer(document)), end="", flush=True)
