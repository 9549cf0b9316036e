"""One-call bandwidth measurements for the prompt, like the functions of GPUInspector.jl. Each measures with
the same Session as the command line and returns a ``Bandwidth``, one value or several in B/s, which is
immutable and prints as a tree; ``result.document`` is the Document of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import floor, log10
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ...document import Document, Status, TestcaseResult
from ...errors import UsageError
from ...measurement import Axis, Unit
from ...reports import SIMULATED, Style
from ...statistics import summarise
from ...tables import Cell, Statistics, Table
from ...terminal import Tabular, brief, colored, columns
from ...units import GB, GIB, KIB, MIB, format_size, many

if TYPE_CHECKING:
    from ...reports.records import Section


#: The units of printed rates: in all of wirespeed, and in GPUInspector.jl.
RateUnit = Literal["GB/s", "GiB/s"]
_UNITS: dict[RateUnit, int] = {"GB/s": GB, "GiB/s": GIB}


def _number(rate: float, unit: RateUnit = "GB/s", like: float = 0.0) -> str:
    """A rate in two decimals, or three digits if it is less than 1; in GiB/s as Julia rounds it.

    ``like`` is a rate, in B/s, with whose decimals it is printed; 0 for its own.
    """
    size = float(f"{(like or rate) / _UNITS[unit]:.3g}")
    text = f"{rate / _UNITS[unit]:.{max(2, 2 - floor(log10(size))) if size > 0 else 2}f}"
    return re.sub(r"(\.\d+?)0+$", r"\1", text) if unit == "GiB/s" else text


def _tree(head: str, texts: Mapping[str, str]) -> str:
    """A heading, and names with values as the branches of a small tree."""
    rows = [f"{name}: {text}" for name, text in texts.items()]
    return "\n".join([f"{head}:", *(f" ├ {row}" for row in rows[:-1]), f" └ {rows[-1]}"])


def _spread(statistics: Statistics, unit: RateUnit) -> dict[str, str]:
    """The statistics that GPUInspector.jl prints."""
    mean = statistics.mean
    rates = {"max": statistics.max, "min": statistics.min, "avg": mean, "std_dev": statistics.cv * abs(mean)}
    return {name: _number(rate, unit, statistics.max) for name, rate in rates.items()}


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
        title: Name of the measurement, as in GPUInspector.jl.
        detail: What is special about it: ``SAXPY, float32``, ``sum of both``; empty for nothing.
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
    detail: str = ""
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
            **fields: Fields that differ from the first bandwidth.

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
        """Title with what is special about it, and the device if there is one."""
        named = f"{self.title} ({self.detail})" if self.detail else self.title
        return f"{named}, {self.device}" if self.device else named

    def __float__(self) -> float:
        """The value, in B/s."""
        return self.value

    @property
    def footer(self) -> str:
        """Device or number of pairs, size, which bytes count, and whether no hardware was measured."""
        parts = (
            many(len(self), "pair") if self._is_matrix else self.device, self.detail,
            format_size(self.bytes) if self.bytes else "", f"counts {self.counts}" if self.counts else "",
            self.note, SIMULATED if self.simulated else "",
        )  # fmt: skip
        return " · ".join(filter(None, parts))

    def _rows(self, stats: bool, unit: RateUnit) -> dict[str, str]:
        """What a tree shows of one bandwidth or a curve; without ``stats``, of one only the maximum."""
        if self.table.is_curve:
            numbers = (_number(rate, unit) for rate in self.samples)
            return dict(zip(self.table.columns.labels, numbers, strict=True))
        spread = _spread(self.statistics, unit)
        return spread if self.samples and stats else {"max": spread["max"]}

    def __repr__(self) -> str:
        """One line; ``print`` shows the values."""
        text = f": {_number(self.value)}"
        if self.points:
            text = f", {len(self)} values from {_number(self.min)} to {_number(self.max)}"
        share = f", {self.value / self.limit:.0%} of the limit" if self.limit and self.samples else ""
        kind = ", SIMULATED" if self.simulated else ""
        return brief(f"{self._name}{text} GB/s{share}{kind}")

    def _section(self) -> Section:
        from ...reports.records import Section

        result = TestcaseResult(self._name, Status.PASSED, counts=self.counts, tables=(self.table,))
        return Section(self._name, (result,), self.footer, self.document, self.simulated)

    def show(self, stats: bool | None = None, unit: RateUnit = "GB/s") -> None:
        """Print the values, or the plot of a curve.

        Args:
            stats: Whether to print more than the maximum of each bandwidth; None: as ``print`` does. A table
                of pairs has one value for each.
            unit: ``GiB/s`` prints the text of GPUInspector.jl, with its unit and its decimals.
        """
        if unit not in _UNITS:
            raise UsageError(f"there is no unit {unit!r}; choose one of {', '.join(_UNITS)}")
        if self.table.is_curve:
            self.plot()
        else:
            print(self._text(self.detailed if stats is None else stats, unit))

    def __str__(self) -> str:
        return self._text(self.detailed)

    def _text(self, stats: bool, unit: RateUnit = "GB/s") -> str:
        from ...reports.values import aligned

        head = f"{self.title} ({unit})"
        if self.table.is_curve:
            at = self.table.columns.labels[self.points.index(self.fastest)]
            peak = f"peak {_number(self.fastest.value, unit)} at {at}"
            head = f"{self.title} over {self.table.columns.name} ({unit}), {peak}"
        if not self.points or self.table.is_curve:
            size = f"Memsize: {_memsize(self.bytes)}\n\n" if self.detailed else ""
            return f"{size}{_tree(head, self._rows(stats, unit))}\n{self.footer}"
        if self._is_matrix:
            decimals = 3 if unit == "GiB/s" else 2
            texts = [
                ["-" if rate is None else f"{rate / _UNITS[unit]:.{decimals}f}" for rate in row]
                for row in self.values
            ]
            rows = [[label, *row] for label, row in zip(self.labels, texts, strict=True)]
            return "\n".join([f"{head}:", *aligned([["", *self.labels], *rows]), self.footer])
        trees = []
        for i in range(len(self.labels)):
            row = [point for cell, point in zip(self.table.cells, self, strict=True) if cell.row == i]
            spread = _spread(summarise([sample for point in row for sample in point.samples]), unit)
            tree = _tree(f"{row[0].title} ({unit})", spread if stats else {"max": spread["max"]})
            ways = " · ".join(f"{point.device}: {_number(point.value, unit)}" for point in row)
            trees.append(f"{tree}\n{ways}" if stats else tree)
        return "\n\n".join(trees) + f"\n{self.footer}"

    def plot(self) -> None:
        """Print the distribution of the samples, a curve with its peak marked, or a heat map.

        A notebook shows the chart or heat map of its page.
        """
        from rich.text import Text

        from ...reports.console import printed
        from ...reports.plot import drawn, histogram

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
