"""What there is to know about a kind of device: one record, of which each kind has one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..model import Engine, MemoryKind


class DeviceRecord:
    """Base of the records that describe one device in a Machine: frozen dataclasses.

    Attributes:
        prefix: Name of its kind, and the beginning of its own: ``gpu``.
        index: Number of the device.
        memory_bytes: Size of its memory.
    """

    prefix: ClassVar[str]
    index: int
    memory_bytes: int

    @property
    def name(self) -> str:
        """Name of its Memory and its Executor: ``gpu0``."""
        return f"{self.prefix}{self.index}"

    @property
    def about(self) -> str:
        """What distinguishes it, in a few words: its model."""
        return self.name

    @property
    def node(self) -> int | None:
        """Index of the NUMA node to which it is attached; None if unknown, or if it is one."""
        return None


@dataclass(frozen=True)
class Picture:
    """How drawings of a machine show a device of a kind.

    Attributes:
        width, height: Maximum width and height of its box, in pixels.
        radius: Radius of the corners, in pixels.
        css: CSS classes of the box.
    """

    width: float = 190.0
    height: float = 62.0
    radius: float = 9.0
    css: str = "box"


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device.

    Attributes:
        name: Name of the kind, of lower-case letters; the names of its devices are this and a number:
            ``gpu0``. All of its devices are ``gpus`` in the language of transfers.
        words: What people call one of its devices, and several.
        record: Class of the records of its devices in a Machine, and in its JSON.
        memories: How its memory is allocated; the default first.
        engines: Engines of its executors, the default first; empty if it executes no transfers.
        key_figures: Testcases whose typical value is the key figure of its memory; the first group that was
            measured counts.
        testcases: Prefixes of the names of the testcases of its memory; empty for those that every kind has.
        ranks: Whether a process of a job can own one.
        picture: How drawings show it.
    """

    name: str
    words: tuple[str, str]
    record: type[DeviceRecord]
    memories: tuple[MemoryKind, ...]
    engines: tuple[Engine, ...]
    key_figures: tuple[tuple[str, ...], ...]
    testcases: tuple[str, ...] = ()
    ranks: bool = False
    picture: Picture = Picture()

    @property
    def is_host(self) -> bool:
        """Whether its memory is that of CPUs, which are its executors."""
        return Engine.CPU in self.engines
