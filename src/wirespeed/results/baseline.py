"""Baselines: the values that good machines of a model reach, cell by cell, from their Documents."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ..document import Document
from ..errors import DocumentError, UsageError
from ..files import read
from ..hardware.facts import Facts
from ..hardware.topology import Machine
from ..measurement import Unit
from ..statistics import centre, median, sample_interval
from ..tables import LARGEST, Amount, Cell, Positive, Whole
from ..terminal import Tabular, brief, neutral_json, unknown_name
from ..thresholds.changes import AGREEMENT, DEVIATIONS
from ..units import many
from .cells import Key, model_of, placed
from .inventory import Inventory, Possession, possessions, recorded

SCHEMA = 1
#: Number of cells named in which runs differ.
_NAMED = 5


class BaselineCell(msgspec.Struct, frozen=True):
    """Baseline of one cell.

    Attributes:
        testcase, table, row, column: Location of the cell.
        bytes: Counted bytes of one copy.
        unit: Unit of the median.
        median: Median over the runs, in base units; above 0.
        spread: Standard deviation over the runs, relative to the median; 0 or more.
        runs: Number of runs.
    """

    testcase: str
    table: str
    row: str
    column: str
    bytes: Whole
    unit: Unit
    median: Positive
    spread: Amount
    runs: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def key(self) -> Key:
        """Location of the cell."""
        return Key(self.testcase, self.table, self.row, self.column, self.bytes)

    @property
    def judges(self) -> bool:
        """Whether the runs agree well enough to fail any value."""
        return DEVIATIONS * self.spread < 1


class Baseline(Tabular, msgspec.Struct, frozen=True, kw_only=True):
    """Baselines by machine model.

    Attributes:
        schema: Version of the schema (``wirespeed_baseline`` in JSON).
        simulated: Whether the machines are simulated.
        models: Machine model -> its cells.
        inventories: Machine model -> what each of its hosts has; older baselines have none.
    """

    schema: int = msgspec.field(name="wirespeed_baseline")
    simulated: bool
    models: dict[str, tuple[BaselineCell, ...]]
    inventories: dict[str, Inventory] = {}

    def __repr__(self) -> str:
        models = "; ".join(f"{many(len(cells), 'value')} of {model}" for model, cells in self.models.items())
        kind = " (simulated)" if self.simulated else ""
        return brief(f"Baseline{kind}: {models or 'nothing'}")

    def inventory(self, machine: Machine) -> Inventory | None:
        """What good machines of a machine's model have; None if that is not known.

        A machine that lacks devices has another model: it is compared with the only one with the same CPU and
        GPUs.
        """
        model = model_of(machine)
        if model in self.models:
            return self.inventories.get(model)
        alike = [good for good in self.inventories if _is_lesser(model, good)]
        return self.inventories[alike[0]] if len(alike) == 1 else None

    def entries(self, machine: Machine, *, is_lesser: bool = False) -> dict[Key, BaselineCell]:
        """The entries for a machine's model.

        Args:
            machine: The machine.
            is_lesser: Whether it lacks devices of its model; then there are none.

        Raises:
            UsageError: If there are none, or only one of baseline and machine is simulated.
        """
        if machine.simulated != self.simulated:
            kinds = ("a real machine", "a simulated machine")
            raise UsageError(
                f"the baseline is from {kinds[self.simulated]}, the run from {kinds[machine.simulated]}"
            )
        model = model_of(machine)
        if model not in self.models and is_lesser:
            return {}
        if model not in self.models:
            raise UsageError(f"the baseline has no machine like {model!r}; it has: {', '.join(self.models)}")
        return {entry.key: entry for entry in self.models[model]}


def _is_lesser(model: str, good: str) -> bool:
    """Whether two models differ only in numbers, or in GPUs that one of them lacks."""
    (cpu, *gpus), (good_cpu, *good_gpus) = (
        [re.sub(r"\d+(?= (?:cores|NUMA nodes|x |ranks))", "", part) for part in text.split("; ")]
        for text in (model, good)
    )
    return cpu == good_cpu and set(gpus) <= set(good_gpus)


def _half(cell: Cell) -> float:
    """Half the interval of a value, relative to it; 0 if nothing is known, as of imported values."""
    if cell.interval is None and not cell.samples:
        return 0.0
    low, high = cell.interval or sample_interval(cell.samples)
    return (high - low) / 2 / cell.value if cell.value else 0.0


def make(documents: Sequence[Document], names: Sequence[str] = ()) -> Baseline:
    """Make a baseline from runs on good machines.

    The spread is the median absolute deviation, scaled to a standard deviation. With a single run it is half
    of the confidence interval of the value or, without one, of the median of its samples.

    Args:
        documents: Complete runs without failures.
        names: A name for each, such as its file, for messages; empty for host and time.

    Returns:
        Median and spread of each cell, by machine model.

    Raises:
        UsageError: If there is no run, a run failed or was interrupted, only some of the runs are simulated,
            or runs of one model differ by more than ``AGREEMENT``.
    """
    if not documents:
        raise UsageError("a baseline requires at least one run")
    if len({document.simulated for document in documents}) > 1:
        raise UsageError("cannot mix simulated and real runs in one baseline")
    named = names or [f"the run of {document.started} on {document.hostname}" for document in documents]
    #: Model -> cell -> index of each run, its value, and half of the interval.
    observed: dict[str, dict[Key, dict[int, tuple[float, float]]]] = {}
    units: dict[Key, Unit] = {}
    for i, (document, name) in enumerate(zip(documents, named, strict=True)):
        if not document.good:
            failed = next((f"{r.name}: {r.status}" for r in document.testcases if not r.status.good), "")
            raise UsageError(f"{name} is not usable: {failed or document.interrupted}; omit it")
        of_model = observed.setdefault(model_of(document.machine), {})
        for place in placed(document):
            if place.cell.value and place.cell.value > 0:
                of_model.setdefault(place.key, {})[i] = place.cell.value, _half(place.cell)
                units[place.key] = place.unit
    for cells in observed.values():
        values = {key: {i: value for i, (value, _) in of_runs.items()} for key, of_runs in cells.items()}
        _check_agreement(values, named)
    models = {
        model: tuple(_entry(key, units[key], [*runs.values()]) for key, runs in sorted(cells.items()))
        for model, cells in observed.items()
    }
    hosts: dict[str, list[list[Possession]]] = {}
    for document in documents:
        hosts.setdefault(model_of(document.machine), []).append(possessions(document, Facts(document.facts)))
    inventories = {model: recorded(runs) for model, runs in hosts.items()}
    return Baseline(schema=SCHEMA, simulated=documents[0].simulated, models=models, inventories=inventories)


def _check_agreement(values: Mapping[Key, Mapping[int, float]], names: Sequence[str]) -> None:
    """Refuse runs of one model that differ, and name the one that differs most from the others.

    Args:
        values: Key -> index of each run and its value.
        names: The name of each run.
    """
    differences = {
        key: max(of_runs.values()) / min(of_runs.values()) - 1
        for key, of_runs in values.items()
        if max(of_runs.values()) > min(of_runs.values()) * (1 + AGREEMENT)
    }
    if not differences:
        return
    worst = sorted(differences, key=lambda key: -differences[key])
    named = [f"{key.testcase} {key.place} by {differences[key]:.0%}" for key in worst[:_NAMED]]
    more = [f"and {len(worst) - _NAMED} more"] if len(worst) > _NAMED else []
    which = "omit the runs that are not of good machines"
    if odd := Counter(_farthest(values[key]) for key in worst if len(values[key]) > 2):
        run, count = odd.most_common(1)[0]
        which = f"{names[run]} differs most in {count} of them: omit it if its machine is not good"
    raise UsageError(
        f"the runs differ by more than {AGREEMENT:.0%} in {many(len(worst), 'value')}: "
        f"{', '.join(named + more)}; {which}"
    )


def _farthest(of_runs: Mapping[int, float]) -> int:
    """The run whose value is farthest from the median of all, of at least three."""
    middle = median(sorted(of_runs.values()))
    return max(of_runs, key=lambda run: abs(math.log(of_runs[run] / middle)))


def _entry(key: Key, unit: Unit, observed: Sequence[tuple[float, float]]) -> BaselineCell:
    values = [value for value, _ in observed]
    median, deviation = centre(values)
    spread = observed[0][1] if len(values) == 1 else deviation / median
    spread = min(spread, LARGEST)  # of tiny values, so that the file can be loaded
    return BaselineCell(*key, unit, median, spread, len(values))


def encode(baseline: Baseline) -> bytes:
    """Indented JSON that ends with a line end."""
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def load(path: str | Path) -> Baseline:
    """Read a baseline.

    Raises:
        DocumentError: If the file cannot be read, is not a baseline, or has a newer schema.
    """
    try:
        data = neutral_json(read(path))
        baseline = msgspec.json.decode(data, type=Baseline)
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            f"{path} is not a baseline: {error}; create one with `wirespeed baseline`"
        ) from error
    if baseline.schema > SCHEMA:
        raise DocumentError(f"{path} has schema {baseline.schema}: use a newer wirespeed")
    if wrong := unknown_name(msgspec.json.decode(data), Baseline):
        raise DocumentError(f"{path} is not a baseline of this version: {wrong}")
    return baseline
