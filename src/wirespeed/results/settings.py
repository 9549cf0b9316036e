"""What a run was made with, as short texts: versions, settings, facts, which explain why two runs differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ..document import REQUESTED, Document
from ..hardware.facts import COUNTED, Known
from ..hardware.topology import Machine
from ..thresholds.changes import SAME_CLOCK

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
        if abs(first[name] - second[name]) > SAME_CLOCK * max(first[name], second[name]):
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
