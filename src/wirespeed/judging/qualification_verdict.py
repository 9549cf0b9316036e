"""The verdict on a qualification of nodes, and what to say of it first."""

from __future__ import annotations

import shlex

from ..document import Document
from ..hardware.facts import Known
from ..qualification import OF_NODE, TCP, PartKind, Qualification, SlowPart, part_name
from .advice import AT, Advice
from .suspects import SuspectKind
from .verdict import Verdict

#: What to do if all rails of two nodes are slow, and no fact of them explains it. ConnectX-7 NICs of DGX
#: Sparks were seen at 13 of 200 Gbit/s although all links looked healthy (dgx-spark-playbooks, pull request
#: 108).
UNEXPLAINED = Advice(
    "measure the NICs without wirespeed; if they are as slow, switch both nodes off and on, with their power "
    "supplies",
    "ib_write_bw -q 8",
)
#: The same over TCP; ``{interface}``: network interface of a node.
_OVER_TCP = Advice(
    "measure between these addresses without wirespeed (iperf3); compare the routes, and speed and errors of "
    "the interfaces {interfaces} and of their switch ports",
    "ip route get ADDRESS; ethtool {interface}; ip -s link show {interface}",
)
#: Most slow parts, and most nodes, that a sentence names.
_NAMED = 3


def verdict_of(qualification: Qualification, interrupted: str = "") -> Verdict:
    """Whether the nodes are as they should be: fail, not judged, interrupted, warn or pass.

    Args:
        qualification: What was found.
        interrupted: Why the run ended early; empty if it did not.
    """
    if qualification.fails:
        return Verdict.FAIL
    if interrupted:
        return Verdict.INTERRUPTED
    if not qualification.compared:
        return Verdict.NOT_JUDGED
    return Verdict.WARN if qualification.culprits or qualification.doubts else Verdict.PASS


def first_words(document: Document, qualification: Qualification) -> tuple[str, str, Advice]:
    """The sentence, the extent and the advice of a qualification."""
    nodes, culprits = qualification.nodes, qualification.culprits
    slow = [part_name(culprit, nodes) for culprit in culprits[:_NAMED]]
    gone = [node.name for node in nodes if node.missing]
    are = "is" if len(culprits) == 1 else "are"
    what = "lossy" if all(culprit.kind is PartKind.LOSSY for culprit in culprits) else "slow"
    said = [f"{_listed(slow, len(culprits))} {are} {what}"] if slow else []
    if gone:
        said.append(f"{_listed(gone[:_NAMED], len(gone))} {'is' if len(gone) == 1 else 'are'} missing")
    if not said and document.interrupted:
        said = [f"the run ended early: {document.interrupted}"]
    elif not said and not qualification.compared:
        said = [
            "paths vary too much" if qualification.varies
            else "the directions of the only path are equally fast; what the NICs carry is unknown (--nics)"
            if qualification.is_one_pair and qualification.threshold
            else "too few nodes could be compared"
        ]  # fmt: skip
    elif not said:
        said = [", but ".join(("no node, NIC, cable or switch is slow", *qualification.doubts))]
    return "; ".join(said), qualification.usable, _advice(document, qualification)


#: Commands that show the errors of RDMA devices, and of network interfaces.
_RDMA, _INTERFACES = "rdma statistic", "ip -s link"
#: Kind of a slow part -> what to do with it, and the command that shows it on its node; ``{rail}``: index.
_REMEDIES = {
    PartKind.NODE: Advice("check the NICs, firmware and CPU load of the node", _RDMA),
    PartKind.GPU: Advice(
        "check clocks, ECC and throttle reasons of the GPU",
        "nvidia-smi -q -i {rail} -d CLOCK,ECC,PERFORMANCE",
    ),
    PartKind.HOST_LINK: Advice(
        "check slot and riser, width and generation",
        "nvidia-smi -i {rail} --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv",
    ),
    PartKind.MEMORY: AT[SuspectKind.HOST_MEMORY],
    PartKind.NIC: Advice("check cable, switch port and error counters of the NIC", _RDMA),
    PartKind.CABLE: Advice("reseat or replace the cable; check both of its ports", _RDMA),
    PartKind.LOSSY: Advice("reseat or replace the cable; check the counters of its ports", _INTERFACES),
    PartKind.LEAF: Advice("check the switch: its temperature, and the errors of its ports"),
    PartKind.TRUNK: Advice("check the uplinks of the switch: how many are up, and their errors"),
    PartKind.SPINE: Advice("check the spine switches, and how routes spread over them"),
    PartKind.PATH: Advice("measure both nodes with a third one, which shows which end is slow"),
    PartKind.ALIKE: Advice("look for what these nodes share: driver, firmware, settings, BIOS, switches"),
    PartKind.BETWEEN: Advice("check the links between the switches of these groups"),
}


def is_over_tcp(document: Document, qualification: Qualification) -> bool:
    """Whether network interfaces carried the bytes between nodes, also for a library."""
    return qualification.transport == TCP or any(f.name == Known.INTERFACE_KIND for f in document.facts)


def remedy_of(culprit: SlowPart, *, over_tcp: bool) -> Advice:
    """What to do with a slow part, and a command for its node that shows it; empty for switches and paths."""
    advice = _REMEDIES[culprit.kind]
    if over_tcp and advice.command == _RDMA:
        return Advice(advice.do, _INTERFACES)
    return Advice(advice.do, advice.command.format(rail=culprit.rail))


def unexplained(document: Document, qualification: Qualification) -> Advice:
    """What to do if no fact of two nodes explains their slow rails: all of them, or some of several."""
    slow = {culprit.rail for culprit in qualification.culprits if culprit.limited}
    every = -1 in slow or len(slow) >= qualification.nodes[0].rails
    if is_over_tcp(document, qualification):
        used = [f"{qualification.nodes[limit.node].name}: {', '.join(limit.devices)}"
                for limit in qualification.limits if limit.devices]  # fmt: skip
        first = next((limit.devices[0] for limit in qualification.limits if limit.devices), "INTERFACE")
        listed = f"({'; '.join(used[:_NAMED])})" if used else "of both nodes"
        do, command = (
            text.format(interfaces=listed, interface=first) for text in (_OVER_TCP.do, _OVER_TCP.command)
        )
        return Advice(do, command)
    return UNEXPLAINED if every else _REMEDIES[PartKind.NIC]


def next_run(document: Document, qualification: Qualification) -> str:
    """The command that measures again with other partners; start it on the nodes as before."""
    cluster = document.options.get("machine")
    machine = f" --machine {shlex.quote(cluster)}" if isinstance(cluster, str) else ""
    return f"wirespeed qualify{machine} --seed {qualification.seed + 1}"


def _advice(document: Document, qualification: Qualification) -> Advice:
    out = list(qualification.excluded)
    if out:
        return Advice(f"drain {_listed(out[:_NAMED], len(out))}")
    if any(culprit.kind is PartKind.LOSSY for culprit in qualification.culprits):
        return Advice("check these cables and the counters of their ports", _INTERFACES)
    if any(culprit.kind is PartKind.ALIKE for culprit in qualification.culprits):
        return _REMEDIES[PartKind.ALIKE]
    if any(culprit.limited for culprit in qualification.culprits):
        return unexplained(document, qualification)
    if qualification.in_doubt:
        return Advice("measure these nodes with a third one, which shows which end of the path is slow")
    if any(culprit.kind not in OF_NODE for culprit in qualification.culprits):
        return Advice("check these switches and paths: no node by itself is slow")
    return Advice()


def _listed(names: list[str], count: int) -> str:
    """The first names, and how many follow: ``a, b and 3 more``."""
    if count > len(names):
        return f"{', '.join(names)} and {count - len(names)} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
