"""The collectives, one record each: counts, bus factor, and what each rank must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .data_types import DataType

_CHUNK = 16  # bytes to whose multiples the parts of an array are rounded down, as nccl-tests does
_ALL_TO_ALL_V = "alltoallv"


@dataclass(frozen=True)
class Counts:
    """What one rank handles in one call, in elements.

    Parameters
    ----------
    send, receive
        Elements of its two buffers.
    each
        The count that the call is given.
    send_at, receive_at
        In place, both buffers are one; per rank number, where in it sending and receiving begin.
    """

    send: int
    receive: int
    each: int
    send_at: int = 0
    receive_at: int = 0


@dataclass(frozen=True)
class Piece:
    """Part of what a rank must hold: ``count`` elements from ``at`` are those from ``start`` of a rank.

    ``source`` None: of all ranks, reduced.
    """

    at: int
    count: int
    source: int | None
    start: int


Counting = Callable[[int, int, int], Counts]
Holding = Callable[[Counts, int, int, int, int], tuple[Piece, ...]]


@dataclass(frozen=True)
class CollectiveOp:
    """A collective.

    Parameters
    ----------
    name
        Its program is called so with ``_perf`` behind it.
    counts
        From elements of the array, bytes of an element and ranks.
    factor
        Bus bandwidth over algorithm bandwidth, from the number of ranks.
    why
        The derivation of the factor.
    holds
        What a rank must hold afterwards, from counts, bytes of an element, rank, ranks and root.
    operator
        What the column ``redop`` says where there is no operator; None where there is one.
    rooted
        Whether there is a root.
    checks_in_place
        Whether the result in place is defined.
    judged
        Whether every link is busy all the time, so that the links say what the bus bandwidth should be.
    effective
        How many times what a link carries the bus bandwidth can be where the switch reduces.
    counts_others
        Whether the algorithm bandwidth counts the parts of the other ranks, not the larger buffer.
    power_of_two
        Whether the number of ranks must be one.
    """

    name: str
    does: str
    counts: Counting
    factor: Callable[[int], float]
    why: str
    holds: Holding
    operator: str | None = "none"
    rooted: bool = False
    checks_in_place: bool = True
    judged: bool = True
    effective: float = 1.0
    counts_others: bool = False
    power_of_two: bool = False

    @property
    def program(self) -> str:
        """The name of its command."""
        return f"{self.name}_perf"

    def size(self, counts: Counts, width: int) -> int:
        """Return the bytes that the column ``size`` says; ``width``: bytes of an element."""
        return max(counts.send, counts.receive) * width

    def moved(self, counts: Counts, width: int, ranks: int) -> int:
        """Return the bytes that the algorithm bandwidth counts."""
        if self.counts_others:
            return counts.each * (ranks - 1) * width
        return self.size(counts, width)

    def why_not(self, ranks: int) -> str | None:
        """Return why it is not defined for a number of ranks, None if it is."""
        if self.power_of_two and ranks & (ranks - 1):
            return f"{self.name} needs a power of two of ranks, not {ranks}"
        return None


@dataclass(frozen=True)
class Setting:
    """What one block of lines measures: an operation on a type.

    ``operator`` is empty and ``root`` -1 where the operation has none.
    """

    operation: CollectiveOp
    type: DataType
    operator: str = ""
    root: int = -1

    @property
    def label(self) -> str:
        """What the column ``redop`` says."""
        return self.operator if self.operation.operator is None else self.operation.operator

    def __str__(self) -> str:
        parts = [
            self.operation.name,
            self.type.name,
            self.operator,
            "" if self.root < 0 else f"root {self.root}",
        ]
        return " ".join(part for part in parts if part)


def part(elements: int, width: int, ranks: int) -> int:
    """Return a rank's part of an array, rounded down to multiples of 16 bytes."""
    return elements // ranks // (_CHUNK // width) * (_CHUNK // width)


def peer_bytes(source: int, destination: int, ranks: int, total: int) -> int:
    """Return what a rank sends to another in an all-to-all of unequal parts, in bytes.

    The part grows linearly with the distance around the ring: distance / (n (n - 1) / 2) of the
    array, rounded down to multiples of 16 bytes; nothing stays at home.
    """
    if ranks == 1:
        return total // _CHUNK * _CHUNK
    distance = (destination - source) % ranks
    return distance * total * 2 // (ranks * (ranks - 1)) // _CHUNK * _CHUNK


def unequal(counts: Counts, width: int, rank: int, ranks: int) -> tuple[list[int], list[int]]:
    """Return what a rank sends to and receives from each rank in ``alltoallv``, in elements."""
    total = counts.each * ranks * width
    sends = [peer_bytes(rank, peer, ranks, total) // width for peer in range(ranks)]
    receives = [peer_bytes(peer, rank, ranks, total) // width for peer in range(ranks)]
    return sends, receives


def _whole(elements: int, width: int, ranks: int) -> Counts:
    return Counts(elements, elements, elements)


def _gathered(elements: int, width: int, ranks: int) -> Counts:
    each = part(elements, width, ranks)
    return Counts(each, each * ranks, each, send_at=each)


def _scattered(elements: int, width: int, ranks: int) -> Counts:
    each = part(elements, width, ranks)
    return Counts(each * ranks, each, each, receive_at=each)


def _exchanged(elements: int, width: int, ranks: int) -> Counts:
    each = part(elements, width, ranks)
    return Counts(each * ranks, each * ranks, each)


def _unequal(elements: int, width: int, ranks: int) -> Counts:
    each = part(elements, width, ranks)
    sends, _ = unequal(Counts(0, 0, each), width, 0, ranks)
    return Counts(sum(sends), sum(sends), each)  # the parts depend on distances only: all ranks are alike


def _all_reduced(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.receive, None, 0),)


def _reduced(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.receive, None, 0),) if rank == root else ()


def _reduced_part(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.each, None, rank * c.each),)


def _of_all(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return tuple(Piece(source * c.each, c.each, source, 0) for source in range(ranks))


def _of_all_at_root(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return _of_all(c, width, rank, ranks, root) if rank == root else ()


def _of_root(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.receive, root, 0),)


def _part_of_root(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.each, root, rank * c.each),)


def _part_of_all(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return tuple(Piece(source * c.each, c.each, source, rank * c.each) for source in range(ranks))


def _unequal_of_all(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    pieces, at = list[Piece](), 0
    for source in range(ranks):
        sends, _ = unequal(c, width, source, ranks)
        pieces.append(Piece(at, sends[rank], source, sum(sends[:rank])))
        at += sends[rank]
    return tuple(pieces)


def _of_the_one_before(c: Counts, width: int, rank: int, ranks: int, root: int) -> tuple[Piece, ...]:
    return (Piece(0, c.receive, (rank - 1) % ranks, 0),)


def _one(ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


_SHARE = "of the array, 1/n is at its place already; every link carries the other (n - 1)/n"

_TABLE = (
    CollectiveOp(
        "all_reduce", "the arrays of all ranks, reduced, to all ranks", _whole, _twice_others,
        "every element is sent n - 1 times to be reduced and n - 1 times to be spread, over n links",
        _all_reduced, operator=None, effective=2.0,
    ),
    CollectiveOp(
        "all_gather", "a part from each rank, all parts to all ranks", _gathered, _others, _SHARE, _of_all,
    ),
    CollectiveOp(
        "reduce_scatter", "the arrays of all ranks, reduced, a part to each rank", _scattered, _others,
        _SHARE, _reduced_part, operator=None,
    ),
    CollectiveOp(
        "alltoall", "a part from each rank to each rank", _exchanged, _others, _SHARE, _part_of_all,
        checks_in_place=False,
    ),
    CollectiveOp(
        _ALL_TO_ALL_V, "parts that grow with the distance from each rank to each rank", _unequal, _others,
        _SHARE, _unequal_of_all, checks_in_place=False, judged=False,
    ),
    CollectiveOp(
        "broadcast", "the array of the root to all ranks", _whole, _one,
        "the root's link carries the array once", _of_root, rooted=True,
    ),
    CollectiveOp(
        "reduce", "the arrays of all ranks, reduced, to the root", _whole, _one,
        "the root's link carries the array once", _reduced, operator=None, rooted=True,
    ),
    CollectiveOp(
        "gather", "a part from each rank to the root", _gathered, _others,
        "all parts but the root's own pass the root's link", _of_all_at_root, rooted=True, judged=False,
    ),
    CollectiveOp(
        "scatter", "a part from the root to each rank", _scattered, _others,
        "all parts but the root's own pass the root's link", _part_of_root, rooted=True, judged=False,
    ),
    CollectiveOp(
        "sendrecv", "the array from each rank to the next", _whole, _one,
        "every link carries the array once", _of_the_one_before, operator="sum", checks_in_place=False,
    ),
    CollectiveOp(
        "hypercube", "an all-gather in log2(n) steps between ranks whose numbers differ in one bit",
        _gathered, _one, "n - 1 parts pass every link, and those are what is counted", _of_all, operator="",
        judged=False, counts_others=True, power_of_two=True,
    ),
)  # fmt: skip

#: Name -> operation.
OPERATIONS = {operation.name: operation for operation in _TABLE}
