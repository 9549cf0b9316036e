"""What is normal among comparable cells, and the values that Measurements would have on a changed machine.

From predictions follows which testcases to measure next: those whose values would show what is the case.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..data import efficiencies
from ..document import Document
from ..errors import MachineError, WirespeedError
from ..features import functions
from ..hardware.effects import EFFECTS, Effect
from ..hardware.limits import Allowance, allowances, capped, demands, predicted, ring
from ..hardware.network import Demand, Network, fair_shares
from ..hardware.topology import EngineRate, Machine
from ..measurement import Measurement
from ..options import TIERS, Tier
from ..results.cells import Key, Placed, placed
from ..testcases.table import Plan, Testcase
from .causes import CAUSES
from .causes.record import Cause, Weight, heaviest, speaking
from .causes.run_facts import facts_of
from .omissions import not_run, plan_options, planned
from .verdict import Judgement, Verdict

#: Fewer cells do not say what is normal.
_FEWEST = 4


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return a quantile of sorted values, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    i = int(position)
    return ordered[i] + (position - i) * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])


def normal_of(ordered: Sequence[float]) -> float | None:
    """Return what the better quarter of some sorted values reaches; None if they are too few.

    This is normal as long as at most three quarters of them are slow.
    """
    return quantile(ordered, 0.75) if len(ordered) >= _FEWEST else None


class ComparableCells:
    """Which cells of a run are comparable."""

    def __init__(self, machine: Machine) -> None:
        self._kind_of = [link.kind for link in machine.links]
        self._kinds: dict[tuple[int, ...], str] = {}  # many cells share their links and bounds
        self._bounds: dict[tuple[float | None, float], str] = {}

    def group(self, measured: Placed, normal: float) -> Hashable:
        """Return what comparable cells have in common: testcase, kinds of links, limit and typical value.

        Args:
            measured: The cell.
            normal: Its typical value.
        """
        key, cell, _, result = measured
        used = tuple([link for link, _, _ in cell.links])
        if used not in self._kinds:
            self._kinds[used] = " ".join(sorted({self._kind_of[link] for link in used}))
        bound = cell.limit, normal
        if bound not in self._bounds:
            self._bounds[bound] = f"{cell.limit:.3g} {normal:.3g}"
        size = key.column if result.collective else ""  # the rate of a collective grows with it
        for alike in functions("judging", "alike"):
            if (same := alike(key.testcase, key.table)) is None:
                continue
            return key.testcase, same, key.row, key.column, self._kinds[used], self._bounds[bound]
        return key.testcase, key.table, size, self._kinds[used], self._bounds[bound]


#: Lower ratios to normal, measured or predicted, count as this one, because 0 has no logarithm.
SLOWEST = 1e-6


@dataclass(frozen=True)
class Seen:
    """A measured cell.

    Attributes:
        key: Location of the cell.
        group: Equal for cells that are comparable.
        typical, ratio: Value over the typical value of the expected range, and over that of the better
            comparable cells, if these are as expected.
        slow: Whether it is slow.
        links: Links of the cell, as in ``Allowance``.
        measurement: How it was measured.
        place: Index of its Place.
    """

    key: Key
    group: int
    typical: float
    ratio: float
    slow: bool
    links: tuple[tuple[int, float, float], ...]
    measurement: Measurement
    place: int


def slow_keys(judgements: Iterable[Judgement]) -> frozenset[Key]:
    """Cells whose value is worse than expected."""
    return frozenset(
        judgement.key
        for judgement in judgements
        if judgement.verdict.is_worse and judgement.value is not None and not judgement.is_above
    )


def seen_cells(document: Document, judged: Sequence[Judgement]) -> list[Seen]:
    """Return the cells whose value can be predicted, with their ratios to normal.

    Normal is what the better quarter of comparable cells reaches, if that is as expected; else the typical
    value of the expected range.
    """
    slow, plans, peers = slow_keys(judged), planned(document), ComparableCells(document.machine)
    judgements = {judgement.key: judgement for judgement in judged}
    groups: dict[object, list[tuple[Placed, tuple[float, float, float]]]] = {}
    for measured in placed(document):
        cell, judgement = measured.cell, judgements.get(measured.key)
        if judgement is None or judgement.verdict is Verdict.BUSY:
            continue
        value, limit, normal, least = cell.value, cell.limit, judgement.normal, judgement.least
        if value and limit and normal and least and measured.key._replace(bytes=0) in plans:
            members = groups.setdefault(peers.group(measured, normal), [])
            members.append((measured, (value / limit, normal / limit, least / limit)))
    seen = []
    for number, members in enumerate(groups.values()):
        best = normal_of(sorted(reached for _, (reached, _, _) in members)) or 0.0
        for (key, cell, _, _), (reached, normal, least) in members:
            good = best if best >= least else normal
            typical, ratio = (max(reached / usual, SLOWEST) for usual in (normal, good))
            where = plans[key._replace(bytes=0)]
            seen.append(Seen(key, number, typical, ratio, key in slow, cell.links, *where))
    return seen


#: What the transfers of each Measurement take of the links, by the identity of the Measurement.
Routes = dict[int, list[Demand] | None]


@dataclass(frozen=True)
class Hypothesis:
    """A changed machine.

    Attributes:
        machine: The machine as it would behave.
        place: Device or switch of the cause; empty for the whole machine, and without a known cause.
        cause: What would have changed it; None for a slow link or device without a known cause.
        effect: Effect of the cause.
        amount, factor: Amount of the effect, and factor of the speed of its links.
    """

    machine: Machine
    place: str = ""
    cause: Cause | None = None
    effect: Effect | None = None
    amount: float = 0.0
    factor: float = 1.0


def typical_rates(machine: Machine) -> Sequence[EngineRate]:
    """Return the rates that engines typically reach on a machine."""
    return capped(efficiencies()[-1], efficiencies()[-1], machine)


class Predictions:
    """Values of Measurements on one machine.

    Attributes:
        network: Links of the machine.
        rates: What engines reach.
        routes: Routes of a machine with other speeds of the same links, to which new ones are added; None:
            none yet.
    """

    def __init__(self, network: Network, rates: Sequence[EngineRate], routes: Routes | None = None) -> None:
        self.network, self.rates = network, rates
        self.routes: Routes = {} if routes is None else routes
        self._values: dict[int, list[float | None]] = {}

    def of(self, measurement: Measurement) -> list[float | None]:
        """Return the value of each Place of a Measurement in B/s; None if unknown.

        The Measurement is recognised by its identity: keep it.
        """
        key = id(measurement)
        if key not in self._values:
            self._values[key] = self._predicted(measurement)
        return self._values[key]

    def route(self, measurement: Measurement) -> list[Demand] | None:
        """Return what each transfer takes of the links; None if a path is unknown."""
        key, run = id(measurement), measurement.collective
        if key not in self.routes:
            whole = Measurement(ring(run.members), ()) if run else measurement
            self.routes[key] = demands(self.network, whole, self.rates)
        return self.routes[key]

    def _predicted(self, measurement: Measurement) -> list[float | None]:
        needed = self.route(measurement)
        if not needed:  # an unknown path, or members without one
            return [None] * len(measurement.places)
        if measurement.collective:
            rate = min(fair_shares(needed, self.network.capacities()))
            return [rate if math.isfinite(rate) else None] * len(measurement.places)
        return predicted(self.network, measurement, needed)


#: Values that differ by this fraction show which of two predictions is true.
_DIFFERENT = math.log(1.1)
#: Testcases with more measurements take too long.
_MOST_MEASUREMENTS = 1000
#: A value depends on a link that its transfers load by this fraction.
_DEPENDS = 0.5
#: Factor of the speed by which a cause is suspected to change its links.
_SUSPECTED_FACTOR = 0.5


def distinguishing(document: Document, rivals: Sequence[Hypothesis]) -> Testcase | None:
    """Return the testcase whose values distinguish a hypothesis from its rivals; None if there is none.

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
    """Return the testcases that would show what facts speak for, by cause and place.

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
                if taken * part >= _DEPENDS
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
        signs = list(cause.signs(machine, facts)) if document.facts else []
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
        """Return those of a tier, the simplest first: those with the fewest transfers at once."""
        cases = not_run(self._document, tier)
        return sorted(cases, key=lambda case: max((len(m.works) for m in self.measurements(case)), default=0))

    def measurements(self, case: Testcase) -> tuple[Measurement, ...]:
        """Return the Measurements of a testcase that links limit; none if there are too many."""
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
        for measurement in self._candidates.measurements(case):
            yield from self._cells(measurement)

    def _cells(self, measurement: Measurement) -> Iterator[tuple[list[float], Allowance]]:
        good, collective = self._candidates.good, measurement.collective
        route = good.route(measurement)
        if route is None or (
            self._differing is not None
            and not collective
            and all(self._differing.isdisjoint(demand.weights) for demand in route)
        ):
            return
        try:
            values = [
                (good if collectives and not collective else predictions).of(measurement)
                for predictions, collectives in self._predictions
            ]
        except MachineError:  # no path is left
            return
        distances = [
            [abs(math.log(mine / value)) if mine and value else 0.0 for value in others]
            for mine, *others in zip(*values, strict=True)
        ]
        if max(map(max, distances), default=0.0) < _DIFFERENT:
            return
        allowed = allowances(self._candidates.network, measurement, efficiencies())
        yield from (
            (differences, allowance)
            for differences, allowance in zip(distances, allowed, strict=True)
            if allowance.expected
        )


def _ends(machine: Machine) -> list[tuple[str, str]]:
    """Return the ends of the links, on which the routes depend."""
    return [link.ends for link in machine.links]
