"""Collectives over MPI on host memory, by mpi4py: one rank in each process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OutOfMemory
from ...testcases.collective_ops import Piece, Setting
from ...units import format_size
from ...worlds.base import World
from ...worlds.mpi import libraries, library, version
from ...worlds.mpirun import mpirun
from .. import test_data as contents
from ..host.procfs import available_bytes
from ..native import Call
from ..provider import Case, Elapsed, Group, RankDevice, Refused
from .calls import CALLS, MpiSite
from .functions import MpiFunctions

_ALIGNMENT = 4096
_MOST = 2**31 - 1  # elements that MPI counts in an int, which mpi4py passes where the MPI has no larger
#: Buffers as large as one of a rank that MPI, or an operation in place, may take besides its two.
_SPARE = 1
_CHUNK = 2**14  # elements: what is worked out for them fits into the cache


class MpiProvider:
    """Runs collectives with MPI.

    Parameters
    ----------
    unalign
        By how many elements the buffers are off their alignment.

    Raises
    ------
    Refused
        If the processes of the World are not those of MPI.
    """

    name = "mpi"
    can_cancel = False
    operations = CALLS.keys()

    def __init__(self, world: World, group: Group, unalign: int = 0) -> None:
        self._mpi = library()
        everyone = self._mpi.COMM_WORLD
        if everyone.Get_size() != world.size:
            raise Refused(
                f"MPI has {everyone.Get_size()} ranks, this job {world.size}: over MPI, start the ranks with "
                f"{mpirun('wirespeed ...', world.size)}, or srun"
            )
        self.group = group
        self._comm = everyone.Split(group.color, world.rank)
        self._rank = self._comm.Get_rank()
        self._local = sum(member.host == world.me.host for member in world.members)
        self._unalign = unalign
        #: What all ranks of this host share, read before any has taken of it.
        self._free = available_bytes()
        self._space: list[Any] = []
        self._case: Case | None = None
        self._steps: list[list[Call]] = []
        self._keep: list[Any] = []
        self._native = MpiFunctions(self._mpi)
        self._barrier: Call = ("MPI_Barrier", (self._native.handle(self._comm),))
        self.devices: tuple[RankDevice, ...] = (RankDevice(world.local_rank, "host", _cpu()),)

    def libraries(self) -> dict[str, str]:
        """Return the MPI and mpi4py."""
        return libraries(self._mpi)

    def transport(self) -> str:
        """MPI does not say; its name must do."""
        return f"{version(self._mpi)} on host memory"

    def refuses(self, setting: Setting) -> str | None:
        """Refuse what MPI or numpy has no name for."""
        if not setting.type.numpy or setting.type.name == "half":
            return f"MPI has no type {setting.type.name}"
        if setting.operator in ("avg", "mulsum"):
            return f"MPI has no operator {setting.operator}"
        return setting.operation.why_not(self.group.ranks)

    def exceeds(self, case: Case) -> str:
        """MPI counts elements with an int."""
        count = case.bytes // case.width
        return f"{count} elements are more than this MPI counts" if count > _MOST else ""

    def allocate(self, size: int) -> None:
        """Have two buffers whose pages are there.

        Raises
        ------
        OutOfMemory
            If all processes of this host would take more than what is free.
        """
        self._space.clear()
        self._steps.clear()
        free = self._free
        wanted = (2 + _SPARE) * (size + _ALIGNMENT) * self._local
        if free is not None and wanted > 0.9 * free:
            raise OutOfMemory(
                f"2 buffers of {format_size(size)} for each of {self._local} ranks on this host, and as much "
                f"as one more for MPI, do not fit into the {format_size(free)} that are free"
            )
        try:
            for _ in range(2):
                whole = np.zeros(size + _ALIGNMENT, np.uint8)
                whole.fill(1)
                self._space.append(whole[-whole.ctypes.data % _ALIGNMENT :])
        except MemoryError as error:
            raise OutOfMemory(f"2 buffers of {format_size(size)}: {error}") from error

    def register(self) -> None:
        """MPI registers what it needs by itself."""

    def bind(self, case: Case) -> None:
        """Make the calls of a loop."""
        self._case = case
        self._keep.clear()
        # The same buffers every time, as Intel's and OSU's benchmarks use them.
        self._steps = [self._step(case, self._unalign * case.width)] * case.timing.operations

    def _buffers(self, case: Case, offset: int) -> tuple[Any, Any]:
        """Return the arrays to send from and to receive into."""
        kind, counts, at = case.setting.type.numpy, case.counts, self._rank

        def view(space: Any, first: int, count: int) -> Any:
            start = offset + first * case.width
            return space[start : start + count * case.width].view(kind)

        sends = self._space[1] if case.in_place else self._space[0]
        send_at = counts.send_at * at if case.in_place else 0
        receive_at = counts.receive_at * at if case.in_place else 0
        return view(sends, send_at, counts.send), view(self._space[1], receive_at, counts.receive)

    def _step(self, case: Case, offset: int) -> list[Call]:
        """Return the calls of one operation."""
        mpi, native = self._mpi, self._native
        send, receive = self._buffers(case, offset)
        operators = {"sum": mpi.SUM, "prod": mpi.PROD, "max": mpi.MAX, "min": mpi.MIN}
        operator = operators.get(case.setting.operator)
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
        """Write the data of the first operation of a loop."""
        case = self._bound()
        kind = case.setting.type
        operator = case.setting.operator or None
        offset = self._unalign * case.width
        send, receive = (array.view(f"uint{8 * case.width}") for array in self._buffers(case, offset))
        if not case.in_place:
            for start, some in _chunks(receive):
                some[:] = contents.before(kind, self._rank, start, len(some))
        for start, some in _chunks(send):
            data = contents.given(kind, operator, case.ranks, seed, self._rank, start, len(some))
            some[:] = data.view(some.dtype)

    def once(self) -> None:
        """Run the first operation of a loop."""
        self._native.run(self._steps[0])

    def align(self) -> None:
        """MPI's barrier."""
        self._native.run([self._barrier])

    def loop(self) -> list[Elapsed]:
        """Run the loop; MPI's calls return when they are done, so that is also the CPU time."""
        timing = self._bound().timing
        after = [self._barrier] if timing.blocking == 1 else []
        made = [[*step, *after] for step in self._steps]
        times: list[float] = []
        if not timing.blocking and not timing.per_iteration:
            alike = all(step is made[0] or step == made[0] for step in made)
            some, rounds = (made[0], len(made)) if alike else (list(chain.from_iterable(made)), 1)
            counted, _ = self._native.timed([], some, [], rounds)
        else:
            for i in range(timing.iterations):
                some = list(chain.from_iterable(made[i * timing.aggregate : (i + 1) * timing.aggregate]))
                seconds, _ = self._native.timed([], some, [])
                times.append(seconds)
                if timing.blocking == 3:
                    self.align()
            counted = sum(times)
        seconds = counted / timing.operations
        each = tuple(t / timing.aggregate for t in times) if timing.per_iteration else ()
        return [Elapsed(seconds, seconds, each)]

    def wrong(self, seed: int) -> int:
        """Compare what was received, piece by piece."""
        case = self._bound()
        kind, operator = case.setting.type, case.setting.operator or None
        _, receive = self._buffers(case, self._unalign * case.width)
        holds = case.setting.operation.holds(
            case.counts, case.width, self._rank, case.ranks, case.setting.root
        )
        found = 0
        for piece in holds:
            array = receive if piece.source is None else receive.view(f"uint{8 * case.width}")
            for start, some in _chunks(array[piece.at : piece.at + piece.count]):
                part = Piece(piece.at + start, len(some), piece.source, piece.start + start)
                found += contents.wrong(some, part, kind, operator, case.ranks, seed)
        return found

    def memory(self) -> dict[str, int]:
        """It takes no device memory."""
        return {}

    def cancel(self) -> None:
        """A call of MPI cannot be ended from outside."""

    def close(self) -> None:
        """Give back buffers and the communicator."""
        self._space.clear()
        self._steps.clear()
        self._comm.Free()

    def _bound(self) -> Case:
        assert self._case is not None
        return self._case


def _chunks(array: Any) -> Iterator[tuple[int, Any]]:
    """Yield an array piece by piece, so that what is worked out for each takes little memory."""
    for start in range(0, len(array), _CHUNK):
        yield start, array[start : start + _CHUNK]


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return "CPU"
    return "CPU"
