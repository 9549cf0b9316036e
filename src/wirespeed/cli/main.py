"""``wirespeed``: parse, call, print, and turn what happened into an exit code.

Exit codes: 0 all passed or waived, 1 something failed or timed out, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..errors import RunInterrupted, UsageError, WirespeedError
from ..version import __version__

if TYPE_CHECKING:
    from types import FrameType

    from ..results.document import Document

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what was wrong and where to look."""
        self.exit(WRONG_USE, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return _dispatch(arguments)
    except UsageError as error:
        print(f"wirespeed: error: {error}", file=sys.stderr)
        return WRONG_USE
    except WirespeedError as error:
        print(f"wirespeed: error: {error}", file=sys.stderr)
        return FAILED
    except RunInterrupted as interrupted:
        done = len(interrupted.document.testcases)
        print(f"wirespeed: interrupted; {done} testcases were begun", file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        print("wirespeed: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """A scheduler that ends a job is treated like Ctrl-C: what was measured is saved."""
    del number, frame
    raise KeyboardInterrupt


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"wirespeed {__version__}")
        return OK
    if arguments[:1] in (["nvbandwidth"], ["sailbandwidth"]):
        from . import nvbandwidth

        return nvbandwidth.main(arguments[0], arguments[1:])
    parser, commands = _parser()
    if not arguments:
        arguments = ["run", "--tier", "quick"]
    options = parser.parse_args(arguments)
    return commands[options.command](options)


def _formatter() -> type[argparse.HelpFormatter]:
    """Coloured help on a terminal; plain where nobody would see it, which is faster."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return argparse.RawDescriptionHelpFormatter
    from rich_argparse import RawDescriptionRichHelpFormatter

    return RawDescriptionRichHelpFormatter


def _parser() -> tuple[Parser, dict[str, Callable[[argparse.Namespace], int]]]:
    formatter = _formatter()
    parser = Parser(
        prog="wirespeed",
        formatter_class=formatter,
        description="Measure how fast data moves along every path of this machine.\n"
        "Without arguments: discover the machine and measure, quickly, all that can be measured here.",
        epilog="exit codes: 0 all passed or waived, 1 something failed or timed out, 2 wrong use, "
        "130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"wirespeed {__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, does: str) -> argparse.ArgumentParser:
        return sub.add_parser(name, help=does, description=does, formatter_class=formatter)

    _add_run(command("run", "measure"))
    listing = command("list", "list all testcases, and whether each can run here")
    _add_machine(listing)
    _add_tier(listing)
    describing = command("machine", "show what was discovered of the machine")
    _add_machine(describing)
    describing.add_argument("--format", choices=("tree", "json"), default="tree", help="default: %(default)s")
    showing = command("show", "print any report from any saved Document")
    showing.add_argument("file", metavar="FILE.json")
    _add_format(showing)
    showing.add_argument("-v", "--verbose", action="store_true", help="every sample, every cell, every name")
    for name in ("nvbandwidth", "sailbandwidth"):
        sub.add_parser(name, help=f"{name}'s command line, text and JSON", add_help=False)
    return parser, {"run": _run, "list": _list, "machine": _machine, "show": _show}


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine", metavar="FILE|simulated:NAME",
        help="a machine file, or a simulated machine (simulated:dgx-a100-8); default: this machine",
    )  # fmt: skip


def _add_tier(parser: argparse.ArgumentParser, default: str = "standard") -> None:
    parser.add_argument("--tier", choices=("quick", "standard", "full"), default=default,
                        help="how thorough (default: %(default)s)")  # fmt: skip


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="table", metavar="FORMAT",
                        help="table (default), json, csv, nvbandwidth, nvbandwidth-json")  # fmt: skip


def _add_run(parser: argparse.ArgumentParser) -> None:
    from ..units import parse_duration, parse_fraction, parse_size

    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "-t",
        "--testcase",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="testcases by name or nvbandwidth index (default: all)",
    )
    what.add_argument(
        "-p",
        "--prefix",
        nargs="+",
        action="extend",
        default=[],
        metavar="PREFIX",
        help="all testcases whose names start so",
    )
    _add_tier(what)  # type: ignore[arg-type]
    what.add_argument(
        "--sizes", metavar="SIZES", help="sweep: 4KiB:1GiB:x4 or 1MiB,3MiB; every cell becomes a curve"
    )
    what.add_argument("--devices", type=_indices, metavar="0,2", help="use these GPUs alone")
    what.add_argument("--pageable", action="store_true", help="pageable host memory in place of pinned")
    what.add_argument(
        "--local-copy", action="store_true", help="local copies on the diagonal of tables of GPU pairs"
    )
    what.add_argument(
        "--size",
        type=_typed(parse_size),
        metavar="SIZE",
        help="bytes of a buffer, such as 512MiB; default: each testcase's own",
    )
    _add_machine(what)  # type: ignore[arg-type]
    how = parser.add_argument_group(
        "when to stop: at a precision (default), or after fixed counts (--samples, --copies)"
    )
    how.add_argument(
        "--precision",
        type=_typed(parse_fraction),
        metavar="PERCENT",
        help="half of the 95 %% interval of the median (0.5%%; quick: 1%%)",
    )
    how.add_argument(
        "--time-budget",
        type=_typed(parse_duration),
        metavar="TIME",
        help="at most so long for one cell (5s; quick: 0.6s; full: 10s)",
    )
    how.add_argument("--samples", type=int, metavar="N", help="so many samples (3 if only --copies is given)")
    how.add_argument(
        "--copies", type=int, metavar="N", help="so many copies in a sample (16 if only --samples is given)"
    )
    how.add_argument(
        "--timeout",
        type=_typed(parse_duration),
        default=60.0,
        metavar="TIME",
        help="give up when one stage takes longer (default: 60s)",
    )
    how.add_argument("--seed", type=int, default=0, metavar="N", help="seed of data and order (default: 0)")
    how.add_argument("--no-verify", action="store_true", help="do not check the data after each sample")
    how.add_argument("--no-affinity", action="store_true", help="do not pin threads to cores")
    gpu = parser.add_argument_group("how GPUs copy")
    gpu.add_argument("--bulk", action="store_true", help="SM kernels of bulk asynchronous copies")
    gpu.add_argument("--blocks", type=int, default=0, metavar="N", help="blocks of a copy kernel")
    gpu.add_argument("--threads", type=int, default=0, metavar="N", help="threads of a block")
    gpu.add_argument("--all-engines", action="store_true", help="spread a copy over all copy engines")
    gpu.add_argument(
        "--virtual-memory", action="store_true", help="allocate by cuMemCreate and cuMemMap, not cuMemAlloc"
    )
    out = parser.add_argument_group("output")
    out.add_argument(
        "-o",
        "--output",
        metavar="FILE.json",
        help="where the Document is saved (default: wirespeed-HOST-TIME.json here)",
    )
    _add_format(out)  # type: ignore[arg-type]
    out.add_argument("-v", "--verbose", action="store_true", help="every sample, every cell, every name")


def _indices(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of GPU indices; write it like 0,2")
    return [int(part) for part in parts]


def _typed(parse: Callable[[str], float]) -> Callable[[str], float]:
    """Let argparse show the message of our own parsers."""

    def convert(text: str) -> float:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _run(options: argparse.Namespace) -> int:
    from pathlib import Path

    from ..api import run
    from ..reports import formats
    from .progress import listener

    if options.format not in formats():
        raise UsageError(f"there is no format {options.format!r}; there are {', '.join(formats())}")
    output = Path(options.output or _default_name())
    document = interrupted = None
    try:
        document = run(
            options.testcase,
            options.prefix,
            machine=options.machine,
            size=options.size,
            tier=options.tier,
            samples=options.samples,
            copies=options.copies,
            precision=options.precision,
            time_budget=options.time_budget,
            timeout=options.timeout,
            seed=options.seed,
            verify=not options.no_verify,
            affinity=not options.no_affinity,
            sizes=options.sizes,
            devices=options.devices,
            local_copy=options.local_copy,
            pageable=options.pageable,
            bulk=options.bulk,
            blocks=options.blocks,
            threads=options.threads,
            all_engines=options.all_engines,
            virtual_memory=options.virtual_memory,
            output=output,
            listeners=listener(),
            command=" ".join(["wirespeed", *sys.argv[1:]]),
        )
    except RunInterrupted as error:
        document, interrupted = error.document, error
    _print(document, options)
    print(f"saved to {output} (`wirespeed show {output}` prints it again)", file=sys.stderr)
    if interrupted:
        raise interrupted
    return OK if document.good else FAILED


def _default_name() -> str:
    import platform
    import time

    return f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def _print(document: Document, options: argparse.Namespace) -> None:
    from ..reports import Style, render

    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    style = Style(shutil.get_terminal_size().columns, colored, options.verbose)
    sys.stdout.write(render(document, options.format, style))
    sys.stdout.flush()


def _show(options: argparse.Namespace) -> int:
    from ..results.store import load

    _print(load(options.file), options)
    return OK


def _list(options: argparse.Namespace) -> int:
    from ..backends import describe
    from .listing import listing

    sys.stdout.write(listing(describe(options.machine), options.tier, shutil.get_terminal_size().columns))
    return OK


def _machine(options: argparse.Namespace) -> int:
    from ..backends import describe

    machine = describe(options.machine)
    if options.format == "json":
        sys.stdout.write(machine.to_json().decode())
    else:
        from .listing import tree

        sys.stdout.write(tree(machine))
    return OK
