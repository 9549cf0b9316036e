"""Parsing and formatting of quantities: the only module that knows 10**9 and 2**20."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import UsageError
from .measurement import Unit

KIB, MIB, GIB = 2**10, 2**20, 2**30
KB, MB, GB = 10**3, 10**6, 10**9
MICRO, NANO = 1e-6, 1e-9

_SIZES = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": KB,
    "m": MIB, "mib": MIB, "mb": MB,
    "g": GIB, "gib": GIB, "gb": GB,
    "t": 2**40, "tib": 2**40, "tb": 10**12,
}  # fmt: skip
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0, "h": 3600.0}
_AGES = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_RATES = {"B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": 10**12, "Mb": MB / 8, "Gb": GB / 8, "Tb": 10**12 / 8}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Zµ]*)\s*")
#: Width of a memory channel, in bytes.
_CHANNEL_BYTES = 8
#: Maximum size of a buffer, in bytes.
LARGEST_SIZE = 2**60
#: Maximum number of sizes of a sweep.
_MOST_SIZES = 64
_DISPLAYED = {Unit.RATE: (float(GB), "GB/s"), Unit.TIME: (NANO, "ns"), Unit.FREQUENCY: (1e6, "M/s")}


def _split(text: str, units: Mapping[str, float], kind: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    scale = units.get(match[2].lower()) if match else None
    if match is None or scale is None:
        raise UsageError(f"{text!r} is not {kind}; use e.g. {example}")
    return float(match[1]) * scale


def parse_size(text: str) -> int:
    """Parse a size in bytes, such as ``512MiB``, ``4k`` or ``1.5GB``.

    ``K M G T`` without a ``B`` are powers of 1024, as in nccl-tests; ``KB MB GB TB`` are powers of 1000.

    Raises:
        UsageError: If the text is not a size, or the size is not from 1 byte to 2**60 bytes.
    """
    value = _split(text, _SIZES, "a size", "512MiB, 64KiB or 1GB")
    if not 1 <= value <= LARGEST_SIZE:
        raise UsageError(f"size {text!r} is out of range; it must be from 1 B to 1 EiB")
    return round(value)


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes that a text such as ``4KiB:1GiB``, ``4KiB:1GiB:x4`` or ``1MiB,3MiB`` stands for.

    A range grows by the factor behind the last colon, 2 where there is none; its end is included
    if the factor hits it.

    Raises:
        UsageError: If it is neither, or more than 64 sizes.
    """
    first, *rest = text.split(":")
    if not rest:
        sizes = tuple(parse_size(part) for part in text.split(","))
    else:
        factor_text = rest[1] if len(rest) > 1 else "x2"
        factor = factor_text.removeprefix("x")
        if len(rest) > 2 or not factor_text.startswith("x") or not factor.isdecimal() or int(factor) < 2:
            raise UsageError(f"{text!r} is not a range of sizes; write it like 4KiB:1GiB:x4 or 1MiB,3MiB")
        size, last, grown = parse_size(first), parse_size(rest[0]), list[int]()
        while size <= last and len(grown) <= _MOST_SIZES:
            grown.append(size)
            size *= int(factor)
        sizes = tuple(grown)
    if not 1 <= len(sizes) <= _MOST_SIZES:
        count = len(sizes) if sizes else "no"
        raise UsageError(f"{text!r} is a range of {count} sizes; give from 1 to {_MOST_SIZES}")
    return sizes


def parse_rate(text: str) -> float:
    """Parse a rate in B/s, such as ``48 GB/s``, ``2333 MB/s`` or ``400 Gb/s`` (bits).

    Raises:
        UsageError: If the text is not a rate, or the rate is not above 0 and at most 1e15 B/s.
    """
    match = _QUANTITY.fullmatch(text.removesuffix("/s")) if text.endswith("/s") else None
    value = float(match[1]) * _RATES.get(match[2], 0) if match else 0.0
    if not 0 < value <= 1e15:
        raise UsageError(f"{text!r} is not a rate; use e.g. 48 GB/s, 1905000 MB/s or 400 Gb/s")
    return value


def parse_memory(text: str) -> float:
    """Parse the capacity of a memory in B/s: channels x MT/s of 8 bytes each (``8x4800``), or a rate.

    Raises:
        UsageError: If the text is neither.
    """
    match = re.fullmatch(r"(\d{1,3})x(\d{3,5})", text)
    if match and int(match[1]) and int(match[2]):
        return int(match[1]) * int(match[2]) * 1e6 * _CHANNEL_BYTES
    try:
        return parse_rate(text)
    except UsageError:
        raise UsageError(
            f"{text!r} is not a memory rate; give channels x MT/s, such as 8x4800, or 307 GB/s"
        ) from None


@dataclass(frozen=True)
class Nics:
    """The NICs of a host.

    Attributes:
        rate: Rate of all of them in one direction, in B/s.
        count: Number of NICs; 0 if unknown.
    """

    rate: float
    count: int = 0


def parse_nics(text: str) -> Nics:
    """Parse the NICs of a host: number x Gb/s (``8x400G``), or the rate of all of them.

    Raises:
        UsageError: If the text is neither.
    """
    match = re.fullmatch(r"(\d{1,3}) ?[xX] ?(\d{1,5}(?:\.\d{1,3})?) ?[gG](?:b/s|bps|bit/s)?", text.strip())
    if match and int(match[1]) and float(match[2]):
        return Nics(int(match[1]) * float(match[2]) * GB / 8, int(match[1]))
    try:
        return Nics(parse_rate(text))
    except UsageError:
        raise UsageError(
            f"{text!r} is not a number and rate of NICs; write it like 8x400G (Gb/s each) or 400 GB/s"
        ) from None


def parse_duration(text: str) -> float:
    """Parse a duration in seconds, such as ``5s``, ``200ms`` or ``2min``."""
    return _seconds(text, _TIMES, "a duration", "5s, 200ms or 2min")


def parse_age(text: str) -> float:
    """Parse a maximum age in seconds, such as ``2d``, ``12h`` or ``90min``."""
    return _seconds(text, _AGES, "an age", "2d, 12h or 90min")


def _seconds(text: str, units: Mapping[str, float], what: str, example: str) -> float:
    value = _split(text, units, what, example)
    if not 0 < value <= 1e9:
        what = what.partition(" ")[2]
        raise UsageError(f"{what} {text!r} is out of range; it must be more than 0 and at most 1e9 s")
    return value


def parse_fraction(text: str) -> float:
    """Parse a fraction, ``0.5%`` or ``0.005``, above 0 and below 1."""
    percent = text.strip().endswith("%")
    value = _split(text.strip().removesuffix("%"), {"": 1.0}, "a fraction", "0.5% or 0.005")
    value = value / 100 if percent else value
    if not 0 < value < 1:
        meant = f" (did you mean {text.strip()}%?)" if not percent and 1 <= value < 100 else ""
        raise UsageError(
            f"fraction {text!r} is out of range{meant}; it must be more than 0% and less than 100%"
        )
    return value


def format_size(size: float) -> str:
    """Format a size with a binary unit: ``512 MiB``, ``4 KiB``, ``1.5 GiB``."""
    for scale, unit in ((2**40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.4g} B"


def format_quantity(value: float, unit: str) -> str:
    """Format a position on an axis: a size in bytes (``B``), a count of ``numbers``, or a plain number."""
    if unit == "B":
        return format_size(value)
    return f"{value / MIB:g} Mi" if unit == "numbers" and value >= MIB else f"{value:g}"


def format_time(seconds: float) -> str:
    """Format a time with a fitting unit: ``1.19 µs``, ``3.2 s``."""
    if seconds >= 120:
        return f"{seconds / 60:.3g} min"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / NANO:.3g} ns"


def format_age(seconds: float) -> str:
    """Format an age with the largest unit of which it has at least two: ``2 days``, ``36 hours``."""
    for scale, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * scale or seconds == scale:
            return f"{seconds / scale:.4g} {unit}{'s' * (seconds != scale)}"
    return f"{seconds:.4g} s"


def times(count: int) -> str:
    """How often something happened: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count} times"


def many(count: int, singular: str, plural: str = "") -> str:
    """Format a count with its noun: ``1 testcase``, ``2 testcases``."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def some(names: Sequence[str], most: int = 4) -> str:
    """The first of some names, and how many follow: ``gpu0, gpu1 and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def displayed(unit: Unit) -> tuple[float, str]:
    """The divisor from base units to the display unit, and the name of the display unit."""
    return _DISPLAYED[unit]


def fitting(unit: Unit, values: Sequence[float]) -> tuple[float, str]:
    """Divisor and unit for values shown together: times of collectives in µs, long ones in ms."""
    if unit is not Unit.TIME or not values or max(values) < 1e-5:
        return displayed(unit)
    return (1e-3, "ms") if min(values) >= 1e-3 else (1e-6, "µs")
