"""What carried the bytes between nodes, by the counters of network interfaces and RDMA devices: libraries say
little of their transport, and each in its own way, but what the devices have sent shows it for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...backends.host import nic_facts
from ...backends.system_files import HERE, TreePath
from ...qualification import TCP
from ...thresholds.clusters import CARRIES, TAKES_PART
from ...units import many, some

#: Device -> its kind (``TCP``, ``IPoIB``, ``InfiniBand``, ``RoCE`` or ``EFA``), and the bytes that it sent.
Sent = dict[str, tuple[str, int]]
#: A line of /proc/net/dev: an interface, and the bytes that it has sent, the ninth number (proc_pid_net(5)).
_LINE = re.compile(r"\s*(\S+):\s*(?:\d+\s+){8}(\d+)")
#: Type of an interface whose bytes an InfiniBand port counts, too (ARPHRD_INFINIBAND of if_arp.h).
_IPOIB = "32"
#: Most devices, and most nodes, that are named.
_NAMED = 4


def counters(root: TreePath = HERE) -> Sent:
    """What the network interfaces and RDMA devices of this node have sent.

    Args:
        root: Folder that contains ``proc`` and ``sys``.
    """
    sent: Sent = {}
    for name, count in _LINE.findall((root / "proc/self/net/dev").read() or ""):
        folder = root / "sys/class/net" / name
        # What a bridge, a bond or a VLAN sends is counted below it.
        if name != "lo" and not folder.glob("lower_*"):
            kind = "IPoIB" if ((folder / "type").read() or "").strip() == _IPOIB else TCP
            sent[name] = (kind, int(count))
    for port in nic_facts.ports(root):
        if port.sent is not None:
            sent[port.label] = (port.network, port.sent)
    return sent


def difference(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]) -> Sent:
    """The bytes that devices sent between two readings."""
    return {
        name: (kind, count - before[name][1])
        for name, (kind, count) in after.items()
        if name in before and count > before[name][1]
    }


@dataclass(frozen=True)
class Carrier:
    """What carried the bytes that a node sent.

    Attributes:
        kind: ``TCP``, ``InfiniBand``, ``RoCE`` or ``EFA``; empty if no device has sent most of them.
        devices: Names of the devices.
    """

    kind: str = ""
    devices: tuple[str, ...] = ()


def carrier(sent: Mapping[str, Sequence[Any]], payload: float) -> Carrier:
    """What carried most of the bytes that a node sent.

    Args:
        sent: What its devices sent meanwhile.
        payload: Bytes that it had to send to other nodes, at least.
    """
    by_kind: dict[str, int] = {}
    for kind, count in sent.values():
        by_kind[kind] = by_kind.get(kind, 0) + count
    over_ports = by_kind.pop("IPoIB", 0)
    for kind in by_kind.keys() - {TCP}:  # the port counts what the interface sends over it
        by_kind[kind] -= over_ports
    by_kind[TCP] = by_kind.get(TCP, 0) + over_ports
    used = max(by_kind, key=lambda kind: by_kind[kind])
    if not payload or by_kind[used] < CARRIES * payload:
        return Carrier()
    kinds = (TCP, "IPoIB") if used == TCP else (used,)
    least = TAKES_PART * by_kind[used]
    part = sorted(name for name, (kind, count) in sent.items() if kind in kinds and count >= least)
    return Carrier(used, tuple(part))


def said(carriers: Sequence[Carrier]) -> str:
    """The transport of most nodes as text: ``InfiniBand (mlx5_0, mlx5_1)``; empty if unknown."""
    (usual, _), *_ = Counter((each.kind, each.devices) for each in carriers).most_common(1) or [(("", ()), 0)]
    kind, devices = usual
    return f"{kind} ({some(devices, _NAMED)})" if kind else ""


def others(carriers: Mapping[str, Carrier]) -> str:
    """The nodes that use another transport than most; empty if there are none.

    Args:
        carriers: Node -> what carried its bytes.
    """
    usual, count = Counter(each.kind for each in carriers.values()).most_common(1)[0] if carriers else ("", 0)
    names = [name for name, each in carriers.items() if each.kind != usual and each.kind]
    if not usual or not names:
        return ""
    of = f"{count} of {many(len(carriers), 'node')}"
    return f"{some(names, _NAMED)} used {carriers[names[0]].kind}, {of} {usual}"
