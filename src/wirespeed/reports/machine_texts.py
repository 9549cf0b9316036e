"""What a machine consists of, as all reports say it."""

from __future__ import annotations

from collections import Counter

from ..hardware.topology import Machine
from ..units import format_size, many


def hosts(machine: Machine) -> list[str]:
    """CPU, and cores with their memory, as far as they are known."""
    cores = sum(len(node.cores) for node in machine.numa)
    memory = format_size(sum(node.memory_bytes for node in machine.numa))
    size = f"{many(cores, 'core')}, {memory}, {many(len(machine.numa), 'NUMA node')}"
    return [*filter(None, [machine.cpu]), *([size] if cores else [])]


def devices(machine: Machine) -> list[str]:
    """The number of GPUs of each model, and of devices of other kinds."""
    models = Counter(gpu.model for gpu in machine.gpus)
    others = [count for kind, count in machine.counts.items() if kind.name in machine.others]
    return [*(f"{count} x {model}" for model, count in models.items()), *others]


def ranks(machine: Machine) -> list[str]:
    """The number of ranks of a job."""
    count = len({rank.host for rank in machine.ranks})
    return [f"{many(len(machine.ranks), 'rank')} on {many(count, 'host')}"] if count else []


def components(machine: Machine) -> str:
    """All of them in one line."""
    return " · ".join([*hosts(machine), *devices(machine), *ranks(machine)])
