"""``wirespeed transfer``: measure transfers that start together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...cli import dry_run, measuring, option_values, run_files
from ...cli.parser import Parser
from ...driver.jobs import join
from ...options import GPU, HOW, JOB, MEASURING, STOP, WHAT
from .program import of_line


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    options = arguments.parse_args(argv)
    if options.dry_run:
        arguments.refuse_unused(
            options, "with --dry-run", "format", "output", "force", "quiet", "verbose", "all_cells"
        )
    option_values.refuse_blocks(options, [name])
    program = of_line(" ".join(options.line))
    chosen = option_values.run_options(options)
    chosen = replace(chosen, **program.settings(vars(chosen)))
    settings = option_values.timed(chosen) | {
        "testcases": [program.testcase], "described": {"transfers": [program.text]},
    }  # fmt: skip
    if options.dry_run:
        return dry_run.dry_run(settings, options)
    option_values.check_format(options.format)
    world = join(options.processes, [name, *argv], options.timeout)
    with run_files.texts_aside(options.output):
        return measuring.lead(
            world,
            lambda: measuring.measured(options, **settings, machine=options.machine, world=world),
            lambda judged: option_values.print_report(judged, options),
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
            "transfer --dry-run 'host -> gpu0'": "how long it takes",
        },
        elsewhere=MEASURING,
        often="--dry-run --size --samples --machine -o --format",
    )
    arguments.add("line TRANSFERS+", "transfers in quotes, such as 'gpu0 -> gpu1; gpu1 -> gpu0 1MiB'")
    arguments.add_dry_run()
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
