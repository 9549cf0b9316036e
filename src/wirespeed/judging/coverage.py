"""GPUs that differ from the others of their model in what they reach: peers, NVLinks, values. Pure.

Which values are not judged only because of the size of their buffers.

Which kinds of paths were measured although none of their values could be judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec.structs import replace as struct_replace

from ..data import efficiencies
from ..document import Document, Status
from ..hardware.facts import Facts, Known
from ..hardware.limits import JUDGED_BYTES, allowances
from ..hardware.network import MachineVertices, Network
from ..hardware.topology import LinkKind, Machine
from ..measurement import Measurement, Unit
from ..model import Collective, Engine, Transfer, Work
from ..results.cells import Key, Placed
from ..results.imported_limits import allowed
from ..statistics.summary import grouped
from ..tables import Table
from ..units import GB, many, some
from .omissions import is_of, planned
from .path_kinds import PathKind, path_kind
from .verdict import Judgement, Verdict, worst

#: Maximum number of GPUs that a text names.
_NAMED = 4
#: Rates of links that differ by less than this fraction are equal.
_SAME = 0.01


@dataclass(frozen=True)
class OddDevices:
    """Some GPUs that differ from most GPUs of their model.

    Attributes:
        names: The GPUs; all of the model if no majority of them agrees.
        text: What is different, as a sentence without a full stop.
    """

    names: tuple[str, ...]
    text: str


def odd_devices(document: Document, facts: Facts) -> Iterator[OddDevices]:
    """Yield the GPUs that have fewer peers, NVLinks or values than most GPUs of their model.

    A value is missing if a testcase that passed has others of this kind: time limits, failures and a lack of
    memory say nothing of a GPU. Peers and links that were assumed say nothing, either.
    """
    machine = document.machine
    for names in [tuple(alike) for alike in _models(machine).values() if len(alike) > 1]:
        texts: dict[tuple[str, ...], list[str]] = {}
        if not document.imported:
            for values, said in ((_peers(machine, names), _said_peers),
                                 (_nvlinks(machine, names, facts), _said_nvlinks)):  # fmt: skip
                for odd, text in _unlike(values, said):
                    texts.setdefault(odd, []).append(text)
        missing = _missing(document, names)
        if lacking := _lacking(missing, names):
            count = sum(not cell.ends.isdisjoint(lacking) for cell in missing)
            named = lacking if len(names) > 2 or lacking in texts else names
            known = texts.setdefault(named, [])
            others = [name for name in names if name not in lacking]
            whose = f"{others[0]} has" if len(others) == 1 else "other GPUs of the model have"
            lack = (
                f"{some(lacking, _NAMED)} {'lacks' if len(lacking) == 1 else 'lack'} {many(count, 'value')}"
            )
            lack += f" that {whose}" if others else " that the opposite direction has"
            known.append(f"{many(count, 'value')} {'is' if count == 1 else 'are'} missing" if known else lack)
        for odd, found in texts.items():
            yield OddDevices(odd, "; ".join(found))


def _models(machine: Machine) -> dict[str, list[str]]:
    """Return the names of the GPUs of each model."""
    of_ranks = [(rank.model, f"{rank.index}/{rank.device}") for rank in machine.ranks]
    return grouped(of_ranks or ((gpu.model, gpu.name) for gpu in machine.gpus))


def _peers(machine: Machine, names: Sequence[str]) -> dict[str, float]:
    """Return the number of peers of each GPU; of a job nothing, whose ranks have other ways."""
    return {gpu.name: float(len(gpu.peers)) for gpu in machine.gpus if gpu.name in names}


def _nvlinks(machine: Machine, names: Sequence[str], facts: Facts) -> dict[str, float]:
    """Return the rate of the NVLinks of each GPU in each direction, in B/s.

    Nothing if one is unknown, or if the numbers of active links differ, which is a cause that doctor names.
    """
    if len({facts.number(Known.NVLINKS, name) for name in names}) > 1:
        return {}
    rates = dict.fromkeys(names, 0.0)
    for link in machine.links:
        if link.kind is LinkKind.NVLINK and link.source in rates:
            if link.capacity is None or link.assumed:
                return {}
            rates[link.source] += link.capacity
    usual = Counter(rates.values()).most_common(1)[0][0]
    return {name: usual if abs(rate - usual) <= _SAME * usual else rate for name, rate in rates.items()}


def _said_peers(number: float) -> str:
    return many(int(number), "peer") if number else "no peers"


def _said_nvlinks(rate: float) -> str:
    return f"{rate / GB:.4g} GB/s of NVLinks" if rate else "no NVLinks"


def _unlike(
    values: Mapping[str, float], said: Callable[[float], str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the GPUs whose value differs from that of most, with what is different."""
    groups = grouped((value, name) for name, value in values.items())
    if len(groups) < 2:
        return
    usual = max(groups, key=lambda value: len(groups[value]))
    has = {value: f"{some(names, _NAMED)} {'has' if len(names) == 1 else 'have'} {said(value)}"
           for value, names in groups.items()}  # fmt: skip
    if 2 * len(groups[usual]) <= len(values):
        yield tuple(values), ", ".join(has[value] for value in sorted(groups))
        return
    for value in sorted(groups.keys() - {usual}):
        yield tuple(groups[value]), f"{has[value]}, other GPUs of the model have {said(usual)}"


class _Gap(NamedTuple):
    ends: frozenset[str]  #: the GPUs of a value that is missing although its testcase passed
    is_one_way: bool  #: whether there is a value in the opposite direction


def _missing(document: Document, names: Sequence[str]) -> list[_Gap]:
    """Return the values of some GPUs that are missing."""
    if document.interrupted:
        return []
    others = frozenset(name for alike in _models(document.machine).values() for name in alike) - {*names}
    return [
        cell
        for result in document.testcases
        if result.status is Status.PASSED and not result.left_out
        for table in result.tables
        for cell in _without_value(table, frozenset(names), others, is_log=bool(document.imported))
    ]


def _without_value(
    table: Table, names: frozenset[str], others: frozenset[str], *, is_log: bool
) -> Iterator[_Gap]:
    """Yield the GPUs of each cell without a value, but for pairs with GPUs of other models.

    The last rows of a table, which an excerpt of a log lacks, do not count: their columns have values.
    """
    rows, columns = table.rows.labels, table.columns.labels
    ended = len(rows)
    if is_log and rows == columns:
        valued = {cell.row for cell in table.cells if cell.value is not None}
        reached = {columns[cell.column] for cell in table.cells if cell.value is not None}
        while ended and ended - 1 not in valued and rows[ended - 1] in reached:
            ended -= 1
    there = {(rows[cell.row], columns[cell.column]) for cell in table.cells if cell.value is not None}
    for cell in table.cells:
        if cell.value is None and cell.row < ended:
            ends = {row := rows[cell.row], column := columns[cell.column]}
            if (own := frozenset(ends & names)) and not ends & others:
                yield _Gap(own, (column, row) in there)


def _lacking(missing: Sequence[_Gap], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the GPUs that explain the missing values: in turn those that most of them have in common.

    If all lack the same number, none is odd, unless the opposite directions have values.
    """
    odd: list[str] = []
    left = [gap.ends for gap in missing]
    while left:
        counts = Counter(name for cell in left for name in cell)
        most = max(counts.values())
        worst = [name for name in names if counts[name] == most]
        if len(worst) + len(odd) >= len(names):
            break
        odd += worst
        left = [cell for cell in left if cell.isdisjoint(worst)]
    if left:
        odd += {name for gap in missing if gap.is_one_way for name in gap.ends}
    return tuple(name for name in names if name in odd)


#: Why they are not judged: within a memory, and between memories.
_CACHED = "buffers too small: a cache may keep them"
_STARTED = "buffers too small: starting a copy takes longer than moving its bytes"


def too_small(document: Document, cells: Iterable[Placed]) -> dict[Key, str]:
    """Return the rates without a range that would have one with larger buffers, and why.

    The plan of a testcase says what its links would allow. Outside the plan, as in a sweep over sizes, a
    buffer is too small if it is smaller than another one of the testcase that has a range.

    Args:
        document: The run.
        cells: Its cells.
    """
    rated = [one for one in cells if one.unit is Unit.RATE and one.cell.value is not None and one.cell.limit]
    open_ = [one for one in rated if one.cell.expected is None and one.cell.bytes]
    if not open_:
        return {}
    names = {measured.key.testcase for measured in open_}
    results = tuple(result for result in document.testcases if result.name in names)
    plans, network = planned(struct_replace(document, testcases=results)), Network(document.machine)
    ranged: dict[str, int] = {}
    for measured in rated:
        if measured.cell.expected:
            name, size = measured.key.testcase, measured.cell.bytes
            ranged[name] = min(size, ranged.get(name, size))
    reasons: dict[Key, str] = {}
    for measured in open_:
        key, cell = measured.key, measured.cell
        there = plans.get(key._replace(bytes=0))
        if there and is_of(cell, *there):
            would = _would_be_judged(network, *there, is_log=bool(document.imported), name=key.testcase)
        else:
            would = cell.bytes < ranged.get(key.testcase, 0)
        if would:
            kinds = {network.links[link].kind for link, *_ in cell.links}
            cached = measured.result.engine == Engine.CPU or kinds == {LinkKind.MEMORY}
            reasons[key] = _CACHED if cached and measured.result.collective is None else _STARTED
    return reasons


def _would_be_judged(
    network: Network, measurement: Measurement, index: int, *, is_log: bool, name: str
) -> bool:
    """Whether a place of a Measurement has a range with buffers that are large enough for every rule."""
    least = max(2 * JUDGED_BYTES, 2 * network.machine.last_cache_bytes())
    larger = replace(measurement, works=tuple(_enlarged(work, least) for work in measurement.works))
    bounds = allowed(network, larger, name) if is_log else allowances(network, larger, efficiencies())
    return bounds[index].expected is not None


def _enlarged(work: Work, least: int) -> Work:
    """A work with buffers of at least some bytes."""
    if isinstance(work, Collective) and work.bytes < least:
        return replace(work, bytes=least, counted=round(work.counted * least / max(1, work.bytes)))
    return replace(work, bytes=least) if isinstance(work, Transfer) and work.bytes < least else work


@dataclass(frozen=True)
class Uncovered:
    """A kind of path of some devices of which no rate was judged, although a rate can be.

    Attributes:
        kind: The kind.
        devices: The devices at its ends; empty for the whole kind.
        verdict: Why not: busy, or unknown.
        why: The same in words.
        of_size: Whether larger buffers would be judged.
    """

    kind: PathKind
    devices: tuple[str, ...]
    verdict: Verdict
    why: str
    of_size: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {', '.join(self.devices)}" if self.devices else str(self.kind)


def uncovered(
    judged: Sequence[Judgement], cells: Sequence[Placed], small: Container[Key], machine: Machine
) -> tuple[Uncovered, ...]:
    """Return the kinds of paths, and devices, of which no rate was judged, although a rate can be.

    A rate can be judged if only a device in use, a lack of memory or the size of the buffers prevents it. One
    that nothing on this machine limits, such as that of host memory of unknown capacity, cannot.

    Args:
        judged: The judgements on the cells.
        cells: The cells, in the same order.
        small: The cells whose buffers are too small to judge them.
        machine: The machine.
    """
    covered: dict[tuple[PathKind, str], bool] = {}
    lost: dict[tuple[PathKind, str], list[tuple[Judgement, Placed]]] = {}
    kinds = _DeviceKinds(machine)
    for judgement, measured in zip(judged, cells, strict=True):
        if judgement.unit is not Unit.RATE:
            continue
        kind = path_kind(measured.key.testcase, collective=measured.result.collective is not None)
        for device in _ends(measured, kind, kinds):
            place = kind, device
            if judgement.verdict.is_judged or (judgement.verdict is Verdict.WAIVED and judgement.value):
                covered[place] = True
            elif _is_lost(judgement, measured, small):
                lost.setdefault(place, []).append((judgement, measured))
    groups: dict[tuple[PathKind, Verdict, str, bool], list[str]] = {}
    for (kind, device), values in lost.items():
        if (kind, device) not in covered:
            first, measured = min(values, key=lambda value: value[0].verdict.rank)
            size = measured.key in small
            key = kind, worst(one.verdict for one, _ in values), first.why or measured.result.reason, size
            groups.setdefault(key, []).append(device)
    whole = {kind for kind, _ in covered}
    return tuple(
        Uncovered(kind, tuple(filter(None, devices)) if kind in whole else (), verdict, why, of_size)
        for (kind, verdict, why, of_size), devices in groups.items()
    )


def _is_lost(judgement: Judgement, measured: Placed, small: Container[Key]) -> bool:
    """Whether a value would have been judged on an idle machine, with other buffers or more memory."""
    if judgement.verdict is Verdict.BUSY or measured.result.status is Status.NO_MEMORY:
        return judgement.verdict.is_unjudged
    return judgement.verdict is Verdict.UNKNOWN and measured.key in small


class _DeviceKinds(dict[str, str]):
    """The name of the kind of each device of a machine; empty for other vertices and labels."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.links, self._vertices = machine.links, MachineVertices(machine)

    def __missing__(self, name: str) -> str:
        kind = self._vertices.kind(name)
        self[name] = kind.name if kind else ""
        return self[name]


def _ends(measured: Placed, kind: PathKind, kinds: _DeviceKinds) -> list[str]:
    """Return the devices of a kind of path that a cell uses; nothing in particular for the others."""
    links = (kinds.links[index] for index, *_ in measured.cell.links)
    used = {end for link in links for end in link.ends}
    used |= {measured.key.row, measured.key.column}
    return sorted(end for end in used if kind.device and kinds[end] == kind.device) or [""]
