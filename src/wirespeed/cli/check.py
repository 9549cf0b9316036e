"""``wirespeed check``: judge whether a machine is as fast as it should be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, UsageError
from ..options import JOB
from .common import (
    add_all_cells,
    add_judging,
    add_measuring,
    add_saving,
    add_verbose,
    code_of,
    criteria,
    load_run,
    measuring,
    saved_files,
    saving,
    style,
    tell_saved,
    texts_aside,
    typed,
)
from .consumers import Answer, add_consumer, refuse_mixed
from .dry_run import add_dry_run, add_job, dry_run, lead
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..hardware.topology import Machine
    from ..judging.judged import Criteria, Judged
    from ..results.output import Output
    from ..results.published_gates import GateSet
    from ..worlds.base import World


def main(name: str, argv: Sequence[str]) -> int:
    from ..driver.jobs import join
    from ..judging.judged import Judged
    from ..results.output import STDOUT
    from ..screens import check_format

    options = parser(name).parse_args(argv)
    options.source = [*(options.source or ()), *options.saved]
    _refuse_contradictions(options)
    check_format(options.format)
    if options.dry_run:
        return dry_run(measuring(options), options)
    if not options.source:
        options.max_age = None  # what is measured now is not old
    by = replace(criteria(options), gates=_gates(options))

    def show(judged: Judged) -> None:
        if not options.quiet:
            shown = replace(style(options), checked=True)
            sys.stdout.write(check_format(options.format).render(judged, shown))
            sys.stdout.flush()

    if options.source:
        files = saved_files(options.source)
        if len(files) > 1 or options.fleet:
            from .check_many import check_many

            return check_many(files, by, options)
        document = _loaded(files[0], options)
        _check_gates(by.gates, [document.machine])
        judged = Judged(document, by, files[0])
        show(judged)
        return _answer(judged, options)

    output = saving(options)
    refuse_mixed(options.consumer, bool(output and output.path == STDOUT))
    world = join(options.processes, [name, *argv], options.timeout)

    def shown(judged: Judged) -> None:
        show(judged)
        tell_saved(output)

    with texts_aside(output):
        return lead(
            world,
            lambda: _measure(options, by, output, world),
            shown,
            lambda judged: _answer(judged, options),
            judging=lambda document: Judged(document, by, str(output.path) if output else ""),
        )


def _refuse_contradictions(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other.

    Raises:
        UsageError: If there are such options.
    """
    if options.source and options.output:
        raise UsageError("-o saves a new measurement, --from judges saved ones: give one of them")
    if options.fleet and not options.source:
        raise UsageError("--fleet compares saved runs with each other: give them with --from")
    if options.source and options.file:
        raise UsageError("-f is measured, --from judges saved runs: give one of them")
    if options.nics is not None and not options.source:
        raise UsageError("--nics is for imported logs: give them with --from")


def _loaded(file: str, options: argparse.Namespace) -> Document:
    from ..judging.omissions import with_host_memory
    from ..results.imported_limits import with_nics

    document = load_run(file)
    _refuse_simulated(document.simulated, options)
    if options.host_memory is not None:
        document = with_host_memory(document, options.host_memory)
    return document if options.nics is None else with_nics(document, options.nics)


def _gates(options: argparse.Namespace) -> tuple[GateSet, ...]:
    """Load all sets of gates before anything is measured."""
    from ..results.published_gates import load

    return tuple(load(name) for name in dict.fromkeys(options.gates))


def _check_gates(gates: Sequence[GateSet], machines: Sequence[Machine]) -> None:
    """Refuse sets of gates that fit none of the machines."""
    from ..judging.verdict import check_models

    for gate_set in gates:
        check_models(gate_set, machines)


def _answer(judged: Judged, options: argparse.Namespace) -> int:
    """The exit code of a run; for a consumer, with the reason."""
    code = code_of(judged.check.verdict)
    if not options.consumer:
        return code
    from ..screens.many_runs import host_of_run

    return Answer(code, judged.overview.sentence, host_of_run(judged.document))


def _measure(
    options: argparse.Namespace,
    by: Criteria,
    output: Output | None,
    world: World | None,
) -> Document:
    """Validate the options, wait for an idle machine, and measure."""
    from ..api import run, wait_idle
    from ..backends import describe
    from ..progress import listener
    from ..results.cells import check_links

    machine = describe(options.machine)
    _refuse_simulated(machine.simulated, options)
    arguments = measuring(options) | {"machine": machine}
    if world is None:  # otherwise the machine is that of all ranks, which is known later
        check_links(by.overrides, machine)
        _check_gates(by.gates, [machine])
        if by.baseline:
            by.baseline.entries(machine)
    if options.wait_idle:
        if world is not None:
            raise UsageError("--wait-idle cannot be used in a job, whose processes would wait for each other")
        waited = wait_idle(machine, options.wait_idle)
        if arguments["since"] is not None:
            arguments["since"] += waited  # the time of --within begins when the machine is idle
    return run(**arguments, output=output, force=options.force, listeners=listener(), world=world)


def _refuse_simulated(simulated: bool, options: argparse.Namespace) -> None:
    if simulated and not options.allow_simulated:
        raise UsageError("refusing to check a simulated machine; pass --allow-simulated")


def parser(name: str) -> Parser:
    from ..screens import check_formats
    from ..units import parse_age, parse_duration, parse_nics

    arguments = Parser(
        name,
        "Measure (or load saved runs), compare every value with what the hardware can do, and name the\n"
        "likely cause of low values.",
        EXIT_CODES,
    )
    judging = arguments.add_argument_group("judgement")
    arguments.add_argument("saved", nargs="*", metavar="RUN.json", help="saved runs to judge, as with --from")
    judging.add_argument(
        "--from", dest="source", nargs="+", action="extend", metavar="RUN.json",
        help="judge saved runs (- is standard input) instead of measuring; exit with the code of the worst. "
        "A folder stands for its *.json files and those of the folders in it",
    )  # fmt: skip
    judging.add_argument(
        "--fleet", action="store_true",
        help="also compare saved runs of one model with each other: values far below the median of the fleet "
        "are warnings",
    )  # fmt: skip
    judging.add_argument(
        "--max-age",
        type=typed(parse_age),
        metavar="AGE",
        help="do not judge saved runs older than this, such as 2d or 12h",
    )
    judging.add_argument(
        "--nics",
        type=typed(parse_nics),
        metavar="NUMBERxRATE",
        help="NICs of each host of imported logs, such as 8x400G, for collectives and RDMA between hosts",
    )
    add_judging(judging)
    judging.add_argument(
        "--gates",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="also compare with published thresholds: aws, azure, dcgm, gcp, oci, or a TOML file; repeatable",
    )
    judging.add_argument("--allow-simulated", action="store_true", help="allow checking a simulated machine")
    judging.add_argument(
        "--wait-idle",
        type=typed(parse_duration),
        metavar="TIME",
        help="wait until no other process uses the machine, for at most this time, which does not count for "
        "--within",
    )
    add_measuring(arguments)
    add_dry_run(arguments)
    arguments.set_defaults(tier="quick")
    add_job(arguments.add_argument_group(JOB))
    out = arguments.add_argument_group("output")
    out.add_argument(
        "--format", default="text", choices=check_formats(),
        help="format of verdicts, likely causes and thresholds (default: text)",
    )  # fmt: skip
    add_consumer(out)
    add_all_cells(out)
    add_saving(out)
    add_verbose(out)
    return arguments
