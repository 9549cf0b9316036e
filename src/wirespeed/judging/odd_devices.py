"""GPUs that differ from the others of their model in what they reach: peers, NVLinks, values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..document import Document, Status
from ..hardware.facts import Facts, Known
from ..hardware.topology import LinkKind, Machine
from ..statistics import grouped
from ..tables import Table
from ..thresholds.causes import SAME_RATE
from ..units import GB, many, some


def odd_devices(document: Document, facts: Facts) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the GPUs with fewer peers, NVLinks or values than most GPUs of their model, and what differs.

    If no majority of a model agrees, these are all of its GPUs. A value is missing if a testcase that passed
    has others of this kind: time limits, failures and a lack of memory say nothing of a GPU. Peers and links
    that were assumed say nothing, either.
    """
    machine = document.machine
    for names in [tuple(alike) for alike in _models(machine).values() if len(alike) > 1]:
        texts: dict[tuple[str, ...], list[str]] = {}
        if not document.imported:
            # Of a job, ranks have other ways than peer access.
            peers = {gpu.name: float(len(gpu.peers)) for gpu in machine.gpus if gpu.name in names}
            for values, noun in ((peers, "peer"), (_nvlinks(machine, names, facts), "NVLink")):
                for odd, text in _unlike(values, noun):
                    texts.setdefault(odd, []).append(text)
        gaps = _gaps(document, names)
        if lacking := _lacking(gaps, names):
            count = sum(not gap.ends.isdisjoint(lacking) for gap in gaps)
            named = lacking if len(names) > 2 or lacking in texts else names
            known = texts.setdefault(named, [])
            others = [name for name in names if name not in lacking]
            whose = f"{others[0]} has" if len(others) == 1 else "other GPUs of the model have"
            lack = f"{some(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} {many(count, 'value')}"
            lack += f" that {whose}" if others else " that the opposite direction has"
            known.append(f"{many(count, 'value')} {'is' if count == 1 else 'are'} missing" if known else lack)
        yield from ((odd, "; ".join(found)) for odd, found in texts.items())


def _models(machine: Machine) -> dict[str, list[str]]:
    """The names of the GPUs of each model."""
    of_ranks = [(rank.model, f"{rank.index}/{rank.device}") for rank in machine.ranks]
    return grouped(of_ranks or ((gpu.model, gpu.name) for gpu in machine.gpus))


def _nvlinks(machine: Machine, names: Sequence[str], facts: Facts) -> dict[str, float]:
    """The rate of the NVLinks of each GPU in each direction, in B/s.

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
    return {name: usual if abs(rate - usual) <= SAME_RATE * usual else rate for name, rate in rates.items()}


def _unlike(values: Mapping[str, float], noun: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the GPUs whose number of peers or rate of NVLinks is unlike most others, and what differs."""

    def said(value: float) -> str:
        if not value:
            return f"no {noun}s"
        return many(int(value), noun) if noun == "peer" else f"{value / GB:.4g} GB/s of {noun}s"

    groups = grouped((value, name) for name, value in values.items())
    if len(groups) < 2:
        return
    usual = max(groups, key=lambda value: len(groups[value]))
    has = {value: f"{some(names)} {'has' if len(names) == 1 else 'have'} {said(value)}"
           for value, names in groups.items()}  # fmt: skip
    if 2 * len(groups[usual]) <= len(values):
        yield tuple(values), ", ".join(has[value] for value in sorted(groups))
        return
    for value in sorted(groups.keys() - {usual}):
        yield tuple(groups[value]), f"{has[value]}, other GPUs of the model have {said(usual)}"


class _Gap(NamedTuple):
    ends: frozenset[str]  #: the GPUs of a value that is missing although its testcase passed
    is_one_way: bool  #: whether there is a value in the opposite direction


def _gaps(document: Document, names: Sequence[str]) -> list[_Gap]:
    """The values of some GPUs that are missing."""
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


def _lacking(gaps: Sequence[_Gap], names: tuple[str, ...]) -> tuple[str, ...]:
    """The GPUs that explain the missing values: in turn those that most of them have in common.

    If all lack the same number, none is odd, unless the opposite directions have values.
    """
    odd: list[str] = []
    left = [gap.ends for gap in gaps]
    while left:
        counts = Counter(name for cell in left for name in cell)
        most = max(counts.values())
        worst = [name for name in names if counts[name] == most]
        if len(worst) + len(odd) >= len(names):
            break
        odd += worst
        left = [cell for cell in left if cell.isdisjoint(worst)]
    if left:
        odd += {name for gap in gaps if gap.is_one_way for name in gap.ends}
    return tuple(name for name in names if name in odd)
