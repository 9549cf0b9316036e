"""What assumed capacities do not say: why values are outside their range, or far below what is typical."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data import GpuSheet, gpu_sheet
from ..hardware import pcie
from ..hardware.topology import Link, LinkKind, Machine
from ..measurement import Unit
from ..results.cells import Placed
from ..results.imported_limits import GIVEN_MACHINE
from ..tables import Cell
from ..thresholds.values import FAR_FROM_TYPICAL, LIMITING
from ..units import GB
from .verdict import Judgement, Verdict

#: Kind, capacity in B/s and ends of links: equal links confirm each other's capacity. The ends are empty,
#: except for slots that differ.
_Rate = tuple[LinkKind, float, frozenset[str]]


def unconfirmed(
    machine: Machine, cells: Sequence[Placed], tolerance: float
) -> dict[int, tuple[str, LinkKind | None]]:
    """The cells outside their range of which an assumed capacity may be the reason.

    A low value is never excused by other low values: it depends only on what is assumed (see ``is_sure``). A
    high one is impossible if another value confirms the capacity, or no link of the GPU is as fast.

    Args:
        machine: The machine.
        cells: All cells of the run.
        tolerance: Fraction above the limit that clocks explain.

    Returns:
        Index of the cell -> why it is outside of its range, and the kind of links that it is faster than.
    """
    if not any(link.assumed for link in machine.links):
        return {}
    differing = {i for i in without_peers(machine) if machine.links[i].kind is LinkKind.PCIE}
    outside: dict[int, tuple[set[_Rate], str, LinkKind | None]] = {}
    confirmed: set[_Rate] = set()
    for i, measured in enumerate(cells):
        cell = measured.cell
        if cell.value is None or not cell.expected or not cell.limit:
            continue
        indices = limiting_links(cell)
        limiting = [machine.links[i] for i in indices]
        rates = {
            (link.kind, link.capacity, frozenset(link.ends if i in differing else ()))
            for i, link in zip(indices, limiting, strict=True) if link.assumed and link.capacity
        }  # fmt: skip
        if cell.value < cell.expected[0]:
            if unsure := [link for link in limiting if link.assumed and not is_sure(machine, link)]:
                why = f"below the range of a capacity that is assumed ({unsure[0].origin})"
                outside[i] = set(), why, None
        elif cell.value <= (cell.peak or cell.limit) * (1 + tolerance):
            confirmed |= rates
        elif rates and (
            measured.result.collective
            or not _is_impossible(machine, limiting, cell.value / cell.limit, tolerance)
        ):
            link = next(link for link in limiting if link.assumed)
            why = f"above the limit of a capacity that no value confirms ({link.origin})"
            outside[i] = rates, why, link.kind
    return {i: (why, above) for i, (rates, why, above) in outside.items() if not rates & confirmed}


def is_sure(machine: Machine, link: Link) -> bool:
    """Whether the name of the GPU says what a link can do: its memory, its C2C, its NVLinks to a switch.

    The slot of a card may be narrower or older than the card, but not of a module. Bridges may have some
    of the links. What only the user says of a log may be another machine.
    """
    if link.origin.startswith(GIVEN_MACHINE):
        return False
    sheets = [sheet[1] for gpu in machine.gpus if gpu.name in link.ends and (sheet := gpu_sheet(gpu.model))]
    if not sheets:
        return False
    if link.kind in (LinkKind.MEMORY, LinkKind.C2C):
        return True
    return link.kind in (LinkKind.PCIE, LinkKind.NVLINK) and all(sheet.switch for sheet in sheets)


#: PCIe generation of the slots of hosts; newer GPUs run in them.
_SLOTS = 5


def slowest_possible(machine: Machine, cell: Cell) -> float:
    """The slowest possible capacity of the link that limits a value, over the one that is assumed.

    Some names stand for several products. The rate that explains the fastest value is the limit of all, but
    what is expected is that of the slowest product: else a lower value, explained by a slower product, would
    get a better verdict.
    """
    shares = [1.0]
    for i in limiting_links(cell) if cell.links else ():
        link = machine.links[i]
        if not link.assumed or not link.capacity:
            continue
        models = {gpu.name: gpu.model for gpu in machine.gpus if gpu.name in link.ends}
        sheet = gpu_sheet(models.get(link.destination, "")) or gpu_sheet(models.get(link.source, ""))
        if not sheet:
            continue
        possible: Sequence[float] = ()
        if link.kind is LinkKind.MEMORY:
            possible = sheet[1].memory_rates
        elif link.kind is LinkKind.C2C:
            possible = [rate * GB for rate in sheet[1].c2c]
        elif link.kind is LinkKind.PCIE and sheet[1].pcie > _SLOTS:
            possible = [rate[0] for rate in [pcie.rate(_SLOTS, sheet[1].lanes)] if rate]
        shares += [min(possible) / link.capacity] if possible else []
    return min(shares)


def _is_impossible(machine: Machine, limiting: Sequence[Link], ratio: float, tolerance: float) -> bool:
    """Whether a value exceeds the fastest link that the data sheet of a GPU on its way has.

    Such a copy did not move its bytes. Collectives verify theirs. A user may have given another machine than
    that of a log that names no GPUs.

    Args:
        machine: The machine.
        limiting: The links that limit the value.
        ratio: The value over its limit.
        tolerance: Fraction above the limit that clocks explain.
    """
    models = {gpu.name: gpu_sheet(gpu.model) for gpu in machine.gpus}
    return any(
        link.kind in (LinkKind.PCIE, LinkKind.NVLINK, LinkKind.C2C)
        and not link.origin.startswith(GIVEN_MACHINE)
        and ratio * (link.capacity or 0.0) > fastest * (1 + tolerance)
        for link in limiting
        for end in link.ends
        if (sheet := models.get(end)) and (fastest := _fastest_link(sheet[1]))
    )


def _fastest_link(sheet: GpuSheet) -> float | None:
    """The rate of the fastest of all ways out of a GPU, in B/s; None if its PCIe link is unknown."""
    lanes = pcie.rate(sheet.pcie, sheet.lanes)
    if lanes is None and not sheet.c2c:
        return None
    return max(
        lanes[0] if lanes else 0.0,
        sheet.nvlinks(max(sheet.links, default=0)),
        *(rate * GB for rate in sheet.c2c),
    )


def far_below(judged: Sequence[Judgement], cells: Sequence[Placed]) -> Iterator[int]:
    """Yield the values that pass a wide range far below the typical value, by index.

    Collectives between hosts reach from a fifth to all of what the NICs carry, because congestion, the
    algorithm and the number of channels matter. Smaller arrays are slower, so that the largest counts. Where
    no limit is known, the typical value is that of a full set of modules, of which a host may have a part.
    """
    largest: dict[tuple[str, str, str], int] = {}
    for key, *_ in cells:
        largest[key[:3]] = max(key.bytes, largest.get(key[:3], 0))
    for i, judgement in enumerate(judged):
        key, value, normal = judgement.key, judgement.value, judgement.normal
        passes = judgement.verdict is Verdict.PASS and judgement.unit is Unit.RATE and judgement.limit
        if (
            passes
            and value
            and normal
            and value < FAR_FROM_TYPICAL * normal
            and key.bytes >= largest[key[:3]]
        ):
            yield i


def without_peers(machine: Machine) -> frozenset[int]:
    """The links of GPUs that are no peers of each other, by index.

    The slots of a desktop machine differ, and one of its GPUs serves the display; sockets are between some
    GPUs without NVLink. Where a capacity is assumed, only the range judges them.
    """
    if not any(link.assumed for link in machine.links):
        return frozenset()
    gpus = {gpu.name for gpu in machine.gpus}
    desktop = {gpu.name for gpu in machine.gpus if (known := gpu_sheet(gpu.model)) and known[1].desktop}
    return frozenset(
        i
        for i, link in enumerate(machine.links)
        if link.assumed
        and link.kind in (LinkKind.PCIE, LinkKind.MEMORY)
        and (desktop & (ends := {*link.ends}) or (link.source != link.destination and ends <= gpus))
    )


def limiting_links(cell: Cell) -> list[int]:
    """The links that limit a value, by index: the busiest, and those that are almost as busy."""
    carrying = {link: load for link, load, part in cell.links if part}
    return [link for link, load in carrying.items() if load >= LIMITING * max(carrying.values())]
