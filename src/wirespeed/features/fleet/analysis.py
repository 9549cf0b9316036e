"""Many nodes: outliers, and what separates groups of nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from ...errors import UsageError
from ...judging.run_summary import RunSummary, SummaryFigure, labels
from ...statistics import centre, grouped, median
from ...thresholds.clusters import (
    GROUP_DEVIATIONS,
    GROUP_FRACTION,
    GROUP_GAP,
    GROUP_NODES,
    MIN_PEERS,
    MORE_WITH_ALL,
    OUTLIER_DEVIATIONS,
    OUTLIER_FRACTION,
    SEPARATED,
)

#: Maximum number of separating attributes, and of values of each.
_MOST_ATTRIBUTES, _MOST_VALUES = 4, 2


@dataclass(frozen=True)
class Separation:
    """An attribute whose values separate two groups of nodes.

    Attributes:
        attribute: Name of the attribute.
        slow, fast: Its most frequent values in the slower and in the faster group.
        share: Fraction of the nodes whose group the value predicts, of the group with the smaller fraction.
    """

    attribute: str
    slow: str
    fast: str
    share: float


@dataclass(frozen=True)
class TwoGroups:
    """Two groups of nodes in one figure.

    Attributes:
        title: The figure.
        quantity: ``typical`` or ``lowest``.
        model: Model of the nodes; empty for all models.
        slow, fast: Indices of the nodes.
        slow_median, fast_median: Medians, in B/s.
        separations: Attributes that separate the groups equally well; empty if none does.
    """

    title: str
    quantity: str
    model: str
    slow: tuple[int, ...]
    fast: tuple[int, ...]
    slow_median: float
    fast_median: float
    separations: tuple[Separation, ...]


@dataclass(frozen=True)
class Fleet:
    """Many nodes.

    Attributes:
        nodes: The nodes, the worst first.
        models: Model -> indices of its nodes; the most frequent model first.
        groups: Groups of nodes: first those that an attribute separates, the most different first.
        outliers: Index of a node, title of a figure, ``typical`` or ``lowest`` -> difference from the median
            of the peers, as a fraction of it; without the lowest value where the typical one is an outlier,
            too.
    """

    nodes: tuple[RunSummary, ...]
    models: Mapping[str, tuple[int, ...]]
    groups: tuple[TwoGroups, ...]
    outliers: Mapping[tuple[int, str, str], float]

    @cached_property
    def labels(self) -> list[str]:
        """The attributes that distinguish the nodes, in words."""
        return labels(self.nodes)


#: Quantity of a figure -> its value.
QUANTITIES: Mapping[str, Callable[[SummaryFigure], float]] = {
    "typical": lambda figure: figure.typical,
    "lowest": lambda figure: figure.lowest,
}


def _of_complete_models(nodes: Sequence[RunSummary]) -> list[RunSummary]:
    """The nodes; those with fewer GPUs than most others of their family are of the model of the others."""
    families = grouped((node.family, node) for node in nodes)
    usual = {}
    for family, members in families.items():
        sizes = Counter(node.gpus for node in members)
        most = max(sizes, key=lambda size: (sizes[size], size))
        usual[family] = next(node for node in members if node.gpus == most), sizes

    def of_whole(node: RunSummary) -> RunSummary:
        whole, sizes = usual[node.family]
        lacks = 0 < node.gpus < whole.gpus and sizes[node.gpus] * MORE_WITH_ALL <= sizes[whole.gpus]
        return replace(node, model=whole.model) if lacks and node.family else node

    return list(map(of_whole, nodes))


def analyse(nodes: Iterable[RunSummary]) -> Fleet:
    """The nodes in order, with outliers and groups.

    A node is compared with the nodes of its model whose figure is of the same testcases. If these form two
    groups, it is compared with its group only.
    """
    ordered = _of_complete_models(sorted(nodes, key=lambda node: node.order))
    models = grouped((node.model, i) for i, node in enumerate(ordered))
    peers = grouped(
        ((model, figure.title, figure.testcases), (i, figure))
        for i, node in enumerate(ordered) for figure in node.figures for model in (node.model, "")
    )  # fmt: skip
    groups: list[TwoGroups] = []
    outliers: dict[tuple[int, str, str], float] = {}
    for (model, title, _), figures in sorted(peers.items(), key=lambda item: item[0][:2]):
        if not model and len(models) == 1:
            continue
        is_shown = False
        for quantity, value_of in QUANTITIES.items():
            values = {i: value_of(figure) for i, figure in figures}
            two = _groups(title, quantity, model, values, ordered)
            if two and not is_shown:
                groups.append(two)
                is_shown = True
            if model:
                for members in (two.slow, two.fast) if two else (tuple(values),):
                    changes = differing({i: values[i] for i in members})
                    outliers |= {
                        (i, title, quantity): change
                        for i, change in changes.items()
                        if (i, title, "typical") not in outliers
                    }
    groups.sort(key=lambda two: (not two.separations, two.slow_median / two.fast_median))
    by_size = sorted(models, key=lambda model: (-len(models[model]), model))
    return Fleet(tuple(ordered), {model: tuple(models[model]) for model in by_size}, tuple(groups), outliers)


def differing(values: Mapping[int, float]) -> dict[int, float]:
    """The outliers: index -> difference from the median, as a fraction of the median.

    Median and deviation are of the values without outliers, which are cut off until none is left.
    """
    if len(values) < MIN_PEERS:
        return {}
    kept: Mapping[int, float] = values
    while True:
        middle, deviation = centre(kept.values())
        allowed = max(OUTLIER_DEVIATIONS * deviation, OUTLIER_FRACTION * middle)
        inside = {i: value for i, value in kept.items() if abs(value - middle) <= allowed}
        if len(inside) == len(kept) or len(inside) < MIN_PEERS:
            break
        kept = inside
    return {i: value / middle - 1 for i, value in values.items() if middle and abs(value - middle) > allowed}


def boundary(values: Iterable[float]) -> float | None:
    """The largest value of the lower of two groups; None if the values are one group.

    Of all divisions with an empty range between the groups, the one with the smallest sum of absolute
    deviations from both medians counts, which single outliers hardly influence.
    """
    ordered = sorted(values)
    n = len(ordered)
    fewest = max(GROUP_NODES, round(GROUP_FRACTION * n))
    sums = [0.0, *accumulate(ordered)]

    def distance(at: int) -> float:
        return median(ordered[at:]) - median(ordered[:at])

    def cost(first: int, end: int) -> float:
        half = (end - first) // 2
        return (sums[end] - sums[end - half]) - (sums[first + half] - sums[first])

    possible = [
        i
        for i in range(fewest, n - fewest + 1)
        if ordered[i] - ordered[i - 1] > max(GROUP_GAP * distance(i), 0.0)
    ]
    if not possible:
        return None
    at = min(possible, key=lambda i: cost(0, i) + cost(i, n))
    (low, low_deviation), (high, high_deviation) = centre(ordered[:at]), centre(ordered[at:])
    least = max(OUTLIER_FRACTION * high, GROUP_DEVIATIONS * (low_deviation + high_deviation))
    return ordered[at - 1] if high - low > least else None


def separating(
    slow: Sequence[Mapping[str, str]], fast: Sequence[Mapping[str, str]]
) -> tuple[Separation, ...]:
    """The attributes that separate two groups best; none if no attribute separates them well.

    A value that only one node has predicts nothing: serial numbers separate any two groups.

    Args:
        slow, fast: Attributes of the nodes of both groups.
    """
    separations = []
    for name in dict.fromkeys(name for node in (*slow, *fast) for name in node):
        low, high = (Counter(of_node.get(name, "unknown") for of_node in group) for group in (slow, fast))
        shares = (sum(_own(low, high).values()) / len(slow), sum(_own(high, low).values()) / len(fast))
        if min(shares) >= SEPARATED:
            separations.append(Separation(name, _typical_of(low, high), _typical_of(high, low), min(shares)))
    best = max((separation.share for separation in separations), default=0.0)
    return tuple(separation for separation in separations if separation.share == best)[:_MOST_ATTRIBUTES]


def _own(counts: Counter[str], other: Counter[str]) -> dict[str, int]:
    """The values that predict a group, those more frequent in it than in the other; with counts."""
    return {value: n for value, n in counts.most_common() if n > other[value] and n + other[value] > 1}


def _typical_of(counts: Counter[str], other: Counter[str]) -> str:
    """The most frequent values that predict a group."""
    values = list(_own(counts, other))
    return " or ".join(values[:_MOST_VALUES]) + (" or others" if len(values) > _MOST_VALUES else "")


def _groups(
    title: str, quantity: str, model: str, values: Mapping[int, float], nodes: Sequence[RunSummary]
) -> TwoGroups | None:
    """The two groups that nodes form in a figure; None if they are one group."""
    limit = boundary(values.values())
    if limit is None:
        return None
    slow = tuple(i for i, value in values.items() if value <= limit)
    fast = tuple(i for i, value in values.items() if value > limit)
    of_slow, of_fast = (median(sorted(values[i] for i in side)) for side in (slow, fast))
    found = separating(*([nodes[i].attributes for i in side] for side in (slow, fast)))
    return TwoGroups(title, quantity, model, slow, fast, of_slow, of_fast, found)


def behind(nodes: Sequence[RunSummary]) -> dict[str, list[str]]:
    """What is slow compared with the others of its model, by the file of the run.

    Raises:
        UsageError: If no model has enough runs.
    """
    fleet = analyse(nodes)
    most = max((len(nodes) for nodes in fleet.models.values()), default=0)
    if most < MIN_PEERS:
        raise UsageError(f"--fleet requires {MIN_PEERS} runs of one model; these have at most {most}")
    slow: dict[str, list[str]] = {}
    for (i, title, quantity), change in fleet.outliers.items():
        if change < 0:
            of = f"the {quantity} value of {title}" if quantity != "typical" else title
            text = f"{of} is {-change:.0%} below the median of this fleet's nodes of its model"
            slow.setdefault(fleet.nodes[i].file, []).append(text)
    return slow
