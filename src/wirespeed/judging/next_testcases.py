"""The testcases to measure next: those whose predicted values differ most between causes that may explain a
run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..data import efficiencies
from ..data.causes import EFFECTS, Cause, Weight
from ..document import Document
from ..errors import MachineError, WirespeedError
from ..hardware.limits import Allowance, allowances
from ..hardware.link_graph import Network
from ..hardware.topology import Machine
from ..measurement import Measurement
from ..options import TIERS, Tier
from ..testcases.table import Plan, Testcase
from ..thresholds.causes import DEPENDS, DIFFERENT
from .causes import CAUSES, signs_of
from .causes.record import heaviest, speaking
from .causes.run_facts import facts_of
from .omissions import not_run
from .predictions import Hypothesis, Predictions, typical_rates
from .replanned import plan_options

#: Values that differ by this fraction show which of two predictions is true.
_DIFFERENT = math.log(DIFFERENT)
#: Testcases with more measurements take too long.
_MOST_MEASUREMENTS = 1000
#: Factor of the speed by which a cause is suspected to change its links.
_SUSPECTED_FACTOR = 0.5


def distinguishing(document: Document, rivals: Sequence[Hypothesis]) -> Testcase | None:
    """The testcase whose values distinguish a hypothesis from its rivals; None if there is none.

    Testcases of a lower tier come first. Of these, it is the one that distinguishes most rivals, and
    whose values differ most.

    Args:
        document: The run, which lacks the testcase.
        rivals: What explains the values of the run: the hypothesis, then its rivals.
    """
    candidates = _Candidates(document)
    compared = _Compared(candidates, rivals)
    for tier in TIERS:
        best: tuple[tuple[int, float], Testcase | None] = ((0, 0.0), None)
        for case in candidates.of(tier):
            apart = [0.0] * (len(rivals) - 1)
            for differences, _ in compared.of(case):
                apart = list(map(max, apart, differences))
            deciding = [difference for difference in apart if difference >= _DIFFERENT]
            order = (len(deciding), round(min(deciding, default=0.0), 1))
            if order > best[0]:  # the first of nearly equal ones
                best = order, case
        if best[1]:
            return best[1]
    return None


def suspected(document: Document) -> dict[tuple[Cause, str], tuple[Testcase, ...]]:
    """The testcases that would show what facts speak for, by cause and place.

    They are the simplest of the quick tier that depend on each link that the cause would change. If the facts
    show no defect that values can show, there is nothing to start with: the result is empty.

    Args:
        document: Machine, facts and options of a run.
    """
    hypotheses = list(_hypotheses(document))
    defects = {
        (cause.name, hypothesis.place)
        for cause, hypothesis, weight in hypotheses
        if weight in (Weight.DEFECT, Weight.BUSY)
    }
    if not defects:
        return {}
    required: dict[tuple[Cause, str], tuple[Testcase, ...]] = {}
    candidates = _Candidates(document)
    chosen: dict[Testcase, None] = {}
    for cause, hypothesis, _ in hypotheses:
        compared = _Compared(candidates, (hypothesis, Hypothesis(document.machine)))
        kept = set(hypothesis.machine.links)
        changed = {i for i, link in enumerate(document.machine.links) if link not in kept}
        cases = []
        for case in (*chosen, *(case for case in candidates.of("quick") if case not in chosen)):
            if not changed:
                break
            shown = {
                link
                for (difference,), allowance in compared.of(case)
                if difference >= _DIFFERENT
                for link, taken, part in allowance.links
                if taken * part >= DEPENDS
            }
            if changed & shown:
                changed -= shown
                cases.append(case)
        if cases:
            required[cause, hypothesis.place] = tuple(cases)
            chosen |= dict.fromkeys(cases)
    return required if any((cause.name, place) in defects for cause, place in required) else {}


def _hypotheses(document: Document) -> Iterator[tuple[Cause, Hypothesis, Weight]]:
    """Yield the changed machine and the weight of each cause that facts speak for, at each place."""
    machine, facts = document.machine, facts_of(document)
    hosts = {of_host.host for of_host in facts.of_each_host}
    for cause in CAUSES:
        effect = EFFECTS.get(cause.name)
        signs = list(signs_of(cause, machine, facts)) if document.facts else []
        for place in effect.places(machine) if effect and signs else ():
            assert effect is not None
            if about := speaking(signs, machine, place, hosts, of_all=True):
                changed = effect.apply(machine, place, _SUSPECTED_FACTOR)
                hypothesis = Hypothesis(changed, place, cause, effect, factor=_SUSPECTED_FACTOR)
                yield cause, hypothesis, heaviest(about, cause)


class _Candidates:
    """The testcases that a run lacks, planned for its machine."""

    def __init__(self, document: Document) -> None:
        self._document, self._options = document, plan_options(document)
        self._measurements: dict[str, tuple[Measurement, ...]] = {}  # kept: predictions know them by identity
        self.machine = document.machine
        self.network = Network(document.machine)
        self.good = Predictions(self.network, typical_rates(document.machine))

    def of(self, tier: Tier) -> list[Testcase]:
        """Those of a tier, the simplest first: those with the fewest transfers at once."""
        cases = not_run(self._document, tier)
        return sorted(cases, key=lambda case: max((len(m.works) for m in self.measurements(case)), default=0))

    def measurements(self, case: Testcase) -> tuple[Measurement, ...]:
        """The Measurements of a testcase that links limit; none if there are too many."""
        if case.name not in self._measurements:
            plan = Plan()
            with suppress(WirespeedError):  # it cannot be measured on this machine
                plan = case.plan(self.machine, self._options)
            self._measurements[case.name] = tuple(
                measurement
                for whole in (plan.measurements if len(plan.measurements) <= _MOST_MEASUREMENTS else ())
                for measurement in (whole.separate() if whole.independent else (whole,))
                if measurement.transfers or measurement.collective
            )
        return self._measurements[case.name]


class _Compared:
    """Predictions of the values of testcases on several changed machines."""

    def __init__(self, candidates: _Candidates, hypotheses: Sequence[Hypothesis]) -> None:
        self._candidates, good = candidates, candidates.good
        ends = _ends(candidates.machine)
        #: Of each machine, and whether only its collectives differ.
        self._predictions: list[tuple[Predictions, bool]] = []
        for hypothesis in hypotheses:
            routes = good.routes if _ends(hypothesis.machine) == ends else None
            predictions = Predictions(Network(hypothesis.machine), good.rates, routes)
            self._predictions.append((predictions, bool(hypothesis.effect and hypothesis.effect.collectives)))
        #: Links whose speed differs between the machines; None if routes differ, too.
        self._differing: frozenset[int] | None = None
        if all(_ends(hypothesis.machine) == ends for hypothesis in hypotheses):
            speeds = ([link.capacity for link in hypothesis.machine.links] for hypothesis in hypotheses)
            self._differing = frozenset(
                i for i, of_link in enumerate(zip(*speeds, strict=True)) if len(set(of_link)) > 1
            )

    def of(self, case: Testcase) -> Iterator[tuple[list[float], Allowance]]:
        """Yield how far the prediction of the first hypothesis is from the others, for each judged cell.

        The distance is the difference of the logarithms.
        """
        good = self._candidates.good
        for measurement in self._candidates.measurements(case):
            route, collective = good.route(measurement), measurement.collective
            if route is None or (
                self._differing is not None
                and not collective
                and all(self._differing.isdisjoint(demand.weights) for demand in route)
            ):
                continue
            try:
                values = [
                    (good if collectives and not collective else predictions).of(measurement)
                    for predictions, collectives in self._predictions
                ]
            except MachineError:  # no path is left
                continue
            distances = [
                [abs(math.log(mine / value)) if mine and value else 0.0 for value in others]
                for mine, *others in zip(*values, strict=True)
            ]
            if max(map(max, distances), default=0.0) < _DIFFERENT:
                continue
            allowed = allowances(self._candidates.network, measurement, efficiencies())
            for differences, allowance in zip(distances, allowed, strict=True):
                if allowance.expected:
                    yield differences, allowance


def _ends(machine: Machine) -> list[tuple[str, str]]:
    """The ends of the links, on which the routes depend."""
    return [link.ends for link in machine.links]
