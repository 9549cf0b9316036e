"""Render many nodes as a page: one row per node, outliers, and what separates groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...judging.run_summary import OF_RUNS, RunSummary
from ...judging.verdict import Verdict
from ...reports.checked_runs import CheckedRun, unique_names
from ...reports.html.comparison import letter
from ...reports.html.headline import banner, date
from ...reports.html.templates import rendered, source
from ...reports.style import Style
from ...reports.values import GLANCE, number
from ...results.read_many import Unreadable
from ...results.settings import NVLINKS
from ...statistics import grouped
from ...units import GB, many
from ...version import __version__
from .analysis import Fleet, TwoGroups, analyse

#: Verdict of some nodes in a sentence: of one node, and of several.
_VERBS = {
    Verdict.FAIL: ("fails", "fail"), Verdict.WARN: ("has a warning", "have warnings"),
    Verdict.BUSY: ("was in use", "were in use"),
    Verdict.INTERRUPTED: ("was interrupted", "were interrupted"),
    Verdict.NOT_JUDGED: ("is not judged", "are not judged"), Verdict.PASS: ("passes", "pass"),
}  # fmt: skip
#: Maximum number of lines of outliers, and of hosts in a line.
_MOST_OUTLIERS, _MOST_HOSTS = 20, 30
#: Maximum number of findings, of hosts of each, and of separating attributes in the first screen.
_MOST_FINDINGS, _FEW_HOSTS, _MOST_SEPARATED = 4, 8, 2


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
