"""Many nodes: a small summary of each run, outliers, and what separates groups of nodes. Pure. Verdicts on
devices: what a judged run says about each GPU and each NUMA node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from ...document import Document
from ...hardware.limits import MATTERS
from ...hardware.network import MachineVertices
from ...hardware.topology import Machine
from ...judging.diagnosis import Finding
from ...judging.judge import Check
from ...judging.judged import Judged
from ...judging.key_figures import KeyFigure
from ...judging.overview import Overview
from ...judging.verdict import Suspect, Verdict, any_of, worst
from ...results.cells import Key, placed
from ...results.settings import attributes, gpus_of
from ...statistics import centre, grouped, median
from ...terminal import one_line

#: Verdicts on runs in words, the worst first.
WORDS = tuple(
    verdict.word.upper() for verdict in Verdict if verdict not in (Verdict.IMPLAUSIBLE, Verdict.WAIVED)
)
#: A node is an outlier if it differs from the median of its peers by this many robust standard deviations,
#: and by this fraction of the median.
OUTLIER_DEVIATIONS, OUTLIER_FRACTION = 5.0, 0.03
#: Fewer nodes have no meaningful deviation.
MIN_PEERS = 5
#: Two groups: minimum number of nodes and fraction of all nodes of each; distance of the medians in sums of
#: both deviations (the halves of one normal distribution are about one such sum apart); empty range between
#: the groups as a fraction of this distance.
_GROUP_NODES, _GROUP_FRACTION, _GROUP_DEVIATIONS, _GROUP_GAP = 3, 0.03, 4.0, 0.2
#: An attribute separates two groups if its values predict the group of this fraction of the nodes of each.
_SEPARATED = 0.9
#: Maximum number of separating attributes, and of values of each.
_MOST_ATTRIBUTES, _MOST_VALUES = 4, 2
#: Maximum length of texts of a summary, and number of its attributes: Documents may come from anybody.
_LONGEST, _LONGEST_VALUE, _MOST_FACTS = 300, 80, 200


@dataclass(frozen=True)
class FleetFigure:
    """A key figure of a node.

    Attributes:
        title: What the values are.
        testcases: Testcases that measured them; only values of the same testcases are compared.
        typical, lowest: Median and smallest value, in B/s.
        bad: Number of values of this kind of path that are worse than expected, or failed.
        worst: The value that stands for the kind of path, in B/s; None if a path failed.
    """

    title: str
    testcases: tuple[str, ...]
    typical: float
    lowest: float
    bad: int = 0
    worst: float | None = None


@dataclass(frozen=True)
class FleetNode:
    """Summary of a run of one node.

    Attributes:
        file: File of the run.
        host: Name of the host, or of the machine if the host is unknown.
        started: Start, as ISO 8601 text.
        model: CPU and GPUs; nodes of one model are compared.
        word: Verdict, one of ``WORDS``.
        sentence, extent: The cause, and how much of the run it concerns.
        figures: Key figures.
        attributes: What may separate groups of nodes: versions, settings, facts.
        simulated: Whether the machine is simulated.
        step: What to do; empty if there is nothing to do.
        topic: What the sentence is about, without the numbers that differ between nodes with the same fault.
    """

    file: str
    host: str
    started: str
    model: str
    word: str
    sentence: str
    extent: str
    figures: tuple[FleetFigure, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    step: str = ""
    topic: str = ""

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Sort key: the worst first."""
        return WORDS.index(self.word), -sum(figure.bad for figure in self.figures), self.host, self.file


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

    nodes: tuple[FleetNode, ...]
    models: Mapping[str, tuple[int, ...]]
    groups: tuple[TwoGroups, ...]
    outliers: Mapping[tuple[int, str, str], float]

    @cached_property
    def labels(self) -> list[str]:
        """What distinguishes the nodes, for people."""
        return labels(self.nodes)


#: Quantity of a figure -> its value.
QUANTITIES: Mapping[str, Callable[[FleetFigure], float]] = {
    "typical": lambda figure: figure.typical,
    "lowest": lambda figure: figure.lowest,
}


def labels(nodes: Sequence[FleetNode]) -> list[str]:
    """The hosts; the names of the files if a host has several runs."""
    hosts, names = [node.host for node in nodes], [Path(node.file).stem for node in nodes]
    files = [node.file for node in nodes]
    return next((texts for texts in (hosts, names) if len(set(texts)) == len(nodes)), files)


def node_summary(judged: Judged) -> FleetNode:
    """Return the summary of a run."""
    document, view = judged.document, judged.overview
    machine, named = document.machine, [*attributes(document).items()]
    return FleetNode(
        judged.file,
        _short(document.hostname or machine.name or "unknown host"),
        _short(document.started),
        _short(_model(machine)),
        view.word,
        _short(view.sentence),
        _short(view.extent),
        tuple(
            FleetFigure(
                _short(figure.title),
                figure.testcases,
                figure.typical.value or 0.0,
                figure.slowest.value or 0.0,
                figure.bad + len(figure.failed),
                None if figure.failed else figure.lead.value,
            )
            for figure in view.figures
        ),
        {_short(name, _LONGEST_VALUE): _short(text, _LONGEST_VALUE) for name, text in named[:_MOST_FACTS]},
        document.simulated,
        _short(view.advice.do),
        _short(_topic(view, judged.check)),
    )


def _topic(view: Overview, check: Check) -> str:
    """Return what is wrong, without numbers."""
    if check.stale:
        return "the run is older than allowed"
    if view.by_finding or check.wrong:
        return view.sentence
    if check.culprits:
        return f"{any_of(check.culprits[0].suspects)} is slower than expected"
    return view.sentence if view.word in ("BUSY", "INTERRUPTED") else view.advice.do or view.sentence


def analyse(nodes: Iterable[FleetNode]) -> Fleet:
    """Return the nodes in order, with outliers and groups.

    A node is compared with the nodes of its model whose figure is of the same testcases. If these form two
    groups, it is compared with its group only.
    """
    ordered = sorted(nodes, key=lambda node: node.order)
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
    """Return the outliers: index -> difference from the median, as a fraction of the median.

    Median and deviation are those of values without outliers, which are cut off until none is left.
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
    """Return the largest value of the lower of two groups; None if the values are one group.

    Of all divisions with an empty range between the groups, the one with the smallest sum of absolute
    deviations from both medians counts, which single outliers hardly influence.
    """
    ordered = sorted(values)
    n = len(ordered)
    fewest = max(_GROUP_NODES, round(_GROUP_FRACTION * n))
    sums = [0.0, *accumulate(ordered)]

    def distance(at: int) -> float:
        return median(ordered[at:]) - median(ordered[:at])

    def cost(first: int, end: int) -> float:
        half = (end - first) // 2
        return (sums[end] - sums[end - half]) - (sums[first + half] - sums[first])

    possible = [
        i
        for i in range(fewest, n - fewest + 1)
        if ordered[i] - ordered[i - 1] > max(_GROUP_GAP * distance(i), 0.0)
    ]
    if not possible:
        return None
    at = min(possible, key=lambda i: cost(0, i) + cost(i, n))
    (low, low_deviation), (high, high_deviation) = centre(ordered[:at]), centre(ordered[at:])
    least = max(OUTLIER_FRACTION * high, _GROUP_DEVIATIONS * (low_deviation + high_deviation))
    return ordered[at - 1] if high - low > least else None


def separating(
    slow: Sequence[Mapping[str, str]], fast: Sequence[Mapping[str, str]]
) -> tuple[Separation, ...]:
    """Return the attributes that separate two groups best; none if no attribute separates them well.

    A value that only one node has predicts nothing: serial numbers separate any two groups.

    Args:
        slow, fast: Attributes of the nodes of both groups.
    """
    separations = []
    for name in dict.fromkeys(name for node in (*slow, *fast) for name in node):
        low, high = (Counter(of_node.get(name, "unknown") for of_node in group) for group in (slow, fast))
        shares = (sum(_own(low, high).values()) / len(slow), sum(_own(high, low).values()) / len(fast))
        if min(shares) >= _SEPARATED:
            separations.append(Separation(name, _typical_of(low, high), _typical_of(high, low), min(shares)))
    best = max((separation.share for separation in separations), default=0.0)
    return tuple(separation for separation in separations if separation.share == best)[:_MOST_ATTRIBUTES]


def _own(counts: Counter[str], other: Counter[str]) -> dict[str, int]:
    """Return the values that predict a group, those more frequent in it than in the other; with counts."""
    return {value: n for value, n in counts.most_common() if n > other[value] and n + other[value] > 1}


def _typical_of(counts: Counter[str], other: Counter[str]) -> str:
    """Return the most frequent values that predict a group."""
    values = list(_own(counts, other))
    return " or ".join(values[:_MOST_VALUES]) + (" or others" if len(values) > _MOST_VALUES else "")


def _groups(
    title: str, quantity: str, model: str, values: Mapping[int, float], nodes: Sequence[FleetNode]
) -> TwoGroups | None:
    """Return the two groups that nodes form in a figure; None if they are one group."""
    limit = boundary(values.values())
    if limit is None:
        return None
    slow = tuple(i for i, value in values.items() if value <= limit)
    fast = tuple(i for i, value in values.items() if value > limit)
    of_slow, of_fast = (median(sorted(values[i] for i in side)) for side in (slow, fast))
    found = separating(*([nodes[i].attributes for i in side] for side in (slow, fast)))
    return TwoGroups(title, quantity, model, slow, fast, of_slow, of_fast, found)


def _model(machine: Machine) -> str:
    """Return CPU, GPUs and ranks. Unlike ``model_of``, without what settings of the firmware change."""
    ranks = f"{len(machine.ranks)} ranks" if machine.ranks else ""
    return "; ".join(filter(None, (gpus_of(machine), machine.cpu or "CPU of unknown model", ranks)))


def _short(text: str, longest: int = _LONGEST) -> str:
    """Return a text as one line of limited length."""
    return one_line(text if len(text) <= longest else text[: longest - 1] + "…")


def _devices(vertices: MachineVertices) -> tuple[str, ...]:
    return tuple(vertex.name for vertex in (*vertices.gpus, *vertices.nodes, *vertices.others))


def devices_of_cells(document: Document) -> dict[Key, frozenset[str]]:
    """Return the GPUs and NUMA nodes that each cell of a run uses."""
    links, known = document.machine.links, set(_devices(MachineVertices(document.machine)))
    used: dict[tuple[tuple[int, float, float], ...], frozenset[str]] = {}  # many cells share their links
    devices = {}
    for measured in placed(document):
        if measured.cell.links not in used:
            used[measured.cell.links] = frozenset(
                end for i, taken, _ in measured.cell.links if taken >= MATTERS
                for end in links[i].ends if end in known
            )  # fmt: skip
        devices[measured.key] = used[measured.cell.links] | ({measured.key.row, measured.key.column} & known)
    return devices


def device_verdicts(judged: Judged, cells: Mapping[Key, frozenset[str]]) -> dict[str, Verdict]:
    """Return the verdict on each GPU and NUMA node; ``unknown`` for one without a judged value.

    A value that is worse than expected counts for the device that explains it: a culprit, or the owner of a
    slow link to a switch. It counts for neither end of a slow link or path between two devices. If nothing
    explains it, it counts for the device that it uses; of several, one may be slow, and none is judged.
    A device that a cause, wrong data or a defect names never passes.

    Args:
        judged: The run.
        cells: Devices of each cell (``devices_of_cells``).
    """
    document, check, vertices = judged.document, judged.check, MachineVertices(judged.document.machine)
    by_device: dict[str, set[Verdict]] = {device: set() for device in _devices(vertices)}
    doubtful: set[str] = set()
    for judgement in check.judgements:
        if judgement.verdict in (Verdict.WAIVED, Verdict.INTERRUPTED) or not judgement.key.column:
            continue
        touched = cells.get(judgement.key, frozenset())
        if judgement.verdict.is_bad and judgement.culprits:
            touched = frozenset[str]().union(*(_blamed(s, by_device) for s in judgement.culprits))
        elif judgement.verdict.is_bad and judgement.value is not None and len(touched) > 1:
            doubtful |= touched
            continue
        for device in touched:
            by_device[device].add(judgement.verdict)
    for device, verdict in (*_wrong(check), *_named(judged.diagnosis.findings, vertices)):
        if device in by_device:
            by_device[device].add(verdict)
    busy = {device for result in document.testcases for device in result.busy}
    found = {device: _worst(verdicts, device in busy) for device, verdicts in by_device.items()}
    return {
        device: Verdict.UNKNOWN if verdict is Verdict.PASS and device in doubtful else verdict
        for device, verdict in found.items()
    }


def _blamed(suspect: Suspect, devices: Container[str]) -> frozenset[str]:
    """Return the device that a suspect is, or that owns it; none of a path, or link, between two devices."""
    ends = frozenset(end for end in suspect.ends if end in devices)
    return ends if suspect.is_device or (suspect.is_link and len(ends) == 1) else frozenset()


def device_lowest(figure: KeyFigure, judged: Judged, cells: Mapping[Key, frozenset[str]]) -> dict[str, float]:
    """Return the lowest value of a kind of path for each device that it ends at, in B/s.

    These are the values that the key figure is the median of. Collectives use all devices at once.
    """
    vertices = MachineVertices(judged.document.machine)
    kinds = {name: vertices.kind(name) for name in _devices(vertices)}
    ends = [name for name, kind in kinds.items() if kind and kind.name == figure.kind.device]
    lowest: dict[str, float] = {}
    for judgement in judged.check.judgements:
        if judgement.value is None or judgement.key.testcase not in figure.testcases or judgement.key.table:
            continue
        for device in cells.get(judgement.key, frozenset()).intersection(ends):
            lowest[device] = min(lowest.get(device, judgement.value), judgement.value)
    return {device: lowest[device] for device in ends if device in lowest}


def _worst(verdicts: set[Verdict], busy: bool) -> Verdict:
    """Return the worst verdict. Unjudged values of idle devices count only if there are no others."""
    if busy and Verdict.BUSY in verdicts:
        return Verdict.FAIL if any(verdict.is_failure for verdict in verdicts) else Verdict.BUSY
    return worst({verdict for verdict in verdicts if verdict.is_judged} or verdicts)


def _wrong(check: Check) -> Iterator[tuple[str, Verdict]]:
    """Yield the devices that delivered wrong data; the ends of the paths if no device explains it."""
    for wrong in check.wrong:
        for device in (wrong.device,) if wrong.device else {end for path in wrong.paths for end in path}:
            yield device, Verdict.FAIL


def _named(findings: Iterable[Finding], vertices: MachineVertices) -> Iterator[tuple[str, Verdict]]:
    """Yield the GPUs at the place of each cause: one that explains slow values fails, another warns."""
    for finding in findings:
        if not finding.place:
            continue
        for vertex in (*vertices.gpus_at(finding.place), vertices.of(finding.place)):
            if finding.host in ("", vertex.host):
                yield vertex.name, Verdict.FAIL if finding.cells and finding.likely else Verdict.WARN
