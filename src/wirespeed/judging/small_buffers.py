"""Values that are not judged only because their buffers are too small."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from msgspec.structs import replace

from ..document import Document
from ..hardware.link_graph import Network
from ..hardware.topology import LinkKind
from ..measurement import Measurement, Unit
from ..model import Collective, Engine, Transfer, Work
from ..results.cells import Key, Placed
from ..results.imported_limits import allowed
from ..thresholds.values import JUDGED_BYTES
from .replanned import is_of, measured_allowances, planned

#: Why they are not judged: within a memory, and between memories.
CACHED = "buffers too small: a cache may keep them"
_STARTED = "buffers too small: starting a copy takes longer than moving its bytes"


def too_small(document: Document, cells: Iterable[Placed]) -> dict[Key, str]:
    """The rates without a range that would have one with larger buffers, and why.

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
    plans, network = planned(replace(document, testcases=results)), Network(document.machine)
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
            reasons[key] = CACHED if cached and measured.result.collective is None else _STARTED
    return reasons


def _would_be_judged(
    network: Network, measurement: Measurement, index: int, *, is_log: bool, name: str
) -> bool:
    """Whether a place of a Measurement has a range with buffers that are large enough for every rule."""
    least = max(2 * JUDGED_BYTES, 2 * network.machine.last_cache_bytes())
    works = tuple(_enlarged(work, least) for work in measurement.works)
    larger = dataclasses.replace(measurement, works=works)
    bounds = allowed(network, larger, name) if is_log else measured_allowances(network, larger, name)
    return bounds[index].expected is not None


def _enlarged(work: Work, least: int) -> Work:
    """A work with buffers of at least some bytes."""
    if not isinstance(work, Collective | Transfer) or work.bytes >= least:
        return work
    counted = work.counted
    if isinstance(work, Collective):  # whose counted bytes grow with the array
        counted = round(counted * least / max(1, work.bytes))
    return dataclasses.replace(work, bytes=least, counted=counted)
