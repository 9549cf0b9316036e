"""The machine that a log is about, derived from the names and the number of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..backends import SIMULATED, describe, pci
from ..data.gpus import GpuSheet, sheet_of, sheets
from ..errors import MachineError, UsageError
from ..model import Unit
from ..topology import Gpu, Link, LinkKind, Machine, NumaNode, load
from ..units import GB, MIB
from .log import MOST_DEVICES, FoundLog

#: What the origin of every derived capacity begins with.
ASSUMED = "assumed"
_SWITCH = "nvswitch"
#: Testcases that copy between the host and one GPU in one direction.
_HOST_COPIES = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
#: Machines with more GPUs than this have switches, if the model can have them.
_MOST_WITHOUT_SWITCH = 4
#: A copy may exceed the line rate by this fraction, because clocks are not exact.
_CLOCK = 0.01


def count_of(logs: Sequence[FoundLog]) -> int:
    """Return the number of GPUs of one host in some logs.

    Raises
    ------
    UsageError
        If the logs are of machines with different GPUs.
    """
    named: dict[tuple[str, ...], str] = {}
    for log in logs:
        if log.gpus and not log.partial:
            named.setdefault(tuple(model for model, _ in log.gpus), log.file)
    if len(named) > 1:
        (first, file), (second, other) = list(named.items())[:2]
        raise UsageError(
            f"{file} is of {_listed(first)}, {other} of {_listed(second)}; import them separately"
        )
    return max([len(models) for models in named] or [*(_columns(log) for log in logs), 0])


def _models(logs: Sequence[FoundLog], count: int) -> list[str]:
    """Return the names of the GPUs of one host; a tool that measures one GPU names only that one."""
    whole = next(([model for model, _ in log.gpus] for log in logs if log.gpus and not log.partial), [])
    one = next((log.gpus[0][0] for log in logs if log.gpus), "")
    return whole or [one] * count


def _listed(models: Sequence[str]) -> str:
    return ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))


def _columns(log: FoundLog) -> int:
    """Return the number of GPUs that the tables of a log have as columns."""
    return max(
        (len(t.columns) for t in log.tables if t.columns[:1] == ("gpu0",) and not t.why_not), default=0
    )


def machine_of(logs: Sequence[FoundLog], wanted: str | Machine | None) -> Machine:
    """Return the machine that some logs are of.

    Parameters
    ----------
    logs : Sequence[FoundLog]
        The logs.
    wanted : str, Machine or None
        Name of a data sheet and a number (``hgx-h100-8``), ``simulated:NAME``, a machine file, or a Machine;
        None: derived from the logs.

    Raises
    ------
    UsageError
        If the machine does not exist, or has not the GPUs of the logs.
    """
    count = count_of(logs)
    models = _models(logs, count)
    simulated = any(log.simulated for log in logs)
    if wanted is None:
        machine = _derived(models, logs)
    else:
        machine = wanted if isinstance(wanted, Machine) else _named(wanted, logs)
        whole = any(not log.partial for log in logs)
        if count > len(machine.gpus) or (count and whole and count < len(machine.gpus)):
            raise UsageError(
                f"{logs[0].file} has {count} GPUs, the machine {machine.name} has {len(machine.gpus)}; "
                "choose another --machine"
            )
        origin = f"{ASSUMED}: --machine"
        links = tuple(replace(one, origin=_joined(origin, one.origin)) for one in machine.links)
        machine = replace(machine, links=links, notes=(*machine.notes, f"{ASSUMED}, not read from the host"))
    found = {name: next((v for log in logs if (v := getattr(log, name))), None)
             for name in ("host", "driver", "cuda")}  # fmt: skip
    buses = next(([bus for _, bus in log.gpus] for log in logs if log.gpus and not log.partial), [])
    gpus = tuple(
        replace(gpu, bus_id=bus or gpu.bus_id, backend="")
        for gpu, bus in zip(machine.gpus, buses or [""] * len(machine.gpus), strict=True)
    )
    return replace(
        machine, gpus=gpus, simulated=simulated, faults=(), host=found["host"] or "",
        driver=found["driver"] or "", cuda=found["cuda"] or 0,
    )  # fmt: skip


def _joined(prefix: str, origin: str) -> str:
    return origin if origin.startswith(ASSUMED) else f"{prefix}, {origin}" if origin else prefix


def _named(wanted: str, logs: Sequence[FoundLog]) -> Machine:
    """Return the machine with a name, or from a file."""
    match = re.fullmatch(r"(.+)-(\d{1,4})", wanted)
    if match and match[1] in sheets() and not Path(wanted).exists():
        if not 0 < int(match[2]) <= MOST_DEVICES:
            raise MachineError(f"a machine cannot have {match[2]} GPUs")
        model = f"NVIDIA {sheets()[match[1]].models[0]}"
        return _derived([model] * int(match[2]), logs)
    if wanted.startswith(SIMULATED):
        return describe(wanted)
    if not Path(wanted).exists():
        names = ", ".join(f"{name}-N" for name in sheets())
        raise MachineError(
            f"there is no machine {wanted!r}: it is no file, not {SIMULATED}NAME, and none of {names}"
        )
    return load(wanted)


def _derived(models: Sequence[str], logs: Sequence[FoundLog]) -> Machine:
    """Return the machine with some GPUs; all that is not known from the log is marked as assumed."""
    count = len(models)
    known = sheet_of(models[0]) if models and len(set(models)) == 1 else None
    name, sheet = known or ("", None)
    best = _best_copies(logs, count)
    nvlinks, reached = _nvlinks(count, sheet, best)
    through_host = [
        Link(f"gpu{i}", f"gpu{j}", LinkKind.PCIE, origin="unknown: sockets and switches between GPUs")
        for i, j in sorted(best.keys() - reached)
    ]
    names = [f"gpu{i}" for i in range(count)]
    gpus = tuple(
        Gpu(
            i, model or "GPU of unknown model", memory_bytes=sheet.memory_mib * MIB if sheet else 0,
            multiprocessors=sheet.multiprocessors if sheet else 0,
            compute_capability=sheet.capability if sheet else "",
            peers=tuple(names[j] for j in range(count) if j != i and ((i, j) in best or (i, j) in reached)),
        )
        for i, model in enumerate(models)
    )  # fmt: skip
    to_host = max(
        (v for log in logs for t in log.tables if t.testcase in _HOST_COPIES for v in t.values[0] if v),
        default=0.0,
    )
    nodes = max(
        (len(t.columns) for log in logs for t in log.tables if t.columns[:1] == ("numa0",)), default=1
    )
    links = [Link(f"numa{i}", f"numa{i}", LinkKind.MEMORY, origin="unknown") for i in range(nodes)]
    for gpu in gpus:
        links += _own_links(gpu.name, sheet, to_host)
    notes = [
        f"{ASSUMED} from the log: one NUMA node for all GPUs, its memory and the host's bridges unknown",
        f"{ASSUMED} from data sheets: {' '.join(sheet.source.split())}" if sheet
        else f"no data sheet for {models[0] or 'the GPUs, which the log does not name'}" if models
        else "the log names no GPU",
    ]  # fmt: skip
    return Machine(
        f"{name}-{count}" if sheet else "unknown",
        numa=tuple(NumaNode(i) for i in range(nodes)),
        gpus=gpus,
        links=(*links, *nvlinks, *through_host),
        notes=tuple(notes),
    )


def _own_links(gpu: str, sheet: GpuSheet | None, to_host: float) -> Iterator[Link]:
    """Yield the links of a GPU to its memory and to the host; ``to_host`` is the fastest copy, in B/s."""
    if sheet is None:
        yield Link(gpu, gpu, LinkKind.MEMORY, origin="unknown")
        yield from pci.both_ways("numa0", gpu, None, "unknown")
        return
    rate, origin = sheet.memory_rate
    yield Link(gpu, gpu, LinkKind.MEMORY, rate, f"{ASSUMED}: {origin}" if rate else origin)
    if sheet.c2c:
        c2c = next((r * GB for r in sheet.c2c if to_host <= r * GB * (1 + _CLOCK)), sheet.c2c[-1] * GB)
        for ends in (("numa0", gpu), (gpu, "numa0")):
            yield Link(*ends, LinkKind.C2C, c2c, f"{ASSUMED}: NVLink-C2C data sheet")
    elif known := pci.rate(sheet.pcie, 16):
        yield from pci.both_ways("numa0", gpu, known[0], f"{ASSUMED}: {known[1]}")


#: Indices of two GPUs.
Pair = tuple[int, int]


def _best_copies(logs: Iterable[FoundLog], count: int) -> dict[Pair, float]:
    """Return the fastest copy in one direction between each two GPUs, in B/s."""
    best: dict[Pair, float] = {}
    for log in logs:
        for table in log.tables:
            one_way = table.testcase.startswith("device_to_device") and table.unit is Unit.RATE
            if not one_way or table.why_not or table.key == "total" or len(table.columns) != count:
                continue
            for i, row in enumerate(table.values[:count]):
                for j, value in enumerate(row):
                    for pair in ((i, j), (j, i)) if value and i != j else ():
                        best[pair] = max(best.get(pair, 0.0), value or 0.0)
    return best


def _nvlinks(
    count: int, sheet: GpuSheet | None, best: dict[Pair, float]
) -> tuple[list[Link], set[Pair]]:  # fmt: skip
    """Return the NVLinks, and the pairs of GPUs that they connect.

    Without a switch, two GPUs have the smallest possible number of links that explains their fastest copy;
    none if PCIe explains it.
    """
    if sheet is None or not sheet.links or count < 2:
        return [], set()
    every = {(i, j) for i in range(count) for j in range(count) if i != j}
    if sheet.switch and (count > _MOST_WITHOUT_SWITCH or not best):
        links = sheet.links[-1]
        origin = f"{ASSUMED}: {links} links x {sheet.nvlink:g} GB/s"
        ends = [end for i in range(count) for end in ((f"gpu{i}", _SWITCH), (_SWITCH, f"gpu{i}"))]
        return [Link(*end, LinkKind.NVLINK, sheet.nvlinks(links), origin) for end in ends], every
    slowest = (pci.rate(sheet.pcie, 16) or (0.0,))[0]
    numbers = {
        pair: next((n for n in sheet.links if value <= sheet.nvlinks(n) * (1 + _CLOCK)), sheet.links[-1])
        for pair, value in best.items()
        if value > slowest
    }
    if sheet.switch and set(numbers) == every and set(numbers.values()) == {sheet.links[-1]}:
        return _nvlinks(count, sheet, {})
    found = [
        Link(f"gpu{i}", f"gpu{j}", LinkKind.NVLINK, sheet.nvlinks(n),
             f"{ASSUMED} from the values: {n} links x {sheet.nvlink:g} GB/s")
        for (i, j), n in sorted(numbers.items())
    ]  # fmt: skip
    return found, set(numbers)
