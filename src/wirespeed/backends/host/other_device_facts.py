"""Facts of PCI devices that are neither NVIDIA GPUs nor NICs: NVMe drives, and GPUs of other vendors."""

from __future__ import annotations

from collections.abc import Iterator

from ...hardware.facts import Fact, Known
from ...units import GIB
from .. import pci
from ..system_files import HERE, TreePath
from .procfs import number, read

#: First digits of the classes of NVMe drives, displays and processing accelerators. Source: pci.ids.
_NVME, _DISPLAY, _ACCELERATOR = "0x0108", "0x03", "0x12"
#: Vendors of GPUs and accelerators that are not measured, and of those that are. Source: pci.ids.
_VENDORS = {"0x1002": "AMD", "0x8086": "Intel", "0x1da3": "Intel Gaudi"}
_NVIDIA = "0x10de"
#: A GPU of AMD with less memory than this is a part of the CPU: the BIOS gives it 0.5 GiB by default.
_LEAST_MEMORY = 2 * GIB
#: Model of the board by the firmware, and the file and the word that NVIDIA's systems for Jetson have.
_MODEL, _TEGRA, _JETSON = "proc/device-tree/model", "etc/nv_tegra_release", "tegra"


def facts(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of the NVMe drives and of other vendors' GPUs, and the board of a Jetson.

    Args:
        root: Folder that contains ``sys``, ``proc`` and ``etc``.
    """
    for device in (root / "sys/bus/pci/devices").glob("*"):
        kind = pci.read(device / "class")
        if kind.startswith(_NVME):
            yield from _of_drive(device)
        elif kind.startswith((_DISPLAY, _ACCELERATOR)) and (vendor := _vendor(device, kind)):
            yield Fact(Known.PCI_VENDOR, vendor, device=device.name)
    if board := read(root / _MODEL):
        yield Fact(Known.BOARD, board)
    elif (root / _TEGRA).exists() or _JETSON in (read(root / "proc/sys/kernel/osrelease") or ""):
        yield Fact(Known.BOARD, "NVIDIA Jetson")


def _of_drive(device: TreePath) -> Iterator[Fact]:
    """Yield the place and the links of an NVMe drive."""
    name = next((path.name for path in device.glob("nvme/*")), device.name)
    yield Fact(Known.DRIVE_ADDRESS, device.name, device=name)
    yield from pci.facts_of_links(device, name)


def _vendor(device: TreePath, kind: str) -> str:
    """The vendor of a GPU or accelerator that is a device of its own; empty for others.

    The consoles of servers have other vendors. GPUs in the CPU are no PCIe devices, or have little memory.
    """
    vendor = pci.read(device / "vendor")
    name = _VENDORS.get(vendor, f"vendor {vendor}" if kind.startswith(_ACCELERATOR) else "")
    memory = number(device / "mem_info_vram_total")
    is_part = len(pci.ports(device)) == 1 or (memory is not None and memory < _LEAST_MEMORY)
    return "" if vendor == _NVIDIA or is_part or (device / "physfn").exists() else name
