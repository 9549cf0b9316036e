"""The cells of a judged run whose values can be predicted, with their ratios to normal."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ..document import Document
from ..model import Measurement
from ..results.cells import Key, placed
from .expectations import planned
from .judgement import Judgement
from .verdicts import Check, Verdict

#: Minimum number of comparable cells that say what is normal.
_MIN_PEERS = 4


#: Lower ratios to normal count as this one, because 0 has no logarithm.
_SLOWEST = 1e-6


@dataclass(frozen=True)
class Seen:
    """A measured cell.

    Parameters
    ----------
    key : Key
        Location of the cell.
    group : int
        Equal for cells that are comparable.
    typical, ratio : float
        Value over the typical value of the expected range, and over that of the better comparable cells, if
        these are as expected.
    slow : bool
        Whether it is slow.
    links : tuple[tuple[int, float, float], ...]
        Links of the cell, as in ``Allowance``.
    measurement : Measurement
        How it was measured.
    place : int
        Index of its Place.
    """

    key: Key
    group: int
    typical: float
    ratio: float
    slow: bool
    links: tuple[tuple[int, float, float], ...]
    measurement: Measurement
    place: int


def slow_keys(check: Check) -> frozenset[Key]:
    """Return the slow cells of a judged run."""
    return frozenset(
        one.key for one in check.judgements
        if one.verdict in (Verdict.FAIL, Verdict.WARN) and one.value is not None
    )  # fmt: skip


def seen_cells(document: Document, check: Check) -> list[Seen]:
    """Return the cells whose value can be predicted, with their ratios to normal.

    Normal is what the better quarter of comparable cells reaches, if that is as expected; else the typical
    value of the expected range.
    """
    slow = slow_keys(check)
    judgements: dict[Key, Judgement] = {one.key: one for one in check.judgements}
    plans, machine = planned(document), document.machine
    groups: dict[object, list[tuple[Key, float, float, float, tuple[tuple[int, float, float], ...],
                                    Measurement, int]]] = {}  # fmt: skip
    for one in placed(document):
        cell, key = one.cell, one.key
        judgement = judgements.get(key)
        where = plans.get((key.testcase, key.table, key.row, key.column))
        if judgement is None or where is None or not cell.value or not cell.limit or not judgement.normal:
            continue
        if judgement.verdict is Verdict.BUSY or not judgement.least:
            continue
        kinds = tuple(sorted({machine.links[link].kind for link, *_ in cell.links}))
        group = (key.testcase, key.table, kinds, f"{cell.limit:.3g}", f"{judgement.normal:.3g}")
        groups.setdefault(group, []).append(
            (key, cell.value / cell.limit, judgement.normal / cell.limit, judgement.least / cell.limit,
             cell.links, *where)
        )  # fmt: skip
    found = []
    for number, members in enumerate(groups.values()):
        best = 0.0
        if len(members) >= _MIN_PEERS:
            best = statistics.quantiles((one[1] for one in members), n=4, method="inclusive")[2]
        for key, value, normal, least, links, measurement, place in members:
            good = best if best >= least else normal
            typical, ratio = (max(value / usual, _SLOWEST) for usual in (normal, good))
            found.append(Seen(key, number, typical, ratio, key in slow, links, measurement, place))
    return found
