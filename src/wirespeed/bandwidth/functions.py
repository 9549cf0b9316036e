"""The functions: choose a Testcase from the arguments, and make a result from its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api import run
from ..document import Document, TestcaseResult
from ..errors import UsageError
from ..measurement import Axis
from ..model import Memory, MemoryKind
from ..run_errors import MeasurementFailed
from ..tables import Cell
from ..testcases import Testcase, find
from ..testcases.subset import narrow
from ..topology import LinkKind, Machine
from ..units import MIB, format_quantity, parse_sizes
from .arguments import (
    BYTES,
    CopyEngine,
    Dtype,
    Size,
    described,
    engine_for,
    in_bytes,
    kind_of,
    number_type,
    one_device,
    pair_of,
    several,
    whole,
)
from .results import Bandwidth

#: Device kind -> testcase of copies within a device. Both count the bytes read and written.
_COPY = {"gpu": "device_stream_copy", "numa": "host_stream_copy"}
#: Device kind and number type -> testcase of z = a x + y.
_SAXPY = {
    "gpu": {"float32": "device_saxpy", "float64": "device_stream_triad"},
    "numa": {"float32": "host_saxpy", "float64": "host_stream_triad"},
}
#: Device kind -> testcase of copies from the row's to the column's memory, executed by the row.
_PUSH = {"gpu": "device_to_device_memcpy_write_{}", "numa": "numa_to_numa_memcpy_write_{}"}
_BOTH = {
    "gpu": "device_to_device_bidirectional_memcpy_write_{}",
    "numa": "numa_to_numa_bidirectional_memcpy_write_{}",
}

#: Sizes of a scaling: from 1 B on a GPU; on a host from 64 B, the smallest copy of CPUs.
_SCALING = {"gpu": tuple(2**i for i in range(31)), "numa": tuple(2**i for i in range(6, 31))}
_LENGTH = 10 * MIB
_LENGTHS = tuple(i * 10 * MIB for i in (1, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30))
_P2P = 40_000_000
#: Stopping criteria: people look at these values one at a time.
_PRECISION, _BUDGET_S = 0.01, 0.6
_A_LENGTH = "a vector's length"


def theoretical_memory_bandwidth(
    device: str | None = None, *, machine: str | Machine | None = None
) -> Bandwidth:
    """Compute the bandwidth that a memory's clock and width allow: clock x 2 x bus width. Measures nothing.

    Bytes read and bytes written both count.

    Parameters
    ----------
    device : str or None
        ``gpu0`` or ``numa0``; default: the first GPU, or the first NUMA node without GPUs.
    machine : str, Machine or None
        None for this machine, ``"simulated:NAME"``, a machine file, or a Machine.

    Returns
    -------
    Bandwidth
        The bandwidth, in B/s, and its origin.

    Raises
    ------
    UsageError
        If the device does not exist, or the clock or width of its memory is unknown. Those of host memory are
        always unknown, because only the firmware's tables contain them.

    Examples
    --------
    >>> import wirespeed
    >>> print(wirespeed.theoretical_memory_bandwidth("gpu0", machine="simulated:hgx-h200-2"))
    Theoretical Maximal Memory Bandwidth (GiB/s):
     └ max: 4483.39
    gpu0 · 3201 MHz x 2 x 6016 bit · SIMULATED: no hardware was measured
    """
    target = described(machine)
    name = one_device(target, device)
    kind = MemoryKind.DEVICE if kind_of(target, name) == "gpu" else MemoryKind.PAGEABLE
    vertex = target.vertex(Memory(name, kind))
    for link in target.links:
        if link.kind is LinkKind.MEMORY and link.source == vertex and link.capacity:
            title, cell = "Theoretical Maximal Memory Bandwidth", Cell(0, 0, link.capacity)
            return Bandwidth.one(title, name, cell, note=link.origin, simulated=target.simulated)
    raise UsageError(
        f"the clock and width of the memory of {name} are unknown, so it has no theoretical bandwidth; "
        f"measure it with wirespeed.memory_bandwidth(device={name!r})"
    )


def memory_bandwidth(size: Size | None = None, *, device: str | None = None, **how: Any) -> Bandwidth:
    """Copy within a device's own memory; bytes read and bytes written both count.

    Parameters
    ----------
    size : int, str or None
        Bytes of one buffer; default: 512 MiB, on a host at least twice its last cache.
    device : str or None
        ``gpu0`` or ``numa0``; default: the first GPU, or the first NUMA node without GPUs.
    **how
        ``machine`` and the options of `wirespeed.run`. Without them, sampling stops when the median is known
        to ±1 % from the samples of this run, or after 0.6 s per value.

    Returns
    -------
    Bandwidth
        The median, in B/s, with its samples.

    Raises
    ------
    UsageError
        If an argument is invalid.
    MeasurementFailed
        If it cannot be measured here, or the data was wrong.

    Examples
    --------
    >>> import wirespeed
    >>> result = wirespeed.memory_bandwidth(device="gpu0", machine="simulated:hgx-h200-2")
    >>> round(result.gb_per_s), round(result.gib_per_s)
    (4123, 3840)
    """
    machine = described(how.get("machine"))
    name = one_device(machine, device)
    case = narrow(find(_COPY[kind_of(machine, name)]), columns=[name])
    document = measured([case], machine, how, size)
    return _only("Memory Bandwidth", name, document, parts=2)


def memory_bandwidth_scaling(
    sizes: Sequence[Size] | None = None, *, device: str | None = None, **how: Any
) -> Bandwidth:
    """Measure ``memory_bandwidth`` over buffer sizes; ``.plot()`` draws it with the peak marked.

    Parameters
    ----------
    sizes : Sequence of int or str, or None
        Bytes of one buffer, or texts such as ``"64MiB"``; default: powers of two from 1 B to 1 GiB. CPUs
        copy whole lines of 64 B, so on a host the default starts there.
    device, **how
        As for `memory_bandwidth`.

    Returns
    -------
    Bandwidth
        A bandwidth for each size.
    """
    machine = described(how.get("machine"))
    name = one_device(machine, device)
    if isinstance(sizes, str):
        sizes = parse_sizes(sizes)
    over = _SCALING[kind_of(machine, name)] if sizes is None else tuple(in_bytes(size) for size in sizes)
    case = narrow(find(_COPY[kind_of(machine, name)]), columns=[name])
    return _scaling("Memory Bandwidth", name, case, machine, over, how, ("data size", "B", 1), parts=2)


def memory_bandwidth_saxpy(
    size: int = _LENGTH,
    dtype: Dtype = "float32",
    *,
    device: str | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``z = a x + y`` within a device's own memory; all three vectors count.

    Parameters
    ----------
    size : int
        Length of each vector, in numbers.
    dtype : {'float32', 'float64'} or numpy type
        Type of the numbers.
    device, **how
        As for `memory_bandwidth`.

    Returns
    -------
    Bandwidth
        The median, in B/s, with its samples.
    """
    machine = described(how.get("machine"))
    name, number = one_device(machine, device), number_type(dtype)
    case = narrow(find(_SAXPY[kind_of(machine, name)][number]), columns=[name])
    document = measured([case], machine, how, whole(size, _A_LENGTH) * BYTES[number])
    title = f"Memory Bandwidth (SAXPY, {number})"
    return _only(title, name, document, parts=3)


def memory_bandwidth_saxpy_scaling(
    sizes: Sequence[int] = _LENGTHS,
    dtype: Dtype = "float32",
    *,
    device: str | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``memory_bandwidth_saxpy`` over vector lengths; ``.plot()`` draws it.

    Parameters
    ----------
    sizes : Sequence of int, or None
        Lengths of each vector, in numbers; default: from 10 to 300 Mi.
    dtype, device, **how
        As for `memory_bandwidth_saxpy`.

    Returns
    -------
    Bandwidth
        A bandwidth for each length.
    """
    machine = described(how.get("machine"))
    name, number = one_device(machine, device), number_type(dtype)
    case = narrow(find(_SAXPY[kind_of(machine, name)][number]), columns=[name])
    over = tuple(whole(length, _A_LENGTH) * BYTES[number] for length in sizes)
    title = f"Memory Bandwidth (SAXPY, {number})"
    axis = ("vector length", "numbers", BYTES[number])
    return _scaling(title, name, case, machine, over, how, axis, parts=3)


def host2device_bandwidth(size: Size | None = None, *, device: str | None = None, **how: Any) -> Bandwidth:
    """Measure copies between a GPU and its nearest host memory: pageable and pinned, both directions.

    Every copied byte counts once. The executor is the GPU's copy engine.

    Parameters
    ----------
    size : int or str
        Bytes of the buffer; default: 512 MiB.
    device : str or None
        A GPU; default: the first one.
    **how
        As for `memory_bandwidth`.

    Returns
    -------
    Bandwidth
        Four bandwidths.
    """
    machine = described(how.get("machine"))
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
            by_place[i, j] = _only(f"Host ({kind}) <-> Device Bandwidth", way, document, j)
    rows, columns = Axis("host memory", kinds), Axis("transfer", ways)
    return Bandwidth.several("Host <-> Device Bandwidth", rows, columns, by_place, device="")


def p2p_bandwidth(
    src: str | None = None,
    dst: str | None = None,
    size: Size = _P2P,
    *,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure a copy from one device's memory to another's.

    The source executes; every copied byte counts once.

    Parameters
    ----------
    src, dst : str or None
        Two GPUs or two NUMA nodes; default: the first two GPUs that are peers, or the first two NUMA nodes
        without GPUs.
    size : int or str
        Bytes of the buffer; default: 40 MB.
    engine : {'ce', 'sm', 'cpu'} or None
        ``ce`` (a copy engine) or ``sm`` (a kernel) for GPUs; ``cpu`` for NUMA nodes.
    **how
        As for `memory_bandwidth`.

    Returns
    -------
    Bandwidth
        The median, in B/s, with its samples.
    """
    return _pair("Bandwidth", _PUSH, src, dst, size, engine, how)


def p2p_bandwidth_bidirectional(
    src: str | None = None,
    dst: str | None = None,
    size: Size = _P2P,
    *,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure copies in both directions between two devices at once; return the sum of both rates.

    Each device pushes; every copied byte of both directions counts once.

    Parameters
    ----------
    src, dst, size, engine, **how
        As for `p2p_bandwidth`.

    Returns
    -------
    Bandwidth
        The median of the sum, in B/s, with its samples.
    """
    return _pair("Bandwidth (both directions, sum)", _BOTH, src, dst, size, engine, how)


def p2p_bandwidth_all(
    size: Size = _P2P,
    *,
    devices: Sequence[str] | None = None,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``p2p_bandwidth`` for all ordered pairs, one at a time; the row is the source.

    Parameters
    ----------
    size, engine, **how
        As for `p2p_bandwidth`.
    devices : Sequence[str] or None
        At least two GPUs or two NUMA nodes; default: all GPUs, or all NUMA nodes without GPUs.

    Returns
    -------
    Bandwidth
        A bandwidth for each pair.

    Examples
    --------
    >>> import wirespeed
    >>> print(wirespeed.p2p_bandwidth_all(machine="simulated:hgx-h200-2"))
    Bandwidth, row to column (GiB/s):
            gpu0    gpu1
    gpu0       -  361.89
    gpu1  361.71       -
    2 pairs · 38.15 MiB · counts every copied byte once · SIMULATED: no hardware was measured
    """
    return _matrix("Bandwidth, row to column", _PUSH, devices, size, engine, how)


def p2p_bandwidth_bidirectional_all(
    size: Size = _P2P,
    *,
    devices: Sequence[str] | None = None,
    engine: CopyEngine | None = None,
    **how: Any,
) -> Bandwidth:
    """Measure ``p2p_bandwidth_bidirectional`` for all pairs, one at a time.

    Parameters
    ----------
    size, devices, engine, **how
        As for `p2p_bandwidth_all`.

    Returns
    -------
    Bandwidth
        A bandwidth for each pair.
    """
    title = "Bandwidth, both directions, sum"
    return _matrix(title, _BOTH, devices, size, engine, how)


def measured(
    cases: Sequence[Testcase],
    machine: Machine,
    how: dict[str, Any],
    size: Size | None = None,
    *,
    sizes: Sequence[int] | None = None,
    pageable: bool = False,
) -> Document:
    """Run testcases and return the Document.

    Raises
    ------
    MeasurementFailed
        If one did not pass.
    """
    from ..progress import listener

    chosen = how if "options" in how else {"tier": "quick", **how}
    if not {"options", "tier", "samples", "copies", "precision", "time_budget"} & how.keys():
        chosen |= {"precision": _PRECISION, "time_budget": _BUDGET_S}
    chosen |= {"machine": machine, "size": None if size is None else in_bytes(size)}
    document = run(cases, sizes=sizes, pageable=pageable, listeners=listener(), **chosen)
    for result in document.testcases:
        if result.status != "passed":
            raise MeasurementFailed(f"{result.name}: {result.status}: {result.reason}", document)
    return document


def _only(title: str, device: str, document: Document, testcase: int = 0, parts: int = 1) -> Bandwidth:
    """The only cell of a testcase's last table; ``parts`` is the number of counted buffers."""
    result = document.testcases[testcase]
    return _point(title, device, result.tables[-1].cells[0], document, result, parts)


def _point(
    title: str, device: str, cell: Cell, document: Document, result: TestcaseResult, parts: int
) -> Bandwidth:
    fields = {"simulated": document.simulated, "document": document}
    return Bandwidth.one(title, device, cell, bytes=cell.bytes // parts, counts=result.counts, **fields)


def _scaling(
    title: str, name: str, case: Testcase, machine: Machine, over: Sequence[int], how: dict[str, Any],
    axis: tuple[str, str, int], *, parts: int,
) -> Bandwidth:  # fmt: skip
    """A curve over buffer sizes; ``axis`` is the quantity, its unit, and the bytes of each."""
    document = measured([case], machine, how, sizes=over)
    result, (quantity, unit, unit_bytes) = document.testcases[0], axis
    points = [_point(title, name, cell, document, result, parts) for cell in result.tables[0].cells]
    sizes = [point.bytes // unit_bytes for point in points]
    labels = tuple(format_quantity(size, unit) for size in sizes)
    columns = Axis(quantity, labels, tuple(map(float, sizes)), unit)
    by_place = {(0, j): point for j, point in enumerate(points)}
    return Bandwidth.several(title, Axis("device", (name,)), columns, by_place, bytes=0)


def _pair(
    title: str, family: dict[str, str], src: str | None, dst: str | None, size: Size,
    engine: CopyEngine | None, how: dict[str, Any],
) -> Bandwidth:  # fmt: skip
    """The bandwidth of one pair, measured by a testcase of a family."""
    machine = described(how.get("machine"))
    a, b = pair_of(machine, src, dst)
    name = family[kind_of(machine, a)].format(engine_for(machine, a, engine))
    document = measured([narrow(find(name), [a], [b])], machine, how, size)
    joint, parts = ("->", 1) if family is _PUSH else ("<->", 2)
    return _only(title, f"{a} {joint} {b}", document, parts=parts)


def _matrix(
    title: str, family: dict[str, str], devices: Sequence[str] | None, size: Size, engine: CopyEngine | None,
    how: dict[str, Any],
) -> Bandwidth:  # fmt: skip
    """The bandwidths of all pairs, measured by a testcase of a family."""
    machine = described(how.get("machine"))
    names = several(machine, devices)
    testcase = family[kind_of(machine, names[0])].format(engine_for(machine, names[0], engine))
    document = measured([narrow(find(testcase), names, names)], machine, how, size)
    result = document.testcases[0]
    table = result.tables[-1]
    labels = table.rows.labels
    joint, parts = ("->", 1) if family is _PUSH else ("<->", 2)
    of_pair = "Bandwidth" if family is _PUSH else "Bandwidth (both directions, sum)"
    by_place = {
        (cell.row, cell.column): _point(
            of_pair, f"{labels[cell.row]} {joint} {labels[cell.column]}", cell, document, result, parts
        )
        for cell in table.cells
        if cell.value is not None and cell.row != cell.column
    }
    reasons = " · ".join(dict.fromkeys(cell.reason for cell in table.cells if cell.reason))
    axis = Axis("device", labels)
    return Bandwidth.several(title, axis, axis, by_place, device="", note=reasons)
