"""The answer in five seconds: verdict, one sentence, and a key figure for each kind of path.

Reports for people begin with it: ``check``, the end of a run, the page, and the table of many nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..document import Document, Status, TestcaseResult
from ..measurement import Unit
from ..statistics.summary import grouped
from ..units import format_size, many
from .cause import Weight
from .culprits import (
    ABOVE,
    ABOVE_MEMORY,
    AT,
    BUSY,
    DIP,
    DOUBTFUL,
    IDLE,
    LARGER,
    NO_CAUSE,
    STALE,
    VERIFY,
    WRONG_PATH,
    Advice,
    at_device,
    of_error,
)
from .diagnosis import Diagnosis, Finding, corrupting, diagnose
from .inventory import Missing
from .judge import Check
from .localise import WrongData
from .omissions import is_verified, unmeasured
from .path_kinds import COLLECTIVES, HOST_MEMORY, PathKind, first_words, path_kind, path_kinds
from .peer_causes import find_peers
from .usual_ranges import UsualRanges
from .verdict import BELOW_PEERS, Judgement, Verdict, share, worst


@dataclass(frozen=True)
class KeyFigure:
    """The typical rate of a kind of path.

    Attributes:
        kind: The kind.
        verdict: The worst verdict of all its values, and fail if wrong data arrived or a testcase failed;
            values that cannot be judged or measured count only if there are no others.
        typical: The median value, with its limit and expected range; of curves over sizes, that of the
            largest size.
        worst: Of the bad values, that with the smallest share of what is expected; of those above their
            limit, that with the largest share of it.
        bad: Number of values that are below what is expected, or above their limit.
        lowest: Smallest of the values that ``typical`` is the median of.
        testcases: Testcases of these values, sorted.
        size: Size of the buffers in bytes, if there are values of several; else 0.
    """

    kind: PathKind
    verdict: Verdict
    typical: Judgement
    worst: Judgement | None = None
    bad: int = 0
    lowest: float = 0.0
    testcases: tuple[str, ...] = ()
    size: int = 0

    @property
    def title(self) -> str:
        """The name of a collective or of the kind of path; with the size if there are several."""
        name = self.typical.key.testcase.replace("_", "-") if self.kind == COLLECTIVES else self.kind.title
        return f"{name} {format_size(self.size)}" if self.size else name


@dataclass(frozen=True)
class Overview:
    """What a reader needs first.

    Attributes:
        word: PASS, WARN, FAIL, BUSY, NOT JUDGED or INTERRUPTED.
        verdict: The verdict of the run.
        sentence: The cause, or what is the case.
        extent: How much of the run it concerns.
        figures: A key figure for each kind of path that was measured.
        finding: The cause that explains most; None without one.
        also: Further causes that explain slow values.
        diagnosis: All causes.
        advice: What to do about what the sentence says.
        by_finding: Whether the sentence says what the finding is, and the advice its remedy.
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
    also: tuple[Finding, ...] = ()


def overview(document: Document, check: Check, diagnosis: Diagnosis | None = None) -> Overview:
    """Return the overview of a run.

    Args:
        document: The run.
        check: The judgement of its cells.
        diagnosis: Its causes; None to find them.
    """
    diagnosis = diagnosis or diagnose(document, check)
    counts = Counter(judgement.verdict for judgement in check.judgements if judgement.key.column)
    named, answers = _named(document, check, diagnosis)
    answer = named if answers else None
    also = tuple(
        finding for finding in diagnosis.findings if finding.cells and finding.likely and finding is not named
    )
    if document.qualification and not check.stale:
        sentence, extent, advice = first_words(document, document.qualification)
        if named and named.cells:
            advice = Advice(named.cause.remedy, "; ".join(named.commands))
    else:
        sentence, advice = _problem(document, check, diagnosis, answer, also, counts) or _no_problem(
            document, check
        )
        extent = _extent(document, check, counts, diagnosis, answer, also)
    return Overview(
        check.verdict.word.upper(),
        check.verdict,
        sentence,
        extent,
        key_figures(document, check),
        named,
        diagnosis,
        advice if check.verdict is not Verdict.INTERRUPTED else Advice(),
        answers,
        also,
    )


def _named(document: Document, check: Check, diagnosis: Diagnosis) -> tuple[Finding | None, bool]:
    """Return the cause that explains most, and whether it is what the reader needs first.

    Without slow values, a defect counts if nothing else is wrong. Missing devices and wrong data are surer
    than any cause, and culprits than one that is not likely.
    """
    named = next((finding for finding in diagnosis.findings if finding.cells), None)
    is_wrong = check.wrong or failures(document) or any(compared.failed for compared in check.gates)
    if named is None and check.defects and not is_wrong and not not_as_expected(check.judgements):
        named = next((finding for finding in diagnosis.findings if finding.weight is Weight.DEFECT), None)
    if named is None or check.wrong or _absent(check):
        return named, False
    return named, named.likely or not (check.culprits or check.dips)


def users(document: Document) -> dict[str, tuple[str, list[str]]]:
    """Return how other processes used each device in most testcases, and the testcases in which they did."""
    results = document.testcases
    by_device = grouped((device, (how, run.name)) for run in results for device, how in run.busy.items())
    return {
        device: (Counter(how for how, _ in uses).most_common(1)[0][0], [name for _, name in uses])
        for device, uses in by_device.items()
    }


def key_figures(document: Document, check: Check) -> tuple[KeyFigure, ...]:
    """Return a key figure for each kind of path that has a rate."""
    collectives = {result.name for result in document.testcases if result.collective}
    by_kind: dict[PathKind, list[Judgement]] = {}
    for judgement in check.judgements:
        if judgement.value is not None and judgement.key.column:
            kind = path_kind(judgement.key.testcase, collective=judgement.key.testcase in collectives)
            by_kind.setdefault(kind, []).append(judgement)
    cache = document.machine.last_cache_bytes()
    figures = (_key_figure(kind, by_kind.get(kind, []), cache) for kind in path_kinds() if kind.key_figures)
    failed = () if check.stale else failures(document)
    unseen = {lost.kind: lost.verdict for lost in check.uncovered}
    broken = {path_kind(result.name, collective=result.name in collectives) for result in failed}
    return tuple(
        replace(figure, verdict=Verdict.FAIL)
        if figure.kind in broken
        else replace(figure, verdict=unseen[figure.kind])
        if figure.kind in unseen and not figure.verdict.is_bad and not check.stale
        else figure
        for figure in figures
        if figure is not None
    )


def _key_figure(kind: PathKind, judgements: Sequence[Judgement], cache: float) -> KeyFigure | None:
    """Return the key figure of a kind of path; None if it has no rate.

    Rates of buffers that the ``cache`` of the CPUs holds, in bytes, are not those of host memory.
    """
    rates = [judgement for judgement in judgements if judgement.unit is Unit.RATE]
    of_path = [j for j in rates if kind != HOST_MEMORY or not 0 < j.key.bytes < cache]
    if not of_path and not any(judgement.verdict.is_bad for judgement in rates):
        return None
    groups = (
        [
            judgement
            for judgement in of_path
            if judgement.key.testcase in names and judgement.key.table in ("", "busbw")
        ]
        for names in kind.key_figures
    )
    chosen = next(filter(None, groups), of_path or rates)
    # Small messages and devices in use have no range, and are not typical.
    ranged = [judgement for judgement in chosen if judgement.least]
    is_curve = len({judgement.key.bytes for judgement in chosen}) > 1
    largest = max(judgement.key.bytes for judgement in ranged or chosen) if is_curve else 0
    chosen = [judgement for judgement in ranged or chosen if judgement.key.bytes >= largest]
    chosen.sort(key=lambda judgement: judgement.value or 0.0)
    typical = chosen[len(chosen) // 2]
    bad = [judgement for judgement in rates if judgement.verdict.is_bad]
    verdict = worst(judgement.verdict for judgement in rates)
    above = [judgement for judgement in bad if judgement.verdict is Verdict.IMPLAUSIBLE]
    return KeyFigure(
        kind,
        verdict,
        typical,
        max(above, key=_fraction) if above else min(bad, key=_fraction, default=None),
        len(bad),
        chosen[0].value or 0.0,
        tuple(sorted({judgement.key.testcase for judgement in chosen})),
        largest,
    )


def _fraction(judgement: Judgement) -> float:
    """Return the fraction of a share; 0 if there is none."""
    ratio = share(judgement)
    return ratio.fraction if ratio else 0.0


def failures(document: Document) -> list[TestcaseResult]:
    """The testcases that failed; not those that the user interrupted."""
    return [result for result in document.testcases if result.status.is_failure]


#: Maximum number of causes that the first sentence names.
_CAUSES = 2


def _absent(check: Check) -> list[Missing]:
    return [absent for absent in check.missing if absent.verdict is Verdict.FAIL]


def _first(lacking: Sequence[Missing]) -> tuple[str, Advice]:
    count = len(lacking) - 1
    more = f"; {many(count, 'more part')} {'is' if count == 1 else 'are'} missing" if count else ""
    return f"{lacking[0]}{more}", lacking[0].advice


def _problem(
    document: Document,
    check: Check,
    diagnosis: Diagnosis,
    answer: Finding | None,
    also: Sequence[Finding],
    counts: Counter[Verdict],
) -> tuple[str, Advice] | None:
    """Return what is wrong, and where, the surest first, and what to do about it; None if nothing is."""
    if check.stale:
        return f"{check.stale}; this is not a pass", STALE
    if lacking := _absent(check):
        return _first(lacking)
    if answer is not None:
        sure = "" if answer.likely or not answer.cells else "possibly, "
        causes = (answer, *also[: _CAUSES - 1])
        named = [_placed(finding) for finding in causes]
        named += [f"and {many(len(also) + 1 - _CAUSES, 'more cause')}"] if len(also) >= _CAUSES else []
        named += [] if answer.cells else [_covered(document, check)]
        remedies = (f"{finding.place}: {finding.cause.remedy}" for finding in causes)
        return f"{sure}{'; '.join(named)}", Advice("; ".join(remedies) if also else answer.cause.remedy)
    if check.wrong:
        return str(check.wrong[0]), _not_to_use(document, check.wrong[0])
    if check.culprits:
        first = check.culprits[0]
        suspect = first.suspects[0]
        advice = AT[suspect.kind]
        command = at_device(advice.command, document.machine, *suspect.ends)
        return f"{first} runs at {first.share}", replace(advice, command=command)
    if failed := failures(document):
        how = "" if failed[0].reason.startswith(failed[0].status) else f"{failed[0].status}: "
        remedy = of_error(failed[0].reason, imported=bool(document.imported))
        return f"{failed[0].name}: {how}{failed[0].reason}", remedy
    if above := counts[Verdict.IMPLAUSIBLE]:
        of_host = bool(document.imported) and all(
            path_kind(j.key.testcase) == HOST_MEMORY
            for j in check.judgements
            if j.verdict is Verdict.IMPLAUSIBLE
        )
        remedy = ABOVE_MEMORY if of_host else ABOVE
        return f"{many(above, 'value')} above the limits: values or capacities are wrong", remedy
    if check.dips:
        sizes = {(dip.key.testcase, dip.size) for dip in check.dips}
        others = f", and {len(sizes) - 1} more" if len(sizes) > 1 else ""
        return f"{check.dips[0]}{others}", DIP
    if bad := counts[Verdict.FAIL] + counts[Verdict.WARN]:
        why, advice = _in_use(document, check, diagnosis) or ("no cause is known", NO_CAUSE)
        return f"{many(bad, 'value')} {'is' if bad == 1 else 'are'} worse than expected; {why}", advice
    if failed_gates := [result for compared in check.gates for result in compared.failures]:
        gate, more = failed_gates[0].gate, len(failed_gates) - 1
        others = f", and {many(more, 'more threshold')}" if more else ""
        return f"{gate.measures}: below the threshold of {gate.at_least}{others}", NO_CAUSE
    if doubtful := [absent for absent in check.missing if absent.verdict is Verdict.WARN]:
        return _first(doubtful)
    return None


def _placed(finding: Finding) -> str:
    """Return a cause with its place."""
    return f"{finding.cause.title} ({finding.place})" if finding.place else finding.cause.title


def _in_use(document: Document, check: Check, diagnosis: Diagnosis) -> tuple[str, Advice] | None:
    """Return which devices other processes used while bad values were measured, if anything says so."""
    bad = {judgement.key.testcase for judgement in check.judgements if judgement.verdict.is_bad}
    used = [f"{device} was {how}" for device, (how, cases) in users(document).items() if bad & {*cases}]
    found = [finding for finding in diagnosis.findings if finding.weight is Weight.BUSY]
    used = used or [f"possibly, {finding.cause.title}" for finding in found[:1]]
    return ("; ".join(used), IDLE) if used else None


def _not_to_use(document: Document, wrong: WrongData) -> Advice:
    """Return what to do about wrong data; nothing is replaced while a setting can explain it."""
    if causes := corrupting(document, wrong):
        names = " or ".join(cause.name for cause in causes)
        part = wrong.device or "this path"
        do = f"do not use {part}; rule out {names}, then verify again: {causes[0].remedy}"
        return Advice(do, "; ".join(cause.confirm for cause in causes))
    peers = find_peers(document) if wrong.between_gpus else None
    if peers and peers.bad and (peers.causes or wrong.by_pcie):
        return replace(peers.advice, do=f"do not use {wrong.device or 'this path'}; {peers.advice.do}")
    return Advice(f"do not use {wrong.device}; replace it") if wrong.device else WRONG_PATH


def _no_problem(document: Document, check: Check) -> tuple[str, Advice]:
    """Return what was judged although nothing is wrong, or why not, and what to do about it."""
    if document.interrupted:
        return f"the run ended early: {document.interrupted}", Advice()
    short = [result for result in document.testcases if result.status is Status.NO_MEMORY]
    if check.verdict is Verdict.BUSY:
        nodes = {node.name for node in document.machine.numa}  # busy CPUs take no memory
        memory = {device for result in short for device in result.busy} - nodes
        uses = []
        for device, (how, _) in users(document).items():
            uses.append(f"{device}'s memory is {how}" if device in memory else f"{device} is {how}")
        lacks = [result.reason for result in short if nodes.issuperset(result.busy) and result.busy]
        return "; ".join([*lacks[:1], *uses]), BUSY
    passed = Verdict.PASS in check.testcases.values()
    if short and not passed:
        return short[0].reason, Advice()
    if passed and check.uncovered:
        lacking = dict.fromkeys(str(lost) for lost in check.uncovered)
        of_size = any(lost.of_size for lost in check.uncovered)
        what = f"no value of {', '.join(lacking)} was judged: {check.uncovered[0].why}"
        return f"{what}; this is not a pass", LARGER if of_size else Advice()
    if not passed:
        accepted = "the overrides accept all values that could be judged"
        reason = accepted if any(check.accepted.values()) else "no value could be judged"
        return "; ".join((reason, *check.doubts, "this is not a pass")), _judging(check)
    if check.doubts:
        advice = VERIFY if is_verified(document) is False else DOUBTFUL if document.imported else Advice()
        return _covered(document, check, f", but {'; '.join(check.doubts)}"), advice
    if unused := [compared.gates.name for compared in check.gates if not compared.compared]:
        return _covered(document, check, f", but no threshold of {', '.join(unused)} was compared"), Advice()
    return _covered(document, check), Advice()


def _covered(document: Document, check: Check, reservation: str = "") -> str:
    """Return which testcases are as fast as expected, and how many were not judged or not measured."""
    counts = Counter(check.testcases.values())
    passed, unjudged = (
        counts[Verdict.PASS],
        sum(counts[verdict] for verdict in Verdict if verdict.is_unjudged),
    )
    if not passed:
        return "no testcase was judged"
    kinds = {
        path_kind(result.name, collective=result.collective is not None)
        for result in document.testcases
        if check.testcases[result.name] is Verdict.PASS
    }
    done = "judged" if unjudged else "measured"
    head = f"everything {done} is" if passed > 1 else f"the testcase {done} is"
    only = f" ({next(iter(kinds))} only)" if len(kinds) == 1 else ""
    how = "as fast as expected"
    if wide := _far_below(check):
        known = "within the known range, which is wide"
        how = known if wide == passed else f"{how}, {many(wide, 'testcase')} only {known}"
    parts = [f"{head} {how}{only}{reservation}"]
    why = _left_busy(document, check)
    for number, how in ((unjudged, f"judged{why}"), (unmeasured(document), "measured")):
        be = "was" if number == 1 else "were"
        parts += [f"{many(number, 'testcase')} {be} not {how}"] if number else []
    unseen = [figure.title for figure in key_figures(document, check) if figure.verdict.is_unjudged]
    parts += [f"nothing of {', '.join(unseen)} was judged"] if unseen else []
    parts += [f"some values were not judged{why}"] if why and not unjudged else []
    return "; ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])


def _left_busy(document: Document, check: Check) -> str:
    """Return which devices other processes used, which kept values from being judged; empty if none."""
    busy = {one.key.testcase for one in check.judgements if one.verdict is Verdict.BUSY and one.key.column}
    used = [f"{device} was {how}" for device, (how, names) in users(document).items() if busy & {*names}]
    return f": {'; '.join(used)}" if used else ""


#: A value that passes with less than this share of what is expected is not as fast as expected.
_FAR = 0.5


def _far_below(check: Check) -> int:
    """Return the number of testcases that pass, but have a value far below what is expected."""
    return len(
        {
            judgement.key.testcase
            for judgement in check.judgements
            if judgement.verdict is Verdict.PASS and check.testcases[judgement.key.testcase] is Verdict.PASS
            and judgement.unit is Unit.RATE
            and (part := share(judgement)) is not None and part.of == "expected" and part.fraction < _FAR
        }
    )  # fmt: skip


#: Maximum number of reasons why no value was judged.
_REASONS = 2


def _judging(check: Check) -> Advice:
    """Return what to do if nothing was judged."""
    reasons = Counter(
        judgement.why
        for judgement in check.judgements
        if judgement.verdict is Verdict.UNKNOWN and judgement.why
    )
    why = "; ".join(f"{many(n, 'value')}: {why}" for why, n in reasons.most_common(_REASONS))
    return Advice(f"judge by a baseline of good machines (--baseline); {why}" if why else "")


_MEMORY = (
    "unknown capacity of host memory; give channels x MT/s of a NUMA node:\n"
    "wirespeed check --host-memory 8x4800   (sudo dmidecode -t memory)"
)
#: One NUMA node stands for the host of a log.
_MEMORY_OF_LOG = (
    "unknown capacity of host memory; give channels x MT/s of all sockets of the host together:\n"
    "wirespeed check --host-memory 16x4800   (sudo dmidecode -t memory)"
)


def unknown_memory(document: Document, check: Check) -> str:
    """Return how to give the capacity of host memory; empty if it is known or was not required."""
    required = any(
        judgement.verdict in (Verdict.UNKNOWN, Verdict.BUSY)
        and judgement.limit is None
        and path_kind(judgement.key.testcase) == HOST_MEMORY
        for judgement in check.judgements
    )
    if not required or not document.machine.unknown_memories or UsualRanges(document).bounds_memory:
        return ""
    return _MEMORY_OF_LOG if document.imported else _MEMORY


def judged_by_baseline(document: Document, check: Check) -> bool:
    """Return whether only a baseline would judge some values; not if the capacity of memory would."""
    unknown = any(
        judgement.verdict is Verdict.UNKNOWN and judgement.value is not None for judgement in check.judgements
    )
    return unknown and check.baseline is None and not unknown_memory(document, check)


def not_as_expected(judgements: Iterable[Judgement]) -> dict[str, int]:
    """Return how many values are not as expected, by what they are, in words."""
    counts = dict.fromkeys(("worse than expected", "below their peers", "above the limit", "failed"), 0)
    for judgement in judgements:
        if judgement.key.column and judgement.verdict.is_bad:
            problem = (
                "failed" if judgement.value is None
                else "above the limit" if judgement.verdict is Verdict.IMPLAUSIBLE
                else "below their peers" if judgement.why == BELOW_PEERS
                else "worse than expected"
            )  # fmt: skip
            counts[problem] += 1
    return {problem: count for problem, count in counts.items() if count}


def _extent(
    document: Document,
    check: Check,
    counts: Counter[Verdict],
    diagnosis: Diagnosis,
    named: Finding | None,
    also: Sequence[Finding],
) -> str:
    """Return how many values the causes explain, are OK, and are not judged, and of how many testcases."""
    if named is not None and diagnosis.slow:
        slow = many(diagnosis.slow, "slow value")
        if also:
            causes = many(len(also) + 1, "cause")
            text = f"{causes} explain {diagnosis.slow - diagnosis.unexplained} of {slow}; "
        else:
            text = f"{'explains' if named.factor is not None else 'may explain'} {named.cells} of {slow}; "
    else:
        counted = not_as_expected(check.judgements)
        text = "".join(f"{many(count, 'value')} {problem}, " for problem, count in counted.items())
    values = [f"{many(counts[Verdict.PASS], 'value')} OK"]
    if unjudged := sum(counts[verdict] for verdict in Verdict if verdict.is_unjudged):
        values.append(f"{unjudged} not judged")
    tried = sum(result.status is not Status.WAIVED for result in document.testcases)
    return f"{text}{', '.join(values)}; {many(tried, 'testcase')}"
