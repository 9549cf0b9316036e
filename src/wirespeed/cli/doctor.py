"""``wirespeed doctor``: what may explain slow paths, with the remedy."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import EXIT_CODES, WORST_FIRST, ExitCode, UsageError
from ..judging.adaptive import Adaptive
from ..judging.criteria import Criteria
from ..judging.judged import Judged
from ..judging.verdict import Verdict
from ..options import MEASURING
from ..terminal import one_line
from ..units import many
from . import leading, parsed, run_files
from .consumers import Answer, refuse_mixed
from .parser import Parser

if TYPE_CHECKING:
    from ..document import Document


def main(name: str, argv: Sequence[str]) -> int:
    arguments = parser(name)
    usual = arguments.get_default("tier")
    options = arguments.parse_args(argv, Namespace(tier=None))  # to know whether the user gave one
    run_files.return_files(options, options.source)
    _check(arguments, options)
    if options.record is not None:
        from ..api import record

        files = record(options.record)
        print(f"recorded {many(files, 'file')}; examine them with: wirespeed doctor --root {options.record}")
        return ExitCode.PASS
    adaptive = None
    if options.measure and not (options.source or options.testcase or options.prefix or options.tier):
        adaptive = Adaptive(parsed.expected(options))
    options.tier = options.tier or usual
    if options.source:
        return _of_files(run_files.named_files(options.source), options)
    with run_files.texts_aside(options.output):
        return _examine(_measured(options, adaptive), options, adaptive)


def _check(arguments: Parser, options: Namespace) -> None:
    """Refuse options that contradict each other, or do nothing.

    Raises:
        UsageError: If there are such options.
    """
    folder = "--root" if options.root is not None else "--record" if options.record is not None else ""
    refuse_mixed(options.consumer, options.output)
    if options.consumer and options.record is not None:
        raise UsageError("--record judges nothing: omit --for")
    if options.root is not None and options.record is not None:
        raise UsageError("--record is about this machine, --root about another one: choose one of them")
    if options.source and folder:
        raise UsageError(f"{folder} is about a machine, not about a saved run: omit {options.source[0]}")
    if options.source and not options.measure:
        raise UsageError("--no-measure is about this machine, not about a saved run")
    used = ("machine", "host_memory") if options.source else () if folder else ("machine",)
    if options.source or folder or not options.measure:
        why = f"because {folder or '--no-measure'} measures nothing"
        why = "on saved runs and logs, which are not measured" if options.source else why
        arguments.refuse_unused(options, why, "output", "force", groups=MEASURING, but=used)


def _measured(options: Namespace, adaptive: Adaptive | None) -> Document:
    """Read only the facts of a machine, or measure."""
    if options.root is not None or not options.measure:
        from ..api import described

        return described(options.machine, root=options.root)
    return leading.measured(
        options, **parsed.measuring(options), following=adaptive, try_peers=adaptive is not None
    )


def _of_files(files: Sequence[str], options: Namespace) -> int:
    """Examine saved runs and logs, each with its screen; return the exit code of the worst."""
    from ..results.read_many import Unreadable

    answers, unreadable, load = list[int](), list[Unreadable](), run_files.loading(options)
    for file in files:
        try:
            document = load(file)
        except UsageError as error:
            if len(files) == 1:
                raise
            unreadable.append(Unreadable(file, str(error)))
            continue
        if len(files) > 1:
            print(f"{chr(10) if answers else ''}{one_line(file)}:")
        answers.append(_examine(document, options, None))
    run_files.tell_unreadable(unreadable)
    answers += [Answer(ExitCode.RUN, error.why) for error in unreadable]
    worst = min(answers, key=WORST_FIRST.index)
    if isinstance(worst, Answer) and len(files) > 1:
        count = sum(answer == worst for answer in answers)
        worst.subject = f"{count} of {many(len(files), 'run')}: {worst.subject}"
    return worst


def _examine(document: Document, options: Namespace, adaptive: Adaptive | None) -> int:
    """Print what was found; return the exit code."""
    from ..screens.doctor import render

    if adaptive and adaptive.concluded:
        judged = adaptive.concluded.renewed(document)
    else:
        judged = Judged(document, Criteria(expected=parsed.expected(options)))
    if not options.quiet:
        print(render(judged, parsed.style(options), adaptive.steps if adaptive else ()), end="", flush=True)
    verdict = judged.check.verdict
    proves_nothing = document.simulated and not options.allow_simulated
    code = leading.code_of(Verdict.UNKNOWN if proves_nothing and verdict is Verdict.PASS else verdict)
    if not options.consumer:
        return code
    from ..screens.brief import brief_of_diagnosis

    return Answer(code, *brief_of_diagnosis(judged))


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Name what may explain slow paths, with evidence, a command that confirms it, and a remedy.\n"
        "Without files, read what the system reports about this machine, and measure what would show the\n"
        "defects that it reports. If there are none, or they do not explain what is slow, measure the quick\n"
        "preset. -t, -p or --tier select other testcases; all options of `wirespeed run` are accepted.",
        EXIT_CODES,
        elsewhere=MEASURING,
        usage="wirespeed doctor [OPTION ...] [FILE ...]",
    )
    arguments.add(
        "source FILE*",
        "saved runs, logs of other tools, and folders of them, to examine instead of this machine",
    )  # fmt: skip
    arguments.add("--no-measure", "only read what the system reports", action="store_false", dest="measure")
    arguments.add(
        "--root FOLDER", "examine the system whose /sys and /proc are in a folder, or that --record recorded"
    )
    arguments.add(
        "--record FOLDER",
        "record in a new folder what the system reports about this machine, to examine it elsewhere",
    )  # fmt: skip
    judging = arguments.add_argument_group("judgement")
    judging.add_expect()
    judging.add_simulated()
    arguments.add_measuring()
    arguments.set_defaults(tier="quick")
    out = arguments.add_argument_group("output")
    out.add_consumer()
    out.add_output()
    out.add("-q --quiet", "print no report")
    out.add_verbose()
    return arguments
