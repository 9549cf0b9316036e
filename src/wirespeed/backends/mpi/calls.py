"""C functions of the MPI library that mpi4py is linked with; handles are numbers.

The calls of MPI for each collective, as data: names of C functions with their arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import BackendError
from ..native import Call, Failure, Functions, copier
from ..provider import Case


class MpiFunctions:
    """Makes calls of MPI without the Python interpreter.

    Attributes:
        mpi: The module ``mpi4py.MPI``.

    Attributes:
        functions: The C functions.
        status: Address of a status that is ignored.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        # The extension module resolves the functions of the library it is linked with, for any ABI of MPI.
        self.functions = Functions(ctypes.CDLL(mpi.__file__), copy=copier())
        self._status = np.zeros(self.status_bytes, np.uint8)
        self.status = int(self._status.ctypes.data)

    def handle(self, wrapped: Any) -> int:
        """The handle of a communicator, type or operator as a number."""
        return int(self._mpi._handleof(wrapped))

    @property
    def in_place(self) -> int:
        """Buffer argument for operations in place."""
        return int(self._mpi.IN_PLACE)

    @property
    def request_bytes(self) -> int:
        """Size of a request in bytes."""
        return int(self._mpi._sizeof(self._mpi.Request))

    @property
    def status_bytes(self) -> int:
        """Size of a status in bytes."""
        return int(self._mpi._sizeof(self._mpi.Status))

    def run(self, calls: list[Call]) -> None:
        """Make the calls.

        Raises:
            BackendError: If a call fails.
        """
        self.refuse(self.functions.bind(calls)())

    def timed(
        self, before: list[Call], calls: list[Call], after: list[Call], rounds: int = 1
    ) -> tuple[float, float]:
        """Make the calls; return the time of ``calls``, and of ``calls`` and ``after``, in s.

        Raises:
            BackendError: If a call fails.
        """
        failed, between, whole = self.functions.timed(before, calls, after, rounds)
        self.refuse(failed)
        return between, whole

    def laps(self, before: list[Call], calls: list[Call], after: list[Call], count: int) -> tuple[float, ...]:
        """Make the calls; return the time of ``calls`` in each lap, in s.

        Raises:
            BackendError: If a call fails.
        """
        failed, seconds = self.functions.laps(before, calls, after, count)
        self.refuse(failed)
        return seconds

    def refuse(self, failed: Failure | None) -> None:
        """Raise an error if a call failed.

        Raises:
            BackendError: If ``failed`` is a call.
        """
        if failed:
            raise BackendError(f"MPI failed in {failed.name}")


@dataclass(frozen=True)
class MpiSite:
    """Handles and buffers that the calls of a rank use.

    Attributes:
        comm, type, operator: Handles of the communicator, the element type and the operator (0 if there is
            none).
        in_place, status: MPI_IN_PLACE, and the address of a status that is ignored.
        rank: Rank in the communicator.
        send, receive: Arrays of one dimension; in place, both are views of one buffer.
        keep: Arrays whose addresses are in calls, so that they are not freed.
    """

    comm: int
    type: int
    in_place: int
    status: int
    rank: int
    send: Any
    receive: Any
    operator: int = 0
    keep: list[Any] = field(default_factory=list)

    def kept(self, values: Sequence[int]) -> int:
        """The address of an array of C ints with these values, which is kept alive."""
        array = np.array(values, np.int32)
        self.keep.append(array)
        return int(array.ctypes.data)


def _at(array: Any) -> int:
    return int(array.ctypes.data)


def _copied(to: Any, origin: Any) -> Call:
    return ("copy", (_at(to), _at(origin), to.nbytes))


def _source(case: Case, site: MpiSite) -> int:
    return site.in_place if case.in_place else _at(site.send)


def _all_reduce(case: Case, site: MpiSite) -> list[Call]:
    buffers = (_source(case, site), _at(site.receive), len(site.receive))
    return [("MPI_Allreduce", (*buffers, site.type, site.operator, site.comm))]


def _all_gather(case: Case, site: MpiSite) -> list[Call]:
    count = len(site.receive) // case.ranks
    sends, receives = (_source(case, site), count, site.type), (_at(site.receive), count, site.type)
    return [("MPI_Allgather", (*sends, *receives, site.comm))]


def _alltoall(case: Case, site: MpiSite) -> list[Call]:
    count = len(site.receive) // case.ranks
    sends, receives = (_source(case, site), count, site.type), (_at(site.receive), count, site.type)
    return [("MPI_Alltoall", (*sends, *receives, site.comm))]


def _reduce_scatter(case: Case, site: MpiSite) -> list[Call]:
    name, count = "MPI_Reduce_scatter_block", case.counts.each
    how = (count, site.type, site.operator, site.comm)
    if not case.in_place:
        return [(name, (_at(site.send), _at(site.receive), *how))]
    # In place, MPI stores the result at the start of the buffer, NCCL at the part of the rank.
    steps: list[Call] = [(name, (site.in_place, _at(site.send), *how))]
    own = site.send[:count]
    return steps if _at(own) == _at(site.receive) else [*steps, _copied(site.receive, own)]


def _alltoallv(case: Case, site: MpiSite) -> list[Call]:
    parts = case.setting.operation.parts
    assert parts is not None
    sends, receives = parts(case.counts, case.width, site.rank, case.ranks)
    source, before = site.send, list[Call]()
    if case.in_place:  # MPI_IN_PLACE requires equal counts in both directions
        source = np.empty_like(site.send)
        site.keep.append(source)
        before = [_copied(source, site.send)]

    def side(array: Any, counts: Sequence[int]) -> tuple[int, ...]:
        places = np.cumsum([0, *counts[:-1]])
        return _at(array), site.kept(counts), site.kept(places.tolist()), site.type

    return [*before, ("MPI_Alltoallv", (*side(source, sends), *side(site.receive, receives), site.comm))]


def _broadcast(case: Case, site: MpiSite) -> list[Call]:
    root, receive = case.setting.root, site.receive
    spread: Call = ("MPI_Bcast", (_at(receive), len(receive), site.type, root, site.comm))
    return [spread] if case.in_place or site.rank != root else [_copied(receive, site.send), spread]


def _reduce(case: Case, site: MpiSite) -> list[Call]:
    root = case.setting.root
    here, receive = site.rank == root, _at(site.receive)
    source = (site.in_place if here else receive) if case.in_place else _at(site.send)
    count = len(site.receive if case.in_place else site.send)
    how = (count, site.type, site.operator, root, site.comm)
    return [("MPI_Reduce", (source, receive if here else 0, *how))]


def _gather(case: Case, site: MpiSite) -> list[Call]:
    root = case.setting.root
    here = site.rank == root
    sends = (site.in_place if here and case.in_place else _at(site.send), len(site.send), site.type)
    receives = (_at(site.receive) if here else 0, len(site.send), site.type)
    return [("MPI_Gather", (*sends, *receives, root, site.comm))]


def _scatter(case: Case, site: MpiSite) -> list[Call]:
    root = case.setting.root
    here = site.rank == root
    count = len(site.receive)
    sends = (_at(site.send) if here else 0, count, site.type)
    receives = (site.in_place if here and case.in_place else _at(site.receive), count, site.type)
    return [("MPI_Scatter", (*sends, *receives, root, site.comm))]


def _sendrecv(case: Case, site: MpiSite) -> list[Call]:
    after, before = (site.rank + 1) % case.ranks, (site.rank - 1) % case.ranks
    if case.in_place:
        buffer = (_at(site.receive), len(site.receive), site.type)
        return [("MPI_Sendrecv_replace", (*buffer, after, 0, before, 0, site.comm, site.status))]
    return [_exchange(site, site.send, after, site.receive, before)]


def _exchange(site: MpiSite, give: Any, after: int, take: Any, before: int) -> Call:
    sends, receives = (_at(give), len(give), site.type), (_at(take), len(take), site.type)
    return ("MPI_Sendrecv", (*sends, after, 0, *receives, before, 0, site.comm, site.status))


def _hypercube(case: Case, site: MpiSite) -> list[Call]:
    """An all-gather in log2(n) steps, each with the rank whose number differs in one bit."""
    here, receive, count = site.rank, site.receive, case.counts.each
    steps = [] if case.in_place else [_copied(receive[here * count : (here + 1) * count], site.send)]
    for bit in range(case.ranks.bit_length() - 1):
        mask = 1 << bit
        mine = here & ~(mask - 1)
        theirs = mine ^ mask
        give, take = (
            receive[mine * count : (mine + mask) * count],
            receive[theirs * count : (theirs + mask) * count],
        )
        steps.append(_exchange(site, give, here ^ mask, take, here ^ mask))
    return steps


#: Operation -> function that returns the calls of one execution.
CALLS: dict[str, Callable[[Case, MpiSite], list[Call]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
    "hypercube": _hypercube,
}
