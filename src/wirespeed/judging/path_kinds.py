"""The kinds of paths that data moves along, and which testcases measure each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..devices import added
from ..devices.gpu import GPU
from ..devices.kind import DeviceKind
from ..devices.numa import NUMA


@dataclass(frozen=True)
class PathKind:
    """What data moves along.

    Attributes:
        name: Name for programs.
        title: Name for people.
        prefixes: Prefixes of the names of its testcases.
        key_figures: Testcases of its key figure; the first group that was measured counts. Empty without a
            key figure.
        device: Kind of the devices at its ends; empty if it uses all at once.
    """

    name: str
    title: str
    prefixes: tuple[str, ...] = ()
    key_figures: tuple[tuple[str, ...], ...] = ()
    device: str = ""

    def __str__(self) -> str:
        return self.title


HOST_GPU = PathKind(
    "host_gpu",
    "host ↔ GPU",
    ("host_to_device", "device_to_host", "all_to_host", "host_to_all", "host_device"),
    (("host_to_device_memcpy_ce", "device_to_host_memcpy_ce"),
     ("host_to_device_memcpy_sm", "device_to_host_memcpy_sm")),
    GPU.name,
)  # fmt: skip
GPU_GPU = PathKind(
    "gpu_gpu",
    "GPU ↔ GPU",
    ("device_to_device", "all_to_one", "one_to_all"),
    (("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"),
     ("device_to_device_memcpy_read_sm", "device_to_device_memcpy_write_sm")),
    GPU.name,
)  # fmt: skip
GPU_MEMORY = PathKind("gpu_memory", "GPU memory", GPU.testcases, GPU.key_figures, GPU.name)
HOST_MEMORY = PathKind("host_memory", "host memory", NUMA.testcases, NUMA.key_figures, NUMA.name)
COLLECTIVES = PathKind(
    "collectives", "collectives", (), (("all_reduce",), ("all_gather",), ("reduce_scatter",), ("alltoall",))
)
PROCESSES = PathKind(
    "processes",
    "between processes",
    ("multinode", "message", "sharing"),
    (("multinode_device_to_device_memcpy_read_ce", "multinode_device_to_device_memcpy_write_ce"),),
    GPU.name,
)
OTHER = PathKind("other", "other")


def path_kinds() -> tuple[PathKind, ...]:
    """Return all kinds of paths, in the order in which people see them."""
    of_added = [path for kind in added() for path in _paths_of(kind)]
    return HOST_GPU, GPU_GPU, GPU_MEMORY, HOST_MEMORY, COLLECTIVES, PROCESSES, *of_added, OTHER


def _paths_of(kind: DeviceKind) -> tuple[PathKind, PathKind]:
    """Return the paths of a kind of device of another package: with the host, and its memory."""
    with_host = (f"{kind.name}_from_host", f"{kind.name}_to_host")
    return (
        PathKind(f"host_{kind.name}", f"host ↔ {kind.words[0]}", with_host, (with_host,), kind.name),
        PathKind(
            f"{kind.name}_memory",
            f"{kind.words[0]} memory",
            kind.testcases or (f"{kind.name}_",),
            kind.key_figures,
            kind.name,
        ),
    )


@lru_cache(maxsize=1024)
def path_kind(testcase: str, *, collective: bool = False) -> PathKind:
    """Return the kind of path of a testcase, by its name."""
    if collective:
        return COLLECTIVES
    return next(
        (kind for kind in path_kinds() if kind.prefixes and testcase.startswith(kind.prefixes)), OTHER
    )
