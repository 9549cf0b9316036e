"""The ranking of causes by how well the values that each predicts, by the fair shares of the machine that
it changes, agree with the measured values and with the facts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..data.causes import EFFECTS, Cause, Weight
from ..document import Document
from ..errors import MachineError
from ..hardware.cause_effects import Effect, scaled
from ..hardware.facts import Facts
from ..hardware.link_graph import Network
from ..hardware.topology import Link, Machine
from ..results.cells import Key
from ..statistics import grouped
from ..thresholds.causes import (
    ENOUGH_EXPLAINED,
    EQUAL_POINTS,
    ESTIMATED,
    FIT_KNOWN,
    FIT_NOISE,
    HARDLY_SLOWER,
    LOWERED,
    MATTERS,
    MOST_DEVIATIONS,
    MOST_SHARED,
    NAMELESS,
    ROUGHLY,
    SHOWS_RATE,
    SUPPORTED,
    SUSPECT,
    TRUSTED,
    UNSUPPORTED,
)
from .advice import commands_at
from .causes import CAUSES, signs_of
from .causes.record import Sign, devices_at, heaviest, speaking
from .cells_seen import SLOWEST, Routes, seen_cells, slow_keys
from .finding import Finding
from .next_testcases import distinguishing
from .predictions import Hypothesis, Predictions, typical_rates
from .replanned import planned
from .verdict import Judgement

# Points are half squared deviations, and so logarithms of odds: 4 points are odds of 55 to 1.

#: Quantiles of the ratios of rerouted data that are tried as the rate of the new route, which cells share to
#: different extents. Factors that differ by less than the last are tried once.
_PARTS, _SAME = (0.1, 0.3, 0.5, 0.7, 0.9), 0.04
#: A hypothesis that concerns less than this fraction of what another one explains is not examined: one GPU of
#: 72 does not explain why all are slow. Without it, such a run takes four times as long to diagnose.
_HOPELESS = 1 / 16
#: Maximum number of causes: each is fitted to what the others leave.
_MOST_CAUSES = 3


@dataclass(frozen=True)
class _Scored:
    gain: float  #: by the predictions only
    score: float  #: with the facts
    hypothesis: Hypothesis
    ratios: Mapping[int, float]
    explained: frozenset[int]
    evidence: str
    weight: Weight


def explain(
    document: Document, judgements: Sequence[Judgement], facts: Facts
) -> Iterator[tuple[Finding | None, frozenset[Key], frozenset[Key]]]:
    """Yield what explains the slow cells of a run, the first cause first.

    Yields:
        A cause; None for a slow link or device without a known one. The slow cells that it explains. Other
        slow cells, which are faster than it predicts.
    """
    evidence = {
        cause.name: list(signs_of(cause, document.machine, facts)) if document.facts else []
        for cause in CAUSES
    }
    if not slow_keys(judgements) and not any(evidence.values()):  # healthy: the rest would find nothing
        return
    fitter = _Fitter(document, judgements, facts, evidence)
    slow = {i for i, cell in enumerate(fitter.seen) if cell.low}
    if not slow and not any(evidence.values()):
        return
    low, machine, effects = fitter.low, document.machine, np.zeros(len(fitter.seen))
    done: frozenset[int] = frozenset()
    for number in range(_MOST_CAUSES):
        scored = [
            candidate for candidate in (fitter.scored(machine, effects, low - done) if low - done else ())
            if candidate.explained & slow - done or (candidate.evidence and candidate.gain >= EQUAL_POINTS)
        ]  # fmt: skip
        wanted = ENOUGH_EXPLAINED * len(slow - done) / (1 + number)
        if not scored or (scored[0].explained & slow and len(scored[0].explained & slow - done) < wanted):
            return
        best = scored[0]
        chosen = best
        if best.hypothesis.cause is None:  # a cause that explains as much is better than none
            named = (candidate for candidate in scored if candidate.hypothesis.cause is not None)
            chosen = next(
                (candidate for candidate in named if best.score - candidate.score <= EQUAL_POINTS / 2), best
            )
        rivals = {chosen.hypothesis.cause: chosen.hypothesis}
        for candidate in scored:
            if (
                candidate.hypothesis.cause is not None and bool(candidate.evidence) is bool(chosen.evidence)
                and chosen.gain - candidate.gain <= EQUAL_POINTS
                and 2 * len(candidate.explained & chosen.explained) > len(chosen.explained)
            ):  # fmt: skip
                rivals.setdefault(candidate.hypothesis.cause, candidate.hypothesis)
        keys = frozenset(fitter.keys[i] for i in chosen.explained & slow)
        milder = frozenset(
            fitter.keys[i] for i, predicted in chosen.ratios.items()
            if i in slow - chosen.explained and predicted <= fitter.ratios[i]
        )  # fmt: skip
        lower, residual = len(chosen.explained - slow), number > 0 and not chosen.evidence
        finding = _finding(document, chosen, tuple(rivals.values()), len(keys))
        yield finding and replace(finding, lower=lower, residual=residual), keys, milder
        machine = chosen.hypothesis.machine
        effects[list(chosen.ratios)] = np.log(list(chosen.ratios.values()))
        done |= chosen.explained


def _finding(document: Document, chosen: _Scored, rivals: Sequence[Hypothesis], cells: int) -> Finding | None:
    """The cause that explains some cells, and the others that explain them; None if it has no known cause."""
    hypothesis, *others = rivals
    if (cause := hypothesis.cause) is None:
        return None
    equals = tuple(other.cause for other in others if other.cause is not None)
    return Finding(
        cause, hypothesis.place, chosen.evidence, cells, hypothesis.factor, equals, weight=chosen.weight,
        next=distinguishing(document, rivals) if equals else None,
        commands=commands_at(document.machine, hypothesis.place, cause, *equals),
    )  # fmt: skip


#: For each cell, the logarithm of its predicted ratio to normal.
Effects = npt.NDArray[np.float64]
#: Indices of cells.
Cells = npt.NDArray[np.intp]


class _Fitter:
    """Scores hypotheses about one run."""

    def __init__(
        self, document: Document, judgements: Sequence[Judgement], facts: Facts,
        evidence: Mapping[str, Sequence[Sign]],
    ) -> None:  # fmt: skip
        self.document = document
        self.keys, self.seen, ratios = seen_cells(document, judgements)
        self.low = {i for i, cell in enumerate(self.seen) if cell.low or cell.typical <= 1 - FIT_KNOWN}
        plans = planned(document)
        #: How each cell was measured, and the index of its Place.
        self.planned = [plans[key._replace(bytes=0)] for key in self.keys]
        #: Host, device and name of all facts that could be read.
        self.known = {
            (fact.host, fact.device, fact.name)
            for of_host in facts.of_each_host for fact in of_host if fact.value is not None
        }  # fmt: skip
        self.hosts = {host for host, _, _ in self.known}
        loads = grouped(
            (link, (i, taken * part))
            for i, cell in enumerate(self.seen) for link, taken, part in cell.links if taken >= MATTERS
        )  # fmt: skip
        #: Link -> the cells that load it, and how far each of them depends on it.
        self.by_link = {link: tuple(map(np.array, zip(*pairs, strict=True))) for link, pairs in loads.items()}
        self.collective = np.array([how.collective is not None for how, _ in self.planned], bool)
        self.ratios = np.array(ratios)
        self.evidence = evidence
        self.typical: Effects = np.log([cell.typical for cell in self.seen] or [1.0])
        groups = grouped((cell.group, i) for i, cell in enumerate(self.seen))
        self.groups = {group: np.array(members) for group, members in groups.items()}
        #: Effects that move data, by name and place -> their routes: factors do not change them.
        self._rerouted: dict[tuple[str, str], Routes] = {}
        #: What is predicted of machines with the same links, which several causes make, by routes and links.
        self._changed: dict[tuple[tuple[str, str], tuple[Link, ...]], Predictions] = {}
        #: Costs of groups before another cause is added.
        self._costs_before: dict[Hashable, float] = {}
        self._good = Predictions(Network(document.machine), typical_rates(document.machine))

    def scored(self, machine: Machine, before: Effects, left: Collection[int]) -> list[_Scored]:
        """The hypotheses that explain some of the slow cells that are left, the best first."""
        self._costs_before, self._rerouted, self._changed = {}, {("", ""): self._good.routes}, {}
        low = np.array(sorted(left))
        reaching = []
        for order, hypothesis in enumerate(self._hypotheses(machine, low)):
            touched, _ = self._touched(machine, hypothesis.machine, hypothesis.effect)
            reaching.append((int(np.isin(touched, low).sum()), order, hypothesis, touched))
        reaching.sort(key=lambda entry: -entry[0])
        candidates, most = list[tuple[float, int, _Scored]](), 0
        for reach, order, hypothesis, touched in reaching:
            if not reach or reach < _HOPELESS * most:  # one GPU of 72 does not explain why all are slow
                break
            candidate = self._score(hypothesis, touched, before)
            if candidate is not None and (explained := len(candidate.explained.intersection(left))):
                candidates.append((-candidate.score, order, candidate))
                most = max(most, explained)
        return [candidate for *_, candidate in sorted(candidates, key=lambda entry: entry[:2])]

    def _hypotheses(self, machine: Machine, left: Cells) -> Iterator[Hypothesis]:
        """Yield what may have slowed down the cells that are left."""
        for cause in CAUSES:
            effect = EFFECTS.get(cause.name)
            for place in effect.places(machine) if effect else ():
                assert effect is not None
                changed = effect.apply(machine, place, 0.5)
                for factor in self._factors(machine, changed, left, effect):
                    yield self._nearest(machine, place, cause, effect, factor)
                if not (effect.partial and self.evidence[cause.name]):
                    continue
                there = frozenset(machine.links_at(place))
                for chosen in self._nameless(machine):
                    for factor in (
                        self._factors(machine, scaled(machine, chosen, 0.5), left) if chosen <= there else ()
                    ):
                        slowed = scaled(machine, chosen, factor)
                        yield Hypothesis(slowed, place, cause, effect, factor, factor)
        for chosen in self._nameless(machine):
            for factor in self._factors(machine, scaled(machine, chosen, 0.5), left):
                yield Hypothesis(scaled(machine, chosen, factor), factor=factor)

    @staticmethod
    def _nearest(machine: Machine, place: str, cause: Cause, effect: Effect, factor: float) -> Hypothesis:
        """A cause with the possible amount that is nearest to a factor."""
        if not effect.amounts:
            return Hypothesis(effect.apply(machine, place, factor), place, cause, effect, factor, factor)
        _, value, amount = min(
            (abs(math.log(value / factor)), value, amount)
            for amount in effect.amounts
            for value in [effect.factor(machine, place, amount)]
        )
        if value < 1:  # values follow the nominal speed only roughly
            value = max(value * (1 - ROUGHLY), min(factor, value * (1 + ROUGHLY)))
        return Hypothesis(effect.apply(machine, place, value), place, cause, effect, amount, value)

    @staticmethod
    def _nameless(machine: Machine) -> Iterable[frozenset[int]]:
        """The links that may be slow without a known cause: one, both ways, or all of a vertex."""
        by_place: dict[object, set[int]] = {}
        for i, link in enumerate(machine.links):
            ends = link.ends
            for place in (ends, frozenset(ends), *((end,) for end in ends)):
                by_place.setdefault(place, set()).add(i)
        return dict.fromkeys(map(frozenset, by_place.values()))

    def _touched(self, machine: Machine, changed: Machine, effect: Effect | None) -> tuple[Cells, Effects]:
        """The cells that load a link which is different on a changed machine, and how far."""
        kept = set(changed.links)
        loading = [
            self.by_link[i] for i, link in enumerate(machine.links) if link not in kept and i in self.by_link
        ]
        loads = np.zeros(len(self.seen))
        touched = np.zeros(len(self.seen), bool)
        for cells, parts in loading:
            touched[cells] = True
            loads[cells] = np.maximum(loads[cells], parts)
        cells = np.flatnonzero(touched & self.collective if effect and effect.collectives else touched)
        return cells, loads[cells]

    def _factors(
        self, machine: Machine, changed: Machine, left: Cells, effect: Effect | None = None
    ) -> list[float]:
        """By how much the links that change may be slower, as the low cells show."""
        touched, loads = self._touched(machine, changed, effect)
        reroutes = effect is not None and effect.reroutes
        is_low = np.isin(touched, left)
        deciding = loads >= SHOWS_RATE
        low = deciding & is_low
        explains_others = reroutes or not deciding.any()  # cells that do not depend on the links that change
        if not is_low.any() or (
            low.sum() < SUSPECT * deciding.sum()
            and not (explains_others and is_low.sum() >= SUSPECT * len(left))
        ):
            return []
        cells, parts = (touched[low], loads[low]) if low.any() else (touched[is_low], 1.0)
        # What shares a new route with others says less about its rate than what has it for itself.
        factors = [
            factor
            for shown in (self.ratios[cells], np.exp(self.typical[cells]))
            for factor in np.atleast_1d(np.quantile(shown * parts, _PARTS if reroutes else 0.5)).tolist()
        ]
        distinct: list[float] = []
        for factor in sorted(factor for factor in factors if factor < HARDLY_SLOWER):
            if not distinct or factor > distinct[-1] * (1 + _SAME):
                distinct.append(factor)
        return distinct

    def _score(self, hypothesis: Hypothesis, touched: Cells, before: Effects) -> _Scored | None:
        """Predict the cells of a hypothesis, and score it by what its predictions improve."""
        effect, cause = hypothesis.effect, hypothesis.cause
        try:
            moved = (effect.name, hypothesis.place) if effect is not None and effect.reroutes else ("", "")
            alike = moved, hypothesis.machine.links
            if alike not in self._changed:
                routes = self._rerouted.setdefault(moved, {})
                self._changed[alike] = Predictions(Network(hypothesis.machine), self._good.rates, routes)
            changed = self._changed[alike]
            ratios = {i: self._ratio(i, changed) for i in touched.tolist()}
        except MachineError:  # no path is left
            return None
        unsure = FIT_KNOWN if effect and effect.reroutes else FIT_NOISE
        after = before.copy()
        after[list(ratios)] = np.log(list(ratios.values()))
        score, shared = 0.0, dict[Hashable, float]()
        for group in {self.seen[i].group for i in ratios}:
            cost, common = self._cost(group, after, unsure)
            alone = bool((after[self.groups[group]] < math.log(1 - LOWERED)).all())  # no other cell shows it
            shared[group] = max(-MOST_SHARED, min(common, FIT_NOISE)) if alone else common
            if group not in self._costs_before:
                self._costs_before[group] = self._cost(group, before, FIT_NOISE)[0]
            score += self._costs_before[group] - cost
        gain, evidence, weight = score, "", Weight.CONDITION
        if cause is None or effect is None:
            score += NAMELESS
        else:
            evidence, weight, contradicted = self._by_facts(cause, effect, hypothesis)
            if contradicted:
                return None
            score += SUPPORTED + TRUSTED * max(gain, 0.0) if evidence else 0.0
        if effect is None or not effect.amounts:
            score += ESTIMATED if evidence or effect is None else UNSUPPORTED
        explained = frozenset(
            i
            for i, r in ratios.items()
            if i in self.low and self._explains(i, r, shared[self.seen[i].group], unsure)
        )
        return _Scored(gain, score, hypothesis, ratios, explained, evidence, weight)

    def _explains(self, cell: int, predicted: float, shared: float, unsure: float) -> bool:
        """Whether a prediction explains a low cell, given how comparable cells differ from typical."""
        effect = math.log(predicted)
        off = min(abs(self.typical[cell] - effect - shared), abs(math.log(self.ratios[cell]) - effect))
        return off <= max(FIT_KNOWN, 2 * unsure * abs(effect)) and predicted <= 1 - LOWERED

    def _ratio(self, cell: int, changed: Predictions) -> float:
        """The predicted value on a changed machine over that on the good one."""
        measurement, place = self.planned[cell]
        good, slowed = (values.of(measurement)[place] for values in (self._good, changed))
        return max(slowed / good, SLOWEST) if good and slowed else 1.0

    def _cost(self, group: Hashable, effects: Effects, unsure: float) -> tuple[float, float]:
        """Half the squared deviation of comparable cells from their predictions, and what they share.

        All of them may differ from the typical value in the same way, which counts once.
        """
        members = self.groups[group]
        effect = effects[members]
        off = self.typical[members] - effect
        deviations = np.hypot(FIT_NOISE, unsure * effect)
        deviation = math.hypot(FIT_KNOWN, FIT_KNOWN * float(np.abs(effect).max()))
        costs = []
        for common in np.sort(off)[[len(off) * k // 8 for k in (2, 4, 6)]].tolist():
            own = np.minimum(np.abs(off - common) / deviations, MOST_DEVIATIONS)
            costs.append(((float(own @ own) + (common / deviation) ** 2) / 2, common))
        return min(costs)

    def _by_facts(self, cause: Cause, effect: Effect, hypothesis: Hypothesis) -> tuple[str, Weight, bool]:
        """The facts that speak for a cause at a place, their weight, and whether facts contradict."""
        machine, place = self.document.machine, hypothesis.place
        if about := speaking(self.evidence[cause.name], machine, place, self.hosts, of_all=not place):
            texts = dict.fromkeys(": ".join(filter(None, (sign.host, sign.text))) for sign in about)
            return "; ".join(texts), heaviest(about, cause), False
        hosts = {host for host, _ in devices_at(machine, place, self.hosts)}
        expected = list(effect.facts(machine, place, hypothesis.amount))
        contradicted = bool(expected and hosts) and all(
            (host, fact.device, fact.name) in self.known for fact in expected for host in hosts
        )
        contradicted |= any(
            (*ends, name) in self.known
            for name in effect.witnesses
            for ends in devices_at(machine, place, self.hosts)
        )
        return "", cause.weight, contradicted
