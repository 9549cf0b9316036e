"""What to do if no cause with a remedy is known: for slow places, wrong data, busy devices."""

from __future__ import annotations

from dataclasses import dataclass

from .culprits import SuspectKind


@dataclass(frozen=True)
class Advice:
    """What to do.

    Parameters
    ----------
    do : str
        The step; empty if there is nothing to do.
    command : str
        A command that helps, as in ``commands.at_device``; empty if there is none.
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
BUSY = Advice("wait for idle devices, or judge anyway with --ignore-busy", "wirespeed check --wait-idle 5min")
WRONG_PATH = Advice("do not use this path; replace the defective device or link")
ABOVE = Advice(
    "compare the capacities with data sheets; `wirespeed help limits` says how to correct them",
    "wirespeed machine",
)
DIP = Advice(
    "measure this size again; if it stays slow, compare the algorithms and protocols of the library "
    "(for NCCL: NCCL_ALGO, NCCL_PROTO)"
)
FAILED = Advice("look for errors of the device in the kernel log", "sudo dmesg | tail")
NO_CAUSE = Advice("follow the steps from a low value to its cause", "wirespeed help slow")
VERIFY = Advice("measure again, and verify the data: without --no-verify, or with -c 1")
STALE = Advice("measure again, and find out why the timer or job that repeats it does not")
