"""Texts of a comparison of runs that all of its formats share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..document import Document
from ..results.cells import gpus_of, host_of, model_of
from ..results.compare import UNCERTAIN, Change, Comparison, Outcome, Unreadable
from ..results.evidence import CONFIDENCE, FALSE_CHANGES
from ..units import fitting, many
from .findings import EXACT, explanations, number

#: Maximum number of reasons why cells were not compared, and of hosts named.
_REASONS, _HOSTS = 3, 3
#: What changed, the worst first.
CHANGED = (Outcome.LOST, Outcome.WORSE, Outcome.BETTER)


def side_of(documents: Sequence[Document]) -> str:
    """Hosts and times of the runs of a side."""
    hosts = sorted({host_of(document) or "unknown host" for document in documents})
    times = sorted({document.started or document.origin for document in documents})
    if len(documents) == 1:
        return f"{hosts[0]}, {times[0]}"
    more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
    when = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"{len(documents)} runs of {', '.join(hosts[:_HOSTS])}{more}, {when}"


def remarks(documents: Sequence[Document]) -> Iterator[str]:
    """Conditions that may explain low values, and interruptions; of several runs with their number."""
    counts = Counter(f"warning: {text}" for document in documents for text in explanations(document))
    interruptions = filter(None, (document.interrupted for document in documents))
    counts.update(f"run interrupted: {reason}" for reason in interruptions)
    for text, runs in counts.items():
        yield text if len(documents) == 1 else f"{text} ({runs} of {len(documents)} runs)"


def pairing(comparison: Comparison) -> Iterator[str]:
    """That the machines differ, which hosts were compared with themselves, and which were not compared."""
    machines = [[run.machine for run in side] for side in (comparison.before, comparison.after)]
    models = [{model_of(machine) for machine in side} for side in machines]
    if models[0].isdisjoint(models[1]):
        brief = [{gpus_of(machine) or machine.cpu for machine in side} for side in machines]
        shown = brief if brief[0] != brief[1] else models
        first, second = (" or ".join(sorted(side)[:_HOSTS]) for side in shown)
        yield f"comparing different machines: {first} with {second}; a change is no sign of a fault"
    if comparison.hosts:
        yield f"{len(comparison.hosts)} hosts, each compared with itself"
    if comparison.unmatched:
        named = ", ".join(comparison.unmatched[:_HOSTS])
        more = f" and {len(comparison.unmatched) - _HOSTS} more" if len(comparison.unmatched) > _HOSTS else ""
        yield f"not compared, runs on one side only: {named}{more}"


def not_compared(comparison: Comparison) -> str:
    """How many cells were not compared, and why; empty for none."""
    busy = comparison.those(Outcome.BUSY)
    if not busy:
        return ""
    why = dict.fromkeys(change.reason for change in busy)
    more = f" and {many(len(why) - _REASONS, 'other reason')}" if len(why) > _REASONS else ""
    text = f"{many(len(busy), 'value')} not compared: {', '.join(list(why)[:_REASONS])}{more}"
    return f"{text}; --ignore-busy compares them"


def notes(comparison: Comparison) -> Iterator[str]:
    """What a change is, and what the comparison cannot see."""
    yield (
        f"significant changes of {100 * comparison.least:.3g}% or more (false discovery rate at most "
        f"{FALSE_CHANGES:.0%}), with {CONFIDENCE:.0%} confidence intervals"
    )
    if comparison.weak:
        yield (
            f"{many(comparison.weak, 'value')} from single-round runs: run-to-run variation is assumed; "
            "compare several runs to measure it"
        )
    if hidden := comparison.uncertain:
        worst = max(hidden, key=lambda change: change.half_width)
        yield (
            f"{many(len(hidden), 'value')} too noisy to rule out a {UNCERTAIN:.0%} change "
            f"({worst.key.testcase} ±{worst.half_width:.0%}); compare more runs"
        )


def counted(comparison: Comparison, unreadable: Sequence[Unreadable]) -> str:
    """The number of values with each outcome, and of files that cannot be read."""
    counts = Counter(change.outcome for change in comparison.changes)
    text = "values: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return text + (f" · {many(len(unreadable), 'file')} unreadable" if unreadable else "")


def values_of(change: Change, digits: int = EXACT) -> str:
    """Both values of a cell."""
    scale, unit = fitting(change.unit, [value for value in (change.before, change.after) if value])
    before, after = (
        number(value, scale, digits) if value else "n/a" for value in (change.before, change.after)
    )
    return f"{before} → {after} {unit}"


def percent(change: float) -> str:
    """A relative difference; without a sign if it rounds to nothing."""
    text = f"{change:+.1%}"
    return "0.0%" if text in ("-0.0%", "+0.0%") else text


def difference(change: Change) -> str:
    """The relative difference of both values; empty if one is missing."""
    return percent(change.ratio - 1) if change.before and change.after else ""


def moved(change: Change) -> str:
    """Both values of a cell, their relative difference and its interval, and the number of values."""
    text = values_of(change)
    if change.before and change.after:
        text += f", {change.ratio - 1:+.1%}"
    if change.interval:
        low, high = (100 * (bound - 1) for bound in change.interval)
        text += f" ({low:+.1f} to {high:+.1f}%)"
    if change.hosts:
        named = ", ".join(f"{host.host} {host.ratio - 1:+.1%}" for host in change.hosts[:_HOSTS])
        more = len(change.hosts) - _HOSTS
        text += f"; only on {named}" + (f" and {many(more, 'more host')}" if more > 0 else "")
    if max(change.runs) > 1:
        text += f", {change.runs[0]} → {change.runs[1]} runs"
    return text
