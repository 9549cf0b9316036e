"""The PCIe links above a device, from the ports that sysfs shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..hardware.facts import OFF, Fact, Known
from ..hardware.pcie import rate
from ..hardware.topology import Link, LinkKind
from .system_files import HERE, TreePath

#: Transfers a second of a lane in GT/s -> generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
#: A sleeping device reports this instead of its numbers.
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
#: NVIDIA's vendor ID, and the first digits of the class of displays and of 3D controllers.
_NVIDIA, _DISPLAY = "0x10de", "0x03"
#: What is read of ``proc/driver/nvidia/gpus/*/information``, which has UUIDs too.
INFORMATION = re.compile(r"^(?:Model|Device Minor|GPU Excluded|Blacklisted):.*$", re.MULTILINE)
#: Red Hat's vendor ID, of the ports that QEMU emulates: the speed they report is not real.
_EMULATED = "0x1b36"


def read(path: TreePath) -> str:
    """The text of an attribute; empty if it cannot be read."""
    return (path.read() or "").strip()


def entry(bus_id: str, root: TreePath = HERE) -> TreePath:
    """The entry of a GPU in sysfs; ``root`` contains ``sys``."""
    return root / f"sys/bus/pci/devices/{address(bus_id)}"


def address(bus_id: str) -> str:
    """The address in sysfs of a GPU with a bus ID such as ``00000000:3b:00``."""
    return f"{bus_id[4:]}.0"


def gpus(root: TreePath = HERE) -> list[TreePath]:
    """The NVIDIA GPUs on the PCI bus; ``root`` contains ``sys``."""
    return [
        device
        for device in (root / "sys/bus/pci/devices").glob("*")
        if read(device / "vendor") == _NVIDIA and read(device / "class").startswith(_DISPLAY)
    ]


def information(name: str, root: TreePath = HERE) -> dict[str, str]:
    """What the driver says about the GPU at an address: name -> value; empty if it says nothing."""
    text = (root / f"proc/driver/nvidia/gpus/{name}/information").read(INFORMATION) or ""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def both_ways(a: str, b: str, capacity: float | None, origin: str) -> list[Link]:
    """The two directions of a PCIe link."""
    return [Link(*way, LinkKind.PCIE, capacity, origin) for way in ((a, b), (b, a))]


@dataclass(frozen=True)
class Port:
    """One end of a link: its maximum speed and width, and its current width; 0 if not reported."""

    address: str
    generation: int
    width: int
    now: tuple[int, int]
    emulated: bool

    @staticmethod
    def of(device: TreePath) -> Port:
        return Port(
            device.name,
            _generation(device / "max_link_speed"),
            _width(device / "max_link_width"),
            (_generation(device / "current_link_speed"), _width(device / "current_link_width")),
            read(device / "vendor") == _EMULATED,
        )


def _generation(path: TreePath) -> int:
    """The generation for a text like ``32.0 GT/s PCIe``."""
    number, _, unit = read(path).partition(" ")
    try:
        return _GENERATIONS.get(float(number), 0) if unit.startswith("GT/s") else 0
    except ValueError:  # "Unknown speed"
        return 0


def _width(path: TreePath) -> int:
    text = read(path)
    return int(text) if text in map(str, _WIDTHS) else 0


@dataclass(frozen=True)
class Hop:
    """A link: the ports at its lower and upper end."""

    below: Port
    above: Port

    @property
    def generation(self) -> int:
        """Generation of the slower end, or of the only end that reports one; else 0."""
        return min(filter(None, (self.below.generation, self.above.generation)), default=0)

    @property
    def width(self) -> int:
        return min(filter(None, (self.below.width, self.above.width)), default=0)

    @property
    def width_now(self) -> int:
        return min(filter(None, (self.below.now[1], self.above.now[1])), default=0)

    @property
    def generation_now(self) -> int:
        return min(filter(None, (self.below.now[0], self.above.now[0])), default=0)

    @property
    def is_credible(self) -> bool:
        """Whether the link is known, and not faster than the reported maximum of an end."""
        generation, width = (max(ends) for ends in zip(self.below.now, self.above.now, strict=True))
        return (
            0 < self.generation >= generation
            and 0 < self.width >= width
            and not (self.below.emulated or self.above.emulated)
        )


def links_above(
    device: TreePath, gpu: str, node: str, known: Collection[Link] = ()
) -> tuple[list[Link], list[str]]:
    """The links from a GPU up to its NUMA node, and remarks about them.

    Args:
        device: The GPU's entry in ``sys/bus/pci/devices``: a link to its place below its bridges.
        gpu, node: Vertices at the two ends.
        known: Links that are already described. GPUs below one switch share its uplink, which is one link.

    Returns:
        Links and remarks. No links if sysfs does not show all of them, as in most virtual machines.
    """
    pairs = hops(device)
    if not all(pair.is_credible for pair in pairs):
        return [], []
    ends = {(link.source, link.destination) for link in known}
    links, notes, vertex = list[Link](), list[str](), gpu
    for i, pair in enumerate(pairs):
        above = f"pcie:{pairs[i + 1].below.address}" if i + 1 < len(pairs) else node
        capacity = rate(pair.generation, pair.width)
        if capacity and (vertex, above) not in ends:
            links += both_ways(vertex, above, *capacity)
            notes += (f"PCIe link {vertex}-{above}: {text}" for text in _remarks(pair, gpu, pairs[0].below))
        vertex = above
    return links, notes


def hops(device: TreePath) -> list[Hop]:
    """The links from a device up to the root, each with its two ports; empty if one is missing.

    The directories above a device are its bridges: its port, the upstream port of the switch with that port,
    the port above, and so on. Between a switch's upstream port and its other ports there is no link.
    """
    chain = [Port.of(path) for path in ports(device)]
    if len(chain) % 2:
        return []
    return [Hop(*ends) for ends in zip(chain[::2], chain[1::2], strict=True)]


def narrowest(links: Sequence[Hop]) -> Hop:
    """The link with the lowest fraction of the lanes that both of its ends support."""
    return min(links, key=lambda hop: (hop.width_now or hop.width) / hop.width)


@dataclass(frozen=True)
class LinkSpeed:
    """The speed of a link at one time, and what both of its ends support.

    Attributes:
        address: PCI address of its lower end.
        generation, width: Current generation, and number of lanes.
        generation_possible, width_possible: Generation and number of lanes that both ends support.
    """

    address: str
    generation: int
    width: int
    generation_possible: int
    width_possible: int

    @property
    def share(self) -> float:
        """Fraction of the possible rate."""
        return float(2.0 ** (self.generation - self.generation_possible) * self.width / self.width_possible)


def slowest(device: TreePath) -> LinkSpeed | None:
    """The link above a device with the lowest fraction of its possible rate at this moment.

    None if sysfs does not show all links, as in most virtual machines.
    """
    links = hops(device)
    if not links or not all(hop.is_credible and hop.generation_now and hop.width_now for hop in links):
        return None
    speeds = (
        LinkSpeed(hop.below.address, hop.generation_now, hop.width_now, hop.generation, hop.width)
        for hop in links
    )
    return min(speeds, key=lambda speed: speed.share)


def facts_of_links(device: TreePath, name: str, *, sleeps: bool = False) -> Iterator[Fact]:
    """Yield what the links above a device run at and support, and their errors.

    What a slot or a switch supports is no defect, but limits the device.

    Args:
        device: Its entry in sysfs.
        name: Its name.
        sleeps: Whether its link runs at a lower generation while it is idle.
    """
    links = hops(device)
    if links and all(hop.is_credible for hop in links):
        narrow, own = narrowest(links), links[0].below
        yield Fact.of(Known.PCIE_WIDTH, narrow.width_now or None, device=name)
        yield Fact.of(Known.PCIE_WIDTH_POSSIBLE, narrow.width, device=name)
        yield Fact.of(Known.PCIE_NARROWEST, narrow.below.address, device=name)
        if not sleeps:
            yield Fact.of(Known.PCIE_GENERATION, links[0].generation_now or None, device=name)
            yield Fact.of(Known.PCIE_GENERATION_POSSIBLE, links[0].generation, device=name)
        kinds = [(*known, hop.below.address) for hop in links if (known := rate(hop.generation, hop.width))]
        full = rate(own.generation, own.width)
        capacity, kind, at = min(kinds, key=lambda link: link[0], default=(0.0, "", ""))
        if full and 0 < capacity < full[0]:
            yield Fact(Known.PCIE_LIMITING, at, device=name)
            yield Fact(Known.PCIE_LIMITING_KIND, kind, device=name)
            yield Fact(Known.PCIE_LIMITING_RATE, capacity, "B/s", name)
            yield Fact(Known.PCIE_KIND, full[1], device=name)
    for fact, count in zip((Known.AER, Known.AER_CORRECTED), errors(device), strict=True):
        yield Fact.of(fact, count, device=name)


def errors(device: TreePath) -> tuple[int | None, int | None]:
    """The errors that were not corrected, and those that were, of a device or a port above it: of the worst.

    Both ends of a link may count the same error. None if the kernel counts none (Advanced Error Reporting).
    """
    places = {device.name: device.resolve()} | {path.name: path for path in ports(device)}

    def most(*files: str) -> int | None:
        counts = []
        for path in places.values():
            texts = (read(path / f"aer_dev_{file}") for file in files)
            totals = [re.search(r"^TOTAL_ERR_\w+ (\d{1,15})$", text, re.MULTILINE) for text in texts]
            counts += [sum(int(total[1]) for total in totals if total)] if any(totals) else []
        return max(counts, default=None)

    return most("nonfatal", "fatal"), most("correctable")


def ports(device: TreePath) -> list[TreePath]:
    """A PCI device and its bridges up to the root."""
    place = device.resolve()
    return list(takewhile(lambda path: ADDRESS.fullmatch(path.name), (place, *place.parents)))


#: Start of the extended configuration space, in bytes; other users than root may read the first 64.
_EXTENDED = 256
#: Access Control Services: number of the capability, offset of its control word, and the bits that redirect
#: traffic between devices to the root: requests, completions, upstream forwarding.
#: Source: PCI_EXT_CAP_ID_ACS, PCI_ACS_CTRL, PCI_ACS_RR, PCI_ACS_CR and PCI_ACS_UF in Linux' pci_regs.h.
_ACS, _ACS_CONTROL, _ACS_REDIRECT = 0x0D, 6, 0x04 | 0x08 | 0x10
#: Why the control word of a bridge is unknown.
ROOT_ONLY = "the extended configuration space requires root"


def acs_control(config: bytes) -> bytes:
    """The control word of ACS in a configuration space.

    Empty if the space ends before; ``-`` if the bridge has no ACS. Of its own result, all.
    """
    if len(config) <= 2:
        return config
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at not in seen and at + 4 <= len(config):
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS and at + _ACS_CONTROL + 2 <= len(config):
            return config[at + _ACS_CONTROL : at + _ACS_CONTROL + 2]
        at = header >> 20
    return b"-" if len(config) > _EXTENDED else b""


def redirects(bridge: TreePath) -> bool | None:
    """Whether the ACS of a bridge redirects traffic between devices; None if that cannot be read."""
    control = (bridge / "config").table(acs_control)
    if not control:
        return None
    return bool(int.from_bytes(control, "little") & _ACS_REDIRECT) if len(control) == 2 else False


def facts_of_bridges(device: TreePath, name: str) -> Iterator[Fact]:
    """Yield what isolates a device from others: its bridges, their IOMMU groups, and their ACS."""
    bridges = ports(device)[1:]
    yield Fact(Known.BRIDGES, tuple(bridge.name for bridge in bridges), device=name)
    groups = (bridge / "iommu_group" for bridge in bridges)
    yield Fact(
        Known.BRIDGE_GROUPS, tuple(g.resolve().name if g.exists() else OFF for g in groups), device=name
    )
    found = {bridge.name: redirects(bridge) for bridge in bridges}
    if None in found.values():
        yield Fact(Known.ACS_REDIRECTS, device=name, reason=ROOT_ONLY)
    else:
        redirecting = tuple(address for address, redirects_now in found.items() if redirects_now)
        yield Fact(Known.ACS_REDIRECTS, redirecting, device=name)


def _remarks(pair: Hop, gpu: str, own: Port) -> Iterator[str]:
    """Yield why a link is slower than possible.

    Its current speed is not a reason: an idle link runs at a lower speed, but at full width.
    """
    if 0 < pair.width_now < pair.width:
        yield f"x{pair.width_now} now, but both ends support x{pair.width}; reseat the card"
    if pair.width < own.width:
        yield f"x{pair.width}, but {gpu} supports x{own.width}"
    ends = (pair.below.generation, pair.above.generation)
    if all(ends) and ends[0] != ends[1] and pair.generation < own.generation:
        lower = (pair.below if ends[0] < ends[1] else pair.above).address
        yield f"generation {pair.generation}, the maximum of {lower}; {gpu} supports {own.generation}"
