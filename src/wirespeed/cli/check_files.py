"""``wirespeed check`` of several saved runs: each is judged, and the exit code is that of the worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import WORST_FIRST, ExitCode, UsageError
from ..features import offered
from ..judging.criteria import Criteria
from ..judging.gates import unsuitable
from ..judging.judged import Judged
from ..judging.verdict import Verdict
from ..screens import EXPLAINED, check_format
from . import option_values, run_files
from .consumers import Answer

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..reports import Style
    from ..reports.checked_runs import CheckedRun

#: What to do about a node that is slower than others.
_STEP = "compare its settings and hardware with those of the others: wirespeed report FILE... -o fleet.html"


@dataclass(frozen=True)
class _Done:
    """A judged run: its exit code, its part of the report, and why a set of gates suits it not."""

    code: int
    run: CheckedRun
    unsuitable: tuple[str, ...]


def check_files(files: Sequence[str], by: Criteria, options: argparse.Namespace) -> int:
    """Judge saved runs, print the report of all, and return the exit code.

    Raises:
        UsageError: If a run is simulated and this is not allowed, or a set of gates fits none of the
            machines.
    """
    from ..results.read_many import read_many

    shown = replace(option_values.style(options), checked=True)
    read = read_many(
        files, partial(_judged, by=by, form=options.format, style=shown), run_files.loading(options)
    )
    for done in read.found:
        if done.run.node.simulated and not (options.allow_simulated or options.explain):
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
    if options.quiet or options.format == EXPLAINED.name:
        run_files.tell_unreadable(read.unreadable)
    code = worst([*(done.code for done in read.found), *(ExitCode.RUN for _ in read.unreadable)])
    if not options.consumer:
        return code
    from ..screens.one_line import brief_of_runs

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
    code, node = done.code, done.run.node
    if code in (ExitCode.PASS, ExitCode.NOT_JUDGED):
        code = ExitCode.WARN
        node = replace(
            node, verdict=Verdict.WARN, sentence="slower than other nodes of this fleet",
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
    return _Done(code_of_check(judged), run, reasons)


def code_of_check(judged: Judged) -> int:
    """The exit code of a checked run; a simulated machine that may not pass is not judged."""
    verdict = judged.check.verdict
    verdict = Verdict.NOT_JUDGED if judged.proves_nothing and verdict is Verdict.PASS else verdict
    return verdict.exit_code
