"""Diagram of the machine: NUMA nodes above, GPUs below, switches between; links with their use. A link is as
thick as its capacity and has the colour of its share of what is expected. Each link and device names the
links that it stands for, by which the script of the page filters the tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from ...hardware.devices import GPU, Picture
from ...hardware.link_graph import MachineVertices
from ...hardware.topology import LinkKind, Machine
from ...judging.verdict import Verdict, worst
from ...statistics import grouped
from ...terminal import one_line
from ...units import GB, many
from ..looks import SIGNS
from ..values import GLANCE, number
from .charts import Element, add, drawing, fitted, step
from .link_use import Use

_WIDTH = 1120.0
_MARGIN, _GAP = 12.0, 14.0
#: Devices per row, and the maximum width and the height of a switch.
_PER_ROW, _SWITCH_WIDTH, _SWITCH_HEIGHT = 8, 150.0, 30.0
#: With more links between GPUs than this, labels would overlap; the table has the values.
_LABELLED = 6
_LABEL_LETTER = 5.8
#: Capacity of the thickest link, in B/s, if no link has more.
_LARGEST = 400 * GB
#: Width of a link of the largest capacity, and of one that has none or nearly none, in pixels.
_THICK, _THIN = 9.0, 2.0
#: Drawings of more GPUs than this are a tangle; a matrix of pairs takes their place.
MOST_DRAWN = 16
_HARMLESS = (Verdict.PASS, Verdict.NOT_JUDGED, Verdict.WAIVED)


@dataclass(frozen=True)
class Box:
    """Position of a vertex, in pixels.

    Attributes:
        x, y: Left and upper edge.
        width, height: Size.
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
class Vertices:
    """The vertices of a machine by kind, in order.

    Attributes:
        hosts, bridges, devices, fabrics: NUMA nodes, PCIe switches and bridges, GPUs and devices of other
            kinds, NVLink switches and networks.
    """

    hosts: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    fabrics: list[str] = field(default_factory=list)


def used(uses: Sequence[Use]) -> str:
    """Measured rate of limit in GB/s: ``21.3 / 20.9 of 25``, forward / backward."""
    measured = [number(use.measured, GB, GLANCE) if use.measured else "–" for use in uses]
    capacities = dict.fromkeys(use.link.capacity for use in uses)
    limits = [f"{capacity / GB:.4g}" if capacity else "?" for capacity in capacities]
    shown = measured[:1] if len(set(measured)) == 1 else measured
    return f"{' / '.join(shown)} of {' / '.join(limits)}"


def vertices(machine: Machine) -> Vertices:
    """The vertices by kind; the devices are those of the ranks, if ranks have any."""
    layers = Vertices(hosts=[node.name for node in machine.numa])
    gpus = {f"{rank.index}/{rank.device}" for rank in machine.ranks if not rank.cpus}
    if not gpus:
        gpus = {device.name for device in machine.attached}
    ends = dict.fromkeys(end for link in machine.links for end in link.ends)
    named = [device.name for device in machine.attached if device.name in gpus]
    layers.devices = named or [end for end in ends if end in gpus]
    fabric = (LinkKind.NVLINK, LinkKind.NETWORK)
    nvlink = {end for link in machine.links if link.kind in fabric for end in link.ends}
    for end in ends:
        if end not in layers.hosts and end not in layers.devices:
            (layers.fabrics if end in nvlink else layers.bridges).append(end)
    return layers


def draw(
    machine: Machine, uses: Sequence[Use], marked: Mapping[str, Verdict] | None = None
) -> Element | None:
    """The diagram; None if no parts of the machine are known, or too many for a diagram.

    Args:
        machine: The machine.
        uses: Its links with their use.
        marked: Devices and switches to highlight; None for none.

    Returns:
        The diagram.
    """
    layers = vertices(machine)
    if not (layers.hosts or layers.devices) or len(layers.devices) > MOST_DRAWN:
        return None
    return _Drawing(machine, uses, layers, marked or {}).svg()


class _Drawing:
    """Place the boxes, then draw links below and labels above them."""

    def __init__(
        self, machine: Machine, uses: Sequence[Use], layers: Vertices, marked: Mapping[str, Verdict]
    ) -> None:
        self.machine = machine
        self.vertices = layers
        self.kind = MachineVertices(machine).kind
        self.marked = marked
        self.memory = {u.link.source: u for u in uses if u.link.kind is LinkKind.MEMORY}
        self.between: dict[tuple[str, str], list[Use]] = {}
        self.at = grouped((end, use) for use in uses for end in use.ends)
        for use in uses:
            ends = (use.link.source, use.link.destination)
            if use.link.kind is not LinkKind.MEMORY:
                key = ends if ends[::-1] not in self.between else ends[::-1]
                self.between.setdefault(key, []).append(use)
        capacities = (use.link.capacity or 0.0 for joined in self.between.values() for use in joined)
        self.largest = max((_LARGEST, *capacities))
        self.direct = [pair for pair in self.between if set(pair) <= set(layers.devices)]
        self.boxes: dict[str, Box] = {}
        self.buses: dict[str, list[Box]] = {}
        self.height = self._place()

    def _place(self) -> float:
        """Place all boxes; the result is the height of the diagram."""
        y = _MARGIN
        gpus = self.vertices.devices
        lonely = len(self.vertices.fabrics) == 1
        rows = self._rows()
        for hosts, bridges, row in rows:
            y += self._row(hosts, y)
            y += 62 if hosts and (bridges or row) else 0.0
            if bridges:
                y += self._row(bridges, y, (_SWITCH_WIDTH, _SWITCH_HEIGHT)) + 62
            if row:
                y += self._row(row, y) + 14
            if row and lonely:
                y += 40
                bus = Box(_MARGIN, y, _WIDTH - 2 * _MARGIN, 26)
                self.buses.setdefault(self.vertices.fabrics[0], []).append(bus)
                y += 26
            y += 40 if row is not rows[-1][2] else 0
        if len(self.direct) > 1 or (self.direct and len(gpus) > 2):
            y += 150
        if self.vertices.fabrics and not lonely:
            y += 60
            y += self._row(self.vertices.fabrics, y, (110.0, _SWITCH_HEIGHT))
        return y + 6

    def _rows(self) -> list[tuple[list[str], list[str], list[str]]]:
        """NUMA nodes, switches and GPUs of each row of GPUs.

        Each row has its own NUMA nodes and switches if these are linked to no GPU of another row.
        """
        layers = self.vertices
        neighbours: dict[str, set[str]] = {}
        for a, b in self.between:
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
        parts = [layers.devices[i : i + _PER_ROW] for i in range(0, len(layers.devices), _PER_ROW)] or [[]]
        rows = []
        for row in parts:
            bridges = [name for name in layers.bridges if neighbours.get(name, set()) & set(row)]
            below = {*row, *bridges}
            hosts = [name for name in layers.hosts if neighbours.get(name, set()) & below]
            rows.append((hosts, bridges, row))
        above = [name for hosts, bridges, _ in rows for name in (*hosts, *bridges)]
        if sorted(above) == sorted(layers.hosts + layers.bridges):
            return rows
        first, *others = parts
        return [(layers.hosts, layers.bridges, first), *(([], [], row) for row in others)]

    def _row(self, names: list[str], y: float, size: tuple[float, float] | None = None) -> float:
        """Spread boxes over the width, of a maximum width and a height or as the kinds of devices say.

        Return the height of the highest.
        """
        step_ = (_WIDTH - 2 * _MARGIN) / max(1, len(names))
        heights = [0.0]
        for i, name in enumerate(names):
            picture = self._picture(name) if size is None else Picture(*size)
            width = max(26.0, min(picture.width, step_ - _GAP))
            self.boxes[name] = Box(_MARGIN + (i + 0.5) * step_ - width / 2, y, width, picture.height)
            heights.append(picture.height)
        return max(heights)

    def svg(self) -> Element:
        title = (
            f"{many(len(self.vertices.hosts), 'NUMA node')}, {self._counted()}, "
            f"{many(len(self.vertices.bridges) + len(self.vertices.fabrics), 'switch', 'switches')} "
            "and their links; the table of links has the same values"
        )
        svg = drawing(_WIDTH, self.height, title, "machine")
        labels: list[tuple[float, float, Sequence[Use]]] = []
        for above, below in chain.from_iterable(map(pairwise, self.buses.values())):
            add(svg, "line", "axis", x1=_WIDTH - 20, x2=_WIDTH - 20, y1=above.bottom, y2=below.y)
        labelled = len(self.direct) <= _LABELLED
        ordered = sorted(
            self.between.items(), key=lambda item: -worst(use.verdict for use in item[1]).rank
        )  # bad links on top
        for ends, uses in ordered:
            self._link(svg, ends, uses, labels, labelled=labelled)
        for name, buses in self.buses.items():
            self._bus(svg, name, buses)
        for name, box in self.boxes.items():
            self._box(svg, name, box)
        for x, y, joined in labels:
            self._label(svg, x, y, joined)
        return svg

    def _counted(self) -> str:
        """How many devices of each kind there are except NUMA nodes."""
        counts = {GPU: 0} | Counter(kind for name in self.vertices.devices if (kind := self.kind(name)))
        return ", ".join(many(count, *kind.words) for kind, count in counts.items())

    def _place_of(self, svg: Element, name: str, uses: Iterable[Use]) -> Element:
        """A new group of a device or link by which tables can be filtered."""
        links = " ".join(str(use.index) for use in uses)
        return add(svg, "g", "place", data_place=one_line(name), data_links=links)

    def _label(self, svg: Element, x: float, y: float, uses: Sequence[Use]) -> None:
        """Draw the use of a link next to it."""
        verdict = worst(use.verdict for use in uses)
        quiet = verdict in _HARMLESS
        plain = verdict is Verdict.PASS or not any(use.measured for use in uses)
        text = used(uses) if plain else f"{SIGNS[verdict].mark} {used(uses)}"
        wide = len(text) * _LABEL_LETTER + 6
        x = min(max(x, wide / 2 + 2), _WIDTH - wide / 2 - 2)
        add(svg, "rect", "halo", x=x - wide / 2, y=y - 11, width=wide, height=15, rx=4)
        css = "label middle soft" if quiet else f"label middle strong {verdict}"
        add(svg, "text", css, text, x=x, y=y)

    def _bus(self, svg: Element, name: str, buses: list[Box]) -> None:
        """Draw a switch to which all GPUs are linked as bars."""
        group = self._place_of(svg, name, self.at.get(name, ()))
        for box in buses:
            css = f"box {self.marked.get(name, '')}".rstrip()
            add(group, "rect", css, x=box.x, y=box.y, width=box.width, height=box.height, rx=8)
            add(group, "text", "name middle", fitted(name, box.width - 20), x=box.middle, y=box.y + 18)

    def _link(
        self, svg: Element, ends: tuple[str, str], uses: list[Use],
        labels: list[tuple[float, float, Sequence[Use]]], *, labelled: bool,
    ) -> None:  # fmt: skip
        a, b = (self._end(end, other) for end, other in (ends, ends[::-1]))
        if a is None or b is None:
            return
        (upper, lower) = (a, b) if a.y <= b.y else (b, a)
        if upper.y == lower.y:
            path, at = self._sideways(upper, lower, ends)
            show = labelled
        else:
            wide = lower.width > 2 * upper.width
            inside = min(max(lower.middle, upper.x + 12), upper.x + upper.width - 12)
            top, foot = (upper.middle, upper.middle) if wide else (inside, lower.middle)
            path, at = f"M{top:.1f},{upper.bottom:.1f} L{foot:.1f},{lower.y:.1f}", (top, lower.y - 15)
            if not wide:  # the label is on the straight end
                bend, half = lower.y - 24, (upper.bottom + lower.y - 24) / 2
                path = (
                    f"M{top:.1f},{upper.bottom:.1f} C{top:.1f},{half:.1f} {foot:.1f},{half:.1f} "
                    f"{foot:.1f},{bend:.1f} L{foot:.1f},{lower.y:.1f}"
                )
                at = foot, lower.y - 9
            show = True
        verdict = worst(use.verdict for use in uses)
        group = self._place_of(svg, f"{ends[0]}–{ends[1]}", uses)
        words = "; ".join(
            f"{use.link.kind} {use.link.source} to {use.link.destination}: {used([use])} GB/s, {use.verdict}"
            for use in uses
        )
        add(group, "title", text=words)
        speeds = [use.speed for use in uses if use.speed is not None]
        color = step(min(1.0, *speeds), verdict) if speeds else "none"
        capacity = max((use.link.capacity or 0.0 for use in uses), default=0.0)
        width = _THIN + (_THICK - _THIN) * math.sqrt(capacity / self.largest)
        add(group, "path", f"link {color} {verdict}", d=path, stroke_width=width)
        add(group, "path", "hit", d=path)
        if show:
            labels.append((*at, uses))

    def _end(self, name: str, other: str) -> Box | None:
        """The position of a vertex; for a bus, the piece below the other end."""
        if name not in self.buses:
            return self.boxes.get(name)
        box = self.boxes.get(other)
        return next((b for b in self.buses[name] if box is not None and b.y > box.y), None)

    def _sideways(self, a: Box, b: Box, ends: tuple[str, str]) -> tuple[str, tuple[float, float]]:
        """Path and position of the label of a link between neighbours."""
        left, right = (a, b) if a.x <= b.x else (b, a)
        beside = right.x - left.x - left.width
        hosts = set(ends) <= set(self.vertices.hosts)
        if beside >= 120 and (hosts or len(self.vertices.devices) == 2):
            y = left.y + left.height / 2
            start, end = left.x + left.width, right.x
            return f"M{start:.1f},{y:.1f} L{end:.1f},{y:.1f}", ((start + end) / 2, y - 10)
        depth = min(130.0, 24 + (right.middle - left.middle) * 0.2)
        y = left.bottom
        middle = (left.middle + right.middle) / 2
        path = f"M{left.middle:.1f},{y:.1f} Q{middle:.1f},{y + 2 * depth:.1f} {right.middle:.1f},{y:.1f}"
        return path, (middle, y + depth + 12)

    def _picture(self, name: str) -> Picture:
        kind = self.kind(name)
        return kind.picture if kind else Picture()

    def _box(self, svg: Element, name: str, box: Box) -> None:
        group = self._place_of(svg, name, self.at.get(name, ()))
        verdict = self.marked.get(name)
        picture = self._picture(name)
        css = f"{picture.css} {verdict or ''}".rstrip()
        rect = add(
            group, "rect", css, x=box.x, y=box.y, width=box.width, height=box.height, rx=picture.radius
        )
        add(rect, "title", text=self._about(name))
        title = f"{SIGNS[verdict].mark} {name}" if verdict else name
        if name in self.vertices.bridges or name in self.vertices.fabrics:
            text = fitted(title, box.width - 4)
            add(group, "text", "middle", text, x=box.middle, y=box.y + box.height / 2 + 4)
            return
        add(group, "text", "name middle", fitted(title, box.width - 8), x=box.middle, y=box.y + 20)
        about = fitted(self._about(name), box.width - 6)
        add(group, "text", "soft middle", about, x=box.middle, y=box.y + 36)
        if use := self.memory.get(name):
            quiet = use.verdict in _HARMLESS
            text = used([use]) if use.verdict is Verdict.PASS else f"{SIGNS[use.verdict].mark} {used([use])}"
            if not use.measured:
                text = "not measured" if use.link.capacity else "capacity unknown"
            css = "soft middle" if quiet else f"middle strong {use.verdict}"
            add(group, "text", css, fitted(text, box.width), x=box.middle, y=box.y + 52)

    def _about(self, name: str) -> str:
        """What distinguishes a device; of another vertex, its name."""
        device = name.partition("/")[2] or name
        rank = next((r for r in self.machine.ranks if f"{r.index}/{r.device}" == name), None)
        about = next((known.about for known in self.machine.devices if known.name == device), name)
        return f"{rank.host} {about}" if rank and about != name else about
