"""The verdict on a qualification of nodes, and what to say of it first."""

from __future__ import annotations

from ..document import Document
from ..qualification import OF_NODE, PartKind, Qualification, part_name
from .advice import Advice
from .verdict import Verdict

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
        return Verdict.UNKNOWN
    return Verdict.WARN if qualification.culprits or qualification.doubts else Verdict.PASS


def first_words(document: Document, qualification: Qualification) -> tuple[str, str, Advice]:
    """The sentence, the extent and the advice of a qualification."""
    nodes, culprits = qualification.nodes, qualification.culprits
    slow = [part_name(culprit, nodes) for culprit in culprits[:_NAMED]]
    gone = [node.name for node in nodes if node.missing]
    are = "is" if len(culprits) == 1 else "are"
    what = "lossy" if all(culprit.kind is PartKind.LOSSY for culprit in culprits) else "slow"
    said = [f"{_listed(slow, len(culprits))} {are} {what}"] if slow else []
    said += (
        [f"{_listed(gone[:_NAMED], len(gone))} {'is' if len(gone) == 1 else 'are'} missing"] if gone else []
    )
    if not said and document.interrupted:
        said = [f"the run was interrupted: {document.interrupted}"]
    elif not said and not qualification.compared:
        said = [
            "paths vary too much" if qualification.has_peers
            else "the directions of the only path are equally fast; a third node would show if all are slow"
            if qualification.is_one_pair
            else "too few nodes could be compared"
        ]  # fmt: skip
    elif not said:
        said = [", but ".join(("no node, NIC, cable or switch is slow", *qualification.doubts))]
    return "; ".join(said), qualification.usable, _advice(qualification)


def _advice(qualification: Qualification) -> Advice:
    out = list(qualification.excluded)
    if out:
        return Advice(f"leave out {_listed(out[:_NAMED], len(out))}")
    if any(culprit.kind is PartKind.LOSSY for culprit in qualification.culprits):
        return Advice("check these cables and the counters of their ports", "ip -s link")
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
