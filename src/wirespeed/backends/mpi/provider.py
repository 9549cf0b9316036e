"""Collectives over MPI on host memory, one rank per process. The calls of MPI for each collective are data:
names of C functions of the library that mpi4py is linked with, and their arguments; handles are numbers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...collectives.operations import Piece, Setting
from ...errors import BackendError, OutOfMemory
from ...units import format_size
from ...worlds.base import World
from ...worlds.launchers import mpirun
from ...worlds.mpi import libraries, library, version
from .. import test_data as contents
from ..call_tables import COPY, Call, Failure, Functions
from ..cpu_sharing import current_cpu
from ..host.procfs import available_bytes, first_cpu
from ..provider import REHEARSED_BYTES, Case, Elapsed, Group, Provider, RankDevice, Refused
from ..system_files import HERE


def _failed(failed: Failure) -> BackendError:
    return BackendError(f"MPI failed in {failed.name}")


class MpiFunctions(Functions):
    """Makes calls of MPI without the Python interpreter.

    Args:
        mpi: The module ``mpi4py.MPI``.

    Attributes:
        status: Address of a status that is ignored.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        # The extension module resolves the functions of the library it is linked with, for any ABI of MPI.
        super().__init__(_failed, ctypes.CDLL(mpi.__file__))
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
    return (COPY, (_at(to), _at(origin), to.nbytes))


def _source(case: Case, site: MpiSite) -> int:
    return site.in_place if case.in_place else _at(site.send)


def _all_reduce(case: Case, site: MpiSite) -> list[Call]:
    buffers = (_source(case, site), _at(site.receive), len(site.receive))
    return [("MPI_Allreduce", (*buffers, site.type, site.operator, site.comm))]


def _equal_parts(name: str) -> Callable[[Case, MpiSite], list[Call]]:
    """What returns the call of a function with equal parts for each rank."""

    def calls(case: Case, site: MpiSite) -> list[Call]:
        count = len(site.receive) // case.ranks
        sends, receives = (_source(case, site), count, site.type), (_at(site.receive), count, site.type)
        return [(name, (*sends, *receives, site.comm))]

    return calls


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
    "all_gather": _equal_parts("MPI_Allgather"),
    "reduce_scatter": _reduce_scatter,
    "alltoall": _equal_parts("MPI_Alltoall"),
    "alltoallv": _alltoallv,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
    "hypercube": _hypercube,
}
_ALIGNMENT_BYTES = 4096
#: Maximum number of elements of a call: the count is an int.
_MAX_COUNT = 2**31 - 1
#: Buffers per rank beyond the send and receive buffers that MPI, or an operation in place, may allocate.
_SPARE_BUFFERS = 1
#: Maximum fraction of the free memory that the buffers may use.
_MAX_MEMORY_FRACTION = 0.9
#: Number of elements that are filled or compared at a time, so that intermediate results fit into the cache.
_CHUNK_ELEMENTS = 2**14
#: Operations that run untimed before the first loop of a size, on arrays of at most ``REHEARSED_BYTES``: on
#: shared memory, Open MPI changes its protocol after ten messages, which costs 7 to 60 us in one of them.
_REHEARSED_OPERATIONS = 20


def largest_buffer(world: World) -> int:
    """The largest size of which the buffers of all ranks of this host fit into its free memory, in bytes.

    It is a multiple of the size of a page; 0 if the free memory is not known.
    """
    free = available_bytes() or 0
    ranks = sum(member.host == world.me.host for member in world.members)
    share = int(_MAX_MEMORY_FRACTION * free) // ((2 + _SPARE_BUFFERS) * ranks)
    return max(0, share // _ALIGNMENT_BYTES - 1) * _ALIGNMENT_BYTES


class MpiProvider(Provider):
    """Runs collectives with MPI.

    Attributes:
        world: The processes of the job, which MPI must have started.
        group: The ranks that take part.
        unalign: Offset of the buffers from an aligned address, in elements.

    Raises:
        Refused: If MPI has a different number of processes than the World.
    """

    name = "mpi"
    can_cancel = False
    operations = CALLS.keys()

    def __init__(self, world: World, group: Group, unalign: int = 0) -> None:
        self._mpi = library()
        everyone = self._mpi.COMM_WORLD
        if everyone.Get_size() != world.size:
            raise Refused(
                f"MPI has {everyone.Get_size()} ranks, but this job has {world.size}: start the ranks with "
                f"{mpirun('wirespeed ...', world.size)}, or srun"
            )
        self.group = group
        self._comm = everyone.Split(group.color, world.rank)
        self._rank = self._comm.Get_rank()
        self._local = sum(member.host == world.me.host for member in world.members)
        self._unalign = unalign
        #: Free memory of this host, which its ranks share, in bytes; read before any of them allocates.
        self._free = available_bytes()
        self._space: list[Any] = []
        self._case: Case | None = None
        #: The calls of one operation.
        self._step: list[Call] = []
        self._rehearsal: list[Call] = []
        self._keep: list[Any] = []
        self._native = MpiFunctions(self._mpi)
        cpu = first_cpu(HERE).get("model name", "CPU")
        self._barrier: Call = ("MPI_Barrier", (self._native.handle(self._comm),))
        self.devices: tuple[RankDevice, ...] = (RankDevice(world.local_rank, "host", cpu),)

    def libraries(self) -> dict[str, str]:
        return libraries(self._mpi)

    def transport(self) -> str:
        """The name of the MPI library; MPI does not report its transport."""
        return f"{version(self._mpi)} on host memory"

    def refuses(self, setting: Setting) -> str | None:
        """Why MPI or numpy does not support the type or operator; None if both do."""
        if not setting.type.numpy or setting.type.name == "half":
            return f"MPI has no type {setting.type.name}"
        if setting.reduction in ("avg", "mulsum"):
            return f"MPI has no operator {setting.reduction}"
        return setting.operation.why_not(self.group.ranks)

    def exceeds(self, case: Case) -> str | None:
        """Why a call cannot have this many elements; None if it can."""
        count = case.bytes // case.width
        return f"{count} elements exceed the maximum of MPI, {_MAX_COUNT}" if count > _MAX_COUNT else None

    def allocate(self, size: int) -> None:
        """Allocate two buffers and touch their pages."""
        self._space.clear()
        self._step = []
        free = self._free
        wanted = (2 + _SPARE_BUFFERS) * (size + _ALIGNMENT_BYTES) * self._local
        if free is not None and wanted > _MAX_MEMORY_FRACTION * free:
            raise OutOfMemory(
                f"2 buffers of {format_size(size)} for each of {self._local} ranks of this host, and one "
                f"more for MPI, do not fit into the free memory, {format_size(free)}"
            )
        try:
            for _ in range(2):
                whole = np.zeros(size + _ALIGNMENT_BYTES, np.uint8)
                whole.fill(1)
                self._space.append(whole[-whole.ctypes.data % _ALIGNMENT_BYTES :])
        except MemoryError as error:
            raise OutOfMemory(f"2 buffers of {format_size(size)}: {error}") from error

    def bind(self, case: Case) -> None:
        self._case = case
        self._keep.clear()
        # All operations use the same buffers, as in the benchmarks of Intel and OSU.
        self._step = self._operation(case, self._unalign * case.width)
        self._rehearsal = self._step * (_REHEARSED_OPERATIONS if case.bytes <= REHEARSED_BYTES else 0)

    def _buffers(self, case: Case, offset: int) -> tuple[Any, Any]:
        """The send and receive arrays; ``offset`` in bytes."""
        kind, counts, at = case.setting.type.numpy, case.counts, self._rank

        def view(space: Any, first: int, count: int) -> Any:
            start = offset + first * case.width
            return space[start : start + count * case.width].view(kind)

        sends = self._space[1] if case.in_place else self._space[0]
        send_at = counts.send_at * at if case.in_place else 0
        receive_at = counts.receive_at * at if case.in_place else 0
        return view(sends, send_at, counts.send), view(self._space[1], receive_at, counts.receive)

    def _operation(self, case: Case, offset: int) -> list[Call]:
        mpi, native = self._mpi, self._native
        send, receive = self._buffers(case, offset)
        operators = {"sum": mpi.SUM, "prod": mpi.PROD, "max": mpi.MAX, "min": mpi.MIN}
        operator = operators.get(case.setting.reduction)
        site = MpiSite(
            native.handle(self._comm),
            native.handle(mpi.Datatype.fromcode(receive.dtype.char)),
            native.in_place,
            native.status,
            self._rank,
            send,
            receive,
            0 if operator is None else native.handle(operator),
            self._keep,
        )
        return CALLS[case.setting.operation.name](case, site)

    def fill(self, seed: int) -> None:
        case = self._bound()
        kind = case.setting.type
        operator = case.setting.reduction or None
        offset = self._unalign * case.width
        send, receive = (array.view(f"uint{8 * case.width}") for array in self._buffers(case, offset))
        if not case.in_place:
            for start, chunk in _chunks(receive):
                chunk[:] = contents.before(kind, self._rank, start, len(chunk))
        for start, chunk in _chunks(send):
            sent = contents.given(kind, operator, case.ranks, seed, self._rank, start, len(chunk))
            chunk[:] = sent.view(chunk.dtype)

    def once(self) -> None:
        self._native.bind(self._step)()

    def loop(self) -> list[Elapsed]:
        """Run the loop after a barrier. A call of MPI returns when it is complete: the CPU time is the same.

        Nothing of it runs in Python, so that all ranks leave the barrier as closely as MPI can make them.
        """
        timing = self._bound().options
        before, self._rehearsal = [*self._rehearsal, self._barrier], []
        after = [self._barrier] if timing.blocking == 1 else []
        calls = [*self._step, *after] * timing.aggregate
        if timing.per_iteration or timing.blocking == 3:
            between = [self._barrier] if timing.blocking == 3 else []
            times = self._native.laps(before, calls, between, timing.iterations)
            seconds = math.fsum(times)
        else:
            times = ()
            seconds, _ = self._native.timed(before, calls, [], timing.iterations)
        core = current_cpu()
        seconds /= timing.operations
        laps = tuple(t / timing.aggregate for t in times) if timing.per_iteration else ()
        return [Elapsed(seconds, seconds, laps, core)]

    def wrong(self, seed: int) -> int:
        case = self._bound()
        kind, operator = case.setting.type, case.setting.reduction or None
        _, receive = self._buffers(case, self._unalign * case.width)
        holds = case.setting.operation.holds(
            case.counts, case.width, self._rank, case.ranks, case.setting.root
        )
        wrong = 0
        for piece in holds:
            array = receive if piece.source is None else receive.view(f"uint{8 * case.width}")
            for start, chunk in _chunks(array[piece.at : piece.at + piece.count]):
                part = Piece(piece.at + start, len(chunk), piece.source, piece.start + start)
                wrong += contents.wrong(chunk, part, kind, operator, case.ranks, seed)
        return wrong

    def close(self) -> None:
        self._space.clear()
        self._step = []
        self._comm.Free()

    def _bound(self) -> Case:
        assert self._case is not None
        return self._case


def _chunks(array: Any) -> Iterator[tuple[int, Any]]:
    """Yield the chunks of an array, each with its offset in elements."""
    for start in range(0, len(array), _CHUNK_ELEMENTS):
        yield start, array[start : start + _CHUNK_ELEMENTS]
