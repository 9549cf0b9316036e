"""The data sheets of GPUs in ``gpus.toml``."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files

import msgspec

from ..units import GB, MB


class GpuSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``gpus.toml``; the comments there describe the fields."""

    models: tuple[str, ...]
    memory_mib: int
    capability: str
    multiprocessors: int
    source: str
    memory: tuple[int, int] | None = None
    nvlink: float = 0.0
    links: tuple[int, ...] = ()
    switch: bool = False
    pcie: int = 0
    c2c: tuple[float, ...] = ()

    @property
    def memory_rate(self) -> tuple[float | None, str]:
        """Line rate of the memory in B/s, and its origin."""
        if self.memory is None:
            return None, "unknown"
        clock, width = self.memory
        return clock * MB * 2 * width / 8, f"{clock} MHz x 2 x {width} bit"

    def nvlinks(self, count: int) -> float:
        """Return the line rate of some NVLinks together, in B/s."""
        return count * self.nvlink * GB


@lru_cache(maxsize=1)
def sheets() -> dict[str, GpuSheet]:
    """Return the data sheets by the name of their machines."""
    text = files(__package__).joinpath("gpus.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, GpuSheet])


def sheet_of(model: str) -> tuple[str, GpuSheet] | None:
    """Return name and data sheet for a model as the driver reports it; None if there is none."""
    for vendor in ("NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "HGX "):
        model = model.removeprefix(vendor)
    return next(((name, sheet) for name, sheet in sheets().items() if model in sheet.models), None)
