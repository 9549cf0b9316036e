"""The signs of causes at PCIe links, of isolation by ACS, and of the IOMMU in the facts of a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...data.causes import Weight
from ...hardware.facts import OFF, Facts, Known
from ...hardware.topology import Machine
from ...statistics import grouped
from ...thresholds.facts import CORRECTED, RETRIED
from ...units import GB, many, some
from .evidence_nic import lacking, nics_and_gpus, unequal_lanes
from .record import Sign

#: Gbit/s in bytes per second.
_GBIT = 1e9 / 8


def address_of(machine: Machine, facts: Facts, device: str) -> str:
    """The PCI address of a GPU, NIC or drive; empty if it is unknown."""
    gpus = {gpu.name: f"{gpu.bus_id[4:]}.0" for gpu in machine.gpus if gpu.bus_id and not facts.host}
    known = (facts.text(name, device) for name in (Known.NIC_ADDRESS, Known.DRIVE_ADDRESS))
    return gpus.get(device, "") or next(filter(None, known), "")


def place_of(machine: Machine, device: str, address: str) -> str:
    """Where a link is, by the address of its lower end: a vertex of the machine, else the device below it."""
    vertex = f"pcie:{address}"
    return vertex if any(vertex in link.ends for link in machine.links) else device


def slot(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The devices that a slot, a switch or a chipset limits; a link that several share counts once."""
    by_link: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    unequal = {nic for lanes in unequal_lanes(facts) for nic in lanes}
    for device in facts.devices():
        at, rate = facts.text(Known.PCIE_LIMITING, device), facts.number(Known.PCIE_LIMITING_RATE, device)
        if not at or not rate or device in unequal or not _matters(facts, device, rate):
            continue
        is_own = at == address_of(machine, facts, device)
        kind, own_kind = (facts.text(name, device) for name in (Known.PCIE_LIMITING_KIND, Known.PCIE_KIND))
        by_link["" if is_own else at, kind, own_kind].append(device)
    for (shared, kind, own_kind), devices in by_link.items():
        rate = facts.number(Known.PCIE_LIMITING_RATE, devices[0]) or 0.0
        names, one = some(devices), len(devices) == 1
        link = f"the link of {shared} above {names}" if shared else f"the slot{'s' * (not one)} of {names}"
        text = (
            f"{link} {'offers' if one or shared else 'offer'} {kind}, at most {rate / GB:.1f} GB/s in each "
            f"direction; the device{'s' * (not one)} could use {own_kind}"
        )
        yield Sign(devices[0] if one else "", text, at=facts.text(Known.PCIE_LIMITING, devices[0]))


def _matters(facts: Facts, device: str, rate: float) -> bool:
    """Whether the link of a device limits it: the link of a NIC does if its ports are faster."""
    if not facts.text(Known.NIC_DRIVER, device):
        return True
    ports = (port for port in facts.devices() if port.partition(":")[0] == device)
    return rate < _GBIT * sum(facts.number(Known.PORT_RATE, port) or 0.0 for port in ports)


def drive_pcie(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NVMe drives whose links run at fewer lanes or an older generation than both ends support."""
    for drive in facts.devices():
        if not (at := facts.text(Known.DRIVE_ADDRESS, drive)):
            continue
        narrow = lacking(facts, drive, Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, "x")
        older = lacking(facts, drive, Known.PCIE_GENERATION, Known.PCIE_GENERATION_POSSIBLE)
        texts = (narrow, f"generation {older}" if older else "")
        if any(texts):
            weight = Weight.DEFECT if narrow else Weight.NOTE
            yield Sign(drive, "; ".join(filter(None, texts)), weight, at=at)


def errors_of_links(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The NICs and drives with PCIe errors since the system started; those with the same counts together."""
    gpus = {gpu.name for gpu in machine.gpus}
    counts = {
        device: (facts.number(Known.AER, device) or 0, facts.number(Known.AER_CORRECTED, device) or 0)
        for device in facts.devices() if device not in gpus
    }  # fmt: skip
    worst = grouped((count, device) for device, count in counts.items() if count[0] or count[1] > CORRECTED)
    for (failed, corrected), devices in worst.items():
        text = f"{failed:.0f} fatal or non-fatal errors, {corrected:.0f} corrected"
        yield Sign(", ".join(devices), text, at=address_of(machine, facts, devices[0]))


def acs(machine: Machine, facts: Facts) -> Iterator[Sign]:
    below = grouped((facts.text(Known.SWITCH, gpu.name), gpu.name) for gpu in machine.gpus)
    for switch, gpus in below.items():
        groups = {facts.text(Known.IOMMU_GROUP, gpu) for gpu in gpus}
        if switch not in ("", "none") and len(groups) == len(gpus) > 1 and not groups & {"", OFF}:
            text = f"{' and '.join(gpus)} are below one switch ({switch}), in different IOMMU groups"
            yield Sign(gpus[0], text)


def iommu(machine: Machine, facts: Facts) -> Iterator[Sign]:
    types = [domain for domain in facts.several(Known.IOMMU) if domain.startswith("DMA")]
    text, to_nics = f"domains of type {', '.join(types)}", nics_and_gpus(machine, facts)
    if types and (to_nics or len(machine.gpus) > 1):
        yield Sign(
            "", f"{text}, also between NICs and GPUs" if to_nics else text, Weight.NOTE if to_nics else None
        )


def pcie_width(machine: Machine, facts: Facts) -> Iterator[Sign]:
    shared = set[str]()
    for gpu in machine.gpus:
        for now, possible, at, when in (
            (Known.PCIE_WIDTH_LOADED, Known.PCIE_WIDTH_LOADED_POSSIBLE, Known.PCIE_LOADED, " during copies"),
            (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, Known.PCIE_NARROWEST, ""),
        ):
            lanes, most = facts.number(now, gpu.name), facts.number(possible, gpu.name)
            if lanes and most and lanes < most:
                where = facts.text(at, gpu.name)
                place = place_of(machine, gpu.name, where)
                text = f"the link of {where} runs at x{lanes:.0f}{when}, both ends support x{most:.0f}"
                if place not in shared:
                    yield Sign(place, text)
                shared.add(place)
                break


def pcie_generation(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        loaded, both, link, own = (
            facts.number(name, gpu.name)
            for name in (Known.PCIE_GENERATION_LOADED, Known.PCIE_GENERATION_LOADED_POSSIBLE,
                         Known.PCIE_GENERATION_POSSIBLE, Known.PCIE_GENERATION_OF_GPU)
        )  # fmt: skip
        if loaded and both and loaded < both:
            at = facts.text(Known.PCIE_LOADED, gpu.name)
            text = f"the link of {at} runs at generation {loaded:.0f} during copies"
            yield Sign(gpu.name, f"{text}, both ends support {both:.0f}", Weight.DEFECT)
        elif link and own and link < own:
            yield Sign(gpu.name, f"a link above it supports generation {link:.0f}, the GPU {own:.0f}")


def pcie_errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        failed, retried, count, corrected = (
            facts.number(name, gpu.name) or 0
            for name in (Known.PCIE_FAILED, Known.PCIE_RETRIED, Known.AER, Known.AER_CORRECTED)
        )
        if failed or retried:
            weight = Weight.DEFECT if failed or retried > RETRIED else Weight.CONDITION
            text = f"{failed:.0f} uncorrected and {retried:.0f} corrected errors during the run"
            yield Sign(gpu.name, text, weight)
        elif count or corrected > CORRECTED:
            text = f"{many(int(count), 'error')} that were not corrected, {corrected:.0f} corrected"
            yield Sign(gpu.name, text)
    yield from errors_of_links(machine, facts)
