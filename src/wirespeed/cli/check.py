"""``wirespeed check``: judge whether a machine is as fast as it should be, measured or from saved runs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..features import offered
from ..judging.criteria import Criteria
from ..judging.explain_steps import Adaptive
from ..judging.gates import GateSet, load, unsuitable
from ..judging.judged import Judged
from ..options import JOB, MEASURING
from ..screens import EXPLAINED, TEXT, check_format, check_formats
from ..units import many, parse_age, parse_duration, parse_nics
from . import dry_run, measuring, option_values, run_files
from .check_files import check_files, code_of_check
from .consumers import Answer, refuse_mixed
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document
    from ..hardware.topology import Machine
    from ..results.output import Output
    from ..worlds.base import World


def main(name: str, argv: Sequence[str]) -> int:
    return _check(parser(name), name, argv)


def main_of_doctor(name: str, argv: Sequence[str]) -> int:
    """Run the former command ``doctor``: ``check --explain`` that saves a run only with ``-o``."""
    return _check(parser_of_doctor(name), name, argv)


def parser_of_doctor(name: str) -> Parser:
    arguments = parser(name)
    arguments.set_defaults(explain=True, no_save=True, no_history=True)
    return arguments


def _check(arguments: Parser, name: str, argv: Sequence[str]) -> int:
    """Judge files or this machine, print the screen, and return the exit code."""
    from ..driver.jobs import join

    options = arguments.parse_args(argv)
    options.source = [*(options.source or ()), *options.saved]
    run_files.return_files(options, options.source)
    _refuse_useless(arguments, options)
    check_format(options.format)
    if options.record is not None:
        return _record(options.record)
    options.explain |= options.root is not None or not options.measure
    if options.explain and options.format == TEXT.name:
        options.format = EXPLAINED.name
    if not options.source:
        options.max_age = None  # what is measured now is not old
    gates = tuple(load(name) for name in dict.fromkeys(options.gates))  # before anything is measured
    by = replace(option_values.criteria(options), gates=gates)
    chosen = options.testcase or options.prefix or options.tier
    adaptive = Adaptive(by) if options.explain and not (options.source or chosen) else None
    options.tier = options.tier or "quick"
    if options.dry_run:
        return dry_run.dry_run(option_values.measuring(options), options)

    def judging(document: Document, file: str) -> Judged:
        if adaptive and adaptive.concluded and not options.since:
            return adaptive.concluded.renewed(document)
        judged_by = by
        for with_past in offered("past") if options.since else ():
            judged_by = with_past(judged_by, document, options)
        return Judged(document, judged_by, file)

    def show(judged: Judged) -> None:
        if not options.quiet:
            style = replace(option_values.style(options), checked=True)
            if adaptive and options.format == EXPLAINED.name:
                from ..screens.doctor import render

                text = render(judged, style, adaptive.steps)
            else:
                text = check_format(options.format).render(judged, style)
            print(text, end="", flush=True)

    if options.source:
        files = run_files.named_files(options.source)
        if len(files) > 1 or options.fleet:
            if options.since:
                raise UsageError("--since judges one run by the history of its machine: give one file")
            return check_files(files, by, options)
        document = run_files.loading(options)(files[0])
        _refuse_simulated(document.simulated, options)
        _check_gates(by.gates, document.machine)
        judged = judging(document, files[0])
        show(judged)
        return _answer(judged, options)
    if options.root is not None or not options.measure:
        from ..api import described

        judged = judging(described(options.machine, root=options.root), "")
        show(judged)
        return _answer(judged, options)

    output = run_files.saving(options)
    refuse_mixed(options.consumer, output)
    world = join(options.processes, [name, *argv], options.timeout)
    if world is not None:
        adaptive = None  # a job needs the names of its testcases

    def shown(judged: Judged) -> None:
        show(judged)
        run_files.tell_saved(output)
        for remember in offered("remember"):
            remember(judged, options)

    with run_files.texts_aside(output):
        return measuring.lead(
            world,
            lambda: _measure(options, by, output, world, adaptive),
            shown,
            lambda judged: _answer(judged, options),
            judging=lambda document: judging(document, str(output.path) if output else ""),
            says=not options.quiet and options.format == TEXT.name,
        )


def _record(folder: str) -> int:
    """Record what the system reports about this machine."""
    from ..api import record

    files = record(folder)
    print(f"recorded {many(files, 'file')}; examine them with: wirespeed check --root {shlex.quote(folder)}")
    return ExitCode.PASS


def _refuse_useless(arguments: Parser, options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, or do nothing together with the others.

    Raises:
        UsageError: If there are such options.
    """
    if options.source and options.output:
        raise UsageError("-o saves a new measurement, and files are saved ones: give one of them")
    if options.fleet and not options.source:
        raise UsageError("--fleet compares saved runs with each other: give their files")
    if options.nics is not None and not options.source:
        raise UsageError("--nics is for imported logs: give their files")
    if options.since and options.baseline:
        raise UsageError("--since judges by this machine's own past, --baseline by good machines: give one")
    folder = "--root" if options.root is not None else "--record" if options.record is not None else ""
    if options.root is not None and options.record is not None:
        raise UsageError("--record is about this machine, --root about another one: choose one of them")
    if options.consumer and options.record is not None:
        raise UsageError("--record judges nothing: omit --for")
    refuse = partial(arguments.refuse_unused, options)
    if folder or not options.measure:
        about = folder or "--no-measure"
        if options.source:
            raise UsageError(f"{about} is about a machine, not about a saved run: omit {options.source[0]}")
        refuse(
            f"because {about} measures nothing", "output", "force", "wait_idle", "dry_run",
            groups=MEASURING, but=() if folder else ("machine",),
        )  # fmt: skip
    if options.source:
        refuse(
            "on saved runs and logs, which are not measured", "wait_idle", "dry_run", "force",
            groups=MEASURING, but=("machine", "host_memory"),
        )  # fmt: skip
    if options.dry_run:
        refuse(
            "with --dry-run, which judges nothing",
            "explain", "format", "output", "quiet", "all_cells", "consumer",
        )  # fmt: skip
    if options.format != "prometheus":
        refuse("without --format prometheus", "all_cells")


def _check_gates(gates: Sequence[GateSet], machine: Machine) -> None:
    """Refuse sets of gates that do not fit a machine."""
    for reason in filter(None, (unsuitable(gate_set, machine) for gate_set in gates)):
        raise UsageError(reason)


def _answer(judged: Judged, options: argparse.Namespace) -> int:
    """The exit code of a run; for a consumer, with the reason."""
    code = code_of_check(judged)
    if not options.consumer:
        return code
    from ..screens.one_line import brief_of_diagnosis, brief_of_run

    return Answer(code, *(brief_of_diagnosis if options.explain else brief_of_run)(judged))


def _measure(
    options: argparse.Namespace,
    by: Criteria,
    output: Output | None,
    world: World | None,
    following: Adaptive | None,
) -> Document:
    """Validate the options, wait for an idle machine, and measure."""
    from ..api import wait_idle
    from ..backends import describe
    from ..results.overrides import check_links

    machine = describe(options.machine)
    _refuse_simulated(machine.simulated, options)
    arguments = option_values.measuring(options) | {"machine": machine}
    if world is None:  # otherwise the machine is that of all ranks, which is known later
        check_links(by.overrides, machine)
        _check_gates(by.gates, machine)
        if by.baseline:
            by.baseline.entries(machine)
    if options.wait_idle:
        if world is not None:
            raise UsageError("--wait-idle cannot be used in a job, whose processes would wait for each other")
        waited = wait_idle(machine, options.wait_idle)
        if arguments["since"] is not None:
            arguments["since"] += waited  # the time of --within begins when the machine is idle
    selected = options.testcase or options.prefix
    return measuring.measured(
        options, **arguments, output=output, world=world, following=following, try_peers=not selected
    )


def _refuse_simulated(simulated: bool, options: argparse.Namespace) -> None:
    if simulated and not (options.allow_simulated or options.explain):
        raise UsageError("refusing to check a simulated machine; pass --allow-simulated")


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Judge whether a machine is as fast as its hardware allows, and name the cause of low values.\n"
        "Without files, measure this machine first; with files, judge saved runs and logs of other tools.\n"
        "--explain shows all causes: evidence, the command that confirms each, and the remedy.",
        elsewhere=MEASURING,
        usage="wirespeed check [OPTION ...] [FILE ...]",
        examples={
            "check": "judge this machine",
            "check --explain": "show causes and remedies",
            "check runs/ --fleet": "judge saved runs and logs",
        },
        often="--explain --no-measure --baseline --expect --within --for --format -o -v",
    )
    judging = arguments.add_argument_group("judgement")
    arguments.add("saved FILE*", "saved runs, logs of other tools, or folders of them; - is standard input")
    judging.add(
        "--since AGE",
        "also judge by this machine's own runs of this time, such as 30d (see `wirespeed history`)",
        parse_age,
    )  # fmt: skip
    judging.add_judging()
    judging.add(
        "--gates NAME|FILE",
        "also compare with published thresholds: aws, azure, dcgm, gcp, oci, or a TOML file; repeatable",
        action="append", default=[],
    )  # fmt: skip
    judging.add_simulated()
    causes = arguments.add_argument_group("causes")
    causes.add(
        "--explain",
        "show all causes with evidence and remedy; without files, measure first what would show the defects "
        "that the system reports",
    )  # fmt: skip
    causes.add(
        "--no-measure", "only show defects that the system reports; nothing is measured",
        action="store_false", dest="measure",
    )  # fmt: skip
    causes.add(
        "--root FOLDER", "the same for the system that --record recorded, or whose /sys and /proc these are"
    )
    causes.add("--record FOLDER", "record in a new folder what the system reports, to examine it elsewhere")
    of_files = arguments.add_argument_group("judgement of saved runs and logs")
    of_files.add("--from FILE+", argparse.SUPPRESS, dest="source")
    of_files.add(
        "--fleet",
        "also compare the runs of one model with each other, and warn of values far below their median",
    )  # fmt: skip
    of_files.add("--max-age AGE", "do not judge saved runs older than this, such as 2d or 12h", parse_age)
    of_files.add(
        "--nics NxRATE",
        "the N NICs of each host of a log, such as 8x400G, for collectives, RDMA and messages between hosts",
        parse_nics,
    )  # fmt: skip
    when = arguments.add_argument_group(f"measuring: {option_values.OF_RUN}")
    when.add(
        "--wait-idle TIME",
        "maximum time to wait until no other process uses the machine; --within begins after it",
        parse_duration, by_project=True,
    )  # fmt: skip
    when.add_dry_run()
    arguments.add_measuring()
    arguments.set_defaults(tier=None)  # quick, unless --explain finds what to measure
    arguments.add_argument_group(JOB).add_job()
    out = arguments.add_argument_group("output")
    out.add_format(check_formats(), TEXT.name)
    out.add_consumer()
    out.add_all_cells()
    out.add_saving()
    out.add_remembering()
    out.add_verbose()
    return arguments
