"""``wirespeed check`` of many saved runs: all are judged, whatever is wrong with some of the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import WORST_FIRST, ExitCode, UsageError
from .common import code_of, loading, style, tell_unreadable
from .consumers import Answer

if TYPE_CHECKING:
    import argparse

    from ..document import Document
    from ..judging.judged import Criteria
    from ..reports import Style
    from ..reports.records import CheckedRun
    from ..results.published_gates import GateSet


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
    from ..results.compare import read_many
    from ..screens import check_format

    shown = replace(style(options), checked=True)
    read = read_many(files, partial(_judged, by=by, form=options.format, style=shown), loading(options))
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
        tell_unreadable(read.unreadable)
    code = worst([*(done.code for done in read.found), *(ExitCode.RUN for _ in read.unreadable)])
    if not options.consumer:
        return code
    from ..screens.many_runs import brief_of_runs

    return Answer(code, *brief_of_runs([done.run.node for done in read.found], read.unreadable))


def _compared(found: Sequence[_Done]) -> list[_Done]:
    """The runs with what is slow compared with the others of their model.

    Raises:
        UsageError: If no model has enough runs.
    """
    from ..judging.fleet import MIN_PEERS, analyse

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
    from ..judging.judged import Judged
    from ..reports.records import CheckedRun
    from ..screens import check_format

    judged = Judged(document, by, file)
    run = CheckedRun.of(judged, check_format(form).part(judged, style))
    unsuitable = tuple(_unsuitable(gate_set, document) for gate_set in by.gates)
    return _Done(code_of(judged.check.verdict), run, unsuitable)


def _unsuitable(gates: GateSet, document: Document) -> str:
    """Why a set of gates has none for a machine; empty if it has."""
    from ..judging.verdict import check_models

    try:
        check_models(gates, [document.machine])
    except UsageError as error:
        return str(error)
    return ""
