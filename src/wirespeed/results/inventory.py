"""What a machine should have: read from options and configuration, and recorded in baselines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

import msgspec

from ..document import DEVICES, Document
from ..errors import UsageError
from ..hardware.facts import Facts, Known
from ..units import LARGEST_SIZE, format_size, parse_size

#: Largest number of devices that can be expected.
_MOST_DEVICES = 10**6


class InventoryPart(StrEnum):
    """What can be expected of each host; the value is the key of ``--expect``."""

    GPUS = "gpus"
    GPU_MODEL = "gpu-model"  #: text that the name of each GPU contains
    GPU_MEMORY = "gpu-memory"  #: bytes of each GPU
    NVLINKS = "nvlinks"  #: active NVLinks of each GPU
    NICS = "nics"  #: RDMA devices
    MEMORY = "memory"  #: bytes of the host
    CPUS = "cpus"  #: logical CPUs of the host
    NUMA = "numa"  #: NUMA nodes with CPUs

    @property
    def is_size(self) -> bool:
        """Whether it is a number of bytes."""
        return self in (InventoryPart.GPU_MEMORY, InventoryPart.MEMORY)

    def shown(self, number: float) -> str:
        """A number of it with its unit, if it is a size."""
        return format_size(number) if self.is_size else f"{number:g}"


_Number = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_SIZE)]


class Inventory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What each host of a machine should have at least.

    Attributes:
        numbers: Part -> number of devices or bytes.
        models: Texts that the name of each GPU contains.
        gpu_addresses, nic_addresses: PCI addresses of the GPUs and NICs; empty if unknown, or if they differ
            between good machines.
    """

    numbers: dict[InventoryPart, _Number] = {}
    models: tuple[str, ...] = ()
    gpu_addresses: tuple[str, ...] = ()
    nic_addresses: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[InventoryPart, ...]:
        """The parts of which something is expected."""
        return (*self.numbers, *([InventoryPart.GPU_MODEL] if self.models else ()))


def parse_inventory(text: str) -> Inventory:
    """The inventory of a text such as ``gpus=8,nvlinks=18,memory=1TiB``.

    Raises:
        UsageError: If it is not one.
    """
    numbers: dict[InventoryPart, int] = {}
    models: list[str] = []
    for item in text.split(","):
        key, _, value = (piece.strip() for piece in item.partition("="))
        keys = [str(part) for part in InventoryPart]
        if key not in keys:
            close = "".join(f" (did you mean {near!r}?)" for near in get_close_matches(key, keys, 1))
            raise UsageError(
                f"cannot expect {item.strip()!r}{close}; use KEY=VALUE with the keys {', '.join(keys)}"
            )
        part = InventoryPart(key)
        if part in numbers or (part is InventoryPart.GPU_MODEL and models):
            raise UsageError(f"{key} is expected twice in {text!r}; give it once")
        if part is InventoryPart.GPU_MODEL:
            if not value:
                raise UsageError("gpu-model needs a part of the name of the GPUs, such as gpu-model=H200")
            models.append(value)
        else:
            numbers[part] = parse_size(value) if part.is_size else _count(part, value)
    return Inventory(numbers, tuple(models))


def _count(part: InventoryPart, text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 8 and 1 <= int(text) <= _MOST_DEVICES:
        return int(text)
    raise UsageError(f"{part}={text} is not a number of devices from 1 to {_MOST_DEVICES}")


def strictest(inventories: Iterable[Inventory]) -> Inventory:
    """What fulfils all inventories: the largest numbers, and all models."""
    numbers: dict[InventoryPart, int] = {}
    models: dict[str, None] = {}
    for inventory in inventories:
        for part, number in inventory.numbers.items():
            numbers[part] = max(number, numbers.get(part, 0))
        models |= dict.fromkeys(inventory.models)
    return Inventory(numbers, tuple(models))


@dataclass(frozen=True)
class Possession:
    """What a host has, as far as a run says.

    Attributes:
        facts: The facts of the host.
        numbers: Part -> device -> number; the device is empty for what the host has. Unknown parts are
            absent.
        models: GPU -> name of its model.
        gpus: PCI addresses of the GPUs that the driver shows.
        nics: PCI address -> NIC.
    """

    facts: Facts
    numbers: Mapping[InventoryPart, Mapping[str, float]]
    models: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    nics: Mapping[str, str] = field(default_factory=dict)


def possessions(document: Document, facts: Facts) -> list[Possession]:
    """What each host of a run has; nothing for values of other tools, whose machine is assumed.

    Args:
        document: The run.
        facts: Its facts.
    """
    return [] if document.imported else [_of_host(document, host) for host in facts.of_each_host]


def _of_host(document: Document, facts: Facts) -> Possession:
    machine = document.machine if not facts.host else None  # which describes the first host
    restricted = document.options.get(DEVICES) is not None
    numbers: dict[InventoryPart, dict[str, float]] = {}
    for part, name in (
        (InventoryPart.MEMORY, Known.MEMORY_OF_HOST),
        (InventoryPart.CPUS, Known.CPUS_ONLINE),
        (InventoryPart.NUMA, Known.NODES_WITH_CPUS),
    ):
        if (number := facts.number(name)) is not None:
            numbers[part] = {"": number}
    if facts.knows(Known.NICS):
        numbers[InventoryPart.NICS] = {"": float(len(facts.several(Known.NICS)))}
    for part, name in ((InventoryPart.NVLINKS, Known.NVLINKS), (InventoryPart.GPU_MEMORY, Known.MEMORY)):
        of_gpus = {gpu: facts.number(name, gpu) for gpu in facts.devices()}
        if known := {gpu: number for gpu, number in of_gpus.items() if number is not None}:
            numbers[part] = known
    shown = facts.several(Known.GPUS_OF_DRIVER)
    if facts.knows(Known.GPUS_OF_DRIVER):
        numbers[InventoryPart.GPUS] = {"": float(len(shown))}
    elif machine and (machine.gpus or document.facts) and not restricted:
        numbers[InventoryPart.GPUS] = {"": float(len(machine.gpus))}
    elif facts.unreadable(Known.GPUS_OF_DRIVER):
        numbers[InventoryPart.GPUS] = {"": 0.0}
    if machine and not machine.ranks and InventoryPart.GPU_MEMORY not in numbers and machine.gpus:
        numbers[InventoryPart.GPU_MEMORY] = {gpu.name: float(gpu.memory_bytes) for gpu in machine.gpus}
    models = {gpu.name: gpu.model for gpu in machine.gpus} if machine else {}
    addresses = ((facts.text(Known.NIC_ADDRESS, nic), nic) for nic in facts.several(Known.NICS))
    return Possession(facts, numbers, models, shown, {address: nic for address, nic in addresses if address})


def recorded(runs: Iterable[list[Possession]]) -> Inventory:
    """The inventory of good machines: what all of them have.

    Raises:
        UsageError: If they have different numbers of devices, so that one of them is not good.
    """
    hosts = [host for run in runs for host in run]
    numbers: dict[InventoryPart, int] = {}
    for part in InventoryPart:
        of_hosts = [list(host.numbers[part].values()) for host in hosts if part in host.numbers]
        values = [value for of_host in of_hosts for value in of_host]
        if not values or min(values) < 1:
            continue
        if min(values) != max(values) and not part.is_size:
            raise UsageError(
                f"the runs differ in {part}, from {part.shown(min(values))} to {part.shown(max(values))}; "
                "omit the runs that are not of good machines"
            )
        numbers[part] = int(min(values))
    return Inventory(numbers, (), _common(host.gpus for host in hosts), _common(host.nics for host in hosts))


def _common(addresses: Iterable[Iterable[str]]) -> tuple[str, ...]:
    distinct = {tuple(sorted(of_host)) for of_host in addresses}
    return distinct.pop() if len(distinct) == 1 else ()
