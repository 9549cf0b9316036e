"""The first screen: verdict, cause and extent, the machine, a tile for each kind of path, and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hardware.topology import Machine
from ...judging.judged import Judged
from ...judging.key_figures import KeyFigure
from ...judging.overview import Overview
from ...judging.path_kinds import COLLECTIVES
from ...judging.verdict import Verdict, share
from ...qualification import Qualification
from ...terminal import one_line
from ...units import fitting, format_time, many, some
from ..check_texts import culprit_text
from ..explanations import explanations
from ..figure_texts import of_limit, rate
from ..looks import SIGNS
from ..machine_texts import ranks
from ..style import SIMULATED
from ..testcase_texts import verification
from ..topics import markup as topic_markup
from ..topics import topic
from ..values import GLANCE, number
from .templates import capital

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Headline:
    """What the page says first.

    Attributes:
        word: PASS, WARN, FAIL, BUSY, NOT JUDGED or INTERRUPTED.
        css: CSS class of the verdict.
        sentence: The cause, or what was found.
        extent: How much of the run it concerns.
        advice, command: What to do, and a command that helps; empty if nothing is wrong, or if there is none.
        host: Name of the host.
        facts: GPUs with driver, CPUs; date, version and duration.
        date: When the run began.
    """

    word: str
    css: str
    sentence: str
    extent: str
    advice: str
    command: str
    host: str
    facts: tuple[str, ...]
    date: str


@dataclass(frozen=True)
class Tile:
    """A key figure.

    Attributes:
        title: Kind of path.
        verdict: The worst verdict of its values.
        value, unit: The rate of the slowest path.
        lines: Its share of what is expected, and its place if it is bad; the lowest value that passes, the
            limit, and the typical value.
        bar: Ends of the expected range, typical and worst value as fractions of the limit; None without one.
        target: ID of the section with its values.
    """

    title: str
    verdict: Verdict
    value: str
    unit: str
    lines: tuple[str, ...]
    bar: Mapping[str, float] | None
    target: str


def headline(judged: Judged) -> Headline:
    """What the page of a run says first."""
    document, machine, overview = judged.document, judged.document.machine, judged.overview
    gpus = [f"{n} × {one_line(model)}" for model, n in _models(machine).items()]
    cores = sum(len(node.cores) for node in machine.numa)
    parts = [*gpus, f"driver {machine.driver}" if machine.driver else ""]
    if not gpus:
        parts = [machine.cpu, f"{cores} cores" if cores else ""]
    parts += ranks(machine)
    when = date(document.started)
    seconds = "" if document.simulated else format_time(document.seconds)
    host = document.hostname or "unknown host"
    if found := document.qualification:
        parts, host = _cluster(found), many(len(found.nodes), "node")
        when = " to ".join(dict.fromkeys(filter(None, map(date, (document.started, document.ended)))))
        seconds = format_time(document.seconds) if document.seconds else ""
    about = (when, f"wirespeed {document.version}", seconds, verification(document))
    return Headline(
        overview.word,
        SIGNS[overview.verdict].css,
        capital(overview.sentence),
        capital(overview.extent),
        capital(overview.advice.do),
        overview.advice.command,
        one_line(host),
        tuple(" · ".join(filter(None, line)) for line in (parts, about)),
        date(document.started),
    )


def _cluster(found: Qualification) -> list[str]:
    """What the nodes of a qualification are: their GPUs, rails and leaf switches."""
    models = Counter(node.model for node in found.nodes if node.model)
    rails = {node.rails for node in found.nodes}
    blocks = len({node.block for node in found.nodes if node.block})
    return [
        *(
            one_line(model if len(models) == 1 else f"{model} ({many(n, 'node')})")
            for model, n in models.items()
        ),
        f"{many(rails.pop(), 'rail')} each" if len(rails) == 1 else "",
        many(blocks, "leaf switch", "leaf switches") if blocks else "",
    ]


def banner(simulated: Sequence[bool]) -> str:
    """A warning if all or some of the runs of a page are simulated; else empty."""
    return SIMULATED if all(simulated) else f"Some of the runs are {SIMULATED}" if any(simulated) else ""


def _models(machine: Machine) -> Counter[str]:
    """The number of GPUs of each model, on all hosts."""
    if any(rank.cpus for rank in machine.ranks):
        return Counter()
    of_device = {gpu.name: gpu.model for gpu in machine.gpus}
    if machine.ranks:
        return Counter(rank.model or of_device.get(rank.device, rank.device) for rank in machine.ranks)
    return Counter(of_device.values())


def date(started: str) -> str:
    """The minute at which a run began: ``2026-01-31 12:00 UTC``."""
    return one_line(started[:16].replace("T", " ")) + (" UTC" if started.endswith("Z") else "")


def tile(figure: KeyFigure, target: str) -> Tile:
    """A key figure as a tile that leads to the section with this ID."""
    lead, of_several = figure.lead, figure.lead is not figure.typical
    scale, unit = fitting(lead.unit, [lead.value or 0.0])
    reached = share(lead)
    lines = [str(reached)] if reached else [] if lead.least else ["no limit known"]
    if figure.failed:
        lines = [some(figure.failed, 1), *(f"others {line}" for line in lines)]
    elif of_several:
        lines = [": ".join(filter(None, [*lines, figure.place]))]
    bounds = []
    if lead.least:
        upper = f" to {number(lead.normal, scale, GLANCE)}" if lead.normal and reached else " or more"
        bounds = [f"expected {number(lead.least, scale, GLANCE)}{upper}"]
    bounds += [f"limit {number(lead.limit, scale, GLANCE)}"] if lead.limit else []
    lines += [", ".join(bounds)] if bounds else []
    lines += [f"typical {rate(figure.typical)}"] if of_several or figure.failed else []
    title = f"{figure.title} bus bandwidth" if figure.kind == COLLECTIVES else capital(figure.title)
    value = number(lead.value or 0.0, scale, GLANCE)
    value, unit = ("failed", "") if figure.failed else (value, unit)
    return Tile(title, figure.verdict, value, unit, tuple(lines), _bar(figure), target)


def _bar(figure: KeyFigure) -> dict[str, float] | None:
    """Ends of the expected range, typical and worst value in a bar up to the limit; None without a limit."""
    typical, worst = figure.typical, figure.worst
    if not typical.limit:
        return None
    marks = {"typical": typical, **({"worst": worst} if worst else {})}
    bar = {name: min(0.985, max(0.015, of_limit(figure, value))) for name, value in marks.items()}
    if typical.least and typical.normal:
        bar |= {
            "low": min(1.0, typical.least / typical.limit),
            "high": min(1.0, typical.normal / typical.limit),
        }
    return bar


#: Maximum number of testcases that a note names.
_NAMED = 4


def explained_causes(overview: Overview) -> tuple[tuple[str, Markup], ...]:
    """Name and explanation of each cause of a run, from the documentation."""
    names = dict.fromkeys(finding.cause.name for finding in overview.diagnosis.findings)
    return tuple((name, topic_markup(about)) for name in names if (about := topic(name)))


def notes(judged: Judged) -> Iterator[tuple[Verdict, str]]:
    """Yield what else matters to the verdict: wrong data, slow links, what is unexplained or accepted."""
    document, check, diagnosis = judged.document, judged.check, judged.diagnosis
    if document.interrupted:
        yield Verdict.INTERRUPTED, f"Run interrupted: {document.interrupted}"
    for wrong in check.wrong:
        yield Verdict.FAIL, f"Wrong data: {wrong}: {some(wrong.testcases, _NAMED)}"
    for text in check.baseline.notes if check.baseline else ():
        yield Verdict.WARN, f"Baseline: {text}"
    yield from ((Verdict.NOT_JUDGED, capital(text)) for text in judged.by.lacking)
    yield from ((Verdict.FAIL, f"Slow: {culprit_text(culprit)}") for culprit in check.culprits)
    if diagnosis.unexplained and diagnosis.slow:
        slow = many(diagnosis.slow, "slow value")
        yield Verdict.WARN, f"No cause is known for {diagnosis.unexplained} of {slow}"
    yield from ((Verdict.WARN, text) for text in explanations(document, lacking=check.missing))
    for override, accepted in check.accepted.items():
        effect = f"accepted in {many(accepted, 'value')}" if accepted else "override not needed"
        yield Verdict.WAIVED, f"{effect}: {override}: {override.reason}"
