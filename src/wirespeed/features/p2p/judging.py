"""What attempts of peer access say of a run: of their own values, of its paths, and of wrong data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...document import Document
from ...judging.advice import Advice
from ...judging.check import Check
from ...judging.inventory import Missing
from ...judging.localise import WrongData
from ...judging.verdict import Judgement, Verdict
from ...peer_access import PEER_ACCESS, PeerVerdict
from ...results.inventory import InventoryPart
from ...units import format_time, many
from .causes import HOW, find_peers, told


def judgement(judged: Judgement, document: Document) -> Judgement:
    """The judgement on a value of an attempt, which is that on its pair; others as they are."""
    access, pair = document.peers, (judged.key.row, judged.key.column)
    if access is None or judged.key.testcase != PEER_ACCESS or judged.value is None:
        return judged
    if pair not in access.verdicts or judged.verdict is not Verdict.NOT_JUDGED:  # a latency with a range
        return judged
    verdict = access.verdicts[pair]
    if verdict is PeerVerdict.WORKS:
        return replace(judged, verdict=Verdict.PASS, why="")
    deciding = access.deciding(pair)
    why = f"peer access {HOW.get(verdict, verdict)}: {told(deciding)}" if deciding else ""
    return replace(judged, verdict=Verdict.WARN if verdict is PeerVerdict.SLOW else Verdict.FAIL, why=why)


def first_words(document: Document, check: Check) -> tuple[str, str] | None:
    """Sentence and extent of a run that only tried peer access."""
    found = find_peers(document)
    if found is None or not all(result.name == PEER_ACCESS for result in document.testcases):
        return None
    return found.sentence, f"{many(len(found.access.pairs), 'pair')} in {format_time(found.access.seconds)}"


def advice(document: Document, wrong: WrongData) -> Advice | None:
    """What to do about wrong data between GPUs; None if attempts do not explain it."""
    peers = find_peers(document) if wrong.between_gpus else None
    return peers.advice if peers and peers.bad and (peers.causes or wrong.by_pcie) else None


def problems(document: Document, wrong: Iterable[WrongData]) -> list[Missing]:
    """What does not work although the driver offers it, as ``check`` reports it.

    Args:
        document: The run.
        wrong: Paths that delivered wrong data in other testcases, which say more of it.
    """
    findings = find_peers(document)
    found = findings and (
        findings.bad or findings.access.unusable or findings.partly_tried or findings.groups
    )
    if findings is None or not found:
        return []  # what is missing is another item
    measured = {path[:2] for found in wrong if set(found.testcases) != {PEER_ACCESS} for path in found.paths}
    if set(findings.bad.values()) == {PeerVerdict.WRONG} and findings.bad.keys() <= measured:
        return []
    ends = (end for pair in findings.bad for end in pair)
    where = findings.defective or tuple(dict.fromkeys(ends))
    cause = f"; likely cause: {findings.causes[0].cause.title}" if findings.causes else ""
    text = f"{findings.sentence}{cause}"
    return [Missing(InventoryPart.GPUS, findings.verdict, text, where, advice=findings.advice)]
