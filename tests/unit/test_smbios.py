"""The table of memory modules: what is read of it, what is recorded, and that nothing in it harms."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.backends.host.smbios import Module, modules, reduced
from wirespeed.units import GIB, KIB, MIB

SERIAL = b"SECRET-SERIAL"
DDR4, DDR5, HBM2 = 0x1A, 0x22, 0x21


def structure(kind: int, body: bytes, *texts: bytes) -> bytes:
    """A structure with its texts, as firmware writes it."""
    strings = b"\0".join(texts) + b"\0\0" if texts else b"\0\0"
    return struct.pack("<BBH", kind, 4 + len(body), 0) + body + strings


def module(
    mib: int = 32768,
    speed: int = 4800,
    kind: int = DDR5,
    width: int = 64,
    technology: int = 3,
    size: int = 0x5C,
) -> bytes:
    """A structure of type 17; ``speed`` is the configured one, the module could do more."""
    body = bytearray(0x5C)
    large = mib >= 0x7FFF
    struct.pack_into("<HHH", body, 0x08, 80, width, 0x7FFF if large else mib)
    body[0x10], body[0x12], body[0x18] = 1, kind, 2
    struct.pack_into("<HIH", body, 0x15, 5600, 0, 0)
    body[0x17], body[0x18], body[0x1A] = 1, 2, 1
    struct.pack_into("<I", body, 0x1C, mib if large else 0)
    fast = speed >= 0xFFFF
    struct.pack_into("<H", body, 0x20, 0xFFFF if fast else speed)
    struct.pack_into("<I", body, 0x58, speed if fast else 0)
    body[0x28] = technology
    return structure(17, bytes(body[4:size]), b"P0 CHANNEL A", SERIAL)


def bios(*, virtual: bool = False) -> bytes:
    body = bytearray(0x18)
    body[0x13] = 0x10 if virtual else 0
    return structure(0, bytes(body[4:]), b"A maker", SERIAL)


END = structure(127, b"")


def table(*parts: bytes) -> bytes:
    return b"".join((bios(), structure(2, b"\1\2\3\4", SERIAL), *parts, END))


def test_modules_that_are_plugged_in_are_read() -> None:
    found = modules(table(module(), module(0), module(8192, 3200, DDR4, 64), structure(16, bytes(11))))
    assert not found.virtual
    assert found.modules == (Module(32 * GIB, "DDR5", 4800, 64), Module(8 * GIB, "DDR4", 3200, 64))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (module(65536), Module(64 * GIB, "DDR5", 4800, 64)),  # in the extended field
        (module(0x8000 | 512), Module(32 * GIB + 512 * MIB, "DDR5", 4800, 64)),
        (module(speed=70000), Module(32 * GIB, "DDR5", None, 64)),  # faster than anything
        (module(speed=0), Module(32 * GIB, "DDR5", None, 64)),
        (module(kind=HBM2), Module(32 * GIB, "", 4800, 64)),
        (module(technology=7), Module(32 * GIB, "", 4800, 64)),  # persistent
        (module(width=32), Module(32 * GIB, "DDR5", 4800, 32)),
        (module(width=7777), Module(32 * GIB, "DDR5", 4800, 64)),
        (
            module(8192, size=0x1B),
            Module(8 * GIB, "DDR5", None, 64),
        ),  # of an old version, without later fields
    ],
)
def test_sizes_speeds_and_kinds(part: bytes, expected: Module) -> None:
    assert modules(table(part)).modules == (expected,)


def test_sizes_in_kib() -> None:
    small = bytearray(module(4096))
    struct.pack_into("<H", small, 0x0C, 0x8000 | 1024)
    assert modules(table(bytes(small))).modules[0].bytes == 1024 * KIB


@pytest.mark.parametrize("part", [module(0), module(0xFFFF)[:0x0C] + b"\xff\xff" + module()[0x0E:]])
def test_empty_and_unknown_slots_are_no_modules(part: bytes) -> None:
    assert modules(table(part)).modules == ()


def test_a_virtual_machine_is_recognised() -> None:
    assert modules(bios(virtual=True) + module() + END).virtual


def test_what_is_recorded_says_the_same_and_nothing_private() -> None:
    whole = table(*[module() for _ in range(12)], module(0), module(8192, 3200, DDR4))
    kept = reduced(whole)
    assert modules(kept) == modules(whole) and reduced(kept) == kept
    assert SERIAL not in kept and b"CHANNEL" not in kept and b"maker" not in kept
    assert modules(reduced(bios(virtual=True) + END)).virtual


@pytest.mark.parametrize(
    "hostile",
    [
        b"", b"\x11", b"\x11\x00\x00\x00", b"\x11\x03\x00\x00" * 100, b"\x11\xff\x00\x00", b"\0" * 70000,
        module()[:40], module()[:-1], END, structure(17, b""), b"\x11\x04\x00\x00\0\0" * 100_000,
        structure(17, bytes(200), b"x" * 70000)[:300],
    ],
    ids=range(12),
)  # fmt: skip
def test_hostile_tables_do_no_harm(hostile: bytes) -> None:
    assert len(modules(hostile).modules) <= 1
    assert modules(reduced(hostile)) == modules(hostile)


def test_the_number_of_structures_is_bounded() -> None:
    assert len(modules(module() * 10_000).modules) <= 4096


@given(st.binary(max_size=600))
@settings(max_examples=200)
def test_any_bytes_can_be_read(content: bytes) -> None:
    assert modules(reduced(content)) == modules(content)


def test_damaged_tables_can_be_read() -> None:
    chance = random.Random(0)
    whole = table(*[module() for _ in range(4)])
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        found = modules(bytes(damaged[: chance.randrange(len(damaged))]))
        assert all(one.bytes > 0 and one.width in (32, 64) for one in found.modules)
