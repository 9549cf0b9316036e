"""Data tables with their sources, and their readers."""

from __future__ import annotations

import threading
import tomllib
from functools import lru_cache
from importlib.resources import files

import msgspec

from ..hardware.topology import EngineRate, LinkKind
from ..model import Access, Engine


class _Range(msgspec.Struct, forbid_unknown_fields=True):
    """One table of ``efficiencies.toml``; the comments there describe the fields."""

    link: LinkKind
    engines: tuple[Engine, ...]
    lowest: float
    typical: float
    source: str
    access: Access | None = None
    reverse: float = 0.0
    caps: tuple[float, float] | None = None


class _Shared(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``measured_memory``."""

    lowest: float
    typical: float
    source: str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    range: tuple[_Range, ...]
    measured_memory: _Shared


#: The first use of a type by msgspec in several threads at once can crash the process.
READING = threading.Lock()


def _file() -> _File:
    with READING:
        return _read()


@lru_cache(maxsize=1)
def _read() -> _File:
    text = files(__package__).joinpath("efficiencies.toml").read_text()
    return msgspec.convert(tomllib.loads(text), _File)


def measured_memory() -> tuple[float, float]:
    """Return the minimum and typical rate of transfers that share a memory, over the CPUs' rate."""
    shares = _file().measured_memory
    return shares.lowest, shares.typical


@lru_cache(maxsize=1)
def efficiencies() -> tuple[tuple[EngineRate, ...], tuple[EngineRate, ...]]:
    """Return how engines use links on a good machine: at the low end of the range, and typically."""
    ranges = _file().range

    def rates(typical: bool) -> tuple[EngineRate, ...]:
        return tuple(
            EngineRate(
                engine,
                row.link,
                row.access,
                row.typical if typical else row.lowest,
                row.reverse,
                row.caps[typical] if row.caps else None,
                source=row.source,
            )
            for row in ranges
            for engine in row.engines
        )

    return rates(False), rates(True)
