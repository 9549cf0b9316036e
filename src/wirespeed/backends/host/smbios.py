"""The memory modules in the SMBIOS table of a host's firmware (DMTF DSP0134, System Management BIOS Reference
Specification 3.7, sections 6.1.2: structures, 7.1: type 0, 7.18: type 17). The table is not trusted: lengths
are checked, and what does not fit is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ...units import KIB, MIB

#: Largest speed that is believed, in millions of transfers per second; the slowest DDR3 has 800.
SPEEDS = range(400, 20_000)
_BIOS, _MODULE, _END = 0, 17, 127
#: Bytes of the header of a structure: type, length, handle.
_HEADER = 4
#: Largest number of structures that is read; a server has some hundreds.
_MOST_STRUCTURES = 4096
#: Bytes of a type 17 structure that are kept: all up to the extended configured speed.
_KEPT = 0x5C
#: Fields of type 17 that refer to texts: places, maker, serial number, asset tag, part number, firmware.
_TEXTS = (0x10, 0x11, 0x17, 0x18, 0x19, 0x1A, 0x2B)
#: Types of memory whose modules are channels of 64 bits. Source: 7.18.2.
_TYPES = {0x18: "DDR3", 0x1A: "DDR4", 0x22: "DDR5"}
#: Technologies of persistent memory, which is slower than its channel. Source: 7.18.6.
_PERSISTENT = (0x05, 0x06, 0x07)
#: Second extension byte of the BIOS structure, and its bit for a virtual machine. Source: 7.1.2.2.
_EXTENSION, _VIRTUAL = 0x13, 1 << 4
_WIDTHS = (64, 32)
_UNKNOWN, _EXTENDED = 0xFFFF, 0x7FFF


@dataclass(frozen=True)
class Module:
    """A memory module that is plugged in.

    Attributes:
        bytes: Size.
        kind: Kind of memory, e.g. ``DDR5``; empty if it is none whose modules are channels.
        transfers: Configured speed in millions of transfers per second; None if unknown.
        width: Bits of data, without those for error correction.
    """

    bytes: int
    kind: str
    transfers: int | None
    width: int


@dataclass(frozen=True)
class Modules:
    """What the table says about memory.

    Attributes:
        virtual: Whether the table describes a virtual machine, whose modules are invented.
        modules: The modules that are plugged in.
    """

    virtual: bool
    modules: tuple[Module, ...]


def modules(table: bytes) -> Modules:
    """The memory modules of a table."""
    virtual, installed = False, []
    for kind, body in _structures(table):
        if kind == _BIOS and len(body) > _EXTENSION:
            virtual = bool(body[_EXTENSION] & _VIRTUAL)
        elif kind == _MODULE and (module := _module(body)):
            installed.append(module)
    return Modules(virtual, tuple(installed))


def reduced(table: bytes) -> bytes:
    """A table with what ``modules`` needs, without texts and serial numbers."""
    parts = []
    for kind, body in _structures(table):
        if kind not in (_BIOS, _MODULE):
            continue
        kept = bytearray(body[:_KEPT])
        kept[1] = len(kept)
        for place in _TEXTS if kind == _MODULE else ():
            if place < len(kept):
                kept[place] = 0
        if kind == _BIOS:
            kept = bytearray(_HEADER) + bytearray(len(kept) - _HEADER)
            kept[1] = len(kept)
            if len(body) > _EXTENSION:
                kept[_EXTENSION] = body[_EXTENSION]
        parts.append(bytes(kept) + b"\0\0")
    return b"".join((*parts, bytes((_END, _HEADER, 0, 0, 0, 0))))


def _structures(table: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and formatted part of each structure, until the end or the first one that does not fit."""
    at = 0
    for _ in range(_MOST_STRUCTURES):
        header = table[at : at + _HEADER]
        if len(header) < _HEADER or header[1] < _HEADER or at + header[1] > len(table):
            return
        kind, length = header[0], header[1]
        yield kind, table[at : at + length]
        texts_end = table.find(b"\0\0", at + length)
        if kind == _END or texts_end < 0:
            return
        at = texts_end + 2


def _module(body: bytes) -> Module | None:
    """A memory module; None if its slot is empty or its size is unknown."""
    size = _field(body, 0x0C, "<H")
    if size is None or size in (0, _UNKNOWN):
        return None
    if size == _EXTENDED:
        large = _field(body, 0x1C, "<I")
        bytes_ = (large & 0x7FFFFFFF) * MIB if large else 0
    else:
        bytes_ = (size & 0x7FFF) * (KIB if size & 0x8000 else MIB)
    if not bytes_:
        return None
    technology = _field(body, 0x28, "<B")
    kind = "" if technology in _PERSISTENT else _TYPES.get(_field(body, 0x12, "<B") or 0, "")
    width = _field(body, 0x0A, "<H")
    return Module(bytes_, kind, _speed(body), width if width in _WIDTHS else _WIDTHS[0])


def _speed(body: bytes) -> int | None:
    """The configured speed; the maximum speed of the module, which may be higher, is not used."""
    speed = _field(body, 0x20, "<H")
    if speed == _UNKNOWN:
        speed = _field(body, 0x58, "<I")
    return speed if speed in SPEEDS else None


def _field(body: bytes, offset: int, layout: str) -> int | None:
    """A number; None if the structure is too short for it."""
    if offset + struct.calcsize(layout) > len(body):
        return None
    (value,) = struct.unpack_from(layout, body, offset)
    return int(value)
