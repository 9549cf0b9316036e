"""Commands that name the device that they are about."""

from __future__ import annotations

import re

from ..topology import Machine
from ..vertices import MachineVertices

#: Domain, bus and device; nothing else of a file becomes a part of a command.
_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.0)?")


def at_device(command: str, machine: Machine, *places: str) -> str:
    """Return a command with the first GPU among some places filled in.

    Args:
        command: The command, with ``{pci}`` and ``{gpu}`` where options of lspci and nvidia-smi go, and
            ``{address}`` for the name of the device in ``/sys/bus/pci/devices``.
        machine: The machine with the GPU. Its bus ID names the GPU, since programs number GPUs differently.
        *places: Vertices: devices, switches.

    Returns:
        The command for this GPU, or for all if no place is a GPU whose bus ID is known.
    """
    known = {gpu.name: gpu.bus_id for gpu in machine.gpus}
    known |= {f"{rank.index}/{rank.device}": rank.bus_id for rank in machine.ranks if rank.bus_id}
    devices = {place: MachineVertices(machine).of(place).device for place in places}
    matches = (_BUS_ID.fullmatch(known.get(place) or known.get(devices[place]) or "") for place in places)
    bus = next(filter(None, matches), None)
    if not bus:
        return command.format(pci="", gpu="", address="*")
    domain, device = f"{int(bus[1], 16):04x}", f"{bus[2]}.0"
    pci = device if domain == "0000" else f"{domain}:{device}"
    return command.format(pci=f" -s {pci}", gpu=f" -i {domain}:{device}", address=f"{domain}:{device}")
