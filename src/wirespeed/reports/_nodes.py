"""Text of ``wirespeed check --from`` with several runs: one row per node, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..judging.fleet import WORDS, FleetFigure, FleetNode
from ..judging.overview import PathKind
from ..units import GB, many
from . import SIMULATED, Style
from ._console import printed
from ._overview import short
from ._signs import SIGNS

#: Style of each verdict in words.
_STYLES = {verdict.word.upper(): sign.style for verdict, sign in SIGNS.items()}
#: Indentation of the cause below a row.
_INDENT = 2


def render(nodes: Sequence[tuple[FleetNode, Sequence[str]]], style: Style) -> str:
    """Render a table of nodes.

    Parameters
    ----------
    nodes : Sequence[tuple[FleetNode, Sequence[str]]]
        Summary of each run, and remarks on its gates and its baseline.
    style : Style
        Width and colour.
    """
    ordered = sorted(nodes, key=lambda one: one[0].order)
    kinds = [str(kind) for kind in PathKind]  # the titles of collectives are none of them, and come last
    titles = sorted(
        dict.fromkeys(figure.title for node, _ in ordered for figure in node.figures),
        key=lambda title: kinds.index(title) if title in kinds else len(kinds),
    )
    labels = _labels([node for node, _ in ordered])
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("GB/s", overflow="fold")
    for title in titles:
        table.add_column("\n".join(title.rsplit(" ", 1)), justify="right", no_wrap=True)
    for label, (node, _) in zip(labels, ordered, strict=True):
        figures = {figure.title: figure for figure in node.figures}
        table.add_row(
            Text(node.word, style=_STYLES[node.word]), Text(label), *(_figure(figures.get(t)) for t in titles)
        )
    parts: list[RenderableType] = [table, ""]
    for label, (node, remarks) in zip(labels, ordered, strict=True):
        if reasons := [*_reasons(node), *remarks]:
            parts.append(Text(f"{label}:", style="bold"))
            parts += [Padding(Text(text), (0, 0, 0, _INDENT)) for text in reasons]
    counts = Counter(node.word for node, _ in ordered)
    total = ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
    parts.append(Text(f"{many(len(ordered), 'run')}: {total}; -v shows the screen of each", style="dim"))
    if any(figure.bad for node, _ in ordered for figure in node.figures):
        parts.append(Text("✖ lowest value of a path that is slower than expected", style="dim"))
    if any(node.simulated for node, _ in ordered):
        parts.append(Text(SIMULATED, style="bold magenta"))
    return printed(style, *parts)


def _figure(figure: FleetFigure | None) -> Text:
    """Return a typical value; of a path with bad values, the lowest with a mark."""
    if figure is None:
        return Text("-", style="dim")
    if figure.bad:
        return Text(f"✖ {short(figure.lowest, GB)}", style="bold red")
    return Text(short(figure.typical, GB))


def _reasons(node: FleetNode) -> list[str]:
    """Return what is wrong with a node."""
    found = [f"{node.sentence}; {node.extent}"] if node.word != "PASS" else []
    found += [f"what to do: {node.step}"] if node.step else []
    return found


def _labels(nodes: Sequence[FleetNode]) -> list[str]:
    """Return the hosts; the names of the files if a host has several runs."""
    hosts, names = [node.host for node in nodes], [Path(node.file).stem for node in nodes]
    return next((ones for ones in (hosts, names) if len(set(ones)) == len(nodes)), [n.file for n in nodes])
