"""NUMA nodes: memory of the host with its CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..model import Engine, MemoryKind
from ..units import format_size
from .kind import DeviceKind, DeviceRecord


@dataclass(frozen=True)
class NumaNode(DeviceRecord):
    """A NUMA node.

    Attributes:
        index: Number of the node.
        cpus: Logical CPUs that this process may use; first one per physical core, then the others.
        threads_per_core: Hardware threads per physical core; of cores with unequal numbers, the largest.
        memory_bytes, free_bytes: Size of the memory and its free part.
        distances: ACPI SLIT distances to all nodes.
        core_count: Number of physical cores, if they have unequal numbers of usable threads; else 0.
        allowed: Whether this process may use the memory.
    """

    prefix: ClassVar[str] = "numa"
    index: int
    cpus: tuple[int, ...] = ()
    threads_per_core: int = 1
    memory_bytes: int = 0
    free_bytes: int = 0
    distances: tuple[int, ...] = ()
    core_count: int = 0
    allowed: bool = True

    @property
    def cores(self) -> tuple[int, ...]:
        """One logical CPU per physical core."""
        count = self.core_count or len(self.cpus) // max(1, self.threads_per_core)
        return self.cpus[: max(1, count)] if self.cpus else ()

    @property
    def about(self) -> str:
        return f"{len(self.cores)} cores, {format_size(self.memory_bytes)}"


NUMA = DeviceKind(
    name="numa",
    words=("NUMA node", "NUMA nodes"),
    record=NumaNode,
    memories=(MemoryKind.PAGEABLE, MemoryKind.PINNED),
    engines=(Engine.CPU,),
    key_figures=(("host_stream_triad",), ("host_stream_copy",), ("numa_to_numa_memcpy_read_cpu",)),
    testcases=("numa_", "all_nodes", "host_"),
    ranks=True,
)
