"""What a comparison of a cell rests on: values of runs, or the rounds or samples of one run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

from msgspec.structs import replace as struct_replace

from ..document import Document
from ..measurement import UNSEEN as UNSEEN_BY_ROUNDS
from ..measurement import NoiseKind, Unit
from ..model import Engine
from ..tables import LATE, SMALLEST, Cell
from .cells import Key, Placed, busy_devices, placed
from .significance import Contrast, contrast


class Evidence(StrEnum):
    """What shows how much the value of a cell varies, the best first."""

    RUNS = "runs"
    ROUNDS = "rounds"
    SAMPLES = "samples"
    VALUES = "values"  #: nothing but the values, as in imported logs


#: What a run does not show of the variation between runs, in two parts. First, what its rounds (or samples)
#: share: a variance over that of the rounds, because clocks, tenants and memory stay alike for a while. Of
#: samples it is more, because they have the same buffers: a run is no more certain than one sample.
SHARED: Mapping[Evidence, float] = dict(zip(Evidence, (0.0, 0.25, 1.0, 0.0), strict=True))
#: Second, what no round may show: a standard deviation as a fraction of the value. Where physical pages lie
#: changes from process to process, and with it latencies most.
UNSEEN: Mapping[Evidence, Mapping[NoiseKind, float]] = {
    Evidence.RUNS: dict.fromkeys(NoiseKind, 0.0),
    Evidence.ROUNDS: UNSEEN_BY_ROUNDS,
    Evidence.SAMPLES: dict(zip(NoiseKind, (0.06, 0.035, 0.012, 0.005), strict=True)),
    Evidence.VALUES: dict(zip(NoiseKind, (0.07, 0.05, 0.015, 0.007), strict=True)),
}
#: Degrees of freedom of these, as of a measurement with this many fresh processes: those of rounds are chosen
#: so that 10 to 16 processes on two shared virtual machines mostly agree, the others are estimates.
_UNSEEN_DF = 15


@dataclass
class CellValues:
    """Values of a cell on one side.

    Attributes:
        unit: Their unit.
        noise: Their kind.
        cells: The cells to compare, with their hosts.
        busy: Devices of other cells that another process used -> how.
        values: All values, also of busy devices.
    """

    unit: Unit = Unit.RATE
    noise: NoiseKind = NoiseKind.GPU
    cells: list[tuple[str, Cell]] = field(default_factory=list)
    busy: dict[str, str] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)

    def of(self, host: str) -> CellValues:
        """The same with only the cells to compare of one host."""
        return replace(self, cells=[entry for entry in self.cells if entry[0] == host])


@dataclass(frozen=True)
class Tested:
    """Difference of a cell between the sides.

    Attributes:
        evidence: What shows how much the value varies.
        kind: Equal for cells with similar variances.
        contrast: The difference.
    """

    evidence: Evidence
    kind: str
    contrast: Contrast


def values(documents: Sequence[Document], *, ignore_busy: bool) -> dict[Key, CellValues]:
    """The values of each cell that has any."""
    by_key: dict[Key, CellValues] = {}
    for document in documents:
        host = document.hostname
        iterations = document.options.get("per_iteration") is True
        cells = (_of_iterations(at) if iterations and at.result.collective else at for at in placed(document))
        last = {at.key: at for at in cells if at.cell.value and not at.cell.is_wrong}
        for key, place in last.items():
            of_cell = by_key.get(key) or by_key.setdefault(key, CellValues(place.unit, noise_of(place)))
            of_cell.values.append(place.cell.value or 0.0)
            if busy := {} if ignore_busy else busy_devices(place, document.machine):
                of_cell.busy |= busy
            else:
                of_cell.cells.append((host, place.cell))
    return by_key


def _of_iterations(place: Placed) -> Placed:
    """The same for a collective whose samples are the iterations of a loop, which are not compared.

    How much they vary, often by a slow first one, says little of their mean in the next run. In place of the
    delay of a process, its median time is compared.
    """
    table, cell = place.key.table, place.cell
    if table not in LATE or not cell.samples:
        return place._replace(cell=struct_replace(cell, samples=()))
    key = place.key._replace(table=f"time {table.removeprefix('late-')}")
    return place._replace(key=key, cell=struct_replace(cell, value=median(cell.samples), samples=()))


def tested(first: CellValues, second: CellValues, *, paired: bool) -> Tested | None:
    """The difference by the best evidence that both sides have; None without cells to compare.

    Args:
        first, second: Values before and after.
        paired: Whether to compare each host with itself, if one has values on both sides.
    """
    if not (first.cells and second.cells):
        return None
    paired = paired and bool({host for host, _ in first.cells} & {host for host, _ in second.cells})
    for evidence in Evidence:
        before, after = (_observed(side.cells, evidence, paired=paired) for side in (first, second))
        if before and after:
            unseen = 2 * UNSEEN[evidence][first.noise] ** 2
            difference = contrast(before, after, SHARED[evidence], unseen, _UNSEEN_DF)
            if difference.df or evidence is Evidence.VALUES:
                return Tested(evidence, f"{evidence} of {first.noise}", difference)
    return None


def _observed(
    cells: Sequence[tuple[str, Cell]], evidence: Evidence, *, paired: bool
) -> dict[str, list[float]]:
    """The logarithms of what is compared, by host if paired; nothing if the evidence is lacking."""
    blocks: dict[str, list[float]] = {}
    for host, cell in cells:
        observed: Sequence[float] = (cell.value or SMALLEST,)
        if evidence in (Evidence.ROUNDS, Evidence.SAMPLES):
            of_run = cell.rounds if evidence is Evidence.ROUNDS else cell.samples
            observed = of_run if len(cells) == 1 else ()
        if observed:
            logs = [math.log(max(value, SMALLEST)) for value in observed]
            blocks.setdefault(host if paired else "", []).extend(logs)
    return blocks


def noise_of(place: Placed) -> NoiseKind:
    """The kind of a value, by which it varies."""
    if place.result.engine not in (Engine.CPU, Engine.MPI):
        ends = re.match("(host|numa)", place.key.row) or re.match("(host|numa)", place.key.column)
        return NoiseKind.LINK if ends else NoiseKind.GPU
    return NoiseKind.HOST if place.unit is Unit.RATE else NoiseKind.LATENCY
