"""``wirespeed blocks``: the fastest way to move scattered blocks, over their size and number."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...cli import measuring, option_values, run_files
from ...cli.option_groups import among
from ...cli.parser import Parser
from ...errors import UsageError
from ...judging.judged import Judged
from ...options import HOW, STOP, RunOptions, declared
from ..storage import testcases as storage
from . import saturation
from .testcases import DIRECTIONS, of_directions


def main(name: str, argv: Sequence[str]) -> int:
    from ... import backends
    from ...reports.console import printed
    from ...screens.check import headline

    options = parser(name).parse_args(argv)
    option_values.check_format(options.format)
    output, machine = run_files.saving(options), backends.describe(options.machine)
    if options.devices is not None:
        machine = machine.only(options.devices)
    cases = of_directions(machine, options.direction or (), computing=bool(options.while_computing))
    if options.format == "vllm":
        if not machine.gpus:
            raise UsageError("--format vllm requires a GPU, and no GPU was found")
        cases += saturation.TESTCASES
    prefixes = storage.also_asked(machine, options.storage is not None)
    settings = option_values.run_options(
        options, tier="quick", sizes=options.sizes, block_counts=options.counts
    )
    given = option_values.timed(settings) | {"testcases": cases, "machine": machine}

    def show(judged: Judged) -> None:
        if not options.quiet:
            option_values.print_report(judged, options)
            if options.format == "blocks":
                ending = headline(judged.document, judged.overview, judged.file)
                sys.stdout.write(printed(option_values.style(options), "", *ending))
        run_files.tell_saved(output)

    with run_files.texts_aside(output):
        return measuring.lead(
            None, lambda: measuring.measured(options, output=output, prefixes=prefixes, **given), show
        )


def parser(name: str) -> Parser:

    arguments = Parser(
        name,
        "Find the fastest way to move scattered blocks, such as those of a KV cache, between host and GPUs:\n"
        "for each size and number, the time from the first call to the last byte, by one copy for\n"
        "each block, the driver's batch call, kernels that read the list, and staging.",
        examples={
            "blocks": "the map of this machine",
            "blocks --sizes 16KiB,64KiB --blocks 1000": "two sizes of blocks",
            "blocks --within 45s -v": "with models and rules",
        },
        elsewhere=(STOP, HOW),
        often="--sizes --blocks --direction --devices --within --machine -o --format -v",
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
    of_run = "--within, --precision, --samples and --timeout"
    arguments.add_argument_group("measuring", f"also options of `wirespeed run`, such as {of_run}")
    arguments.add_argument_group(STOP).add_options(STOP)
    arguments.add_argument_group(HOW).add_options(HOW)
    out = arguments.add_argument_group("output")
    out.add_saving()
    out.add_report()
    arguments.set_defaults(format="blocks")
    return arguments
