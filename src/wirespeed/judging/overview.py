"""The answer in five seconds: verdict, one sentence, and a key figure for each kind of path.

Reports for people begin with it: ``check``, the end of a run, the page, and the table of many nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from ..document import Document, Status, TestcaseResult
from ..model import Unit
from ..units import many
from .advice import ABOVE, AT, BUSY, FAILED, NO_CAUSE, STALE, VERIFY, WRONG_PATH, Advice
from .diagnosis import Diagnosis, Finding, diagnose
from .omissions import is_unverified
from .outcomes import outcomes
from .verdicts import Check, Judgement, Verdict


class PathKind(StrEnum):
    """What data moves along."""

    HOST_GPU = "host ↔ GPU"
    GPU_GPU = "GPU ↔ GPU"
    GPU_MEMORY = "GPU memory"
    HOST_MEMORY = "host memory"
    COLLECTIVES = "collectives"
    PROCESSES = "between processes"
    OTHER = "other"


#: Kind of path -> prefixes of the names of its testcases.
_PREFIXES = {
    PathKind.HOST_GPU: ("host_to_device", "device_to_host", "all_to_host", "host_to_all", "host_device"),
    PathKind.GPU_GPU: ("device_to_device", "all_to_one", "one_to_all"),
    PathKind.GPU_MEMORY: ("device_local", "device_stream", "device_saxpy"),
    PathKind.HOST_MEMORY: ("numa_", "all_nodes", "host_"),
    PathKind.PROCESSES: ("multinode", "message", "sharing"),
}
#: Kind of path -> testcases of its key figure; the first group that was measured counts.
_KEY_FIGURES: dict[PathKind, tuple[tuple[str, ...], ...]] = {
    PathKind.HOST_GPU: (("host_to_device_memcpy_ce", "device_to_host_memcpy_ce"),
                        ("host_to_device_memcpy_sm", "device_to_host_memcpy_sm")),
    PathKind.GPU_GPU: (("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"),
                       ("device_to_device_memcpy_read_sm", "device_to_device_memcpy_write_sm")),
    PathKind.GPU_MEMORY: (("device_stream_triad",), ("device_stream_copy",), ("device_local_copy",)),
    PathKind.HOST_MEMORY: (("host_stream_triad",), ("host_stream_copy",), ("numa_to_numa_memcpy_read_cpu",)),
    PathKind.COLLECTIVES: (("all_reduce",), ("all_gather",), ("reduce_scatter",), ("alltoall",)),
    PathKind.PROCESSES: (("multinode_device_to_device_memcpy_read_ce",
                          "multinode_device_to_device_memcpy_write_ce"),),
}  # fmt: skip
_BAD = (Verdict.IMPLAUSIBLE, Verdict.FAIL, Verdict.WARN)


@lru_cache(maxsize=1024)
def path_kind(testcase: str, *, collective: bool = False) -> PathKind:
    """Return the kind of path of a testcase, by its name."""
    if collective:
        return PathKind.COLLECTIVES
    return next(
        (kind for kind, prefixes in _PREFIXES.items() if testcase.startswith(prefixes)), PathKind.OTHER
    )


@dataclass(frozen=True)
class KeyFigure:
    """The typical rate of a kind of path.

    Parameters
    ----------
    kind : PathKind
        The kind.
    verdict : Verdict
        The worst verdict of all its values, and fail if wrong data arrived or a testcase failed; values that
        cannot be judged or measured only count alone.
    typical : Judgement
        The median value, with its limit and expected range.
    worst : Judgement or None
        Of the values that are worse than expected, that with the smallest share of its limit; of those
        above their limit, that with the largest.
    bad : int
        Number of values that are worse than expected.
    lowest : float
        Smallest of the values that ``typical`` is the median of.
    testcases : tuple[str, ...]
        Testcases of these values, sorted.
    """

    kind: PathKind
    verdict: Verdict
    typical: Judgement
    worst: Judgement | None = None
    bad: int = 0
    lowest: float = 0.0
    testcases: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What the value is."""
        return self.typical.key.testcase.replace("_", "-") if self.kind is PathKind.COLLECTIVES else self.kind


@dataclass(frozen=True)
class Overview:
    """What a reader needs first.

    Parameters
    ----------
    word : str
        PASS, WARN, FAIL, BUSY, NOT JUDGED or INTERRUPTED.
    verdict : Verdict
        The verdict of the run.
    sentence : str
        The cause, or what is the case.
    extent : str
        How much of the run it concerns.
    figures : tuple[KeyFigure, ...]
        A key figure for each kind of path that was measured.
    finding : Finding or None
        The cause that explains most; None without one.
    diagnosis : Diagnosis
        All causes.
    advice : Advice
        What to do about what the sentence says.
    by_finding : bool
        Whether the sentence says what the finding is, and the advice its remedy.
    """

    word: str
    verdict: Verdict
    sentence: str
    extent: str
    figures: tuple[KeyFigure, ...]
    finding: Finding | None
    diagnosis: Diagnosis
    advice: Advice
    by_finding: bool


def overview(document: Document, check: Check, diagnosis: Diagnosis | None = None) -> Overview:
    """Return the overview of a run.

    Parameters
    ----------
    document : Document
        The run.
    check : Check
        The judgement of its cells.
    diagnosis : Diagnosis or None
        Its causes; None to find them.
    """
    found = diagnosis or diagnose(document, check)
    named = next((one for one in found.findings if one.cells), None)
    words = outcomes(document, check)
    counts = Counter(words.cells)
    bad = sum(counts[verdict] for verdict in _BAD)
    word = "NOT JUDGED" if words.run == Verdict.UNKNOWN else words.run.upper()
    answer = named if named is not None and _answers(named, check) else None
    sentence, advice = _answer(document, check, answer, counts, bad)
    return Overview(
        word,
        check.verdict,
        sentence,
        _extent(counts, bad, found, answer),
        key_figures(document, check),
        named,
        found,
        advice if word != "INTERRUPTED" else Advice(),
        answer is not None,
    )


def users(document: Document) -> dict[str, tuple[str, list[str]]]:
    """Return how other processes used each device in most testcases, and the testcases in which they did."""
    found: dict[str, list[tuple[str, str]]] = {}
    for result in document.testcases:
        for device, how in result.busy.items():
            found.setdefault(device, []).append((how, result.name))
    return {
        device: (Counter(how for how, _ in uses).most_common(1)[0][0], [name for _, name in uses])
        for device, uses in found.items()
    }


def key_figures(document: Document, check: Check) -> tuple[KeyFigure, ...]:
    """Return a key figure for each kind of path that has a rate."""
    collectives = {result.name for result in document.testcases if result.collective}
    by_kind: dict[PathKind, list[Judgement]] = {}
    for one in check.judgements:
        if one.value is not None and one.key.column:
            kind = path_kind(one.key.testcase, collective=one.key.testcase in collectives)
            by_kind.setdefault(kind, []).append(one)
    figures = (_key_figure(kind, by_kind.get(kind, [])) for kind in PathKind if kind in _KEY_FIGURES)
    failed = () if check.stale else failures(document)
    broken = {path_kind(one.name, collective=one.name in collectives) for one in failed}
    return tuple(
        replace(figure, verdict=Verdict.FAIL) if figure.kind in broken else figure
        for figure in figures
        if figure is not None
    )


def _key_figure(kind: PathKind, judgements: Sequence[Judgement]) -> KeyFigure | None:
    """Return the key figure of a kind of path; None if it has no rate."""
    rates = [one for one in judgements if one.unit is Unit.RATE]
    if not rates:
        return None
    groups = (
        [one for one in rates if one.key.testcase in names and one.key.table in ("", "busbw")]
        for names in _KEY_FIGURES[kind]
    )
    chosen = next(filter(None, groups), rates)
    ranged = [one for one in chosen if one.least]  # small messages and devices in use are not typical
    chosen = sorted(ranged or chosen, key=lambda one: one.value or 0.0)
    typical = chosen[len(chosen) // 2]
    bad = [one for one in rates if one.verdict in _BAD]
    verdicts = {one.verdict for one in rates}
    verdict = min(verdicts - {Verdict.UNKNOWN, Verdict.WAIVED} or verdicts, key=lambda one: one.rank)
    extreme = max if verdict is Verdict.IMPLAUSIBLE else min
    return KeyFigure(
        kind,
        verdict,
        typical,
        extreme(bad, key=share, default=None),
        len(bad),
        chosen[0].value or 0.0,
        tuple(sorted({one.key.testcase for one in chosen})),
    )


def share(one: Judgement) -> float:
    """Return a value as a fraction of its limit, or of its typical value if there is no limit."""
    return (one.value or 0.0) / (one.limit or one.normal or 1.0)


def failures(document: Document) -> list[TestcaseResult]:
    """Return the testcases that failed; not those that the user interrupted."""
    return [one for one in document.testcases if one.status.is_failure]


def _answers(finding: Finding, check: Check) -> bool:
    """Return whether a cause is what the reader needs first: not if there is a surer finding."""
    return not check.wrong and (finding.likely or not check.culprits)


def _answer(
    document: Document, check: Check, answer: Finding | None, counts: Counter[str], bad: int
) -> tuple[str, Advice]:
    """Return what is wrong, and where, or that nothing is; and what to do about it."""
    if check.stale:
        return f"{check.stale}; this is not a pass", STALE
    if answer is not None:
        place = f" ({answer.place})" if answer.place else ""
        sure = "" if answer.likely else "possibly, "
        return f"{sure}{answer.cause.title}{place}", Advice(answer.cause.remedy)
    if check.wrong:
        device = check.wrong[0].device
        return str(check.wrong[0]), Advice(f"do not use {device}; replace it") if device else WRONG_PATH
    if check.culprits:
        first = check.culprits[0]
        return f"{first} runs at {first.ratio:.0%} of expected", AT[first.suspects[0].kind]
    if failed := failures(document):
        how = "" if failed[0].reason.startswith(failed[0].status) else f"{failed[0].status}: "
        return f"{failed[0].name}: {how}{failed[0].reason}", FAILED
    if above := counts[Verdict.IMPLAUSIBLE]:
        return f"{many(above, 'value')} above the limits: values or capacities are wrong", ABOVE
    if bad:
        return (
            f"{many(bad, 'value')} {'is' if bad == 1 else 'are'} worse than expected; no cause is known",
            NO_CAUSE,
        )
    if document.interrupted:
        return f"the run was interrupted: {document.interrupted}", Advice()
    short = [one for one in document.testcases if one.status is Status.NO_MEMORY]
    if check.verdict is Verdict.BUSY:
        memory = "'s memory" if short else ""
        used = users(document).items()
        return "; ".join(f"{device}{memory} is {how}" for device, (how, _) in used), BUSY
    if short and not counts[Verdict.PASS]:
        return short[0].reason, Advice()
    if not counts[Verdict.PASS]:
        accepted = "the overrides accept all values that could be judged"
        what = accepted if any(check.accepted.values()) else "no value could be judged"
        return "; ".join((what, *check.doubts, "this is not a pass")), _judging(check)
    if check.doubts:
        advice = VERIFY if is_unverified(document) else Advice()
        return f"the measured paths are as fast as expected, but {'; '.join(check.doubts)}", advice
    return "every path is as fast as expected", Advice()


#: Maximum number of reasons why no value was judged.
_REASONS = 2


def _judging(check: Check) -> Advice:
    """Return what to do if nothing was judged."""
    reasons = Counter(one.why for one in check.judgements if one.verdict is Verdict.UNKNOWN and one.why)
    why = "; ".join(f"{many(n, 'value')}: {why}" for why, n in reasons.most_common(_REASONS))
    return Advice(f"judge by a baseline of good machines (--baseline); {why}" if why else "")


_MEMORY = (
    "unknown capacity of host memory; give channels x MT/s of a NUMA node:\n"
    "wirespeed check --host-memory 8x4800   (sudo dmidecode -t memory)"
)


def missing(document: Document, check: Check) -> str:
    """Return how to give the capacity of host memory; empty if it is known or was not required."""
    required = any(
        one.verdict in (Verdict.UNKNOWN, Verdict.BUSY)
        and one.limit is None
        and path_kind(one.key.testcase) is PathKind.HOST_MEMORY
        for one in check.judgements
    )
    return _MEMORY if required and document.machine.unknown_memories else ""


def _extent(counts: Counter[str], bad: int, found: Diagnosis, named: Finding | None) -> str:
    """Return how many values it concerns."""
    parts = []
    if named is not None and found.slow:
        verb = "explains" if named.factor is not None else "may explain"
        parts.append(f"{verb} {named.cells} of {many(found.slow, 'slow value')}")
    elif bad:
        parts.append(f"{many(bad, 'value')} worse than expected")
    parts.append(f"{counts[Verdict.PASS]} normal")
    if unjudged := counts[Verdict.UNKNOWN] + counts[Verdict.BUSY]:
        parts.append(f"{unjudged} not judged")
    return ", ".join(parts)
