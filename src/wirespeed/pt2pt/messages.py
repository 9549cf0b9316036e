"""Latency, bandwidth and rate of messages over their size, as the OSU micro-benchmarks define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import Axis, Unit
from ..results.document import Cell, Table
from ..statistics import summarise
from ..units import format_size
from .base import Ends, Place, Wire, pattern, verify

#: Messages under way together where bandwidth and rate are measured, as in osu_bw.
WINDOW = 64
#: Seconds that one sample of many messages lasts, about.
_SAMPLE = 5e-3
_SAMPLES = 6
_MOST_ROUNDS, _MOST_WINDOWS = 2000, 200

REUSED, FIRST, FRESH = "buffer used before", "first message", "new buffer each time"
ONE_WAY, BOTH_WAYS = "one way", "both ways, sum"
COUNTS = "every byte of a message once; both ways the sum of both directions"


@dataclass(frozen=True)
class Measured:
    """What was found for one size: seconds of one message, seconds of a window's message.

    Parameters
    ----------
    first
        Half of the first round, with new buffers at both ends.
    fresh
        Half of the first round of further new buffers each.
    reused
        Half of a round, on average over many, for each sample.
    one_way, both_ways
        Seconds for one message of a window, in each sample; both ways for one in each direction.
    """

    first: float
    fresh: tuple[float, ...]
    reused: tuple[float, ...]
    one_way: tuple[float, ...]
    both_ways: tuple[float, ...]


def measure(ends: Ends, place: Place, wire: Wire | None, size: int, at: Callable[[str], None]) -> Measured:
    """Measure messages of one size; every rank calls it, those between the ends without a wire.

    Parameters
    ----------
    at
        Is told each stage before it begins.

    Raises
    ------
    VerificationError
        If the last end has something else than the first one sent.
    """
    what = f"messages of {format_size(size)}"

    def rounds(address: int, count: int) -> float:
        at(f"sending {what} to and fro")
        mine = wire.rounds(address, size, count) if wire else 0.0
        return ends.report([mine / (2 * count)], f"timing {what}")[0][0]

    def window(send: int, receive: int, count: int, both: bool) -> float:
        at(f"sending {WINDOW} {what} together")
        mine = sum(wire.window(send, receive, size, WINDOW, both) for _ in range(count)) if wire else 0.0
        return ends.report([mine / (count * WINDOW)], f"timing {what} together")[0][0]

    at(f"allocating for {what}")
    held = [_new(place, wire, ends, size)]
    first = rounds(held[0], 1)
    estimate = rounds(held[0], 4)
    count = max(2, min(_MOST_ROUNDS, round(_SAMPLE / (2 * estimate))))
    reused = tuple(rounds(held[0], count) for _ in range(_SAMPLES))
    if wire and not ends.first:
        verify(place, held[0], size, 0, what)
    fresh = []
    for _ in range(_SAMPLES):
        held.append(_new(place, wire, ends, size))  # before the last one is freed: at another address
        fresh.append(rounds(held[-1], 1))
        _free(place, wire, held.pop(0))
    _free(place, wire, held.pop())
    send, receive = held = [_new(place, wire, ends, size) for _ in range(2)]
    windows = max(1, min(_MOST_WINDOWS, round(_SAMPLE / (WINDOW * window(send, receive, 1, True)))))
    one_way = tuple(window(send, receive, windows, False) for _ in range(_SAMPLES))
    both_ways = tuple(window(send, receive, windows, True) for _ in range(_SAMPLES))
    if wire:
        verify(place, receive, size, 0 if not ends.first else 1, what)
    for address in held:
        _free(place, wire, address)
    return Measured(first, tuple(fresh), reused, one_way, both_ways)


def _new(place: Place, wire: Wire | None, ends: Ends, size: int) -> int:
    """Allocate where it is needed, and fill with what this end sends."""
    if wire is None:
        return 0
    address = place.allocate(size)
    place.write(address, pattern(size, 0 if ends.first else 1))
    return address


def _free(place: Place, wire: Wire | None, address: int) -> None:
    if wire is not None:
        place.free(address)


def tables(sizes: Sequence[int], measured: Sequence[Measured]) -> tuple[Table, ...]:
    """Return the curves over the sizes that were measured."""
    sizes = sizes[: len(measured)]
    columns = Axis("message", tuple(map(format_size, sizes)), tuple(map(float, sizes)), "B")
    latency = Axis("buffer", (REUSED, FIRST, FRESH))
    ways = Axis("ways", (ONE_WAY, BOTH_WAYS))
    times, rates, frequencies = list[Cell](), list[Cell](), list[Cell]()
    for j, (size, found) in enumerate(zip(sizes, measured, strict=True)):
        for i, seconds in enumerate((found.reused, (found.first,), found.fresh)):
            times.append(_cell(i, j, size, seconds))
        rates.append(_cell(0, j, size, [size / s for s in found.one_way]))
        rates.append(_cell(1, j, size, [2 * size / s for s in found.both_ways]))
        frequencies.append(_cell(0, j, size, [1 / s for s in found.one_way]))
    one_way = Axis("ways", (ONE_WAY,))
    return (
        Table("latency", "half of a round to and fro", Unit.TIME, latency, columns, tuple(times)),
        Table("bandwidth", f"{WINDOW} messages together", Unit.RATE, ways, columns, tuple(rates)),
        Table("rate", "messages one way", Unit.FREQUENCY, one_way, columns, tuple(frequencies)),
    )  # fmt: skip


def _cell(row: int, column: int, size: int, samples: Sequence[float]) -> Cell:
    statistics = summarise(samples)
    return Cell(
        row, column, statistics.median, bytes=size, copies=1, statistics=statistics, samples=tuple(samples)
    )
