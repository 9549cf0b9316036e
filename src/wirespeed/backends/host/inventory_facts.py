"""Facts of what a host has: memory, NUMA nodes, NICs, slots, and the GPUs on the PCI bus."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...hardware.facts import ABSENT, EXCLUDED, OFF, ON, Fact, Known
from .. import pci
from ..tree import HERE, TreePath
from .load import cpu_list, meminfo, mounts, read

#: Messages of the kernel about a GPU that does not answer any more: Xid 79 of the driver, and its text.
_LOST = re.compile(
    r"(?:Xid \(PCI:|GPU )([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.0)?"
    r"(?:\): 79\b|: GPU has fallen off the bus)",
    re.IGNORECASE,
)
#: Files and a variable that only containers have.
_FILES = (".dockerenv", "run/.containerenv", "run/secrets/kubernetes.io", ".singularity.d")
_VARIABLE = "container"
#: Names of the driver for a GPU that it leaves alone, as the administrator wanted.
_EXCLUDED = ("GPU Excluded", "Blacklisted")
#: Place of the port above a switch, in the list of a device and the ports above it: GPU, port, port above.
_UPSTREAM = 2


def facts(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of what a host has.

    Args:
        root: Folder that contains ``sys``, ``proc`` and ``dev``.
    """
    total = meminfo(root / "proc/meminfo").get("MemTotal")
    yield Fact.of(Known.MEMORY_OF_HOST, total, "B")
    cpus = [
        cpu_list(read(node / "cpulist") or "") for node in root.glob("sys/devices/system/node/node[0-9]*")
    ]
    yield Fact.of(Known.NODES_WITH_CPUS, sum(map(bool, cpus)) or None)
    yield Fact.of(Known.NICS, tuple(nic.name for nic in root.glob("sys/class/infiniband/*")))
    yield Fact.of(Known.CONTAINER, ON if _in_container(root) else OFF)
    yield from _gpus(root)
    for slot in root.glob("sys/bus/pci/slots/*"):
        if place := read(slot / "address"):
            yield Fact.of(Known.SLOT, slot.name, device=f"{place}.0")


def _in_container(root: TreePath) -> bool:
    """Whether this process is in a container, which may have been given only some devices."""
    return (
        any((root / name).exists() for name in _FILES)
        or _VARIABLE in root.tree.environment
        or "/" in mounts(root)
    )


def _gpus(root: TreePath) -> Iterator[Fact]:
    """Yield what the PCI bus and the kernel say about NVIDIA GPUs."""
    on_bus = [entry for entry in pci.gpus(root) if not (entry / "physfn").exists()]  # not parts of a GPU
    loaded = any([(root / "proc/driver/nvidia/version").exists(), (root / "sys/module/nvidia").exists()])
    if not on_bus and not loaded:
        return
    yield Fact.of(Known.DRIVER_LOADED, ON if loaded else OFF)
    yield Fact.of(Known.GPUS_ON_BUS, tuple(device.name for device in on_bus))
    text = (root / "dev/kmsg").messages(_LOST)
    lost = [(match[1][-4:], match[2], match[3]) for match in _LOST.finditer(text or "")]
    addresses = tuple(dict.fromkeys(f"{':'.join(address)}.0".lower() for address in lost))
    yield Fact.of(Known.GPUS_LOST, None if text is None else addresses, why="/dev/kmsg cannot be read")
    for device in on_bus:
        name, driver = device.name, device / "driver"
        yield Fact.of(Known.PCI_DRIVER, driver.resolve().name if driver.exists() else "none", device=name)
        yield Fact.of(Known.PCI_MODEL, pci.read(device / "device") or None, device=name)
        node = pci.read(device / "numa_node")
        yield Fact.of(Known.NUMA_NODE, "unknown" if node.startswith("-") else node or None, device=name)
        above = pci.ports(device)[_UPSTREAM : _UPSTREAM + 2]  # the port above a switch has one above it
        yield Fact.of(Known.SWITCH, above[0].name if len(above) > 1 else "none", device=name)
        yield Fact.of(Known.DEVICE_FILE, _device_file(name, root), device=name)


def _device_file(name: str, root: TreePath) -> str | None:
    """Whether this process may use the device file of a GPU; None if it is unknown which it is."""
    information = pci.information(name, root)
    if any(information.get(key) == "Yes" for key in _EXCLUDED):
        return EXCLUDED
    minor = information.get("Device Minor", "")
    if not re.fullmatch(r"[0-9]{1,4}", minor):
        return None
    usable = (root / f"dev/nvidia{minor}").is_usable()
    return ABSENT if usable is None else ON if usable else OFF
