"""What the backend asks of a library that monitors GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ...devices.gpu import Gpu
from ...quantities import State
from ...units import format_size
from ..pci import LinkSpeed


class Monitor(Protocol):
    """A library that reports the state of GPUs."""

    def state(self, gpu: Gpu) -> State:
        """The readings that affect the speed of a GPU."""
        ...

    def counters(self, gpu: Gpu) -> State:
        """The counters of errors that take too long to be read during measurements."""
        ...

    def processes(self, gpu: Gpu) -> dict[int, int | None]:
        """The processes that compute on a GPU: ID -> bytes of its memory; None if not known."""
        ...

    def free_memory(self, gpu: Gpu) -> tuple[int, int] | None:
        """The free and all bytes of the memory of a GPU; None if not known."""
        ...

    def pcie(self, gpu: Gpu) -> LinkSpeed | None:
        """The speed of the PCIe link of a GPU, and what GPU and system support."""
        ...

    def close(self) -> None:
        """Release the library."""


def process_name(pid: int, used: int | None = None) -> str:
    """A process by name, if visible, and ID, with the bytes that it uses, if known."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # in another container, or ended
        name = "a process"
    return f"{name} (PID {pid}{f', {format_size(used)}' if used else ''})"
