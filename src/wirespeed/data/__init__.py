"""Tables with their sources, and what reads them."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files

import msgspec

from ..model import Access, Engine
from ..topology import EngineRate, LinkKind


class _Range(msgspec.Struct, forbid_unknown_fields=True):
    """One table of ``efficiencies.toml``, which says what the fields are."""

    link: LinkKind
    engines: tuple[Engine, ...]
    lowest: float
    typical: float
    source: str
    access: Access | None = None
    reverse: float = 0.0
    caps: tuple[float, float] | None = None


@lru_cache(maxsize=1)
def efficiencies() -> tuple[tuple[EngineRate, ...], tuple[EngineRate, ...]]:
    """Return how engines use links at the least on a machine that is well, and typically."""
    text = files(__package__).joinpath("efficiencies.toml").read_text()
    ranges = msgspec.convert(tomllib.loads(text)["range"], tuple[_Range, ...])

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
