"""One run between two ranks: what can be measured here, its Document, and what it ends with."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..errors import MeasurementTimeout, StorageError, UsageError, VerificationError, WirespeedError
from ..results.document import SCHEMA, UNFINISHED, Document, Status, TestcaseResult
from ..results.store import Draft
from ..topology import Machine
from ..version import __version__
from ..worlds.base import RankLost, World
from ..worlds.watch import Watch, agree_on
from .base import Ends, Place, Wire

GPU, HOST = "gpu", "host"
MPI, NCCL = "mpi", "nccl"
#: Called whenever more is known, with what makes a result of it.
Keep = Callable[[Callable[[], TestcaseResult]], None]
Settings = dict[str, str | int | float | bool | list[str] | None]


@dataclass
class Site:
    """Memory of this process, and what carries messages from it; made once, when asked for.

    Parameters
    ----------
    machine
        Of all ranks.
    here
        As this process sees its host.
    """

    world: World
    machine: Machine
    here: Machine
    timeout: float
    libraries: dict[str, str] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _wires: dict[tuple[str, str], Wire | None] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        """Whether every rank has a GPU of its own."""
        return all(rank.device.startswith(GPU) for rank in self.machine.ranks)

    @property
    def between(self) -> bool:
        """Whether this is neither the first nor the last rank."""
        return self.world.rank not in (0, self.world.size - 1)

    def place(self, memory: str) -> Place:
        """Return a memory of this process.

        Raises
        ------
        UsageError
            If there is none.
        """
        if memory not in self._places:
            if memory == HOST:
                from .host import HostPlace

                self._places[memory] = HostPlace(self.timeout)
            elif self.has_gpus:
                from ..backends.cuda.place import GpuPlace

                device = self.machine.ranks[self.world.rank].device
                gpu = next(gpu for gpu in self.here.gpus if gpu.name == device)
                self._places[memory] = GpuPlace(gpu, self.timeout)
            else:
                raise UsageError("there is no GPU for each rank; give --memory host for host memory")
        return self._places[memory]

    def wire(self, over: str, memory: str) -> Wire | None:
        """Return what carries messages from a memory; None on ranks between the ends. All ranks call it.

        Raises
        ------
        UsageError
            If it cannot, on any rank: the reason is the same on all.
        """
        if (over, memory) not in self._wires:
            self._wires[over, memory] = self._mpi(memory) if over == MPI else self._nccl(memory)
        return self._wires[over, memory]

    def _agreed(self, told: tuple[str, bytes], what: str) -> list[bytes]:
        """Return what all have told, if none has a reason against it."""
        everyone = self.world.allgather([*told], f"agreeing on {what}")
        for member, (reason, _) in zip(self.world.members, everyone, strict=True):
            if reason:
                raise UsageError(f"{member}: {reason}" if self.world.size > 1 else reason)
        return [data for _, data in everyone]

    def _mpi(self, memory: str) -> Wire | None:
        self._agreed((self._refused_by_mpi(memory), b""), f"{MPI} on {memory}")
        if self.between:
            return None
        from ..worlds.mpi import library
        from .mpi import MpiWire

        wire = MpiWire(library(), self.world)
        self.libraries |= wire.libraries()
        return wire

    def _refused_by_mpi(self, memory: str) -> str:
        from ..worlds import by_mpi
        from ..worlds.mpi import library
        from ..worlds.mpirun import mpirun

        start = f"start it with {mpirun('wirespeed ...', 2)}, or srun"
        if not by_mpi():
            return f"the processes were not started by MPI; {start}"
        try:
            size = library().COMM_WORLD.Get_size()
        except WirespeedError as error:
            return str(error)
        if size != self.world.size:
            return f"MPI has {size} ranks, this job {self.world.size}; {start}"
        if memory == HOST:
            return ""
        try:
            place = self.place(memory)
        except UsageError as error:
            return str(error)
        from ..backends.cuda.mpi_aware import unaware

        return unaware(place.where.ordinal, self.timeout)

    def _nccl(self, memory: str) -> Wire | None:
        reason, identifier = "NCCL sends memory of GPUs alone", b""
        if memory == GPU:
            try:
                self.place(memory)
            except UsageError as error:
                reason = str(error)
            else:
                from ..collectives.nccl.messages import refuses

                reason, identifier = refuses(self.world.rank)
        identifiers = self._agreed((reason, identifier), f"{NCCL} on {memory}")
        from ..backends.cuda.place import GpuPlace
        from ..backends.native import loaded
        from ..collectives.nccl.messages import NcclMessages
        from .nccl import NcclWire

        place = self.place(memory)
        assert isinstance(place, GpuPlace)
        place.where.use()
        messages = NcclMessages(self.world.size, self.world.rank, identifiers[0])
        if self.between:
            messages.close()
            return None
        wire = NcclWire(messages, loaded(), self.world, place)
        self.libraries |= wire.libraries()
        return wire

    def close(self) -> None:
        """Give everything back."""
        for wire in self._wires.values():
            if wire is not None:
                wire.close()
        for place in self._places.values():
            place.close()


class Run:
    """A run in one process; on rank 0 it also makes and saves the Document.

    Parameters
    ----------
    world
        Of two processes or more.
    output
        Where the Document is saved after every testcase; None: nowhere.
    shown
        Called with each stage, and with nothing when all is over.
    """

    def __init__(
        self,
        world: World,
        site: Site,
        settings: Settings,
        command: str,
        output: Path | None,
        shown: Callable[[str], None],
    ) -> None:
        self.world, self.site, self.settings = world, site, settings
        self.ends = Ends(world)
        self.watch = Watch(world, site.timeout)
        self.results: list[TestcaseResult] = []
        self.interrupted = ""
        self.shown = shown
        self._command, self._output = command, output if world.rank == 0 else None
        self._started, self._start = time.monotonic(), _now()

    def at(self, stage: str) -> None:
        """Begin a stage."""
        self.watch.at(stage)
        self.shown(stage)

    def testcase(
        self,
        name: str,
        does: str,
        counts: str,
        measure: Callable[[Keep], None],
    ) -> None:
        """Measure one testcase and save.

        Parameters
        ----------
        measure
            Is given what to call, whenever more is known, with what makes a result of it.

        Raises
        ------
        WirespeedError
            If it fails in a way that ends the run; what is known by then is kept.
        """
        began, started = time.monotonic(), _now()
        draft = Draft(self._output)
        known: list[Callable[[], TestcaseResult]] = []

        def so_far(status: Status, reason: str) -> TestcaseResult:
            return msgspec.structs.replace(
                known[0](), name=name, status=status, description=does, reason=reason, counts=counts,
                started=started, seconds=time.monotonic() - began,
            )  # fmt: skip

        def keep(make: Callable[[], TestcaseResult]) -> None:
            known[:] = [make]
            draft.save(lambda: self.document(so_far(Status.INTERRUPTED, UNFINISHED)))

        def ended(status: Status, reason: str) -> None:
            self.results.append(so_far(status, reason))
            try:
                draft.last(self.document())
            except StorageError as error:
                self.world.fail(str(error))
                raise

        keep(lambda: TestcaseResult(name, Status.PASSED, does))
        self.at(f"preparing {name}")

        def attempt() -> str:
            try:
                measure(keep)
            except UsageError as error:  # all ranks have found the same
                return str(error)
            return ""

        try:
            waived = self.watch.run(attempt)
        except VerificationError as error:
            self.interrupted = str(error)
            ended(Status.FAILED, str(error))
            raise
        except KeyboardInterrupt:
            self.interrupted = "by the user"
            ended(Status.INTERRUPTED, f"by the user while {self.watch.stage}")
            self.world.fail("interrupted by the user")
            raise
        except WirespeedError as error:
            self.interrupted = str(error)
            late = isinstance(error, MeasurementTimeout) or "timed out" in str(error)
            ended(Status.TIMED_OUT if late else Status.ERROR, str(error))
            if not isinstance(error, RankLost):
                self.world.fail(str(error))
            raise
        else:
            ended(Status.WAIVED if waived else Status.PASSED, waived)

    def document(self, unfinished: TestcaseResult | None = None) -> Document:
        """Return what is known, of the testcase that is being measured too."""
        return Document(
            schema=SCHEMA,
            version=__version__,
            command=self._command,
            host=platform.node(),
            python=platform.python_version(),
            libraries=dict(self.site.libraries),
            machine=self.site.machine,
            options={
                "ranks": self.world.size,
                "launcher": self.world.launcher,
                "timeout": self.site.timeout,
                **self.settings,
            },
            started=self._start,
            ended=_now(),
            seconds=time.monotonic() - self._started,
            interrupted=UNFINISHED if unfinished else self.interrupted,
            testcases=(*self.results, *([unfinished] if unfinished else [])),
        )


def check(world: World, settings: Settings) -> None:
    """See that all ranks were asked for the same.

    Raises
    ------
    WorldError
        If not.
    """
    agree_on(world, {"version": __version__, **settings})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def combinations(over: Sequence[str], memory: Sequence[str]) -> list[tuple[str, str]]:
    """Return what can carry messages from which memory, of what was asked for."""
    return [(o, m) for o in over for m in memory if (o, m) != (NCCL, HOST)]
