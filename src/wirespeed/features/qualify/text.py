"""The text of a qualification: the verdict, what is slow with its evidence, and what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ...data.causes import Weight
from ...document import Document
from ...judging.advice import Advice
from ...judging.diagnosis import diagnose
from ...judging.finding import Finding
from ...judging.qualification_verdict import (
    first_words,
    is_over_tcp,
    next_run,
    remedy_of,
    verdict_of,
)
from ...judging.verdict import Verdict
from ...qualification import (
    BY_NETWORK,
    OF_NODE,
    OF_SEVERAL,
    OWN_PARTS,
    PartKind,
    Qualification,
    RailLimit,
    SlowPart,
    part_name,
)
from ...reports.console import hanging
from ...reports.looks import SIGNS
from ...reports.style import Style
from ...statistics import grouped
from ...units import GB, format_time, many, some

#: Most slow parts that are printed, and most with what to do about them.
_MOST, _EXPLAINED = 40, 3
#: Most devices of a rail that are named.
_MOST_DEVICES = 4


def lines(document: Document, qualification: Qualification) -> list[str]:
    """The lines of the report, without colours; the last is the verdict."""
    culprits = qualification.culprits
    slow = [evidence(culprit, qualification) for culprit in culprits[:_MOST]]
    if len(culprits) > _MOST:
        slow.append(f"and {many(len(culprits) - _MOST, 'other slow part')}")
    word = verdict_of(qualification, document.interrupted).heading
    return [
        *_before(qualification), *slow, *_explained(document, qualification), *certainty(qualification),
        *_lists(qualification), f"{word}: {_summary(qualification)}",
    ]  # fmt: skip


def _before(qualification: Qualification) -> list[str]:
    """What was measured, what is missing, what is expected, and the rates of messages."""
    missing = [f"missing: {node.name} {node.missing}" for node in qualification.nodes if node.missing]
    return [*_conditions(qualification), *missing, *_expected(qualification), *_messages(qualification)]


def body(document: Document, qualification: Qualification, style: Style) -> list[RenderableType]:
    """What was measured and what is slow, for a screen; ``verbose`` shows all parts with their remedies."""
    culprits = qualification.culprits
    shown = culprits if style.verbose else culprits[:_MOST]
    over_tcp = is_over_tcp(document, qualification)
    parts: list[RenderableType] = list(map(Text, _before(qualification)))
    for i, culprit in enumerate(shown):
        look = SIGNS[Verdict.FAIL if culprit.confirmed else Verdict.WARN]
        word, _, rest = evidence(culprit, qualification).partition(": ")
        parts.append(hanging(Text(f"{word}:", look.style), Text(rest), 1))
        if (i < _EXPLAINED or style.verbose) and culprit.kind not in OF_SEVERAL:  # see `ending`
            parts += _steps(remedy_of(culprit, over_tcp=over_tcp))
    if len(culprits) > len(shown):
        parts.append(Text(f"and {many(len(culprits) - len(shown), 'other slow part')}; -v shows all", "dim"))
    parts += [Text(line, "dim") for line in certainty(qualification)]
    return [*parts, *map(Text, _lists(qualification))]


def ending(document: Document, qualification: Qualification, style: Style) -> list[RenderableType]:
    """The verdict with its causes, what to do, and the command that confirms it."""
    verdict = verdict_of(qualification, document.interrupted)
    said, _, advice = first_words(document, qualification)
    word = Text(verdict.heading, SIGNS[verdict].style)
    extent = Padding(Text(_summary(qualification), "dim"), (0, 0, 0, len(word) + 2))
    parts: list[RenderableType] = [hanging(word, Text(said, "bold")), extent]
    causes = _causes(document, qualification)
    for text, steps in causes:
        parts += [Text(text, "yellow"), *_steps(steps)]
    if not causes:
        confirm = next_run(document, qualification) if qualification.culprits else ""
        parts += _steps(Advice(advice.do, advice.command or confirm))
    return parts


def _steps(advice: Advice) -> Iterator[RenderableType]:
    """What to do, and the command that confirms it, each in its line."""
    for name, text in (("remedy", advice.do), ("confirm", advice.command)):
        if text:
            yield Padding(hanging(Text(f"{name:<7}", "dim"), Text(text)), (0, 0, 0, 2))


def _conditions(qualification: Qualification) -> Iterator[str]:
    """Yield what was measured and how, and what to know of it."""
    nodes, transport = qualification.nodes, qualification.transport
    there = sum(not node.missing for node in nodes)
    how = "by" if transport.startswith(("NCCL", "MPI")) else "over"
    parts = ["simulated" if transport == "simulated" else f"measured {how} {transport}"]
    if values := [value for of_path in qualification.paths.values() for value in of_path]:
        middle, of_speed = statistics.median(values), ""
        if qualification.limits:
            speed = statistics.median(limit.port for limit in qualification.limits)
            of_speed = f" ({middle / speed:.0%} of {speed * 8 / 1e9:.4g} Gbit/s)"
        parts.append(f"median path {_rate(middle)}{of_speed}")
    seconds = math.fsum(each.seconds for each in qualification.rounds)
    parts.append(f"{many(len(qualification.rounds), 'round')} in {format_time(seconds)}")
    yield f"{many(there, 'node')} x {many(nodes[0].rails, 'rail')}, {'; '.join(parts)}"
    if len(nodes) > 2 and not any(node.block for node in nodes):
        yield "Switches were not distinguished: their topology is unknown (--topology)."
    yield from (f"note: {note}" for note in qualification.notes)
    yield from (f"warning: {doubt}" for doubt in qualification.doubts)


def _scale_of(value: float) -> tuple[float, str]:
    """Scale and unit of rates like this one."""
    return (GB, "GB/s") if value >= GB else (1e6, "MB/s")


def _rate(value: float) -> str:
    """A rate with its unit."""
    scale, unit = _scale_of(value)
    return f"{value / scale:.3g} {unit}"


def evidence(culprit: SlowPart, qualification: Qualification) -> str:
    """A slow part with the values that show it."""
    word = "lossy" if culprit.kind is PartKind.LOSSY else "slow"
    return f"{word}: {part_name(culprit, qualification.nodes)}: {values_of(culprit, qualification)}"


def values_of(culprit: SlowPart, qualification: Qualification) -> str:
    """The values that show a slow part."""
    if culprit.kind is PartKind.LOSSY:
        return (
            f"{culprit.value:.2%} of the data was retransmitted with {many(culprit.partners, 'partner')}, "
            f"at most {culprit.expected:.2%} on nine of ten other paths"
        )
    scale, unit = _scale_of(culprit.expected)
    line = f"{culprit.value / scale:.3g} of {culprit.expected / scale:.3g} {unit}"
    if culprit.kind is PartKind.SPINE:
        return (
            f"{line} on {culprit.share:.0%} of paths between leaf switches, or flows share a link by chance"
        )
    if culprit.limited:
        line += f" ({culprit.value / culprit.expected:.0%}) that the NICs carry"
        if culprit.kind is PartKind.ALIKE:
            line += (
                f", as between {' and '.join(qualification.nodes[node].name for node in culprit.nodes[:2])}"
            )
    elif culprit.partners:
        line = f"{culprit.value / scale:.3g} {unit} to {many(culprit.partners, 'partner')}"
        line += f", expected {culprit.expected / scale:.3g}"
    if culprit.highest and culprit.kind in OF_NODE and culprit.kind not in OWN_PARTS:
        line += f"; the same partners reach {culprit.lowest / scale:.3g} to {culprit.highest / scale:.3g}"
        line += " with others"
    return line if culprit.confirmed else f"{line} (not confirmed)"


def _expected(qualification: Qualification) -> list[str]:
    """What carries the rails of two nodes that were judged by it: a line for each limit that differs."""
    judged = set(range(len(qualification.nodes))) if qualification.has_limits else set()
    judged |= {node for part in qualification.culprits if part.limited for node in part.nodes[:2]}
    seen: dict[tuple[int, tuple[str, ...], float, float], RailLimit] = {}
    for limit in qualification.limits:
        if limit.node in judged:
            seen.setdefault((limit.node, limit.devices, limit.port, limit.slot), limit)
    return [_carried(limit, qualification) for limit in list(seen.values())[:_MOST]]


def _messages(qualification: Qualification) -> Iterator[str]:
    """Yield the rates of large messages between two nodes, on the slowest rail, a line for each memory."""
    names = [node.name for node in qualification.nodes]
    same = grouped(((curve.memory, curve.both), curve) for curve in qualification.curves)
    for (memory, both), curves in same.items():
        ways = grouped((f"{names[curve.source]} to {names[curve.target]}", curve.large) for curve in curves)
        found = [f"{way} {_rate(min(rates))}" for way, rates in ways.items()]
        how = f"{memory}, both at once" if both else memory
        of_rails = " (slowest rail)" if qualification.nodes[0].rails > 1 else ""
        yield f"messages, {how}: {', '.join(found)}{of_rails}"


def _named(devices: Sequence[str]) -> str:
    """The names of devices that carry a rail together."""
    more = len(devices) - _MOST_DEVICES
    return " + ".join(devices[:_MOST_DEVICES]) + (f" and {more} more" if more > 0 else "")


def _carried(limit: RailLimit, qualification: Qualification) -> str:
    """What carries a rail of a node, by its port or its PCIe link."""
    name = qualification.nodes[limit.node].name
    by = (_named(limit.devices) or "--nics") + (", by PCIe" if limit.rate < limit.port else "")
    both = f", {limit.both / GB:.4g} with both directions at once" if limit.both else ""
    rate, least = (f"{value / GB:.4g} GB/s" for value in (limit.rate, limit.least))
    return f"expected: {name}: {rate} per rail ({by}); slow below {least}{both}"


def findings(document: Document, qualification: Qualification) -> list[Finding]:
    """The causes that facts of two nodes speak for.

    Of slow paths and nodes all; of a missing node defects that lie between the two.
    """
    slow = any(culprit.kind in (*OF_SEVERAL, *BY_NETWORK) for culprit in qualification.culprits)
    missing = any(node.missing for node in qualification.nodes)
    if not document.facts or not (slow or missing):
        return []
    return [
        finding
        for finding in diagnose(document).findings
        if finding.cells or (missing and finding.cause.between and finding.weight is Weight.DEFECT)
    ]


def _causes(document: Document, qualification: Qualification) -> list[tuple[str, Advice]]:
    """The likely causes with what to do, or that slow paths have none; hosts are named if one has it."""
    found = []
    for finding in findings(document, qualification)[:_MOST]:
        host = "" if finding.cause.between else finding.host
        text = f"likely cause: {': '.join(filter(None, (host, finding.cause.title)))} ({finding.evidence})"
        found.append((text, Advice(finding.cause.remedy, "; ".join(finding.commands))))
    slow = any(culprit.kind in OF_SEVERAL for culprit in qualification.culprits)
    if not found and slow and document.facts:
        advice = first_words(document, qualification)[2]
        confirm = advice.command or next_run(document, qualification)
        found.append(("no reading of the nodes explains it", Advice(advice.do, confirm)))
    return found


def _explained(document: Document, qualification: Qualification) -> Iterator[str]:
    """Yield each cause with what to do in a line."""
    for text, advice in _causes(document, qualification):
        yield f"{text}. Remedy: {advice.do}. Confirm: {advice.command}"


def certainty(qualification: Qualification) -> Iterator[str]:
    """Yield with what parts were compared, or why nothing could be compared."""
    if qualification.compared and qualification.has_limits:
        return  # with what is expected
    if qualification.compared or qualification.culprits:
        yield (
            f"slow = below {qualification.threshold:.0%} of the median (paths vary by "
            f"{qualification.noise:.1%})"
        )
    elif qualification.varies:
        yield (
            f"Not judged: measured paths vary by {qualification.noise:.0%}. Other jobs may use the network "
            "or the CPUs."
        )
    elif qualification.is_one_pair and qualification.threshold:
        rails = " and rails" if qualification.nodes[0].rails > 1 else ""
        yield (
            f"With only two nodes, only the directions{rails} of one path could be compared. They are "
            "equally fast. What the NICs can carry is unknown: pass it with --nics, or add a third node."
        )
    else:
        yield "Too few nodes answered to compare anything: at least two are required."


def remarks(document: Document, qualification: Qualification) -> list[str]:
    """What was measured, what is expected, the causes, and the threshold: all but what is slow or missing."""
    return [
        *_conditions(qualification), *_expected(qualification), *_messages(qualification),
        *_explained(document, qualification), *certainty(qualification),
    ]  # fmt: skip


def _lists(qualification: Qualification) -> Iterator[str]:
    """Yield the nodes in doubt, and those to leave out."""
    if qualification.in_doubt:
        names = some(qualification.in_doubt, _MOST)
        alike = any(culprit.kind is PartKind.ALIKE for culprit in qualification.culprits)
        why = "all are as slow as their partners" if alike else "other partners show which is slow"
        yield f"in doubt: {names}: {why}"
    if qualification.excluded:
        yield f"drain: {', '.join(qualification.excluded[:_MOST])}"


def _summary(qualification: Qualification) -> str:
    missing = sum(bool(node.missing) for node in qualification.nodes)
    lossy = sum(culprit.kind is PartKind.LOSSY for culprit in qualification.culprits)
    slow = len(qualification.culprits) - lossy
    parts = [many(slow, "slow part")] if slow else []
    parts += [many(lossy, "lossy cable")] if lossy else []
    parts += [f"{many(missing, 'node')} missing"] if missing else []
    return ", ".join([*parts, qualification.usable])
