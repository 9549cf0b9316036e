"""The summary of a run: verdict, sentence, key figures, and what may separate groups of nodes. It is small,
so that many can be kept and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..hardware.topology import Machine
from ..results.settings import attributes, gpus_of
from ..terminal import one_line
from .check import Check
from .judged import Judged
from .overview import Overview
from .verdict import Verdict

#: Verdicts on runs in words, the worst first.
WORDS = tuple(
    verdict.word.upper() for verdict in Verdict if verdict not in (Verdict.IMPLAUSIBLE, Verdict.WAIVED)
)
#: Maximum length of texts of a summary, and number of its attributes: Documents may come from anybody.
_LONGEST, _LONGEST_VALUE, _MOST_FACTS = 300, 80, 200


@dataclass(frozen=True)
class SummaryFigure:
    """A key figure of a node.

    Attributes:
        title: What the values are.
        testcases: Testcases that measured them; only values of the same testcases are compared.
        typical, lowest: Median and smallest value, in B/s.
        bad: Number of values of this kind of path that are worse than expected, or failed.
        worst: The value that stands for the kind of path, in B/s; None if a path failed.
    """

    title: str
    testcases: tuple[str, ...]
    typical: float
    lowest: float
    bad: int = 0
    worst: float | None = None


@dataclass(frozen=True)
class RunSummary:
    """Summary of a run of one node.

    Attributes:
        file: File of the run.
        host: Name of the host, or of the machine if the host is unknown.
        started: Start, as ISO 8601 text.
        model: CPU and GPUs; nodes of one model are compared.
        word: Verdict, one of ``WORDS``.
        sentence, extent: The cause, and how much of the run it concerns.
        figures: Key figures.
        attributes: What may separate groups of nodes: versions, settings, facts.
        simulated: Whether the machine is simulated.
        step: What to do; empty if there is nothing to do.
        topic: What the sentence is about, without the numbers that differ between nodes with the same fault.
        family: The model without the number of GPUs.
        gpus: Number of GPUs.
    """

    file: str
    host: str
    started: str
    model: str
    word: str
    sentence: str
    extent: str
    figures: tuple[SummaryFigure, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    step: str = ""
    topic: str = ""
    family: str = ""
    gpus: int = 0

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Sort key: the worst first."""
        return WORDS.index(self.word), -sum(figure.bad for figure in self.figures), self.host, self.file


def labels(nodes: Sequence[RunSummary]) -> list[str]:
    """The hosts; the names of the files if a host has several runs."""
    hosts, names = [node.host for node in nodes], [Path(node.file).stem for node in nodes]
    files = [node.file for node in nodes]
    return next((texts for texts in (hosts, names) if len(set(texts)) == len(nodes)), files)


def run_summary(judged: Judged) -> RunSummary:
    """The summary of a run."""
    document, view = judged.document, judged.overview
    machine, named = document.machine, [*attributes(document).items()]
    return RunSummary(
        judged.file,
        _short(document.hostname or machine.name or "unknown host"),
        _short(document.started),
        _short(_model(machine, gpus_of(machine))),
        view.word,
        _short(view.sentence),
        _short(view.extent),
        tuple(
            SummaryFigure(
                _short(figure.title),
                figure.testcases,
                figure.typical.value or 0.0,
                figure.slowest.value or 0.0,
                figure.bad + len(figure.failed),
                None if figure.failed else figure.lead.value,
            )
            for figure in view.figures
        ),
        {_short(name, _LONGEST_VALUE): _short(text, _LONGEST_VALUE) for name, text in named[:_MOST_FACTS]},
        document.simulated,
        _short(view.advice.do),
        _short(_topic(view, judged.check)),
        _short(_model(machine, ", ".join(dict.fromkeys(gpu.model for gpu in machine.gpus)))),
        len(machine.gpus),
    )


def _topic(view: Overview, check: Check) -> str:
    """The defect, without numbers."""
    if check.stale:
        return "the run is older than allowed"
    if view.by_finding or check.wrong:
        return view.sentence
    if check.culprits:
        return f"{check.culprits[0]} is slower than expected"
    return view.sentence if view.word in ("BUSY", "INTERRUPTED") else view.advice.do or view.sentence


def _model(machine: Machine, gpus: str) -> str:
    """GPUs, CPU and ranks. Unlike ``model_of``, without what settings of the firmware change."""
    ranks = f"{len(machine.ranks)} ranks" if machine.ranks else ""
    return "; ".join(filter(None, (gpus, machine.cpu or "CPU of unknown model", ranks)))


def _short(text: str, longest: int = _LONGEST) -> str:
    """A text as one line of limited length."""
    return one_line(text if len(text) <= longest else text[: longest - 1] + "…")
