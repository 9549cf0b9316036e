"""The collectives, one record each: counts, bus factor, and the data that each rank must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from ..errors import UsageError
from .data_types import DataType

#: Parts of an array are rounded down to multiples of this, as in nccl-tests, in bytes.
_CHUNK_BYTES = 16
_ALL_TO_ALL_V = "alltoallv"


@dataclass(frozen=True)
class Counts:
    """Counts of one call on one rank, in elements.

    Attributes:
        send, receive: Sizes of the two buffers.
        each: Count argument of the call; 0 if a matrix gives the parts.
        send_at, receive_at: Offset in the common buffer of an in-place call, to be multiplied by the rank.
    """

    send: int
    receive: int
    each: int
    send_at: int = 0
    receive_at: int = 0


@dataclass(frozen=True)
class Piece:
    """A part of the expected result of a rank.

    Attributes:
        at: Offset in the result, in elements.
        count: Number of elements.
        source: Rank whose data it is; None for the reduction over all ranks.
        start: Offset in the data of the source, in elements.
    """

    at: int
    count: int
    source: int | None
    start: int


#: Returns the counts from the elements of the array, the bytes of an element and the number of ranks.
Counting = Callable[[int, int, int], Counts]
#: Returns the expected result from counts, bytes of an element, rank, number of ranks and root.
Holding = Callable[[Counts, int, int, int, int], tuple[Piece, ...]]
#: Returns the counts that a rank sends to and receives from each rank, in elements, from the counts, the
#: bytes of an element, the rank and the number of ranks.
Parting = Callable[[Counts, int, int, int], tuple[list[int], list[int]]]


@dataclass(frozen=True)
class CollectiveOp:
    """A collective.

    Attributes:
        name: Name of the testcase; the command of nccl-tests adds ``_perf``.
        does: Description.
        counts: Function that returns the counts.
        factor: Returns bus bandwidth over algorithm bandwidth for a number of ranks.
        why: The derivation of the factor.
        holds: Function that returns the expected result.
        operator: Text of the column ``redop`` if there is no operator; None if there is one.
        rooted: Whether there is a root.
        checks_in_place: Whether the in-place result is defined.
        judged: Whether all links are busy all the time, so that they determine the expected bus bandwidth.
        effective: Maximum of bus bandwidth over link bandwidth if the switch reduces.
        counts_others: Whether the algorithm bandwidth counts the parts of the other ranks instead of the
            larger buffer.
        power_of_two: Whether the number of ranks must be a power of two.
        most_ranks: Maximum number of ranks; 0 for no maximum.
        parts: Function that returns the parts, if they are not equal.
        traffic: How the parts are divided, as ``division_of`` reads it; empty for the default.
        names_operators: Whether the column ``redop`` names the requested operator although there is none.
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
    most_ranks: int = 0
    parts: Parting | None = None
    traffic: str = ""
    names_operators: bool = False

    @property
    def program(self) -> str:
        """Name of the command."""
        return f"{self.name}_perf"

    def size(self, counts: Counts, width: int) -> int:
        """The bytes of the column ``size``; ``width`` is the bytes of an element."""
        return max(counts.send, counts.receive) * width

    def moved(self, counts: Counts, width: int, ranks: int) -> int:
        """The bytes that the algorithm bandwidth counts."""
        if self.counts_others:
            return counts.each * (ranks - 1) * width
        return self.size(counts, width)

    def why_not(self, ranks: int) -> str | None:
        """Why the operation is not defined for a number of ranks; None if it is."""
        if self.power_of_two and ranks & (ranks - 1):
            return f"{self.name} requires a power of two of ranks, not {ranks}"
        if 0 < self.most_ranks < ranks:
            return f"the traffic matrix is for {self.most_ranks} ranks, not {ranks}"
        return None


@dataclass(frozen=True)
class Setting:
    """An operation with its arguments.

    Attributes:
        operation: The collective.
        type: Element type.
        operator: Reduction operator; empty if the operation has none. It has no effect if the operation only
            names it.
        root: Root; -1 if the operation has none.
    """

    operation: CollectiveOp
    type: DataType
    operator: str = ""
    root: int = -1

    @property
    def label(self) -> str:
        """Text of the column ``redop``."""
        if self.operation.operator is None or (self.operation.names_operators and self.operator):
            return self.operator
        return self.operation.operator

    @property
    def reduction(self) -> str:
        """The operator that reduces the data; empty if none does."""
        return self.operator if self.operation.operator is None else ""

    def __str__(self) -> str:
        parts = [
            self.operation.name,
            self.type.name,
            self.operator,
            "" if self.root < 0 else f"root {self.root}",
        ]
        return " ".join(part for part in parts if part)


def part(elements: int, width: int, ranks: int) -> int:
    """A rank's part of an array, rounded down to multiples of 16 bytes."""
    return elements // ranks // (_CHUNK_BYTES // width) * (_CHUNK_BYTES // width)


def _unequal_parts(
    peer_bytes: Callable[[int, int, int, int], int], counts: Counts, width: int, rank: int, ranks: int
) -> tuple[list[int], list[int]]:
    total = counts.each * ranks * width
    sends = [peer_bytes(rank, peer, ranks, total) // width for peer in range(ranks)]
    receives = [peer_bytes(peer, rank, ranks, total) // width for peer in range(ranks)]
    return sends, receives


def _by_distance(spread: float, source: int, destination: int, ranks: int, total: int) -> int:
    """The bytes that a rank sends to another in an all-to-all of unequal parts.

    The part grows linearly with the distance around the ring, distance / (n (n - 1) / 2) of the array, as far
    as ``spread`` says: 0 is equal parts. It is rounded down to multiples of 16 bytes.
    """
    if ranks == 1:
        return total // _CHUNK_BYTES * _CHUNK_BYTES
    distance = (destination - source) % ranks
    # In floating point and in this order, as nccl-tests, whose counts are then the same to the last byte.
    far = float(distance) * float(total) / float(ranks * (ranks - 1) // 2)
    size = int((1.0 - spread) * (float(total) / float(ranks)) + spread * far)
    return size // _CHUNK_BYTES * _CHUNK_BYTES


def _of_matrix(
    matrix: tuple[tuple[int, ...], ...], source: int, destination: int, ranks: int, total: int
) -> int:
    """The bytes that a rank sends to another, rounded down to multiples of 16 bytes."""
    return matrix[source][destination] // _CHUNK_BYTES * _CHUNK_BYTES


def _whole(elements: int, width: int, ranks: int) -> Counts:
    return Counts(elements, elements, elements)


def _gathered(elements: int, width: int, ranks: int) -> Counts:
    count = part(elements, width, ranks)
    return Counts(count, count * ranks, count, send_at=count)


def _scattered(elements: int, width: int, ranks: int) -> Counts:
    count = part(elements, width, ranks)
    return Counts(count * ranks, count, count, receive_at=count)


def _exchanged(elements: int, width: int, ranks: int) -> Counts:
    count = part(elements, width, ranks)
    return Counts(count * ranks, count * ranks, count)


def _unequal(parts: Parting, generated: bool, elements: int, width: int, ranks: int) -> Counts:
    count = part(elements, width, ranks) if generated else 0
    of_ranks = [parts(Counts(0, 0, count), width, rank, ranks) for rank in range(ranks)]
    most = max(sum(counts) for both in of_ranks for counts in both)
    return Counts(most, most, count)


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


def _unequal_of_all(
    parts: Parting, c: Counts, width: int, rank: int, ranks: int, root: int
) -> tuple[Piece, ...]:
    pieces, at = list[Piece](), 0
    for source in range(ranks):
        sends, _ = parts(c, width, source, ranks)
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


_PARTS_REASON = "1/n of the array is already in place; each link carries the other (n - 1)/n"

_TABLE = (
    CollectiveOp(
        "all_reduce", "every rank gets the reduction of the arrays of all ranks", _whole, _twice_others,
        "each element is sent n - 1 times for the reduction and n - 1 times for the distribution, "
        "over n links",
        _all_reduced, operator=None, effective=2.0,
    ),
    CollectiveOp(
        "all_gather", "every rank gets the parts of all ranks", _gathered, _others, _PARTS_REASON, _of_all,
    ),
    CollectiveOp(
        "reduce_scatter", "every rank gets one part of the reduction of the arrays of all ranks", _scattered,
        _others, _PARTS_REASON, _reduced_part, operator=None,
    ),
    CollectiveOp(
        "alltoall", "every rank sends a different part to every rank", _exchanged, _others, _PARTS_REASON,
        _part_of_all, checks_in_place=False,
    ),
    CollectiveOp(
        _ALL_TO_ALL_V, "every rank sends parts to every rank that grow with the distance between them",
        _exchanged, _others, _PARTS_REASON, _part_of_all, checks_in_place=False, judged=False,
    ),
    CollectiveOp(
        "broadcast", "every rank gets the array of the root", _whole, _one,
        "the root's link carries the array once", _of_root, rooted=True,
    ),
    CollectiveOp(
        "reduce", "the root gets the reduction of the arrays of all ranks", _whole, _one,
        "the root's link carries the array once", _reduced, operator=None, rooted=True,
    ),
    CollectiveOp(
        "gather", "the root gets the parts of all ranks", _gathered, _others,
        "all parts but the root's own pass the root's link", _of_all_at_root, rooted=True, judged=False,
    ),
    CollectiveOp(
        "scatter", "every rank gets one part of the array of the root", _scattered, _others,
        "all parts but the root's own pass the root's link", _part_of_root, rooted=True, judged=False,
    ),
    CollectiveOp(
        "sendrecv", "every rank sends its array to the next rank", _whole, _one,
        "each link carries the array once", _of_the_one_before, operator="sum", checks_in_place=False,
        names_operators=True,
    ),
    CollectiveOp(
        "hypercube", "an all-gather in log2(n) steps between ranks whose numbers differ in one bit",
        _gathered, _one, "each link carries the n - 1 parts that are counted", _of_all, operator="",
        judged=False, counts_others=True, power_of_two=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Division:
    """How an array is divided into unequal parts.

    Attributes:
        spread: How much the parts grow with the distance: 0 (equal parts) to 1.
        matrix: Bytes from each rank to each, which replace the spread; empty if there are none.
    """

    spread: float = 1.0
    matrix: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        """The form that ``division_of`` reads."""
        if self.matrix:
            return "matrix " + "; ".join(" ".join(map(str, row)) for row in self.matrix)
        return f"spread {self.spread!r}"


def division_of(traffic: str) -> Division:
    """The division that a text describes.

    Args:
        traffic: ``spread 0.5``, or ``matrix`` and the bytes from each rank (lines, separated by semicolons)
            to each; empty for the default.

    Raises:
        UsageError: If the text is something else.
    """
    if not traffic:
        return Division()
    kind, _, text = traffic.partition(" ")
    try:
        if kind == "matrix":
            rows = tuple(tuple(int(word) for word in row.split()) for row in text.split(";"))
            valid = all(len(row) == len(rows) and min(row) >= 0 for row in rows)
            division = Division(matrix=rows)
        else:
            division = Division(spread=float(text))
            valid = kind == "spread" and 0 <= division.spread <= 1
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{_ALL_TO_ALL_V}: {traffic[:60]!r} does not divide an array")
    return division


@cache
def divided(operation: CollectiveOp, traffic: str) -> CollectiveOp:
    """An all-to-all of unequal parts with another division.

    Args:
        operation: The operation.
        traffic: The division, as ``division_of`` reads it.

    Raises:
        UsageError: If the text is no division.
    """
    division = division_of(traffic)
    matrix = division.matrix
    peer_bytes = partial(_of_matrix, matrix) if matrix else partial(_by_distance, division.spread)
    parts: Parting = partial(_unequal_parts, peer_bytes)
    return replace(
        operation, counts=partial(_unequal, parts, not matrix), holds=partial(_unequal_of_all, parts),
        parts=parts, traffic=traffic, most_ranks=len(matrix),
    )  # fmt: skip


#: Name -> operation.
OPERATIONS = {op.name: divided(op, "") if op.name == _ALL_TO_ALL_V else op for op in _TABLE}


def operation_of(name: str, traffic: str = "") -> CollectiveOp:
    """An operation by name, with the division of its parts (see ``division_of``).

    Raises:
        KeyError: If it does not exist.
        UsageError: If it has equal parts.
    """
    operation = OPERATIONS[name]
    if traffic and operation.parts is None:
        raise UsageError(f"{name} has equal parts")
    return divided(operation, traffic) if traffic else operation
