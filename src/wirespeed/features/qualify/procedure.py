"""The rounds of a qualification: own nodes, sampled pairs, confirmation, and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ...qualification import BY_NETWORK, OF_NODE, PartKind, Qualification, SlowPart, Stage, part_name
from ...thresholds.clusters import (
    AS_SLOW,
    ASSUMED_NOISE,
    CLEAR_PAIR_ROUNDS,
    FEWEST_PAIR_ROUNDS,
    FEWEST_VALUES,
    LEAST_SLOW,
    LEAST_THRESHOLD,
    SIGMAS,
    UNEXPLAINED,
)
from .cluster import Values, plain
from .inference import Paths, deviation, explain, margin, normal_paths, reference_of, threshold_of
from .limits import below_alike, below_limits
from .lossy_cables import lossy
from .messages import by_sizes
from .pairing import Pair, groups_of, matchings, representatives
from .recorder import RoundRecorder

#: Rounds of pairs, and confirmations of each suspect.
PAIR_ROUNDS, CONFIRMATIONS = 7, 2
#: What parts that nodes measure by themselves are called.
_PLURALS = {
    PartKind.GPU: "GPUs", PartKind.HOST_LINK: "links between host and GPUs",
    PartKind.MEMORY: "host memories",
}  # fmt: skip
#: What is the matter with a node that takes tasks, but receives nothing from others.
_SILENT = "receives no data from other nodes: a firewall may block the TCP ports between them"
#: Pairs with which a switch or trunk is confirmed, each time.
_PAIRS_OF_SWITCH = 3


class Procedure(RoundRecorder):
    """The rounds of one qualification."""

    def run(self) -> Qualification:
        """Measure, and return everything."""
        members = self._own([i for i, node in enumerate(self.cluster.nodes) if not node.missing])
        suspects = self._pairs(members)
        members = [node for node in members if node not in self._missing]
        spines = [culprit for culprit in suspects if culprit.kind is PartKind.SPINE]
        found = self.qualification
        below = below_limits(found) + below_alike(found, [*self.culprits, *suspects])
        suspects = [*below, *(each for each in suspects if each not in spines and not _covered(each, below))]
        alike = [part for part in below if part.kind is PartKind.ALIKE]
        if alike or (len(members) == 2 and found.paths):
            pair = alike[0].nodes[:2] if alike else members
            if not self.cluster.facts:
                self.cluster.examine((pair[0], pair[1]))
            suspects, confirmed = by_sizes(self, (pair[0], pair[1]), suspects)
            self.culprits += confirmed
        self.culprits += self._confirm(suspects, members) + spines
        self._examine(members)
        self.culprits += lossy(self.rounds)
        self._groups(members)
        return self.qualification

    def _examine(self, members: Sequence[int]) -> None:
        """Read the facts of a slow node, and of one that is not, unless those of two were read already."""
        slow = [part.nodes[0] for part in self.culprits if part.kind in BY_NETWORK]
        good = [node for node in members if node not in slow]
        if slow and good and not self.cluster.facts:
            self.cluster.examine((slow[0], good[0]))

    def _measure(self, stage: Stage, groups: Sequence[Sequence[int]]) -> Values:
        """One round; recorded and reported."""
        started = self.cluster.seconds()
        if stage is Stage.GROUPS:
            values = self.cluster.groups(groups)
        else:
            values = self.cluster.pairs([(group[0], group[1]) for group in groups])
        losses = plain(self.cluster.losses) if stage in (Stage.PAIRS, Stage.CONFIRM) else ()
        self.ended(stage, groups, values, started, losses=losses)
        return values

    def _measure_own(self, nodes: Sequence[int]) -> Mapping[PartKind, Values] | None:
        """A round in which nodes measure themselves; recorded and reported if they do."""
        started = self.cluster.seconds()
        values = self.cluster.own(nodes)
        if values:
            parts = tuple(kind for kind, of_kind in values.items() for _ in range(of_kind.shape[1]))
            table = np.concatenate(list(values.values()), axis=1)
            self.ended(Stage.OWN, [[node] for node in nodes], table, started, parts=parts)
        return values

    def _own(self, nodes: list[int]) -> list[int]:
        """Measure each node by itself; return those that go on."""
        measured = self._measure_own(nodes)
        if measured is None:
            self.notes.append("nodes were not measured by themselves, because some run on the same machine")
            return nodes
        answered = np.zeros(len(nodes), dtype=bool)
        for values in measured.values():
            answered |= ~np.isnan(values).all(axis=1)
        self._missing |= {
            node: "does not answer" for node, there in zip(nodes, answered, strict=True) if not there
        }
        cuts: dict[PartKind, float] = {}
        slow: list[SlowPart] = []
        for kind, values in measured.items():
            known = values[~np.isnan(values)]
            reference, noise = reference_of(known)
            enough = len(known) >= FEWEST_VALUES
            noise = max(noise, float(deviation(known[None])[0]) if enough else ASSUMED_NOISE)
            cuts[kind] = cut = (1 - max(2 * LEAST_SLOW, 2 * SIGMAS * noise)) * reference
            if cut < LEAST_THRESHOLD * reference:
                # Of two nodes, too few values show how much they vary: their paths have limits.
                (self.doubts if len(nodes) > 2 else self.notes).append(
                    f"{_PLURALS[kind]} by themselves were not compared: they vary by {noise:.0%}"
                )
                continue
            good = values[values >= cut]
            slow += [
                SlowPart(
                    kind, (nodes[i],), int(part), None, "", float(values[i, part]), reference, 0,
                    float(good.min()), float(good.max()),
                )
                for i, part in zip(*np.nonzero(values < cut), strict=True)
            ]  # fmt: skip
        for _ in range(CONFIRMATIONS):
            again = list(dict.fromkeys(culprit.nodes[0] for culprit in slow))
            if again:
                found = self._measure_own(again) or {}
                slow = [
                    culprit
                    for culprit in slow
                    if _value(found, culprit, again.index(culprit.nodes[0])) < cuts[culprit.kind]
                ]
        self.culprits += [msgspec.structs.replace(culprit, confirmed=True) for culprit in slow]
        out = {culprit.nodes[0] for culprit in self.culprits} | self._missing.keys()
        return [node for node in nodes if node not in out]

    def _pairs(self, members: list[int]) -> Sequence[SlowPart]:
        """Measure sampled pairs; return the suspects."""
        measured: list[tuple[Sequence[Pair], Values]] = []
        for pairs in matchings(self.blocks, members, PAIR_ROUNDS, self.seed) if len(members) > 1 else []:
            enough = len(measured) >= FEWEST_PAIR_ROUNDS
            if not self.in_time(Stage.PAIRS, "" if enough else "more pairs"):
                break
            values = self._measure(Stage.PAIRS, pairs)
            measured.append((pairs, values))
            if sum(not node.missing for node in self.cluster.nodes) < 2:
                break  # the others were lost on the way
            if len(measured) >= CLEAR_PAIR_ROUNDS and self._all_below():
                break
            if len(measured) == FEWEST_PAIR_ROUNDS:
                suspects, unexplained, noise = self._explained(measured)
                clear = not suspects and unexplained < UNEXPLAINED
                if clear and margin(noise, len(measured)) <= LEAST_SLOW:
                    break
        silent = set(members) - {  # each direction is what its receiver reports
            node
            for pairs, values in measured
            for pair, row in zip(pairs, values, strict=True)
            for node, of_direction in zip(reversed(pair), row, strict=True)
            if not np.isnan(of_direction).all()
        }
        partners: dict[int, set[int]] = {node: set() for node in members}
        for matching, _ in measured:
            for a, b in matching:
                partners[a].add(b)
                partners[b].add(a)
        # A node is not to blame for the silence of partners that were lost.
        there = {i for i, node in enumerate(self.cluster.nodes) if not node.missing}
        blamed = [node for node in silent if partners[node] & there]
        self._missing |= dict.fromkeys(blamed, _SILENT)
        suspects, _, self._noise = self._explained(measured)
        self._threshold = threshold_of(self._noise)
        # Where paths vary this much, chance makes some of them slow.
        return suspects if self._threshold >= LEAST_THRESHOLD else ()

    def _all_below(self) -> bool:
        """Whether all paths of two nodes reach less than their NICs carry, so more rounds say no more."""
        found = self.qualification
        below = {(frozenset(part.nodes), part.rail) for part in below_limits(found) if part.sends is None}
        return bool(below) and below == {(frozenset(path[:2]), path[2]) for path in found.paths}

    def _explained(
        self, measured: Sequence[tuple[Sequence[Pair], Values]]
    ) -> tuple[tuple[SlowPart, ...], float, float]:
        """What explains the slow paths of rounds of pairs, the share that it does not, and the noise."""
        of_pairs = [each.variation for each in self.rounds if each.stage is Stage.PAIRS]
        variation = float(np.median(of_pairs)) if of_pairs else 0.0
        paths, rails = Paths.of(measured), self.cluster.rails
        reference, noise = normal_paths(paths, rails, variation)
        return *explain(paths, self.blocks, rails, reference, noise), noise

    def _confirm(self, suspects: Sequence[SlowPart], members: list[int]) -> list[SlowPart]:
        """Measure each suspect again with nodes that are not; return those that are slow each time."""
        random = np.random.default_rng([self.seed, 2])
        suspects = list(suspects)
        slow = [True] * len(suspects)
        seen = [0] * len(suspects)
        silent: set[int] = set()  # suspects whose paths no longer answer: they stay unconfirmed
        involved = {node for culprit in suspects for node in culprit.nodes}
        while (
            due := [
                i for i, times in enumerate(seen) if times < CONFIRMATIONS and slow[i] and i not in silent
            ]
        ) and self.in_time(Stage.CONFIRM, "confirmation"):
            free = random.permutation(np.array(members)).tolist()
            free.sort(key=lambda node: node in involved)  # good partners first
            pairs: list[Pair] = []
            of: dict[int, range] = {}  # suspect -> its pairs
            shared: dict[
                tuple[bool, tuple[int, ...], bool], range
            ] = {}  # suspects of the same nodes share them
            for i in sorted(due, key=lambda i: len(suspects[i].nodes)):
                key = (suspects[i].kind in OF_NODE, suspects[i].nodes, suspects[i].kind is PartKind.TRUNK)
                if key not in shared:
                    pairs_of = self._partners_for(suspects[i], free, involved)
                    shared[key] = range(len(pairs), len(pairs) + len(pairs_of))
                    pairs += pairs_of
                    free = [node for node in free if not any(node in pair for pair in pairs_of)]
                of[i] = shared[key]
            if not pairs:
                break
            values = self._measure(Stage.CONFIRM, pairs)
            for i, rows in of.items():
                if rows and np.isnan(values[rows.start : rows.stop]).all():
                    silent.add(i)
                elif rows:
                    suspects[i] = self._narrowed(suspects[i], values[rows.start : rows.stop])
                    slow[i] = self._is_slow(suspects[i], values[rows.start : rows.stop])
                    seen[i] += 1
        kept: dict[str, SlowPart] = {}
        for culprit, was_slow, times in zip(suspects, slow, seen, strict=True):
            name = part_name(culprit, self.cluster.nodes)
            if was_slow:  # twice, if a NIC turned out to be a cable that was suspected, too
                kept.setdefault(name, msgspec.structs.replace(culprit, confirmed=times >= CONFIRMATIONS))
            else:
                self.notes.append(f"{name} was slow, but not again with other partners")
        return list(kept.values())

    def _partners_for(self, culprit: SlowPart, free: list[int], involved: set[int]) -> list[Pair]:
        """Pairs whose first node is of the culprit."""
        blocks = self.blocks
        if culprit.kind in OF_NODE or culprit.kind is PartKind.PATH:
            node = culprit.nodes[0]
            others = [other for other in free if other != node and other not in involved]
            others = others or [other for other in free if other != node]
            near = [other for other in others if blocks[other] == blocks[node]] or others
            return [(node, near[0])] if node in free and near else []
        inside = [node for node in free if node in culprit.nodes]
        if culprit.kind is PartKind.LEAF:
            return [
                (inside[2 * i], inside[2 * i + 1]) for i in range(min(_PAIRS_OF_SWITCH, len(inside) // 2))
            ]
        outside = [node for node in free if node not in culprit.nodes]
        return list(zip(inside, outside, strict=False))[:_PAIRS_OF_SWITCH]

    def _narrowed(self, culprit: SlowPart, values: Values) -> SlowPart:
        """The cable, if one direction of a NIC is fast now: something else slowed it before."""
        if culprit.kind is not PartKind.NIC:
            return culprit
        ways = [msgspec.structs.replace(culprit, kind=PartKind.CABLE, sends=sends) for sends in (True, False)]
        slow = [way for way in ways if self._is_slow(way, values)]
        return slow[0] if len(slow) == 1 else culprit

    def _is_slow(self, culprit: SlowPart, values: Values) -> bool:
        """Whether the values of its paths, of shape (pairs, 2, rails), are nearer to slow than to normal."""
        rails = slice(None) if culprit.rail < 0 else slice(culprit.rail, culprit.rail + 1)
        of_part = values[:, :, rails]
        if culprit.sends is not None:
            of_part = of_part[:, :1] if culprit.sends else of_part[:, 1:]
        known = of_part[~np.isnan(of_part)]
        halfway = (culprit.value + culprit.expected) / 2
        return bool(len(known) and np.median(known) < halfway)

    def _groups(self, members: list[int]) -> None:
        """Measure collectives of the nodes that are good; halve the groups that are slow."""
        with_spine = any(culprit.kind is PartKind.SPINE for culprit in self.culprits)
        bad = {
            node for culprit in self.culprits if culprit.kind is not PartKind.SPINE for node in culprit.nodes
        }
        good = [node for node in members if node not in bad and node not in self._missing]
        inside = groups_of(self.blocks, good)
        for groups in (inside, [] if with_spine else representatives(inside)):
            if len(groups) > 1 and self.in_time(Stage.GROUPS, "collectives of groups"):
                values = self._measure(Stage.GROUPS, groups)
                self._halve(groups, values)

    def _halve(self, groups: Sequence[Sequence[int]], values: Values) -> None:
        """Find what slows groups, by halves, until both halves are fast or a group has two or three nodes.

        Such a group is measured again before it is blamed.
        """
        reference, noise = reference_of(values[~np.isnan(values)])
        cut = (1 - max(2 * LEAST_SLOW, 2 * SIGMAS * max(noise, self._noise))) * reference
        slow = [list(group) for group, value in zip(groups, values, strict=True) if value < cut]
        by_group = {tuple(group): float(value) for group, value in zip(groups, values, strict=True)}
        whole: list[list[int]] = []  # slow, but their halves are fast, or they have none
        while (slow or whole) and self.in_time(Stage.GROUPS, "halves of slow groups"):
            whole += [group for group in slow if len(group) <= 3]
            halves = [half for g in slow if len(g) > 3 for half in (g[: len(g) // 2], g[len(g) // 2 :])]
            measured = self._measure(Stage.GROUPS, halves + whole)
            by_group |= {
                tuple(group): float(value) for group, value in zip(halves + whole, measured, strict=True)
            }
            is_slow = [bool(value < cut) for value in measured]
            self.culprits += [
                SlowPart(
                    PartKind.BETWEEN, tuple(group), value=float(value), expected=reference, confirmed=True
                )
                for group, value in zip(whole, measured[len(halves) :], strict=True)
                if value < cut
            ]
            pairs = range(0, len(halves), 2)
            slow = [halves[j] for i in pairs for j in (i, i + 1) if is_slow[j]]
            whole = [halves[i] + halves[i + 1] for i in pairs if not (is_slow[i] or is_slow[i + 1])]
        # No time was left for these.
        self.culprits += [
            SlowPart(PartKind.BETWEEN, tuple(group), value=by_group[tuple(group)], expected=reference)
            for group in slow + whole
        ]


def _covered(culprit: SlowPart, below: Sequence[SlowPart]) -> bool:
    """Whether parts that their NICs do not explain are a slow part, too.

    It is a path in their rail, or as slow as all nodes of its rail are.
    """
    if culprit.kind is PartKind.PATH:
        return any(culprit.rail in (each.rail, -1) for each in below)
    return any(
        each.kind is PartKind.ALIKE
        and (culprit.rail == each.rail or culprit.rail >= 0 > each.rail)
        and culprit.value >= AS_SLOW * each.value
        for each in below
    )


def _value(values: Mapping[PartKind, Values], culprit: SlowPart, row: int) -> float:
    """The value of a part that its node measured again; NaN if the node did not answer."""
    of_kind = values.get(culprit.kind)
    known = of_kind is not None and culprit.rail < of_kind.shape[1]
    return float(of_kind[row, culprit.rail]) if of_kind is not None and known else float("nan")
