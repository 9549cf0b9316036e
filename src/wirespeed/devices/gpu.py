"""GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..model import Engine, MemoryKind
from .kind import DeviceKind, DeviceRecord


@dataclass(frozen=True)
class Gpu(DeviceRecord):
    """A GPU.

    Attributes:
        index: Number of the GPU.
        model: Name of the product.
        bus_id: PCI bus ID.
        memory_bytes: Size of the memory.
        numa: Index of the nearest NUMA node.
        multiprocessors: Number of streaming multiprocessors.
        compute_capability: CUDA compute capability, e.g. ``9.0``.
        peers: Names of the GPUs whose memory it can access.
        backend: Backend that discovered and measures it; empty if it was described by hand.
        uuid: UUID, as ``nvidia-smi -L`` shows it; empty if unknown.
    """

    prefix: ClassVar[str] = "gpu"
    index: int
    model: str
    bus_id: str = ""
    memory_bytes: int = 0
    numa: int = 0
    multiprocessors: int = 0
    compute_capability: str = ""
    peers: tuple[str, ...] = ()
    backend: str = ""
    uuid: str = ""

    @property
    def has_bulk_copy(self) -> bool:
        """Whether its kernels support bulk asynchronous copies (compute capability 9.0 and later)."""
        major = self.compute_capability.partition(".")[0]
        return major.isdecimal() and int(major) >= 9

    @property
    def about(self) -> str:
        return self.model.removeprefix("NVIDIA ")

    @property
    def node(self) -> int:
        return self.numa


GPU = DeviceKind(
    name="gpu",
    words=("GPU", "GPUs"),
    record=Gpu,
    memories=(MemoryKind.DEVICE,),
    engines=(Engine.CE, Engine.SM, Engine.SM_BULK, Engine.SM_SPLIT),
    key_figures=(("device_stream_triad",), ("device_stream_copy",), ("device_local_copy",)),
    testcases=("device_local", "device_stream", "device_saxpy"),
    ranks=True,
)
