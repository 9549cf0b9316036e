"""``wirespeed run``: measure, print, save."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..driver.jobs import join
from ..features import offered
from ..judging.judged import Judged
from ..options import JOB
from . import dry_run, measuring, option_values, run_files
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
        refuse("with --dry-run", "format", "output", "force", "quiet", "verbose", "all_cells")
    if options.format != "prometheus":
        refuse("without --format prometheus", "all_cells")
    option_values.check_format(options.format)
    if options.dry_run:
        return dry_run.dry_run(option_values.measuring(options), options)
    output = run_files.saving(options)
    world = join(options.processes, [name, *argv], options.timeout)

    def show(judged: Judged) -> None:
        if is_summary and not options.quiet:
            print(render(judged, option_values.style(options)), end="", flush=True)
        elif not options.quiet:
            option_values.print_report(judged, options)
        run_files.tell_saved(output, "every table" if is_summary and not options.verbose else "")
        for remember in offered("remember"):
            remember(judged, options)

    with run_files.texts_aside(output):
        return measuring.lead(
            world,
            lambda: measuring.measured(
                options, **option_values.measuring(options), output=output, listeners=listener(), world=world
            ),
            show,
            judging=lambda document: Judged(document, file=str(output.path) if output else ""),
            says=not options.quiet and options.format == "table",
        )


def parser(name: str) -> Parser:
    """The parser of the command."""
    arguments = Parser(
        name,
        "Measure, print the results and save the run.",
        examples={
            "run": "everything, in a few minutes",
            "run --tier quick --within 30s": "what finds most, in 30 s",
            "run -t 0 4 --size 1GiB": "two testcases",
        },
        often="-t -p --tier --within --devices --machine --dry-run -o --format -v",
    )
    arguments.add_measuring()
    arguments.add_dry_run()
    arguments.add_argument_group(JOB).add_job()
    out = arguments.add_argument_group("output")
    out.add_saving()
    out.add_remembering()
    out.add_report()
    arguments.set_defaults(format=None)
    return arguments
