"""``wirespeed transfer``: measure transfers that start together, or show what would be measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...cli import leading, parsed, run_files
from ...cli.parser import Parser
from ...driver.jobs import join
from ...errors import ExitCode, UsageError
from ...options import GPU, HOW, JOB, MEASURING, STOP, WHAT
from .program import Program, of_line


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    options = arguments.parse_args(argv)
    if options.dry_run:
        arguments.refuse_unused(options, "with --dry-run", "output", "force", "verbose", "all_cells")
    parsed.refuse_blocks(options, [name])
    program = of_line(" ".join(options.line))
    if options.dry_run:
        return _dry_run(options, program)
    parsed.check_format(options.format)
    world = join(options.processes, [name, *argv], options.timeout)
    settings = _arguments(options, program)
    with run_files.texts_aside(options.output):
        return leading.lead(
            world,
            lambda: leading.measured(options, **settings, machine=options.machine, world=world),
            lambda judged: parsed.print_report(judged, options),
        )


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Measure transfers that start together. The device on the left executes:\n"
        "gpu0 -> gpu1 is pushed by gpu0, gpu1 <- gpu0 is pulled by gpu1.\n"
        "`wirespeed help transfers` describes the language.",
        examples={
            "transfer 'gpu0 -> gpu1'": "one transfer",
            "transfer 'gpu0 -> gpu1; gpu1 -> gpu0'": "two at the same time",
            "transfer --dry-run 'host -> gpu0'": "what it would use",
        },
        elsewhere=MEASURING,
        often="--dry-run --size --samples --machine -o --format",
    )
    arguments.add("line TRANSFERS+", "transfers in quotes, such as 'gpu0 -> gpu1; gpu1 -> gpu0 1MiB'")
    arguments.add("--dry-run", "show routes, shared links and limits; nothing is measured")
    of_run = "--size, --samples, --devices, --within and --processes"
    arguments.add_argument_group("measuring", f"also the options of `wirespeed run`, such as {of_run}")
    arguments.add_machine()
    for group in (WHAT, STOP, HOW, GPU):
        arguments.add_argument_group(group).add_options(group)
    arguments.add_argument_group(JOB).add_job()
    out = arguments.add_argument_group("output")
    out.add_output()
    out.add_quiet()
    out.add_report()
    return arguments


def _arguments(options: argparse.Namespace, program: Program) -> dict[str, Any]:
    """The arguments of ``wirespeed.run`` for a program: its testcase, settings and text.

    Raises:
        UsageError: If a setting of the program differs from the options.
    """
    chosen = parsed.run_options(options)
    settings: dict[str, Any] = program.settings(vars(chosen))
    about = {"testcases": [program.testcase], "described": {"transfers": [program.text]}}
    return about | parsed.timed(replace(chosen, **settings))


def _dry_run(options: argparse.Namespace, program: Program) -> int:
    """Print what would be measured on this machine, or on a simulated one."""
    from ...api import as_changed, part_of
    from ...backends import connect, describe
    from ...backends.mixed import assigned
    from .dry_run import dry_run
    from .dry_run_screen import DRY_RUN_FORMATS, render_dry_run

    if options.format not in DRY_RUN_FORMATS:
        raise UsageError(f"--dry-run has the formats {', '.join(DRY_RUN_FORMATS)}, not {options.format!r}")
    arguments = _arguments(options, program)
    chosen = arguments["options"]
    machine = part_of(describe(options.machine), chosen)
    (case,) = as_changed([program.testcase], chosen)
    backends = connect(machine)
    try:
        planned = dry_run(case, machine, chosen, lambda measurement: assigned(backends, measurement)[1])
    finally:
        for backend in backends:
            backend.close()
    sys.stdout.write(render_dry_run(planned, machine, options.format))
    return ExitCode.PASS
