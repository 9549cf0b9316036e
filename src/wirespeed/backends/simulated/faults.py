"""Faults of simulated machines: parsing, their effect on links, the noise of times, and the facts that the
system of a machine reports with and without faults.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from msgspec import structs

from ...data.causes import EFFECTS
from ...errors import MachineError, UsageError
from ...hardware.cause_effects import CONTROLLER_BYTES, USUAL_CLOCK_HZ, generation_of, root_port
from ...hardware.devices import Fault, FaultKind
from ...hardware.facts import FABRIC_READY, OFF, ON, Fact, Known
from ...hardware.link_graph import MachineVertices, nvlinks_of
from ...hardware.topology import LinkKind, Machine
from ...peer_access import PeerMechanism
from ...terminal import meant
from ...units import GIB, parse_fraction, parse_size
from .. import pci

#: Level of a ``noise`` fault -> what it does.
LEVELS = {
    "sample": "between samples",
    "round": "between rounds, with the same value for all samples of one",
    "process": "between runs with different seeds",
    "drift": "slowly",
}
#: Period of slow changes, in s of virtual time.
_PERIOD_S = 30.0


class Noise:
    """The noise of one run.

    Attributes:
        machine: Its ``noise`` is that between samples; faults define the other levels.
    """

    def __init__(self, machine: Machine) -> None:
        self._sigmas = {"sample": machine.noise}
        self._sigmas |= {f.where: f.factor for f in machine.faults if f.kind is FaultKind.NOISE}
        self._rounds: Counter[str] = Counter()
        self._phase = cache(lambda seed: random.Random(f"drift {seed}").random())

    def of(self, seed: int, identity: str) -> PreparedNoise:
        """The noise of a Measurement that is prepared again; every time differs."""
        number = self._rounds[identity]
        self._rounds[identity] += 1
        return PreparedNoise(self._sigmas, seed, identity, number, self._phase(seed))


class PreparedNoise:
    """The noise of one round of a Measurement.

    Attributes:
        random: Random numbers of this round.
    """

    def __init__(self, sigmas: dict[str, float], seed: int, identity: str, number: int, phase: float) -> None:
        self.random = random.Random(f"{seed} {identity} {number}" if number else f"{seed} {identity}")
        self._sample, self._drift = sigmas["sample"], sigmas.get("drift", 0.0)
        self._shift = 0.0
        if of_run := sigmas.get("process", 0.0):
            self._shift += random.Random(f"run {seed} {identity}").gauss(0.0, of_run)
        if of_round := sigmas.get("round", 0.0):
            self._shift += random.Random(f"round {seed} {identity} {number}").gauss(0.0, of_round)
        self._phase = phase

    def factor(self, now: float) -> float:
        """By how much a sample is longer at a time of the virtual clock, in s."""
        alike = self.alike(now)
        return alike * math.exp(self.random.gauss(0.0, self._sample)) if self._sample else alike

    def alike(self, now: float) -> float:
        """By how much all samples are longer at a time of the virtual clock, in s."""
        if not self._drift and not self._shift:
            return 1.0
        angle = 2 * math.pi * (now / _PERIOD_S + self._phase)
        return math.exp(self._shift + math.sqrt(2) * self._drift * math.sin(angle))


def without_gone(texts: Sequence[str], machine: Machine) -> tuple[Machine, list[Fault], list[str]]:
    """The machine without the GPUs of ``gone@gpu3``, these faults, and the texts of the others.

    Raises:
        MachineError: If the machine has no such GPU, or several hosts.
    """
    names = [where for kind, _, where in (text.partition("@") for text in texts) if kind == FaultKind.GONE]
    gpus = {gpu.name: gpu for gpu in machine.gpus} if not machine.ranks else {}
    for name in names:
        if name not in gpus:
            known = f"write {FaultKind.GONE}@{next(iter(gpus))}" if gpus else "it cannot have this fault"
            raise MachineError(f"machine {machine.name!r} has no GPU {name!r} for the fault 'gone'; {known}")
    faults = [Fault(FaultKind.GONE, pci.address(gpus[name].bus_id)) for name in dict.fromkeys(names)]
    others = [text for text in texts if text.partition("@")[0] != FaultKind.GONE]
    kept = [gpu.index for gpu in machine.gpus if gpu.name not in names]
    return (machine.only(kept) if names else machine), faults, others


def parse_fault(text: str, machine: Machine) -> Fault:
    """Parse a fault such as ``corrupt@gpu0->gpu1`` or ``speed@gpu0-gpu1=0.5``.

    Raises:
        MachineError: If the fault does not exist, or the machine has no such link or device.
    """
    kind, _, where = text.partition("@")
    name, _, amount = kind.partition("=")
    for short, long in _SHORT:
        if match := re.fullmatch(short, name):
            name, amount = long, match[1] if match.groups() else amount
    if name == FaultKind.MECHANISM:
        if amount not in list(PeerMechanism):
            raise MachineError(
                f"the fault {text!r} requires a mechanism ({', '.join(PeerMechanism)}): write "
                f"{FaultKind.MECHANISM}={PeerMechanism.IPC}@gpu0-gpu1"
            )
        return _of_pair(Fault(FaultKind.MECHANISM, where, cause=amount), text, machine)
    if name == FaultKind.SLOW and amount:
        kind, where = name, f"{where}={amount}"
    if name in EFFECTS and kind != FaultKind.BUSY:
        return _cause(name, where, amount, text, machine)
    kinds = [kind for kind in FaultKind if kind is not FaultKind.CAUSE]
    if kind not in kinds:
        known = [*kinds, *EFFECTS]
        raise MachineError(
            f"unknown simulated fault {kind!r}{meant(name, known)}; choose from {', '.join(known)}"
        )
    fault = Fault(FaultKind(kind), where)
    if fault.kind is FaultKind.SPEED:
        where, _, factor = where.partition("=")
        fault = replace(fault, where=where, factor=_factor(factor, text))
    if fault.kind is FaultKind.NOISE:
        return _noise(where, text)
    if fault.kind.of_pairs:
        return _of_pair(fault, text, machine)
    if fault.kind is FaultKind.FULL:
        where, _, free = where.partition("=")
        fault = replace(fault, where=where, factor=float(parse_size(free)) if free else 0.0)
    if not fault.kind.of_links and where and not _is_transfer(where, machine):
        raise MachineError(
            f"machine {machine.name!r} has no transfers {where!r} for the fault {text!r}; "
            "write gpu0 or numa0->gpu0 (`wirespeed machine` lists the devices)"
        )
    if fault.kind.of_links and not machine.links_at(where):
        raise MachineError(
            f"machine {machine.name!r} has no link {where!r} for the fault {text!r}; "
            "write gpu0, gpu0-gpu1 or gpu0->gpu1 (`wirespeed machine --format json` lists the links)"
        )
    return fault


def _of_pair(fault: Fault, text: str, machine: Machine) -> Fault:
    """A fault of peer access, at a pair of GPUs of the machine."""
    where, _, factor = fault.where.partition("=")
    if fault.kind is FaultKind.SLOW:
        fault = replace(fault, factor=_factor(factor, text) if factor else _SLOW)
    fault = replace(fault, where=where)
    names = [gpu.name for gpu in machine.gpus]
    if machine.ranks or not any(fault.concerns(a, b) for a in names for b in names if a != b):
        raise MachineError(
            f"machine {machine.name!r} has no pair of GPUs {where!r} for the fault {text!r}; "
            "write gpu0->gpu1, gpu0-gpu1 or gpu0"
        )
    return fault


def without_peers(machine: Machine) -> Machine:
    """The machine as its driver describes it: without the peers that ``no-peers`` faults take away."""
    faults = [fault for fault in machine.faults if fault.kind is FaultKind.NO_PEERS]
    gpus = (
        replace(gpu, peers=tuple(p for p in gpu.peers if not any(f.concerns(gpu.name, p) for f in faults)))
        for gpu in machine.gpus
    )
    return replace(machine, gpus=tuple(gpus)) if faults else machine


def _noise(where: str, text: str) -> Fault:
    """Noise such as ``noise@round=1%`` as a fault."""
    level, _, amount = where.partition("=")
    if level not in LEVELS or not amount:
        levels = ", ".join(f"noise@{name}=1%: {meaning}" for name, meaning in LEVELS.items())
        raise MachineError(f"the fault {text!r} requires a level and an amount ({levels})")
    try:
        return Fault(FaultKind.NOISE, level, parse_fraction(amount))
    except UsageError as error:
        raise MachineError(f"the fault {text!r} has a wrong amount: {error}") from error


#: Factor of the speed of a slow pair if none is given.
_SLOW = 0.1
#: Short names of causes, some with their amount.
_SHORT = (
    (r"gen(\d)", "pcie-generation"), (r"nps(\d)", "nodes-per-socket"), ("throttle", "throttled"),
    ("cc", "confidential"),
)  # fmt: skip


def _cause(name: str, where: str, amount: str, text: str, machine: Machine) -> Fault:
    """A cause of slow paths as a fault."""
    effect = EFFECTS[name]
    places = effect.places(machine)
    if not places:
        raise MachineError(f"machine {machine.name!r} cannot have the fault {name!r}")
    if where not in places:
        known = (
            f"write {name}@{next(filter(None, places))}" if any(places) else f"write {name} without a place"
        )
        raise MachineError(f"machine {machine.name!r} has no place {where!r} for the fault {text!r}; {known}")
    try:
        value = float(amount) if amount else effect.usual
    except ValueError:
        value = math.nan
    if not 0 < effect.factor(machine, where, value) <= 1 or (effect.amounts and value not in effect.amounts):
        choices = ", ".join(f"{amount:g}" for amount in effect.amounts) or "a factor between 0 and 1"
        if effect.factor(machine, where, 1.0) < 1 and not effect.amounts:
            choices += ", or a number of NVLinks that are left"
        raise MachineError(f"the fault {text!r} requires an amount: {choices}")
    return Fault(FaultKind.CAUSE, where, value, name)


def _is_transfer(where: str, machine: Machine) -> bool:
    """Whether a text is a prefix of a transfer's text: a source, and possibly more."""
    devices = {device.name for device in machine.devices}
    begins = re.match(r"(\d+/)?[a-z]+\d+(->|$)", where) is not None
    return begins and devices.issuperset(re.findall(r"[a-z]+\d+", where))


def _factor(text: str, fault: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1000:
        raise MachineError(f"the fault {fault!r} requires a factor above 0, such as speed@gpu0-gpu1=0.5")
    return value


def faulty(machine: Machine, *, collectives: bool = False) -> Machine:
    """The machine as it behaves: with the faults applied to its links, those that reroute last."""
    links = list(machine.links)
    down: set[int] = set()
    for fault in machine.faults:
        chosen = machine.links_at(fault.where) if fault.kind.of_links else ()
        for i in chosen:
            capacity = links[i].capacity
            if fault.kind is FaultKind.DOWN:
                down.add(i)
            elif capacity is not None:
                links[i] = replace(links[i], capacity=capacity * fault.factor)
    machine = replace(machine, links=tuple(link for i, link in enumerate(links) if i not in down))
    for fault in machine.faults:
        effect = EFFECTS.get(fault.cause)
        if effect and (collectives or not effect.collectives):
            machine = effect.apply(machine, fault.where, effect.factor(machine, fault.where, fault.factor))
    return machine


def facts_of(machine: Machine) -> Iterator[Fact]:
    """Yield the facts of a good machine, then those that its faults change; the last one counts."""
    others = list(dict.fromkeys(rank.host for rank in machine.ranks))[1:]
    good = tuple(healthy(machine))
    yield from good
    for host in others:
        yield from (structs.replace(fact, host=host) for fact in good)
    for fault in machine.faults:
        if fault.kind is FaultKind.NO_PEERS:
            for gpu in machine.gpus:
                for other in (p.name for p in machine.gpus if p is not gpu and p.name not in gpu.peers):
                    yield Fact(Known.P2P_WRITE, "chipset not supported", device=f"{gpu.name}->{other}")
        hosts = ("", *others) if not fault.where else (MachineVertices(machine).of(fault.where).host,)
        if fault.kind is FaultKind.BUSY:
            changed = EFFECTS["busy-gpu"].facts(machine, fault.where, BUSY_FACTOR)
        elif fault.kind is FaultKind.CAUSE:
            changed = EFFECTS[fault.cause].facts(machine, fault.where, fault.factor)
        else:
            continue
        for fact in {(new.device, new.name): new for new in changed}.values():
            yield from (structs.replace(fact, host=host) for host in hosts)


#: Time for which a simulated system was observed, in s.
OBSERVED_S = 30.0
#: What another process that keeps a GPU busy leaves of it.
BUSY_FACTOR = 0.03


def _present(machine: Machine) -> Iterator[Fact]:
    """Yield what the machine has: its memory, and its GPUs as the PCI bus and the driver show them."""
    shown = [pci.address(gpu.bus_id) for gpu in machine.gpus]
    gone = [fault.where for fault in machine.faults if fault.kind is FaultKind.GONE]
    for name, value in (
        (Known.NODES_ONLINE, len(machine.numa)), (Known.NODES_WITH_CPUS, len(machine.numa)),
        (Known.NICS, ()), (Known.CONTAINER, OFF),
    ):  # fmt: skip
        yield Fact(name, value)
    yield Fact(Known.MEMORY_OF_HOST, sum(node.memory_bytes for node in machine.numa), "B")
    if shown or gone:
        yield Fact(Known.DRIVER_LOADED, ON)
        yield Fact(Known.GPUS_ON_BUS, tuple(sorted({*shown, *gone})))
        yield Fact(Known.GPUS_OF_DRIVER, tuple(shown))
        yield Fact(Known.GPUS_LOST, ())
    for address in (*shown, *gone):
        yield Fact(Known.PCI_DRIVER, "nvidia", device=address)
        yield Fact(Known.DEVICE_FILE, ON, device=address)


def healthy(machine: Machine) -> Iterator[Fact]:
    """Yield what the system of a good machine reports, for those facts that effects change."""
    cpus = sum(len(node.cpus) for node in machine.numa)
    for name, value in (
        (Known.SHM, 64.0 * GIB), (Known.MEMLOCK, "unlimited"), (Known.CPUS, cpus), (Known.CPUS_ONLINE, cpus),
        (Known.NODES_PER_SOCKET, 1), (Known.IOMMU, ("identity",)), (Known.PRESSURE, 0.0), (Known.LOAD, 0.5),
        (Known.NCCL_VARIABLES, ()), (Known.HYPERVISOR, "off"), (Known.GOVERNOR, ("performance",)),
        (Known.NUMA_BALANCING, "off"), (Known.HUGE_PAGES, "madvise"),
        (Known.NCCL_TRANSPORTS, ("P2P/CUMEM" if any(gpu.peers for gpu in machine.gpus) else "SHM/direct",)),
    ):  # fmt: skip
        yield Fact(name, value)
    yield from _present(machine)
    for node in machine.numa:
        yield Fact(Known.DIMM_BYTES, CONTROLLER_BYTES, "B", f"mc{node.index}")
    vertices = MachineVertices(machine)
    for gpu in machine.gpus:
        vertex = next((v.name for v in vertices.gpus if v.device == gpu.name), gpu.name)
        linked = any(link.kind is LinkKind.NVLINK and link.source == vertex for link in machine.links)
        generation = generation_of(machine, vertex)
        for name, value in (
            (Known.IOMMU_GROUP, "1"), (Known.SWITCH, "none"), (Known.PCIE_WIDTH, 16),
            (Known.BRIDGES, (root_port(gpu.index),)), (Known.BRIDGE_GROUPS, ("1",)),
            (Known.ACS_REDIRECTS, ()),
            (Known.PCIE_WIDTH_POSSIBLE, 16), (Known.PCIE_NARROWEST, gpu.bus_id),
            (Known.PCIE_GENERATION_POSSIBLE, generation), (Known.PCIE_GENERATION_OF_GPU, generation),
            (Known.AER, 0), (Known.AER_CORRECTED, 0), (Known.BAR1, gpu.memory_bytes),
            (Known.MEMORY, gpu.memory_bytes), (Known.NVLINKS, nvlinks_of(machine, gpu.name) if linked else 0),
            (Known.NVLINKS_INACTIVE, 0), (Known.NVLINK_ERRORS, ()), (Known.FABRIC, FABRIC_READY),
            (Known.FABRIC_HEALTH, ()), (Known.BANDWIDTH_MODE, "full"), (Known.THROTTLED, ()),
            (Known.MEMORY_CLOCK, USUAL_CLOCK_HZ), (Known.MEMORY_CLOCK_POSSIBLE, USUAL_CLOCK_HZ),
            (Known.ECC_ERRORS, 0),
            (Known.REMAP_PENDING, "off"), (Known.REMAP_FAILED, "off"), (Known.MIG, "off"),
            (Known.CONFIDENTIAL, "off"), (Known.UTILISATION, 0), (Known.PROCESSES, 0),
            (Known.NUMA_NODE, f"{gpu.numa}"), (Known.THROTTLED_TIME, 0.0), (Known.THROTTLED_BY, "nothing"),
            (Known.OBSERVED, OBSERVED_S), (Known.PCIE_RETRIED, 0), (Known.PCIE_FAILED, 0),
            (Known.NVLINK_RETRIED, 0), (Known.NVLINK_FAILED, 0), (Known.PCIE_LOADED, gpu.bus_id),
            (Known.PCIE_GENERATION_LOADED, generation), (Known.PCIE_GENERATION_LOADED_POSSIBLE, generation),
        ):  # fmt: skip
            yield Fact(name, value, device=gpu.name)
