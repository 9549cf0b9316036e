"""Results of the functions: small, immutable, and printable.

Values are in B/s; properties convert them. Notebook tables, data frames and plotly figures are in `forms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..document import Cell, Document, Statistics
from ..model import Unit
from ..terminal import colored, columns
from ..units import GB, GIB, format_size, many

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go
    from rich.text import Text


def gib(value: float) -> float:
    """Convert B/s to GiB/s."""
    return value / GIB


def tree(rows: dict[str, float]) -> list[str]:
    """Return names and values in GiB/s as the branches of a small tree."""
    last = len(rows) - 1
    texts = {name: f"{gib(rate):.{2 if gib(rate) >= 0.1 else 5}f}" for name, rate in rows.items()}
    return [f" {'└' if i == last else '├'} {name}: {text}" for i, (name, text) in enumerate(texts.items())]


def footer_of(*parts: str, simulated: bool) -> str:
    from ..reports import SIMULATED

    return " · ".join(part for part in (*parts, SIMULATED if simulated else "") if part)


def print_drawing(lines: list[Text]) -> None:
    """Print plots that fit the terminal."""
    from ..reports import Style
    from ..reports._console import printed

    print(printed(Style(columns(), colored()), *lines), end="")


class Drawn:
    """Conversions of a result: plotly figure and data frame."""

    def _repr_html_(self) -> str:
        from .presentation import html

        return html(self)

    def figure(self) -> go.Figure:
        """Return a plotly figure in GB/s: bars, a histogram of the samples, a curve or a heat map.

        Raises
        ------
        MissingPackage
            If plotly is not installed.
        """
        from .presentation import figure

        return figure(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame in B/s: the samples, one row per value, or the matrix.

        Raises
        ------
        MissingPackage
            If pandas is not installed.
        """
        from .presentation import frame

        return frame(self)


@dataclass(frozen=True, repr=False)
class Bandwidth(Drawn):
    """A measured bandwidth.

    Parameters
    ----------
    title : str
        Name of the measurement.
    device : str
        Device or pair: ``gpu0``, ``gpu0 -> gpu1``.
    value : float
        Median of the samples, in B/s.
    samples : tuple[float, ...]
        All samples, in B/s.
    statistics : Statistics
        Statistics of the samples: range, mean, confidence interval of the median.
    bytes : int
        Size of one buffer.
    counts : str
        Which bytes count.
    limit : float or None
        Limit of the links, in B/s; None if unknown.
    simulated : bool
        Whether no hardware was measured.
    document : Document
        Document of the run.
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
        """Return the bandwidth of a measured cell."""
        assert cell.value is not None and cell.statistics is not None
        return Bandwidth(
            title, device, cell.value, cell.samples, cell.statistics, size, counts, cell.limit,
            document.simulated, document,
        )  # fmt: skip

    @property
    def gb_per_s(self) -> float:
        """Value in GB/s (10^9)."""
        return self.value / GB

    @property
    def gib_per_s(self) -> float:
        """Value in GiB/s (2^30)."""
        return self.value / GIB

    @property
    def max(self) -> float:
        """Largest sample, in B/s."""
        return self.statistics.max

    @property
    def min(self) -> float:
        """Smallest sample, in B/s."""
        return self.statistics.min

    @property
    def avg(self) -> float:
        """Mean of the samples, in B/s."""
        return self.statistics.mean

    @property
    def std_dev(self) -> float:
        """Standard deviation of the samples, in B/s."""
        return self.statistics.cv * abs(self.statistics.mean)

    def __repr__(self) -> str:
        rows = {"max": self.max, "min": self.min, "avg": self.avg, "median": self.statistics.median,
                "std_dev": self.std_dev}  # fmt: skip
        footer = footer_of(
            self.device, format_size(self.bytes), f"counts {self.counts}", simulated=self.simulated
        )
        return "\n".join([f"{self.title} (GiB/s):", *tree(rows), footer])

    def plot(self) -> None:
        """Print the distribution of the samples."""
        from rich.text import Text

        from ..reports._plots import histogram

        width = columns()
        lines = [Text(f"{self.title}, {self.device}: {many(len(self.samples), 'sample')}", style="bold")]
        lines += histogram(self.samples, Unit.RATE, width)
        lines += [Text(footer_of(simulated=True), style="bold magenta")] if self.simulated else []
        print_drawing(lines)


@dataclass(frozen=True, repr=False)
class TheoreticalBandwidth:
    """Bandwidth that a memory's clock and width allow.

    Parameters
    ----------
    device : str
        The device.
    value : float
        The bandwidth in B/s.
    origin : str
        The product that gives it, e.g. ``3201 MHz x 2 x 6016 bit``.
    simulated : bool
        Whether the device is simulated.
    """

    device: str
    value: float
    origin: str
    simulated: bool

    @property
    def gb_per_s(self) -> float:
        """Value in GB/s (10^9)."""
        return self.value / GB

    @property
    def gib_per_s(self) -> float:
        """Value in GiB/s (2^30)."""
        return self.value / GIB

    def __repr__(self) -> str:
        footer = footer_of(self.device, self.origin, simulated=self.simulated)
        return "\n".join(
            ["Theoretical Maximal Memory Bandwidth (GiB/s):", *tree({"max": self.value}), footer]
        )

    def _repr_html_(self) -> str:
        from .presentation import html

        return html(self)


@dataclass(frozen=True, repr=False)
class HostDeviceBandwidth(Drawn):
    """Copies between host and GPU: from pageable and pinned memory, in both directions.

    Parameters
    ----------
    pageable_to_device, pageable_to_host : Bandwidth
        Copies from and to pageable host memory.
    pinned_to_device, pinned_to_host : Bandwidth
        Copies from and to pinned host memory.
    """

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
            blocks.append("\n".join([f"{there.title} (GiB/s):", *tree(rows)]))
        one = self.pinned_to_device
        footer = footer_of(format_size(one.bytes), f"counts {one.counts}", simulated=self.simulated)
        return "\n\n".join(blocks) + f"\n{footer}"

    def plot(self) -> None:
        """Print the distribution of the samples of each copy."""
        for bandwidth in self:
            bandwidth.plot()
