"""The devices and links that explain which values are low, and the one that delivers wrong data: of the
candidates, each with the set of values that it would slow down, the fewest that explain the low values and
few others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..data.causes import Weight
from ..document import Document
from ..errors import MachineError, UsageError
from ..hardware.link_graph import MachineVertices, Network
from ..hardware.topology import Link, LinkKind, Machine
from ..results.cells import Placed
from ..results.overrides import Override
from ..statistics import grouped
from ..thresholds.causes import (  # fmt: skip
    ACQUITTAL_MARGIN,
    CARRIED,
    CLEARLY_MORE,
    FULL_LINK,
    LOW_CHANCE,
    LOW_DEVIATIONS,
    LOW_FRACTION,
    MANY_CELLS,
    MATTERS,
    NORMAL,
)
from ..units import many, some
from .causes import CAUSES, signs_of
from .causes.run_facts import facts_of
from .cells_seen import Observation, normal_of, quantile
from .suspects import Culprit, Suspect, Suspects
from .verdict import Judgement, Verdict

#: Distance between the quantiles 0.75 and 0.9 of a normal distribution, in standard deviations.
_QUANTILE_DISTANCE = 1.2816 - 0.6745
#: Order of candidates that are a device or switch; links have lower ones, pairs higher ones.
_DEVICE_ORDER = 2


def localise(machine: Machine, observations: Sequence[Observation]) -> list[Culprit]:
    """The culprits that explain the low observations, the one that explains most first."""
    ratios, doubtful = _relative(machine, observations)
    low = frozenset(ratios)
    candidates = _candidates(_Graph(machine), observations, low, doubtful) if low else []
    culprits: list[Culprit] = []
    left = low
    while left:
        explained = {
            c: len(c.touched & left) - c.innocent
            for c in candidates
            if 2 * c.innocent <= len(c.touched & low)
        }
        most = max(explained.values(), default=0)
        if most <= 0:
            break
        scores = {c: c.preferred(left) for c, count in explained.items() if count == most}
        best = max(scores.values())
        equal = [c for c, score in scores.items() if score == best]
        cells = equal[0].touched & left
        suspects = tuple(dict.fromkeys(c.suspect for c in equal if c.touched & left == cells))
        ratio = statistics.median(ratios[i] for i in cells)
        culprits.append(Culprit(suspects, ratio, tuple(sorted(cells))))
        left -= cells
    return culprits


def _relative(
    machine: Machine, observations: Sequence[Observation]
) -> tuple[dict[int, float], frozenset[int]]:
    """The low observations with their ratios to normal, and the doubtful ones.

    Normal is the value that the better quarter of comparable cells reaches; this holds while at most three
    quarters are slow. The deviation is that of the same better quarter, for a normal distribution; the
    median over all groups that use links of the same kinds is taken, because a few cells say little about
    it; many cells show their own. An observation is doubtful if it is not low but nearly so
    (below its peers by half the margin, or, without enough peers, below typical): it neither accuses nor
    acquits a link.
    """
    groups = grouped((observation.group, i) for i, observation in enumerate(observations))
    kinds = {
        group: frozenset([machine.links[link].kind for link, _, _ in observations[members[0]].links])
        for group, members in groups.items()
    }
    references: dict[Hashable, float] = {}
    deviations: dict[frozenset[LinkKind], list[float]] = {}
    own: dict[Hashable, float] = {}
    for group, members in groups.items():
        ratios = sorted([observations[i].ratio for i in members])
        if normal := normal_of(ratios):
            references[group] = normal
            high = quantile(ratios, 0.9)
            deviation = (high / normal - 1) / _QUANTILE_DISTANCE
            deviations.setdefault(kinds[group], []).append(deviation)
            own[group] = deviation if len(members) >= MANY_CELLS else 0.0
    spread = {kind: statistics.median(of_kind) for kind, of_kind in deviations.items()}
    low_ratios, doubtful = {}, set()
    distribution = statistics.NormalDist()
    by_chance = distribution.inv_cdf(1 - LOW_CHANCE / max(1, len(observations))) + distribution.inv_cdf(
        NORMAL
    )
    deviations_of_low = max(LOW_DEVIATIONS, by_chance)
    for group, members in groups.items():
        reference = references.get(group, 0.0)
        deviation = max(spread.get(kinds[group], 0.0), own.get(group, 0.0))
        margin = max(LOW_FRACTION, deviations_of_low * deviation)
        low, near = reference * (1 - margin), reference * (1 - margin / 2)
        few = max(observations[i].ratio for i in members) * (1 - margin)
        for i in members:
            observation = observations[i]
            if observation.low or observation.ratio < low:
                normals = (reference, observation.normal if observation.low else 0.0)
                low_ratios[i] = min(observation.ratio / normal for normal in normals if normal)
            elif observation.ratio < (near or max(few, observation.normal * (1 - ACQUITTAL_MARGIN))):
                doubtful.add(i)
    return low_ratios, frozenset(doubtful)


def without_fast(culprits: Iterable[Culprit], machine: Machine, fast: Collection[int]) -> Iterator[Culprit]:
    """Yield culprits without the links that another value shows to be fast.

    Args:
        culprits: The culprits.
        machine: The machine.
        fast: The links that are fast, by index.
    """
    slow = {suspect for i, own in enumerate(suspects_of_links(machine)) if i not in fast for suspect in own}
    for culprit in culprits:
        left = tuple(suspect for suspect in culprit.suspects if not suspect.is_link or suspect in slow)
        if left:
            yield replace(culprit, suspects=left)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A link, device or pair that may be slow.

    Attributes:
        order: Of candidates that explain the same observations, the lowest is named.
        touched: The observations that it may slow down.
        weights: How far each of them depends on it.
        innocent: Number of observations that show that it is not slow.
    """

    suspect: Suspect
    order: int
    touched: frozenset[int]
    weights: Mapping[int, float]
    innocent: int

    def preferred(self, low: frozenset[int]) -> tuple[int, float, int]:
        """A sort key; of candidates that explain the same observations, the largest is named.

        A link goes before a device or switch, which goes before a pair; of links, the one that decides more.
        """
        decided = math.fsum(self.weights[i] for i in self.touched & low)
        return -max(1, self.order), round(decided, 2), -self.order


#: Order of a candidate, and the suspect.
_Key = tuple[int, Suspect]


def _candidates(
    graph: _Graph, observations: Sequence[Observation], low: frozenset[int], doubtful: frozenset[int]
) -> list[_Candidate]:
    numbers: dict[_Key, int] = {}  # small keys of the others, of which there are many on large machines

    def number(key: _Key) -> int:
        return numbers.setdefault(key, len(numbers))

    touched: dict[int, set[int]] = {}
    weights: dict[int, dict[int, float]] = {}
    showing: dict[int, set[int]] = {}
    by_link: dict[int, set[int]] = {}
    suspects_of = [list(map(number, graph.suspects(link))) for link in graph.links]
    alike = grouped((observation.links, i) for i, observation in enumerate(observations))  # most share links
    suspected = {
        key for links, members in alike.items() if not low.isdisjoint(members)
        for link, taken, _ in links if taken >= MATTERS for key in suspects_of[link]
    }  # fmt: skip
    carried = _carried(graph, observations, low)
    for links, members in alike.items():
        of_keys: dict[int, float] = {}
        for link, taken, part in links:
            if taken < MATTERS:
                continue
            by_link.setdefault(link, set()).update(members)
            for key in (key for key in suspects_of[link] if key in suspected):
                of_keys[key] = min(1.0, of_keys.get(key, 0.0) + taken * part)
                least = carried.get(link, 0.0) * (1.0 if taken * part >= FULL_LINK else CLEARLY_MORE)
                if taken * part >= (CARRIED if least else FULL_LINK):
                    showing.setdefault(key, set()).update(
                        i for i in members if observations[i].payload(graph.links[link]) > least
                    )
        for key, weight in of_keys.items():
            touched.setdefault(key, set()).update(members)
            weights.setdefault(key, {}).update(dict.fromkeys(members, weight))
    path_of = {links: graph.path(links) for links in alike}
    paths = [path_of[observation.links] for observation in observations]
    for path in {paths[i] for i in low}:
        back = graph.reverse(path)
        if len(path) < 2 or path & back:  # single links are candidates already; both directions come with one
            continue
        if not (ends := graph.ends(path)):  # a ring has no ends
            continue
        forward, backward = (
            {i for i in set.intersection(*(by_link.get(link, set()) for link in way))
             if len(paths[i]) <= 2 * len(way)} if way else set[int]()
            for way in (path, back)
        )  # fmt: skip
        pair, both = (graph.all.pair(ends, one_way=one_way) for one_way in (True, False))
        for key, cells in ((number((3, pair)), forward), (number((4, both)), forward | backward)):
            touched[key] = showing[key] = cells
            weights[key] = {i: _weakest(observations[i], path | back) for i in cells}
    keys = list(numbers)
    return [
        _Candidate(
            *keys[key][::-1], frozenset(cells), weights[key], len(showing.get(key, set()) - low - doubtful)
        )
        for key, cells in touched.items()
        if cells & low
    ]


def _carried(graph: _Graph, observations: Sequence[Observation], low: frozenset[int]) -> dict[int, float]:
    """The lowest fraction of its capacity that each link carries for a low observation, as payload.

    An observation with less payload shows nothing of the link: its load is that of requests of the other
    direction, of which it is only known what is typical.
    """
    lowest: dict[int, float] = {}
    for i in low:
        for link, taken, part in observations[i].links:
            if taken * part >= CARRIED:
                carried = observations[i].payload(graph.links[link])
                lowest[link] = min(lowest.get(link, math.inf), carried)
    return lowest


def _weakest(observation: Observation, links: frozenset[int]) -> float:
    """How far an observation depends on that of some links on which it depends least."""
    weights = {link: taken * part for link, taken, part in observation.links if part}
    return min(weights.get(link, 1.0) for link in links)


def suspects_of_links(machine: Machine) -> list[tuple[Suspect, ...]]:
    """Each link as a suspect: in its direction, and in both directions."""
    graph = _Graph(machine)
    return [
        tuple(suspect for order, suspect in graph.suspects(link) if order < _DEVICE_ORDER)
        for link in machine.links
    ]


class _Graph:
    """The links of a machine, and the suspects that they belong to."""

    def __init__(self, machine: Machine) -> None:
        self.links = machine.links
        self.all = Suspects(machine)
        self.index = {(*link.ends, link.kind): i for i, link in enumerate(machine.links)}

    def suspects(self, link: Link) -> list[_Key]:
        """The candidates that a link belongs to, each with its order."""
        if link.kind is LinkKind.MEMORY:
            return [(0, self.all.memory(link.source)), (_DEVICE_ORDER, self.all.vertex(link.source))]
        ends = [self.all.vertex(end) for end in link.ends]
        return [*enumerate(self.all.link(link)), *((_DEVICE_ORDER, end) for end in ends)]

    def path(self, links: Iterable[tuple[int, float, float]]) -> frozenset[int]:
        """The links between vertices among those of an observation."""
        return frozenset(
            link
            for link, taken, part in links
            if min(taken, part) >= MATTERS and self.links[link].kind is not LinkKind.MEMORY
        )

    def reverse(self, path: Iterable[int]) -> frozenset[int]:
        """The links in the opposite direction, where they exist."""
        links = (self.links[i] for i in path)
        opposite = (self.index.get((link.destination, link.source, link.kind)) for link in links)
        return frozenset(i for i in opposite if i is not None)

    def ends(self, path: Iterable[int]) -> tuple[str, str] | None:
        """The vertices at the ends of a path; None if it has none."""
        links = [self.links[i] for i in path]
        sources, destinations = {link.source for link in links}, {link.destination for link in links}
        starts, ends = sorted(sources - destinations), sorted(destinations - sources)
        return (starts[0], ends[0]) if starts and ends else None


def defects(document: Document) -> Iterator[str]:
    """Yield what is wrong, and where: causes that are defects on their own."""
    if not document.facts:
        return
    facts = facts_of(document)
    for cause in CAUSES:
        places = [
            ": ".join(filter(None, (sign.host, sign.device)))
            for sign in signs_of(cause, document.machine, facts)
            if (sign.weight or cause.weight) is Weight.DEFECT
        ]
        if places:
            where = ", ".join(filter(None, dict.fromkeys(places)))
            yield f"{cause.title} ({where})" if where else cause.title


def accept(
    judged: list[Judgement], cells: Sequence[Placed], overrides: Sequence[Override], machine: Machine
) -> tuple[dict[Override, int], set[int]]:
    """Waive what overrides accept; the first matching override counts.

    Returns:
        Override -> number of cells that it waives.
        The cells that may be slow, waived or not; they are not compared with their peers.
    """
    accepted: dict[Override, int] = {}
    exempt: set[int] = set()
    for override in overrides:
        fitting = [
            i
            for i, (key, cell, *_) in enumerate(cells)
            if judged[i].value and override.fits(key, cell, machine)
        ]
        if not fitting:
            raise UsageError(f"the override of {override} matches no measured value")
        bad = [i for i in fitting if _is_accepted(override, judged[i])]
        exempt.update(bad, (i for i in fitting if judged[i].verdict is Verdict.PASS))
        for i in bad:
            judged[i] = replace(judged[i], verdict=Verdict.WAIVED, why=override.reason)
        accepted[override] = len(bad)
    return accepted, exempt


def _is_accepted(override: Override, judgement: Judgement) -> bool:
    if override.accept is None:
        return judgement.verdict.is_bad
    return judgement.verdict.is_worse and judgement.margin >= override.accept


#: Maximum number of devices that a text names.
_NAMED = 3

#: Source and destinations of a path that delivered wrong data.
_Path = tuple[str, ...]


@dataclass(frozen=True)
class WrongData:
    """Paths that delivered wrong data: those of one device, or all that have no device in common.

    Attributes:
        device: Vertex that explains the wrong data; empty if none does.
        paths: Source and destinations of each path, the most frequent first.
        testcases: Testcases in which wrong data arrived.
        everywhere: Whether these are paths between the device and all other GPUs.
        by_pcie: Whether all paths use PCIe, which settings of the host redirect and translate.
        between_gpus: Whether all paths are between GPUs.
    """

    device: str
    paths: tuple[_Path, ...]
    testcases: tuple[str, ...]
    everywhere: bool = False
    by_pcie: bool = False
    between_gpus: bool = False

    def __str__(self) -> str:
        where = f"in {many(len(self.testcases), 'testcase')}"
        if not self.device:
            first, *others = ("->".join(filter(None, (path[0], "+".join(path[1:])))) for path in self.paths)
            if not others:
                return f"{first} delivers wrong data {where}"
            more = others[0] if len(others) == 1 else many(len(others), "more path")
            return f"{first} and {more} deliver wrong data {where}"
        sends = any(path[0] == self.device and set(path[1:]) != {self.device} for path in self.paths)
        receives = any(path[0] != self.device for path in self.paths)
        how = " and ".join(word for word, holds in (("to", sends), ("from", receives)) if holds)
        whom = "all its peers" if self.everywhere else some([*_peers(self.device, self.paths)], _NAMED)
        return f"{self.device} corrupts data {how} {whom} {where}"


def wrong_data(cells: Iterable[Placed], machine: Machine) -> tuple[WrongData, ...]:
    """What delivered wrong data, the most frequent first.

    A device explains the wrong data of its paths if it has more of them than most devices at their other
    ends.
    """
    by_path: dict[_Path, dict[str, None]] = {}
    for measured in cells:
        if measured.cell.corrupted:
            source, _, destinations = measured.cell.corrupted.partition("->")
            path = (source, *filter(None, destinations.split("+")))
            by_path.setdefault(path, {})[measured.result.name] = None
    paths = sorted(by_path, key=lambda path: -len(by_path[path]))
    of_device = grouped((end, path) for path in paths for end in dict.fromkeys(path))
    gpus = {gpu.name for gpu in MachineVertices(machine).gpus}
    left, result, network = dict.fromkeys(paths), [], Network(machine)

    def found(device: str, own: tuple[_Path, ...], everywhere: bool = False) -> WrongData:
        by_pcie = all(_is_pcie(path, network) for path in own)
        between = all(gpus.issuperset(path) for path in own)
        names = tuple(dict.fromkeys(name for path in own for name in by_path[path]))
        return WrongData(device, own, names, everywhere, by_pcie, between)

    for device in sorted(of_device, key=lambda device: -len(of_device[device])):
        own = [path for path in of_device[device] if path in left]
        peers = _peers(device, own)
        fewer = sum(len(of_device[peer]) < len(of_device[device]) for peer in peers)
        if len(own) > 1 and fewer and 2 * fewer > len(peers):
            everywhere = device in gpus and len(gpus) > 1 and peers.keys() >= gpus - {device}
            result.append(found(device, tuple(own), everywhere))
            left = {path: None for path in left if path not in own}
    if left:
        result.append(found("", tuple(left)))
    return tuple(sorted(result, key=lambda wrong: -len(wrong.paths)))


def _is_pcie(path: _Path, network: Network) -> bool:
    """Whether the route of a path uses PCIe; False if it is unknown."""
    try:
        routes = [network.route(path[0], end) for end in path[1:]]
    except MachineError:
        return False
    return all(LinkKind.PCIE in {network.links[link].kind for link in route} for route in routes)


def _peers(device: str, paths: Iterable[_Path]) -> dict[str, None]:
    return {end: None for path in paths for end in path if end != device}
