"""What the commands share: the parser, options that several have, and printing a report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from ..errors import UsageError
from ..terminal import colored, columns

if TYPE_CHECKING:
    from ..reports import Criteria, Style
    from ..results.document import Document

T = TypeVar("T")

OK, FAILED, WRONG_USE, WARNED, INTERRUPTED = 0, 1, 2, 3, 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what was wrong and where to look."""
        self.exit(WRONG_USE, f"{self.prog}: error: {message} (see `{self.prog} --help`)\n")


class Options(Protocol):
    """What options can be added to: a parser, or a group of one."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action: ...


def parser(name: str, does: str) -> Parser:
    """Return the parser of a command."""
    return Parser(prog=f"wirespeed {name}", description=does, formatter_class=formatter())


def formatter() -> type[argparse.HelpFormatter]:
    """Coloured help on a terminal; plain where nobody would see it, which is faster."""
    if not colored():
        return argparse.RawDescriptionHelpFormatter
    from rich_argparse import RawDescriptionRichHelpFormatter

    return RawDescriptionRichHelpFormatter


def add_machine(to: Options) -> None:
    """Add ``--machine``."""
    to.add_argument(
        "--machine",
        metavar="FILE|simulated:NAME",
        help="a machine file, or a simulated machine (simulated:dgx-a100-8); default: this machine",
    )


def add_tier(to: Options) -> None:
    """Add ``--tier``."""
    to.add_argument(
        "--tier",
        choices=("quick", "standard", "full"),
        default="standard",
        help="how thorough (default: %(default)s)",
    )


def add_judging(to: Options) -> None:
    """Add what values are judged by."""
    from ..units import parse_fraction
    from ..verdicts import TOLERANCE

    to.add_argument("--overrides", metavar="FILE.toml", help="known deviations that are accepted")
    to.add_argument("--baseline", metavar="FILE", help="what good machines of this model reach")
    to.add_argument(
        "--tolerance",
        type=typed(parse_fraction),
        default=TOLERANCE,
        metavar="PERCENT",
        help="fail below the baseline by more than this (default: 5%%)",
    )
    to.add_argument("--ignore-busy", action="store_true", help="also judge devices that another process used")


def criteria(options: argparse.Namespace) -> Criteria:
    """Return what values are judged by, the files read."""
    from ..reports import Criteria
    from ..results import baseline, overrides

    return Criteria(
        overrides.load(options.overrides) if options.overrides else (),
        baseline.load(options.baseline) if options.baseline else None,
        options.tolerance,
        options.ignore_busy,
    )


def add_output(to: Options, help: str = "also save the Document") -> None:
    """Add ``-o``."""
    to.add_argument(
        "-o", "--output", type=output_path, metavar="FILE.json",
        help=f"{help}; in a folder, or - for standard output",
    )  # fmt: skip


def output_path(text: str) -> Path:
    """Return where a Document goes: a file, with a name of its own in a folder; ``-`` is standard output."""
    path = Path(text)
    return path / default_name() if text.endswith("/") or path.is_dir() else path


def default_name() -> str:
    """Return a name for the Document of a run that begins now."""
    import platform

    return f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def texts_aside(output: Path | None) -> AbstractContextManager[object]:
    """Show what is printed on standard error while standard output is for the Document."""
    from ..results.store import STDOUT

    return redirect_stdout(sys.stderr) if output == STDOUT else nullcontext()


def add_report(to: Options) -> None:
    """Add ``--format`` and ``-v``."""
    to.add_argument(
        "--format",
        default="table",
        metavar="FORMAT",
        help="table (default), plot, json, csv, html, markdown, junit, prometheus, nvbandwidth, ...",
    )
    add_verbose(to)


def add_verbose(to: Options) -> None:
    """Add ``-v``."""
    to.add_argument("-v", "--verbose", action="store_true", help="every sample, every cell, every name")


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add what to measure, when to stop and how GPUs copy."""
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
        help="testcases whose names start with PREFIX",
    )
    add_tier(what)
    what.add_argument(
        "--sizes", metavar="SIZES", help="sweep: 4KiB:1GiB:x4 or 1MiB,3MiB; every cell becomes a curve"
    )
    what.add_argument("--devices", type=indices, metavar="0,2", help="use only these GPUs")
    what.add_argument("--pageable", action="store_true", help="pageable host memory in place of pinned")
    what.add_argument(
        "--local-copy", action="store_true", help="local copies on the diagonal of tables of GPU pairs"
    )
    what.add_argument(
        "--size",
        type=typed(parse_size),
        metavar="SIZE",
        help="bytes of a buffer, such as 512MiB; default: each testcase's own",
    )
    add_machine(what)
    how = parser.add_argument_group(
        "when to stop: at a precision (default), or after fixed counts (--samples, --copies)"
    )
    how.add_argument(
        "--precision",
        type=typed(parse_fraction),
        metavar="PERCENT",
        help="half of the 95 %% interval of the median (0.5%%; quick: 1%%)",
    )
    how.add_argument(
        "--time-budget",
        type=typed(parse_duration),
        metavar="TIME",
        help="maximum time per cell (5s; quick: 0.3s, and 1s per testcase; full: 10s)",
    )
    how.add_argument(
        "--samples", type=int, metavar="N", help="take exactly N samples (3 if only --copies is given)"
    )
    how.add_argument(
        "--copies",
        type=int,
        metavar="N",
        help="make exactly N copies per sample (16 if only --samples is given)",
    )
    how.add_argument(
        "--timeout",
        type=typed(parse_duration),
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


def indices(text: str) -> Collection[int]:
    """Parse ``0,2``."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of GPU indices; write it like 0,2")
    return [int(part) for part in parts]


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse show the message of our own parsers."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def measuring(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``wirespeed.run`` that the options of ``add_measuring`` stand for."""
    return {
        "testcases": options.testcase,
        "prefixes": options.prefix,
        "verify": not options.no_verify,
        "affinity": not options.no_affinity,
        "command": " ".join(["wirespeed", *sys.argv[1:]]),
        **{name: getattr(options, name) for name in _SAME},
        **{name: getattr(options, name) for name in _OF_JOBS if hasattr(options, name)},
    }


#: Arguments of ``wirespeed.run`` whose options have their name.
_SAME = (
    "machine", "size", "tier", "samples", "copies", "precision", "time_budget", "timeout", "seed", "sizes",
    "devices", "local_copy", "pageable", "bulk", "blocks", "threads", "all_engines", "virtual_memory",
)  # fmt: skip


#: The same, of commands that run in jobs of several processes.
_OF_JOBS = ("share", "parallel_pairs", "sample_peers")


def check_format(name: str) -> None:
    """Refuse an unknown format before anything is measured.

    Raises
    ------
    UsageError
        With the formats that there are.
    """
    from ..reports import formats

    if name not in formats():
        raise UsageError(f"there is no format {name!r}; there are {', '.join(formats())}")


def print_report(document: Document, options: argparse.Namespace) -> None:
    """Print a Document in the format and detail that were asked for."""
    from ..reports import render

    shown = style(options)
    if hasattr(options, "baseline"):
        shown = replace(shown, criteria=criteria(options))
    sys.stdout.write(render(document, options.format, shown))
    sys.stdout.flush()


def style(options: argparse.Namespace) -> Style:
    """Return how to show something on this terminal, in the detail that was asked for."""
    from ..reports import Style

    return Style(columns(), colored(), getattr(options, "verbose", False))
