"""``wirespeed transfer``: measure transfers that start together, or show what would be measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, ExitCode, UsageError
from ..judging.judged import Judged
from ..options import GPU, HOW, JOB, STOP, WHAT
from .common import (
    add_machine,
    add_options,
    add_output,
    add_report,
    check_format,
    option,
    print_report,
    run_options,
    texts_aside,
    with_programs,
)
from .dry_run import add_job, lead
from .parser import Parser

if TYPE_CHECKING:
    from ..language.toml_file import Program


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    options = arguments.parse_args(argv)
    if options.dry_run:
        arguments.refuse_unused(options, "with --dry-run", "output", "force", "verbose", "all_cells")
    program = _program(options)
    if options.dry_run:
        return _dry_run(options, program)
    return _measure(options, program, [name, *argv])


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Measure transfers that start together. The device on the left executes:\n"
        "gpu0 -> gpu1 is pushed by gpu0, gpu1 <- gpu0 is pulled by gpu1.\n"
        "`wirespeed help transfers` describes the language.",
        EXIT_CODES,
    )
    subject = arguments.add_argument_group(WHAT)
    option(subject, "line TRANSFERS*", "transfers in quotes, such as 'gpu0 -> gpu1; gpu1 -> gpu0 1MiB'")
    option(subject, "-f --file FILE.toml", "measurements of a file (wirespeed help transfers)")
    option(subject, "--from-transferbench FILE", "transfers of a file of TransferBench")
    option(subject, "--from-nvloom FILE", "transfers of a CSV file of nvloom")
    option(subject, "--dry-run", "show transfers, routes, shared links and limits, and measure nothing")
    add_machine(subject)
    add_options(subject, WHAT)
    for group in (STOP, HOW, GPU):
        add_options(arguments.add_argument_group(group), group)
    add_job(arguments.add_argument_group(JOB))
    out = arguments.add_argument_group("output")
    add_output(out)
    add_report(out)
    return arguments


def _program(options: argparse.Namespace) -> Program:
    """The transfers of the line, or of the file of another tool."""
    from ..language import other_tools, toml_file
    from ..worlds import launched

    sources = (options.line, options.file, options.from_transferbench, options.from_nvloom)
    if sum(map(bool, sources)) != 1:
        raise UsageError(
            "give transfers, such as 'gpu0 -> gpu1', or one file: -f, --from-transferbench or --from-nvloom"
        )
    if options.file:
        return toml_file.load(options.file)
    if options.from_transferbench:
        return other_tools.load_transferbench(options.from_transferbench)
    if options.from_nvloom:
        return other_tools.load_nvloom(
            options.from_nvloom, "rank" if options.processes > 1 or launched() else "gpu"
        )
    return toml_file.of_line(" ".join(options.line))


def _dry_run(options: argparse.Namespace, program: Program) -> int:
    """Print what would be measured on this machine, or on a simulated one."""
    from ..api import as_changed, part_of
    from ..backends import connect, describe
    from ..backends.base import assigned
    from ..language.dry_run import dry_run
    from ..screens.dry_run import FORMATS, render

    if options.format not in FORMATS:
        raise UsageError(f"--dry-run has the formats {', '.join(FORMATS)}, not {options.format!r}")
    arguments = with_programs(run_options(options), [program])
    chosen = arguments["options"]
    machine = part_of(describe(options.machine), chosen)
    cases = as_changed(program.testcases, chosen)
    backends = connect(machine)
    try:
        planned = dry_run(cases, machine, chosen, lambda measurement: assigned(backends, measurement)[1])
    finally:
        for backend in backends:
            backend.close()
    sys.stdout.write(render(planned, machine, options.format))
    return ExitCode.PASS


def _measure(options: argparse.Namespace, program: Program, argv: Sequence[str]) -> int:
    from ..api import run
    from ..driver.jobs import join
    from ..progress import listener

    check_format(options.format)
    world = join(options.processes, argv, options.timeout)

    def show(judged: Judged) -> None:
        print_report(judged, options)

    with texts_aside(options.output):
        return lead(
            world, lambda: run(
                **with_programs(run_options(options), [program]), machine=options.machine, world=world,
                output=options.output, force=options.force, listeners=listener(),
                command=" ".join(["wirespeed", *sys.argv[1:]]),
            ),
            show,
        )  # fmt: skip
