"""Noise of simulated times, at the levels at which times vary: samples, rounds, runs, and slow changes.

Faults of simulated machines: parsing, and the effect of link faults on a machine.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from ...errors import MachineError, UsageError
from ...faults import Fault, FaultKind
from ...hardware.effects import EFFECTS
from ...hardware.topology import Machine
from ...units import parse_fraction, parse_size
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
    if name == FaultKind.SLOW and amount:
        kind, where = name, f"{where}={amount}"
    if name in EFFECTS and kind != FaultKind.BUSY:
        return _cause(name, where, amount, text, machine)
    kinds = [kind for kind in FaultKind if kind is not FaultKind.CAUSE]
    if kind not in kinds:
        raise MachineError(f"unknown simulated fault {kind!r}; choose from {', '.join([*kinds, *EFFECTS])}")
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
    """The machine as it behaves: with the faults applied to its links."""
    for fault in machine.faults:
        effect = EFFECTS.get(fault.cause)
        if effect and (collectives or not effect.collectives):
            machine = effect.apply(machine, fault.where, effect.factor(machine, fault.where, fault.factor))
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
    return replace(machine, links=tuple(link for i, link in enumerate(links) if i not in down))
