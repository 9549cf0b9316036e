"""What to do about errors, by what CUDA, NCCL, MPI, Slurm and shells say of them."""

from __future__ import annotations

import re

from .verdict import Advice

_DEVICE = Advice("look for errors of the device in the kernel log", "sudo dmesg | tail")
_UNKNOWN = Advice("run it again; if it fails again, read the lines of the log around this one")
#: What CUDA, NCCL, MPI, Slurm and shells say of an error -> what to do; the first that fits.
_OF_ERRORS = (
    (r"NOT_PERMITTED|operation not permitted",
     "start nvidia-imex on all nodes of the NVLink domain, and create its channels, also in containers",
     "systemctl status nvidia-imex; ls /dev/nvidia-caps-imex-channels"),
    (r"busy or unavailable|EXCLUSIVE|DEVICE_UNAVAILABLE",
     "end other processes on the GPUs; in compute mode EXCLUSIVE_PROCESS, a GPU takes one process",
     "nvidia-smi --query-gpu=index,compute_mode --format=csv; nvidia-smi"),
    (r"not yet initialized|SYSTEM_?NOT_?READY|\b(error|failure|code|returned)\W{0,3}802\b",
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
    # NCCL's issues 976, 1338, 1488 and nccl-tests' issue 276.
    (r"\bnvls\.cc|NVLink SHARP|NVLS.*multicast",
     "stop all programs, then reset the GPUs, or restart the host: needed after the fabric manager was "
     "restarted; to confirm: NCCL_NVLS_ENABLE=0",
     "systemctl status nvidia-fabricmanager; sudo nvidia-smi -r"),
    (r"insufficient.resources",
     "the NVLink fabric gave the GPU no partition: restart its manager (NMX-C on NVL72), then reset the GPUs",
     "nvidia-smi -q | grep -A8 Fabric"),
    # Local protection error, NCCL's issues 214, 523 and 928; retries exceeded, issues 902 and 1664.
    (r"vendor err 81\b|completion .*\b(error |status=)4\b",
     "disable ACS on the PCIe bridges between GPUs and NICs: it breaks GPUDirect RDMA; to confirm: "
     "NCCL_NET_GDR_LEVEL=0", "sudo lspci -vvv | grep ACSCtl"),
    (r"vendor err 129\b|completion .*\b(error |status=)12\b",
     "test the NICs of this pair: link, GID, routes between the rails, and losses of packets",
     "ib_write_bw; rdma link; rdma statistic"),
    (r"No route to host|Connection (refused|timed out)|Network is unreachable|socketStartConnect",
     "let NCCL use the interface over which the hosts reach each other (NCCL_SOCKET_IFNAME), and check the "
     "firewall between them", "ip -br address"),
    (r"oom.kill|out[ -]of[ -]memory|\bkilled\b|signal 9",
     "the kernel or a user killed it: check the memory of the host, and limits of the job",
     "sudo dmesg | grep -i oom"),
    (r"time ?limit|CANCELLED|timed? ?out",
     "give the job more time; if it hangs, find the rank or node that does not answer",
     "wirespeed help clusters"),
    (r"NCCL WARN", "follow NCCL's warning, which names the cause", ""),
    (r"unhandled (system|cuda) error|NCCL failure",
     "run it again with NCCL_DEBUG=WARN: the line of NCCL names the call that failed", ""),
    (r"illegal (memory )?(address|access)|illegal instruction|launch failure|\bECC\b|uncorrectable|\bXid\b|"
     r"hardware stack|fallen off the bus|bus error",
     _DEVICE.do, "sudo dmesg | grep -i xid"),
    (r"validation|does not validate|wrong (elements?|data)|out of bounds|corrupt|mismatch|invalid value",
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
