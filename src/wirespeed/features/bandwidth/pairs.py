"""Bandwidth between memories: of host and GPU, of two GPUs, of two NUMA nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...api import machine_named
from ...errors import UsageError
from ...measurement import Axis
from ...testcases.selections import narrow
from ...testcases.table import find
from . import Bandwidth
from .arguments import CopyEngine, Device, Size, engine_for, kind_of, one_device, pair_of, several
from .keywords import with_original_keywords
from .measured import measured, only, point

#: Device kind -> testcase of copies from the row's to the column's memory, executed by the row.
_PUSH = {"gpu": "device_to_device_memcpy_write_{}", "numa": "numa_to_numa_memcpy_write_{}"}
_BOTH = {
    "gpu": "device_to_device_bidirectional_memcpy_write_{}",
    "numa": "numa_to_numa_bidirectional_memcpy_write_{}",
}
#: Of one direction and of both: the arrow, the number of buffers, and what is special.
_UNI, _BI = ("->", 1, ""), ("<->", 2, "sum of both")
_P2P = 40_000_000


@with_original_keywords
def host2device_bandwidth(size: Size | None = None, *, device: Device | None = None, **how: Any) -> Bandwidth:
    """Measure copies between a GPU and its nearest host memory: pageable and pinned, both directions.

    Every copied byte counts once. The executor is the GPU's copy engine.

    Args:
        size: Bytes of the buffer; default: 512 MiB.
        device: A GPU or its index; default: the first one.
        **how: As for `memory_bandwidth`.

    Returns:
        Four bandwidths.
    """
    machine = machine_named(how.get("machine"))
    name = one_device(machine, device)
    if kind_of(machine, name) != "gpu":
        raise UsageError(f"{name} is host memory; host2device_bandwidth requires a GPU, such as gpu0")
    names = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
    cases = [narrow(find(case), columns=[name]) for case in names]
    near = next(f"numa{gpu.numa}" for gpu in machine.gpus if gpu.name == name)
    kinds, ways = ("pageable", "pinned"), (f"{near} -> {name}", f"{name} -> {near}")
    by_place = {}
    for i, kind in enumerate(kinds):
        document = measured(cases, machine, how, size, pageable=kind == "pageable")
        for j, way in enumerate(ways):
            pinned = " (pinned)" if kind == "pinned" else ""
            by_place[i, j] = only(f"Host{pinned} <-> Device Bandwidth", way, document, j)
    rows, columns = Axis("host memory", kinds), Axis("transfer", ways)
    return Bandwidth.several("Host <-> Device Bandwidth", rows, columns, by_place, device="")


@with_original_keywords
def p2p_bandwidth(
    src: Device | None = None,
    dst: Device | None = None,
    size: Size = _P2P,
    *,
    engine: CopyEngine | None = None,
    alternate: bool = False,
    **how: Any,
) -> Bandwidth:
    """Measure a copy from one device's memory to another's.

    The source executes; every copied byte counts once.

    Args:
        src, dst: Two GPUs or two NUMA nodes, or their indices; default: the first two GPUs that are peers, or
            the first two NUMA nodes without GPUs.
        size: Bytes of the buffer; default: 40 MB.
        engine: ``ce`` (a copy engine) or ``sm`` (a kernel) for GPUs; ``cpu`` for NUMA nodes.
        alternate: Whether to measure the copy back, too: first one direction, then the other, never both at
            once.
        **how: As for `memory_bandwidth`.

    Returns:
        The median, in B/s, with its samples; with ``alternate``, a bandwidth for each direction.
    """
    if alternate:
        pair = pair_of(machine_named(how.get("machine")), src, dst)
        return _matrix("Bandwidth, row to column", _PUSH, pair, size, engine, how)
    return _pair("Bandwidth", _PUSH, src, dst, size, engine, how)


@with_original_keywords
def p2p_bandwidth_bidirectional(
    src: Device | None = None,
    dst: Device | None = None,
    size: Size = _P2P,
    *,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure copies in both directions between two devices at once; return the sum of both rates.

    Each device pushes; every copied byte of both directions counts once.

    Args:
        src, dst, size, engine, **how: As for `p2p_bandwidth`.

    Returns:
        The median of the sum, in B/s, with its samples.
    """
    return _pair("Bandwidth", _BOTH, src, dst, size, engine, how)


@with_original_keywords
def p2p_bandwidth_all(
    size: Size = _P2P,
    *,
    devices: Sequence[Device] | None = None,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``p2p_bandwidth`` for all ordered pairs, one at a time; the row is the source.

    Args:
        size, engine, **how: As for `p2p_bandwidth`.
        devices: At least two GPUs or two NUMA nodes, or their indices; default: all GPUs, or all NUMA nodes
            without GPUs.

    Returns:
        A bandwidth for each pair.

    Examples:
        >>> import wirespeed
        >>> print(wirespeed.p2p_bandwidth_all(machine="simulated:hgx-h200-2"))
        Bandwidth, row to column (GB/s):
                gpu0    gpu1
        gpu0       -  388.58
        gpu1  388.38       -
        2 pairs · 38.15 MiB · counts every copied byte once · SIMULATED: no hardware was measured
    """
    return _matrix("Bandwidth, row to column", _PUSH, devices, size, engine, how)


@with_original_keywords
def p2p_bandwidth_bidirectional_all(
    size: Size = _P2P,
    *,
    devices: Sequence[Device] | None = None,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``p2p_bandwidth_bidirectional`` for all pairs, one at a time.

    Args:
        size, devices, engine, **how: As for `p2p_bandwidth_all`.

    Returns:
        A bandwidth for each pair.
    """
    title = "Bandwidth, both directions, sum"
    return _matrix(title, _BOTH, devices, size, engine, how)


def _pair(
    title: str, family: dict[str, str], src: Device | None, dst: Device | None, size: Size,
    engine: CopyEngine | None, how: dict[str, Any],
) -> Bandwidth:  # fmt: skip
    """The bandwidth of one pair, measured by a testcase of a family."""
    machine = machine_named(how.get("machine"))
    a, b = pair_of(machine, src, dst)
    name = family[kind_of(machine, a)].format(engine_for(machine, a, engine))
    document = measured([narrow(find(name), [a], [b])], machine, how, size)
    joint, parts, detail = _UNI if family is _PUSH else _BI
    one = only(title, f"{a} {joint} {b}", document, parts=parts, detail=detail)
    return replace(one, detailed=True)


def _matrix(
    title: str, family: dict[str, str], devices: Sequence[Device] | None, size: Size,
    engine: CopyEngine | None, how: dict[str, Any],
) -> Bandwidth:  # fmt: skip
    """The bandwidths of all pairs, measured by a testcase of a family."""
    machine = machine_named(how.get("machine"))
    names = several(machine, devices)
    testcase = family[kind_of(machine, names[0])].format(engine_for(machine, names[0], engine))
    document = measured([narrow(find(testcase), names, names)], machine, how, size)
    result = document.testcases[0]
    table = result.tables[-1]
    labels = table.rows.labels
    joint, parts, detail = _UNI if family is _PUSH else _BI
    by_place = {
        (cell.row, cell.column): point(
            "Bandwidth", f"{labels[cell.row]} {joint} {labels[cell.column]}", cell, document, result, parts,
            detail,
        )
        for cell in table.cells if cell.value is not None and cell.row != cell.column
    }  # fmt: skip
    reasons = " · ".join(dict.fromkeys(cell.reason for cell in table.cells if cell.reason))
    axis = Axis("device", labels)
    return Bandwidth.several(title, axis, axis, by_place, device="", detail="", note=reasons)
