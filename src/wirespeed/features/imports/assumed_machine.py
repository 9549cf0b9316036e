"""The machine that a log is about, derived from the names and the number of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...backends import SIMULATED, describe, pci
from ...data import GpuSheet, efficiencies, gpu_sheet, gpu_sheets
from ...document import RankInfo
from ...errors import MachineError, UsageError
from ...hardware import pcie
from ...hardware.devices import Gpu, NumaNode
from ...hardware.link_graph import rate_of
from ...hardware.topology import UNKNOWN_GPU, Link, LinkKind, Machine, Rank, load
from ...measurement import Unit
from ...model import Access, Engine
from ...results.imported_limits import GIVEN, GIVEN_MACHINE, UNKNOWN, shares_nvlink, with_network
from ...thresholds.values import ABOVE_LIMIT, WIDER
from ...units import GB, MIB
from . import scan
from .gpu_sets import largest, other_models
from .log import HOST_COPIES, OF_PROCESSES, FoundLog

#: What the origin of every derived capacity begins with.
ASSUMED = "assumed"
_SWITCH = "nvswitch"
#: What connects all GPUs of a machine without a switch, if each of them uses all its links.
_MESH = "nvlinks"
#: Standard widths of the PCIe link of a GPU, those of risers for mining, which count if no other explains a
#: rate, and the oldest generation that is assumed in place of a newer.
_WIDTHS, _NARROW, _OLDEST_PCIE = (16, 8, 4), (2, 1), 3
#: Testcases that copy within a GPU: their values count the bytes once, and the memory moves them twice.
_LOCAL_COPIES = "device_local_copy"
#: Begin of the names of testcases that use only the memory of a GPU.
_OF_MEMORY = ("device_local_", "device_stream_")
#: Machines with more GPUs than this have switches, if the model can have them.
_MOST_WITHOUT_SWITCH = 4


def sheet_name(machine: Machine) -> str:
    """The name of the data sheet of all GPUs of a machine; empty if there is none for all."""
    names = {known[0] if (known := gpu_sheet(gpu.model)) else "" for gpu in machine.gpus}
    return names.pop() if len(names) == 1 else ""


def machine_of(logs: Sequence[FoundLog], wanted: str | Machine | None) -> Machine:
    """The machine that some logs are of.

    Args:
        logs: The logs.
        wanted: Name of a data sheet and a number (``hgx-h100-8``), ``simulated:NAME``, a machine file, or a
            Machine; None: derived from the logs.

    Raises:
        UsageError: If the machine does not exist, or has not the GPUs of the logs.
    """
    named = largest(logs)
    models, count = [model for model, _ in named], len(named)
    simulated = any(log.simulated for log in logs)
    if wanted is None:
        machine = _of_job(_derived(models, logs), logs)
    else:
        machine = wanted if isinstance(wanted, Machine) else _named(wanted, logs)
        machine = _of_job(machine, logs)
        is_whole = any(not log.partial or len({rank.host for rank in log.ranks}) > 1 for log in logs)
        of_all_hosts = max(len({(rank.host, rank.device) for rank in log.ranks}) for log in logs)
        ranks = max((run.info.ranks for log in logs for run in log.collectives), default=0)
        fits = len(machine.gpus) in (count, of_all_hosts, ranks)
        if not fits and (count > len(machine.gpus) or (count and is_whole)):
            raise UsageError(
                f"{logs[0].file} has {count} GPUs, the machine {machine.name} has {len(machine.gpus)}; "
                "choose another --machine"
            )
        is_named = any(models) and not any(other_models(log, machine) for log in logs)
        origin = f"{ASSUMED}: --machine" if is_named else GIVEN_MACHINE
        links = tuple(
            replace(link, origin=_joined(origin, link.origin), assumed=link.capacity is not None)
            for link in machine.links
        )
        machine = replace(machine, links=links, notes=(*machine.notes, f"{ASSUMED}, not read from the host"))
    of_logs = {name: next((v for log in logs if (v := getattr(log, name))), None)
             for name in ("host", "driver", "cuda")}  # fmt: skip
    buses = [bus for _, bus in named]
    if len(buses) != len(machine.gpus):  # those of the first host only
        buses = []
    gpus = tuple(
        replace(gpu, bus_id=bus or gpu.bus_id, backend="")
        for gpu, bus in zip(machine.gpus, buses or [""] * len(machine.gpus), strict=True)
    )
    return replace(
        machine, gpus=gpus, simulated=simulated, faults=(), host=of_logs["host"] or "",
        driver=of_logs["driver"] or "", cuda=of_logs["cuda"] or 0,
    )  # fmt: skip


def _of_job(machine: Machine, logs: Sequence[FoundLog]) -> Machine:
    """The machine of all processes, if all values are of copies between them, over NVLink if hosts differ.

    A machine with as many GPUs as there are processes is one host, and has them all.
    """
    if machine.ranks or any(log.collectives for log in logs):
        return machine
    ranks = next((log.ranks for log in logs if log.ranks), [])
    tables = [table for log in logs for table in log.tables if not table.why_not]
    if len(machine.gpus) == max((len(table.columns) for table in tables), default=0):
        ranks = [
            RankInfo(gpu.index, 0, 0, machine.host, gpu.index, gpu.bus_id, gpu.model) for gpu in machine.gpus
        ]
    hosts = list(dict.fromkeys(rank.host for rank in ranks))
    names, hosts_own = {gpu.name for gpu in machine.gpus}, {node.name for node in machine.numa}
    places = {(rank.host, f"gpu{rank.device}"): f"{rank.rank}/gpu{rank.device}" for rank in ranks}
    is_job = tables and all(table.testcase.startswith(OF_PROCESSES) for table in tables)
    is_known = len(places) == len(ranks) > 1 and {gpu for _, gpu in places} <= names
    if not is_job or not is_known or (len(hosts) > 1 and not shares_nvlink(machine, len(ranks))):
        return machine
    links = [link for link in machine.links if names.isdisjoint(link.ends)]
    for host in hosts:
        for link in machine.links:
            own = [end for end in link.ends if end in names]
            far = host != hosts[0] and not hosts_own.isdisjoint(link.ends)
            if own and not far and all((host, end) in places for end in own):
                ends = [places.get((host, end), end) for end in link.ends]
                links.append(replace(link, source=ends[0], destination=ends[1]))
    processes = tuple(
        Rank(rank.rank, rank.host, f"gpu{rank.device}", model=rank.model, bus_id=rank.bus_id)
        for rank in sorted(ranks, key=lambda rank: rank.rank)
    )
    note = f"{ASSUMED}: NVLink connects the GPUs of all {len(hosts)} hosts"
    notes = (*machine.notes, note) if len(hosts) > 1 else machine.notes
    return replace(machine, links=tuple(links), ranks=processes, notes=notes)


def _joined(prefix: str, origin: str) -> str:
    return ", ".join(filter(None, (prefix, origin.removeprefix(f"{ASSUMED}: "))))


def _named(wanted: str, logs: Sequence[FoundLog]) -> Machine:
    """The machine with a name, or from a file."""
    match = re.fullmatch(r"(.+)-(\d{1,4})", wanted)
    if match and match[1] in gpu_sheets() and not Path(wanted).exists():
        if not 0 < int(match[2]) <= scan.MOST_DEVICES:
            raise MachineError(f"a machine cannot have {match[2]} GPUs")
        model = f"NVIDIA {gpu_sheets()[match[1]].models[0]}"
        return _derived([model] * int(match[2]), logs)
    if wanted.startswith(SIMULATED):
        return describe(wanted)
    if not Path(wanted).exists():
        names = ", ".join(f"{name}-N" for name in gpu_sheets())
        raise MachineError(
            f"there is no machine {wanted!r}: it is no file, not {SIMULATED}NAME, and none of {names}"
        )
    return load(wanted)


def _derived(models: Sequence[str], logs: Sequence[FoundLog]) -> Machine:
    """The machine with some GPUs; all that is not known from the log is marked as assumed."""
    count = len(models)
    known = [gpu_sheet(model) or ("", None) for model in models]
    name, sheet = known[0] if len(set(models)) == 1 else ("", None)
    best = _best_copies(logs, count)
    nvlinks, reached, nvlink_note = _nvlinks(count, sheet, best, _fastest_of_two(logs))
    through_host = [
        _through_host((f"gpu{i}", f"gpu{j}"), (known[i][1], known[j][1]), best[i, j])
        for i, j in sorted(best.keys() - reached)
    ]
    names = [f"gpu{i}" for i in range(count)]
    gpus = tuple(
        Gpu(
            i, model or UNKNOWN_GPU, memory_bytes=own.memory_mib * MIB if own else 0,
            multiprocessors=own.multiprocessors if own else 0,
            compute_capability=own.capability if own else "",
            peers=tuple(names[j] for j in range(count) if j != i and ((i, j) in best or (i, j) in reached)),
        )
        for i, (model, (_, own)) in enumerate(zip(models, known, strict=True))
    )  # fmt: skip
    nodes = max(
        (len(t.columns) for log in logs for t in log.tables if t.columns[:1] == ("numa0",)), default=1
    )
    links = [Link(f"numa{i}", f"numa{i}", LinkKind.MEMORY, origin="unknown") for i in range(nodes)]
    notes = [f"{ASSUMED} from the log: one NUMA node for all GPUs, its memory and the host's bridges unknown"]
    to_host, memory = _fastest(logs, HOST_COPIES), _fastest(logs, _OF_MEMORY)
    for model in dict.fromkeys(models):
        alike = [gpu for gpu, other in zip(gpus, models, strict=True) if other == model]
        _, own = known[alike[0].index]
        notes.append(
            f"{ASSUMED} from data sheets: {' '.join(own.source.split())}" if own
            else f"no data sheet for {model or 'the GPUs, which the log does not name'}"
        )  # fmt: skip
        for group in [[gpu] for gpu in alike] if own and own.desktop else [alike]:
            own_links, note = _own_links([gpu.name for gpu in group], own, to_host, memory)
            links += own_links
            notes += [note] if note else []
    if not models:
        notes.append("the log names no GPU")
    return Machine(
        f"{name}-{count}" if sheet else "unknown",
        numa=tuple(NumaNode(i) for i in range(nodes)),
        gpus=gpus,
        links=(*links, *nvlinks, *through_host),
        notes=tuple(dict.fromkeys((*notes, nvlink_note) if nvlink_note else notes)),
    )


def _fastest(logs: Sequence[FoundLog], testcases: tuple[str, ...]) -> dict[str, float]:
    """The fastest value of each GPU in B/s, of testcases whose names begin so."""
    best: dict[str, float] = {}
    for table in (table for log in logs for table in log.tables):
        if table.unit is Unit.RATE and table.values and table.testcase.startswith(testcases):
            times = 2 if table.testcase.startswith(_LOCAL_COPIES) else 1
            for gpu, value in zip(table.columns, () if table.why_not else table.values[0], strict=False):
                best[gpu] = max(best.get(gpu, 0.0), times * (value or 0.0))
    return best


def _through_host(
    ends: tuple[str, str], sheets_of_ends: tuple[GpuSheet | None, GpuSheet | None], fastest: float
) -> Link:
    """What connects two GPUs without NVLink: at most PCIe, less if sockets are between them.

    A faster copy, in B/s, takes another path: links of the CPUs, or NVLinks of GPUs of different models. GPUs
    that have no other links than PCIe have no such path.
    """
    rates = [pcie.rate(sheet.pcie, sheet.lanes) if sheet else None for sheet in sheets_of_ends]
    rate = None if None in rates else min(filter(None, rates))
    has_others = any(sheet and (sheet.links or sheet.c2c) for sheet in sheets_of_ends)
    if rate is None or (has_others and fastest > rate[0] * (1 + ABOVE_LIMIT)):
        return Link(*ends, LinkKind.PCIE, origin="unknown: sockets and switches between GPUs")
    return Link(*ends, LinkKind.PCIE, rate[0], f"{ASSUMED}: {rate[1]} through the host", assumed=True)


def _explaining(rates: Iterable[float], fastest: float, lowest: float) -> float | None:
    """The first standard rate that explains the fastest of all devices; None if none does.

    Args:
        rates: Standard rates of a link, the preferred first, in B/s.
        fastest: The fastest value of all devices, in B/s.
        lowest: Fraction of the rate that a good machine reaches.
    """
    return next((r for r in rates if r * lowest <= fastest <= r * (1 + ABOVE_LIMIT)), None)


def _lowest(kind: LinkKind) -> float:
    """The fraction of a link's rate that copy engines reach at the low end of the range of a log."""
    return WIDER * rate_of(efficiencies()[0], Engine.CE, kind, Access.READ).efficiency


def _pcie(
    gpus: Sequence[str], sheet: GpuSheet, of_host: Sequence[float]
) -> tuple[tuple[float, str] | None, str]:
    """Rate and origin of the PCIe links, and a note if the values are those of a lower standard rate.

    Slots and hosts may be older than the GPU, and slots narrower: the note says which would explain the
    values. They remain slow for the GPU: no value defines its own limit.

    Args:
        gpus: Names of the GPUs of one model, or one of a desktop machine.
        sheet: Their data sheet.
        of_host: The fastest copies to or from the host of those that have any, in B/s.
    """
    to_host = max(of_host, default=0.0)
    full = None if sheet.c2c else pcie.rate(sheet.pcie, sheet.lanes)
    if full is None:
        return None, ""
    generations = range(min(_OLDEST_PCIE, sheet.pcie), sheet.pcie + 1)
    rate = None
    for possible in (_WIDTHS, _NARROW):
        widths = [width for width in possible if width <= sheet.lanes]
        known = [standard for w in widths for g in generations if (standard := pcie.rate(g, w))]
        rate = _explaining([candidate for candidate, _ in known], to_host, _lowest(LinkKind.PCIE))
        if rate:
            break
    if rate is None or rate == full[0]:
        return full, ""
    names = " or ".join(name for candidate, name in known if abs(candidate / rate - 1) < ABOVE_LIMIT)
    who = gpus[0] if len(gpus) == 1 else "the GPU" if len(of_host) == 1 else "the fastest GPU"
    copies = f"{who} copies at most at {to_host / GB:.1f} GB/s to or from the host"
    return full, f"{copies}, which {names} explains"


def _own_links(
    gpus: Sequence[str], sheet: GpuSheet | None, of_host: Mapping[str, float], of_memory: Mapping[str, float]
) -> tuple[list[Link], str]:
    """The links of some GPUs of one model to their memories and to the host, and a note or nothing.

    Args:
        gpus: Names of the GPUs.
        sheet: Their data sheet; None if there is none.
        of_host, of_memory: The fastest copies to or from the host and of its memory of each GPU, in B/s.
    """
    to_host = max(of_host.get(gpu, 0.0) for gpu in gpus)
    memory = _smallest(sheet.memory_rates if sheet else (), max(of_memory.get(gpu, 0.0) for gpu in gpus))
    origin = f"{ASSUMED}: {memory / GB:g} GB/s of the data sheet" if memory else "unknown"
    links = [Link(gpu, gpu, LinkKind.MEMORY, memory, origin, assumed=bool(memory)) for gpu in gpus]
    c2c = _smallest([rate * GB for rate in sheet.c2c] if sheet else (), to_host)
    copies = [of_host[gpu] for gpu in gpus if of_host.get(gpu)]
    pcie, note = _pcie(gpus, sheet, copies) if sheet else (None, "")
    for gpu in gpus:
        if c2c:
            both = (("numa0", gpu), (gpu, "numa0"))
            origin = f"{ASSUMED}: NVLink-C2C data sheet"
            links += [Link(*ends, LinkKind.C2C, c2c, origin, assumed=True) for ends in both]
        elif pcie:
            lanes = pci.both_ways("numa0", gpu, pcie[0], f"{ASSUMED}: {pcie[1]}")
            links += [replace(link, assumed=True) for link in lanes]
        else:
            links += pci.both_ways("numa0", gpu, None, "unknown")
    return links, note


def _smallest(rates: Sequence[float], fastest: float) -> float | None:
    """The smallest of some rates that explains the fastest value; the largest if none does."""
    return next((rate for rate in rates if fastest <= rate * (1 + ABOVE_LIMIT)), rates[-1] if rates else None)


#: Indices of two GPUs.
Pair = tuple[int, int]


def _best_copies(logs: Iterable[FoundLog], count: int) -> dict[Pair, float]:
    """The fastest copy in one direction between each two GPUs, in B/s."""
    best: dict[Pair, float] = {}
    for log in logs:
        for table in log.tables:
            one_way = table.testcase.startswith("device_to_device") and table.unit is Unit.RATE
            if not one_way or table.why_not or len(table.columns) != count:
                continue
            directions = 2 if table.key == "total" else 1
            for i, j, value in table.cells:
                for pair in ((i, j), (j, i)) if value and i != j and i < count else ():
                    best[pair] = max(best.get(pair, 0.0), value / directions)
    return best


def _fastest_of_two(logs: Iterable[FoundLog]) -> float:
    """The fastest bus bandwidth of two GPUs of one host, in B/s, which is what each of them sends."""
    return max(
        (
            half.bus
            for log in logs if len({rank.host for rank in log.ranks}) == 1
            for run in log.collectives if run.info.ranks == 2
            for pair in run.points.values() for half in pair if half
        ),
        default=0.0,
    )  # fmt: skip


def _nvlinks(
    count: int, sheet: GpuSheet | None, best: dict[Pair, float], of_two: float
) -> tuple[list[Link], set[Pair], str]:
    """The NVLinks, the pairs of GPUs that they connect, and a note if they are fewer than usual.

    Without a switch, two GPUs have the smallest possible number of links that explains their fastest copy;
    none if PCIe explains it. A pair whose copies no number explains, and no other pair has that number, has
    another path, such as between sockets. Without copies between GPUs, what connects them is unknown, unless
    a collective of two says how many they have at least: a slower one does not mean that there are none. Only
    of desktop cards few have a bridge: one that PCIe explains says nothing of bridges.
    """
    if sheet is None or not sheet.links or count < 2:
        return [], set(), ""
    every = {(i, j) for i in range(count) for j in range(count) if i != j}
    if not best and count in sheet.all_links:
        return _switched(count, sheet)
    if sheet.switch and (count > _MOST_WITHOUT_SWITCH or not best):
        return _switched(count, sheet)
    slowest = (pcie.rate(sheet.pcie, sheet.lanes) or (0.0,))[0]
    if not best and count == 2 and of_two and sheet.desktop and of_two <= slowest:
        return [], set(), ""
    if not best and count == 2 and of_two:
        numbers = dict.fromkeys(every, _explaining_links(sheet, of_two))
        return _bridges(sheet, numbers, "from the values" if of_two > slowest else "if bridged"), every, ""
    if not best:
        why = f"unknown: how {sheet.links[-1]} links x {sheet.nvlink:g} GB/s of each GPU connect them"
        links = [Link(f"gpu{i}", f"gpu{j}", LinkKind.NVLINK, None, why) for i, j in sorted(every)]
        return links, every, ""
    numbers = {pair: _explaining_links(sheet, value) for pair, value in best.items() if value > slowest}
    lowest = _lowest(LinkKind.NVLINK)
    good = {n for pair, n in numbers.items() if best[pair] >= sheet.nvlinks(n) * lowest}
    numbers = {pair: n for pair, n in numbers.items() if n in good or n == sheet.links[-1]}
    if sheet.switch and set(numbers) == every and set(numbers.values()) == {sheet.links[-1]}:
        return _nvlinks(count, sheet, {}, 0.0)
    return _bridges(sheet, numbers, "from the values"), set(numbers), ""


def _explaining_links(sheet: GpuSheet, fastest: float) -> int:
    """The smallest possible number of NVLinks that explains a rate in B/s; the largest if none does."""
    return next((n for n in sheet.links if fastest <= sheet.nvlinks(n) * (1 + ABOVE_LIMIT)), sheet.links[-1])


def _bridges(sheet: GpuSheet, numbers: Mapping[Pair, int], why: str) -> list[Link]:
    """Numbers of NVLinks between each two GPUs, assumed for a reason."""
    return [
        Link(f"gpu{i}", f"gpu{j}", LinkKind.NVLINK, sheet.nvlinks(n),
             f"{ASSUMED} {why}: {n} links x {sheet.nvlink:g} GB/s", assumed=True)
        for (i, j), n in sorted(numbers.items())
    ]  # fmt: skip


def _switched(count: int, sheet: GpuSheet) -> tuple[list[Link], set[Pair], str]:
    """The NVLinks to a switch, as many as in the data sheet: a slow value does not mean fewer links."""
    every = {(i, j) for i in range(count) for j in range(count) if i != j}
    hub = _SWITCH if sheet.switch else _MESH
    ends = [end for i in range(count) for end in ((f"gpu{i}", hub), (hub, f"gpu{i}"))]
    links = sheet.links[-1]
    origin, capacity = f"{ASSUMED}: {links} links x {sheet.nvlink:g} GB/s", sheet.nvlinks(links)
    return [Link(*end, LinkKind.NVLINK, capacity, origin, assumed=True) for end in ends], every, ""


def networked(
    machine: Machine, logs: Sequence[FoundLog], rate: float | None
) -> tuple[Machine, Sequence[str]]:
    """The machine of some logs with the network between hosts, and what is wrong with it.

    Args:
        machine: The machine of one host.
        logs: The logs, which may name the NICs.
        rate: Rate of the NICs of a host in one direction, in B/s, in place of what the logs say.
    """
    several = any(
        len({rank.host for rank in log.ranks}) > 1
        or any(collective.info.ranks > len(machine.gpus) > 0 for collective in log.collectives)
        for log in logs
    )
    ranks = max((run.info.ranks for log in logs for run in log.collectives), default=0)
    if several and shares_nvlink(machine, max(ranks, *(len(log.ranks) for log in logs))):
        note = "NVLink may connect all hosts, whose NICs are then no limit"
        return replace(machine, notes=(*machine.notes, note)), ()
    if rate is not None:
        return with_network(machine, rate, GIVEN), ()
    if not several:
        return machine, ()
    nics = next((log.nics for log in logs if log.nics), None)
    if nics and nics.rate:
        origin = f"assumed: {nics.origin}"
        noted = replace(machine, notes=(*machine.notes, f"between hosts {origin}"))
        return with_network(noted, nics.rate, origin), ()
    noted = replace(machine, notes=(*machine.notes, nics.origin)) if nics else machine
    return noted, (UNKNOWN,)
