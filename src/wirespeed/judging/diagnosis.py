"""The causes that explain the slow values of a run, by their predictions, and those that facts speak for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..data.causes import Cause, Weight
from ..document import Document
from ..hardware.facts import Fact, Facts, Known
from ..hardware.link_graph import MachineVertices
from ..hardware.topology import LinkKind
from ..qualification import BY_NETWORK, OF_SEVERAL
from ..results.cells import Key, placed
from ..terminal import Tabular, brief
from ..thresholds.causes import FORWARDED, MATTERS
from ..units import GB, many
from .advice import commands_at
from .causes import CAUSES, signs_of
from .causes.record import Sign
from .causes.run_facts import facts_of
from .cells_seen import slow_keys
from .check import Check
from .finding import Finding
from .judge import judge
from .localise import WrongData
from .nccl_settings import DISABLED, disabled_cells
from .other_ways import OtherWay
from .unlike_rates import by_settings
from .verdict import Judgement, Verdict


@dataclass(frozen=True)
class Diagnosis(Tabular):
    """What explains the slow cells of a run.

    Attributes:
        findings: The causes: first those that predict slow cells, then those that may explain some, then
            defects that explain none.
        slow: Number of slow cells.
        unexplained: Number of slow cells that no finding may explain.
        unreadable: Facts that could not be read.
        has_facts: Whether the run has facts at all; runs of older versions have none.
        simulated: Whether no hardware was measured.
        unpredicted: Number of slow cells that are even slower than the causes predict which explain others.
    """

    findings: tuple[Finding, ...]
    slow: int
    unexplained: int
    unreadable: tuple[Fact, ...]
    has_facts: bool
    simulated: bool = False
    unpredicted: int = 0

    def __repr__(self) -> str:
        causes = "; ".join(
            f"{finding.cause.name}{f' ({finding.where})' if finding.where else ''}"
            for finding in self.findings
        )
        left = f", {self.unexplained} unexplained" if self.unexplained else ""
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Diagnosis{kind}: {many(self.slow, 'slow value')}{left}; causes: {causes or 'none'}")


def diagnose(document: Document, check: Check | None = None) -> Diagnosis:
    """The causes that explain the slow cells of a run, or that its facts speak for.

    A cause *explains* a cell if the limits of the machine, changed as the cause changes it, predict the
    value, and the predictions for all other cells fit, too (see ``fit``). For what is left, a cause that
    facts speak for *may explain* a cell if it slows down links of a kind that the cell loads, at its device.

    Args:
        document: The run.
        check: The judgement of its cells, if it was judged by other limits than its own; None: ``judge`` it.
    """
    from .cause_ranking import explain  # imports numpy, which is slow

    facts = facts_of(document)
    check = check or judge(document)
    pairs = {judgement.key: judgement for judgement in check.judgements if judgement.why in tuple(OtherWay)}
    # That a path is slow is known of a pair that is slower than another way: it takes a cause to explain it.
    by_host = {key for key, judgement in pairs.items() if judgement.why == OtherWay.HOST}
    nameless, milder, known, done = 0, set[Key](), list[Finding](), set[Key]()
    slow = slow_keys(check.judgements)
    helping, slowed = by_settings(document)
    for sign, disabled in disabled_cells(document, slow, facts, helping):
        cause = next(cause for cause in CAUSES if cause.name == DISABLED)
        known.append(
            Finding(
                cause, "", sign.text, len(disabled), weight=sign.weight or cause.weight, host=sign.host,
                commands=commands_at(document.machine, "", cause), at_any_rate=True,
            )
        )  # fmt: skip
        done |= disabled
    judged = [j for j in check.judgements if j.key not in done and j.key.testcase not in slowed]
    of_host = facts if not (helping or slowed) else facts.without(Known.NCCL_VARIABLES)
    for finding, keys, not_as_slow in explain(document, judged, of_host):
        # What slows down the host would slow down copies through it, which are faster.
        contradicted = keys and keys <= by_host
        if finding and document.imported and finding.cause.name == DISABLED:
            finding = None  # what it explains in a log is known by now
        if finding and (finding.evidence or finding.cause.name in _OF_PAIRS or not contradicted):
            known.append(finding)
        else:
            keys -= pairs.keys()
            nameless += len(keys)
        done |= keys
        milder |= not_as_slow
    vertices = MachineVertices(document.machine)
    named = {
        (finding.cause.name, vertex.host, device)
        for finding in known
        for vertex in (vertices.of(finding.place), *vertices.gpus_at(finding.place))
        for device in ("", vertex.device)
    }
    left = [*_slow(document, slow - done), *_slow_paths(document)]
    slow_paths = len(left) - len(slow - done)
    possible = []
    # Collectives of which no value is judged may be slow: what facts say of NCCL is all that is known.
    unjudged = any(result.collective for result in document.testcases) and not any(
        judgement.verdict.is_judged for judgement in check.judgements
    )
    explained, too_slow, covered = set[int](), set[int](), set[int]()
    for cause in CAUSES:
        for sign in signs_of(cause, document.machine, facts) if document.facts else ():
            if sign.settings and helping.issuperset(sign.settings):
                continue
            is_named = bool(document.imported and cause.name == DISABLED and sign.settings)  # or does not fit
            cells = {i for i, cell in enumerate(left) if not is_named and cell.fits(cause, sign)}
            weight = sign.weight or cause.weight
            if (cause.name, sign.host, sign.device) in named:  # predictions are too far off for these cells
                explained |= cells
                too_slow |= {i for i in cells if left[i].key not in milder}
            elif cells or weight is not Weight.CONDITION or (unjudged and cause.collectives):
                commands = commands_at(document.machine, sign.at or sign.device, cause)
                possible.append(
                    Finding(
                        cause, sign.device, sign.text, len(cells), weight=weight, host=sign.host,
                        commands=commands,
                    )
                )  # fmt: skip
                explained |= cells
                covered |= cells
    peers = {i for i, cell in enumerate(left) if cell.key in pairs} - explained
    if candidate := _of_pairs(document, facts, [pairs[left[i].key] for i in sorted(peers)]):
        possible.append(candidate)
        explained |= peers
    possible.sort(key=lambda finding: -finding.cells)  # equals keep the order of the causes
    unreadable = tuple(fact for of_host in facts.of_each_host for fact in of_host if fact.value is None)
    unexplained, unpredicted = len(left) - len(explained) + nameless, len(too_slow - covered)
    has_facts, simulated = bool(document.facts), document.simulated
    count = len(slow) + slow_paths
    findings = tuple(replace(finding, slow=count) for finding in (*known, *possible))
    return Diagnosis(findings, count, unexplained, unreadable, has_facts, simulated, unpredicted)


def excused(document: Document, check: Check, *, ignore_busy: bool = False) -> Check:
    """The verdicts on a run, with warnings instead of failures if only settings cause them.

    What the user, another process or the configuration of the host causes is no failure of the hardware. It
    must explain every slow value: by predictions that fit, and readings that speak for it, or because it can
    slow down its devices by any factor. What failed for other reasons than its rate stays a failure, and with
    ``ignore_busy``, other processes are no excuse.
    """
    failing = {judgement.key for judgement in check.judgements if judgement.verdict.is_failure}
    facts = facts_of(document)
    settings = (cause for cause in CAUSES if cause.setting)
    if not failing or not failing <= slow_keys(check.judgements) or not document.facts:
        return check
    if not any(next(signs_of(cause, document.machine, facts), None) for cause in settings):
        return check
    diagnosis = diagnose(document, check)
    causes = [finding for finding in diagnosis.findings if finding.cells]
    if diagnosis.unexplained or diagnosis.unpredicted or not all(map(_is_setting, causes)):
        return check
    if ignore_busy and any(finding.cause.weight is Weight.BUSY for finding in causes):
        return check
    judgements = tuple(
        replace(judgement, verdict=Verdict.WARN) if judgement.key in failing else judgement
        for judgement in check.judgements
    )
    testcases = {
        name: Verdict.WARN if verdict.is_failure else verdict for name, verdict in check.testcases.items()
    }
    return replace(check, judgements=judgements, testcases=testcases)


def _is_setting(finding: Finding) -> bool:
    """Whether a cause of slow values is a setting, and known to have this effect."""
    of_any_size = finding.cause.collectives or finding.weight is Weight.BUSY
    causes = (finding.cause, *finding.others)
    return bool(finding.evidence) and all(c.setting for c in causes) and (finding.likely or of_any_size)


#: Causes that concern only copies between GPUs over PCIe, the most frequent first, each with the fact that
#: shows whether it applies. Which of them it is, the values do not say.
_OF_PAIRS = {"iommu": Known.IOMMU, "acs": Known.IOMMU_GROUP, "bar1": Known.BAR1}
#: Those of them that are settings and can make data wrong.
_CORRUPTING = ("iommu", "acs")


def _of_pairs(document: Document, facts: Facts, slow: Sequence[Judgement]) -> Finding | None:
    """What may slow down pairs of GPUs that are slower than another way, and that no fact shows."""
    causes = _unread(document, facts)
    if not causes or not slow:
        return None
    worst = min(slow, key=lambda judgement: judgement.margin)
    between = f"{worst.key.row} and {worst.key.column}"
    evidence = f"{between}: {(worst.value or 0.0) / GB:.2f} GB/s, {worst.why} ({worst.basis})"
    if worst.value and worst.normal and worst.value >= FORWARDED * worst.normal:
        evidence += "; some hosts forward copies between GPUs this slowly without a fault"
    commands = commands_at(document.machine, "", *causes)
    return Finding(causes[0], "", evidence, len(slow), others=tuple(causes[1:]), commands=commands)


def _unread(document: Document, facts: Facts) -> list[Cause]:
    """The causes of slow pairs of GPUs of which no fact shows whether they apply."""
    places = ("", *(gpu.name for gpu in document.machine.gpus))
    causes = {cause.name: cause for cause in CAUSES}
    return [
        causes[name] for name, fact in _OF_PAIRS.items() if not any(facts.knows(fact, at) for at in places)
    ]


def corrupting(document: Document, wrong: WrongData) -> list[Cause]:
    """The settings that can explain wrong data: those that facts show, else those that none rules out.

    Only what facts show can make copies with the host wrong.
    """
    if not wrong.by_pcie:
        return []
    facts = facts_of(document)
    settings = [cause for cause in CAUSES if cause.name in _CORRUPTING]
    shown = [cause for cause in settings if any(signs_of(cause, document.machine, facts))]
    unread = [cause for cause in _unread(document, facts) if cause in settings]
    return shown or (unread if wrong.between_gpus else [])


def _slow_paths(document: Document) -> list[_Slow]:
    """Slow paths between nodes and slow nodes, which causes of the network at an end may explain."""
    found = document.qualification
    names = [node.name for node in found.nodes] if found else []
    return [
        _Slow(
            Key(str(part.kind), f"rail {part.rail}", names[part.nodes[0]], names[part.nodes[-1]]),
            frozenset((LinkKind.NETWORK, names[node], "") for node in part.nodes),
            True,
        )
        for part in (found.culprits if found else ())
        if part.kind in (*OF_SEVERAL, *BY_NETWORK)
    ]


@dataclass(frozen=True)
class _Slow:
    """A slow cell: its key, and kind, host and device of each end of the links that it loads.

    The settings of its run are None if the facts of the host have them. Of a pair, data moves between GPUs.
    """

    key: Key
    links: frozenset[tuple[LinkKind, str, str]]
    collective: bool
    settings: tuple[str, ...] | None = None
    is_pair: bool = True

    def fits(self, cause: Cause, sign: Sign) -> bool:
        """Whether a cause may slow it down, at the device and host of a sign, in its run."""
        if (cause.collectives and not self.collective) or (cause.only_pairs and not self.is_pair):
            return False
        if self.settings is not None and sign.settings and not {*sign.settings} & {*self.settings}:
            return False
        return any(
            kind in cause.slows and of == sign.host and sign.device in ("", end)
            for kind, of, end in self.links
        )


def _slow(document: Document, keys: Collection[Key]) -> list[_Slow]:
    """What the slow cells load. The links between the hosts of a job are in no description.

    They are loaded by collectives, and by cells whose links are unknown.
    """
    if not keys:
        return []
    links, vertices = document.machine.links, MachineVertices(document.machine)
    network = frozenset((LinkKind.NETWORK, host, "") for host in vertices.hosts if len(vertices.hosts) > 1)
    places = {end: vertices.of(end)[1:] for link in links for end in link.ends}
    of_runs = any(result.settings for result in document.testcases)
    gpus = {gpu.name for gpu in vertices.gpus}
    return [
        _Slow(
            measured.key,
            frozenset(
                (links[i].kind, *places[end])
                for i, taken, _ in measured.cell.links
                if taken >= MATTERS
                for end in links[i].ends
            )
            | (network if measured.result.collective or not measured.cell.links else frozenset()),
            measured.result.collective is not None,
            measured.result.settings if of_runs else None,
            measured.result.collective is not None or {measured.key.row, measured.key.column} <= gpus,
        )
        for measured in placed(document)
        if measured.key in keys
    ]
