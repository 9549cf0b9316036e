"""What to do if no cause with a remedy is known: for slow places, wrong data, busy devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .culprits import SuspectKind


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        do: The step; empty if there is nothing to do.
        command: A command that helps, as in ``commands.at_device``; empty if there is none.
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
IDLE = Advice("end the other processes, or wait for idle devices", "wirespeed check --wait-idle 5min")
LARGER = Advice("measure with larger buffers: without --size, or with more", "wirespeed check --size 512MiB")
WRONG_PATH = Advice("do not use this path; replace the defective device or link")
ABOVE = Advice(
    "compare the capacities with data sheets; `wirespeed help limits` says how to correct them",
    "wirespeed machine",
)
ABOVE_MEMORY = Advice(
    "give --host-memory for all sockets of the host together: one NUMA node stands for the host of a log",
    "sudo dmidecode -t memory",
)
_DEVICE = Advice("look for errors of the device in the kernel log", "sudo dmesg | tail")
_UNKNOWN = Advice("run it again; if it fails again, read the lines of the log around this one")
DOUBTFUL = Advice("run it again to the end, and import its whole log, with the machine that it was run on")
#: What CUDA, NCCL, MPI, Slurm and shells say of an error -> what to do; the first that fits.
_OF_ERRORS = (
    (r"NOT_PERMITTED|operation not permitted",
     "start nvidia-imex on all nodes of the NVLink domain, and create its channels, also in containers",
     "systemctl status nvidia-imex; ls /dev/nvidia-caps-imex-channels"),
    (r"busy or unavailable|EXCLUSIVE|DEVICE_UNAVAILABLE",
     "end other processes on the GPUs; in compute mode EXCLUSIVE_PROCESS, a GPU takes one process",
     "nvidia-smi --query-gpu=index,compute_mode --format=csv; nvidia-smi"),
    (r"not yet initialized|SYSTEM_NOT_READY",
     "start nvidia-fabricmanager, in the version of the driver; read its log",
     "systemctl status nvidia-fabricmanager"),
    (r"driver (version )?is insufficient|SYSTEM_DRIVER_MISMATCH|forward compatibility",
     "install a newer driver, or a build for the CUDA version of this one", "nvidia-smi"),
    (r"no kernel image|unsupported toolchain|PTX",
     "build the program for this GPU's compute capability, or for the CUDA version of the driver",
     "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv"),
    (r"invalid device ordinal|no CUDA-capable device|NO_DEVICE",
     "start at most as many ranks on a host as it shows GPUs; check CUDA_VISIBLE_DEVICES", "nvidia-smi -L"),
    (r"CUDA_ERROR_OUT_OF_MEMORY|cuda.*out[ -]of[ -]memory|out[ -]of[ -]memory.*cuda",
     "use smaller buffers, or end other processes on the GPUs", "nvidia-smi"),
    (r"oom.kill|out[ -]of[ -]memory|\bkilled\b|signal 9",
     "the kernel or a user killed it: check the memory of the host, and limits of the job",
     "sudo dmesg | grep -i oom"),
    (r"time ?limit|CANCELLED|timed? ?out",
     "give the job more time; if it hangs, find the rank or node that does not answer",
     "wirespeed help clusters"),
    (r"NCCL WARN", "follow NCCL's warning, which names the cause", ""),
    (r"unhandled (system|cuda) error|NCCL failure",
     "run it again with NCCL_DEBUG=WARN: the line of NCCL names the call that failed", ""),
    (r"illegal (memory )?address|illegal instruction|launch failure|\bECC\b|uncorrectable|\bXid\b|"
     r"hardware stack|fallen off the bus|bus error",
     _DEVICE.do, "sudo dmesg | grep -i xid"),
    (r"validation|does not validate|wrong elements?|out of bounds|corrupt|mismatch|invalid value",
     "do not trust results of this path: verify again with another transport or algorithm and another "
     "device, and update the library", ""),
    (r"segmentation|segfault|core dumped|signal 11|signal 6|abort",
     "the program crashed: run it again with its newest version and library", ""),
)  # fmt: skip


def of_error(reason: str, *, imported: bool) -> Advice:
    """What to do about an error, by its text, which a library or a log gives.

    Args:
        reason: The text.
        imported: Whether it is of another tool's log, which may have failed for reasons that are none of the
            device's.
    """
    for pattern, do, command in _OF_ERRORS:
        if re.search(pattern, reason, re.IGNORECASE):
            return Advice(do, command)
    return _UNKNOWN if imported else _DEVICE


DIP = Advice(
    "measure this size again; if it stays slow, compare the algorithms and protocols of the library "
    "(for NCCL: NCCL_ALGO, NCCL_PROTO)"
)
NO_CAUSE = Advice("follow the steps from a low value to its cause", "wirespeed help slow")
VERIFY = Advice("measure again, and verify the data: without --no-verify, or with -c 1")
STALE = Advice("measure again, and find out why the timer or job that repeats it does not")
