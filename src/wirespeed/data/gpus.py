"""The data sheets of GPUs in ``gpus.toml``."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..units import GB
from . import READING

#: Words before the model that not every driver and tool prints.
_VENDORS = ("nvidia", "tesla", "geforce", "quadro", "hgx")


class GpuSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of ``gpus.toml``; the comments there describe the fields."""

    models: tuple[str, ...]
    memory_mib: int
    capability: str
    source: str
    multiprocessors: int = 0
    memory: tuple[float, ...] = ()
    nvlink: float = 0.0
    links: tuple[int, ...] = ()
    switch: bool = False
    all_links: tuple[int, ...] = ()
    many_hosts: bool = False
    pcie: int = 0
    lanes: int = 16
    c2c: tuple[float, ...] = ()
    desktop: bool = False

    @property
    def memory_rates(self) -> tuple[float, ...]:
        """Possible line rates of the memory in B/s, in ascending order; empty if unknown."""
        return tuple(rate * GB for rate in self.memory)

    def nvlinks(self, count: int) -> float:
        """Return the line rate of some NVLinks together, in B/s."""
        return count * self.nvlink * GB


@lru_cache(maxsize=1)
def sheets() -> dict[str, GpuSheet]:
    """Return the data sheets by the name of their machines."""
    text = files(__package__).joinpath("gpus.toml").read_text()
    with READING:
        parts = msgspec.convert(tomllib.loads(text), dict[Literal["server", "desktop"], dict[str, GpuSheet]])
    return parts["server"] | {name: replace(sheet, desktop=True) for name, sheet in parts["desktop"].items()}


@lru_cache(maxsize=1)
def _by_model() -> dict[str, str]:
    """Return the name of the data sheet of each model, in lower case."""
    return {model.lower(): name for name, sheet in sheets().items() for model in sheet.models}


def sheet_of(model: str) -> tuple[str, GpuSheet] | None:
    """Return name and data sheet for a model as drivers and tools print it; None if there is none.

    Parts of a GPU, such as those of MIG, have none.
    """
    words = model.lower().split()
    while words and words[0] in _VENDORS:
        del words[0]
    name = _by_model().get(" ".join(words))
    return (name, sheets()[name]) if name else None
