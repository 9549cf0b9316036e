"""Results with several bandwidths: over sizes, and between all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..document import Document
from ..model import Axis, Unit
from ..terminal import colored, columns
from ..units import format_quantity, format_size
from ..units import many as counted
from .results import Bandwidth, Drawn, footer_of, gib, print_drawing, tree


@dataclass(frozen=True, repr=False)
class BandwidthScaling(Drawn):
    """A bandwidth over sizes.

    Parameters
    ----------
    title : str
        Name of the measurement.
    device : str
        Measured device.
    quantity, unit : str
        Meaning of the sizes: ``data size`` in ``B``, or ``vector length`` in ``numbers``.
    sizes : tuple[int, ...]
        Sizes as measured: CPUs round up to whole lines of 64 B.
    points : tuple[Bandwidth, ...]
        Bandwidth at each size.
    """

    title: str
    device: str
    quantity: str
    unit: str
    sizes: tuple[int, ...]
    points: tuple[Bandwidth, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Bandwidths in B/s."""
        return tuple(point.value for point in self.points)

    @property
    def peak(self) -> Bandwidth:
        """Point with the highest bandwidth."""
        return max(self.points, key=lambda point: point.value)

    @property
    def peak_size(self) -> int:
        """Size of the peak."""
        return self.sizes[self.points.index(self.peak)]

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.points[0].simulated

    @property
    def document(self) -> Document:
        """Document of the run."""
        return self.points[0].document

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Bandwidth]:
        return iter(self.points)

    def shown_size(self, size: int) -> str:
        """Return a size with its unit."""
        return format_quantity(size, self.unit)

    def __repr__(self) -> str:
        rows = {f"{self.shown_size(size)}": p.value for size, p in zip(self.sizes, self.points, strict=True)}
        head = f"{self.title} over {self.quantity} (GiB/s), peak {gib(self.peak.value):.2f} at "
        head += f"{self.shown_size(self.peak_size)}:"
        footer = footer_of(self.device, f"counts {self.points[0].counts}", simulated=self.simulated)
        return "\n".join([head, *tree(rows), footer])

    def plot(self) -> None:
        """Print the curve with a logarithmic axis and the peak marked."""
        from rich.text import Text

        from ..reports._plots import Curve, plot

        curve = Curve(self.device, tuple(map(float, self.sizes)), self.values)
        axis = Axis(self.quantity, (), (), self.unit)
        lines = [Text(f"{self.title}, {self.device}", style="bold")]
        lines += plot([curve], axis, Unit.RATE, columns())
        lines += [Text(footer_of(simulated=True), style="bold magenta")] if self.simulated else []
        print_drawing(lines)


@dataclass(frozen=True, repr=False)
class BandwidthMatrix(Drawn):
    """A bandwidth for each pair of devices; the diagonal is empty.

    Parameters
    ----------
    title : str
        Name of the measurement.
    labels : tuple[str, ...]
        Names of the devices.
    cells : tuple[tuple[Bandwidth or None, ...], ...]
        Rows of bandwidths; None on the diagonal and for pairs that cannot be measured.
    reasons : tuple[str, ...]
        Why pairs could not be measured.
    """

    title: str
    labels: tuple[str, ...]
    cells: tuple[tuple[Bandwidth | None, ...], ...]
    reasons: tuple[str, ...] = ()

    def __getitem__(self, pair: tuple[int | str, int | str]) -> Bandwidth | None:
        """Return the bandwidth of a pair by index or name: ``matrix[0, 1]``, ``matrix["gpu0", "gpu1"]``."""
        for name in pair:
            if isinstance(name, str) and name not in self.labels:
                raise KeyError(f"unknown device {name}; choose from {', '.join(self.labels)}")
        row, column = (self.labels.index(x) if isinstance(x, str) else int(x) for x in pair)
        return self.cells[row][column]

    def __iter__(self) -> Iterator[Bandwidth]:
        return (cell for row in self.cells for cell in row if cell is not None)

    @property
    def values(self) -> tuple[tuple[float | None, ...], ...]:
        """Bandwidths in B/s, as rows."""
        return tuple(tuple(None if c is None else c.value for c in row) for row in self.cells)

    @property
    def max(self) -> Bandwidth:
        """Fastest pair."""
        return max(self, key=lambda cell: cell.value)

    @property
    def min(self) -> Bandwidth:
        """Slowest pair."""
        return min(self, key=lambda cell: cell.value)

    @property
    def avg(self) -> float:
        """Mean over all pairs, in B/s."""
        values = [cell.value for cell in self]
        return math.fsum(values) / len(values)

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.document.simulated

    @property
    def document(self) -> Document:
        """Document of the run."""
        return next(iter(self)).document

    def footer(self) -> str:
        """Return number and size of the pairs, which bytes count, and why pairs are missing."""
        one = next(iter(self))
        pairs = counted(sum(1 for _ in self), "pair")
        size = format_size(one.bytes)
        return footer_of(pairs, size, f"counts {one.counts}", *self.reasons, simulated=self.simulated)

    def __repr__(self) -> str:
        texts = [["-" if c is None else f"{gib(c.value):.2f}" for c in row] for row in self.cells]
        widths = [
            max(len(self.labels[j]), *(len(row[j]) for row in texts)) + 2 for j in range(len(self.labels))
        ]
        label = max(map(len, self.labels))
        lines = [" " * label + "".join(f"{name:>{w}}" for name, w in zip(self.labels, widths, strict=True))]
        for name, row in zip(self.labels, texts, strict=True):
            lines.append(f"{name:<{label}}" + "".join(f"{t:>{w}}" for t, w in zip(row, widths, strict=True)))
        return "\n".join([f"{self.title} (GiB/s):", *lines, self.footer()])

    def plot(self) -> None:
        """Print the matrix as a heat map with its scale."""
        from rich.text import Text

        from ..reports._plots import heat_map

        width, color = columns(), colored()
        lines = [Text(self.title, style="bold")]
        lines += heat_map(self.values, self.labels, self.labels, Unit.RATE, width, color=color)
        print_drawing([*lines, Text(self.footer(), style="dim")])
