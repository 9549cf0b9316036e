"""What the functions return: small immutable results that know how to show themselves.

Values are in B/s; properties convert. The forms for notebooks, data frames and plotly are in `forms`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..model import Axis, Unit
from ..results.document import Cell, Document, Statistics
from ..units import GB, GIB, format_quantity, format_size

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go
    from rich.text import Text


def gib(value: float) -> float:
    """Return B/s in GiB/s."""
    return value / GIB


def _tree(rows: dict[str, float]) -> list[str]:
    """Return names and values in GiB/s as the branches of a small tree."""
    last = len(rows) - 1
    texts = {name: f"{gib(rate):.{2 if gib(rate) >= 0.1 else 5}f}" for name, rate in rows.items()}
    return [f" {'└' if i == last else '├'} {name}: {text}" for i, (name, text) in enumerate(texts.items())]


def _footer(*parts: str, simulated: bool) -> str:
    from ..reports._console import SIMULATED

    return " · ".join(part for part in (*parts, SIMULATED if simulated else "") if part)


def _terminal() -> tuple[int, bool]:
    """Return the width of the terminal, and whether it shows colour and colour is wanted."""
    import os
    import shutil
    import sys

    return max(40, shutil.get_terminal_size().columns), sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print(lines: list[Text]) -> None:
    """Print drawings as they fit the terminal."""
    from ..reports import Style
    from ..reports._console import printed

    print(printed(Style(*_terminal()), *lines), end="")


@dataclass(frozen=True, repr=False)
class Bandwidth:
    """One bandwidth.

    Parameters
    ----------
    title
        What was measured.
    device
        Where: ``gpu0``, ``gpu0 -> gpu1``.
    value
        The median of the samples, in B/s.
    samples
        All of them, in B/s.
    statistics
        Of the samples: extremes, mean, interval of the median.
    bytes
        Size of one buffer.
    counts
        Which bytes count.
    limit
        What the links allow, in B/s; None where it is not known.
    simulated
        Whether no hardware was measured.
    document
        The run that it is from.
    """

    title: str
    device: str
    value: float
    samples: tuple[float, ...]
    statistics: Statistics
    bytes: int
    counts: str
    limit: float | None
    simulated: bool
    document: Document = field(compare=False)

    @staticmethod
    def of(title: str, device: str, cell: Cell, counts: str, document: Document, size: int) -> Bandwidth:
        """Return what a measured cell says."""
        assert cell.value is not None and cell.statistics is not None
        return Bandwidth(
            title, device, cell.value, cell.samples, cell.statistics, size, counts, cell.limit,
            document.simulated, document,
        )  # fmt: skip

    @property
    def gb_per_s(self) -> float:
        """The value in GB/s (10^9)."""
        return self.value / GB

    @property
    def gib_per_s(self) -> float:
        """The value in GiB/s (2^30)."""
        return self.value / GIB

    @property
    def max(self) -> float:
        """The largest sample, in B/s."""
        return self.statistics.max

    @property
    def min(self) -> float:
        """The least sample, in B/s."""
        return self.statistics.min

    @property
    def avg(self) -> float:
        """The mean of the samples, in B/s."""
        return self.statistics.mean

    @property
    def std_dev(self) -> float:
        """The standard deviation of the samples, in B/s."""
        return self.statistics.cv * abs(self.statistics.mean)

    def __repr__(self) -> str:
        rows = {"max": self.max, "min": self.min, "avg": self.avg, "median": self.statistics.median,
                "std_dev": self.std_dev}  # fmt: skip
        footer = _footer(
            self.device, format_size(self.bytes), f"counts {self.counts}", simulated=self.simulated
        )
        return "\n".join([f"{self.title} (GiB/s):", *_tree(rows), footer])

    def plot(self) -> None:
        """Print the distribution of the samples."""
        from rich.text import Text

        from ..reports._plots import histogram

        width, _ = _terminal()
        lines = [Text(f"{self.title}, {self.device}: {len(self.samples)} samples", style="bold")]
        lines += histogram(self.samples, Unit.RATE, width, binary=True)
        lines += [Text(_footer(simulated=True), style="bold magenta")] if self.simulated else []
        _print(lines)

    def _repr_html_(self) -> str:
        from .forms import bandwidth_html

        return bandwidth_html(self)

    def figure(self) -> go.Figure:
        """Return the distribution of the samples as a plotly figure.

        Raises
        ------
        MissingPackage
            Without plotly.
        """
        from .forms import bandwidth_figure

        return bandwidth_figure(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the samples as a data frame, one row each, in B/s.

        Raises
        ------
        MissingPackage
            Without pandas.
        """
        from .forms import bandwidth_frame

        return bandwidth_frame(self)


@dataclass(frozen=True, repr=False)
class TheoreticalBandwidth:
    """What a memory's clock and width allow, in B/s; ``origin`` is the product that gives it."""

    device: str
    value: float
    origin: str
    simulated: bool

    @property
    def gb_per_s(self) -> float:
        """The value in GB/s (10^9)."""
        return self.value / GB

    @property
    def gib_per_s(self) -> float:
        """The value in GiB/s (2^30)."""
        return self.value / GIB

    def __repr__(self) -> str:
        footer = _footer(self.device, self.origin, simulated=self.simulated)
        return "\n".join(
            ["Theoretical Maximal Memory Bandwidth (GiB/s):", *_tree({"max": self.value}), footer]
        )

    def _repr_html_(self) -> str:
        from .forms import theoretical_html

        return theoretical_html(self)


@dataclass(frozen=True, repr=False)
class BandwidthScaling:
    """A bandwidth over sizes.

    Parameters
    ----------
    quantity, unit
        What the sizes are: ``data size`` in ``B``, or ``vector length`` in ``numbers``.
    sizes
        As measured: CPUs round up to whole lines of 64 B.
    points
        The bandwidth at each size.
    """

    title: str
    device: str
    quantity: str
    unit: str
    sizes: tuple[int, ...]
    points: tuple[Bandwidth, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The bandwidths in B/s."""
        return tuple(point.value for point in self.points)

    @property
    def peak(self) -> Bandwidth:
        """The point with the highest bandwidth."""
        return max(self.points, key=lambda point: point.value)

    @property
    def peak_size(self) -> int:
        """The size at which it is reached."""
        return self.sizes[self.points.index(self.peak)]

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.points[0].simulated

    @property
    def document(self) -> Document:
        """The run that it is from."""
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
        footer = _footer(self.device, f"counts {self.points[0].counts}", simulated=self.simulated)
        return "\n".join([head, *_tree(rows), footer])

    def plot(self) -> None:
        """Print the curve with a logarithmic axis and the peak marked."""
        from rich.text import Text

        from ..reports._plots import Curve, plot

        curve = Curve(self.device, tuple(map(float, self.sizes)), self.values)
        axis = Axis(self.quantity, (), (), self.unit)
        lines = [Text(f"{self.title}, {self.device}", style="bold")]
        lines += plot([curve], axis, Unit.RATE, _terminal()[0], binary=True)
        lines += [Text(_footer(simulated=True), style="bold magenta")] if self.simulated else []
        _print(lines)

    def _repr_html_(self) -> str:
        from .forms import scaling_html

        return scaling_html(self)

    def figure(self) -> go.Figure:
        """Return the curve as a plotly figure, the interval of each median as its error bar.

        Raises
        ------
        MissingPackage
            Without plotly.
        """
        from .forms import scaling_figure

        return scaling_figure(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each size, values in B/s.

        Raises
        ------
        MissingPackage
            Without pandas.
        """
        from .forms import scaling_frame

        return scaling_frame(self)


@dataclass(frozen=True, repr=False)
class BandwidthMatrix:
    """A bandwidth for every pair of devices, the row first; nothing on the diagonal.

    Parameters
    ----------
    cells
        Rows of bandwidths; None on the diagonal and where a pair cannot be measured.
    reasons
        Why pairs could not be measured.
    """

    title: str
    labels: tuple[str, ...]
    cells: tuple[tuple[Bandwidth | None, ...], ...]
    reasons: tuple[str, ...] = ()

    def __getitem__(self, pair: tuple[int | str, int | str]) -> Bandwidth | None:
        """Return a pair's by indices or names: ``matrix[0, 1]``, ``matrix["gpu0", "gpu1"]``."""
        row, column = (x if isinstance(x, int) else self.labels.index(x) for x in pair)
        return self.cells[row][column]

    def __iter__(self) -> Iterator[Bandwidth]:
        return (cell for row in self.cells for cell in row if cell is not None)

    @property
    def values(self) -> tuple[tuple[float | None, ...], ...]:
        """The bandwidths in B/s, rows first."""
        return tuple(tuple(None if c is None else c.value for c in row) for row in self.cells)

    @property
    def max(self) -> Bandwidth:
        """The fastest pair."""
        return max(self, key=lambda cell: cell.value)

    @property
    def min(self) -> Bandwidth:
        """The slowest pair."""
        return min(self, key=lambda cell: cell.value)

    @property
    def avg(self) -> float:
        """The mean over all pairs, in B/s."""
        values = [cell.value for cell in self]
        return math.fsum(values) / len(values)

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.document.simulated

    @property
    def document(self) -> Document:
        """The run that it is from."""
        return next(iter(self)).document

    def footer(self) -> str:
        """Return how many pairs, of what size, which bytes count, and why pairs are missing."""
        one = next(iter(self))
        pairs = f"{sum(1 for _ in self)} pairs"
        size = format_size(one.bytes)
        return _footer(pairs, size, f"counts {one.counts}", *self.reasons, simulated=self.simulated)

    def __repr__(self) -> str:
        texts = [["-" if c is None else f"{gib(c.value):.2f}" for c in row] for row in self.cells]
        widths = [
            max(len(self.labels[j]), *(len(row[j]) for row in texts)) + 2 for j in range(len(self.labels))
        ]
        label = max(map(len, self.labels))
        lines = [" " * label + "".join(f"{name:>{w}}" for name, w in zip(self.labels, widths, strict=True))]
        for name, row in zip(self.labels, texts, strict=True):
            lines.append(f"{name:<{label}}" + "".join(f"{t:>{w}}" for t, w in zip(row, widths, strict=True)))
        return "\n".join([f"{self.title}:", *lines, self.footer()])

    def plot(self) -> None:
        """Print the matrix as a heat map with its scale."""
        from rich.text import Text

        from ..reports._plots import heat_map

        width, color = _terminal()
        lines = [Text(self.title, style="bold")]
        lines += heat_map(self.values, self.labels, self.labels, Unit.RATE, width, color=color, binary=True)
        _print([*lines, Text(self.footer(), style="dim")])

    def _repr_html_(self) -> str:
        from .forms import matrix_html

        return matrix_html(self)

    def figure(self) -> go.Figure:
        """Return the matrix as a plotly heat map with the values in the cells.

        Raises
        ------
        MissingPackage
            Without plotly.
        """
        from .forms import matrix_figure

        return matrix_figure(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the matrix as a data frame in B/s, the source as the index.

        Raises
        ------
        MissingPackage
            Without pandas.
        """
        from .forms import matrix_frame

        return matrix_frame(self)


@dataclass(frozen=True, repr=False)
class HostDeviceBandwidth:
    """Copies between a host and a GPU: from pageable and from pinned memory, in both directions."""

    pageable_to_device: Bandwidth
    pageable_to_host: Bandwidth
    pinned_to_device: Bandwidth
    pinned_to_host: Bandwidth

    def __iter__(self) -> Iterator[Bandwidth]:
        return iter(
            (self.pageable_to_device, self.pageable_to_host, self.pinned_to_device, self.pinned_to_host)
        )

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.pinned_to_device.simulated

    def __repr__(self) -> str:
        blocks = []
        for there, back in (
            (self.pageable_to_device, self.pageable_to_host),
            (self.pinned_to_device, self.pinned_to_host),
        ):
            rows = {"max": max(there.max, back.max), there.device: there.value, back.device: back.value}
            blocks.append("\n".join([f"{there.title} (GiB/s):", *_tree(rows)]))
        one = self.pinned_to_device
        footer = _footer(format_size(one.bytes), f"counts {one.counts}", simulated=self.simulated)
        return "\n\n".join(blocks) + f"\n{footer}"

    def plot(self) -> None:
        """Print the distribution of the samples of each copy."""
        for bandwidth in self:
            bandwidth.plot()

    def _repr_html_(self) -> str:
        from .forms import host_device_html

        return host_device_html(self)

    def figure(self) -> go.Figure:
        """Return the four bandwidths as plotly bars.

        Raises
        ------
        MissingPackage
            Without plotly.
        """
        from .forms import host_device_figure

        return host_device_figure(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each kind of memory and direction, values in B/s.

        Raises
        ------
        MissingPackage
            Without pandas.
        """
        from .forms import host_device_frame

        return host_device_frame(self)
