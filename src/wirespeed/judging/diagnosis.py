"""Which causes the facts of a run speak for, and which slow cells each of them may explain."""

from __future__ import annotations

from dataclasses import dataclass

from ..document import Document
from ..facts import Fact, Facts
from ..results.cells import Key, placed
from ..topology import LinkKind
from .causes import CAUSES, Cause, Weight
from .verdicts import Check, Verdict

#: A cell depends on a link that its transfers load by this fraction of the capacity.
_LOADED = 0.2


@dataclass(frozen=True)
class Finding:
    """A cause that the facts speak for.

    Parameters
    ----------
    cause : Cause
        The cause.
    device : str
        Device that it applies to; empty for the host.
    evidence : str
        What was found.
    cells : int
        Number of slow cells that it may explain.
    """

    cause: Cause
    device: str
    evidence: str
    cells: int


@dataclass(frozen=True)
class Diagnosis:
    """What may explain the slow cells of a run.

    Parameters
    ----------
    findings : tuple[Finding, ...]
        The causes: those that may explain slow cells, the one that explains most first, then defects that
        explain none.
    slow : int
        Number of slow cells.
    unexplained : int
        Number of slow cells that no finding may explain.
    unreadable : tuple[Fact, ...]
        Facts that could not be read.
    has_facts : bool
        Whether the run has facts at all; those of older versions have none.
    """

    findings: tuple[Finding, ...]
    slow: int
    unexplained: int
    unreadable: tuple[Fact, ...]
    has_facts: bool


def diagnose(document: Document, check: Check | None = None) -> Diagnosis:
    """Return the causes that the facts of a run speak for.

    A cause may explain a cell if it slows down links of a kind that the cell loads, at the device that it
    applies to. That is necessary, not sufficient: a finding is a suspicion, with what was found.

    Parameters
    ----------
    document : Document
        The run.
    check : Check or None
        The judgement of its cells; None if nothing was measured.
    """
    facts = Facts(document.facts)
    slow = _slow(document, check) if check else []
    found = []
    explained: set[int] = set()
    for cause in CAUSES:
        for device, evidence in cause.evidence(document.machine, facts) if document.facts else ():
            cells = {i for i, one in enumerate(slow) if one.fits(cause, device)}
            if cells or cause.weight is Weight.DEFECT:
                found.append(Finding(cause, device, evidence, len(cells)))
                explained |= cells
    found.sort(key=lambda one: -one.cells)  # stable: the order of the causes decides between equals
    unreadable = tuple(fact for fact in facts if fact.value is None)
    return Diagnosis(tuple(found), len(slow), len(slow) - len(explained), unreadable, bool(document.facts))


@dataclass(frozen=True)
class _Slow:
    """A slow cell: the kinds and ends of the links that it loads."""

    links: frozenset[tuple[LinkKind, str]]
    collective: bool

    def fits(self, cause: Cause, device: str) -> bool:
        """Return whether a cause at a device may slow it down."""
        if cause.collectives and not self.collective:
            return False
        return any(kind in cause.slows and device in ("", end) for kind, end in self.links)


def _slow(document: Document, check: Check) -> list[_Slow]:
    low: set[Key] = {
        judgement.key
        for judgement in check.judgements
        if judgement.verdict in (Verdict.FAIL, Verdict.WARN) and judgement.value is not None
    }
    links = document.machine.links
    return [
        _Slow(
            frozenset(
                (links[i].kind, end.rpartition("/")[2])
                for i, taken, _ in one.cell.links
                if taken >= _LOADED
                for end in (links[i].source, links[i].destination)
            ),
            one.result.collective is not None,
        )
        for one in placed(document)
        if one.key in low
    ]
