"""Pairs of GPUs that copy slower than another way of the same run, which is their reference: the links
between two GPUs are among those from the one to a third place and on to the other, where the routes form a
tree, as those of PCIe do; and a pair is about as fast in one direction as in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from ..hardware.link_graph import MachineVertices
from ..hardware.topology import LinkKind, Machine
from ..results.cells import Placed
from ..results.imported_limits import BOTH_WAYS_BY_HOST, BY_HOST, ONE_WAY_BY_HOST
from ..statistics import grouped, median
from ..thresholds.causes import MOST_PAIRS, WAY_OF_HOST, WAY_OF_OTHERS
from ..units import GB
from .path_kinds import GPU_GPU, HOST_GPU
from .suspects import Culprit, Suspects
from .verdict import Judgement, Verdict


class OtherWay(StrEnum):
    """Why a pair of GPUs gets a warning: the other way that is faster."""

    HOST = "slower than through the host in the same run"
    MIRROR = "slower than the other direction of the same pair"
    GPU = "slower than to and from another GPU"


#: What the share of a slow pair is relative to, in words.
_OF = {
    OtherWay.HOST: "the rate through the host",
    OtherWay.MIRROR: "the other direction",
    OtherWay.GPU: "the rate to and from another GPU",
}
#: Maximum number of GPUs of a host whose ways over a third one are compared, because these are many.
_MOST_GPUS = 64
#: Links of routes that form a tree; NVLinks form others.
_OF_TREES = frozenset({LinkKind.PCIE, LinkKind.SOCKET, LinkKind.MEMORY})
#: Testcases that copy between two GPUs in one direction -> those between the host and one GPU.
_LEGS = {pair: legs for pairs, legs in zip(GPU_GPU.key_figures, HOST_GPU.key_figures, strict=True)
         for pair in pairs}  # fmt: skip
#: Such testcases -> the table of copies through the host of the same log.
_TABLES = dict.fromkeys(_LEGS, ONE_WAY_BY_HOST) | {
    f"device_to_device_bidirectional_memcpy_{access}_ce": BOTH_WAYS_BY_HOST for access in ("read", "write")
}
#: Verdicts that another way may turn into a warning.
_REPLACED = (Verdict.PASS, Verdict.NOT_JUDGED, Verdict.WARN)
#: Source and destination of a copy, or the other way round: the labels of its row and column.
_Ends = tuple[str, str]
#: Testcase or table, and its kind -> rates of its copies, in B/s.
_Rates = dict[tuple[str, str], dict[_Ends, float]]
#: Testcase, row, column -> rate of a copy over links that are known, in B/s.
_Known = dict[str, dict[str, dict[str, float]]]


def by_other_ways(
    judged: list[Judgement], cells: Sequence[Placed], final: Collection[int], machine: Machine
) -> dict[int, Judgement]:
    """The warnings on pairs of GPUs that are slower than another way, by the index of the cell.

    Args:
        judged: The judgement on each cell by itself.
        cells: The cells.
        final: Cells for which the user or a baseline says what is expected.
        machine: The machine.
    """
    of_runs = grouped((cell.key.number, i) for i, cell in enumerate(cells))
    found: dict[int, Judgement] = {}
    for chosen in of_runs.values():  # a log may have several runs of the same testcases
        own = {i: cells[i]._replace(key=cells[i].key._replace(testcase=cells[i].key.tested)) for i in chosen}
        found |= _of_run(judged, own, final, machine)
    return found


def _of_run(
    judged: list[Judgement], cells: Mapping[int, Placed], final: Collection[int], machine: Machine
) -> dict[int, Judgement]:
    """The same for some cells, by their index."""
    gpus = {gpu.name for gpu in MachineVertices(machine).gpus}
    rates: _Rates = {}
    for i, measured in cells.items():
        key, value = measured.key, measured.cell.value
        if not value or judged[i].verdict is Verdict.IMPLAUSIBLE or measured.result.collective:
            continue
        name = key.testcase, key.table if key.testcase == BY_HOST else ""
        rates.setdefault(name, {})[key.row, key.column] = value
    of_host = {
        (copy, end): rate
        for copy in dict.fromkeys(copy for legs in _LEGS.values() for copy in legs)
        for (row, column), rate in rates.get((copy, ""), {}).items()
        for end in (row, column)
    }
    trees = {i for i, measured in cells.items() if _is_tree(measured, machine)}
    known: _Known = {}
    for i in sorted(trees) if len(gpus) <= _MOST_GPUS else ():
        key, links = cells[i].key, [machine.links[link] for link, *_ in cells[i].cell.links]
        rate = rates.get((key.testcase, ""), {}).get((key.row, key.column))
        if rate and all(link.capacity for link in links if link.kind is not LinkKind.MEMORY):
            known.setdefault(key.testcase, {}).setdefault(key.row, {})[key.column] = rate
    found: dict[int, Judgement] = {}
    for i in sorted(trees.difference(final)):
        key, value = cells[i].key, cells[i].cell.value
        ends = key.row, key.column
        if not value or judged[i].verdict not in _REPLACED or ends[0] == ends[1] or not gpus >= set(ends):
            continue
        legs = [of_host.get((copy, end), 0.0) for copy in _LEGS.get(key.testcase, ()) for end in ends]
        for why, rate, least in _references(key.testcase, ends, rates, min(legs, default=0.0), known):
            if value < least:
                found[i] = replace(
                    judged[i], verdict=Verdict.WARN, least=least, normal=rate, why=why,
                    basis=f"{rate / GB:.2f} GB/s",
                )  # fmt: skip
                break
    return found


def _references(
    testcase: str, ends: _Ends, rates: _Rates, by_host: float, known: _Known
) -> Iterator[tuple[OtherWay, float, float]]:
    """Yield other ways of a copy, with their rates and the lowest rate of the copy, in B/s."""
    if rate := rates.get((BY_HOST, _TABLES.get(testcase, "")), {}).get(ends):
        yield OtherWay.HOST, rate, rate * WAY_OF_HOST
    elif by_host:
        yield OtherWay.HOST, by_host, by_host * WAY_OF_OTHERS
    pairs = rates.get((testcase, ""), {}) if testcase in _LEGS else {}
    if mirrored := pairs.get(ends[::-1]):
        yield OtherWay.MIRROR, mirrored, mirrored * WAY_OF_OTHERS
    own = known.get(testcase, {}) if testcase in _LEGS else {}
    first, last = ends
    if last not in own.get(first, {}):
        return
    ways = [
        min(rate, own[third][last])
        for third, rate in own[first].items()
        if third not in ends and last in own.get(third, {})
    ]
    if ways:
        yield OtherWay.GPU, max(ways), max(ways) * WAY_OF_OTHERS


def _is_tree(measured: Placed, machine: Machine) -> bool:
    """Whether the route of a copy between two devices consists of links that form trees."""
    if measured.key.testcase not in _TABLES:
        return False
    kinds = {machine.links[link].kind for link, *_ in measured.cell.links}
    return LinkKind.PCIE in kinds and kinds <= _OF_TREES and measured.key.table in ("", "total")


def slow_pairs(found: dict[int, Judgement], cells: Sequence[Placed], machine: Machine) -> list[Culprit]:
    """The pairs that are slower than another way, as culprits; none if all or many pairs are.

    Args:
        found: The warnings, by the index of their cell.
        cells: All cells.
        machine: The machine.
    """
    testcases = {cells[i].key.testcase for i in found}
    measured = {
        (cell.key.row, cell.key.column) for cell in cells
        if cell.key.testcase in testcases and cell.cell.value and cell.key.row != cell.key.column
    }  # fmt: skip
    slow = grouped(((cells[i].key.row, cells[i].key.column), i) for i in found)
    if slow.keys() >= measured or len({frozenset(ends) for ends in slow}) > MOST_PAIRS:
        return []  # what they have in common is no pair
    suspects, culprits = Suspects(machine), []
    for ends, own in slow.items():
        back = slow.get(ends[::-1], [])
        if back and ends[::-1] < ends:
            continue
        one_way = not back and ends[::-1] in measured
        shares = [(found[i].value or 0.0) / (found[i].normal or 1.0) for i in (*own, *back)]
        pair = suspects.pair(ends, one_way=one_way)
        way = OtherWay(found[own[0]].why)
        culprits.append(Culprit((pair,), median(sorted(shares)), (*own, *back), _OF[way]))
    return culprits
