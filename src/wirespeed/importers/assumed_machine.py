"""The machine that a log is about, derived from the names and the number of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..backends import SIMULATED, describe, pci
from ..data import efficiencies
from ..data.gpus import GpuSheet, sheet_of, sheets
from ..errors import MachineError, UsageError
from ..model import Access, Engine, Unit
from ..network import rate_of
from ..topology import Gpu, Link, LinkKind, Machine, NumaNode, load
from ..units import GB, MIB
from .log import MOST_DEVICES, FoundLog

#: What the origin of every derived capacity begins with.
ASSUMED = "assumed"
_SWITCH = "nvswitch"
#: Standard widths of the PCIe link of a GPU, and the oldest generation that is assumed in place of a newer.
_WIDTHS, _OLDEST_PCIE = (16, 8), 3
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


def _of_all_hosts(logs: Sequence[FoundLog]) -> int:
    """Return the number of GPUs that the ranks of a log use on all hosts."""
    return max(len({(rank.host, rank.device) for rank in log.ranks}) for log in logs)


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
        fits = count == len(machine.gpus) or _of_all_hosts(logs) == len(machine.gpus)
        if not fits and (count > len(machine.gpus) or (count and whole)):
            raise UsageError(
                f"{logs[0].file} has {count} GPUs, the machine {machine.name} has {len(machine.gpus)}; "
                "choose another --machine"
            )
        origin = f"{ASSUMED}: --machine"
        links = tuple(
            replace(one, origin=_joined(origin, one.origin), assumed=one.capacity is not None)
            for one in machine.links
        )
        machine = replace(machine, links=links, notes=(*machine.notes, f"{ASSUMED}, not read from the host"))
    found = {name: next((v for log in logs if (v := getattr(log, name))), None)
             for name in ("host", "driver", "cuda")}  # fmt: skip
    buses = next(([bus for _, bus in log.gpus] for log in logs if log.gpus and not log.partial), [])
    if len(buses) != len(machine.gpus):  # those of the first host only
        buses = []
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
    nvlinks, reached, found = _nvlinks(count, sheet, best)
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
    pcie, lower = _pcie(sheet, to_host)
    for gpu in gpus:
        links += _own_links(gpu.name, sheet, pcie, to_host)
    notes = [
        f"{ASSUMED} from the log: one NUMA node for all GPUs, its memory and the host's bridges unknown",
        f"{ASSUMED} from data sheets: {' '.join(sheet.source.split())}" if sheet
        else f"no data sheet for {models[0] or 'the GPUs, which the log does not name'}" if models
        else "the log names no GPU",
        *filter(None, (lower, found)),
    ]  # fmt: skip
    return Machine(
        f"{name}-{count}" if sheet else "unknown",
        numa=tuple(NumaNode(i) for i in range(nodes)),
        gpus=gpus,
        links=(*links, *nvlinks, *through_host),
        notes=tuple(notes),
    )


def _explaining(rates: Iterable[float], fastest: float, lowest: float) -> float | None:
    """Return the first standard rate that explains the fastest of all devices; None if none does.

    Parameters
    ----------
    rates : Iterable[float]
        Standard rates of a link, the preferred first, in B/s.
    fastest : float
        The fastest value of all devices, in B/s.
    lowest : float
        Fraction of the rate that a good machine reaches.
    """
    return next((r for r in rates if r * lowest <= fastest <= r * (1 + _CLOCK)), None)


def _lowest(kind: LinkKind) -> float:
    """Return the fraction of a link's rate that copy engines reach at the low end of the range."""
    return rate_of(efficiencies()[0], Engine.CE, kind, Access.READ).efficiency


def _pcie(sheet: GpuSheet | None, to_host: float) -> tuple[tuple[float, str] | None, str]:
    """Return rate and origin of the PCIe links, and a note if they are not those of the data sheet.

    Slots and hosts may be older than the GPU: if all GPUs agree at a lower standard rate, it is the limit.
    """
    full = pci.rate(sheet.pcie, max(_WIDTHS)) if sheet and not sheet.c2c else None
    if sheet is None or full is None:
        return None, ""
    generations = range(min(_OLDEST_PCIE, sheet.pcie), sheet.pcie + 1)
    known = [found for w in _WIDTHS for g in generations if (found := pci.rate(g, w))]
    rate = _explaining([one for one, _ in known], to_host, _lowest(LinkKind.PCIE))
    if rate is None or rate == full[0]:
        return full, ""
    names = " or ".join(name for one, name in known if abs(one / rate - 1) < _CLOCK)
    note = (
        f"no GPU copies faster than {to_host / GB:.1f} GB/s to or from the host, so that {names} is the limit"
    )
    return (rate, f"{names} from the values, in place of {full[1]} of the data sheet"), note


def _own_links(
    gpu: str, sheet: GpuSheet | None, pcie: tuple[float, str] | None, to_host: float
) -> Iterator[Link]:
    """Yield the links of a GPU to its memory and to the host; ``to_host`` is the fastest copy, in B/s."""
    if sheet is None:
        yield Link(gpu, gpu, LinkKind.MEMORY, origin="unknown")
        yield from pci.both_ways("numa0", gpu, None, "unknown")
        return
    rate, origin = sheet.memory_rate
    of_memory = f"{ASSUMED}: {origin}" if rate else origin
    yield Link(gpu, gpu, LinkKind.MEMORY, rate, of_memory, assumed=rate is not None)
    if sheet.c2c:
        c2c = next((r * GB for r in sheet.c2c if to_host <= r * GB * (1 + _CLOCK)), sheet.c2c[-1] * GB)
        for ends in (("numa0", gpu), (gpu, "numa0")):
            yield Link(*ends, LinkKind.C2C, c2c, f"{ASSUMED}: NVLink-C2C data sheet", assumed=True)
    elif pcie:
        for link in pci.both_ways("numa0", gpu, pcie[0], f"{ASSUMED}: {pcie[1]}"):
            yield replace(link, assumed=True)


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
) -> tuple[list[Link], set[Pair], str]:
    """Return the NVLinks, the pairs of GPUs that they connect, and a note if they are fewer than usual.

    Without a switch, two GPUs have the smallest possible number of links that explains their fastest copy;
    none if PCIe explains it. Without copies between GPUs, what connects them is unknown.
    """
    if sheet is None or not sheet.links or count < 2:
        return [], set(), ""
    every = {(i, j) for i in range(count) for j in range(count) if i != j}
    if sheet.switch and (count > _MOST_WITHOUT_SWITCH or not best):
        return _switched(count, sheet, max(best.values(), default=0.0))
    if not best:
        why = f"unknown: how {sheet.links[-1]} links x {sheet.nvlink:g} GB/s of each GPU connect them"
        links = [Link(f"gpu{i}", f"gpu{j}", LinkKind.NVLINK, None, why) for i, j in sorted(every)]
        return links, every, ""
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
             f"{ASSUMED} from the values: {n} links x {sheet.nvlink:g} GB/s", assumed=True)
        for (i, j), n in sorted(numbers.items())
    ]  # fmt: skip
    return found, set(numbers), ""


def _switched(count: int, sheet: GpuSheet, fastest: float) -> tuple[list[Link], set[Pair], str]:
    """Return the NVLinks to a switch; fewer than in the data sheet if no GPU copies faster, in B/s."""
    every = {(i, j) for i in range(count) for j in range(count) if i != j}
    rate = _explaining(map(sheet.nvlinks, sheet.links), fastest, _lowest(LinkKind.NVLINK))
    links = next((n for n in sheet.links if sheet.nvlinks(n) == rate), sheet.links[-1])
    origin, note = f"{ASSUMED}: {links} links x {sheet.nvlink:g} GB/s", ""
    if links != sheet.links[-1]:
        origin += f" from the values, in place of {sheet.links[-1]} of the data sheet"
        found = f"no GPU copies faster than {fastest / GB:.1f} GB/s to another"
        note = f"{found}, so that {links} NVLinks are the limit"
    ends = [end for i in range(count) for end in ((f"gpu{i}", _SWITCH), (_SWITCH, f"gpu{i}"))]
    capacity = sheet.nvlinks(links)
    return [Link(*end, LinkKind.NVLINK, capacity, origin, assumed=True) for end in ends], every, note
