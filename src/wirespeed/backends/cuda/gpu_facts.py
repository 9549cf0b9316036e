"""Facts of GPUs from NVML and from the PCI devices above them in sysfs; CUDA need not be installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from ...hardware.devices import Gpu
from ...hardware.facts import FABRIC_READY, OFF, OK, ON, Fact, Known
from ...units import MB
from .. import pci
from ..system_files import HERE, TreePath
from .nvml import JOINED, REFUSALS, Nvml, decoded, kernel_module, reasons_of

#: Fields of the health mask of the fabric: shift, width in bits, the values that are a problem.
#: In most of them 1 is true and 2 is false, so that 0xaa has no problem.
#: Source: NVML_GPU_FABRIC_HEALTH_MASK_* in nvml.h.
_HEALTH = (
    (0, 2, {1: "degraded bandwidth"}),
    (2, 2, {1: "route recovery in progress"}),
    (4, 2, {1: "unhealthy route"}),
    (6, 2, {1: "recovery from an access time-out"}),
    (8, 4, {2: "incorrect system GUID", 3: "incorrect chassis serial number", 4: "no partition",
            5: "too few NVLinks", 6: "incompatible firmware", 7: "invalid location", 8: "invalid state"}),
    (12, 2, {2: "no partition assigned"}),
    (14, 2, {2: "fabric manager not connected"}),
)  # fmt: skip
#: Source: NVML_GPU_NVLINK_BW_MODE_* in nvml.h.
_BANDWIDTH_MODES = ("full", "off", "minimum", "half", "three quarters")
#: Source: NVML_CLOCK_MEM and NVML_FI_DEV_ECC_DBE_VOL_TOTAL in nvml.h.
_MEMORY_CLOCK, _UNCORRECTED = 2, 4
_MILLI = 1e-3
#: What is read of ``proc/driver/nvidia/params``.
_KEYS = re.compile(r"^RegistryDwords:.*$", re.MULTILINE)
#: Attribute with the sizes that Resizable BAR can give BAR1: bit n stands for 2^(n + 20) bytes. Source:
#: sysfs-bus-pci in the ABI documentation of Linux, resourceN_resize.
_SIZES, _MEGABYTE_BITS = "resource1_resize", 20
#: Model of GPUs whose memory no NIC can access, whatever is loaded: its memory is the host's (NVIDIA's forum
#: for developers, "DGX Spark GPUDirect RDMA", topic 348787).
_WITHOUT_GPUDIRECT = "GB10"
_fact = partial(Fact.of, why="NVML does not report it")


def facts(gpus: Sequence[Gpu], nvml: Nvml, root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of some GPUs.

    Args:
        gpus: The GPUs.
        nvml: NVML, initialised.
        root: Folder that contains ``sys`` and ``proc``.
    """
    yield Fact.of(Known.DRIVER_KERNEL, kernel_module(root) or None, why="no such file")
    if (keys := (root / "proc/driver/nvidia/params").read(_KEYS)) is not None:
        named = keys.partition(":")[2].strip().strip('"').split(";")
        yield Fact(Known.REGISTRY_KEYS, tuple(filter(None, map(str.strip, named))))
    library = nvml.ask("nvmlSystemGetDriverVersion")
    yield _fact(Known.DRIVER_LIBRARY, None if library is None else decoded(library))
    handles = {gpu.name: nvml.handle(gpu) for gpu in gpus}
    for gpu in gpus:
        yield from _of_bus(gpu, root)
        if _WITHOUT_GPUDIRECT in gpu.model.split():
            yield Fact(Known.GPUDIRECT, OFF, device=gpu.name)
        if (handle := handles[gpu.name]) is not None:
            yield from _of_gpu(gpu, handle, nvml)
            others = {other: h for other, h in handles.items() if other != gpu.name and h is not None}
            yield from _of_peers(gpu.name, handle, others, nvml)


def shown(nvml: Nvml) -> Fact:
    """The addresses of all GPUs that NVML shows, whatever variables and options select."""
    count = nvml.ask("nvmlDeviceGetCount")
    if count is None:
        return _fact(Known.GPUS_OF_DRIVER, None)
    handles = (nvml.ask("nvmlDeviceGetHandleByIndex", i) for i in range(count))
    locations = (nvml.ask("nvmlDeviceGetPciInfo", handle) for handle in handles if handle is not None)
    addresses = tuple(pci.address(nvml.bus_id(at)) for at in locations if at is not None)
    return _fact(Known.GPUS_OF_DRIVER, addresses)


def _of_bus(gpu: Gpu, root: TreePath) -> Iterator[Fact]:
    device = pci.entry(gpu.bus_id, root)
    if not device.exists():
        return
    node = pci.read(device / "numa_node")
    yield _fact(Known.NUMA_NODE, "unknown" if node.startswith("-") else node or None, device=gpu.name)
    group = device / "iommu_group"
    yield _fact(Known.IOMMU_GROUP, group.resolve().name if group.exists() else OFF, device=gpu.name)
    yield from pci.facts_of_bridges(device, gpu.name)
    if re.fullmatch("[0-9a-f]{1,16}", sizes := pci.read(device / _SIZES)) and int(sizes, 16):
        most = 2.0 ** (int(sizes, 16).bit_length() - 1 + _MEGABYTE_BITS)
        yield Fact(Known.BAR1_MOST, most, "B", gpu.name)
    hops = pci.hops(device)
    if hops and all(hop.is_credible for hop in hops):
        yield _fact(
            Known.PCIE_GENERATION_POSSIBLE, min(hop.generation for hop in hops) or None, device=gpu.name
        )
        yield _fact(Known.PCIE_GENERATION_OF_GPU, hops[0].below.generation or None, device=gpu.name)
        yield _fact(Known.SWITCH, hops[1].below.address if len(hops) > 1 else "none", device=gpu.name)
    yield from pci.facts_of_links(device, gpu.name, sleeps=True)


#: Fact of a pair -> NVML_P2P_CAPS_INDEX_* in nvml.h.
_P2P = {Known.P2P_READ: 0, Known.P2P_WRITE: 1, Known.P2P_ATOMICS: 3}


def _of_peers(name: str, handle: Any, others: Mapping[str, Any], nvml: Nvml) -> Iterator[Fact]:
    """Yield what NVML says of the access of a GPU to others; nothing if it does not answer."""
    for other, h in others.items():
        for fact, index in _P2P.items():
            status = nvml.ask("nvmlDeviceGetP2PStatus", handle, h, index)
            if status is not None:
                value = REFUSALS.get(status, f"status {status}") if status else OK
                yield Fact(fact, value, device=f"{name}->{other}")


def _of_gpu(gpu: Gpu, handle: Any, nvml: Nvml) -> Iterator[Fact]:
    name = gpu.name

    def ask(fact: str, function: str, *arguments: Any, scale: float = 1, unit: str = "") -> Fact:
        value = nvml.ask(function, handle, *arguments)
        return _fact(fact, None if value is None else value * scale, unit, name)

    def switch(fact: str, value: Any) -> Fact:
        return _fact(fact, None if value is None else ON if value else OFF, device=name)

    bar, memory = (nvml.ask(f"nvmlDeviceGet{kind}", handle) for kind in ("BAR1MemoryInfo", "MemoryInfo"))
    yield _fact(Known.BAR1, bar.bar1Total if bar else None, "B", name)
    yield _fact(Known.MEMORY, memory.total if memory else None, "B", name)
    if (display := nvml.ask("nvmlDeviceGetDisplayActive", handle)) is not None:
        yield switch(Known.DISPLAY, display)
    version = nvml.ask("nvmlDeviceGetVbiosVersion", handle)
    yield _fact(Known.VBIOS, None if version is None else decoded(version), device=name)
    yield from _nvlinks(gpu, handle, nvml)
    reasons = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    yield _fact(Known.THROTTLED, None if reasons is None else reasons_of(reasons), device=name)
    yield ask(Known.POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", scale=_MILLI, unit="W")
    yield ask(Known.POWER_LIMIT_USUAL, "nvmlDeviceGetPowerManagementDefaultLimit", scale=_MILLI, unit="W")
    yield ask(Known.MEMORY_CLOCK, "nvmlDeviceGetApplicationsClock", _MEMORY_CLOCK, scale=MB, unit="Hz")
    yield ask(Known.MEMORY_CLOCK_POSSIBLE, "nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK, scale=MB, unit="Hz")
    yield _fact(Known.ECC_ERRORS, nvml.fields(handle, {"errors": _UNCORRECTED}).get("errors"), device=name)
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    yield switch(Known.REMAP_PENDING, rows[2] if rows else None)
    yield switch(Known.REMAP_FAILED, rows[3] if rows else None)
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    yield switch(Known.MIG, mode[0] if mode else None)
    state = nvml.ask("nvmlSystemGetConfComputeState")
    yield switch(Known.CONFIDENTIAL, state.ccFeature if state else None)
    yield switch(Known.PERSISTENCE, nvml.ask("nvmlDeviceGetPersistenceMode", handle))
    use = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    yield _fact(Known.UTILISATION, use.gpu if use else None, "%", name)
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    yield _fact(Known.PROCESSES, None if processes is None else len(processes), device=name)


def _nvlinks(gpu: Gpu, handle: Any, nvml: Nvml) -> Iterator[Fact]:
    """Yield the state of the NVLinks of a GPU and of their fabric."""
    states = nvml.links(handle)
    yield _fact(Known.NVLINKS, sum(states), device=gpu.name)
    yield _fact(Known.NVLINKS_INACTIVE, len(states) - sum(states), device=gpu.name)
    if not any(states):
        return
    errors = nvml.nvlink_errors(handle, len(states))
    counted = tuple(f"{count:.0f} {kind}" for kind, count in errors.items() if count)
    yield _fact(Known.NVLINK_ERRORS, counted if errors else None, device=gpu.name)
    yield _fact(Known.FABRIC, nvml.fabric(handle) or FABRIC_READY, device=gpu.name)
    info = nvml.fabric_info(handle)
    if hasattr(info, "clusterUuid") and info.state == JOINED:  # recorded trees have no UUIDs
        yield _fact(Known.FABRIC_CLUSTER, str(UUID(bytes=bytes(info.clusterUuid))), device=gpu.name)
        yield _fact(Known.FABRIC_CLIQUE, info.cliqueId, device=gpu.name)
    mask = getattr(info, "healthMask", None)  # old drivers have none
    yield _fact(Known.FABRIC_HEALTH, None if mask is None else problems(int(mask)), device=gpu.name)
    mode = nvml.ask("nvmlSystemGetNvlinkBwMode")
    known = mode is not None and mode < len(_BANDWIDTH_MODES)
    yield _fact(Known.BANDWIDTH_MODE, _BANDWIDTH_MODES[mode] if known else None, device=gpu.name)


def problems(mask: int) -> tuple[str, ...]:
    """The problems in a health mask of the fabric."""
    values = ((mask >> shift) & ((1 << width) - 1) for shift, width, _ in _HEALTH)
    return tuple(named[value] for value, (_, _, named) in zip(values, _HEALTH, strict=True) if value in named)
