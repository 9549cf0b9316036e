"""``wirespeed blocks``: the fastest way to move scattered blocks, over their size and number."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES
from .common import (
    add_machine,
    add_options,
    add_report,
    add_saving,
    check_format,
    print_report,
    process_started,
    run_options,
    saving,
    style,
    tell_saved,
    texts_aside,
    typed,
)
from .dry_run import lead
from .parser import Parser
from .two_ranks import among

if TYPE_CHECKING:
    from ..judging.judged import Judged


def main(name: str, argv: Sequence[str]) -> int:
    from .. import backends
    from ..api import run
    from ..hardware.devices import STORAGE
    from ..progress import listener
    from ..reports.console import printed
    from ..screens.check import headline
    from ..testcases import storage
    from ..testcases.blocks import of_directions

    options = parser(name).parse_args(argv)
    check_format(options.format)
    output, machine = saving(options), backends.describe(options.machine)
    if options.devices is not None:
        machine = machine.only(options.devices)
    cases = of_directions(machine, options.direction or ())
    with_storage = options.storage is not None or STORAGE.name in machine.others
    prefixes = (storage.PREFIX,) if with_storage else ()  # what is not possible here is no omission
    settings = run_options(options, tier="quick", sizes=options.sizes, block_counts=options.counts)
    since = None if settings.within is None else process_started()

    def show(judged: Judged) -> None:
        if not options.quiet:
            print_report(judged, options)
            if options.format == "blocks":
                ending = headline(judged.document, judged.overview, judged.file)
                sys.stdout.write(printed(style(options), "", *ending))
        tell_saved(output)

    with texts_aside(output):
        return lead(
            None, lambda: run(
                cases, prefixes, machine=machine, options=settings, output=output, force=options.force,
                since=since, listeners=listener(), command=" ".join(["wirespeed", *sys.argv[1:]]),
            ),
            show,
        )  # fmt: skip


def parser(name: str) -> Parser:
    from ..options import HOW, STOP, RunOptions, declared
    from ..testcases.blocks import DIRECTIONS

    arguments = Parser(
        name,
        "Find the fastest way to move scattered blocks, such as those of a KV cache, between host and GPUs:\n"
        "for each size and number, the time from the first call to the last byte, by one copy for\n"
        "each block, the driver's batch call, kernels that read the list, and staging.",
        EXIT_CODES,
    )
    what = arguments.add_argument_group("what to measure")
    parsers = {entry.name: about for entry, about in declared(RunOptions)}
    for flag, dest, option, help in (
        ("--sizes", "sizes", "sizes", "block sizes, such as 1KiB:4MiB:x2 (default: ten from 1KiB to 4MiB)"),
        ("--blocks", "counts", "block_counts", "numbers of blocks, such as 64,1000 (default: 16:65536:x4)"),
    ):
        about = parsers[option]
        assert about.parse is not None
        what.add_argument(flag, dest=dest, type=typed(about.parse), metavar=about.metavar, help=help)
    what.add_argument(
        "--direction", type=among(DIRECTIONS), metavar="LIST",
        help=f"directions: {', '.join(DIRECTIONS)} (default: the first two; without a GPU the last)",
    )  # fmt: skip
    add_machine(what)
    add_options(what, names=("devices", "storage", "storage_size"))
    add_options(arguments.add_argument_group(STOP), STOP)
    add_options(arguments.add_argument_group(HOW), HOW)
    out = arguments.add_argument_group("output")
    add_saving(out)
    add_report(out)
    arguments.set_defaults(format="blocks")
    return arguments
