"""Collectives over NCCL; ranks are processes, threads, or GPUs of one thread."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from threading import Barrier, BrokenBarrierError, Event
from typing import Any, TypeVar

from ...collectives.data_types import OPERATORS, DataType
from ...collectives.operations import Setting
from ...collectives.options import CollectiveOptions
from ...errors import BackendError, BackendLost, MeasurementTimeout, OutOfMemory, starting_threads
from ...hardware.facts import Fact
from ...units import format_size
from ...worlds.base import RankLost, World, WorldError
from ..call_tables import Failure
from ..gpu.gpu_driver import driver_of
from ..provider import REHEARSED_BYTES, Case, Elapsed, Group, Provider, RankDevice, Refused
from ..test_data import BEFORE, scalar
from . import calls as device_api
from .calls import CALLS, WITHOUT_2_28, RankGpu, Site, addresses, format_of
from .debug import Debug
from .library import GPU_BACKEND, IDENTIFIER_BYTES, INSTALL_NCCL, functions, version_text, words_of
from .loops import Loop

#: First versions of NCCL, as ncclGetVersion returns them: with the functions ncclAlltoAll, ncclGather and
#: ncclScatter (and CTA policies above 1); with symmetric registration; with fp8.
_PEERS_VERSION, _GATHER_VERSION, _SYMMETRIC_VERSION, _FP8_VERSION = 23000, 22800, 22700, 22400
#: First version with the headers that kernels of the device API include.
_DEVICE_VERSION = 22807
#: NCCL_WIN_COLL_SYMMETRIC and ncclScalarHostImmediate in nccl.h.
_SYMMETRIC_WINDOW, _HOST_SCALAR = 1, 1
#: Minimum size of a buffer, in bytes.
_MIN_BUFFER_BYTES = 16

#: A purpose of device memory, in the words of nccl-tests.
_INITIALIZATION = "Initialization"

T = TypeVar("T")


def _taken(before: Sequence[int], after: Sequence[int]) -> int:
    """The largest decrease of the free memory of a GPU, in bytes."""
    return max(earlier - later for earlier, later in zip(before, after, strict=True))


def count_gpus() -> int:
    """The number of GPUs that this process may use; 0 if there is no driver."""
    try:
        return len(driver_of(GPU_BACKEND).devices())
    except BackendError:
        return 0


@dataclass
class _Rank:
    """A rank of the collective: its number, GPU, communicator, buffers and registrations."""

    number: int
    gpu: RankGpu
    comm: Any = None
    send: int = 0
    receive: int = 0
    site: Site | None = None
    handles: tuple[Any, ...] = ()
    operators: tuple[int, ...] = ()
    kernel: device_api.DeviceKernel | None = None
    has_device_comm: bool = False


class NcclProvider(Provider):
    """Runs collectives with NCCL.

    Args:
        world: The processes of the job.
        group: The ranks that take part.
        options: How NCCL is used.
        bus_ids: PCI bus IDs of the GPUs, one per rank of this process; empty to choose them by the options.

    Attributes:
        version: Version as ncclGetVersion returns it, e.g. 22809 for 2.28.9.

    Raises:
        Refused: If NCCL or its bindings are missing, NCCL is too old for the options, or there are fewer GPUs
            than ranks.
    """

    name = "nccl"
    can_cancel = True
    operations = CALLS.keys()

    def __init__(
        self, world: World, group: Group, options: CollectiveOptions, bus_ids: Sequence[str] = ()
    ) -> None:
        self._debug = Debug()
        try:
            from nccl.bindings import nccl
        except (ImportError, RuntimeError) as error:
            raise Refused(f"NCCL cannot be used: {error}; {INSTALL_NCCL}") from error
        self._nccl = nccl
        self.group = group
        self.options = options
        self._world = world
        self.version = self._call(nccl.get_version)
        self._version = version_text(self.version)
        driver = driver_of(GPU_BACKEND)
        self._functions = functions(driver, self._failed)
        if options.registration == 2 and self.version < _SYMMETRIC_VERSION:
            raise Refused(f"symmetric registration requires NCCL 2.27; this is {self._version}")
        if options.policy > 1 and self.version < _GATHER_VERSION:
            raise Refused(f"this CTA policy requires NCCL 2.28; this is {self._version}")
        if options.device_implementation and self.version < _DEVICE_VERSION:
            raise Refused(f"-D requires NCCL 2.28.7; this is {self._version}")
        mine = options.threads * options.gpus
        first = options.first if options.first >= 0 else world.local_rank * mine
        present = count_gpus()
        if options.first < 0 and present == mine and "CUDA_VISIBLE_DEVICES" in os.environ:
            first = 0  # the launcher makes only its own GPUs visible; NCCL rejects duplicates
        ordinals = list(range(first, first + mine))
        if bus_ids:
            known = list(driver.devices())
            ordinals = [known.index(bus_id) for bus_id in bus_ids]
        elif first + mine > present:
            raise Refused(  # the first sentence is that of nccl-tests, on which scripts retry
                f"Invalid number of GPUs: {first + mine} requested but only {present} were found. "
                f"Please check the number of processes and GPUs per process. {world.me} requires GPUs "
                f"{first} to {first + mine - 1}: use fewer ranks, threads (-t) or GPUs (-g)"
            )
        base = group.processes.index(world.rank) * mine
        gpus = list(driver.devices().items())
        self._ranks = [
            _Rank(base + i, RankGpu(driver, n, *gpus[n], options.null_stream)) for i, n in enumerate(ordinals)
        ]
        self.devices: tuple[RankDevice, ...] = tuple(rank.gpu.device for rank in self._ranks)
        self._threads = [
            self._ranks[i * options.gpus : (i + 1) * options.gpus] for i in range(options.threads)
        ]
        self._pool = ThreadPoolExecutor(options.threads) if options.threads > 1 else None
        self._taken: dict[str, int] = {}
        self._device_bytes = 0
        self._room = 0
        #: Free memory of each GPU, in bytes: before the buffers were allocated, and when all was set up.
        self._before, self._ready = list[int](), list[int]()
        self._case: Case | None = None
        self._loops: list[Loop] = []
        self._rehearses = False
        self._cancelled = Event()
        self._barrier = Barrier(options.threads, self._meet_processes)
        if options.device_implementation:
            self.can_cancel = False  # an aborted communicator does not end kernels that are not NCCL's
            headers = device_api.headers(self.version)
            for rank in self._ranks:
                rank.kernel = device_api.DeviceKernel(
                    self._functions, rank.gpu, headers, options.device_implementation, options.device_blocks
                )

    # Description.

    def libraries(self) -> dict[str, str]:
        return {"nccl": self._version, "nccl4py": version("nccl4py")}

    def transport(self) -> str:
        """The version and the transports from NCCL's log."""
        how, kernels = self.options, ""
        if how.device_implementation:
            kernels = f", device implementation {how.device_implementation} with {how.device_blocks} CTAs"
        return f"NCCL {self._version}{kernels}: {self._debug.transports()}"

    def facts(self) -> tuple[Fact, ...]:
        return (self._debug.fact(),)

    def refuses(self, setting: Setting) -> str | None:
        """What this NCCL or this GPU does not support; None if everything is supported."""
        if setting.type.name.startswith("f8"):
            least = min(rank.gpu.capability for rank in self._ranks)
            if self.version < _FP8_VERSION or least < (9, 0):
                return f"{setting.type.name} requires NCCL 2.24 and compute capability 9.0"
        if self.options.device_implementation and (reason := device_api.refuses(setting)):
            return reason
        return setting.operation.why_not(self.group.ranks)

    # Setting up.

    def connect(self) -> None:
        """Create the communicators.

        Raises:
            Refused: If kernels of the device API cannot reach the memory of all GPUs.
        """
        self._initialise()
        if self.options.device_implementation:
            reached = self._call(self._nccl.team_lsa, self._ranks[0].comm).n_ranks
            if reached < self.group.ranks:
                raise Refused(
                    "-D requires GPUs that all access each other's memory: NCCL connects only "
                    f"{reached} of {self.group.ranks} in this way"
                )

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return function(*arguments)
        except self._nccl.NCCLError as error:
            raise BackendError(f"NCCL failed: {self._debug.explained(str(error))}") from error

    def _failed(self, failed: Failure) -> BackendError:
        """The error of a call that failed: its name, NCCL's words for its status, and the last warning."""
        return BackendError(f"NCCL failed: {self._debug.explained(words_of(self._nccl, failed))}")

    def _initialise(self) -> None:
        nccl = self._nccl
        colors = self._world.allgather(
            [self.group.color, self._identifier() if self._ranks[0].number == 0 else b""],
            "exchanging NCCL's identifier",
        )
        raw = next(bytes(uid) for color, uid in colors if color == self.group.color and uid)
        identifier = nccl.UniqueId.from_buffer(bytearray(raw))
        config = nccl.Config()
        if self.version >= _GATHER_VERSION:
            config.nvlink_centric_sched = 1  # like nccl-tests
        if self.options.policy >= 0:
            config.cta_policy = self.options.policy
        if self.options.operation == "sendrecv" and self.version >= _PEERS_VERSION:
            config.max_p2p_peers = 2  # the ranks before and behind

        def start(ranks: Sequence[_Rank]) -> None:
            self._call(nccl.group_start)
            for rank in ranks:
                rank.gpu.use()
                rank.comm = self._call(
                    nccl.comm_init_rank_config, self.group.ranks, identifier, rank.number, config
                )
            self._call(nccl.group_end)

        before = self._free()
        if self.options.parallel_init:
            self._in_threads(start, self._threads)
        else:
            start(self._ranks)
        self._taken[_INITIALIZATION] = _taken(before, self._free())

    def _identifier(self) -> bytes:
        identifier = self._call(self._nccl.get_unique_id)
        return ctypes.string_at(identifier.ptr, IDENTIFIER_BYTES)

    def _free(self) -> list[int]:
        return [rank.gpu.free_memory() for rank in self._ranks]

    def _each(self, work: Callable[[Loop], T]) -> list[T]:
        """Run a method of the bound loops in every thread."""

        def here(loop: Loop, ranks: Sequence[_Rank]) -> T:
            ranks[0].gpu.use()
            try:
                return work(loop)
            except BackendError:
                self._barrier.abort()  # the other threads would wait for this one
                raise

        return self._in_threads(here, self._loops, self._threads)

    def _meet(self) -> None:
        """Wait on the host until all threads of all processes have come here."""
        try:
            self._barrier.wait()
        except BrokenBarrierError as error:
            raise BackendLost("the operation was cancelled because another thread failed") from error

    def _meet_processes(self) -> None:
        try:
            self._world.barrier("waiting for all processes after an iteration")
        except (RankLost, WorldError, MeasurementTimeout) as error:
            raise BackendLost(str(error)) from error

    def _in_threads(self, work: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
        if self._pool is None:
            return [work(*values) for values in zip(*arguments, strict=True)]
        with starting_threads():
            futures = [self._pool.submit(work, *values) for values in zip(*arguments, strict=True)]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()  # raises an error without waiting for the other threads, which may hang
        return [future.result() for future in futures]

    def allocate(self, size: int) -> None:
        """Allocate the buffers with ncclMemAlloc, whose memory every transport of NCCL can use."""
        self._release()
        self._before = self._free()
        for rank in self._ranks:
            rank.gpu.use()
            try:
                rank.send = self._nccl.mem_alloc(max(size, _MIN_BUFFER_BYTES))
                rank.receive = self._nccl.mem_alloc(max(size, _MIN_BUFFER_BYTES))
            except self._nccl.NCCLError as error:
                self._release()
                free = format_size(min(self._before))
                raise OutOfMemory(
                    f"2 buffers of {format_size(size)} on GPU {rank.gpu.device.index}, {free} free: {error}"
                ) from error
        self._room = size

    def register(self) -> None:
        """Register both buffers of each rank, if requested, and create the device communicators."""
        if self.options.registration:
            self._on_all(self._register)
        registered = self._free()
        if self.options.device_implementation:
            self._on_all(self._create)
        self._ready = self._free()
        # By purpose like nccl-tests: the device communicators belong to the initialisation.
        self._taken["User-Allocated"] = _taken(self._before, registered)
        self._device_bytes = _taken(registered, self._ready)

    def _on_all(self, work: Callable[[_Rank], None]) -> None:
        """Set up all ranks together: symmetric registration waits for all of them."""
        with ThreadPoolExecutor(len(self._ranks)) as pool:
            for _ in pool.map(work, self._ranks):
                pass

    def _register(self, rank: _Rank) -> None:
        size = max(self._room, _MIN_BUFFER_BYTES)
        rank.gpu.use()
        if self.options.registration == 2:
            function = partial(self._nccl.comm_window_register, win_flags=_SYMMETRIC_WINDOW)
        else:
            function = self._nccl.comm_register
        rank.handles = (
            self._call(function, rank.comm, rank.send, size),
            self._call(function, rank.comm, rank.receive, size),
        )

    def _create(self, rank: _Rank) -> None:
        rank.gpu.use()
        assert rank.kernel is not None
        rank.kernel.create(int(rank.comm))
        rank.has_device_comm = True

    def _release(self) -> None:
        gone = (
            self._nccl.comm_window_deregister
            if self.options.registration == 2
            else self._nccl.comm_deregister
        )
        for rank in self._ranks:
            rank.gpu.use()
            if rank.kernel and rank.has_device_comm:
                rank.has_device_comm = False
                rank.kernel.destroy(int(rank.comm))
            for handle in rank.handles:
                self._call(gone, rank.comm, handle)
            for address in (rank.send, rank.receive):
                if address:
                    self._call(self._nccl.mem_free, address)
            rank.handles, rank.send, rank.receive = (), 0, 0

    # Running.

    def bind(self, case: Case) -> None:
        """Create the operators of NCCL that the case needs, and bind the loops of all threads."""
        self._case = case
        offset = self.options.unalign * case.width
        shifts = case.shifts(self._room - offset)
        for rank in self._ranks:
            self._drop_operators(rank)
            operator = -1
            if case.setting.reduction == "mulsum":
                operator = self._scaled(rank, case.setting.type)
                rank.operators = (operator,)
            elif case.setting.reduction:
                operator = OPERATORS.index(case.setting.reduction)
            buffers = rank.send, rank.receive
            windows = tuple(int(window.handle) for window in rank.handles) if rank.kernel else ()
            make = WITHOUT_2_28.get(case.setting.operation.name) if self.version < _GATHER_VERSION else None
            if rank.kernel:
                make = rank.kernel.bind(case, windows, buffers)
            rank.site = Site(
                rank.gpu.driver.native, rank.number, int(rank.comm), int(rank.gpu.stream),
                int(rank.gpu.context), rank.send + offset, rank.receive + offset, operator, make,
            )  # fmt: skip
        self._loops = []
        for ranks in self._threads:
            sites = [(rank.site, rank.gpu) for rank in ranks if rank.site]
            self._loops.append(Loop(self._functions, self._cancelled, case, sites, shifts, self._meet))
        self._rehearses = case.options.iterations > 1 and case.bytes <= REHEARSED_BYTES

    def _scaled(self, rank: _Rank, type: DataType) -> int:
        held = ctypes.create_string_buffer(type.encode(scalar(rank.number)).to_bytes(8, "little"), 8)
        operator = self._call(
            self._nccl.red_op_create_pre_mul_sum, ctypes.addressof(held), type.code, _HOST_SCALAR, rank.comm
        )
        return int(operator)

    def _drop_operators(self, rank: _Rank) -> None:
        for operator in rank.operators:
            self._call(self._nccl.red_op_destroy, operator, rank.comm)
        rank.operators = ()

    def fill(self, seed: int) -> None:
        """Fill the buffers with kernels and wait for them."""
        case = self._bound()
        format = format_of(case.setting.type, case.setting.reduction, case.ranks)
        bits = format_of(case.setting.type, "", case.ranks)
        for rank in self._ranks:
            assert rank.site is not None
            send, receive = addresses(case, rank.site, 0)
            if not case.in_place:
                rank.gpu.fill(receive, case.counts.receive, bits, BEFORE, rank.number)
            rank.gpu.fill(send, case.counts.send, format, seed, rank.number)
        for rank in self._ranks:
            rank.gpu.wait()

    def once(self) -> None:
        self._each(Loop.once)

    def loop(self) -> list[Elapsed]:
        """Run the loop in all threads; before it, a small one untimed.

        On two H200s, the first loop of one size of a sweep took 0.1 ms longer than the next one, half the
        time of 20 operations of 512 B.
        """
        if self._rehearses:
            self._rehearses = False
            self._each(Loop.time)
        return self._each(Loop.time)

    def wrong(self, seed: int) -> int:
        case = self._bound()
        format = format_of(case.setting.type, case.setting.reduction, case.ranks)
        wrong = 0
        for rank in self._ranks:
            assert rank.site is not None
            pieces = case.setting.operation.holds(
                case.counts, case.width, rank.number, case.ranks, case.setting.root
            )
            wrong += rank.gpu.wrong(addresses(case, rank.site, 0)[1], pieces, format, seed)
        return wrong

    # Ending.

    def memory(self) -> dict[str, int]:
        """The use of device memory by purpose, in bytes, each from the GPU where it is largest."""
        initialization = self._taken[_INITIALIZATION] + self._device_bytes
        return {
            **self._taken, _INITIALIZATION: initialization, "Collective": _taken(self._ready, self._free())
        }  # fmt: skip

    def cancel(self) -> None:
        """Abort the communicators, which ends their kernels and the threads that wait for them."""
        self._cancelled.set()
        self._barrier.abort()
        for rank in self._ranks:
            if rank.comm is not None:
                with suppress(self._nccl.NCCLError):  # the reason is known already
                    self._nccl.comm_abort(rank.comm)

    def close(self) -> None:
        if not self._cancelled.is_set():
            for rank in self._ranks:
                self._drop_operators(rank)
            self._release()
            for rank in self._ranks:
                self._call(self._nccl.comm_destroy, rank.comm)
            for rank in self._ranks:
                rank.gpu.close()
        if self._pool is not None:
            self._pool.shutdown(wait=not self._cancelled.is_set())

    def _bound(self) -> Case:
        assert self._case is not None
        return self._case
