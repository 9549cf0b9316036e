"""``wirespeed check`` of many saved runs: all are judged, whatever is wrong with some of the files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..document import Document
from ..errors import ExitCode, UsageError
from ..judging.fleet import MIN_PEERS, analyse
from ..judging.judged import Criteria, Judged
from ..judging.omissions import with_host_memory
from ..judging.verdict import Verdict, check_models
from ..reports import Style
from ..reports.records import CheckedRun
from ..results.compare import read_many
from ..results.imported_limits import with_nics
from ..results.published_gates import GateSet
from ..screens import check_format
from ..terminal import error_line
from ..units import Nics, many
from .common import code_of, style
from .consumers import Answer

if TYPE_CHECKING:
    import argparse


#: What to do about a node that is slower than others.
_STEP = "compare its settings and hardware with those of the others: wirespeed report --fleet"
#: Exit codes, the worst first.
_ORDER = (ExitCode.FAIL, ExitCode.RUN, ExitCode.WARN, ExitCode.NOT_JUDGED, ExitCode.PASS)


@dataclass(frozen=True)
class _Work:
    """What to do with each Document, in whichever process reads it."""

    by: Criteria
    host_memory: float | None
    nics: Nics | None
    format: str
    style: Style


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
    shown = replace(style(options), checked=True)
    work = _Work(by, options.host_memory, options.nics, options.format, shown)
    read = read_many(files, partial(_judged, work=work))
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
        sys.stdout.write(form.joined([done.run for done in read.found], read.unreadable, shown))
        sys.stdout.flush()
    else:
        for error in read.unreadable:
            print(error_line(f"wirespeed: error: {error}"), file=sys.stderr)
    code = worst([*(done.code for done in read.found), *(ExitCode.RUN for _ in read.unreadable)])
    if not options.consumer:
        return code
    from ..screens.many_runs import reason_of_nodes

    reason = reason_of_nodes([done.run.node for done in read.found])
    if read.unreadable:
        lost = f"{len(read.unreadable)} of {many(len(files), 'file')} cannot be judged: {read.unreadable[0]}"
        reason = f"{reason}; {lost}" if code == ExitCode.FAIL else f"{lost}; {reason}"
    return Answer(code, reason)


def _compared(found: Sequence[_Done]) -> list[_Done]:
    """The runs with what is slow compared with the others of their model.

    Raises:
        UsageError: If no model has enough runs.
    """
    fleet = analyse(done.run.node for done in found)
    most = max((len(nodes) for nodes in fleet.models.values()), default=0)
    if most < MIN_PEERS:
        raise UsageError(f"--fleet requires {MIN_PEERS} runs of one model; these have at most {most}")
    behind: dict[str, list[str]] = {}
    for (i, title, quantity), change in fleet.outliers.items():
        if change < 0:
            of = f"the {quantity} value of {title}" if quantity != "typical" else title
            text = f"{of} is {-change:.0%} below the median of this fleet's nodes of its model"
            behind.setdefault(fleet.nodes[i].file, []).append(text)
    return [_behind(done, behind.get(done.run.node.file, [])) for done in found]


def _behind(done: _Done, texts: Sequence[str]) -> _Done:
    """A run with what is slow compared with others: at least a warning."""
    if not texts:
        return done
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
    return min(codes, key=_ORDER.index)


def _judged(file: str, document: Document, work: _Work) -> _Done:
    if work.host_memory is not None:
        document = with_host_memory(document, work.host_memory)
    if work.nics is not None:
        document = with_nics(document, work.nics)
    judged = Judged(document, work.by, file)
    run = CheckedRun.of(judged, check_format(work.format).part(judged, work.style))
    unsuitable = tuple(_unsuitable(gate_set, document) for gate_set in work.by.gates)
    return _Done(code_of(judged.check.verdict), run, unsuitable)


def _unsuitable(gates: GateSet, document: Document) -> str:
    """Why a set of gates has none for a machine; empty if it has."""
    try:
        check_models(gates, [document.machine])
    except UsageError as error:
        return str(error)
    return ""
