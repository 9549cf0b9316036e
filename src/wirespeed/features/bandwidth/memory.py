"""Bandwidth of a device's own memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api import machine_named
from ...errors import UsageError
from ...hardware.topology import LinkKind, Machine
from ...model import Memory, MemoryKind
from ...tables import Cell
from ...testcases.device import saxpy
from ...testcases.selections import narrow
from ...testcases.table import Testcase, find
from ...units import MIB, parse_sizes
from . import Bandwidth
from .arguments import BYTES, Device, Dtype, Size, in_bytes, kind_of, number_type, one_device, whole
from .keywords import with_original_keywords
from .measured import measured, only, scaling

#: Device kind -> testcase of copies within a device. Both count the bytes read and written.
_COPY = {"gpu": "device_stream_copy", "numa": "host_stream_copy"}
#: Number type -> testcase of z = a x + y by CPUs.
_HOST_SAXPY = {"float32": "host_saxpy", "float64": "host_stream_triad"}
#: Sizes of a scaling: from 1 B on a GPU; on a host from 64 B, the smallest copy of CPUs.
_SCALING = {"gpu": tuple(2**i for i in range(31)), "numa": tuple(2**i for i in range(6, 31))}
_LENGTH = 10 * MIB
_LENGTHS = tuple(i * 10 * MIB for i in range(1, 31))
_A_LENGTH = "a vector's length"


@with_original_keywords
def theoretical_memory_bandwidth(
    device: Device | None = None, *, machine: str | Machine | None = None
) -> Bandwidth:
    """Compute the bandwidth that a memory's clock and width allow: clock x 2 x bus width. Measures nothing.

    Bytes read and bytes written both count.

    Args:
        device: ``gpu0`` or ``numa0``, or the index of a GPU, of a NUMA node on a machine without GPUs;
            default: the first one.
        machine: None for this machine, ``"simulated:NAME"``, a machine file, or a Machine.
        verbose: Whether to print the result, too; default: no.

    Returns:
        The bandwidth, in B/s, and its origin.

    Raises:
        UsageError: If the device does not exist, or the clock or width of its memory is unknown. Those of
            host memory are always unknown, because only the firmware's tables contain them.

    Examples:
        >>> import wirespeed
        >>> print(wirespeed.theoretical_memory_bandwidth("gpu0", machine="simulated:hgx-h200-2"))
        Theoretical Maximal Memory Bandwidth (GB/s):
         └ max: 4814.00
        gpu0 · 3201 MHz x 2 x 6016 bit · SIMULATED: no hardware was measured
    """
    target = machine_named(machine)
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


@with_original_keywords
def memory_bandwidth(size: Size | None = None, *, device: Device | None = None, **how: Any) -> Bandwidth:
    """Copy within a device's own memory; bytes read and bytes written both count.

    Args:
        size: Bytes of one buffer; default: 512 MiB, on a host at least twice its last cache.
        device: ``gpu0`` or ``numa0``, or the index of a GPU, of a NUMA node on a machine without GPUs;
            default: the first one.
        **how: ``machine`` and the options of `wirespeed.run`. Without them, sampling stops when the median is
            known to ±1% from the samples of this run, or after 0.6 s per value. Keywords of GPUInspector.jl:
            ``memsize`` is another name of ``size`` and ``nbench`` of ``samples``; ``verbose=True`` prints the
            result (the plot of a curve), with ``stats=False`` only its maximum.

    Returns:
        The median, in B/s, with its samples.

    Raises:
        UsageError: If an argument is invalid.
        MeasurementFailed: If it cannot be measured here, or the data was wrong.

    Examples:
        >>> import wirespeed
        >>> result = wirespeed.memory_bandwidth(device="gpu0", machine="simulated:hgx-h200-2")
        >>> round(result.gb_per_s), round(result.gib_per_s)
        (4123, 3840)
    """
    machine = machine_named(how.get("machine"))
    name = one_device(machine, device)
    case = narrow(find(_COPY[kind_of(machine, name)]), columns=[name])
    document = measured([case], machine, how, size)
    return only("Memory Bandwidth", name, document, parts=2)


@with_original_keywords
def memory_bandwidth_scaling(
    sizes: Sequence[Size] | None = None, *, device: Device | None = None, **how: Any
) -> Bandwidth:
    """Measure ``memory_bandwidth`` over buffer sizes; ``.plot()`` draws it with the peak marked.

    Args:
        sizes: Bytes of one buffer, or texts such as ``"64MiB"``; default: powers of two from 1 B to 1 GiB.
            CPUs copy whole lines of 64 B, so on a host the default starts there.
        device, **how: As for `memory_bandwidth`.

    Returns:
        A bandwidth for each size.
    """
    machine = machine_named(how.get("machine"))
    name = one_device(machine, device)
    if isinstance(sizes, str):
        sizes = parse_sizes(sizes)
    over = _SCALING[kind_of(machine, name)] if sizes is None else tuple(in_bytes(size) for size in sizes)
    case = narrow(find(_COPY[kind_of(machine, name)]), columns=[name])
    return scaling("Memory Bandwidth", name, case, machine, over, how, ("data size", "B", 1), parts=2)


@with_original_keywords
def memory_bandwidth_saxpy(
    size: int = _LENGTH,
    dtype: Dtype = "float32",
    *,
    device: Device | None = None,
    cublas: bool = False,
    **how: Any,
) -> Bandwidth:
    """Measure ``z = a x + y`` within a device's own memory; all three vectors count.

    Args:
        size: Length of each vector, in numbers.
        dtype: Type of the numbers; ``float16`` only on a GPU.
        cublas: Whether cuBLAS computes ``y = a x + y`` in place, instead of a kernel with another vector for
            the result; requires ``pip install 'wirespeed[cublas]'``.
        device, **how: As for `memory_bandwidth`, without ``memsize``.

    Returns:
        The median, in B/s, with its samples.
    """
    machine, name, case, detail, width = _saxpy(how, device, dtype, cublas)
    document = measured([case], machine, how, whole(size, _A_LENGTH) * width)
    return only("Memory Bandwidth", name, document, parts=3, detail=detail)


@with_original_keywords
def memory_bandwidth_saxpy_scaling(
    sizes: Sequence[int] = _LENGTHS,
    dtype: Dtype = "float32",
    *,
    device: Device | None = None,
    cublas: bool = False,
    **how: Any,
) -> Bandwidth:
    """Measure ``memory_bandwidth_saxpy`` over vector lengths; ``.plot()`` draws it.

    Args:
        sizes: Lengths of each vector, in numbers; default: 10, 20, … 300 Mi.
        dtype, device, cublas, **how: As for `memory_bandwidth_saxpy`.

    Returns:
        A bandwidth for each length.
    """
    machine, name, case, detail, width = _saxpy(how, device, dtype, cublas)
    over = tuple(whole(length, _A_LENGTH) * width for length in sizes)
    unit = ("vector length", "numbers", width)
    return scaling("Memory Bandwidth", name, case, machine, over, how, unit, parts=3, detail=detail)


def _saxpy(
    how: dict[str, Any], device: Device | None, dtype: Dtype, cublas: bool
) -> tuple[Machine, str, Testcase, str, int]:
    """Machine, device, testcase and description of a x + y, and the bytes of a number.

    Raises:
        UsageError: If host memory is to be measured with cuBLAS, or with a type that CPUs do not compute
            with.
    """
    machine = machine_named(how.get("machine"))
    name, number = one_device(machine, device), number_type(dtype)
    if kind_of(machine, name) == "gpu":
        case = saxpy(number, cublas)
    elif cublas:
        raise UsageError(f"{name} is host memory; cublas=True requires a GPU, such as gpu0")
    elif number not in _HOST_SAXPY:
        raise UsageError(f"saxpy on {name} does not support {number!r}; choose {' or '.join(_HOST_SAXPY)}")
    else:
        case = find(_HOST_SAXPY[number])
    detail = f"SAXPY{' by cuBLAS' if cublas else ''}, {number}"
    return machine, name, narrow(case, columns=[name]), detail, BYTES[number]
