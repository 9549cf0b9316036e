"""``wirespeed.transfer``: measure transfers that start together, and show their rates and latencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...api import machine_named
from ...document import Document, TestcaseResult
from ...measurement import Unit
from ...model import Transfer
from ...reports import SIMULATED, Style, render
from ...tables import Cell, Table
from ...terminal import Tabular, brief, colored, columns
from ...units import fitting
from ..transfers.program import of_line, of_transfers
from . import Bandwidth
from .measured import measured

if TYPE_CHECKING:
    from ...hardware.topology import Machine
    from ...reports.records import Section


@dataclass(frozen=True, repr=False)
class Transfers(Tabular):
    """Rates and latencies of transfers that started together.

    ``result["gpu0->gpu1"]`` is a value by its label; ``bandwidths`` and ``latencies`` are all of them.

    Attributes:
        document: Document of the run.
    """

    document: Document

    @property
    def simulated(self) -> bool:
        """Whether no hardware was measured."""
        return self.document.simulated

    def _cells(self) -> Iterator[tuple[TestcaseResult, Table, Cell, str]]:
        """Yield the measured cells with their labels."""
        results = self.document.testcases
        for result in results:
            for table in result.tables:
                for cell in table.cells:
                    row, column = table.rows.labels[cell.row], table.columns.labels[cell.column]
                    parts = [result.name] if len(results) > 1 else []
                    parts += [row, column] if len(table.columns.labels) > 1 else [row]
                    if cell.value is not None:
                        yield result, table, cell, " ".join(parts)

    @property
    def bandwidths(self) -> dict[str, Bandwidth]:
        """The rates: label -> bandwidth."""
        return {
            label: Bandwidth.one(
                result.name, label, cell, bytes=cell.bytes, counts=result.counts, document=self.document,
                simulated=self.document.simulated,
            )
            for result, table, cell, label in self._cells() if table.unit is Unit.RATE
        }  # fmt: skip

    @property
    def latencies(self) -> dict[str, float]:
        """The latencies: label -> seconds of one dependent load."""
        return {label: cell.value for _, table, cell, label in self._cells()
                if table.unit is Unit.TIME and cell.value is not None}  # fmt: skip

    def __len__(self) -> int:
        return sum(1 for _ in self._cells())

    def __iter__(self) -> Iterator[str]:
        return (label for *_, label in self._cells())

    def __getitem__(self, label: str) -> Bandwidth | float:
        """A bandwidth, or a latency in s, by its label."""
        values: dict[str, Bandwidth | float] = {**self.bandwidths, **self.latencies}
        if label not in values:
            raise KeyError(f"there is no {label!r}; choose from {', '.join(values)}")
        return values[label]

    def _rows(self) -> list[list[str]]:
        rows = [["", "value", "", "of limit"]]
        for _, table, cell, label in self._cells():
            scale, unit = fitting(table.unit, [cell.value or 0.0])
            share = f"{cell.value / cell.limit:.0%}" if cell.value and cell.limit else ""
            rows.append([label, f"{(cell.value or 0.0) / scale:.2f}", unit, share])
        return rows

    @property
    def footer(self) -> str:
        """The transfers, and whether no hardware was measured."""
        texts = [result.description for result in self.document.testcases]
        return " · ".join([*texts, *([SIMULATED] if self.document.simulated else [])])

    def __repr__(self) -> str:
        """One line; ``print`` shows the values."""
        shown = ", ".join(f"{label} {value} {unit}" for label, value, unit, _ in self._rows()[1:])
        return brief(f"Transfers{' (simulated)' if self.simulated else ''}: {shown}")

    def __str__(self) -> str:
        from ...reports.values import aligned

        return "\n".join([*(line.rstrip() for line in aligned(self._rows())), self.footer])

    def plot(self) -> None:
        """Print bars, or curves over an axis; a notebook shows tables and charts."""
        if self._drew():
            return
        print(render(self.document, "plot", Style(columns(), colored())), end="")

    def _section(self) -> Section:
        from ...reports.records import Section

        document = self.document
        return Section("Transfers", document.testcases, self.footer, document, self.simulated)


def transfer(
    what: str | Transfer | Iterable[Transfer], *, machine: str | Machine | None = None, **how: Any
) -> Transfers:
    """Measure transfers that start together.

    Args:
        what: A line of transfers (docs/transfers.md), or Transfers.
        machine: None for this machine, ``"simulated:NAME"``, a machine file, or a Machine.
        **how: Options of `wirespeed.run`. Without them, sampling stops when the median of the samples is
            known to ±1%, or after 0.6 s per value.

    Returns:
        The rates in B/s and latencies in s.

    Raises:
        UsageError: If the transfers are invalid; the message shows the place.
        MeasurementFailed: If they cannot be measured here, or the data was wrong.

    Examples:
        >>> import wirespeed
        >>> result = wirespeed.transfer("gpu0 -> gpu1; gpu2 -> gpu1", machine="simulated:dgx-a100-8")
        >>> round(result.bandwidths["sum"].gb_per_s)
        276
    """
    target = machine_named(machine)
    chosen = [what] if isinstance(what, Transfer) else what
    program = of_line(chosen) if isinstance(chosen, str) else of_transfers(chosen)
    how |= program.settings(how) | {"described": {"transfers": [program.text]}}
    size = how.pop("size", None)
    sizes = how.pop("sizes", None)
    return Transfers(measured([program.testcase], target, how, size, sizes=sizes))
