"""The GPUs of the machine of some logs: the largest set that they name, and the GPUs of a run of a subset."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...data import gpu_sheet
from ...errors import UsageError
from ...hardware.devices import GPU, parse
from ...hardware.topology import Machine
from .log import OF_PROCESSES, FoundLog, FoundTable
from .scan import MOST_DEVICES

#: Name and PCI bus ID of each GPU, in the order of their indices; empty texts if unknown.
Gpus = list[tuple[str, str]]
#: End of the names of data sheets of models that name no form: SXM or PCIe.
_ANY_FORM = "-of-unknown-form"
#: Domain and bus of a GPU, in the forms of all tools: ``0000:3b:00``, ``00000000:3B:00.0``, ``0x3b``.
_BUS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):[0-9a-f]{2}(?:\.\d)?|0x([0-9a-f]{2})", re.IGNORECASE)


def largest(logs: Sequence[FoundLog]) -> Gpus:
    """The GPUs of the machine of some logs; a log may be of a part of them.

    Raises:
        UsageError: If two logs name GPUs that are not of one machine.
    """
    named = [log for log in logs if log.gpus]
    most = max(named, key=lambda log: len(log.gpus), default=None)
    gpus = [*most.gpus] if most else []
    for log in named:
        if most and not _is_part(log.gpus, gpus):
            of, other = _listed(most.gpus), _listed(log.gpus)
            raise UsageError(
                f"{most.file} is of {of}, {log.file} of {other}; import them separately"
                if most.file != log.file else
                f"{most.file} is of two machines, {of} and {other}; save the output of each in its own file"
            )  # fmt: skip
    models = {model for log in named for model, _ in log.gpus if model}
    shown = max((count for log in logs for count in _shown(log, is_named=bool(models))), default=0)
    one = models.pop() if len(models) == 1 else ""
    gpus = [(model or one, bus) for model, bus in gpus]
    return gpus + [(one, "")] * (shown - len(gpus))


def _shown(log: FoundLog, *, is_named: bool) -> Iterator[int]:
    """Yield the numbers of GPUs that tables and readings of a log have."""
    for table in log.tables:
        if table.columns[:1] == ("gpu0",) and not (is_named and table.testcase.startswith(OF_PROCESSES)):
            yield len(table.columns)
    of_process = [count for name in ("threads", "gpus") if isinstance(count := log.options.get(name), int)]
    if log.gpus and len(of_process) > 1:
        yield min(math.prod(of_process), MOST_DEVICES)
    for fact in log.facts:
        if (place := parse(fact.device)) and place[0] is GPU:
            yield place[1] + 1


def _is_part(some: Gpus, gpus: Gpus) -> bool:
    """Whether GPUs can be some of others, by their models."""
    left = Counter(model for model, _ in gpus)
    for model in (model for model, _ in some if model):
        same = next((other for other in left if left[other] and is_model(model, other)), None)
        same = "" if same is None and left[""] else same
        if same is None:
            return False
        left[same] -= 1
    return True


def _listed(gpus: Gpus) -> str:
    models = Counter(model or "unknown GPU" for model, _ in gpus)
    return ", ".join(f"{count} x {model}" for model, count in models.items())


def aligned(logs: Sequence[FoundLog]) -> None:
    """Place the tables of logs of some GPUs of a machine at those, as far as bus IDs name them.

    CUDA numbers the GPUs that a process may use from 0. Readings are dropped unless the numbers agree.
    """
    gpus = largest(logs)
    for log in logs:
        where = _places(log.gpus, gpus)
        if where is None or where == list(range(len(gpus))):
            continue
        log.tables = [_moved(table, where, len(gpus)) for table in log.tables]
        log.partial |= len(where) < len(gpus)
        log.runs_on = where
        if where != list(range(len(where))):
            log.facts = [fact for fact in log.facts if not fact.device]


def _places(some: Gpus, gpus: Gpus) -> list[int] | None:
    """The index of each of some GPUs among all, by bus IDs; None if they do not say."""
    own, every = ([_bus(bus) for _, bus in of] for of in (some, gpus))
    if not own or None in own or len(set(own)) < len(own) or not set(own) <= set(every):
        return None
    return [every.index(bus) for bus in own]


def _bus(bus_id: str) -> tuple[int, int] | None:
    """Domain and bus; None if unknown."""
    match = _BUS.fullmatch(bus_id)
    return (int(match[1] or "0", 16), int(match[2] or match[3], 16)) if match else None


def _moved(table: FoundTable, where: Sequence[int], count: int) -> FoundTable:
    """A table of some GPUs with a column for each, and a row if it had one for each of them."""
    names = tuple(f"gpu{i}" for i in range(len(where)))
    if table.columns != names:
        return table
    every = tuple(f"gpu{i}" for i in range(count))
    at = {place: i for i, place in enumerate(where)}
    values = [tuple(row[at[j]] if j in at else None for j in range(count)) for row in table.values]
    if table.rows[: len(values)] == names[: len(values)] and len(values) > 1:
        empty = (None,) * count
        values = [values[at[i]] if i in at and at[i] < len(values) else empty for i in range(count)]
        return replace(table, columns=every, rows=every, values=tuple(values))
    return replace(table, columns=every, values=tuple(values))


def widened(table: FoundTable, count: int) -> FoundTable:
    """The table of the first GPUs of a machine with a column for each."""
    return _moved(table, range(len(table.columns)), count) if len(table.columns) < count else table


def alike(machine: Machine) -> bool:
    """Whether the GPUs of a machine are of one model and have equal links: any of them are like others."""
    names = [gpu.name for gpu in machine.gpus]
    pairs: dict[tuple[str, str], list[tuple[str, float | None]]] = {(a, b): [] for a in names for b in names}
    others: dict[str, list[tuple[str, float | None]]] = {name: [] for name in names}
    for link in machine.links:
        what = (str(link.kind), link.capacity)
        if link.ends in pairs:
            pairs[link.ends].append(what)
        for end in {*link.ends} & others.keys() if link.ends not in pairs else ():
            others[end].append(what)
    between = {tuple(sorted(map(str, links))) for (a, b), links in pairs.items() if a != b}
    outside = {tuple(sorted(map(str, links))) for links in others.values()}
    return len(between) <= 1 and len(outside) <= 1 and len({gpu.model for gpu in machine.gpus}) <= 1


def members_of(machine: Machine, log: FoundLog, count: int) -> tuple[int, ...]:
    """The indices of the GPUs that take part in a collective of a log; none if they are unknown.

    Args:
        machine: The machine of one host.
        log: The log.
        count: Number of ranks; 0 if it is unknown.
    """
    gpus = len(machine.gpus)
    if not 0 < count <= gpus:
        return ()
    if count == gpus:
        return tuple(range(gpus))
    if len({rank.host for rank in log.ranks}) > 1:
        return ()
    if len(log.runs_on) == count and max(log.runs_on) < gpus:
        return tuple(log.runs_on)
    return tuple(range(count)) if alike(machine) else ()


def other_models(log: FoundLog, machine: Machine) -> str:
    """Say that a log names other GPUs than its machine has; empty if it does not."""
    there = sorted({gpu.model for gpu in machine.gpus if gpu.model})
    named = dict.fromkeys(model for model, _ in log.gpus if model)
    strange = [model for model in named if not any(is_model(model, other) for other in there)]
    return (
        f"the log is of {', '.join(strange)}, the machine has {', '.join(there)}" if strange and there else ""
    )


def is_model(model: str, other: str) -> bool:
    """Whether two names can mean one model."""
    if model.casefold() == other.casefold():
        return True
    known = [sheet[0] for sheet in (gpu_sheet(model), gpu_sheet(other)) if sheet]
    if len(known) < 2:
        return False
    first, second = known
    return first == second or any(
        one.endswith(_ANY_FORM) and one.removesuffix(_ANY_FORM) in two.split("-")
        for one, two in ((first, second), (second, first))
    )
