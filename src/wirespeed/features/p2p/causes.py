"""The causes of broken or slow peer access, with the settings that avoid it now, and the repair. Attempts say
which pairs do not work; facts say what may be the cause. A cause that concerns the broken pairs, and no
others, comes before one of the whole host.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...data.causes import Cause
from ...data.causes import causes as all_causes
from ...document import Document
from ...errors import MachineError
from ...hardware.facts import OFF, OK, ON, Facts, Known
from ...hardware.link_graph import Network
from ...hardware.topology import LinkKind, Machine
from ...judging.advice import Advice, at_device
from ...judging.causes import evidence_of
from ...judging.causes.record import Evidence, Sign
from ...judging.causes.run_facts import facts_of
from ...judging.finding import Finding
from ...judging.inventory import XID, Missing, missing
from ...judging.verdict import Verdict
from ...peer_access import MOST_PEERS, Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict, worded
from ...results.inventory import InventoryPart
from ...thresholds.causes import GOOD_SHARE, PEER_OF_HOST
from ...units import GB, format_time

#: Maximum number of GPUs that are named as defective: those of a pair.
_ENDS = 2
_V = PeerVerdict
_BROKEN = frozenset({_V.HANGS, _V.WRONG, _V.FAILS})
_ANY = _BROKEN | {_V.SLOW}
_PCIE = frozenset({LinkKind.PCIE})
#: Kinds of links of which a cause that concerns no others says nothing about pairs that NVLink joins.
_NO_NVLINK = frozenset({LinkKind.PCIE, LinkKind.C2C, LinkKind.NETWORK})
#: Registry key that maps all memory of a GPU in its BAR1; and those with which owners of GeForce GPUs reached
#: correct data with patched modules: issue 25 and pull request 34 of aikitoria/open-gpu-kernel-modules.
_STATIC_BAR1 = "RMForceStaticBar1=1"
_PATCHED_KEYS = f"ForceP2P=17;RMForceP2PType=1;RMPcieP2PType=1;PeerMappingOverride=1;{_STATIC_BAR1}"
_BETWEEN = frozenset({PeerMechanism.IPC, PeerMechanism.DESCRIPTOR, PeerMechanism.NCCL})


def _acs_read(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if bridges := facts.several(Known.ACS_REDIRECTS, gpu.name):
            yield Sign(gpu.name, f"{', '.join(bridges)} above {gpu.name} redirects")
    yield from evidence_of(_KNOWN["acs"])(machine, facts)


def _acs_groups(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """IOMMU groups of GPUs and bridges that show isolation, where the control word cannot be read."""
    for gpu in machine.gpus:
        own, bridges = facts.text(Known.IOMMU_GROUP, gpu.name), facts.several(Known.BRIDGE_GROUPS, gpu.name)
        others = {facts.text(Known.IOMMU_GROUP, other.name) for other in machine.gpus if other is not gpu}
        is_alone = own not in ("", OFF) and own not in others
        if is_alone and not facts.knows(Known.ACS_REDIRECTS, gpu.name) and OFF not in bridges:
            yield Sign(gpu.name, f"{gpu.name} is in an IOMMU group of its own ({own}), so ACS isolates it")


def _p2p_status(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        for peer in gpu.peers:
            pair = f"{gpu.name}->{peer}"
            texts = (facts.text(fact, pair) for fact in (Known.P2P_WRITE, Known.P2P_READ))
            if status := next((text for text in texts if text not in ("", OK)), ""):
                yield Sign(pair, f"NVML denies {pair} ({status}), CUDA offers it")


def _partition(machine: Machine, facts: Facts) -> Iterator[Sign]:
    names = [gpu.name for gpu in machine.gpus]
    ids = {
        gpu: (facts.text(Known.FABRIC_CLUSTER, gpu), facts.number(Known.FABRIC_CLIQUE, gpu)) for gpu in names
    }
    for gpu, own in ids.items():
        for other, theirs in ids.items():
            if None not in (own[1], theirs[1]) and own != theirs:
                yield Sign(f"{gpu}->{other}", f"{gpu} and {other} are in different partitions")
        if problems := [p for p in facts.several(Known.FABRIC_HEALTH, gpu) if "partition" in p]:
            yield Sign(gpu, f"{gpu}: {', '.join(problems)}")


def _container(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if (name := facts.text(Known.CONTAINER)) not in ("", OFF):
        yield Sign("", f"this process runs in a container ({name})")


def _forwarding(machine: Machine, facts: Facts) -> Iterator[Sign]:
    is_amd = "AMD" in f"{machine.cpu} {facts.text(Known.CPU_DESIGN)}"
    if is_amd and {facts.text(Known.SWITCH, gpu.name) for gpu in machine.gpus} <= {"none", ""}:
        yield Sign("", "the GPUs are below root ports of an AMD CPU")


def _advertised(machine: Machine, facts: Facts) -> Iterator[Sign]:
    keys, known = facts.several(Known.REGISTRY_KEYS), facts.knows(Known.REGISTRY_KEYS)
    text = f"; registry keys of the driver: {', '.join(keys) or 'none'}" if known else ""
    for gpu in machine.gpus:
        if "GeForce" in gpu.model and gpu.peers:
            yield Sign(gpu.name, f"{gpu.model} has no official peer access over PCIe{text}")


def _display(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus if _STATIC_BAR1 not in facts.several(Known.REGISTRY_KEYS) else ():
        if facts.text(Known.DISPLAY, gpu.name) == ON:
            yield Sign(gpu.name, f"a display uses {gpu.name}, so that its BAR1 may not map all of its memory")


_KNOWN = {cause.name: cause for cause in all_causes()}
_EVIDENCE: tuple[tuple[str, Evidence | None], ...] = (
    ("acs", _acs_read), ("p2p-status", _p2p_status),
    ("partition", _partition), ("fabric", None), ("iommu", None), ("bar1", None), ("bar1-largest", None),
    ("display", _display), ("acs", _acs_groups), ("ecc", None), ("mig", None), ("confidential", None),
    ("pcie-width", None), ("pcie-generation", None), ("pcie-errors", None), ("nvlinks", None),
    ("container", _container), ("root-forwarding", _forwarding), ("virtual", None),
    ("peers-advertised", _advertised),
)  # fmt: skip
#: The causes with an effect on peers, that effect, and what yields their signs; of equally likely ones, the
#: first comes first. IOMMU groups show ACS less surely than its bridges do. Sources are in docs/p2p.md.
PEER_CAUSES = tuple(
    (cause, cause.peers, own or evidence_of(cause))
    for name, own in _EVIDENCE if (cause := _KNOWN[name]).peers
)  # fmt: skip


#: How verdicts are written in a sentence about a pair.
HOW = {
    _V.HANGS: "hangs", _V.FAILS: "fails", _V.WRONG: "delivers wrong data", _V.SLOW: "is slow",
}  # fmt: skip


@dataclass(frozen=True)
class PeerFindings:
    """What the attempts of a run and its facts say.

    Attributes:
        access: The attempts.
        verdict: Fail if an offered pair does not work, warn if one is slow; not judged if none works.
        bad: The pairs that are broken or slow, the worst first.
        causes: Causes that facts speak for, the likeliest first.
        settings: Environment variables with which programs compute right now: name -> value.
        group: The GPUs that work among each other, if some do not; their indices.
        options: Options that vLLM and SGLang need besides: their own collectives do not read variables.
        defective: GPUs that are likely defective: unusable, or they hang or fail over NVLink without a cause.
        unread: Facts that would decide and cannot be read, with the reason.
        absent: GPUs that are missing, or have fewer peers than others.
        groups: Groups of GPUs, by index, if one has more peers than it can access at once; else none.
    """

    access: PeerAccess
    verdict: Verdict
    bad: dict[Pair, PeerVerdict]
    causes: tuple[Finding, ...]
    settings: dict[str, str]
    group: tuple[int, ...]
    options: tuple[str, ...]
    defective: tuple[str, ...]
    unread: tuple[str, ...]
    absent: tuple[Missing, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def partly_tried(self) -> bool:
        """Whether some pairs were tried and work, and others were not tried."""
        return {PeerVerdict.NOT_TRIED, PeerVerdict.WORKS} <= {*self.access.verdicts.values()}

    @property
    def exports(self) -> list[str]:
        """The settings as lines of a shell."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.settings.items()]

    @property
    def advice(self) -> Advice:
        """What to do now, and what then."""
        steps = self.exports
        steps += [finding.repair[0] for finding in self.causes[:1]]
        steps += [absent.advice.do for absent in self.absent[:1] if not (self.causes or self.defective)]
        steps += [f"let each program use at most {MOST_PEERS + 1} GPUs"] if self.groups else []
        if self.defective:
            gpus = " or ".join(self.defective[:_ENDS]) if len(self.defective) <= _ENDS else "these GPUs"
            steps.append(f"look for Xid errors of {gpus} in the kernel log")
            steps[-1] += f"; reset {gpus}, or restart the node; replace what fails again"
            return Advice("; then: ".join(steps), XID)
        return Advice("; then: ".join(steps) or "try again after a restart of the machine", "wirespeed p2p")

    @property
    def sentence(self) -> str:
        """What the attempts showed, in one sentence: the worst first."""
        gpus = self.access.gpus
        if self.access.unusable:
            return "; ".join(
                f"{gpu} cannot be used any more: {why}" for gpu, why in self.access.unusable.items()
            )
        for verdict in PeerVerdict:
            if pairs := [pair for pair, found in self.bad.items() if found is verdict]:
                deciding = self.access.deciding(pairs[0])
                how = f": {_seen(deciding)}" if deciding else ""
                return f"peer access {HOW[verdict]} for {worded(pairs, gpus)}{how}"
        if self.absent and self.absent[0].verdict is Verdict.FAIL:
            return str(self.absent[0])
        works = sum(verdict is PeerVerdict.WORKS for verdict in self.access.verdicts.values())
        untried = [a for a in self.access.attempts if a.verdict is PeerVerdict.NOT_TRIED]
        if not works and untried:
            return f"peer access was not tried: {untried[0].detail}"
        if not works:
            return "no peer access is offered" if gpus else "fewer than two GPUs"
        verdicts = self.access.verdicts
        lacking = {
            kind: [pair for pair, verdict in verdicts.items() if verdict is kind]
            for kind in (PeerVerdict.NOT_OFFERED, PeerVerdict.NOT_TRIED)
        }
        others = "".join(f"; {kind}: {worded(pairs, gpus)}" for kind, pairs in lacking.items() if pairs)
        most = f", of each GPU for at most {MOST_PEERS} peers at once" if self.groups else ""
        return f"peer access works for {works} of {len(verdicts)} pairs{most}{others}"


def _seen(attempt: Attempt) -> str:
    """What a user would see of an attempt."""
    a, b = attempt.pair
    hangs = attempt.verdict is PeerVerdict.HANGS
    if hangs and attempt.mechanism in (PeerMechanism.FLAG, PeerMechanism.ORDER):
        return f"{b} never sees the flag that {a} wrote"
    if hangs and attempt.mechanism is PeerMechanism.COPY:
        return f"the copy {a} → {b} never ends"
    return told(attempt)


def told(attempt: Attempt) -> str:
    """How an attempt ended, in words: mechanism, stage, wrong words."""
    parts = [attempt.mechanism.about]
    if attempt.wrong:
        kind = "never written" if attempt.stale == attempt.wrong else "other data"
        kind = "right only later" if attempt.late else kind
        parts.append(f"{attempt.wrong} of {attempt.words} words wrong ({kind})")
    if attempt.by:
        parts.append(f"not offered by {attempt.by}")
    parts += filter(None, (attempt.stage, attempt.detail))
    if attempt.latency:
        parts.append(f"round trip {format_time(attempt.latency)}")
    if attempt.rate and attempt.verdict is PeerVerdict.WORKS:
        parts.append(f"{attempt.rate / GB:.1f} GB/s")
    return ", ".join(parts)


def find_peers(document: Document) -> PeerFindings | None:
    """What a run says of peer access; None if it was not tried."""
    access = document.peers
    if access is None:
        return None
    facts, machine, bad = facts_of(document), document.machine, access.bad()
    causes = tuple(_causes(machine, facts, access)) if bad else ()
    broken = [pair for pair, verdict in bad.items() if verdict.is_broken]
    group = tuple(
        machine.gpus[i].index for i, gpu in enumerate(machine.gpus) if gpu.name in access.working_group()
    )
    groups = _groups(machine, access)
    return PeerFindings(
        access,
        _verdict(access, absent := missing(document), is_crowded=bool(groups)),
        bad,
        causes,
        _settings(machine, access, _of_links(machine, access) if not causes else ()),
        group if bad and len(group) < len(machine.gpus) else (),
        ("--disable-custom-all-reduce",) if broken else (),
        _defective(machine, access, is_explained=bool(causes)),
        _unread(machine, facts) if bad else (),
        tuple(lost for lost in absent if lost.verdict.is_bad and lost.part is InventoryPart.GPUS),
        groups,
    )  # fmt: skip


def _groups(machine: Machine, access: PeerAccess) -> tuple[tuple[int, ...], ...]:
    """Groups of neighbours of equal size within the maximum number of peers; none if all GPUs are one."""
    network, peers = Network(machine), Counter[str]()
    for pair, verdict in access.verdicts.items():
        peers[pair[0]] += verdict is not PeerVerdict.NOT_OFFERED and _level(network, pair) > 0
    if max(peers.values(), default=0) <= MOST_PEERS:
        return ()
    gpus = sorted(machine.gpus, key=lambda gpu: (gpu.numa, gpu.index))
    count = -(-len(gpus) // (MOST_PEERS + 1))
    edges = [round(i * len(gpus) / count) for i in range(count + 1)]
    return tuple(tuple(gpu.index for gpu in gpus[a:b]) for a, b in pairwise(edges))


def _verdict(access: PeerAccess, absent: Iterable[Missing], *, is_crowded: bool) -> Verdict:
    """The verdict on all pairs; a GPU that is missing, or has fewer peers than others, is no pass.

    Nor are more peers than a GPU can access at once: a program that uses all GPUs fails.
    """
    lost = [missing.verdict for missing in absent if missing.part is InventoryPart.GPUS]
    if access.verdict.is_broken or access.unusable or Verdict.FAIL in lost:
        return Verdict.FAIL
    verdicts = set(access.verdicts.values())
    if access.verdict is PeerVerdict.SLOW or Verdict.WARN in lost:
        return Verdict.WARN
    if PeerVerdict.WORKS not in verdicts:
        return Verdict.NOT_JUDGED
    return Verdict.PASS if verdicts == {PeerVerdict.WORKS} and not is_crowded else Verdict.WARN


def _causes(machine: Machine, facts: Facts, access: PeerAccess) -> list[Finding]:
    """The causes that explain bad pairs and that facts speak for, the likeliest first."""
    verdicts, bad = access.verdicts, _of_paths(access)
    if not bad:
        return []
    good = [pair for pair, verdict in verdicts.items() if verdict is PeerVerdict.WORKS]
    found: dict[str, Finding] = {}
    network = Network(machine)
    linked = {pair for pair in access.pairs if _level(network, pair) == 0}
    for cause, known, evidence in PEER_CAUSES:
        no_nvlink = cause.slows <= _NO_NVLINK
        concerned = [
            pair for pair, attempts in access.pairs.items()
            if pair in bad and bad[pair] in known.breaks and not (no_nvlink and pair in linked)
            and {a.mechanism for a in attempts if a.verdict is bad[pair]} <= known.mechanisms
        ]  # fmt: skip
        signs = [sign for sign in evidence(machine, facts) if _concerns(sign, concerned)]
        if not signs or cause.name in found:
            continue
        covered = _covered(signs, concerned) / len(bad)
        share = covered - (GOOD_SHARE * _covered(signs, good) / len(good) if good else 0.0)
        texts = dict.fromkeys(sign.text for sign in signs)
        pairs = sorted(concerned)
        places = [end for sign in signs for end in sign.device.split("->")]
        found[cause.name] = Finding(
            cause,
            "",
            "; ".join(list(texts)[:3]) + (f", and {len(texts) - 3} more" if len(texts) > 3 else ""),
            0,
            commands=(at_device(cause.confirm, machine, *places),),
            share=round(share, 2),
            repair=tuple(_repair(cause, machine, facts, pairs)),
        )
    return sorted(found.values(), key=lambda finding: -(finding.share or 0.0))


def _of_paths(access: PeerAccess) -> dict[Pair, PeerVerdict]:
    """The bad pairs whose path may be the cause: not those of which one GPU cannot be used any more."""
    return {
        pair: verdict for pair, verdict in access.bad().items() if len(access.unusable.keys() & {*pair}) != 1
    }


def _concerns(sign: Sign, pairs: Iterable[Pair]) -> bool:
    return any(sign.device in ("", *pair, "->".join(pair)) for pair in pairs)


def _covered(signs: Iterable[Sign], pairs: Iterable[Pair]) -> int:
    """The number of pairs that signs are about."""
    return sum(any(_concerns(sign, [pair]) for sign in signs) for pair in pairs)


def _repair(cause: Cause, machine: Machine, facts: Facts, pairs: Iterable[Pair]) -> Iterator[str]:
    """What to do about a cause: its remedy, and the commands for the bridges of the pairs."""
    yield cause.remedy
    if keys := {"display": _STATIC_BAR1, "peers-advertised": _PATCHED_KEYS}.get(cause.name):
        yield f'options nvidia NVreg_RegistryDwords="{keys}"'
    if cause.name != "acs":
        return
    gpus = dict.fromkeys(end for pair in pairs for end in pair)
    read = [bridge for gpu in gpus for bridge in facts.several(Known.ACS_REDIRECTS, gpu)]
    known = [bridge for gpu in gpus for bridge in facts.several(Known.BRIDGES, gpu)]
    for bridge in dict.fromkeys(read or known):
        yield f"sudo setpci -s {bridge} ECAP_ACS+6.w=0000"


#: Facts that decide between causes -> what reading them requires.
_DECIDING = (Known.ACS_REDIRECTS, Known.IOMMU, Known.BAR1)


def _unread(machine: Machine, facts: Facts) -> tuple[str, ...]:
    """Facts that would decide and could not be read."""
    places = ("", *(gpu.name for gpu in machine.gpus))
    reasons = {
        fact: next((why for place in places if (why := facts.unreadable(fact, place))), "")
        for fact in _DECIDING
        if not any(facts.knows(fact, place) for place in places)
    }
    return tuple(f"{fact}: {why}" for fact, why in reasons.items() if why)


#: Values of NCCL_P2P_LEVEL, the nearest first, by how two GPUs are joined. Source: NCCL's documentation.
_LEVELS = ("NVL", "PIX", "PXB", "PHB", "SYS")


def _level(network: Network, pair: Pair) -> int:
    """The index of the lowest NCCL_P2P_LEVEL that lets NCCL use a pair."""
    try:
        links = [network.links[i] for i in network.route(*pair)]
    except MachineError:
        return len(_LEVELS) - 1
    kinds = {link.kind for link in links}
    if kinds == {LinkKind.NVLINK}:
        return 0
    if LinkKind.SOCKET in kinds:
        return 4
    nodes = {node.name for node in network.machine.numa}
    return 3 if any(link.destination in nodes for link in links) else 1 if len(links) <= 2 else 2


def _of_links(machine: Machine, access: PeerAccess) -> list[Pair]:
    """The pairs that NVLink joins and that hang or fail within one process: their hardware is broken."""
    network = Network(machine)
    return [
        pair
        for pair, verdict in access.bad().items()
        if verdict in (_V.HANGS, _V.FAILS)
        and _level(network, pair) == 0
        and not {a.mechanism for a in access.pairs[pair] if a.verdict is verdict} <= _BETWEEN
    ]


def _defective(machine: Machine, access: PeerAccess, *, is_explained: bool) -> tuple[str, ...]:
    """The GPUs that are likely defective; of broken pairs without a cause, the GPU that all have, if any."""
    broken = [] if access.unusable or is_explained else _of_links(machine, access)
    common = [gpu for gpu in access.gpus if broken and all(gpu in pair for pair in broken)]
    ends = [gpu for gpu in access.gpus if any(gpu in pair for pair in broken)]
    return (*access.unusable, *(common or ends))


def _settings(machine: Machine, access: PeerAccess, defective: Collection[Pair]) -> dict[str, str]:
    """The variables with which NCCL does not use what is broken, or slower than the host.

    They help against neither a GPU that cannot be used nor broken hardware of NVLinks.
    """
    avoid = []
    for pair, verdict in _of_paths(access).items():
        bad = {a.mechanism for a in access.pairs[pair] if a.verdict is verdict}
        if pair in defective:
            continue
        if bad == {PeerMechanism.ATOMICS}:  # which NCCL does not use
            continue
        if verdict.is_broken or _is_slower_than_host(access, pair):
            avoid.append((pair, bad))
    if not avoid:
        return {}
    if all(bad == {PeerMechanism.DESCRIPTOR} for _, bad in avoid):
        return {"NCCL_CUMEM_ENABLE": "0"}
    network = Network(machine)
    least = min(_level(network, pair) for pair, _ in avoid)
    good = [pair for pair, verdict in access.verdicts.items() if verdict is PeerVerdict.WORKS]
    if any(_level(network, pair) < least for pair in good):
        return {"NCCL_P2P_LEVEL": _LEVELS[least - 1]}
    return {"NCCL_P2P_DISABLE": "1"}


def _is_slower_than_host(access: PeerAccess, pair: Pair) -> bool:
    rate = next((a.rate for a in access.pairs[pair] if a.rate), None)
    return rate is not None and rate < PEER_OF_HOST * min(access.through_host.get(gpu, 0.0) for gpu in pair)
