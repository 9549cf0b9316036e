"""Every cell of a Document with a unique key, so that Documents can be compared.

What a run was made with, as short texts: versions, settings, facts. They explain why two runs differ.

Overrides: deviations that an operator accepts, each with a reason.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from ..document import REQUESTED, Document, TestcaseResult
from ..errors import UsageError
from ..files import LARGEST_WRITTEN, read
from ..hardware.facts import COUNTED, Known
from ..hardware.topology import LinkKind, Machine
from ..measurement import Unit
from ..model import Engine
from ..tables import Cell, Table
from ..terminal import neutral, unknown_name


class Key(NamedTuple):  # a tuple, because there are many
    """Location of a cell.

    Attributes:
        testcase: Name of the testcase.
        table: Key of the table.
        row, column: Labels of row and column.
        bytes: Counted bytes of one copy.
    """

    testcase: str
    table: str
    row: str
    column: str
    bytes: int = 0

    @property
    def place(self) -> str:
        """Table, row and column, for people; empty for a whole testcase."""
        return " ".join(filter(None, (self.table, self.row, self.column)))


class Placed(NamedTuple):
    """A cell with its context.

    Attributes:
        key: Location of the cell.
        cell: The cell.
        unit: Unit of its value.
        result: Result of its testcase.
    """

    key: Key
    cell: Cell
    unit: Unit
    result: TestcaseResult


def key_of(result: TestcaseResult, table: Table, cell: Cell) -> Key:
    """The key of a cell of a table of a testcase."""
    row, column = table.rows.labels[cell.row], table.columns.labels[cell.column]
    return Key(result.name, table.key, row, column, cell.bytes)


def placed(document: Document) -> Iterator[Placed]:
    """Every cell of a Document, in order, those without a value included."""
    for result in document.testcases:
        for table in result.tables:
            for cell in table.cells:
                yield Placed(key_of(result, table, cell), cell, table.unit, result)


def busy_devices(place: Placed, machine: Machine) -> dict[str, str]:
    """The devices of a cell that another process used while it was measured, and how."""
    busy = place.result.busy
    if not busy or place.cell.value is None:
        return {}
    ends = {end for i, *_ in place.cell.links for end in machine.links[i].ends}
    devices = ends | {place.key.row, place.key.column}
    if place.result.engine != Engine.CPU:  # busy CPUs slow threads, not copy engines
        devices -= {node.name for node in machine.numa}
    return {device: use for device, use in busy.items() if device in devices}


def model_of(machine: Machine) -> str:
    """What comparable machines have in common: CPU and GPUs."""
    counts = Counter(gpu.model for gpu in machine.gpus)
    cores = sum(len(node.cores) for node in machine.numa)
    ranks = [f"{len(machine.ranks)} ranks"] if machine.ranks else []
    cpu = f"{machine.cpu or 'CPU of unknown model'}, {cores} cores, {len(machine.numa)} NUMA nodes"
    others = [machine.counts[kind] for kind in machine.counts if kind.name in machine.others]
    return "; ".join([cpu, *(f"{n} x {model}" for model, n in counts.items()), *others, *ranks])


#: Options that say nothing about how values were measured.
_OTHER_OPTIONS = ("testcases", "prefixes", "seed", REQUESTED)
#: Facts that vary from one moment to the next, or that a run causes.
VOLATILE = {
    Known.LOAD, Known.PRESSURE, Known.UTILISATION, Known.PROCESSES, Known.THROTTLED, Known.THROTTLED_TIME,
    Known.THROTTLED_BY, Known.OBSERVED, Known.AER, Known.AER_CORRECTED, Known.DIMM_ERRORS,
    Known.NVLINK_ERRORS, Known.ECC_ERRORS, Known.PORT_ERRORS, Known.PORT_ERROR_KINDS, Known.PORT_LOST,
    Known.PORT_CONGESTION, Known.INTERFACE_LOST, Known.MACHINE_ID, *COUNTED.values(),
}  # fmt: skip
#: Attribute that says how many NVLinks are active.
NVLINKS = "NVLinks"
#: Clocks that differ by less than this fraction are the same.
_SAME_CLOCK = 0.02
#: Maximum number of texts of an attribute that are named.
_TEXTS = 3


@dataclass(frozen=True)
class Difference:
    """Something that differs between the runs before and after.

    Attributes:
        name: What differs.
        before, after: What it is; empty if unknown.
    """

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before or 'unknown'} → {self.after or 'unknown'}"


def attributes(document: Document) -> dict[str, str]:
    """What may explain why nodes differ; versions first."""
    machine = document.machine
    texts = {
        "NVIDIA driver": machine.driver,
        "CUDA version of the driver": str(machine.cuda or ""),
        "kernel": machine.kernel,
        "GPUs": gpus_of(machine),
        "CPU": machine.cpu,
        "NUMA nodes": str(len(machine.numa)),
        "cores": str(sum(len(node.cores) for node in machine.numa)),
        "transparent huge pages": machine.transparent_huge_pages,
        "wirespeed": document.version,
    }
    facts: dict[str, set[str]] = defaultdict(set)
    for fact in document.facts:
        value = f"{fact.value:g}" if isinstance(fact.value, float) else fact.value
        shown = ", ".join(value) or "none" if isinstance(value, tuple) else value
        facts[fact.name].add("unknown" if shown is None else str(shown))
    texts |= {name: ", ".join(sorted(values)) for name, values in facts.items()}
    if links := _nvlinks(document):
        texts[NVLINKS] = links
        del texts[Known.NVLINKS]
    texts |= {f"library {name}": version for name, version in document.libraries.items()}
    texts |= {
        f"option {name}": str(value)
        for name, value in document.options.items()
        if value is not None and name not in _OTHER_OPTIONS
    }
    return {name: text for name, text in texts.items() if text}


def _nvlinks(document: Document) -> str:
    """How many NVLinks are active on the GPUs; empty if that is unknown."""
    values = (fact.value for fact in document.facts if fact.name == Known.NVLINKS)
    counts = [value for value in values if isinstance(value, float | int)]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"some links down ({low:g} to {high:g} active)" if low < high else f"{high:g} active links"


def gpus_of(machine: Machine) -> str:
    """Such as ``8 x NVIDIA H200``; empty without GPUs."""
    return ", ".join(f"{n} x {model}" for model, n in Counter(gpu.model for gpu in machine.gpus).items())


def differences(before: Sequence[Document], after: Sequence[Document]) -> tuple[Difference, ...]:
    """What differs between runs before and after: host, machine, versions, settings, facts and clocks.

    Of several runs, all texts count.
    """
    runs = (*before, *after)
    some_lack_facts = not all(document.facts for document in runs)  # such as runs of older versions
    ignored = VOLATILE | {fact.name for document in runs for fact in document.facts if some_lack_facts}
    first, second = _texts(before), _texts(after)
    changed = [
        Difference(name, _joined(first.get(name, ())), _joined(second.get(name, ())))
        for name in dict.fromkeys((*first, *second))
        if name not in ignored and set(first.get(name, ())) != set(second.get(name, ()))
    ]
    return (*changed, *_clocks(before, after))


def _texts(documents: Sequence[Document]) -> dict[str, list[str]]:
    """The attributes of several runs, each with its distinct texts."""
    by_name: dict[str, list[str]] = {}
    for document in documents:
        for name, text in (_identity(document) | attributes(document)).items():
            if text and text not in by_name.setdefault(name, []):
                by_name[name].append(text)
    return {name: texts for name, texts in by_name.items() if texts}


def _joined(texts: Sequence[str]) -> str:
    """The texts of an attribute; of many the first, and how many follow."""
    shown = sorted(texts)[:_TEXTS]
    more = f" and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    return ", ".join(shown) + more


def _identity(document: Document) -> dict[str, str]:
    machine = document.machine
    faults = (f"{fault.cause or fault.kind}@{fault.where}" for fault in machine.faults)
    return {
        "host": document.hostname,
        "machine": machine.name,
        "ranks": str(len(machine.ranks) or ""),
        "Python": document.python,
        "imported": document.origin,
        "simulated faults": ", ".join(faults) or "none" * machine.simulated,
    }


def _clocks(before: Sequence[Document], after: Sequence[Document]) -> Iterator[Difference]:
    """Yield the clocks whose highest reading differs, by the median of the runs."""
    first, second = (_typical([_highest(document) for document in side]) for side in (before, after))
    for name in (name for name in first if name in second):
        if abs(first[name] - second[name]) > _SAME_CLOCK * max(first[name], second[name]):
            yield Difference(name, *(f"{clocks[name] / 1e6:.0f} MHz" for clocks in (first, second)))


def _typical(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each quantity over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: median(run[name] for run in runs if name in run) for name in names}


def _highest(document: Document) -> dict[str, float]:
    """Name of each clock -> its highest reading during a run, in Hz."""
    highest: dict[str, float] = {}
    for result in document.testcases:
        for reading in result.history:
            for quantity in reading.state:
                if quantity.unit == "Hz" and isinstance(quantity.value, (int, float)):
                    name = f"highest {quantity.label}"
                    highest[name] = max(highest.get(name, 0.0), quantity.value)
    return highest


#: Minimum load at which an override of a memory applies: all traffic of a GPU uses its memory.
_MEMORY_MATTERS = 0.2


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted deviation. It applies to cells that match all given fields.

    Attributes:
        reason: Shown wherever the override applies.
        link: Cells that use this link: ``numa0-gpu1``, ``gpu0->gpu1``, or ``gpu1`` for all links at it.
        testcase, row, column: Names and labels, with the wildcards ``*`` and ``?``.
        accept: Accept values from this fraction of the lowest passing value, but no implausible values; if
            omitted, accept any value.
    """

    reason: str
    link: str = ""
    testcase: str = "*"
    row: str = "*"
    column: str = "*"
    accept: float | None = None

    def __str__(self) -> str:
        places = (self.link, *(p for p in (self.testcase, self.row, self.column) if p != "*"))
        return " ".join(place for place in places if place)

    def fits(self, key: Key, cell: Cell, machine: Machine) -> bool:
        """Whether a cell matches all given fields; a link must be used by it."""
        links = set(machine.links_at(self.link))
        return (
            fnmatchcase(key.testcase, self.testcase)
            and fnmatchcase(key.row, self.row)
            and fnmatchcase(key.column, self.column)
            and (not self.link or any(
                i in links and (taken >= _MEMORY_MATTERS or machine.links[i].kind is not LinkKind.MEMORY)
                for i, taken, _ in cell.links
            ))
        )  # fmt: skip


class _OverrideFile(msgspec.Struct, forbid_unknown_fields=True):
    override: tuple[Override, ...]


def load(path: str | Path) -> tuple[Override, ...]:
    """Load overrides from a TOML file.

    Raises:
        UsageError: If the file cannot be read or an entry is invalid.
    """
    try:
        text = read(path, LARGEST_WRITTEN).decode()
        content = neutral(tomllib.loads(text))
        if wrong := unknown_name(content, _OverrideFile):
            raise ValueError(str(wrong))
        overrides = msgspec.convert(content, _OverrideFile).override
    except OSError as error:
        raise UsageError(f"cannot read the overrides {path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # also of very long numbers
        raise UsageError(f"{path} is not a valid overrides file: {error}") from error
    for entry in overrides:
        if not entry.reason.strip():
            raise UsageError(f"{path}: the override of {entry or 'everything'} has no reason; add one")
        if not str(entry):
            raise UsageError(f"{path}: an override must name a link, testcase, row or column")
        if entry.accept is not None and not 0 < entry.accept < 1:
            raise UsageError(f"{path}: the override of {entry} accepts {entry.accept}; use 0 to 1")
    return overrides


def check_links(overrides: Sequence[Override], machine: Machine) -> None:
    """Reject overrides of links that the machine does not have, before anything is measured.

    Raises:
        UsageError: For the first such override.
    """
    for entry in overrides:
        if entry.link and not machine.links_at(entry.link):
            raise UsageError(f"the override of {entry} has no effect: the machine has no link {entry.link!r}")
