"""NCCL and the CUDA driver as far as collectives use them, on host memory, so that both run without a GPU.

Operations are enqueued on communicators and run when all ranks have come to them, as on a GPU; a
stream that waits for ranks that do not come is an error after a while. The null stream is the current
context's: a copy that goes to another GPU's runs when that one is waited for, an event is refused
there. The kernels are the real source, compiled for the host.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda.bindings import driver as real

from tests.fakes.nccl_device import DevComm, Window, launch
from wirespeed.backends.nccl.calls import Format
from wirespeed.collectives.data_types import TYPES

_OK = real.CUresult.CUDA_SUCCESS
_SHORT = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
_INVALID = real.CUresult.CUDA_ERROR_INVALID_HANDLE
_HOST = """
#include <cstring>
struct Dim { unsigned x; };
static Dim blockIdx{0}, threadIdx{0}, blockDim{1}, gridDim{1};
#define __device__
#define __global__
static long long __double_as_longlong(double v) { long long b; std::memcpy(&b, &v, 8); return b; }
static double __longlong_as_double(long long b) { double v; std::memcpy(&v, &b, 8); return v; }
static void atomicAdd(unsigned long long* at, unsigned long long n) { *at += n; }
"""
_KERNELS = Path(__file__).parents[2] / "src/wirespeed/backends/nccl/kernels/contents.cu"
_PATIENCE = 10.0
_WORD = ctypes.c_int64
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[_WORD] * 12)
#: C name -> name here, and how many arguments it takes; the last two are communicator and stream.
_IN_C = {
    "ncclGroupStart": ("group_start", 0),
    "ncclGroupEnd": ("group_end", 0),
    "ncclAllReduce": ("all_reduce", 7),
    "ncclAllGather": ("all_gather", 6),
    "ncclReduceScatter": ("reduce_scatter", 7),
    "ncclAlltoAll": ("allto_all", 6),
    "ncclBroadcast": ("broadcast", 7),
    "ncclReduce": ("reduce", 8),
    "ncclGather": ("gather", 7),
    "ncclScatter": ("scatter", 7),
    "ncclSend": ("send", 6),
    "ncclRecv": ("recv", 6),
}


def compiled(folder: Path) -> ctypes.CDLL | None:
    """Return the kernels compiled for the host; None without a compiler."""
    if shutil.which("g++") is None:
        return None
    source, library = folder / "contents.cpp", folder / "contents.so"
    source.write_text(_HOST + _KERNELS.read_text())
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    found = ctypes.CDLL(str(library))
    found.fill.argtypes = [ctypes.c_void_p, ctypes.c_uint64, Format, ctypes.c_uint32, ctypes.c_uint32]
    found.compare.argtypes = [
        ctypes.c_void_p, ctypes.c_uint64, Format, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint64,
        ctypes.c_void_p,
    ]  # fmt: skip
    return found


def at(address: int, count: int, kind: str) -> Any:
    """Memory as an array."""
    dtype = np.dtype(kind)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


@dataclass
class Unit:
    """What a communicator does at once: a collective, or a group of sends and receives."""

    comm: Comm
    name: str
    arguments: tuple[Any, ...]
    sends: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    receives: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(eq=False)
class Comm:
    rank: int
    world: list[Comm]
    device: int
    stream: int = 0
    queue: list[Unit] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    windows: int = 0
    device_comms: int = 0
    aborted: bool = False

    def __int__(self) -> int:
        return id(self)


class Nccl:
    """The module ``nccl.bindings.nccl``."""

    class NCCLError(Exception):
        pass

    class UniqueId:
        def __init__(self, raw: bytes) -> None:
            self.raw = raw
            self._held = ctypes.create_string_buffer(raw, 128)
            self.ptr = ctypes.addressof(self._held)

        def __del__(self) -> None:
            ctypes.memset(self.ptr, 0, 128)  # who reads it later has held on to the address only

        @classmethod
        def from_buffer(cls, raw: bytearray) -> Nccl.UniqueId:
            return cls(bytes(raw))

    Config = SimpleNamespace

    def __init__(self, driver: Driver, version: int = 22809) -> None:
        self.driver = driver
        self.version = version
        self.worlds: dict[bytes, list[Comm]] = {}
        self.windows: dict[tuple[int, int], Window] = {}  # world, number
        self.reached = 0  # ranks of an LSA team; 0 for all
        self.changed = driver.changed
        self.local = threading.local()
        self.registered: list[tuple[str, int, int]] = []
        self.grouped = 0
        self.damage: Callable[[Unit], None] = lambda unit: None
        driver.nccl = self
        self.refused = ""  # the name of a function that fails

    @staticmethod
    def get_error_string(status: int) -> str:
        """The words of NCCL's ``ncclGetErrorString`` for some statuses (``src/init.cc``)."""
        run = "run with NCCL_DEBUG=INFO for details"
        return {1: f"unhandled cuda error ({run})", 2: f"unhandled system error ({run})"}[status]

    def library(self) -> SimpleNamespace:
        """The functions as C has them, the driver's copy among them."""

        def in_c(name: str, count: int) -> Any:
            def call(*words: int) -> int:
                arguments = list(words[:count])
                if count:
                    arguments[-2] = {id(c): c for w in self.worlds.values() for c in w}[arguments[-2]]
                if name == self.refused:
                    return 1
                getattr(self, name)(*arguments)
                return 0

            return _FUNCTION(call)

        def copy(to: int, source: int, size: int, stream: int, *_: int) -> int:
            self.driver.copy(to, source, size, stream)
            return 0

        def record(event: int, stream: int, *_: int) -> int:
            return int(self.driver.cuEventRecord(self.driver.events[event], stream)[0])

        def synchronize(stream: int, *_: int) -> int:
            return int(self.driver.cuStreamSynchronize(stream)[0])

        def set_current(context: int, *_: int) -> int:
            return int(self.driver.cuCtxSetCurrent(context)[0])

        def comm_of(handle: int) -> Comm:
            return next(c for world in self.worlds.values() for c in world if id(c) == handle)

        def create(comm: int, requirements: int, made: int, *_: int) -> int:
            mine = comm_of(comm)
            assert ctypes.c_int.from_address(requirements).value == 128
            DevComm.from_address(made).rank, DevComm.from_address(made).size = mine.rank, len(mine.world)
            mine.device_comms += 1
            return int(self.refused == "create")

        def destroy(comm: int, *_: int) -> int:
            comm_of(comm).device_comms -= 1
            return 0

        def start(function: int, blocks: int, *rest: int) -> int:
            assert rest[:5] == (1, 1, 512, 1, 1)
            self.start(self.driver.functions[function], blocks, rest[6], rest[7])
            return 0

        functions = {c: in_c(*known) for c, known in _IN_C.items()}
        return SimpleNamespace(
            cuMemcpyDtoDAsync_v2=_FUNCTION(copy),
            cuEventRecord=_FUNCTION(record),
            cuStreamSynchronize=_FUNCTION(synchronize),
            cuCtxSetCurrent=_FUNCTION(set_current),
            cuLaunchKernel=_FUNCTION(start),
            ncclDevCommCreate=_FUNCTION(create),
            ncclDevCommDestroy=_FUNCTION(destroy),
            **functions,
        )

    def get_version(self) -> int:
        return self.version

    def get_unique_id(self) -> UniqueId:
        return self.UniqueId(bytes([1 + len(self.worlds)]) * 128)

    def comm_init_rank_config(self, ranks: int, identifier: UniqueId, rank: int, config: Any) -> Comm:
        with self.changed:
            world = self.worlds.setdefault(identifier.raw, [])
            comm = Comm(rank, world, self.driver.current())
            world.append(comm)
            world.sort(key=lambda c: c.rank)
            comm.size = ranks  # type: ignore[attr-defined]
        return comm

    def comm_destroy(self, comm: Comm) -> None: ...

    def comm_abort(self, comm: Comm) -> None:
        with self.changed:
            for other in comm.world:
                other.aborted = True
                other.queue.clear()
            self.changed.notify_all()

    def mem_alloc(self, size: int) -> int:
        status, address = self.driver.cuMemAlloc(size)
        if status != _OK:
            raise self.NCCLError("out of memory")
        return int(address)

    def mem_free(self, address: int) -> None:
        self.driver.cuMemFree(address)

    def comm_register(self, comm: Comm, address: int, size: int) -> int:
        self.registered.append(("local", comm.rank, size))
        return len(self.registered)

    def comm_window_register(self, comm: Comm, address: int, size: int, win_flags: int) -> Any:
        assert win_flags == 1
        self.registered.append(("symmetric", comm.rank, size))
        with self.changed:
            window = self.windows.setdefault((id(comm.world), comm.windows), Window())
            comm.windows += 1
        window.bases[comm.rank] = address
        return SimpleNamespace(handle=ctypes.addressof(window))

    def team_lsa(self, comm: Comm) -> SimpleNamespace:
        return SimpleNamespace(n_ranks=self.reached or len(comm.world))

    def start(self, function: Function, blocks: int, stream: int, arguments: int) -> None:
        """Launch a kernel that accesses the memory of other GPUs."""
        device = self.driver.current()
        assert function.device == device == self.driver.lane(stream)[0]
        comm = next(c for world in self.worlds.values() for c in world if c.device == device)
        pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
        words = [ctypes.c_uint64.from_address(pointers[i] or 0).value for i in range(5)]
        given = (*words, DevComm.from_buffer_copy(ctypes.string_at(pointers[5] or 0, ctypes.sizeof(DevComm))))
        to = (Window.from_address(words[2]).bases[comm.rank] or 0) + words[3]
        self._enqueue(Unit(comm, "kernel", (0, to, function.name, blocks, words[4], function, given)), stream)

    def comm_deregister(self, comm: Comm, handle: int) -> None: ...

    def comm_window_deregister(self, comm: Comm, window: Any) -> None: ...

    def red_op_create_pre_mul_sum(self, scalar: int, kind: int, residence: int, comm: Comm) -> int:
        assert residence == 1
        comm.scalars.append(int(at(scalar, 1, TYPES[kind].numpy)[0]))
        return 100 + len(comm.scalars) - 1

    def red_op_destroy(self, operator: int, comm: Comm) -> None: ...

    def group_start(self) -> None:
        self.local.depth = getattr(self.local, "depth", 0) + 1
        if self.local.depth == 1:
            self.local.units = []

    def group_end(self) -> None:
        self.local.depth -= 1
        if self.local.depth:
            return
        self.grouped += 1
        merged: list[Unit] = []
        for unit in self.local.units:
            same = [m for m in merged if m.comm is unit.comm and m.name == unit.name == "p2p"]
            if same:
                for peer, parts in unit.sends.items():
                    same[0].sends.setdefault(peer, []).extend(parts)
                for peer, parts in unit.receives.items():
                    same[0].receives.setdefault(peer, []).extend(parts)
            else:
                merged.append(unit)
        for unit in merged:
            self._submit(unit)

    def _enqueue(self, unit: Unit, stream: int) -> None:
        unit.comm.stream = stream
        if getattr(self.local, "depth", 0):
            self.local.units.append(unit)
        else:
            self._submit(unit)

    def _submit(self, unit: Unit) -> None:
        captured = self.driver.captured(unit.comm.stream)
        if captured is not None:
            captured.append(unit)
            return
        self.push(unit)

    def push(self, unit: Unit) -> None:
        """Run all that can run now."""
        fresh = Unit(unit.comm, unit.name, unit.arguments, _copy(unit.sends), _copy(unit.receives))
        with self.changed:
            if not unit.comm.aborted:
                unit.comm.queue.append(fresh)
            while self._progress(unit.comm.world):
                pass
            self.changed.notify_all()

    def _progress(self, world: list[Comm]) -> bool:
        heads = [comm.queue[0] if comm.queue else None for comm in world]
        moved = False
        for unit in heads:
            if unit is None or unit.name != "p2p":
                continue
            for peer in list(unit.sends):
                other = heads[peer] if peer < len(heads) else None
                if other is None or other.name != "p2p" or unit.comm.rank not in other.receives:
                    continue
                for (source, size), (destination, room) in zip(
                    unit.sends.pop(peer), other.receives.pop(unit.comm.rank), strict=True
                ):
                    assert size == room, (size, room)
                    ctypes.memmove(destination, source, size)
                moved = True
        done = [u for u in heads if u and u.name == "p2p" and not u.sends and not u.receives]
        for unit in done:
            self.damage(unit)
            unit.comm.queue.pop(0)
        ready = [u for u in heads if u is not None and u.name != "p2p"]
        if len(ready) == world[0].size:  # type: ignore[attr-defined]
            assert len({(u.name, u.arguments[2:5]) for u in ready}) == 1, "ranks do different things"
            _RUN[ready[0].name](ready)
            for unit in ready:
                self.damage(unit)
                unit.comm.queue.pop(0)
            moved = True
        return moved or bool(done)

    def send(self, address: int, count: int, kind: int, peer: int, comm: Comm, stream: int) -> None:
        self._enqueue(Unit(comm, "p2p", (), sends={peer: [(address, count * TYPES[kind].bytes)]}), stream)

    def recv(self, address: int, count: int, kind: int, peer: int, comm: Comm, stream: int) -> None:
        self._enqueue(Unit(comm, "p2p", (), receives={peer: [(address, count * TYPES[kind].bytes)]}), stream)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _RUN:
            raise AttributeError(name)

        def enqueue(*arguments: Any) -> None:
            *mine, comm, stream = arguments
            self._enqueue(Unit(comm, name, tuple(mine)), stream)

        return enqueue


def _copy(parts: dict[int, list[tuple[int, int]]]) -> dict[int, list[tuple[int, int]]]:
    return {peer: list(some) for peer, some in parts.items()}


def _reduced(units: list[Unit], count: int, kind: int, operator: int) -> Any:
    numpy = TYPES[kind].numpy
    arrays = [at(u.arguments[0], count, numpy).copy() for u in units]
    if operator >= 100:
        arrays = [
            a * np.dtype(numpy).type(u.comm.scalars[operator - 100])
            for a, u in zip(arrays, units, strict=True)
        ]
    functions: list[Callable[..., Any]] = [np.sum, np.prod, np.max, np.min]
    if operator == 4:
        total = np.sum(arrays, axis=0, dtype=numpy)
        return (total / len(arrays)).astype(numpy) if TYPES[kind].is_float else total // len(arrays)
    function = functions[0 if operator >= 100 else operator]
    wide = {"dtype": numpy} if function in (np.sum, np.prod) else {}
    return function(arrays, axis=0, **wide)


def _bytes(address: int, size: int) -> Any:
    return at(address, size, "uint8")


def _all_reduce(units: list[Unit]) -> None:
    _, _, count, kind, _ = units[0].arguments
    result = _reduced(units, count, kind, units[0].arguments[4])
    for unit in units:
        at(unit.arguments[1], count, TYPES[kind].numpy)[:] = result


def _reduce(units: list[Unit]) -> None:
    _, _, count, kind, operator, root = units[0].arguments
    at(units[root].arguments[1], count, TYPES[kind].numpy)[:] = _reduced(units, count, kind, operator)


def _reduce_scatter(units: list[Unit]) -> None:
    _, _, count, kind, operator = units[0].arguments
    result = _reduced(units, count * len(units), kind, operator)
    for i, unit in enumerate(units):
        at(unit.arguments[1], count, TYPES[kind].numpy)[:] = result[i * count : (i + 1) * count]


def _moves(
    plan: Callable[[int, int, int], list[tuple[int, int, int, int]]], rooted: bool
) -> Callable[[list[Unit]], None]:
    """Moves (from rank, its part, to rank, its part)."""

    def run(units: list[Unit]) -> None:
        count, kind = units[0].arguments[2:4]
        size = count * TYPES[kind].bytes
        root = units[0].arguments[4] if rooted else 0
        parts = [
            (bytes(_bytes(units[a].arguments[0] + i * size, size)), units[b].arguments[1] + j * size)
            for a, i, b, j in plan(len(units), root, size)
        ]
        for data, address in parts:
            ctypes.memmove(address, data, size)

    return run


def _kernels(units: list[Unit]) -> None:
    for unit in units:
        function, given = unit.arguments[5:]
        launch(function.module, function.name, unit.arguments[3], given)


_RUN: dict[str, Callable[[list[Unit]], None]] = {
    "kernel": _kernels,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _moves(lambda n, root, _: [(a, 0, b, a) for a in range(n) for b in range(n)], False),
    "allto_all": _moves(lambda n, root, _: [(a, b, b, a) for a in range(n) for b in range(n)], False),
    "broadcast": _moves(lambda n, root, _: [(root, 0, b, 0) for b in range(n)], True),
    "gather": _moves(lambda n, root, _: [(a, 0, root, a) for a in range(n)], True),
    "scatter": _moves(lambda n, root, _: [(root, b, b, 0) for b in range(n)], True),
}


@dataclass(eq=False)
class Event:
    device: int
    time: float = 0.0

    def __int__(self) -> int:
        return id(self)


@dataclass(eq=False)
class Function:
    """A kernel of a module on a device."""

    name: str
    module: Any
    device: int

    def __int__(self) -> int:
        return id(self)


#: A stream: its device, and its handle, which is 0 on every device for the null stream.
Lane = tuple[int, int]


class Driver:
    """The module ``cuda.bindings.driver``; what is not here is the real one's."""

    def __init__(self, kernels: ctypes.CDLL, devices: int = 4, memory: int = 2**30) -> None:
        self.kernels = kernels
        self.devices = devices
        self.free = memory
        self.changed = threading.Condition()
        self.nccl: Nccl | None = None
        self.local = threading.local()
        self.blocks: dict[int, tuple[Any, int]] = {}  # address -> memory, device
        self.captures: dict[int, list[Unit]] = {}
        self.events: dict[int, Event] = {}
        self.functions: dict[int, Function] = {}
        self.clock = 0.0
        self.streams: list[int] = []  # the device of each
        self.strays: dict[Lane, list[tuple[int, int, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)

    def current(self) -> int:
        return int(self.local.device)

    def lane(self, stream: int) -> Lane:
        """The stream that a handle means here and now."""
        handle = int(stream)
        return (self.streams[handle - 1] if handle else self.current()), handle

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy in a stream: at once in one of the destination's GPU, unordered with its work in another's."""
        lane = self.lane(stream)
        holders = [
            device for start, (block, device) in self.blocks.items() if start <= to < start + len(block)
        ]
        if holders == [lane[0]]:
            ctypes.memmove(to, source, size)
        else:
            self.strays.setdefault(lane, []).append((to, source, size))

    def captured(self, stream: int) -> list[Unit] | None:
        return self.captures.get(int(stream))

    def cuInit(self, flags: int) -> tuple[Any]:
        return (_OK,)

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return _OK, self.devices

    def cuDeviceGet(self, index: int) -> tuple[Any, int]:
        return _OK, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, int]:
        return _OK, device

    def cuCtxSetCurrent(self, context: int) -> tuple[Any]:
        self.local.device = context
        return (_OK,)

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[Any, int]:
        return _OK, {"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
                     "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 2,
                     "CU_DEVICE_ATTRIBUTE_PCI_BUS_ID": device + 6}.get(attribute.name, 0)  # fmt: skip

    def cuDeviceGetName(self, size: int, device: int) -> tuple[Any, bytes]:
        return _OK, b"Fake GPU\0\0"

    def cuStreamCreate(self, flags: Any) -> tuple[Any, int]:
        self.streams.append(self.current())
        return _OK, len(self.streams)

    def cuStreamDestroy(self, stream: int) -> tuple[Any]:
        return (_OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any]:
        assert self.nccl is not None
        lane = self.lane(stream)
        comms = [c for world in self.nccl.worlds.values() for c in world if (c.device, c.stream) == lane]
        with self.changed:
            done = self.changed.wait_for(lambda: not any(c.queue for c in comms), _PATIENCE)
        assert done, "a stream waits for ranks that do not come"
        for stray in self.strays.pop(lane, ()):
            ctypes.memmove(*stray)
        return (_OK,)

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        if size > self.free:
            return _SHORT, 0
        block = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[address] = block, self.current()
        self.free -= size
        return _OK, address

    def cuMemFree(self, address: int) -> tuple[Any]:
        self.free += len(self.blocks.pop(int(address))[0]) - 256
        return (_OK,)

    def cuMemGetInfo(self) -> tuple[Any, int, int]:
        return _OK, self.free, self.free

    def cuEventCreate(self, flags: Any) -> tuple[Any, Event]:
        event = Event(self.current())
        self.events[int(event)] = event
        return _OK, event

    def cuEventRecord(self, event: Event, stream: int) -> tuple[Any]:
        if self.lane(stream)[0] != event.device:
            return (_INVALID,)
        self.clock += 1e-3
        event.time = self.clock
        return (_OK,)

    def cuEventElapsedTime(self, start: Event, stop: Event) -> tuple[Any, float]:
        return _OK, stop.time - start.time

    def cuEventDestroy(self, event: Event) -> tuple[Any]:
        del self.events[int(event)]
        return (_OK,)

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, int]:
        return _OK, 1

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, Function]:
        made = Function(name.decode(), module, self.current())
        self.functions[int(made)] = made
        return _OK, made

    def cuModuleGetGlobal(self, module: Any, name: bytes) -> tuple[Any, int, int]:
        size = {b"requirements": 4, b"communicator_bytes": 8}[name]
        return _OK, ctypes.addressof(ctypes.c_char.in_dll(module, name.decode())), size

    def cuLaunchKernel(self, function: Function, *rest: Any) -> tuple[Any]:
        if not function.device == self.current() == self.lane(rest[-3])[0]:
            return (_INVALID,)
        kernel = getattr(self.kernels, function.name)
        pointers = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))
        kernel(*(ctypes.cast(pointers[i], ctypes.POINTER(t)).contents for i, t in enumerate(kernel.argtypes)))
        return (_OK,)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> tuple[Any]:
        ctypes.memset(int(address), value, size)
        return (_OK,)

    def cuMemcpyDtoH(self, host: int, address: int, size: int) -> tuple[Any]:
        ctypes.memmove(host, int(address), size)
        return (_OK,)

    def cuStreamBeginCapture(self, stream: int, mode: Any) -> tuple[Any]:
        self.captures[int(stream)] = []
        return (_OK,)

    def cuStreamEndCapture(self, stream: int) -> tuple[Any, list[Unit]]:
        return _OK, self.captures.pop(int(stream))

    def cuGraphInstantiate(self, graph: list[Unit], flags: int) -> tuple[Any, list[Unit]]:
        return _OK, graph

    def cuGraphLaunch(self, graph: list[Unit], stream: int) -> tuple[Any]:
        assert self.nccl is not None
        for unit in graph:
            self.nccl.push(unit)
        return (_OK,)

    def cuGraphExecDestroy(self, graph: Any) -> tuple[Any]:
        return (_OK,)

    def cuGraphDestroy(self, graph: Any) -> tuple[Any]:
        return (_OK,)
