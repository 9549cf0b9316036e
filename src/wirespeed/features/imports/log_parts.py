"""How the lines of a tool are split into runs, and the curves over the size of a message that some make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...document import RankInfo
from ...measurement import Unit
from ...units import format_size
from . import scan
from .log import FoundLog, FoundTable


def runs(lines: Sequence[str], begin: re.Pattern[str]) -> Iterator[Sequence[str]]:
    """Split lines at those with which a run begins; what precedes the first one belongs to it."""
    starts = [i for i, line in enumerate(lines) if begin.match(line)] or [0]
    return (lines[a:b] for a, b in pairwise([0, *starts[1:], len(lines)]))


def gpus_of(ranks: Sequence[RankInfo]) -> list[tuple[str, str]]:
    """Name and PCI bus ID of each GPU of the first host, in the order of their indices.

    An excerpt may lack some. Processes that may use one GPU each have it as their first one. NCCL refuses two
    ranks on one GPU: where nccl-tests prints the same bus of several, they are in several PCI domains.
    """
    here = {rank.rank: rank for rank in ranks if rank.host == ranks[0].host}.values()
    own = {(rank.device, rank.bus_id): rank.model for rank in here}
    if len(own) < len(here):
        return [(rank.model, "") for rank in here]
    gpus = [(model, bus) for (_, bus), model in sorted(own.items())]
    buses = dict(own.keys())
    if len(buses) == len(own) and len(set(own.values())) == 1:
        gpus = [(gpus[0][0], buses.get(device, "")) for device in range(max(buses) + 1)]
    return gpus


def parts(lines: Sequence[str], begin: re.Pattern[str], row: re.Pattern[str]) -> Iterator[Sequence[str]]:
    """Split lines at those that begin a new table: the first one after a row.

    Titles and headings of one table follow each other; an excerpt may have only some of them.
    """
    start, filled = 0, False
    for i, line in enumerate(lines):
        if filled and begin.match(line):
            yield lines[start:i]
            start, filled = i, False
        filled = filled or bool(row.match(line))
    yield lines[start:]


def curve(
    testcase: str,
    key: str,
    title: str,
    rows: Mapping[str, Mapping[int, float | None]],
    unit: Unit,
    axis: str,
    why_not: str = "",
    of: str = "message",
) -> FoundTable:
    """A table over a size, by default of a message, one row for each quantity.

    Args:
        testcase, key, title, unit, why_not: As in ``FoundTable``.
        rows: Label -> size in bytes -> value in base units.
        axis: Name of the axis of the rows.
        of: Name of the axis of the columns: what has the size.
    """
    sizes = sorted({size for values in rows.values() for size in values})
    return FoundTable(
        testcase, tuple(tuple(values.get(size) for size in sizes) for values in rows.values()),
        tuple(rows), tuple(map(format_size, sizes)), (axis, of), unit, key, scan.text(title),
        why_not=why_not, positions=tuple(map(float, sizes)),
    )  # fmt: skip


def each(
    read: Callable[[Sequence[str]], FoundLog], split: Callable[..., Iterator[Sequence[str]]], *marks: Any
) -> Callable[[Sequence[str]], Iterator[FoundLog]]:
    """What reads the runs of a tool, one after the other.

    Args:
        read: Reads the lines of one run.
        split: Splits lines into runs at marks: ``runs`` or ``parts``.
        *marks: The marks.
    """
    return lambda lines: map(read, split(lines, *marks))
