"""The calls of NCCL for each collective, as data: names of C functions with their arguments, and the GPU of a
rank with its stream, events and kernels. Option ``-D`` of nccl-tests replaces the calls by kernels over
NCCL's device API, which access the memory of other GPUs.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...collectives.data_types import OPERATORS, DataType
from ...collectives.operations import Piece, Setting
from ..call_tables import Call, Functions
from ..gpu.gpu_driver import Arguments, GpuDriver, Headers, NativeCalls, pointer, wide
from ..provider import Case, RankDevice, Refused
from ..test_data import highest, tolerance

#: Whether NCCL has the calls, which then run as one group, and the calls in their order.
Part = tuple[bool, list[Call]]

_NO_OPERATOR = -1
_SEND, _RECEIVE = "ncclSend", "ncclRecv"


@dataclass(frozen=True)
class Site:
    """Handles and buffers that the calls of a rank use.

    Attributes:
        driver: Calls of the driver.
        rank: Rank in the communicator.
        comm, stream: Communicator and stream.
        context: Context of the GPU; stream 0 is the default stream of the current context.
        send, receive: Addresses of the buffers.
        operator: Value of ncclRedOp_t; -1 if the operation has none.
        make: Function that returns the calls; None for the functions of NCCL.
    """

    driver: NativeCalls
    rank: int
    comm: int
    stream: int
    context: int
    send: int
    receive: int
    operator: int = _NO_OPERATOR
    make: Make | None = None


def addresses(case: Case, site: Site, shift: int) -> tuple[int, int]:
    """The addresses of the send and receive buffers of an operation; ``shift`` in bytes."""
    if not case.in_place:
        return site.send + shift, site.receive + shift
    base = site.receive + shift
    at = site.rank * case.width
    return base + case.counts.send_at * at, base + case.counts.receive_at * at


def calls(case: Case, sites: Sequence[Site], shift: int) -> list[Call]:
    """The calls with which the ranks of one thread run an operation once; ``shift`` in bytes."""
    parts: list[Part] = []
    for site in sites:
        send, receive = addresses(case, site, shift)
        make = site.make or CALLS[case.setting.operation.name]
        for i, part in enumerate(make(case, site, send, receive)):
            if i == len(parts):
                parts.append((part[0], []))
            parts[i][1].extend(part[1])
    program: list[Call] = []
    for is_nccl, members in parts:
        program += grouped(members) if is_nccl else members
    return program


def in_context(site: Site, call: Call) -> list[Call]:
    """A call of the driver on the stream of a rank.

    The driver uses the GPU of the current context; NCCL uses the GPU of the communicator.
    """
    return [site.driver.use(site.context), call]


def grouped(members: list[Call]) -> list[Call]:
    """The calls as one group of NCCL."""
    return members if len(members) == 1 else [("ncclGroupStart", ()), *members, ("ncclGroupEnd", ())]


#: Returns the calls of a rank for an operation, from the addresses of its send and receive buffers.
Make = Callable[[Case, Site, int, int], list[Part]]


def _function(name: str, *, reduces: bool = False, rooted: bool = False) -> Make:
    """The maker of an operation that is one function of NCCL."""

    def make(case: Case, site: Site, send: int, receive: int) -> list[Part]:
        setting = case.setting
        operator = (site.operator,) if reduces else ()
        root = (setting.root,) if rooted else ()
        arguments = (send, receive, case.counts.each, setting.type.code, *operator, *root)
        return [(True, [(name, (*arguments, site.comm, site.stream))])]

    return make


def _ring(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    after, before = (site.rank + 1) % case.ranks, (site.rank - 1) % case.ranks
    return _exchange(case, site, [(after, send)], [(before, receive)])


def _unequal(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    parts = case.setting.operation.parts
    assert parts is not None
    kind, width, where = case.setting.type.code, case.width, (site.comm, site.stream)
    exchanges: list[Call] = []
    for peer, (out, back) in enumerate(zip(*parts(case.counts, width, site.rank, case.ranks), strict=True)):
        if out:
            exchanges.append((_SEND, (send, out, kind, peer, *where)))
        if back:
            exchanges.append((_RECEIVE, (receive, back, kind, peer, *where)))
        send += out * width
        receive += back * width
    return [(True, exchanges)]


def _exchange(
    case: Case,
    site: Site,
    sends: Sequence[tuple[int, int]],
    receives: Sequence[tuple[int, int]],
    parts: int = 1,
) -> list[Part]:
    """Sends and receives of a number of equal parts; each of a rank and an address."""
    kind, count, where = case.setting.type.code, case.counts.each * parts, (site.comm, site.stream)
    return [(True, [
        *((_SEND, (address, count, kind, peer, *where)) for peer, address in sends),
        *((_RECEIVE, (address, count, kind, peer, *where)) for peer, address in receives),
    ])]  # fmt: skip


def _parts(case: Case, at: int) -> list[tuple[int, int]]:
    """Each rank and the address of its part of a buffer at ``at``."""
    return [(rank, at + rank * case.counts.each * case.width) for rank in range(case.ranks)]


def _alltoall(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    return _exchange(case, site, _parts(case, send), _parts(case, receive))


def _gather(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    root = case.setting.root
    receives = _parts(case, receive) if site.rank == root else []
    return _exchange(case, site, [(root, send)], receives)


def _scatter(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    root = case.setting.root
    sends = _parts(case, send) if site.rank == root else []
    return _exchange(case, site, sends, [(root, receive)])


def _hypercube(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    """An all-gather in log2(n) steps, each with the rank whose number differs in one bit."""
    part = case.counts.each * case.width
    own = receive + site.rank * part
    parts: list[Part] = []
    if part and own != send:
        parts.append((False, in_context(site, site.driver.copy(own, send, part, site.stream))))
    for bit in range(case.ranks.bit_length() - 1):
        mask = 1 << bit
        mine = site.rank & ~(mask - 1)
        peer = site.rank ^ mask
        sends, receives = ([(peer, receive + first * part)] for first in (mine, mine ^ mask))
        parts += _exchange(case, site, sends, receives, mask)
    return parts


#: Operation -> function that returns the calls of one execution.
CALLS: dict[str, Make] = {
    "all_reduce": _function("ncclAllReduce", reduces=True),
    "all_gather": _function("ncclAllGather"),
    "reduce_scatter": _function("ncclReduceScatter", reduces=True),
    "alltoall": _function("ncclAlltoAll"),
    "alltoallv": _unequal,
    "broadcast": _function("ncclBroadcast", rooted=True),
    "reduce": _function("ncclReduce", reduces=True, rooted=True),
    "gather": _function("ncclGather", rooted=True),
    "scatter": _function("ncclScatter", rooted=True),
    "sendrecv": _ring,
    "hypercube": _hypercube,
}
#: The same without functions that NCCL has since 2.28.
WITHOUT_2_28: dict[str, Make] = {"alltoall": _alltoall, "gather": _gather, "scatter": _scatter}
_SOURCE = Path(__file__).parent / "kernels" / "contents.cu"
#: Value of ``Format.operation`` for data that is not reduced.
_NO_GPU_OPERATOR = len(OPERATORS)
_THREADS_PER_BLOCK = 512
#: Size of the counter of wrong elements and the scratch memory, and the offset of the latter, in bytes.
_COUNTER_BYTES, _SCRATCH_AT = 64, 32


class Format(ctypes.Structure):
    """The format of elements: the struct ``Format`` of ``kernels/contents.cu``."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("exponent", ctypes.c_uint32),
        ("mantissa", ctypes.c_uint32),
        ("operation", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("highest", ctypes.c_uint32),
        ("tolerance", ctypes.c_double),
    )


def format_of(type: DataType, operator: str, ranks: int) -> Format:
    """The format of elements; an empty operator means data that is not reduced."""
    if not operator:
        return Format(type.bytes, type.exponent, type.mantissa, _NO_GPU_OPERATOR, ranks, 0, 0.0)
    return Format(
        type.bytes, type.exponent, type.mantissa, OPERATORS.index(operator), ranks,
        highest(type, operator, ranks), tolerance(type, operator, ranks),
    )  # fmt: skip


class RankGpu:
    """A GPU with one stream, which a rank uses.

    Args:
        driver: The driver.
        index: Position of the GPU among the GPUs of the driver.
        bus_id: Its bus ID.
        handle: Its handle.
        null_stream: Whether the stream is the default one.

    Attributes:
        context, stream: Primary context, and the stream.
        device: Index, PCI bus ID and name of the GPU.
        capability: As in ``GpuProperties``.
        multiprocessors: Number of streaming multiprocessors.
        scratch: Address of two words, 8 bytes apart, for synchronisation.
    """

    def __init__(
        self, driver: GpuDriver, index: int, bus_id: str, handle: Any, null_stream: bool = False
    ) -> None:
        self.driver, self.handle = driver, handle
        self.context = driver.open(self.handle)
        self.use()
        self.stream = driver.default_stream if null_stream else driver.stream()
        self.null_stream = null_stream
        properties = driver.properties(self.handle)
        self.multiprocessors, self.capability = properties.multiprocessors, properties.capability
        domain, _, slot = bus_id.partition(":")
        self.device = RankDevice(index, f"{domain[-4:]}:{slot}", properties.model)
        self._kernels: dict[str, Any] = {}
        self._events: list[Any] = []
        self._wrong = driver.allocate(_COUNTER_BYTES)
        self.scratch = self._wrong + _SCRATCH_AT

    def use(self) -> None:
        """Make the context current in this thread."""
        self.driver.use(self.context)

    def wait(self) -> None:
        """Wait until the stream is idle, without holding the interpreter's lock."""
        self.use()
        self.driver.synchronize(self.stream)

    def free_memory(self) -> int:
        """The free memory, in bytes."""
        self.use()
        return self.driver.memory()[0]

    def events(self, count: int) -> list[Any]:
        """``count`` events, which are reused."""
        self.use()
        while len(self._events) < count:
            self._events.append(self.driver.event())
        return self._events[:count]

    def _kernel(self, name: str) -> Any:
        if not self._kernels:
            module = self.driver.module(_SOURCE.read_text(), self.handle)
            for kernel in ("fill", "compare"):
                self._kernels[kernel] = self.driver.function(module, kernel)
        return self._kernels[name]

    def _launch(self, name: str, count: int, *values: Any) -> None:
        if not count:
            return
        self.use()
        blocks = max(1, min(8 * self.multiprocessors, -(-count // _THREADS_PER_BLOCK)))
        kernel, arguments = self._kernel(name), Arguments(*values)
        self.driver.bind_launch(kernel, blocks, _THREADS_PER_BLOCK, 0, self.stream, arguments)()

    def fill(self, address: int, count: int, format: Format, seed: int, rank: int) -> None:
        """Enqueue a kernel that fills ``count`` elements with the data of a rank."""
        self._launch(
            "fill", count, ctypes.c_void_p(address), ctypes.c_uint64(count), format,
            ctypes.c_uint32(seed), ctypes.c_uint32(rank),
        )  # fmt: skip

    def wrong(self, address: int, pieces: tuple[Piece, ...], format: Format, seed: int) -> int:
        """The number of elements that differ from the pieces of the result at ``address``."""
        self.use()
        self.driver.enqueue_zeros(self._wrong, 8, self.stream)
        for piece in pieces:
            self._launch(
                "compare", piece.count, ctypes.c_void_p(address + piece.at * format.bytes),
                ctypes.c_uint64(piece.count), format, ctypes.c_uint32(seed),
                ctypes.c_int32(-1 if piece.source is None else piece.source), ctypes.c_uint64(piece.start),
                ctypes.c_void_p(self._wrong),
            )  # fmt: skip
        self.wait()
        count = ctypes.c_uint64()
        self.driver.read(ctypes.addressof(count), self._wrong, 8)
        return count.value

    def close(self) -> None:
        """Destroy stream, events and memory; the primary context is kept until the process ends."""
        self.use()
        for event in self._events:
            self.driver.destroy_event(event)
        self.driver.free(self._wrong)
        if not self.null_stream:
            self.driver.destroy_stream(self.stream)


_SOURCE_DEVICE = Path(__file__).parent / "kernels" / "device_api.cu"
#: Headers that NCCL's headers include and NVRTC lacks; the source declares what is used of them.
_ABSENT = (
    "stdint.h", "stdbool.h", "limits.h", "cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h",
    "cuda_fp8.h", "cuda/atomic",
)  # fmt: skip
#: Name of a type -> ``ELEMENT`` of the kernels. Sums of signed and unsigned integers have the same bits.
_ELEMENTS = {
    "int8": "uint8_t", "uint8": "uint8_t", "int32": "uint32_t", "uint32": "uint32_t", "int64": "uint64_t",
    "uint64": "uint64_t", "half": "Half", "float": "float", "double": "double",
}  # fmt: skip
#: The same for types that are moved but not reduced.
_MOVED = {"bfloat16": "uint16_t", "f8e4m3": "uint8_t", "f8e5m2": "uint8_t"}
#: The type whose kernels are loaded first.
_FIRST = "float"


def refuses(setting: Setting) -> str | None:
    """Why the kernels cannot run a setting; None if they can."""
    if setting.operation.operator is not None:
        return None
    if setting.operator != "sum":
        return f"-D supports the operator sum, not {setting.operator}"
    if setting.type.name not in _ELEMENTS:
        return f"-D supports sums of {', '.join(_ELEMENTS)}, not of {setting.type.name}"
    return None


def source(element: str) -> str:
    """The source of the kernels for a type of elements."""
    return f"#define ELEMENT {element}\n{_SOURCE_DEVICE.read_text()}"


def headers(version: int, maps: Path = Path("/proc/self/maps")) -> Headers:
    """The headers of the loaded NCCL.

    Args:
        version: Its version, as ncclGetVersion returns it.
        maps: File that names the libraries of this process.

    Raises:
        Refused: If they are not installed, or belong to another version.
    """
    lines = [line.split(maxsplit=5) for line in maps.read_text().splitlines() if "/libnccl.so" in line]
    folders = [parent / "include" for parent in Path(lines[0][-1]).parents[1:3]] if lines else []
    for folder in folders:
        if not (folder / "nccl_device" / "core.h").is_file():
            continue
        code = re.search(r"define NCCL_VERSION_CODE (\d+)", (folder / "nccl.h").read_text())
        if not code or int(code[1]) != version:
            raise Refused(f"-D requires the headers of NCCL {version}, which is loaded; {folder} has others")
        return Headers(folder, str(version), _ABSENT)
    raise Refused(
        f"-D requires NCCL's headers, but there is no nccl_device in {' or '.join(map(str, folders))}: "
        "install NCCL's wheel or development package"
    )


class DeviceKernel:
    """The kernel of a rank, with its device communicator.

    Attributes:
        functions: Functions of NCCL and of the driver.
        gpu: The GPU of the rank.
        headers: The headers of NCCL.
        implementation, blocks: Number of the implementation, and of blocks of the grid.

    Raises:
        BackendError: If the compiler or the driver rejects the kernels.
    """

    def __init__(
        self, functions: Functions, gpu: RankGpu, headers: Headers, implementation: int, blocks: int
    ) -> None:
        self._functions, self._gpu, self._headers = functions, gpu, headers
        self._implementation, self._grid = implementation, (blocks, _THREADS_PER_BLOCK)
        self._modules: dict[str, Any] = {}
        self._requirements = self._global("requirements")
        size = int.from_bytes(self._global("communicator_bytes"), "little")
        self._communicator = (ctypes.c_char * size)()

    def _module(self, element: str) -> Any:
        self._gpu.use()
        if element not in self._modules:
            loaded = self._gpu.driver.module(source(element), self._gpu.handle, self._headers)
            self._modules[element] = loaded
        return self._modules[element]

    def _global(self, name: str) -> Any:
        """The bytes of a variable of the kernels."""
        address, size = self._gpu.driver.variable(self._module(_FIRST), name)
        value = (ctypes.c_char * size)()
        self._gpu.driver.read(ctypes.addressof(value), address, size)
        return value

    def create(self, comm: int) -> None:
        """Create the device communicator, when all ranks do."""
        addresses = ctypes.addressof(self._requirements), ctypes.addressof(self._communicator)
        self._functions.bind([("ncclDevCommCreate", (comm, *addresses))])()

    def destroy(self, comm: int) -> None:
        """Destroy the device communicator."""
        self._functions.bind([("ncclDevCommDestroy", (comm, ctypes.addressof(self._communicator)))])()

    def bind(self, case: Case, windows: tuple[int, ...], bases: tuple[int, ...]) -> Make:
        """Choose the kernel of a case; return the function that returns its launches.

        Args:
            windows, bases: Windows and addresses of the send and the receive buffer.
        """
        module = self._module((_ELEMENTS | _MOVED)[case.setting.type.name])
        name = f"{case.setting.operation.name}_{self._implementation}"
        function = int(self._gpu.driver.function(module, name))
        known: dict[tuple[int, int], Arguments] = {}

        def make(case: Case, site: Site, send: int, receive: int) -> list[Part]:
            if (send, receive) not in known:
                source = 1 if case.in_place else 0
                known[send, receive] = Arguments(
                    pointer(windows[source]), wide(send - bases[source]),
                    pointer(windows[1]), wide(receive - bases[1]),
                    wide(case.counts.each), self._communicator,
                )  # fmt: skip
            launch = site.driver.launch(function, *self._grid, 0, site.stream, known[send, receive].address)
            return [(False, in_context(site, launch))]

        return make
