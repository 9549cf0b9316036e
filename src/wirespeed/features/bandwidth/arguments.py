"""Devices and sizes that a caller names or omits, as existing devices and valid sizes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, get_args

from ...errors import MachineError, UsageError
from ...hardware.topology import Machine
from ...options import LEAST_WITHOUT_UNIT
from ...units import parse_size

if TYPE_CHECKING:
    import numpy as np

#: A size in bytes, or a text such as ``"64MiB"``.
Size = int | str
#: Number types supported by saxpy, and their sizes in bytes.
NumberType = Literal["float16", "float32", "float64"]
BYTES: dict[str, int] = dict(zip(get_args(NumberType), (2, 4, 8), strict=True))
#: The same, or a type of numpy.
Dtype: TypeAlias = "NumberType | type | np.dtype[Any]"
#: The name of a device, or the index of a GPU; on a machine without GPUs, of a NUMA node.
Device: TypeAlias = str | SupportsIndex
#: What copies between two devices: a copy engine or a kernel of a GPU, the CPUs of a NUMA node.
GpuEngine = Literal["ce", "sm"]
NumaEngine = Literal["cpu"]
CopyEngine = GpuEngine | NumaEngine
_ENGINES: dict[str, tuple[CopyEngine, ...]] = {"gpu": get_args(GpuEngine), "numa": get_args(NumaEngine)}


def kind_of(machine: Machine, name: str) -> str:
    """The kind of a device: ``gpu`` or ``numa``."""
    return "gpu" if any(gpu.name == name for gpu in machine.gpus) else "numa"


def devices_of(machine: Machine) -> list[str]:
    """The names of all devices with memory: GPUs, then NUMA nodes."""
    nodes = [node.name for node in machine.numa if node.cpus and node.memory_bytes]
    return [*(gpu.name for gpu in machine.gpus), *nodes]


def one_device(machine: Machine, device: Device | None) -> str:
    """An existing device; the first one if none is named.

    Args:
        machine: The machine.
        device: The wanted device, or its index; default: the first one.

    Returns:
        Name of the device.

    Raises:
        MachineError: If the device does not exist, or the machine has none.
    """
    there = devices_of(machine)
    if not there:
        raise MachineError("this machine has no GPU and no NUMA node with usable cores and memory")
    if device is None:
        return there[0]
    if not isinstance(device, str):
        alike = [name for name in there if kind_of(machine, name) == kind_of(machine, there[0])]
        try:
            place = index(device)
        except TypeError as error:
            raise UsageError(f"a device is a name or an index, not {device!r}") from error
        if not 0 <= place < len(alike):
            hint = f"; a size is passed as size={place}" if place >= LEAST_WITHOUT_UNIT else ""
            raise MachineError(f"there is no device with the index {place}; from 0: {', '.join(alike)}{hint}")
        return alike[place]
    if device not in there:
        if _is_size(device):
            raise MachineError(f"{device!r} is a size, not a device: pass size={device!r}")
        hint = f" ({'; '.join(machine.notes)})" if machine.notes and not machine.gpus else ""
        raise MachineError(f"unknown device {device!r}; devices of this machine: {', '.join(there)}{hint}")
    return device


def _is_size(text: str) -> bool:
    """Whether a text is a size with a unit."""
    try:
        return not text.isdecimal() and parse_size(text) > 0
    except UsageError:
        return False


def several(machine: Machine, devices: Sequence[Device] | None) -> list[str]:
    """At least two devices of one kind.

    Args:
        machine: The machine.
        devices: The wanted devices, or their indices; default: all of the kind of the first one.

    Returns:
        Names of the devices, each once.

    Raises:
        UsageError: If they are fewer than two, or not of one kind.
    """
    if devices is None:
        first = one_device(machine, None)
        chosen = [name for name in devices_of(machine) if kind_of(machine, name) == kind_of(machine, first)]
    else:
        if isinstance(devices, str):
            devices = devices.split(",")
        chosen = list(dict.fromkeys(one_device(machine, device) for device in devices))
        if not chosen:
            raise UsageError("devices is empty; name at least two, or omit it")
    if len({kind_of(machine, name) for name in chosen}) > 1:
        raise UsageError(
            f"{' and '.join(chosen)} are not of one kind; use host2device_bandwidth between kinds"
        )
    if len(chosen) < 2:
        only = f"{chosen[0]} alone is given" if devices is not None else f"this machine has only {chosen[0]}"
        raise UsageError(f"requires at least two GPUs or two NUMA nodes, but {only}")
    return chosen


def pair_of(machine: Machine, src: Device | None, dst: Device | None) -> tuple[str, str]:
    """A pair; unnamed devices are chosen so that the source can access the destination.

    Args:
        machine: The machine.
        src, dst: Source and destination, or their indices; default: chosen.

    Returns:
        Source and destination.

    Raises:
        UsageError: If the two are the same device, or not of one kind.
    """
    a, b = (None if device is None else one_device(machine, device) for device in (src, dst))
    kind = kind_of(machine, a or b or one_device(machine, None))
    group = [name for name in devices_of(machine) if kind_of(machine, name) == kind]
    reach = {gpu.name: gpu.peers for gpu in machine.gpus}
    pairs = [(one, other) for one in group for other in group if one != other]
    pairs = [pair for pair in pairs if a in (None, pair[0]) and b in (None, pair[1])]
    if a is not None and b is not None:
        if a == b:
            raise UsageError(
                f"src and dst are both {a}: memory_bandwidth(device={a!r}) copies within a device"
            )
        several(machine, [a, b])
        return a, b
    if not pairs:
        several(machine, group)
    return next((pair for pair in pairs if pair[1] in reach.get(pair[0], group)), pairs[0])


def engine_for(machine: Machine, name: str, engine: CopyEngine | None) -> CopyEngine:
    """The engine with which a device copies; the default of its kind if none is named.

    Args:
        machine: The machine of the device.
        name: The device.
        engine: ``ce``, ``sm`` or ``cpu``; default: ``ce`` of a GPU, ``cpu`` of a NUMA node.

    Returns:
        The engine.

    Raises:
        UsageError: If the device has no such engine.
    """
    possible = _ENGINES[kind_of(machine, name)]
    if engine is None:
        return possible[0]
    if engine not in possible:
        raise UsageError(f"unknown engine {engine!r} for {name}; choose from {' or '.join(possible)}")
    return engine


def in_bytes(size: Size) -> int:
    """Bytes of a number, or of a text such as ``512MiB``."""
    return parse_size(size) if isinstance(size, str) else whole(size, "a size in bytes")


def whole(number: SupportsIndex, name: str) -> int:
    """A whole number of at least 1; numpy's integers are accepted.

    Raises:
        UsageError: If it is not such a number.
    """
    try:
        value = index(number)
    except TypeError:
        value = 0
    if not 1 <= value <= 2**60:
        raise UsageError(f"{name} must be a whole number of at least 1, not {number!r}")
    return value


def number_type(dtype: Dtype) -> str:
    """The name of a number type; numpy's types are accepted without importing numpy."""
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype))
    if name not in BYTES:
        raise UsageError(f"saxpy does not support {name!r}; choose from {', '.join(BYTES)}")
    return name
