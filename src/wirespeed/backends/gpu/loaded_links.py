"""The speed of the PCIe links of GPUs while data moves: an idle link sleeps at the first generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ...hardware.facts import Fact, Known
from ...hardware.topology import LinkKind, Machine
from ...model import MemoryKind, Transfer
from .. import pci
from ..system_files import HERE, TreePath
from .gpu_driver import Monitor

#: Minimum and maximum number of readings of a slow link: one may fall between two copies; each takes ms.
_MIN_READINGS, _MAX_READINGS = 3, 50


class LoadedLinks:
    """The highest speed of the slowest PCIe link of each GPU, seen while it copies from or to the host.

    Attributes:
        machine: The machine of this process.
        monitor: Returns the monitor, for links that sysfs does not show; None without one.
        root: Folder that contains ``sys``.
    """

    def __init__(self, machine: Machine, monitor: Callable[[], Monitor], root: TreePath = HERE) -> None:
        by_c2c = {link.source for link in machine.links if link.kind is LinkKind.C2C}
        self._gpus = {gpu.name: gpu for gpu in machine.gpus if gpu.name not in by_c2c}
        self._monitor, self._root = monitor, root
        self._best: dict[str, pci.LinkSpeed] = {}
        self._readings: Counter[str] = Counter()

    def observe(self, transfers: Sequence[Transfer]) -> None:
        """Read the links of the GPUs that copy from or to the host, unless full speed was seen."""
        for name in dict.fromkeys(gpu for transfer in transfers for gpu in _copies_with_host(transfer)):
            best = self._best.get(name)
            known = (best and best.share >= 1) or self._readings[name] >= _MAX_READINGS
            if known or name not in self._gpus:
                continue
            speed = self._slowest(name)
            if speed is not None:
                self._readings[name] += 1
                self._best[name] = max(filter(None, (best, speed)), key=lambda seen: seen.share)

    def _slowest(self, name: str) -> pci.LinkSpeed | None:
        gpu = self._gpus[name]
        return pci.slowest(pci.entry(gpu.bus_id, self._root)) or self._monitor().pcie(gpu)

    def facts(self) -> Iterator[Fact]:
        """Yield the speeds that were seen."""
        for name, speed in self._best.items():
            if speed.share < 1 and self._readings[name] < _MIN_READINGS:
                continue
            yield Fact(Known.PCIE_LOADED, speed.address, device=name)
            for fact, value in (
                (Known.PCIE_GENERATION_LOADED, speed.generation),
                (Known.PCIE_GENERATION_LOADED_POSSIBLE, speed.generation_possible),
                (Known.PCIE_WIDTH_LOADED, speed.width),
                (Known.PCIE_WIDTH_LOADED_POSSIBLE, speed.width_possible),
            ):
                yield Fact(fact, float(value), device=name)


def _copies_with_host(transfer: Transfer) -> Iterator[str]:
    """Yield the GPU of a transfer between host and GPU."""
    ends = (transfer.source, transfer.destination)
    gpus = [end.device for end in ends if end.kind is MemoryKind.DEVICE]
    if len(gpus) == 1:
        yield gpus[0]
