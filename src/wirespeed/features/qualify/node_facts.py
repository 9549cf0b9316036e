"""What the nodes of a job are, and which of them are not like most."""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import msgspec

from ...backends.host import nic_facts
from ...backends.system_files import HERE, TreePath
from ...hardware.facts import Fact, Known
from ...tables import Amount, Whole
from ...thresholds.clusters import CLOCKS_APART_S
from ...units import format_age, many

#: Requests of ioctl for the address of an interface and the mask of its network (netdevice(7)), and where
#: they are in the answer.
_SIOCGIFADDR, _SIOCGIFNETMASK, _ADDRESS = 0x8915, 0x891B, slice(20, 24)
_MBIT_BYTES = 1e6 / 8
#: Version of NCCL where no wheel is installed.
NO_NCCL = "none"
#: Wheels of NCCL.
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
#: Most differences that are reported.
_MOST = 20


class NodeFacts(msgspec.Struct, array_like=True, frozen=True):
    """A node.

    Attributes:
        gpus: Number and models of its GPUs, e.g. ``8 x NVIDIA H100``.
        driver, nccl, cpu, kernel: Version of the driver and of NCCL, model of the CPUs, version of the
            kernel.
        interface: Network interface with the address by which rank 0 reaches it; empty if unknown.
        limit: Speed of that interface in bytes per second; 0 if unknown.
        rdma: Names of its RDMA devices whose link is up.
        clock: Its time of day, in s since 1970.
        boot: Identifier of the boot of its kernel, which containers and namespaces of one machine share; or
            empty.
        nics: Facts of what can carry its data, as far as they limit its rate.
        lost: How often the interface had lost its link before.
    """

    gpus: str
    driver: str
    nccl: str
    cpu: str
    kernel: str
    interface: str
    limit: Amount
    rdma: tuple[str, ...]
    clock: Amount
    boot: str = ""
    nics: tuple[Fact, ...] = ()
    lost: Whole = 0


#: Facts that limit the rate of a NIC or interface.
_OF_LIMITS = (
    Known.PORT_STATE, Known.PORT_RATE, Known.NIC_CARD, Known.NIC_ADDRESS, Known.PCIE_WIDTH_POSSIBLE,
    Known.PCIE_GENERATION_POSSIBLE, Known.INTERFACE_SPEED,
)  # fmt: skip


def node_facts(address: str, root: TreePath = HERE) -> NodeFacts:
    """The facts of this node.

    Args:
        address: IPv4 address by which rank 0 reaches it.
        root: Folder that contains ``sys``.
    """
    from ...backends import describe

    machine = describe(None)
    models = Counter(gpu.model for gpu in machine.gpus)
    interface = interface_of(address)
    nics = [*nic_facts.facts(root), *(nic_facts.of_interface(interface, root) if interface else ())]
    return NodeFacts(
        ", ".join(f"{count} x {model}" for model, count in sorted(models.items())), machine.driver,
        _nccl() if machine.gpus else "", machine.cpu, machine.kernel, interface,
        _speed(interface, root) if interface else 0.0,
        tuple(port.label for port in nic_facts.ports(root) if port.is_active), time.time(),
        ((root / "proc/sys/kernel/random/boot_id").read() or "").strip(),
        tuple(fact.checked() for fact in nics if fact.name in _OF_LIMITS),
        nic_facts.lost_links(interface, root) if interface else 0,
    )  # fmt: skip


def _speed(interface: str, root: TreePath) -> float:
    """Speed of a network interface in bytes per second; 0 if unknown."""
    text = ((root / "sys/class/net" / interface / "speed").read() or "").strip()
    return int(text) * _MBIT_BYTES if text.isdecimal() else 0.0


def differences(nodes: Mapping[str, NodeFacts], asked_s: float, clock: float) -> list[str]:
    """What distinguishes nodes from most others, a line each.

    Args:
        nodes: Host -> its facts.
        asked_s: How long it took to ask all, in s.
        clock: The asking process's time of day then, in s since 1970.
    """
    lines = []
    for name in ("GPUs", "driver", "NCCL", "CPUs", "kernel", "network"):
        values = {host: _shown(facts)[name] for host, facts in nodes.items()}
        usual, count = Counter(values.values()).most_common(1)[0] if values else ("", 0)
        lines += [
            f"{host} differs: {name} {found or 'unknown'}; {count} of {many(len(nodes), 'node')}: "
            f"{usual or 'unknown'}"
            for host, found in values.items()
            if found != usual
        ]
    for host, facts in nodes.items():
        if abs(apart := facts.clock - clock) > asked_s + CLOCKS_APART_S:
            by = format_age(round(abs(apart)))
            lines.append(f"{host}'s clock is {by} {'ahead' if apart > 0 else 'behind'}")
    if len(lines) > _MOST:
        lines = [*lines[:_MOST], f"and {many(len(lines) - _MOST, 'other difference')} between nodes"]
    return lines


def _shown(node: NodeFacts) -> dict[str, str]:
    """The settings that are compared, by name."""
    return {
        "GPUs": node.gpus or "none", "driver": node.driver, "NCCL": node.nccl, "CPUs": node.cpu,
        "kernel": node.kernel, "network": f"{node.limit * 8 / 1e9:g} Gbit/s" if node.limit else "",
    }  # fmt: skip


def interface_of(address: str) -> str:
    """The interface that has an IPv4 address; empty if none has."""
    return next((name for name, own in addresses().items() if own.partition("/")[0] == address), "")


def addresses() -> dict[str, str]:
    """Network interface -> its first IPv4 address with the length of its prefix: ``10.0.0.1/24``."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                own, mask = (
                    fcntl.ioctl(sock, request, struct.pack("256s", name.encode()[:15]))[_ADDRESS]
                    for request in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found[name] = f"{socket.inet_ntoa(own)}/{int.from_bytes(mask).bit_count()}"
    return found


def route_interface(address: str) -> str:
    """The interface by which this node sends to another one; empty if unknown."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, 9))  # nothing is sent
        return interface_of(sock.getsockname()[0])
    return ""


#: Option of a socket for the MTU of its route (ip(7)).
_IP_MTU = 14


def route_mtu(address: str) -> int:
    """The MTU of the route to another node, as far as this one knows it, in bytes; 0 if unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))  # nothing is sent
            return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    except OSError:
        return 0


def _nccl() -> str:
    """The version of NCCL's wheel; `NO_NCCL` without one."""
    for wheel in _NCCL:
        with suppress(PackageNotFoundError):
            return version(wheel)
    return NO_NCCL
