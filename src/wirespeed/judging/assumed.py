"""Which cells are low only for a capacity that was assumed, and that no value of the run confirms."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.gpus import sheet_of
from ..results.cells import Placed
from ..tables import Cell
from ..topology import LinkKind, Machine

#: Links that a Measurement loads at least this fraction as much as the busiest one limit it.
_LIMITING = 0.9
#: Kind and capacity of links, in B/s: equal links confirm each other's capacity.
_Rate = tuple[LinkKind, float]


def unconfirmed(machine: Machine, cells: Sequence[Placed], tolerance: float) -> dict[int, str]:
    """Return the cells outside their range of which an assumed capacity may be the reason.

    A data sheet says what a GPU can do, not what its slot, host or partition allows. If a device reaches the
    expected range, others of the same rate are compared with it; if none does, the capacity may be wrong.

    Args:
        machine: The machine.
        cells: All cells of the run.
        tolerance: Fraction above the limit that clocks explain.

    Returns:
        Index of the cell -> why it is outside of its range.
    """
    if not any(link.assumed for link in machine.links):
        return {}
    outside: dict[int, tuple[set[_Rate], str]] = {}
    confirmed: set[_Rate] = set()
    for i, measured in enumerate(cells):
        cell = measured.cell
        if cell.value is None or not cell.expected or not cell.limit:
            continue
        limiting = [machine.links[link] for link in _limiting(cell)]
        rates = {(link.kind, link.capacity) for link in limiting if link.assumed and link.capacity}
        if cell.expected[0] <= cell.value <= (cell.peak or cell.limit) * (1 + tolerance):
            confirmed |= rates
        elif rates:
            side = "below the range" if cell.value < cell.expected[0] else "above the limit"
            origin = next(link.origin for link in limiting if link.assumed)
            outside[i] = rates, f"{side} of a capacity that no value confirms ({origin})"
    return {i: why for i, (rates, why) in outside.items() if not rates & confirmed}


def without_peers(machine: Machine) -> frozenset[int]:
    """Return the links of GPUs that are no peers of each other, by index.

    The slots of a desktop machine differ, and one of its GPUs serves the display; sockets are between some
    GPUs without NVLink. Where a capacity is assumed, only the range judges them.
    """
    if not any(link.assumed for link in machine.links):
        return frozenset()
    gpus = {gpu.name for gpu in machine.gpus}
    desktop = {gpu.name for gpu in machine.gpus if (known := sheet_of(gpu.model)) and known[1].desktop}
    return frozenset(
        i
        for i, link in enumerate(machine.links)
        if link.assumed
        and link.kind in (LinkKind.PCIE, LinkKind.MEMORY)
        and (
            desktop & (ends := {link.source, link.destination})
            or (link.source != link.destination and ends <= gpus)
        )
    )


def _limiting(cell: Cell) -> list[int]:
    carrying = {link: load for link, load, part in cell.links if part}
    return [link for link, load in carrying.items() if load >= _LIMITING * max(carrying.values())]
