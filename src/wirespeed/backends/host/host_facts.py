"""Facts of a host, read from ``/sys``, ``/proc`` and the environment, of this machine or of a recorded tree;
and its inventory: memory, NUMA nodes, NICs, slots, and the GPUs on the PCI bus.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

from ...hardware.facts import ABSENT, EXCLUDED, OFF, ON, UNLIMITED, WSL, Fact, Known
from ...units import MIB
from .. import pci
from ..system_files import HERE, TreePath
from . import procfs
from .host_discovery import cpus_of_nodes, huge_page_mode, is_virtual, is_wsl, socket_of

#: Kernel options that change routes and translation of PCIe traffic.
_OPTIONS = re.compile(
    r"(?<!\S)(?:iommu|intel_iommu|amd_iommu|pci|disable_acs_redir|config_acs|pcie_aspm)(?:[.=]\S*)?(?!\S)"
)
#: Parts of files: what is read of them is also what is recorded, and the rest may be private.
_MEMLOCK = re.compile(r"^Max locked memory\s.*$", re.MULTILINE)
_GROUP = re.compile(r"^\d+:(?:(?:[\w=,-]+,)?(?:cpu|memory)(?:,[\w=,-]+)?)?:.*$", re.MULTILINE)


def facts(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of a host.

    Args:
        root: Folder that contains ``sys`` and ``proc``.
    """
    yield from _limits(root)
    if root is HERE and (
        text := procfs.read(root / "etc/machine-id")
    ):  # private, and never recorded: machine-id(5)
        yield Fact.of(Known.MACHINE_ID, hashlib.sha256(f"wirespeed {text}".encode()).hexdigest()[:16])
    yield from _cpus(root)
    yield from _memory(root)
    yield from _translation(root)
    yield from _load(root)


def _limits(root: TreePath) -> Iterator[Fact]:
    yield Fact.of(Known.SHM, _shared_memory_bytes(root), "B")
    limit = (procfs.read(root / "proc/self/limits", _MEMLOCK) or "").split()[3:4]
    unlimited = UNLIMITED if limit == [UNLIMITED] else None
    yield Fact.of(Known.MEMLOCK, unlimited or procfs.whole(limit[0] if limit else None), "B")
    usable_here = procfs.allowed(root)
    system = root / "sys/devices/system"
    for name, kind, there, online in (
        (Known.CPUS, "Cpus", Known.CPUS_ONLINE, "cpu/online"),
        (Known.NODES, "Mems", Known.NODES_ONLINE, "node/online"),
    ):
        all_of_them = set(procfs.cpu_list(procfs.read(system / online) or ""))
        usable = [index for index in usable_here.get(kind, ()) if index in all_of_them or not all_of_them]
        yield Fact.of(name, len(usable) or None)
        yield Fact.of(there, len(all_of_them) or None)
    yield Fact.of(Known.CPU_QUOTA, _quota(root))
    rooms = [
        room
        for place, version in procfs.control_groups(root, "memory", _GROUP)
        if (room := procfs.number(place / ("memory.limit_in_bytes" if version == 1 else "memory.max")))
        and room < procfs.NO_LIMIT
    ]
    yield Fact.of(Known.MEMORY_LIMIT, min(rooms) if rooms else UNLIMITED, "B")


def _shared_memory_bytes(root: TreePath) -> float | None:
    """The size of /dev/shm; without an option, half of the memory (tmpfs(5)).

    From the table of mounts, which a recorded tree has too.
    """
    line = procfs.mounts(root).get("/dev/shm")
    if line is None:
        return None
    option = re.search(r"[\s,]size=(\d{1,15})([kmg%]?)", line)
    total = procfs.meminfo(root / "proc/meminfo").get("MemTotal")
    if option and option[2] != "%":
        return float(int(option[1]) * 1024 ** "?kmg".index(option[2] or "?"))
    share = int(option[1]) / 100 if option else 0.5
    return total * share if total else None


def _quota(root: TreePath) -> float | str | None:
    """How many CPUs the control groups around this process let it use at a time: the lowest of their quotas.

    With cgroups of both versions, the controller belongs to version 1 if that lists it.
    """
    groups = list(procfs.control_groups(root, "cpu", _GROUP))
    first = min((version for _, version in groups), default=None)
    quotas, is_known = list[float](), first == 2  # the root of version 2 has no file
    for place, version in groups:
        if version != first:
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        text = " ".join(procfs.read(place / name) or "" for name in names)
        is_known |= bool(text.strip())
        quota, period = (*map(procfs.whole, text.split()), None, None)[:2]
        if quota is not None and period:
            quotas.append(quota / period)
    return min(quotas, default=UNLIMITED if is_known else None)


def _cpus(root: TreePath) -> Iterator[Fact]:
    """Yield how CPUs are set up."""
    folder = root / "sys/devices/system/cpu"
    governors = {
        text for path in folder.glob("cpufreq/policy*/scaling_governor") if (text := procfs.read(path))
    }
    yield Fact.of(Known.GOVERNOR, tuple(sorted(governors)) or None)
    balancing = procfs.read(root / "proc/sys/kernel/numa_balancing")
    yield Fact.of(Known.NUMA_BALANCING, None if balancing is None else OFF if balancing == "0" else ON)
    if mode := huge_page_mode(root):
        yield Fact(Known.HUGE_PAGES, mode)
    sockets: dict[str, set[str]] = {}
    for node, cpus in cpus_of_nodes(root).items():
        if cpus and (package := socket_of(root, cpus[0])) is not None:
            sockets.setdefault(package, set()).add(node)
    yield Fact.of(Known.NODES_PER_SOCKET, max(map(len, sockets.values()), default=None))
    if procfs.first_cpu(root):
        names = [procfs.read(root / f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
        name = WSL if is_wsl(root) else " ".join(filter(None, names)) or ON
        yield Fact.of(Known.HYPERVISOR, name if is_virtual(root) or is_wsl(root) else OFF)


def _memory(root: TreePath) -> Iterator[Fact]:
    """Yield the memory of each memory controller (EDAC), which shows unequally filled channels."""
    controllers = sorted(root.glob("sys/devices/system/edac/mc/mc[0-9]*"))
    if not controllers:
        yield Fact.of(Known.DIMM_BYTES, None, "B")
    for controller in controllers:
        size = procfs.number(controller / "size_mb")
        yield Fact.of(Known.DIMM_BYTES, None if size is None else size * MIB, "B", controller.name)
        yield Fact.of(Known.DIMM_ERRORS, procfs.number(controller / "ce_count"), device=controller.name)


def _translation(root: TreePath) -> Iterator[Fact]:
    """Yield whether an IOMMU translates addresses, and the kernel options that decide about routes."""
    types = {text for path in root.glob("sys/kernel/iommu_groups/*/type") if (text := procfs.read(path))}
    present = any(root.glob("sys/class/iommu/*"))
    yield Fact.of(Known.IOMMU, tuple(sorted(types)) if types or present else (OFF,))
    options = (root / "proc/cmdline").read(_OPTIONS)
    yield Fact.of(Known.KERNEL_OPTIONS, None if options is None else tuple(options.split()))
    yield Fact.of(Known.PEERMEM, ON if (root / "sys/module/nvidia_peermem").exists() else OFF)


def _load(root: TreePath) -> Iterator[Fact]:
    try:
        yield Fact.of(Known.LOAD, float((procfs.read(root / "proc/loadavg") or "").split()[0]))
    except (ValueError, IndexError):
        yield Fact.of(Known.LOAD, None)
    stalled = re.search(r"^some avg10=([\d.]+)", procfs.read(root / "proc/pressure/cpu") or "", re.MULTILINE)
    value = float(stalled[1]) if stalled and stalled[1].count(".") <= 1 else math.nan
    yield Fact.of(Known.PRESSURE, None if math.isnan(value) else value, "%")


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


def inventory(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of what a host has.

    Args:
        root: Folder that contains ``sys``, ``proc`` and ``dev``.
    """
    total = procfs.meminfo(root / "proc/meminfo").get("MemTotal")
    yield Fact.of(Known.MEMORY_OF_HOST, total, "B")
    yield Fact.of(Known.NODES_WITH_CPUS, sum(map(bool, cpus_of_nodes(root).values())) or None)
    yield Fact.of(Known.NICS, tuple(nic.name for nic in root.glob("sys/class/infiniband/*")))
    yield Fact.of(Known.CONTAINER, ON if _in_container(root) else OFF)
    yield from _gpus(root)
    for slot in root.glob("sys/bus/pci/slots/*"):
        if place := procfs.read(slot / "address"):
            yield Fact.of(Known.SLOT, slot.name, device=f"{place}.0")


def _in_container(root: TreePath) -> bool:
    """Whether this process is in a container, which may have been given only some devices."""
    return (
        any((root / name).exists() for name in _FILES)
        or _VARIABLE in root.tree.environment
        or "/" in procfs.mounts(root)
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
