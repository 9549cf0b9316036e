"""What to do about slow places, wrong data, busy devices, and errors of CUDA, NCCL, MPI, Slurm and shells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..data.causes import Cause, advice_on_errors
from ..hardware.link_graph import MachineVertices
from ..hardware.topology import Machine
from .suspects import Culprit, SuspectKind

#: Domain, bus and device; nothing else of a file becomes a part of a command. Of a bridge, also the function.
_BUS_ID = re.compile(r"(?:pcie:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?")


def at_device(command: str, machine: Machine, *places: str) -> str:
    """A command with the first GPU among some places filled in.

    Args:
        command: The command, with ``{pci}`` and ``{gpu}`` where options of lspci and nvidia-smi go, and
            ``{address}`` for the name of the device in ``/sys/bus/pci/devices``.
        machine: The machine with the GPU. Its bus ID names the GPU, since programs number GPUs differently.
        *places: Vertices: devices, switches; or PCI addresses.

    Returns:
        The command for this GPU, or for all if no place is a GPU whose bus ID is known.
    """
    known = {gpu.name: gpu.bus_id for gpu in machine.gpus}
    known |= {f"{rank.index}/{rank.device}": rank.bus_id for rank in machine.ranks if rank.bus_id}
    devices = {place: MachineVertices(machine).of(place).device for place in places}
    matches = (_BUS_ID.fullmatch(known.get(place) or known.get(devices[place]) or place) for place in places)
    bus = next(filter(None, matches), None)
    if not bus:
        return command.format(pci="", gpu="", address="*")
    domain, device = f"{int(bus[1], 16):04x}", f"{bus[2]}{bus[3] or '.0'}"
    pci = device if domain == "0000" else f"{domain}:{device}"
    return command.format(pci=f" -s {pci}", gpu=f" -i {domain}:{device}", address=f"{domain}:{device}")


def commands_at(machine: Machine, place: str, *causes: Cause) -> tuple[str, ...]:
    """The commands that confirm causes at a place, each once; of several, with what they show."""
    return tuple(
        dict.fromkeys(
            at_device(cause.confirm, machine, place)
            + (f"  # {cause.shows}" if cause.shows and len(causes) > 1 else "")
            for cause in causes
        )
    )


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        do: The step; empty if there is nothing to do.
        command: A command that helps, as in ``at_device``; empty if there is none.
    """

    do: str = ""
    command: str = ""


#: Kind of a suspect -> what to do.
AT = {
    SuspectKind.NVLINK: Advice(
        "reset the GPU; if it stays slow, reseat the bridge (PCIe cards) or replace the module (SXM)",
        "nvidia-smi nvlink -s{gpu}",
    ),
    SuspectKind.PCIE: Advice(
        "check slot and riser, width and generation", "sudo lspci -vv{pci} | grep LnkSta:"
    ),
    SuspectKind.C2C: Advice("check the state of its links", "nvidia-smi c2c -s{gpu}"),
    SuspectKind.SOCKET: Advice("check the BIOS settings of the links between sockets", "numactl --hardware"),
    SuspectKind.NETWORK: Advice("check cable, switch port and error counters of the NIC", "rdma statistic"),
    SuspectKind.GPU_MEMORY: Advice("check memory clock and ECC", "nvidia-smi -q{gpu} -d CLOCK,ECC"),
    SuspectKind.HOST_MEMORY: Advice("check memory modules and NUMA settings", "sudo dmidecode -t memory"),
    SuspectKind.GPU: Advice(
        "check clocks, power and temperature", "nvidia-smi -q{gpu} -d PERFORMANCE,POWER,TEMPERATURE"
    ),
    SuspectKind.NODE: Advice(
        "check clocks and power settings of the CPU, and its memory modules", "sudo dmidecode -t memory"
    ),
    SuspectKind.PCIE_SWITCH: Advice(
        "check the switch and its links: width, generation and errors", "sudo lspci -vv{pci} | grep LnkSta:"
    ),
    SuspectKind.SWITCH: Advice("check the switch and the fabric manager", "nvidia-smi nvlink -s"),
    SuspectKind.PAIR_OF_GPUS: Advice("check peer access and the route between the two", "nvidia-smi topo -m"),
    SuspectKind.PAIR_WITH_HOST: Advice(
        "check the NUMA node of the GPU and the route between the two", "nvidia-smi topo -m"
    ),
    SuspectKind.DEVICE_MEMORY: Advice("check the state and the errors of the device", "sudo dmesg | tail"),
    SuspectKind.DEVICE: Advice("check the state and the errors of the device", "sudo dmesg | tail"),
    SuspectKind.PAIR_OF_DEVICES: Advice("check the route between the two", "sudo lspci -tv"),
    SuspectKind.PAIR_OF_NODES: Advice("check the route between the two", "numactl --hardware"),
}
#: Models whose memory is the memory of the host: it has no ECC counters of the GPU.
_SHARED_MEMORY = ("GB10", "Jetson", "Orin", "Thor")
_OF_SHARED_MEMORY = Advice(
    "check the clocks, and what else uses the memory, which CPU and GPU share",
    "nvidia-smi -q{gpu} -d CLOCK,PERFORMANCE",
)


def advice_at(culprit: Culprit, machine: Machine) -> Advice:
    """What to do about the first suspect of a culprit, with the command for its place."""
    suspect = culprit.suspects[0]
    advice, places = AT[suspect.kind], {MachineVertices(machine).of(end).device for end in suspect.ends}
    models = [gpu.model for gpu in machine.gpus if gpu.name in places]
    if suspect.kind is SuspectKind.GPU_MEMORY and any(
        set(model.split()) & {*_SHARED_MEMORY} for model in models
    ):
        advice = _OF_SHARED_MEMORY
    return replace(advice, command=at_device(advice.command, machine, *suspect.ends))


BUSY = Advice("wait for idle devices, or judge anyway with --ignore-busy", "wirespeed check --wait-idle 5min")
IDLE = Advice("end the other processes, or wait for idle devices", "wirespeed check --wait-idle 5min")
LARGER = Advice("measure with larger buffers: without --size, or with more", "wirespeed check --size 512MiB")
LARGER_LOG = Advice("measure with buffers of 256 MiB or more, and import that log")
WRONG_PATH = Advice("do not use this path; replace the defective device or link")
ABOVE = Advice(
    "compare the capacities with data sheets; `wirespeed help limits` says how to correct them",
    "wirespeed machine",
)
ABOVE_MEMORY = Advice(
    "give --host-memory for all sockets of the host together: one NUMA node stands for the host of a log",
    "sudo dmidecode -t memory",
)
#: What to do about values that are faster than the machine that was assumed.
FASTER = Advice("give the machine that the log is of: --machine NAME-N or FILE", "wirespeed help import")
FASTER_NETWORK = Advice("give the NICs of each host of the log (--nics, such as 8x400G)")
#: What to do about copies between GPUs that are faster than any link of these GPUs.
IMPOSSIBLE = Advice("do not use peer access between these GPUs until its data is verified", "wirespeed p2p")
DOUBTFUL = Advice("run it again to the end, and import its whole log, with the machine that it was run on")
DIP = Advice(
    "measure this size again; if it stays slow, compare the algorithms and protocols of the library "
    "(for NCCL: NCCL_ALGO, NCCL_PROTO)"
)
OTHER_SETTINGS = Advice("measure with the settings of the faster run, and without those of the slower one")
NO_CAUSE = Advice("follow the steps from a low value to its cause", "wirespeed help slow")
VERIFY = Advice("measure again, and verify the data: without --no-verify, or with -c 1")
STALE = Advice("measure again, and find out why the timer or job that repeats it does not")


_DEVICE = Advice("look for errors of the device in the kernel log", "sudo dmesg | tail")
_UNKNOWN = Advice("run it again; if it fails again, read the lines of the log around this one")


def of_error(reason: str, *, imported: bool) -> Advice:
    """What to do about an error, by its text, which a library or a log gives.

    Args:
        reason: The text.
        imported: Whether it is of another tool's log, which may have failed for reasons that are none of the
            device's.
    """
    for known in advice_on_errors():
        if re.search(known.pattern, reason, re.IGNORECASE):
            return Advice(known.remedy, known.confirm)
    return _UNKNOWN if imported else _DEVICE
