from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.errors import UsageError
from wirespeed.measurement import Unit
from wirespeed.units import (
    displayed,
    format_size,
    format_time,
    parse_duration,
    parse_fraction,
    parse_memory,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("8b", 8),
        ("4k", 4096),
        ("4K", 4096),
        ("4KiB", 4096),
        ("4KB", 4000),
        ("512MiB", 512 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("1GB", 10**9),
        ("2t", 2**41),
        (".5k", 512),
        (" 64 m ", 64 * 2**20),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "k", "0", "-1", "1q", "1 2", "1e9", "nan", "inf", "0.1", "2000000t", "0x10"]
)
def test_what_is_no_size_says_so(text: str) -> None:
    with pytest.raises(UsageError, match="size"):
        parse_size(text)


@given(st.text())
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    for parse in (parse_size, parse_duration, parse_fraction, parse_memory):
        try:
            value = parse(text)
        except UsageError as error:
            assert "\n" not in str(error)
        else:
            assert value > 0


@given(st.integers(1, 2**60))
def test_a_size_survives_its_plain_form(size: int) -> None:
    parsed = parse_size(str(size))
    assert abs(parsed - size) <= size * 1e-15


@given(st.integers(0, 9), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_a_power_of_two_survives_formatting(power: int, unit: str) -> None:
    size = parse_size(f"{2**power}{unit}")
    assert parse_size(format_size(size).replace(" ", "")) == size


def test_durations_and_fractions() -> None:
    assert parse_duration("200ms") == 0.2
    assert parse_duration("5s") == parse_duration("5") == 5
    assert parse_duration("2min") == 120
    assert parse_fraction("0.5%") == parse_fraction("0.005") == 0.005
    for text in ("0%", "100%", "-1%", "x"):
        with pytest.raises(UsageError):
            parse_fraction(text)
    with pytest.raises(UsageError):
        parse_duration("0s")


def test_memories() -> None:
    assert parse_memory("8x4800") == 8 * 8 * 4800e6 and parse_memory("307.2 GB/s") == parse_memory("8x4800")
    for text in ("8", "0x4800", "8x0", "8x", "8x4800 MHz", "307GB", "x4800"):
        with pytest.raises(UsageError, match="give channels x MT/s"):
            parse_memory(text)


def test_formatting() -> None:
    assert format_size(512 * 2**20) == "512 MiB"
    assert format_size(3) == "3 B"
    assert [format_time(t) for t in (300, 1.5, 2e-3, 1.19e-6, 3e-9)] == [
        "5 min",
        "1.5 s",
        "2 ms",
        "1.19 µs",
        "3 ns",
    ]
    assert displayed(Unit.RATE) == (1e9, "GB/s")
    assert displayed(Unit.TIME) == (1e-9, "ns")
