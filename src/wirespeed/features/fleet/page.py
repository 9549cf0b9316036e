"""Render many nodes as a page: one row per node, strip plots, outliers, and what separates groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...judging.run_summary import OF_RUNS, RunSummary
from ...judging.verdict import Verdict
from ...reports.checked_runs import CheckedRun, unique_names
from ...reports.html.charts import Element, add, drawing, fitted, markup
from ...reports.html.comparison import letter
from ...reports.html.headline import banner, date
from ...reports.html.templates import rendered, source
from ...reports.looks import shown
from ...reports.plot import steps
from ...reports.style import Style
from ...reports.values import GLANCE, number
from ...results.read_many import Unreadable
from ...results.settings import NVLINKS
from ...statistics import grouped, median
from ...units import GB, many
from ...version import __version__
from .analysis import QUANTITIES, Fleet, TwoGroups, analyse

if TYPE_CHECKING:
    from markupsafe import Markup

#: Verdict of some nodes in a sentence: of one node, and of several.
_VERBS = {
    Verdict.FAIL: ("fails", "fail"), Verdict.WARN: ("has a warning", "have warnings"),
    Verdict.BUSY: ("was in use", "were in use"),
    Verdict.INTERRUPTED: ("was interrupted", "were interrupted"),
    Verdict.NOT_JUDGED: ("is not judged", "are not judged"), Verdict.PASS: ("passes", "pass"),
}  # fmt: skip
#: Shape of a dot by CSS class, as a path around its centre.
_SHAPES = {
    "pass": "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0",
    "fail": "M-3.5 -3.5L3.5 3.5M3.5 -3.5L-3.5 3.5",
    "warn": "M-3.5 3L3.5 3L0 -3.5Z",
    "busy": "M-3.5 3L3.5 3L0 -3.5Z",
    "unknown": "M-2.5 -2.5H2.5V2.5H-2.5Z",
}
#: Pixels of a distribution: width, margins, heights of its name, its dots or bars, and the axis.
_WIDTH, _LEFT, _RIGHT, _NAME, _BAND, _AXIS = 440.0, 20.0, 48.0, 20.0, 72.0, 22.0
#: Pixels of a dot, which is also the width of a bar.
_DOT = 6.0
#: Maximum number of models in a strip plot, of lines of outliers, and of hosts in a line.
_MOST_MODELS, _MOST_OUTLIERS, _MOST_HOSTS = 6, 20, 30
#: Maximum number of findings, of hosts of each, and of separating attributes in the first screen.
_MOST_FINDINGS, _FEW_HOSTS, _MOST_SEPARATED = 4, 8, 2
#: Minimum length of an axis as a fraction of its values: smaller differences are noise.
_AXIS_FRACTION = 0.1
_STRIPS = {"typical": "median of each node", "lowest": "lowest value of each node"}


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """The page of many checked runs."""
    return fleet_page([run.node for run in runs], list(map(str, unreadable)))


def fleet_page(nodes: Sequence[RunSummary], failures: Sequence[str] = ()) -> str:
    """Render a page of many nodes, which contains no Documents.

    Args:
        nodes: Summaries of the runs.
        failures: A line for each file that could not be read.
    """
    fleet = analyse(nodes)
    outliers, names = _outliers(fleet), unique_names([node.file for node in fleet.nodes])
    titles = list(dict.fromkeys(figure.title for node in fleet.nodes for figure in node.figures))
    counts = Counter(node.verdict for node in fleet.nodes)
    findings, dates = _findings(fleet), sorted(date(node.started) for node in fleet.nodes)
    worst = next((verdict for verdict in OF_RUNS if counts[verdict]), Verdict.NOT_JUDGED)
    warning = banner([node.simulated for node in fleet.nodes])
    word = worst.heading + (" (simulated)" if warning else "")
    between = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    letters = {model: letter(i) for i, model in enumerate(fleet.models)}
    return rendered(
        f"{__package__}:fleet.html",
        source("style.css") + source(f"{__package__}:fleet.css"),
        source(f"{__package__}:fleet.js"),
        total=len(fleet.nodes),
        title=" · ".join(filter(None, (word, many(len(fleet.nodes), "node"), *dates[-1:]))),
        worst=worst,
        sentence=_sentence(counts, len(fleet.nodes)),
        findings=findings[:_MOST_FINDINGS],
        more_findings=len(findings[_MOST_FINDINGS:]),
        separated=_separated(fleet),
        facts=[
            *(fleet.models if len(fleet.models) == 1 else [many(len(fleet.models), "model")]),
            f"{between} · wirespeed {__version__}",
        ],
        simulated=warning,
        models=[
            (letters[model], model, many(len(members), "node")) for model, members in fleet.models.items()
        ],
        groups=[_group(fleet, letters, two) for two in fleet.groups],
        outliers=outliers[:_MOST_OUTLIERS],
        more_outliers=sum(len(hosts) for hosts, _ in outliers[_MOST_OUTLIERS:]),
        most=_MOST_HOSTS,
        few=_FEW_HOSTS,
        failures=failures,
        strips=[_strips(fleet, letters, title) for title in titles],
        more_models=max(0, len(fleet.models) - _MOST_MODELS),
        titles=titles,
        nodes=fleet.nodes,
        labels=fleet.labels,
        files=names,
        figures=[{figure.title: figure for figure in node.figures} for node in fleet.nodes],
        notes=partial(_notes, fleet),
        letters=letters,
        ranks=OF_RUNS,
        date=date,
    )


def _sentence(counts: Counter[Verdict], total: int) -> str:
    """How many nodes have each verdict, the worst first."""
    parts = [f"{count} {_VERBS[verdict][count > 1]}" for verdict in OF_RUNS if (count := counts[verdict])]
    first, *others = parts
    number_, _, verb = first.partition(" ")
    return "; ".join((f"{number_} of {many(total, 'node')} {verb}", *others))


def _findings(fleet: Fleet) -> list[tuple[Verdict, str, str, list[tuple[int, str]]]]:
    """Verdict, what is wrong, what to do and with which nodes: the worst, then what concerns most nodes."""
    nodes = ((i, node) for i, node in enumerate(fleet.nodes) if not node.passes)
    indices_of = grouped(((node.verdict, node.sentence), i) for i, node in nodes)
    ordered = sorted(indices_of.items(), key=lambda item: (item[0][0].rank, -len(item[1])))
    return [
        (verdict, text, next(filter(None, (fleet.nodes[i].step for i in indices)), ""),
         [(i, fleet.labels[i]) for i in indices])
        for (verdict, text), indices in ordered
    ]  # fmt: skip


def _separated(fleet: Fleet) -> list[str]:
    """The groups of nodes that an attribute separates, one sentence for each attribute."""
    slower_of = grouped(
        ((by.attribute, by.slow, by.fast),
         f"{two.title} is {1 - two.slow_median / two.fast_median:.0%} slower")
        for two in fleet.groups for by in two.separations[:1]
    )  # fmt: skip
    return [
        f"With {_named(attribute, slow)}, {' and '.join(slower)} than with {_named(attribute, fast)}"
        for (attribute, slow, fast), slower in list(slower_of.items())[:_MOST_SEPARATED]
    ]


def _named(attribute: str, value: str) -> str:
    """The value of an attribute with its name, unless it has it."""
    return value if attribute == NVLINKS else f"{attribute} {value}"


def _group(fleet: Fleet, letters: Mapping[str, str], two: TwoGroups) -> dict[str, Any]:
    """The template's variables for two groups."""
    title = two.title if two.quantity == "typical" else f"{two.title}, lowest value"
    of_model = f" (model {letters[two.model]})" if two.model and len(letters) > 1 else ""
    return {
        "title": f"{title}{of_model}",
        "text": f"{many(len(two.slow), 'node')} at {number(two.slow_median, GB, GLANCE)} GB/s, "
        f"{many(len(two.fast), 'node')} at {number(two.fast_median, GB, GLANCE)} GB/s "
        f"({1 - two.slow_median / two.fast_median:.0%} slower)",
        "separations": two.separations,
        "hosts": [(i, fleet.labels[i]) for i in two.slow],
    }


def _outliers(fleet: Fleet) -> list[tuple[list[tuple[int, str]], str]]:
    """The outliers: indices and hosts with the same differences, the largest difference first."""
    by_node = grouped(
        (i, (change, f"{title} {'' if quantity == 'typical' else 'lowest '}{_change(change)}"))
        for (i, title, quantity), change in fleet.outliers.items()
    )
    ordered = sorted(by_node.items(), key=lambda item: -max(abs(change) for change, _ in item[1]))
    alike = grouped(
        ("; ".join(text for _, text in differences), (i, fleet.labels[i])) for i, differences in ordered
    )
    return [(hosts, text) for text, hosts in alike.items()]


def _change(change: float) -> str:
    """A difference from the peers, such as ``12% below peers``."""
    return f"{abs(change):.0%} {'below' if change < 0 else 'above'} peers"


def _notes(fleet: Fleet, index: int, title: str) -> list[str]:
    """How a key figure of a node differs from those of its peers."""
    return [
        f"{'▼' if change < 0 else '▲'} {name}{_change(change)}"
        for quantity, name in (("typical", ""), ("lowest", "lowest "))
        if (change := fleet.outliers.get((index, title, quantity)))
    ]


def _strips(fleet: Fleet, letters: Mapping[str, str], title: str) -> dict[str, Any]:
    """Title and chart of a key figure: two distributions of the nodes of each model."""
    strips = []
    for model in list(fleet.models)[:_MOST_MODELS]:
        figures = {
            i: figure
            for i in fleet.models[model]
            for figure in fleet.nodes[i].figures
            if figure.title == title
        }
        for quantity, value_of in QUANTITIES.items():
            if figures:
                name = f"{letters[model]}: {_STRIPS[quantity]}" if len(letters) > 1 else _STRIPS[quantity]
                strips.append((name, {i: value_of(figure) / GB for i, figure in figures.items()}))
    shown = [value for _, values in strips for value in values.values()]
    return {"title": title, "chart": _chart(fleet, title, strips) if shown else ""}


def _chart(fleet: Fleet, title: str, strips: Sequence[tuple[str, Mapping[int, float]]]) -> Markup:
    """Distributions with a common axis."""
    low, high = _range(value for _, values in strips for value in values.values())
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)
    height = len(strips) * (_NAME + _BAND) + _AXIS
    svg = drawing(_WIDTH, height, f"{title}, GB/s: distribution of the nodes")
    for tick in (level for level in steps(high, low) if low <= level <= high):
        x = _LEFT + (tick - low) * scale
        add(svg, "line", "grid", x1=x, y1=_NAME, x2=x, y2=height - _AXIS)
        add(svg, "text", "tick middle", f"{tick:.4g}", x=x, y=height - 6)
    add(svg, "text", "tick end", "GB/s", x=_WIDTH - 2, y=height - 6)
    for row, (name, values) in enumerate(strips):
        top = row * (_NAME + _BAND)
        middle = median(sorted(values.values()))
        x = _LEFT + (middle - low) * scale
        add(svg, "line", "median", x1=x, y1=top + _NAME, x2=x, y2=top + _NAME + _BAND)
        base = top + _NAME + _BAND
        add(svg, "line", "axis", x1=_LEFT, y1=base, x2=_WIDTH - _RIGHT, y2=base)
        places = {i: _LEFT + (value - low) * scale for i, value in values.items()}
        tallest = _distribution(svg, fleet, values, places, base)
        bars = f"; bars up to {many(tallest, 'node')}" if tallest else ""
        label = f"{name}; median {number(middle, digits=GLANCE)} GB/s{bars}"
        add(svg, "text", "soft", fitted(label, _WIDTH + _RIGHT), x=_LEFT, y=top + 13)
    return markup(svg)


def _distribution(
    svg: Element, fleet: Fleet, values: Mapping[int, float], places: Mapping[int, float], base: float
) -> int:
    """Stack a dot for each node; of many nodes those that pass are bars, and the others marks before them.

    Returns:
        The number of nodes of the highest bar; 0 without bars.
    """
    columns = grouped((round(places[i] / _DOT), i) for i in sorted(places))
    tallest = max(map(len, columns.values()))
    as_bars = tallest * _DOT > _BAND
    for column, members in columns.items():
        x = column * _DOT
        dots = [i for i in members if not as_bars or not fleet.nodes[i].passes]
        if len(dots) < len(members):
            passing = [values[i] for i in members if fleet.nodes[i].passes]
            tall = max(1.5, len(passing) / tallest * _BAND)
            bar = add(svg, "rect", "count", x=x - _DOT / 2, y=base - tall, width=_DOT - 0.5, height=tall)
            ends = dict.fromkeys(number(end, digits=GLANCE) for end in (min(passing), max(passing)))
            add(bar, "title", text=f"{' to '.join(ends)} GB/s: {many(len(passing), 'node')}, PASS")
        step = min(_DOT, _BAND / max(1, len(dots)))
        for k, i in enumerate(dots):
            _dot(svg, fleet, i, values[i], x, base - _DOT / 2 - k * step)
    return tallest if as_bars else 0


def _dot(svg: Element, fleet: Fleet, index: int, value: float, x: float, y: float) -> None:
    """Add the dot of a node; the shape shows the verdict."""
    node = fleet.nodes[index]
    css = shown(node.verdict).css
    where = f"translate({x:.1f} {y:.1f})"
    dot = add(svg, "path", f"dot {css}", d=_SHAPES[css], transform=where, data_node=str(index))
    add(dot, "title", text=f"{fleet.labels[index]}: {number(value, digits=GLANCE)} GB/s, {node.word}")


def _range(values: Iterable[float]) -> tuple[float, float]:
    values = list(values)
    low, high = min(values), max(values)
    margin = max((high - low) * 0.03, (high * _AXIS_FRACTION - (high - low)) / 2) or 1.0
    return max(0.0, low - margin), high + margin
