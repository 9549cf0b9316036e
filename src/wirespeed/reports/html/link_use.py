"""The best measured rate over each link of a machine, and its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...hardware.topology import Link, LinkKind, Machine
from ...judging.check import Check
from ...judging.judged import Judged
from ...judging.localise import suspects_of_links
from ...judging.verdict import Judgement, Verdict, worst
from ...measurement import Unit
from ...statistics import grouped

#: A cell measures a link if only this link bounds it: their limits differ by at most this fraction.
_SAME = 0.01
_DEPENDS = 0.98
#: Of the links that a cell depends on, only those loaded nearly as much as the busiest one count:
#: the total of all_to_one uses one link fully, and each peer's link only in part.
_BUSY = 0.98


@dataclass(frozen=True)
class Use:
    """The best measured rate over a link.

    Attributes:
        link: The link.
        measured: The rate, in B/s; None if no cell measures the link.
        verdict: The worst verdict on it.
        speed: The rate relative to the typical value of its expected range; None if no range is known.
        index: Index of the link in the machine.
    """

    link: Link
    measured: float | None
    verdict: Verdict
    speed: float | None = None
    index: int = 0

    @property
    def ends(self) -> Iterable[str]:
        """The vertices that the link joins, each once."""
        return dict.fromkeys((self.link.source, self.link.destination))

    @property
    def share(self) -> float | None:
        """Measured rate over the link's limit."""
        return self.measured / self.link.capacity if self.measured and self.link.capacity else None


def uses(judged: Judged) -> list[Use]:
    """For each link the best rate of the cells that it bounds.

    The best cell counts because the link is at least that fast. The verdict of a link is the worst of that
    cell's verdict, unless it names another culprit, and the verdicts of cells that name the link as one.

    Returns:
        One for each link of the machine, in order.
    """
    machine = judged.document.machine
    best: dict[int, tuple[float, Judgement | None]] = {}
    for place in judged.cells:
        value, limit = place.cell.value, place.cell.limit
        if value is None or place.unit is not Unit.RATE:
            continue
        deciding = {index: load for index, load, part in place.cell.links if part >= _DEPENDS}
        busiest = max(deciding.values(), default=0.0)
        for index, load in deciding.items():
            if load < _BUSY * busiest:
                continue
            times = _times(machine.links[index], limit, alone=len(deciding) == 1)
            if times and (index not in best or value * times > best[index][0]):
                best[index] = value * times, judged.judgements.get(place.key)
    blamed = _blamed(machine, judged.check)
    used = []
    for i, link in enumerate(machine.links):
        value, judgement = best.get(i, (None, None))
        if judgement and judgement.culprit and i not in blamed:
            ends = {end for suspect in judgement.culprit.suspects for end in suspect.ends}
            if ends.isdisjoint((link.source, link.destination)):
                judgement = None  # something else made the value low
        verdict = judgement.verdict if judgement else Verdict.NOT_JUDGED
        verdict = worst((verdict, *blamed.get(i, ())))
        normal = judgement.normal if judgement else None
        speed = (judgement.value or 0.0) / normal if judgement and normal else None
        used.append(Use(link, value, verdict, speed, i))
    return used


def _times(link: Link, limit: float | None, *, alone: bool) -> int:
    """How often the counted bytes of a cell cross a link; 0 if the link does not bound the cell.

    A copy within one memory counts its bytes once, but both reads and writes them there.
    """
    if link.capacity is None:
        return int(alone)
    for times in (1, 2) if alone and link.kind is LinkKind.MEMORY else (1,):
        if limit is not None and abs(limit * times / link.capacity - 1) <= _SAME:
            return times
    return 0


def _blamed(machine: Machine, check: Check) -> dict[int, list[Verdict]]:
    """The links that are culprits, with the verdicts of the cells that they explain."""
    of_links = enumerate(suspects_of_links(machine))
    links = grouped((suspect, i) for i, suspects in of_links for suspect in suspects)
    return grouped(
        (i, judgement.verdict)
        for judgement in check.judgements
        for suspect in (judgement.culprit.suspects if judgement.culprit else ())
        for i in links.get(suspect, ())
    )
