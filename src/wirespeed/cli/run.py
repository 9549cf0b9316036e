"""``wirespeed run``: measure, print, save.

``wirespeed blocks``: the fastest way to move scattered blocks, over their size and number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from types import NoneType

from ..document import Document, TestcaseResult
from ..driver.jobs import join
from ..driver.listener import Listener
from ..errors import EXIT_CODES
from ..features.blocks.testcases import DIRECTIONS, of_directions
from ..features.pairs.command import among
from ..features.storage import testcases as storage
from ..judging.judged import Judged
from ..options import HOW, JOB, STOP, RunOptions, declared
from ..terminal import escaped
from . import common
from .compare import remember
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..progress import listener
    from ..screens.run import render

    arguments = parser(name)
    options = arguments.parse_args(argv)
    is_summary = options.format is None and not (options.testcase or options.prefix)
    options.format = options.format or "table"
    refuse = partial(arguments.refuse_unused, options)
    if options.dry_run:
        refuse("with --dry-run", "format", "output", "force", "quiet", "json_lines", "verbose", "all_cells")
    if options.json_lines:
        refuse("with --json-lines", "format", "verbose", "all_cells")
    if options.format != "prometheus":
        refuse("without --format prometheus", "all_cells")
    common.check_format(options.format)
    if options.dry_run:
        return common.dry_run(common.measuring(options), options)
    output = common.saving(options)
    watching = [*listener(), *([JsonLines()] if options.json_lines else [])]
    world = join(options.processes, [name, *argv], options.timeout)

    def show(judged: Judged) -> None:
        if options.json_lines:
            check = judged.check
            print(escaped(json.dumps({"verdict": check.verdict, "testcases": check.testcases})), flush=True)
        elif not options.quiet:
            if is_summary:
                print(render(judged, common.style(options)), end="", flush=True)
            else:
                common.print_report(judged, options)
        common.tell_saved(output, {"every table": "show"} if is_summary and not options.verbose else {})
        remember(judged, options)

    with common.texts_aside(output):
        return common.lead(
            world,
            lambda: common.measured(
                options, **common.measuring(options), output=output, listeners=watching, world=world
            ),
            show,
            judging=lambda document: Judged(document, file=str(output.path) if output else ""),
            says=not options.quiet and not options.json_lines and options.format == "table",
        )


def parser(name: str) -> Parser:
    """Return the parser of the command."""
    arguments = Parser(name, "Measure, print the results and save the run.", EXIT_CODES)
    arguments.add_measuring()
    arguments.add_dry_run()
    arguments.add_argument_group(JOB).add_job()
    out = arguments.add_argument_group("output")
    out.add_saving()
    out.add_remembering()
    out.add_report()
    arguments.set_defaults(format=None)
    out.add("--json-lines", "print each value as a line of JSON when its testcase ends", by_project=True)
    return arguments


class JsonLines(Listener):
    """Prints the values of a testcase, one JSON object a line, as soon as it has ended."""

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Print its values in base units, or why it has none; without what is unknown, and without lists."""
        from ..reports.findings import data_word
        from ..reports.records import cells

        about = {"data": data_word(document, result), "simulated": document.simulated}
        for cell in cells([result]):
            plain = {name: value for name, value in cell.items() if not isinstance(value, (tuple, NoneType))}
            del plain["status"]  # the verdict is known when all values are
            print(escaped(json.dumps(plain | about)), flush=True)


def main_of_blocks(name: str, argv: Sequence[str]) -> int:
    from .. import backends
    from ..reports.console import printed
    from ..screens.check import headline

    options = parser_of_blocks(name).parse_args(argv)
    common.check_format(options.format)
    output, machine = common.saving(options), backends.describe(options.machine)
    if options.devices is not None:
        machine = machine.only(options.devices)
    cases = of_directions(machine, options.direction or (), computing=bool(options.while_computing))
    prefixes = storage.also_asked(machine, options.storage is not None)
    settings = common.run_options(options, tier="quick", sizes=options.sizes, block_counts=options.counts)
    given = common.timed(settings) | {"testcases": cases, "machine": machine}

    def show(judged: Judged) -> None:
        if not options.quiet:
            common.print_report(judged, options)
            if options.format == "blocks":
                ending = headline(judged.document, judged.overview, judged.file)
                sys.stdout.write(printed(common.style(options), "", *ending))
        common.tell_saved(output)

    with common.texts_aside(output):
        return common.lead(
            None, lambda: common.measured(options, output=output, prefixes=prefixes, **given), show
        )


def parser_of_blocks(name: str) -> Parser:

    arguments = Parser(
        name,
        "Find the fastest way to move scattered blocks, such as those of a KV cache, between host and GPUs:\n"
        "for each size and number, the time from the first call to the last byte, by one copy for\n"
        "each block, the driver's batch call, kernels that read the list, and staging.",
        EXIT_CODES,
    )
    what = arguments.add_argument_group("what to measure")
    about = {entry.name: declaration for entry, declaration in declared(RunOptions)}
    for flag, dest, name, help in (
        ("--sizes", "sizes", "sizes", "block sizes, such as 1KiB:4MiB:x2 (default: ten from 1KiB to 4MiB)"),
        ("--blocks", "counts", "block_counts", "numbers of blocks, such as 64,1000 (default: 16:65536:x4)"),
    ):
        what.add(f"{flag} {about[name].metavar}", help, about[name].parse, dest=dest)
    what.add(
        "--direction LIST",
        f"directions: {', '.join(DIRECTIONS)} (default: the first two; without a GPU host)",
        among(DIRECTIONS), by_project=True,
    )  # fmt: skip
    what.add_machine()
    what.add_options(names=("block_layout", "while_computing", "devices", "storage", "storage_size"))
    arguments.add_argument_group(STOP).add_options(STOP)
    arguments.add_argument_group(HOW).add_options(HOW)
    out = arguments.add_argument_group("output")
    out.add_saving()
    out.add_report()
    arguments.set_defaults(format="blocks")
    return arguments
