"""``wirespeed check``: judge whether a machine is as fast as it should be, measured or from saved runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, WORST_FIRST, ExitCode, UsageError
from ..features import offered
from ..judging.criteria import Criteria
from ..judging.gates import GateSet, load, unsuitable
from ..judging.judged import Judged
from ..options import JOB, MEASURING
from ..screens import check_format, check_formats
from ..units import parse_age, parse_duration, parse_nics
from . import dry_run, leading, parsed, run_files
from .consumers import Answer, refuse_mixed
from .parser import Parser

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..hardware.topology import Machine
    from ..reports import Style
    from ..reports.checked_runs import CheckedRun
    from ..results.output import Output
    from ..worlds.base import World


def main(name: str, argv: Sequence[str]) -> int:
    from ..driver.jobs import join

    arguments = parser(name)
    options = arguments.parse_args(argv)
    options.source = [*(options.source or ()), *options.saved]
    run_files.return_files(options, options.source)
    _refuse_useless(arguments, options)
    check_format(options.format)
    if options.dry_run:
        return dry_run.dry_run(parsed.measuring(options), options)
    if not options.source:
        options.max_age = None  # what is measured now is not old
    if options.since and options.baseline:
        raise UsageError("--since judges by this machine's own past, --baseline by good machines: give one")
    gates = tuple(load(name) for name in dict.fromkeys(options.gates))  # before anything is measured
    by = replace(parsed.criteria(options), gates=gates)

    def judging(document: Document, file: str) -> Judged:
        judged_by = by
        for with_past in offered("past") if options.since else ():
            judged_by = with_past(judged_by, document, options)
        return Judged(document, judged_by, file)

    def show(judged: Judged) -> None:
        if not options.quiet:
            shown = replace(parsed.style(options), checked=True)
            print(check_format(options.format).render(judged, shown), end="", flush=True)

    if options.source:
        files = run_files.named_files(options.source)
        if len(files) > 1 or options.fleet:
            if options.since:
                raise UsageError("--since judges one run by the history of its machine: give one file")
            return check_many(files, by, options)
        document = run_files.loading(options)(files[0])
        _refuse_simulated(document.simulated, options)
        _check_gates(by.gates, document.machine)
        judged = judging(document, files[0])
        show(judged)
        return _answer(judged, options)

    output = run_files.saving(options)
    refuse_mixed(options.consumer, output)
    world = join(options.processes, [name, *argv], options.timeout)

    def shown(judged: Judged) -> None:
        show(judged)
        run_files.tell_saved(output)
        for remember in offered("remember"):
            remember(judged, options)

    with run_files.texts_aside(output):
        return leading.lead(
            world,
            lambda: _measure(options, by, output, world),
            shown,
            lambda judged: _answer(judged, options),
            judging=lambda document: judging(document, str(output.path) if output else ""),
            says=not options.quiet and options.format == "text",
        )


def _refuse_useless(arguments: Parser, options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, or do nothing together with the others.

    Raises:
        UsageError: If there are such options.
    """
    if options.source and options.output:
        raise UsageError("-o saves a new measurement, --from judges saved ones: give one of them")
    if options.fleet and not options.source:
        raise UsageError("--fleet compares saved runs with each other: give them with --from")
    if options.nics is not None and not options.source:
        raise UsageError("--nics is for imported logs: give them with --from")
    refuse = partial(arguments.refuse_unused, options)
    if options.source:
        refuse(
            "on saved runs and logs, which are not measured", "wait_idle", "dry_run", "force",
            groups=MEASURING, but=("machine", "host_memory"),
        )  # fmt: skip
    if options.dry_run:
        refuse("with --dry-run, which judges nothing", "format", "output", "quiet", "all_cells", "consumer")
    if options.format != "prometheus":
        refuse("without --format prometheus", "all_cells")


def _check_gates(gates: Sequence[GateSet], machine: Machine) -> None:
    """Refuse sets of gates that do not fit a machine."""
    for reason in filter(None, (unsuitable(gate_set, machine) for gate_set in gates)):
        raise UsageError(reason)


def _answer(judged: Judged, options: argparse.Namespace) -> int:
    """The exit code of a run; for a consumer, with the reason."""
    code = leading.code_of(judged.check.verdict)
    if not options.consumer:
        return code
    from ..screens.brief import brief_of_run

    return Answer(code, *brief_of_run(judged))


def _measure(
    options: argparse.Namespace, by: Criteria, output: Output | None, world: World | None
) -> Document:
    """Validate the options, wait for an idle machine, and measure."""
    from ..api import wait_idle
    from ..backends import describe
    from ..results.overrides import check_links

    machine = describe(options.machine)
    _refuse_simulated(machine.simulated, options)
    arguments = parsed.measuring(options) | {"machine": machine}
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
    return leading.measured(options, **arguments, output=output, world=world, try_peers=not selected)


def _refuse_simulated(simulated: bool, options: argparse.Namespace) -> None:
    if simulated and not options.allow_simulated:
        raise UsageError("refusing to check a simulated machine; pass --allow-simulated")


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Judge whether a machine is as fast as its hardware allows, and name the cause of low values.\n"
        "Without files, measure this machine first; with files, judge saved runs and logs of other tools.",
        EXIT_CODES,
        elsewhere=MEASURING,
        usage="wirespeed check [OPTION ...] [FILE ...]",
    )
    judging = arguments.add_argument_group("judgement")
    arguments.add("saved FILE*", "saved runs, logs of other tools, and folders of them (- is standard input)")
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
    of_files = arguments.add_argument_group("judgement of saved runs and logs")
    of_files.add(
        "--from FILE+", "the same as FILE; several files end with the exit code of the worst", dest="source"
    )
    of_files.add(
        "--fleet",
        "also compare the runs of one model with each other, and warn of values far below their median",
    )  # fmt: skip
    of_files.add("--max-age AGE", "do not judge saved runs older than this, such as 2d or 12h", parse_age)
    of_files.add(
        "--nics NUMBERxRATE",
        "NICs of each host of a log, such as 8x400G, for collectives, RDMA and messages between hosts",
        parse_nics,
    )  # fmt: skip
    when = arguments.add_argument_group(f"measuring: {parsed.OF_RUN}")
    when.add(
        "--wait-idle TIME",
        "maximum time to wait until no other process uses the machine; --within begins after it",
        parse_duration, by_project=True,
    )  # fmt: skip
    when.add_dry_run()
    arguments.add_measuring()
    arguments.set_defaults(tier="quick")
    arguments.add_argument_group(JOB).add_job()
    out = arguments.add_argument_group("output")
    out.add(
        "--format", "format of verdicts, likely causes and thresholds (default: text)", default="text",
        choices=check_formats(), by_project=True,
    )  # fmt: skip
    out.add_consumer()
    out.add_all_cells()
    out.add_saving()
    out.add_remembering()
    out.add_verbose()
    return arguments


#: What to do about a node that is slower than others.
_STEP = "compare its settings and hardware with those of the others: wirespeed report --fleet"


@dataclass(frozen=True)
class _Done:
    """A judged run: its exit code, its part of the report, and why a set of gates suits it not."""

    code: int
    run: CheckedRun
    unsuitable: tuple[str, ...]


def check_many(files: Sequence[str], by: Criteria, options: argparse.Namespace) -> int:
    """Judge saved runs, print the report of all, and return the exit code.

    Raises:
        UsageError: If a run is simulated and this is not allowed, or a set of gates fits none of the
            machines.
    """
    from ..results.read_many import read_many

    shown = replace(parsed.style(options), checked=True)
    read = read_many(
        files, partial(_judged, by=by, form=options.format, style=shown), run_files.loading(options)
    )
    for done in read.found:
        if done.run.node.simulated and not options.allow_simulated:
            raise UsageError(
                f"refusing to check a simulated machine ({done.run.node.file}); pass --allow-simulated"
            )
    for reasons in zip(*(done.unsuitable for done in read.found), strict=True):
        if all(reasons):
            raise UsageError(reasons[0])
    if options.fleet:
        read = replace(read, found=_compared(read.found))
    if not options.quiet:
        form = check_format(options.format)
        print(form.joined([done.run for done in read.found], read.unreadable, shown), end="", flush=True)
    else:
        run_files.tell_unreadable(read.unreadable)
    code = worst([*(done.code for done in read.found), *(ExitCode.RUN for _ in read.unreadable)])
    if not options.consumer:
        return code
    from ..screens.brief import brief_of_runs

    return Answer(code, *brief_of_runs([done.run.node for done in read.found], read.unreadable))


def _compared(found: Sequence[_Done]) -> list[_Done]:
    """The runs with what is slow compared with the others of their model.

    Raises:
        UsageError: If no model has enough runs.
    """
    nodes, behind = [done.run.node for done in found], dict[str, list[str]]()
    for compared in offered("compared"):
        for file, texts in compared(nodes).items():
            behind.setdefault(file, []).extend(texts)
    return [_behind(done, behind.get(done.run.node.file, [])) for done in found]


def _behind(done: _Done, texts: Sequence[str]) -> _Done:
    """A run with what is slow compared with others: at least a warning."""
    if not texts:
        return done
    from ..judging.verdict import Verdict

    code, node = done.code, done.run.node
    if code in (ExitCode.PASS, ExitCode.NOT_JUDGED):
        code = ExitCode.WARN
        node = replace(
            node, word=Verdict.WARN.word.upper(), sentence="slower than other nodes of this fleet",
            topic="slower than other nodes of this fleet", step=_STEP,
        )  # fmt: skip
    remarks = (*done.run.remarks, *(f"threshold learned from this fleet: {text}" for text in texts))
    return replace(done, code=code, run=replace(done.run, node=node, remarks=remarks))


def worst(codes: Iterable[int]) -> int:
    """The exit code of several runs: that of the worst."""
    return min(codes, key=WORST_FIRST.index)


def _judged(file: str, document: Document, by: Criteria, form: str, style: Style) -> _Done:
    from ..reports.checked_runs import CheckedRun

    judged = Judged(document, by, file)
    run = CheckedRun.of(judged, check_format(form).part(judged, style))
    reasons = tuple(unsuitable(gate_set, document.machine) for gate_set in by.gates)
    return _Done(leading.code_of(judged.check.verdict), run, reasons)
