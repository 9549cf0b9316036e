"""Facts of a host from ``/sys``, ``/proc`` and the environment, of this machine or of a recorded tree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ...facts import OFF, ON, UNLIMITED, Fact, Known
from ...units import MIB
from ..tree import HERE, TreePath
from .procfs import FIRST_CPU, allowed, control_groups, cpu_list, meminfo, mounts, number, read, whole

#: Kernel options that change routes and translation of PCIe traffic.
_OPTIONS = re.compile(
    r"(?<!\S)(?:iommu|intel_iommu|amd_iommu|pci|disable_acs_redir|config_acs|pcie_aspm)(?:[.=]\S*)?(?!\S)"
)
#: Parts of files: what is read of them is also what is recorded, and the rest may be private.
_MEMLOCK = re.compile(r"^Max locked memory\s.*$", re.MULTILINE)
_GROUP = re.compile(r"^\d+:(?:(?:[\w=,-]+,)?cpu(?:,[\w=,-]+)?)?:.*$", re.MULTILINE)
_UNREADABLE = "the kernel does not show it here"


def facts(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of a host.

    Args:
        root: Folder that contains ``sys`` and ``proc``.
    """
    yield from _limits(root)
    yield from _cpus(root)
    yield from _memory(root)
    yield from _translation(root)
    yield from _load(root)


def _fact(name: str, value: float | str | tuple[str, ...] | None, unit: str = "", device: str = "") -> Fact:
    return Fact(name, value, unit, device, "" if value is not None else _UNREADABLE)


def _limits(root: TreePath) -> Iterator[Fact]:
    yield _fact(Known.SHM, _shared_memory_bytes(root), "B")
    limit = (read(root / "proc/self/limits", _MEMLOCK) or "").split()[3:4]
    unlimited = UNLIMITED if limit == [UNLIMITED] else None
    yield _fact(Known.MEMLOCK, unlimited or whole(limit[0] if limit else None), "B")
    usable_here = allowed(root)
    system = root / "sys/devices/system"
    for name, kind, there, online in (
        (Known.CPUS, "Cpus", Known.CPUS_ONLINE, "cpu/online"),
        (Known.NODES, "Mems", Known.NODES_ONLINE, "node/online"),
    ):
        all_of_them = set(cpu_list(read(system / online) or ""))
        usable = [index for index in usable_here.get(kind, ()) if index in all_of_them or not all_of_them]
        yield _fact(name, len(usable) or None)
        yield _fact(there, len(all_of_them) or None)
    yield _fact(Known.CPU_QUOTA, _quota(root))


def _shared_memory_bytes(root: TreePath) -> float | None:
    """The size of /dev/shm; without an option, half of the memory (tmpfs(5)).

    From the table of mounts, which a recorded tree has too.
    """
    line = mounts(root).get("/dev/shm")
    if line is None:
        return None
    option = re.search(r"[\s,]size=(\d{1,15})([kmg%]?)", line)
    total = meminfo(root / "proc/meminfo").get("MemTotal")
    if option and option[2] != "%":
        return float(int(option[1]) * 1024 ** "?kmg".index(option[2] or "?"))
    share = int(option[1]) / 100 if option else 0.5
    return total * share if total else None


def _quota(root: TreePath) -> float | str | None:
    """How many CPUs the control groups around this process let it use at a time: the lowest of their quotas.

    With cgroups of both versions, the controller belongs to version 1 if that lists it.
    """
    groups = list(control_groups(root, "cpu", _GROUP))
    first = min((version for _, version in groups), default=None)
    quotas, is_known = list[float](), first == 2  # the root of version 2 has no file
    for place, version in groups:
        if version != first:
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        text = " ".join(read(place / name) or "" for name in names)
        is_known |= bool(text.strip())
        quota, period = (*map(whole, text.split()), None, None)[:2]
        if quota is not None and period:
            quotas.append(quota / period)
    return min(quotas, default=UNLIMITED if is_known else None)


def _cpus(root: TreePath) -> Iterator[Fact]:
    """Yield how CPUs are set up."""
    folder = root / "sys/devices/system/cpu"
    governors = {text for path in folder.glob("cpufreq/policy*/scaling_governor") if (text := read(path))}
    yield _fact(Known.GOVERNOR, tuple(sorted(governors)) or None)
    balancing = read(root / "proc/sys/kernel/numa_balancing")
    yield _fact(Known.NUMA_BALANCING, None if balancing is None else OFF if balancing == "0" else ON)
    sockets: dict[str, set[str]] = {}
    for node in root.glob("sys/devices/system/node/node[0-9]*"):
        first = (*cpu_list(read(node / "cpulist") or ""), None)[0]
        package = read(folder / f"cpu{first}/topology/physical_package_id") if first is not None else None
        if package is not None:
            sockets.setdefault(package, set()).add(node.name)
    yield _fact(Known.NODES_PER_SOCKET, max(map(len, sockets.values()), default=None))
    info = read(root / "proc/cpuinfo", FIRST_CPU) or ""
    if info:
        inside = bool(re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE))
        names = [read(root / f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
        yield _fact(Known.HYPERVISOR, (" ".join(filter(None, names)) or ON) if inside else OFF)


def _memory(root: TreePath) -> Iterator[Fact]:
    """Yield the memory of each memory controller (EDAC), which shows unequally filled channels."""
    controllers = sorted(root.glob("sys/devices/system/edac/mc/mc[0-9]*"))
    if not controllers:
        yield _fact(Known.DIMM_BYTES, None, "B")
    for controller in controllers:
        size = number(controller / "size_mb")
        yield _fact(Known.DIMM_BYTES, None if size is None else size * MIB, "B", controller.name)
        yield _fact(Known.DIMM_ERRORS, number(controller / "ce_count"), device=controller.name)


def _translation(root: TreePath) -> Iterator[Fact]:
    """Yield whether an IOMMU translates addresses, and the kernel options that decide about routes."""
    types = {text for path in root.glob("sys/kernel/iommu_groups/*/type") if (text := read(path))}
    present = any(root.glob("sys/class/iommu/*"))
    yield _fact(Known.IOMMU, tuple(sorted(types)) if types or present else (OFF,))
    options = (root / "proc/cmdline").read(_OPTIONS)
    yield _fact(Known.KERNEL_OPTIONS, None if options is None else tuple(options.split()))
    yield _fact(Known.PEERMEM, ON if (root / "sys/module/nvidia_peermem").exists() else OFF)


def _load(root: TreePath) -> Iterator[Fact]:
    try:
        yield _fact(Known.LOAD, float((read(root / "proc/loadavg") or "").split()[0]))
    except (ValueError, IndexError):
        yield _fact(Known.LOAD, None)
    stalled = re.search(r"^some avg10=([\d.]+)", read(root / "proc/pressure/cpu") or "", re.MULTILINE)
    value = float(stalled[1]) if stalled and stalled[1].count(".") <= 1 else math.nan
    yield _fact(Known.PRESSURE, None if math.isnan(value) else value, "%")
