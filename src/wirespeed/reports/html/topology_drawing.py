"""Diagram of the machine: NUMA nodes above, GPUs below, switches between; links with their use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...judging.verdicts import Verdict
from ...topology import LinkKind, Machine
from ...units import GB, format_size, many
from .._plots import short
from .link_use import Use
from .svg import Element, add, drawing, fitted

#: Sign next to the colour of each verdict.
SIGNS = {
    Verdict.PASS: "✓", Verdict.WARN: "▲", Verdict.FAIL: "✖", Verdict.IMPLAUSIBLE: "‼", Verdict.UNKNOWN: "?",
    Verdict.BUSY: "?", Verdict.WAIVED: "–",
}  # fmt: skip
_MARGIN, _GAP = 16.0, 14.0
_HOST_HEIGHT, _SWITCH_HEIGHT, _GPU_HEIGHT = 62.0, 30.0, 62.0
#: GPUs per row, and the minimum and maximum width of each.
_PER_ROW, _LEAST, _MOST = 8, 118.0, 210.0
#: With more links between GPUs than this, labels would overlap; the table has the values.
_LABELLED = 6
_LABEL_LETTER = 5.4


@dataclass(frozen=True)
class Box:
    """Position of a vertex, in pixels.

    Parameters
    ----------
    x, y : float
        Left and upper edge.
    width, height : float
        Size.
    """

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Horizontal centre."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.y + self.height


@dataclass
class _Vertices:
    """The vertices of a machine by kind, in order.

    Parameters
    ----------
    hosts, bridges, gpus, fabrics : list[str]
        NUMA nodes, PCIe switches and bridges, GPUs, NVLink switches and networks.
    """

    hosts: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    fabrics: list[str] = field(default_factory=list)


def css_of(verdict: Verdict) -> str:
    """Return the CSS class of a verdict."""
    return "unknown" if verdict is Verdict.WAIVED else str(verdict)


def used(uses: Sequence[Use]) -> str:
    """Return measured rate of limit, forward / backward, in GB/s."""
    measured = [short(use.measured / GB) if use.measured else "–" for use in uses]
    capacities = dict.fromkeys(use.link.capacity for use in uses)
    limits = [f"{capacity / GB:.4g}" if capacity else "?" for capacity in capacities]
    shown = measured[:1] if len(set(measured)) == 1 else measured
    return f"{' / '.join(shown)} of {' / '.join(limits)}"


def worst(uses: Sequence[Use]) -> Verdict:
    """Return the worst verdict of some links; unknown only if all are unknown."""
    known = [use.verdict for use in uses if use.verdict not in (Verdict.UNKNOWN, Verdict.WAIVED)]
    return min(known, key=lambda v: v.rank) if known else Verdict.UNKNOWN


def draw(machine: Machine, uses: Sequence[Use]) -> tuple[Element | None, bool]:
    """Return the diagram, None if no parts of the machine are known; and whether every link has a label.

    Parameters
    ----------
    machine : Machine
        The machine.
    uses : Sequence[Use]
        Its links with their use.

    Returns
    -------
    tuple[Element or None, bool]
        The diagram, and whether each link has a label.
    """
    vertices = _sorted(machine)
    if not (vertices.hosts or vertices.gpus):
        return None, True
    return _Drawing(machine, uses, vertices).svg()


def _sorted(machine: Machine) -> _Vertices:
    """Return the vertices of a machine by kind."""
    found = _Vertices(hosts=[node.name for node in machine.numa])
    gpus = {f"{rank.index}/{rank.device}" for rank in machine.ranks if not rank.cpus}
    if not gpus:
        gpus = {gpu.name for gpu in machine.gpus}
    ends = dict.fromkeys(end for link in machine.links for end in (link.source, link.destination))
    named = [gpu.name for gpu in machine.gpus if gpu.name in gpus]
    found.gpus = named or [end for end in ends if end in gpus]
    nvlink = {
        end
        for link in machine.links
        if link.kind in (LinkKind.NVLINK, LinkKind.NETWORK)
        for end in (link.source, link.destination)
    }
    for end in ends:
        if end not in found.hosts and end not in found.gpus:
            (found.fabrics if end in nvlink else found.bridges).append(end)
    return found


class _Drawing:
    """Place the boxes, then draw links below and labels above them."""

    def __init__(self, machine: Machine, uses: Sequence[Use], vertices: _Vertices) -> None:
        self.machine = machine
        self.vertices = vertices
        self.memory = {u.link.source: u for u in uses if u.link.kind is LinkKind.MEMORY}
        self.between: dict[tuple[str, str], list[Use]] = {}
        for use in uses:
            if use.link.kind is not LinkKind.MEMORY:
                ends = (use.link.source, use.link.destination)
                key = ends if ends[::-1] not in self.between else ends[::-1]
                self.between.setdefault(key, []).append(use)
        self.boxes: dict[str, Box] = {}
        self.buses: dict[str, list[Box]] = {}
        self.width = self._width()
        self.height = self._place()

    def _width(self) -> float:
        """Return the width of the diagram."""
        columns = min(_PER_ROW, max(len(self.vertices.gpus), 1))
        each = _MOST if columns <= 4 else _LEAST
        gpus = columns * each + (columns - 1) * self._gap(columns)
        hosts = len(self.vertices.hosts) * 190.0 + (len(self.vertices.hosts) - 1) * 150.0
        return max(gpus, hosts, 420.0) + 2 * _MARGIN

    def _gap(self, columns: int) -> float:
        """Return the gap between GPUs; directly linked GPUs need room for a label."""
        direct = columns == 2 and not self.vertices.fabrics
        return 190.0 if direct else 40.0 if columns <= 4 else _GAP

    def _place(self) -> float:
        """Place all boxes; return the height of the diagram."""
        y = _MARGIN
        self._row(self.vertices.hosts, y, _HOST_HEIGHT, 190.0, 150.0)
        y += _HOST_HEIGHT if self.vertices.hosts else 0.0
        y += 44 if self.vertices.bridges or self.vertices.gpus else 0.0
        if self.vertices.bridges:
            each = min(150.0, (self.width - 2 * _MARGIN) / len(self.vertices.bridges) - _GAP)
            self._row(self.vertices.bridges, y, _SWITCH_HEIGHT, max(26.0, each), None)
            y += _SWITCH_HEIGHT + 48
        gpus = self.vertices.gpus
        lonely = len(self.vertices.fabrics) == 1
        for start in range(0, len(gpus), _PER_ROW):
            row = gpus[start : start + _PER_ROW]
            columns = min(_PER_ROW, len(gpus))
            self._row(row, y, _GPU_HEIGHT, _MOST if columns <= 4 else _LEAST, self._gap(columns))
            y += _GPU_HEIGHT + 14
            if lonely:
                y += 36
                bus = Box(_MARGIN / 2, y, self.width - _MARGIN, 20)
                self.buses.setdefault(self.vertices.fabrics[0], []).append(bus)
                y += 20 + 40
        direct = [pair for pair in self.between if set(pair) <= set(gpus)]
        if len(direct) > 1 or (direct and len(gpus) > 2):
            y += 150
        if self.vertices.fabrics and not lonely:
            y += 60
            self._row(self.vertices.fabrics, y, _SWITCH_HEIGHT, 110.0, None)
            y += _SWITCH_HEIGHT
        return y + 4

    def _row(self, names: list[str], y: float, height: float, each: float, gap: float | None) -> None:
        """Place boxes side by side, centred; without a gap, spread them over the width."""
        if not names:
            return
        if gap is None:
            step = (self.width - 2 * _MARGIN) / len(names)
            for i, name in enumerate(names):
                self.boxes[name] = Box(_MARGIN + (i + 0.5) * step - each / 2, y, each, height)
            return
        x = (self.width - len(names) * each - (len(names) - 1) * gap) / 2
        for i, name in enumerate(names):
            self.boxes[name] = Box(x + i * (each + gap), y, each, height)

    def svg(self) -> tuple[Element, bool]:
        """Return the diagram, and whether all its links have a label."""
        title = (
            f"{many(len(self.vertices.hosts), 'NUMA node')}, {many(len(self.vertices.gpus), 'GPU')}, "
            f"{many(len(self.vertices.bridges) + len(self.vertices.fabrics), 'switch', 'switches')} "
            "and their links; "
            "the table of links has the same values"
        )
        svg = drawing(self.width, self.height, title)
        labels: list[tuple[float, float, Sequence[Use]]] = []
        for name, buses in self.buses.items():
            self._bus(svg, name, buses)
        several = len([pair for pair in self.between if set(pair) <= set(self.vertices.gpus)])
        for ends, uses in self.between.items():
            self._link(svg, ends, uses, labels, labelled=several <= _LABELLED)
        for name, box in self.boxes.items():
            self._box(svg, name, box)
        for x, y, joined in labels:
            verdict = worst(joined)
            text = f"{SIGNS[verdict]} {used(joined)}"
            wide = len(text) * _LABEL_LETTER
            add(svg, "rect", "halo", x=x - wide / 2, y=y - 11, width=wide, height=14)
            add(svg, "text", f"label middle {css_of(verdict)}", text, x=x, y=y)
        return svg, several <= _LABELLED

    def _bus(self, svg: Element, name: str, buses: list[Box]) -> None:
        """Draw a switch to which all GPUs are linked as bars."""
        for box in buses:
            add(svg, "rect", "box", x=box.x, y=box.y, width=box.width, height=box.height, rx=4)
            text = fitted(name, box.width - 20)
            add(svg, "text", "inside middle", text, x=box.middle, y=box.y + 14)
        for above, below in pairwise(buses):
            x = above.x + above.width - 2
            add(svg, "line", "axis", x1=x, x2=x, y1=above.bottom, y2=below.y)

    def _link(
        self, svg: Element, ends: tuple[str, str], uses: list[Use],
        labels: list[tuple[float, float, Sequence[Use]]], *, labelled: bool,
    ) -> None:  # fmt: skip
        """Draw the links between two vertices."""
        a, b = (self._end(end, other) for end, other in (ends, ends[::-1]))
        if a is None or b is None:
            return
        (upper, lower) = (a, b) if a.y <= b.y else (b, a)
        if upper.y == lower.y:
            path, at = self._sideways(upper, lower, ends)
            show = labelled
        else:
            x = self._column(upper, lower)
            path = f"M{x[0]:.1f},{upper.bottom:.1f} L{x[1]:.1f},{lower.y:.1f}"
            at = (self._label_x(x, upper, lower), self._label_y(upper, lower))
            show = True
        verdict = worst(uses)
        line = add(svg, "path", f"link {css_of(verdict)}", d=path)
        words = "; ".join(
            f"{use.link.kind} {use.link.source} to {use.link.destination}: {used([use])} GB/s, {use.verdict}"
            for use in uses
        )
        add(line, "title", text=words)
        if show:
            labels.append((*at, uses))

    def _end(self, name: str, other: str) -> Box | None:
        """Return the position of a vertex; for a bus, the piece below the other end."""
        if name not in self.buses:
            return self.boxes.get(name)
        box = self.boxes.get(other)
        return next((b for b in self.buses[name] if box is not None and b.y > box.y), None)

    def _column(self, upper: Box, lower: Box) -> tuple[float, float]:
        """Return the x positions at which a link leaves the upper and reaches the lower box."""
        if lower.width > 2 * upper.width:
            return upper.middle, upper.middle
        below = lower.middle
        inside = min(max(below, upper.x + 12), upper.x + upper.width - 12)
        return inside, below

    def _label_x(self, x: tuple[float, float], upper: Box, lower: Box) -> float:
        """Return the horizontal position of the label of a link."""
        return x[1] if lower.width < 2 * upper.width else x[0]

    def _label_y(self, upper: Box, lower: Box) -> float:
        """Return the vertical position of the label of a link."""
        return lower.y - 10 if lower.width < 2 * upper.width else (upper.bottom + lower.y) / 2 + 4

    def _sideways(self, a: Box, b: Box, ends: tuple[str, str]) -> tuple[str, tuple[float, float]]:
        """Return path and position of the label of a link between neighbours."""
        left, right = (a, b) if a.x <= b.x else (b, a)
        beside = right.x - left.x - left.width
        hosts = set(ends) <= set(self.vertices.hosts)
        if beside >= 120 and (hosts or len(self.vertices.gpus) == 2):
            y = left.y + left.height / 2
            start, end = left.x + left.width, right.x
            return f"M{start:.1f},{y:.1f} L{end:.1f},{y:.1f}", ((start + end) / 2, y - 8)
        depth = min(130.0, 24 + (right.middle - left.middle) * 0.28)
        y = left.bottom
        middle = (left.middle + right.middle) / 2
        path = f"M{left.middle:.1f},{y:.1f} Q{middle:.1f},{y + 2 * depth:.1f} {right.middle:.1f},{y:.1f}"
        return path, (middle, y + depth + 12)

    def _box(self, svg: Element, name: str, box: Box) -> None:
        """Draw a vertex with what is known of it."""
        rect = add(svg, "rect", "box", x=box.x, y=box.y, width=box.width, height=box.height, rx=6)
        add(rect, "title", text=self._about(name))
        if name in self.vertices.bridges or name in self.vertices.fabrics:
            text = fitted(name, box.width - 4)
            add(svg, "text", "inside middle", text, x=box.middle, y=box.y + box.height / 2 + 4)
            return
        add(svg, "text", "inside name middle", fitted(name, box.width - 8), x=box.middle, y=box.y + 18)
        about = fitted(self._about(name), box.width - 8)
        add(svg, "text", "inside soft middle", about, x=box.middle, y=box.y + 35)
        if use := self.memory.get(name):
            verdict = use.verdict
            text = f"{SIGNS[verdict]} {used([use])}" if use.measured else "? memory"
            css = f"inside middle {css_of(verdict)}"
            add(svg, "text", css, fitted(text, box.width), x=box.middle, y=box.y + 53)

    def _about(self, name: str) -> str:
        """Return the model of a GPU, or cores and memory of a NUMA node."""
        device = name.partition("/")[2] or name
        for gpu in self.machine.gpus:
            if gpu.name == device:
                rank = next((r for r in self.machine.ranks if f"{r.index}/{r.device}" == name), None)
                return f"{rank.host} {gpu.model}" if rank else gpu.model
        for node in self.machine.numa:
            if node.name == name:
                return f"{len(node.cores)} cores, {format_size(node.memory_bytes)}"
        return name
