"""One-call bandwidth measurements for the prompt, like the functions of GPUInspector.jl. Each function
measures with the same Session as the command line and returns a small result that prints as a tree: a
``Bandwidth`` with values in B/s and the Document of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..document import Document, Status, TestcaseResult
from ..measurement import Axis, Unit
from ..reports import SIMULATED, Style
from ..statistics import summarise
from ..tables import Cell, Statistics, Table
from ..terminal import Tabular, brief, colored, columns
from ..units import GB, GIB, KIB, MIB, format_size, many

if TYPE_CHECKING:
    from ..reports.records import Section


def _tree(head: str, rows: Mapping[str, float]) -> str:
    """A heading, and names with values in GiB/s as the branches of a small tree."""
    texts = [f"{name}: {rate / GIB:.{2 if rate / GIB >= 0.1 else 5}f}" for name, rate in rows.items()]
    return "\n".join([f"{head}:", *(f" ├ {text}" for text in texts[:-1]), f" └ {texts[-1]}"])


def _memsize(size: int) -> str:
    """A size as Julia formats it: ``38.147 MiB``."""
    for unit_bytes, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit_bytes:
            return f"{size / unit_bytes:.3f} {unit}"
    return f"{size} bytes"


@dataclass(frozen=True, repr=False)
class Bandwidth(Tabular):
    """One bandwidth, a curve over sizes, or a table of pairs.

    ``value``, ``min``, ``max``, ``avg`` and ``std_dev`` describe the samples of one bandwidth, or the values
    of several. Iterating yields the single bandwidths; an index or name of row and column selects one:
    ``pairs[0, 1]``, ``pairs["gpu0", "gpu1"]``.

    Attributes:
        title: Name of the measurement.
        device: Device or pair: ``gpu0``, ``gpu0 -> gpu1``; empty for several pairs.
        table: The measured cells; of a curve, the columns are sizes.
        bytes: Size of one buffer; 0 for a curve and for a theoretical value.
        counts: Which bytes count.
        note: The product that gives a theoretical value, or why pairs could not be measured.
        simulated: Whether no hardware was measured.
        detailed: Whether the text of one bandwidth has the size of the buffer, and minimum, mean and
            deviation of the samples; like GPUInspector.jl, only that of copies between two devices has.
        document: Document of the run; None for a theoretical value.
        points: The single bandwidths of a curve or table, in the order of its cells; empty for one bandwidth.
    """

    title: str
    device: str
    table: Table
    bytes: int = 0
    counts: str = ""
    note: str = ""
    simulated: bool = False
    detailed: bool = False
    document: Document | None = field(default=None, compare=False)
    points: tuple[Bandwidth, ...] = ()

    @staticmethod
    def one(title: str, device: str, cell: Cell, **fields: Any) -> Bandwidth:
        """The bandwidth of a cell; ``fields`` are further fields of the result.

        Args:
            title, device: Name of the measurement, and measured device or pair.
            cell: The measured cell; value in B/s.
            **fields: Further fields of the result.

        Returns:
            The bandwidth, with a table of one cell.
        """
        placed = msgspec.structs.replace(cell, row=0, column=0)
        table = Table("", title, Unit.RATE, Axis("device", (device,)), Axis("", ("",)), (placed,))
        return Bandwidth(title, device, table, **fields)

    @staticmethod
    def several(
        title: str, rows: Axis, columns: Axis, points: Mapping[tuple[int, int], Bandwidth], **fields: Any
    ) -> Bandwidth:
        """Several bandwidths, given by row and column; ``fields`` replace those of the first.

        Args:
            title: Name of the measurement.
            rows, columns: Axes of the table; the columns of a curve have values.
            points: Row and column -> single bandwidth; at least one.
            **fields: Fields that differ from those of the first bandwidth.

        Returns:
            A curve, or a table.
        """
        cells = tuple(
            msgspec.structs.replace(point.table.cells[0], row=row, column=column)
            for (row, column), point in points.items()
        )
        table = Table("", title, Unit.RATE, rows, columns, cells)
        own = {"title": title, "table": table, "points": tuple(points.values()), **fields}
        return replace(next(iter(points.values())), **own)

    def __len__(self) -> int:
        return len(self.points) or 1

    def __iter__(self) -> Iterator[Bandwidth]:
        return iter(self.points or (self,))

    def __getitem__(self, place: tuple[int | str, int | str]) -> Bandwidth | None:
        """The bandwidth of a row and column by index or name; None if it was not measured."""
        indices = []
        for axis, name in zip((self.table.rows, self.table.columns), place, strict=True):
            if isinstance(name, str) and name not in axis.labels:
                raise KeyError(f"unknown {axis.name} {name}; choose from {', '.join(axis.labels)}")
            indices.append(
                axis.labels.index(name) if isinstance(name, str) else range(len(axis.labels))[name]
            )
        cells = zip(self.table.cells, self, strict=True)
        return next((bandwidth for cell, bandwidth in cells if [cell.row, cell.column] == indices), None)

    @property
    def samples(self) -> tuple[float, ...]:
        """All samples, or the values of several bandwidths; empty for a theoretical value."""
        return tuple(self.table.values()) if self.points else self.table.cells[0].samples

    @property
    def statistics(self) -> Statistics:
        """Statistics of the samples: range, mean, variation."""
        own = None if self.points else self.table.cells[0].statistics
        return own or summarise(self.table.values())

    @property
    def value(self) -> float:
        """The bandwidth; the median of several, in B/s."""
        return self.statistics.median if self.points else self.table.values()[0]

    @property
    def limit(self) -> float | None:
        """Limit of the links, in B/s; None if unknown, and for several bandwidths."""
        return None if self.points else self.table.cells[0].limit

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
        """Largest sample or value, in B/s."""
        return self.statistics.max

    @property
    def min(self) -> float:
        """Smallest sample or value, in B/s."""
        return self.statistics.min

    @property
    def avg(self) -> float:
        """Mean of the samples or values, in B/s."""
        return self.statistics.mean

    @property
    def std_dev(self) -> float:
        """Standard deviation of the samples or values, in B/s."""
        return self.statistics.cv * abs(self.statistics.mean)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the rows: the devices of a table of pairs."""
        return self.table.rows.labels

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of a curve as measured: CPUs round up to whole lines of 64 B."""
        return tuple(map(int, self.table.columns.values))

    @property
    def values(self) -> tuple[tuple[float | None, ...], ...]:
        """All values in B/s as rows; None where nothing was measured."""
        return tuple(tuple(cell.value if cell else None for cell in row) for row in self.table.grid())

    @property
    def fastest(self) -> Bandwidth:
        """The single bandwidth with the highest value."""
        return max(self, key=lambda bandwidth: bandwidth.value)

    @property
    def slowest(self) -> Bandwidth:
        """The single bandwidth with the lowest value."""
        return min(self, key=lambda bandwidth: bandwidth.value)

    @property
    def peak_size(self) -> int:
        """Size at which a curve has its highest value."""
        return self.sizes[self.points.index(self.fastest)]

    @property
    def _is_matrix(self) -> bool:
        """Whether rows and columns are the same devices."""
        return bool(self.points) and self.table.rows == self.table.columns

    @property
    def _name(self) -> str:
        """Title with the device, if there is one."""
        return f"{self.title}, {self.device}" if self.device else self.title

    @property
    def footer(self) -> str:
        """Device or number of pairs, size, which bytes count, and whether no hardware was measured."""
        parts = (
            many(len(self), "pair") if self._is_matrix else self.device,
            format_size(self.bytes) if self.bytes else "", f"counts {self.counts}" if self.counts else "",
            self.note, SIMULATED if self.simulated else "",
        )  # fmt: skip
        return " · ".join(filter(None, parts))

    def _rows(self, stats: bool) -> dict[str, float]:
        """What a tree shows of one bandwidth or a curve; without ``stats``, of one only the maximum."""
        if self.table.is_curve:
            return dict(zip(self.table.columns.labels, self.samples, strict=True))
        names = ("max", "min", "avg", "std_dev") if self.samples and stats else ("max",)
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        """One line; ``print`` shows the values."""
        text = f": {self.gib_per_s:.4g}"
        if self.points:
            text = f", {len(self)} values from {self.min / GIB:.4g} to {self.max / GIB:.4g}"
        share = f", {self.value / self.limit:.0%} of the limit" if self.limit and self.samples else ""
        kind = ", SIMULATED" if self.simulated else ""
        return brief(f"{self._name}{text} GiB/s{share}{kind}")

    def _section(self) -> Section:
        from ..reports.records import Section

        result = TestcaseResult(self._name, Status.PASSED, counts=self.counts, tables=(self.table,))
        return Section(self._name, (result,), self.footer, self.document, self.simulated)

    def show(self, stats: bool | None = None) -> None:
        """Print the values, or the plot of a curve.

        Args:
            stats: Whether to print more than the maximum of each bandwidth; None: as ``print`` does. A table
                of pairs has one value for each.
        """
        if self.table.is_curve:
            self.plot()
        else:
            print(self._text(self.detailed if stats is None else stats))

    def __str__(self) -> str:
        return self._text(self.detailed)

    def _text(self, stats: bool) -> str:
        from ..reports.findings import aligned

        head = f"{self.title} (GiB/s)"
        if self.table.is_curve:
            peak = f"peak {self.fastest.gib_per_s:.2f} at {self._peak_label}"
            head = f"{self.title} over {self.table.columns.name} (GiB/s), {peak}"
        if not self.points or self.table.is_curve:
            size = f"Memsize: {_memsize(self.bytes)}\n\n" if self.detailed else ""
            return f"{size}{_tree(head, self._rows(stats))}\n{self.footer}"
        if self._is_matrix:
            texts = [["-" if rate is None else f"{rate / GIB:.2f}" for rate in row] for row in self.values]
            rows = [[label, *row] for label, row in zip(self.labels, texts, strict=True)]
            return "\n".join([f"{head}:", *aligned([["", *self.labels], *rows]), self.footer])
        trees = []
        for i in range(len(self.labels)):
            row = [point for cell, point in zip(self.table.cells, self, strict=True) if cell.row == i]
            values = {"max": max(point.max for point in row)}
            values |= {point.device: point.value for point in row} if stats else {}
            trees.append(_tree(f"{row[0].title} (GiB/s)", values))
        return "\n\n".join(trees) + f"\n{self.footer}"

    @property
    def _peak_label(self) -> str:
        """Label of the size at which a curve has its highest value."""
        return self.table.columns.labels[self.points.index(self.fastest)]

    def plot(self) -> None:
        """Print the distribution of the samples, a curve with its peak marked, or a heat map.

        A notebook shows the chart or heat map of its page.
        """
        from rich.text import Text

        from ..reports.console import printed
        from ..reports.plot import drawn, histogram

        if self._drew():
            return
        if self.points and not self.table.is_curve and not self._is_matrix:
            for bandwidth in self:
                bandwidth.plot()
            return
        style = Style(columns(), colored())
        if self.points:
            title, lines = self._name, drawn(self.table, style)
        else:
            title = f"{self._name}: {many(len(self.samples), 'sample')}"
            lines = histogram(self.samples, Unit.RATE, style.width) if self.samples else []
        note = Text(self.footer, "dim") if self._is_matrix else Text(SIMULATED, "bold magenta")
        closing = [note] if self._is_matrix or self.simulated else []
        print(printed(style, Text(title, style="bold"), *lines, *closing), end="")
