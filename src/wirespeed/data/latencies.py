"""Published latencies of GPUs, in ``latencies.toml``."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from ..topology import LinkKind
from ..units import NANO
from . import READING


class PathLatency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``latencies.toml``; the comments there describe the fields."""

    ends: Literal["host", "gpu"]
    link: LinkKind
    nanoseconds: tuple[float, float]
    source: str
    capability: int | None = None

    @property
    def typical(self) -> float:
        """Typical time of a dependent load, in s."""
        return self.nanoseconds[0] * NANO

    @property
    def most(self) -> float:
        """Time above which it is a warning, in s."""
        return self.nanoseconds[1] * NANO


class _LatencyFactors(msgspec.Struct, forbid_unknown_fields=True):
    fail: float


class _Latencies(msgspec.Struct, forbid_unknown_fields=True):
    factors: _LatencyFactors
    path: tuple[PathLatency, ...]


@lru_cache(maxsize=1)
def _read() -> _Latencies:
    with READING:
        return msgspec.convert(
            tomllib.loads(files(__package__).joinpath("latencies.toml").read_text()), _Latencies
        )


def fail_factor() -> float:
    """Return the factor above the warning at which a latency fails."""
    return _read().factors.fail


def paths() -> tuple[PathLatency, ...]:
    """All tables of ``latencies.toml``."""
    return _read().path


def path_latency(ends: str, link: LinkKind, capability: str) -> PathLatency | None:
    """Return the latency of a path; None if nothing is known of it.

    Args:
        ends: Where the memory is that a GPU reads: ``host`` or ``gpu``.
        link: Kind of the slowest link on the way.
        capability: Compute capability of the GPU, e.g. ``9.0``.
    """
    major = capability.partition(".")[0]
    return next(
        (
            path
            for path in paths()
            if path.ends == ends and path.link is link and path.capability in (None, _number(major))
        ),
        None,
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else -1
