"""The data sheets of CPUs in ``cpus.toml``."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Annotated

import msgspec

from ..units import GB, MB, NANO
from . import READING

#: Bytes of a memory channel, and of a module.
CHANNEL_BYTES = 8
#: A virtual machine with more than this part of a socket's CPUs may have been given parts of two.
_LARGE = 4
#: Names of the models that QEMU imitates, whatever the host is. Source: target/i386/cpu.c of QEMU.
_IMITATED = re.compile(r"QEMU|KVM processor|EPYC-[A-Z]|^Intel (?!\(R\)).*Processor \(|^Westmere|^Intel Xeon")


class CpuSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``cpus.toml``; the comments there describe the fields."""

    names: tuple[str, ...]
    channels: int
    transfers: tuple[int, int]
    cpus: int
    second_kib: int
    nanoseconds: Annotated[tuple[float, ...], msgspec.Meta(min_length=5, max_length=5)]
    source: str
    vendor: str = ""
    family: int = 0
    models: tuple[int, ...] = ()
    several: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it is of one design, not the widest of several."""
        return not self.several

    @property
    def slowest(self) -> float:
        """Rate of a socket's memory with the slowest common modules, in B/s."""
        return self.channels * self.transfers[0] * MB * CHANNEL_BYTES

    @property
    def fastest(self) -> float:
        """Rate of a socket's memory with the fastest supported modules, in B/s."""
        return self.channels * self.transfers[1] * MB * CHANNEL_BYTES

    def cache(self, level: int) -> float | None:
        """Return the typical time of a dependent load from a cache, in s; None for an unknown level."""
        return self.nanoseconds[level - 1] * NANO if 1 <= level <= 3 else None

    def sockets(self, cpus: int) -> int:
        """Return how many sockets some CPUs of a virtual machine may be spread over without showing it."""
        return 2 if cpus > self.cpus / _LARGE else 1

    @property
    def local(self) -> float:
        """Typical time of a dependent load from the memory of the own socket, in s."""
        return self.nanoseconds[3] * NANO

    @property
    def remote(self) -> float:
        """Typical time of a dependent load from the memory of another socket, in s."""
        return self.nanoseconds[4] * NANO


class Factors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``factors`` of ``cpus.toml``; rates are in GB/s there."""

    warn: float
    fail: float
    loaded: float
    virtual: float
    lowest_share: float
    lowest_line: float
    typical_share: float
    lowest_core: float
    typical_core: float
    lowest_remote: float
    lowest_link: float
    source: str

    def core(self, *, typical: bool = False) -> float:
        """Return the lowest or typical rate of one CPU, in B/s."""
        return (self.typical_core if typical else self.lowest_core) * GB

    def remote(self, cpus: float) -> float:
        """Return the lowest rate of some CPUs that copy between sockets, in B/s."""
        return min(cpus * self.lowest_remote, self.lowest_link) * GB


@lru_cache(maxsize=1)
def _tables() -> tuple[Factors, dict[str, CpuSheet]]:
    text = tomllib.loads(files(__package__).joinpath("cpus.toml").read_text())
    with READING:
        factors = msgspec.convert(text.pop("factors"), Factors)
        return factors, msgspec.convert(text, dict[str, CpuSheet])


def factors() -> Factors:
    """How ranges follow from typical values: the table ``factors`` of ``cpus.toml``."""
    return _tables()[0]


def cpu_sheets() -> dict[str, CpuSheet]:
    """The data sheets by the name of the design."""
    return _tables()[1]


def cpu_sheet(name: str, design: str = "") -> tuple[str, CpuSheet] | None:
    """Return name and data sheet of a CPU's design; None if there is none.

    Args:
        name: Name of the CPU, as the kernel reports it.
        design: Vendor, family and model of an x86 CPU; empty if unknown. Where they are known, a name counts
            only for designs that they do not tell apart.
    """
    if _IMITATED.search(name):
        return None
    named = _by_name(name)
    if not design or (named and not named[1].vendor and named[1].is_exact):
        return named
    exact = (
        (title, sheet)
        for title, sheet in cpu_sheets().items()
        for model in sheet.models
        if design == f"{sheet.vendor} {sheet.family} {model}"
    )
    return next(exact, None)


def _by_name(name: str) -> tuple[str, CpuSheet] | None:
    return next(
        (
            (title, sheet)
            for title, sheet in cpu_sheets().items()
            if any(fnmatchcase(name, pattern) for pattern in sheet.names)
        ),
        None,
    )
