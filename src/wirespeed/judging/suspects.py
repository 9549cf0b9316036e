"""Devices, links and pairs that may be slow, and those that explain low values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..hardware.link_graph import MachineVertices
from ..hardware.topology import Link, LinkKind, Machine


class SuspectKind(StrEnum):
    """Kind of a suspect, in words."""

    NVLINK = "NVLink"
    PCIE = "PCIe link"
    C2C = "C2C link"
    SOCKET = "socket link"
    NETWORK = "network link"
    GPU_MEMORY = "memory of a GPU"
    HOST_MEMORY = "memory of a NUMA node"
    GPU = "GPU"
    NODE = "NUMA node"
    PCIE_SWITCH = "PCIe switch"
    SWITCH = "switch"  #: of links of another kind
    PAIR_OF_GPUS = "path between GPUs"
    PAIR_WITH_HOST = "path between a GPU and the host"
    PAIR_OF_NODES = "path between NUMA nodes"
    DEVICE_MEMORY = "memory of a device"  #: of another kind
    DEVICE = "device"
    PAIR_OF_DEVICES = "path of a device"


#: Kind of a link -> kind of the suspect.
_LINKS = {
    LinkKind.NVLINK: SuspectKind.NVLINK, LinkKind.PCIE: SuspectKind.PCIE, LinkKind.C2C: SuspectKind.C2C,
    LinkKind.SOCKET: SuspectKind.SOCKET, LinkKind.NETWORK: SuspectKind.NETWORK,
}  # fmt: skip
#: Number of GPUs at the ends -> kind of the pair.
_PAIRS = (SuspectKind.PAIR_OF_NODES, SuspectKind.PAIR_WITH_HOST, SuspectKind.PAIR_OF_GPUS)
#: Of a GPU, a NUMA node and another device.
_MEMORIES = (SuspectKind.GPU_MEMORY, SuspectKind.HOST_MEMORY, SuspectKind.DEVICE_MEMORY)
_DEVICES = (SuspectKind.GPU, SuspectKind.NODE, SuspectKind.DEVICE)


@dataclass(frozen=True)
class Suspect:
    """A device, memory, switch, link or pair that may be slow.

    Attributes:
        kind: What it is.
        ends: Its vertex; of a link or pair, both ends.
        one_way: Whether only the direction from the first to the second end is slow.
    """

    kind: SuspectKind
    ends: tuple[str, ...]
    one_way: bool = False

    @property
    def is_link(self) -> bool:
        """Whether it is one link: no device, memory, switch or pair."""
        return self.kind in _LINKS.values()

    @property
    def is_device(self) -> bool:
        """Whether it is a device or its memory: no switch, link or pair."""
        return self.kind in (*_DEVICES, *_MEMORIES)

    def __str__(self) -> str:
        """The text: ``PCIe link pcie1->gpu3``."""
        where = ("->" if self.one_way else "-").join(self.ends)
        if self.kind in _MEMORIES:
            return f"memory of {where}"
        if self.kind in (*_PAIRS, SuspectKind.PAIR_OF_DEVICES):
            return f"path {where}"
        if self.kind in _DEVICES:
            return where
        return f"{self.kind} {where}"


@dataclass(frozen=True)
class Culprit:
    """Explanation of low cells. If several suspects explain the same cells, it is one of them.

    Attributes:
        suspects: Links, devices or pairs.
        ratio: The value over what ``of`` says: the lowest share of what is expected, which is that of the key
            figures; of what its peers reach, the median.
        cells: Indices of the observations that it explains.
        of: What the ratio is relative to, in words: ``expected``, or what its peers reach.
    """

    suspects: tuple[Suspect, ...]
    ratio: float
    cells: tuple[int, ...]
    of: str = "what its peers reach"

    def __str__(self) -> str:
        return " or ".join(map(str, self.suspects))

    @property
    def share(self) -> str:
        """The ratio with its word: ``50% of expected``."""
        return f"{self.ratio:.0%} of {self.of}"


def of_expected(culprit: Culprit, shares: Mapping[int, float]) -> Culprit:
    """A culprit with its share of what is expected; without failing values, its share of its peers.

    Args:
        culprit: A culprit with its ratio to its peers.
        shares: Index of an observation that fails -> its value over the typical one.
    """
    failing = [shares[i] for i in culprit.cells if i in shares]
    return replace(culprit, ratio=min(failing), of="expected") if failing else culprit


class Suspects:
    """The suspects of a machine: its devices, memories, switches, links and pairs."""

    def __init__(self, machine: Machine) -> None:
        vertices = MachineVertices(machine)
        self._is_host, self._is_other = vertices.is_node, vertices.is_other
        self._devices = {link.source for link in machine.links if link.kind is LinkKind.MEMORY}
        self._pcie = {end for link in machine.links if link.kind is LinkKind.PCIE for end in link.ends}

    def memory(self, vertex: str) -> Suspect:
        """The memory of a device as a suspect."""
        return self._among(_MEMORIES, vertex)

    def _among(self, kinds: Sequence[SuspectKind], vertex: str) -> Suspect:
        """A suspect of one of the kinds for a GPU, a NUMA node and another device."""
        return Suspect(kinds[1 if self._is_host(vertex) else 2 * self._is_other(vertex)], (vertex,))

    def link(self, link: Link) -> tuple[Suspect, Suspect]:
        """A link between vertices in its direction, and in both directions."""
        kind = _LINKS[link.kind]
        ends = sorted(link.ends, key=lambda end: (end not in self._devices, end))
        return Suspect(kind, link.ends, one_way=True), Suspect(kind, tuple(ends))

    def vertex(self, vertex: str) -> Suspect:
        """A device or switch as a suspect; PCIe switches have another kind than other switches."""
        if vertex in self._devices:
            return self._among(_DEVICES, vertex)
        return Suspect(SuspectKind.PCIE_SWITCH if vertex in self._pcie else SuspectKind.SWITCH, (vertex,))

    def pair(self, ends: tuple[str, str], *, one_way: bool) -> Suspect:
        """The path between two devices as a suspect; its kind follows from how many of them are GPUs."""
        gpus = sum(not self._is_host(end) for end in ends)
        kind = SuspectKind.PAIR_OF_DEVICES if any(map(self._is_other, ends)) else _PAIRS[gpus]
        return Suspect(kind, ends if one_way else tuple(sorted(ends)), one_way)
