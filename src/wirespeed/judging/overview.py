"""The summary of a run with which reports begin: verdict, one sentence, and a key figure for each kind of
path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..data.causes import Weight
from ..document import Document, Status
from ..features import functions
from ..hardware.topology import UNKNOWN_GPU, LinkKind
from ..results.imported_limits import MACHINE_OPTION, NICS_OPTION, directions_of
from ..statistics import grouped
from ..thresholds.values import AS_EXPECTED
from ..units import many
from . import advice as advised
from .advice import Advice, advice_at, of_error
from .check import Check
from .diagnosis import Diagnosis, corrupting, diagnose
from .finding import Finding
from .inventory import Missing
from .key_figures import KeyFigure, failures, fraction, key_figures
from .localise import WrongData
from .omissions import is_verified, unmeasured
from .path_kinds import GPU_GPU, HOST_MEMORY, PathKind, path_kind, skipped
from .published import OF_MODEL, OF_NETWORKS, OF_NICS
from .qualification_verdict import first_words
from .unlike_rates import by_settings
from .usual_ranges import UsualRanges
from .verdict import BELOW_PEERS, Judgement, Verdict


@dataclass(frozen=True)
class Overview:
    """What a reader needs first.

    Attributes:
        verdict: The verdict of the run.
        sentence: The cause, or what was found.
        extent: How much of the run it concerns.
        figures: A key figure for each kind of path that was measured.
        finding: The cause that explains most; None without one.
        diagnosis: All causes.
        advice: What to do about what the sentence says.
        by_finding: Whether the sentence says what the finding is, and the advice its remedy.
        also: Further causes that explain slow values.
        skipped: The kinds of paths that the machine has, of which no testcase could be measured, and why.
    """

    verdict: Verdict
    sentence: str
    extent: str
    figures: tuple[KeyFigure, ...]
    finding: Finding | None
    diagnosis: Diagnosis
    advice: Advice
    by_finding: bool
    also: tuple[Finding, ...] = ()
    skipped: tuple[tuple[PathKind, str], ...] = ()


def overview(document: Document, check: Check, diagnosis: Diagnosis | None = None) -> Overview:
    """The overview of a run.

    Args:
        document: The run.
        check: The judgement of its cells.
        diagnosis: Its causes; None to find them.
    """
    return _Summary(document, check, diagnosis or diagnose(document, check)).overview()


#: Maximum number of causes that the first sentence names.
_CAUSES = 2
#: Maximum number of reasons why no value was judged.
_REASONS = 2


class _Summary:
    """What is said first of one run."""

    def __init__(self, document: Document, check: Check, diagnosis: Diagnosis) -> None:
        self.document, self.check, self.diagnosis = document, check, diagnosis
        self.counts = Counter(judgement.verdict for judgement in check.judgements if judgement.key.column)
        self.used = users(document)
        self.absent = [absent for absent in check.missing if absent.verdict is Verdict.FAIL]
        #: The cause that explains most, and whether it is what the reader needs first; further causes.
        self.named, self.answers = self._named()
        self.also = tuple(f for f in diagnosis.findings if f.cells and f.likely and f is not self.named)

    def overview(self) -> Overview:
        """Verdict, sentence and key figures."""
        check, named, qualification = self.check, self.named, self.document.qualification
        if qualification and not check.stale:
            sentence, extent, advice = first_words(self.document, qualification)
            if named and named.cells:
                advice = Advice(named.cause.remedy, "; ".join(named.commands))
        else:
            problem, own = self._problem(), self._of_feature()
            sentence, advice = problem or self._no_problem()
            extent = self._extent()
            if own and not problem and not check.verdict.is_bad:
                (sentence, extent), advice = own, Advice()
        verdict, figures = check.verdict, key_figures(self.document, check)
        advice = Advice() if verdict is Verdict.INTERRUPTED else advice
        return Overview(
            verdict, sentence, extent, figures, named, self.diagnosis, advice, self.answers, self.also,
            tuple(skipped(self.document)),
        )  # fmt: skip

    def _of_feature(self) -> tuple[str, str] | None:
        """Sentence and extent of a run that only a feature measured, if it has better words."""
        known = (words(self.document, self.check) for words in functions("judging", "first_words"))
        return None if self.document.interrupted else next(filter(None, known), None)

    def _named(self) -> tuple[Finding | None, bool]:
        """The cause that explains most, and whether it is what the reader needs first.

        Without slow values, a defect counts if nothing else is wrong. Missing devices and wrong data are
        surer than any cause, and culprits than one that is not likely. A run that fails is one whose hardware
        is slow or broken: settings are no headline of it.
        """
        check, findings = self.check, self.diagnosis.findings
        named = next((finding for finding in findings if finding.cells), None)
        is_wrong = check.wrong or failures(self.document) or any(gates.failures for gates in check.gates)
        if named is None and check.defects and not is_wrong and not not_as_expected(check.judgements):
            named = next((finding for finding in findings if finding.weight is Weight.DEFECT), None)
        if named is not None and named.cause.setting and check.verdict is Verdict.FAIL:
            others = (finding for finding in findings if finding.cells and not finding.cause.setting)
            named = next((f for f in others if f.likely or f.weight is Weight.DEFECT), named)
        if named is None or check.wrong or self.absent:
            return named, False
        if named.cause.setting and check.verdict is Verdict.FAIL:
            return named, False  # what fails is slower than settings explain
        return named, named.likely or not (check.culprits or check.dips)

    def _problem(self) -> tuple[str, Advice] | None:
        """What is wrong, and where, the surest first, and what to do about it; None if nothing is."""
        document, check = self.document, self.check
        if check.stale:
            return f"{check.stale}; this is not a pass", advised.STALE
        if self.absent:
            return _first(self.absent)
        if self.named is not None and self.answers:
            return self._of_cause(self.named)
        if check.wrong:
            return str(check.wrong[0]), self._not_to_use(check.wrong[0])
        if check.culprits:
            first = check.culprits[0]
            return f"{first} runs at {first.share}", advice_at(first, document.machine)
        if failed := failures(document):
            how = "" if failed[0].reason.startswith(failed[0].status) else f"{failed[0].status}: "
            remedy = of_error(failed[0].reason, imported=bool(document.imported))
            return f"{failed[0].name}: {how}{failed[0].reason}", remedy
        if above := self.counts[Verdict.IMPLAUSIBLE]:
            return self._impossible(above)
        if check.dips:
            sizes = {(dip.key.testcase, dip.size) for dip in check.dips}
            others = f", and {len(sizes) - 1} more" if len(sizes) > 1 else ""
            return f"{check.dips[0]}{others}", advised.DIP
        faster = [judgement for judgement in check.judgements if judgement.faster_than is not None]
        if bad := self.counts[Verdict.FAIL] + self.counts[Verdict.WARN] - len(faster):
            unknown = "no cause is known", advised.NO_CAUSE
            if self.named is not None and self.named.cells:
                title, part = self.named.cause.title, self.named.cells < self.named.slow
                unknown = (
                    f"{title}, which does not explain all" if part else f"possibly, {title}",
                    advised.NO_CAUSE,
                )
            why, advice = self._in_use() or self._by_settings() or unknown
            return f"{many(bad, 'value')} {'is' if bad == 1 else 'are'} worse than expected; {why}", advice
        if faster:
            be, most = "is" if len(faster) == 1 else "are", max(map(fraction, faster))
            of_network = any(judgement.faster_than is LinkKind.NETWORK for judgement in faster)
            text = f"{many(len(faster), 'value')} {be} faster than the assumed machine"
            advice = advised.FASTER_NETWORK if of_network else advised.FASTER
            return f"{text}: up to {most:.0%} of its limit", advice
        if failed_gates := [result for compared in check.gates for result in compared.failures]:
            gate, more = failed_gates[0].gate, len(failed_gates) - 1
            others = f", and {many(more, 'more threshold')}" if more else ""
            text = f"{gate.measures}: below the threshold of {gate.at_least}{others}"
            return text, advised.NO_CAUSE
        doubtful = [absent for absent in check.missing if absent.verdict is Verdict.WARN]
        return _first(doubtful) if doubtful else None

    def _impossible(self, above: int) -> tuple[str, Advice]:
        """That values are above their limits, and what to do about it."""
        kinds = {
            path_kind(judgement.key.testcase)
            for judgement in self.check.judgements if judgement.verdict is Verdict.IMPLAUSIBLE
        }  # fmt: skip
        values = f"{many(above, 'value')} above the limits"
        if self.document.imported and GPU_GPU in kinds:
            return f"{values} of the GPUs' links: wrong data, or none was moved", advised.IMPOSSIBLE
        of_memory = self.document.imported and kinds == {HOST_MEMORY}
        remedy = advised.ABOVE_MEMORY if of_memory else advised.ABOVE
        return f"{values}: values or capacities are wrong", remedy

    def _of_cause(self, finding: Finding) -> tuple[str, Advice]:
        """The cause that is what the reader needs first, with further ones, and the remedies."""
        also = self.also
        sure = "" if finding.likely or not finding.cells else "possibly, "
        causes = (finding, *also[: _CAUSES - 1])
        named = [f.cause.title + (f" ({f.place})" if f.place else "") for f in causes]
        named += [f"and {many(len(also) + 1 - _CAUSES, 'more cause')}"] if len(also) >= _CAUSES else []
        named += [] if finding.cells else [self._covered()]
        remedies = (f"{f.place}: {f.cause.remedy}" for f in causes)
        return f"{sure}{'; '.join(named)}", Advice("; ".join(remedies) if also else finding.cause.remedy)

    def _in_use(self) -> tuple[str, Advice] | None:
        """Which devices other processes used while bad values were measured, if anything says so."""
        bad = {judgement.key.testcase for judgement in self.check.judgements if judgement.verdict.is_bad}
        used = [f"{device} was {how}" for device, (how, cases) in self.used.items() if bad & {*cases}]
        found = [finding for finding in self.diagnosis.findings if finding.weight is Weight.BUSY]
        used = used or [f"possibly, {finding.cause.title}" for finding in found[:1]]
        return ("; ".join(used), advised.IDLE) if used else None

    def _not_to_use(self, wrong: WrongData) -> Advice:
        """What to do about wrong data; nothing is replaced while a setting can explain it."""
        part = wrong.device or "this path"
        if causes := corrupting(self.document, wrong):
            names = " or ".join(cause.name for cause in causes)
            do = f"do not use {part}; rule out {names}, then verify again: {causes[0].remedy}"
            return Advice(do, "; ".join(cause.confirm for cause in causes))
        known = (advice(self.document, wrong) for advice in functions("judging", "advice"))
        advice: Advice | None = next((one for one in known if one), None)
        if advice is not None:
            return replace(advice, do=f"do not use {part}; {advice.do}")
        return Advice(f"do not use {wrong.device}; replace it") if wrong.device else advised.WRONG_PATH

    def _by_settings(self) -> tuple[str, Advice] | None:
        """The settings of runs of a log that are slower than with others, if no other run is slow."""
        _, slowed = by_settings(self.document)
        bad = {j.key.testcase for j in self.check.judgements if j.verdict.is_worse}
        if not bad or not bad <= slowed:
            return None
        of_runs = [
            (result.name in bad, setting) for result in self.document.testcases for setting in result.settings
        ]
        good = {setting for is_slow, setting in of_runs if not is_slow}
        settings = dict.fromkeys(setting for is_slow, setting in of_runs if is_slow and setting not in good)
        return f"only with {', '.join(settings)}", advised.OTHER_SETTINGS

    def _no_problem(self) -> tuple[str, Advice]:
        """What was judged although nothing is wrong, or why not, and what to do about it."""
        document, check = self.document, self.check
        if document.interrupted:
            return f"the run ended early: {document.interrupted}", Advice()
        short = [result for result in document.testcases if result.status is Status.NO_MEMORY]
        if check.verdict is Verdict.BUSY:
            nodes = {node.name for node in document.machine.numa}  # busy CPUs take no memory
            memory = {device for result in short for device in result.busy} - nodes
            names = {device: f"{device}'s memory" if device in memory else device for device in self.used}
            uses = [f"{names[device]} is {how}" for device, (how, _) in self.used.items()]
            lacks = [result.reason for result in short if nodes.issuperset(result.busy) and result.busy]
            return "; ".join([*lacks[:1], *uses]), advised.BUSY
        passed = Verdict.PASS in check.testcases.values()
        if short and not passed:
            return short[0].reason, Advice()
        if passed and check.uncovered:
            lacking = dict.fromkeys(str(lost) for lost in check.uncovered)
            of_size = any(lost.of_size for lost in check.uncovered)
            noun = "rate" if document.imported else "value"
            what = f"no {noun} of {', '.join(lacking)} was judged: {check.uncovered[0].why}"
            if document.imported:
                advice = advised.LARGER_LOG if of_size else self._judging()
                return self._covered(f", but {'; '.join((what, *check.doubts))}"), advice
            return f"{what}; this is not a pass", advised.LARGER if of_size else Advice()
        if not passed:
            accepted = "the overrides accept all values that could be judged"
            reason = accepted if any(check.accepted.values()) else "no value could be judged"
            return "; ".join((reason, *check.doubts, "this is not a pass")), self._judging()
        if check.doubts:
            advice = advised.DOUBTFUL if document.imported else Advice()
            advice = advised.VERIFY if is_verified(document) is False else advice
            return self._covered(f", but {'; '.join(check.doubts)}"), advice
        unused = ", ".join(compared.gates.name for compared in check.gates if not compared.compared)
        return self._covered(f", but no threshold of {unused} was compared" if unused else ""), Advice()

    def _covered(self, reservation: str = "") -> str:
        """Which testcases are as fast as expected, and how many were not judged or not measured."""
        document, check = self.document, self.check
        counts = Counter(check.testcases.values())
        passed = counts[Verdict.PASS]
        unjudged = sum(counts[verdict] for verdict in Verdict if verdict.is_unjudged)
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
        parts = [f"{head} {self._how_fast()}{only}{reservation}"]
        why = self._left_busy()
        for number, how in ((unjudged, f"judged{why}"), (unmeasured(document), "measured")):
            be = "was" if number == 1 else "were"
            parts += [f"{many(number, 'testcase')} {be} not {how}"] if number else []
        figures = () if check.uncovered else key_figures(document, check)
        unseen = [figure.title for figure in figures if figure.verdict.is_unjudged]
        parts += [f"nothing of {', '.join(unseen)} was judged"] if unseen else []
        parts += [f"some values were not judged{why}"] if why and not unjudged else []
        return "; ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])

    def _how_fast(self) -> str:
        """What the values that pass are: as fast as others of this model, if these are known."""
        passed = [j for j in self.check.judgements if j.verdict is Verdict.PASS and j.value and j.normal]
        if not passed and any(j.reference == OF_NICS for j in self.check.judgements):
            return "within what the NICs allow; that is an upper bound, no reference is known"
        if len(of := {judgement.reference for judgement in passed}) == 1 and of & {OF_MODEL, OF_NETWORKS}:
            return f"as fast as {of.pop()}"
        known = [judgement.reference == OF_MODEL for judgement in passed]
        unknown = (j for j, is_known in zip(passed, known, strict=True) if not is_known)
        rates = [j for j in unknown if j.unit.more_is_better]
        # What is typical of links of an unknown capacity is a guess, and so it is of latencies.
        expected = [j.limit and (j.value or 0.0) >= AS_EXPECTED * (j.normal or 0.0) for j in rates]
        if not self.document.simulated and (not all(expected) or not (expected or any(known))):
            others = "as fast as others of this model, or " if any(known) else ""
            return f"{others}within what the links allow{'' if others else '; no reference for this model'}"
        return "as fast as expected"

    def _left_busy(self) -> str:
        """Which devices other processes used, which kept values from being judged; empty if none."""
        busy = {j.key.testcase for j in self.check.judgements if j.verdict is Verdict.BUSY and j.key.column}
        used = [f"{device} was {how}" for device, (how, names) in self.used.items() if busy & {*names}]
        return f": {'; '.join(used)}" if used else ""

    def _judging(self) -> Advice:
        """What to do if nothing was judged."""
        reasons = Counter(j.why for j in self.check.judgements if j.verdict is Verdict.NOT_JUDGED and j.why)
        why = "; ".join(f"{many(n, 'value')}: {why}" for why, n in reasons.most_common(_REASONS))
        how = remedy(self.document, self.check)
        if how == BY_BASELINE:
            return Advice(f"judge by a baseline of good machines; {why}", how)
        return Advice("; ".join(filter(None, (how, why))))

    def _extent(self) -> str:
        """How many values the causes explain, are OK and not judged, and of how many testcases."""
        diagnosis, named = self.diagnosis, self.named
        if named is not None and self.answers and diagnosis.slow:
            slow = many(diagnosis.slow, "slow value")
            if self.also:
                causes = many(len(self.also) + 1, "cause")
                text = f"{causes} explain {diagnosis.slow - diagnosis.unexplained} of {slow}; "
            else:
                text = f"{named.verb} {named.cells} of {slow}; "
        else:
            counted = not_as_expected(self.check.judgements)
            text = "".join(f"{many(count, 'value')} {problem}, " for problem, count in counted.items())
        values = [f"{many(self.counts[Verdict.PASS], 'value')} OK"]
        if unjudged := sum(self.counts[verdict] for verdict in Verdict if verdict.is_unjudged):
            values.append(f"{unjudged} not judged")
        tried = sum(result.status is not Status.WAIVED for result in self.document.testcases)
        return f"{text}{', '.join(values)}; {many(tried, 'testcase')}"


def _first(lacking: Sequence[Missing]) -> tuple[str, Advice]:
    count = len(lacking) - 1
    more = f"; {many(count, 'more part')} {'is' if count == 1 else 'are'} missing" if count else ""
    return f"{lacking[0]}{more}", lacking[0].advice


def users(document: Document) -> dict[str, tuple[str, list[str]]]:
    """How other processes used each device in most testcases, and the testcases in which they did."""
    results = document.testcases
    by_device = grouped((device, (how, run.name)) for run in results for device, how in run.busy.items())
    return {
        device: (Counter(how for how, _ in uses).most_common(1)[0][0], [name for _, name in uses])
        for device, uses in by_device.items()
    }


#: How to give the capacity; ``{}``: of what, the saved run of a log, and number of channels.
_MEMORY = (
    "unknown capacity of host memory; give channels x MT/s of {}:\n"
    "wirespeed check {}--host-memory {}x4800   (sudo dmidecode -t memory)"
)


def unknown_memory(document: Document, check: Check) -> str:
    """How to give the capacity of host memory; empty if it is known or was not required."""
    required = any(
        judgement.verdict in (Verdict.NOT_JUDGED, Verdict.BUSY)
        and judgement.limit is None
        and path_kind(judgement.key.testcase) == HOST_MEMORY
        for judgement in check.judgements
    )
    if not required or not document.machine.unknown_memories or UsualRanges(document).bounds_memory:
        return ""
    if document.imported:  # one NUMA node stands for the host of a log
        return _MEMORY.format("all sockets of the host together", "RUN.json ", 16)
    return _MEMORY.format("a NUMA node", "", 8)


#: What judges values that nothing limits.
BY_BASELINE = "wirespeed baseline FILE... -o baseline.json"


def remedy(document: Document, check: Check) -> str:
    """What would judge the values whose limits are unknown; empty if there are none.

    Logs of other tools may lack what limits their values: the GPUs, the NICs of each host, other ranks.
    """
    unknown = {
        judgement.key.testcase for judgement in check.judgements
        if judgement.verdict is Verdict.NOT_JUDGED and judgement.value is not None
    }  # fmt: skip
    if not unknown or check.stale or check.baseline is not None or unknown_memory(document, check):
        return ""
    results = [result for result in document.testcases if result.name in unknown]
    ranks = [result.collective.ranks for result in results if result.collective is not None]
    if document.imported and len(ranks) == len(results) and set(ranks) == {1}:
        return "measure several ranks in one job"
    options = dict.fromkeys(option for log in document.imported for option in log.judged_with)
    machine, nics = (
        next((option.removeprefix(name) for option in options if option.startswith(name)), "")
        for name in (MACHINE_OPTION, NICS_OPTION)
    )
    steps = []
    if machine and any(gpu.model != UNKNOWN_GPU for gpu in document.machine.gpus):
        steps.append(f"if NVLink connects all GPUs, give --machine {machine}")
    elif machine:
        of_each = " of each host" if nics or not document.machine.gpus else ""
        steps.append(f"name the GPUs{of_each} (--machine NAME-N, such as {machine})")
    if nics:
        two = any(directions_of(result.name, table.key) for result in results for table in result.tables)
        of_each, where = ("", ", if the ranks were on two hosts") if two else (" of each host", "")
        steps.append(f"give the NICs{of_each}{where} (--nics, such as {nics})")
    return "; ".join(steps) or BY_BASELINE


def not_as_expected(judgements: Iterable[Judgement]) -> dict[str, int]:
    """How many values are not as expected, by what they are, in words."""
    counts = dict.fromkeys(("worse than expected", "below their peers", "above the limit", "failed"), 0)
    for judgement in judgements:
        if judgement.key.column and judgement.verdict.is_bad:
            problem = (
                "failed" if judgement.value is None
                else "above the limit" if judgement.is_above
                else "below their peers" if judgement.why == BELOW_PEERS
                else "worse than expected"
            )  # fmt: skip
            counts[problem] += 1
    return {problem: count for problem, count in counts.items() if count}
