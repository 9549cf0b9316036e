"""Facts of RDMA devices (InfiniBand, RoCE, EFA): PCIe links, ports, errors, and what NCCL needs for them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...hardware.facts import OFF, ON, Fact, Known
from ...tables import Quantity
from .. import pci
from ..system_files import HERE, TreePath
from .procfs import number, read

#: Counters of errors after which data is sent again, below a port. Source: sysfs-class-infiniband in the ABI
#: documentation of Linux; for hw_counters, the drivers.
_LINK_ERRORS = tuple(
    f"counters/{name}"
    for name in (
        "symbol_error", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors",
        "port_xmit_discards",
    )
)  # fmt: skip
#: Driver -> its counters. EFA has no counters of the link.
_ERRORS = {
    "mlx5_core": (
        *_LINK_ERRORS,
        *(f"hw_counters/{name}" for name in (
            "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
        )),
    ),
    "efa": tuple(f"hw_counters/{name}" for name in ("retrans_pkts", "retrans_timeout_events", "rx_drops")),
}  # fmt: skip
_LOST, _CONGESTION = "counters/link_downed", "hw_counters/np_cnp_sent"
#: A GID that is not in use. Others contain addresses, which are neither read nor recorded.
_EMPTY_GID = re.compile(r"^0000(?::0000){7}$", re.MULTILINE)
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec")
#: Names of plug-ins in the cache of the loader, which is a binary file.
_CACHED = re.compile(r"/[^\0\n]*/libnccl-net[^\0\n/]*")
_PLUGIN = "libnccl-net*.so*"
#: Folders of plug-ins that the loader does not search by itself.
_FOLDERS = ("opt/amazon/ofi-nccl", "opt/aws-ofi-nccl")
#: Bytes of a unit of port_xmit_data (sysfs-class-infiniband), and of 10^9 bits.
_WORD_BYTES, _GBIT_BYTES = 4, 1e9 / 8
_UP = 1  #: bit of the flags of a network interface that is enabled (IFF_UP)


def facts(root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the facts of the RDMA devices of a host; none if it has none.

    Args:
        root: Folder that contains ``sys``, ``dev``, ``etc`` and ``opt``.
    """
    nics = root.glob("sys/class/infiniband/*")
    for nic in nics:
        yield from _of_nic(nic)
    if nics:
        yield Fact(Known.RDMA_FILES, ON if root.glob("dev/infiniband/uverbs*") else OFF)
        yield from _plugins(root)


def counters(root: TreePath = HERE) -> Iterator[Quantity]:
    """Yield how many errors each port has counted, of all kinds."""
    for nic in root.glob("sys/class/infiniband/*"):
        name = _driver(nic)
        for port, label in _ports(nic):
            if known := _errors(port, name):
                yield Quantity(label, "errors of the port", float(sum(known.values())), counter=True)


@dataclass(frozen=True)
class NicPort:
    """A port of an RDMA device.

    Attributes:
        label: Its name: the name of the device, with the number of the port if it has several.
        network: ``InfiniBand``, ``RoCE`` or ``EFA``.
        is_active: Whether its link is up; true if its state cannot be read.
        rate: Speed in bytes per second; 0 if unknown.
        sent: Bytes that it has sent by RDMA, or by all protocols on InfiniBand; None if they are not counted.
    """

    label: str
    network: str
    is_active: bool
    rate: float
    sent: int | None


def ports(root: TreePath = HERE) -> tuple[NicPort, ...]:
    """The ports of the RDMA devices of a host; one without a readable port counts as one."""
    found = []
    for nic in root.glob("sys/class/infiniband/*"):
        driver = _driver(nic)
        for port, label in _ports(nic) or [(nic / "ports/1", nic.name)]:
            state = (read(port / "state") or "").partition(": ")[2]
            layer = read(port / "link_layer")
            rate = _RATE.match(read(port / "rate") or "")
            words, octets = number(port / "counters/port_xmit_data"), number(port / "hw_counters/tx_bytes")
            sent = octets if driver == "efa" else words * _WORD_BYTES if words is not None else None
            network = "EFA" if driver == "efa" else "RoCE" if layer == "Ethernet" else "InfiniBand"
            speed = float(rate[1]) * _GBIT_BYTES if rate else 0.0
            found.append(NicPort(label, network, state in ("", "ACTIVE"), speed, sent))
    return tuple(found)


def _driver(nic: TreePath) -> str:
    """The name of the driver of a NIC; empty if there is none."""
    driver = (nic / "device").resolve() / "driver"
    return driver.resolve().name if driver.exists() else ""


def _ports(nic: TreePath) -> list[tuple[TreePath, str]]:
    """The ports of a NIC and what they are called."""
    ports = nic.glob("ports/*")
    return [(port, nic.name if len(ports) == 1 else f"{nic.name}:{port.name}") for port in ports]


def _errors(port: TreePath, driver: str) -> dict[str, int]:
    """The counters of errors of a port that can be read."""
    counts = {path.rpartition("/")[2]: number(port / path) for path in _ERRORS.get(driver, _LINK_ERRORS)}
    return {name: count for name, count in counts.items() if count is not None}


def _of_nic(nic: TreePath) -> Iterator[Fact]:
    device = (nic / "device").resolve()
    name = _driver(nic)
    yield Fact.of(Known.NIC_DRIVER, name or None, device=nic.name)
    if pci.ADDRESS.fullmatch(device.name):
        yield Fact.of(Known.NIC_ADDRESS, device.name, device=nic.name)
    # It contains a MAC address, so that it is hashed, and never recorded.
    if nic.tree.answers is None and (guid := read(nic / "sys_image_guid")):
        card = hashlib.sha256(f"wirespeed {guid}".encode()).hexdigest()[:8]
        yield Fact(Known.NIC_CARD, card, device=nic.name)
    if firmware := read(nic / "fw_ver"):
        yield Fact(Known.NIC_FIRMWARE, firmware, device=nic.name)
    if (node := read(device / "numa_node")) is not None:
        yield Fact(Known.NUMA_NODE, node if node.isdecimal() else "unknown", device=nic.name)
    if model := read(device / "device"):
        yield Fact(Known.PCI_MODEL, model, device=nic.name)
    for fact in (*pci.facts_of_links(device, nic.name), *pci.facts_of_bridges(device, nic.name)):
        if fact.value:  # a virtual function may have none
            yield fact
    for port, label in _ports(nic):
        yield from _of_port(port, label, device, name)


def _of_port(port: TreePath, label: str, device: TreePath, driver: str) -> Iterator[Fact]:
    state, physical = (
        (read(port / file) or "").partition(": ")[2]
        for file in ("state", "phys_state")  # "4: ACTIVE"
    )
    yield Fact.of(Known.PORT_STATE, state or None, device=label)
    yield Fact.of(Known.PORT_PHYSICAL, physical or None, device=label)
    if state not in ("", "ACTIVE"):
        yield from _interface(device, label)
    yield Fact.of(Known.PORT_LAYER, read(port / "link_layer"), device=label)
    rate = _RATE.match(read(port / "rate") or "")
    yield Fact.of(Known.PORT_RATE, float(rate[1]) if rate else None, "Gbit/s", label)
    if sizes := [size for path in device.glob("net/*/mtu") if (size := number(path))]:
        yield Fact(Known.PORT_MTU, min(sizes), "B", label)
    types = {path.name: kind for path in port.glob("gid_attrs/types/*") if (kind := read(path))}
    if types:
        listed = tuple(
            f"{index}: {types[index]}" for index in sorted(types, key=lambda text: (len(text), text))
        )
        yield Fact(Known.PORT_GIDS, listed, device=label)
    if texts := [text for path in port.glob("gids/*") if (text := path.read(_EMPTY_GID)) is not None]:
        yield Fact(Known.PORT_GIDS_IN_USE, sum(not text for text in texts), device=label)
    known = _errors(port, driver)
    yield Fact.of(Known.PORT_ERRORS, sum(known.values()) if known else None, device=label)
    if any(known.values()):
        kinds = tuple(f"{count} {name}" for name, count in known.items() if count)
        yield Fact.of(Known.PORT_ERROR_KINDS, kinds, device=label)
    if driver != "efa":
        yield Fact.of(Known.PORT_LOST, number(port / _LOST), device=label)
    if (notifications := number(port / _CONGESTION)) is not None:  # RoCE
        yield Fact.of(Known.PORT_CONGESTION, notifications, device=label)


def _interface(device: TreePath, label: str) -> Iterator[Fact]:
    """Yield whether a network interface of a NIC is enabled; an InfiniBand port may have none."""
    if flags := [read(path) or "" for path in device.glob("net/*/flags")]:
        up = any(re.fullmatch("0x[0-9a-f]{1,8}", text) and int(text, 16) & _UP for text in flags)
        yield Fact.of(Known.PORT_INTERFACE, ON if up else OFF, device=label)


#: Kinds of interfaces whose speed is the speed of the network below them.
_OF_NETWORK = ("vlan", "bond")


def of_interface(name: str, root: TreePath = HERE) -> Iterator[Fact]:
    """Yield the kind, speed and MTU of a network interface.

    Its kind is ``physical``, or that of a virtual one: ``bridge``, ``wireguard``, ``tun``, ``veth`` ...; the
    speed that such an interface reports is not measured or negotiated by anything.

    Args:
        name: Its name.
        root: Folder that contains ``sys``.
    """
    folder = root / "sys/class/net" / name
    told = re.search(r"^DEVTYPE=(\w+)$", (folder / "uevent").read() or "", re.MULTILINE)
    if told and told[1] not in ("wlan", "wwan"):
        kind = told[1]
    elif (folder / "bridge").exists():
        kind = "bridge"
    elif (folder / "tun_flags").exists():
        kind = "tun"
    else:
        kind = "physical" if (folder / "device").exists() else "virtual"
    yield Fact(Known.INTERFACE_KIND, kind, device=name)
    if members := (read(folder / "bonding/slaves") or "").split():
        states = {member: read(root / "sys/class/net" / member / "operstate") for member in members}
        yield Fact(
            Known.BOND_WITHOUT_LINK, tuple(m for m, state in states.items() if state == "down"), device=name
        )
    speed = number(folder / "speed")
    if kind in ("physical", *_OF_NETWORK) and speed and speed > 0:
        yield Fact(Known.INTERFACE_SPEED, speed / 1e3, "Gbit/s", name)
    yield Fact.of(Known.INTERFACE_MTU, number(folder / "mtu"), "B", name)


def lost_links(name: str, root: TreePath = HERE) -> int:
    """How often a network interface has lost its link since it exists; 0 if the kernel does not count it."""
    return number(root / "sys/class/net" / name / "carrier_down_count") or 0


def is_disabled(name: str, root: TreePath = HERE) -> bool:
    """Whether a network interface is switched off (``ip link set down``), or no longer exists."""
    flags = read(root / "sys/class/net" / name / "flags") or "0x0"
    return re.fullmatch("0x[0-9a-f]{1,8}", flags) is not None and not int(flags, 16) & _UP


def _plugins(root: TreePath) -> Iterator[Fact]:
    """Yield the network plug-ins that NCCL would find, and if there are none, those that it would not."""
    variables = root.tree.environment
    searched = [
        folder for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")
    ]
    named = [path for path in variables.get("NCCL_NET_PLUGIN", "").split(",") if path.startswith("/")]
    cached = (root / "etc/ld.so.cache").read(_CACHED)
    plugins = [path for folder in searched for path in (root / folder).glob(_PLUGIN)]
    plugins += [root / name for name in (*named, *(cached or "").splitlines()) if (root / name).exists()]
    unknown = "" if plugins or cached is not None else "there is no /etc/ld.so.cache"
    yield Fact(Known.NCCL_PLUGINS, None if unknown else _paths(plugins), reason=unknown)
    if not plugins:
        patterns = [f"{folder}/{below}/{_PLUGIN}" for folder in _FOLDERS for below in ("lib*", "lib*/*")]
        yield Fact(Known.NCCL_PLUGINS_ELSEWHERE, _paths([path for p in patterns for path in root.glob(p)]))


def _paths(paths: list[TreePath]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"/{path.path}" for path in paths))
