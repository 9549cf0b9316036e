"""The GPU of a rank: context, stream, events, and the kernels that fill and compare buffers."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ...testcases.collective_ops import Piece
from ...testcases.data_types import OPERATORS, DataType
from .. import test_data as contents
from ..cuda.arguments import Arguments
from ..cuda.device import load
from ..cuda.driver import check
from ..provider import RankDevice

_SOURCE = Path(__file__).parent / "kernels" / "contents.cu"
#: Value of ``Format.operation`` for data that is not reduced.
_NO_OPERATOR = len(OPERATORS)
_THREADS_PER_BLOCK = 512
#: Size of the counter of wrong elements and the scratch memory, and the offset of the latter, in bytes.
_COUNTER_BYTES, _SCRATCH_AT = 64, 32
_ATTRIBUTE = driver.CUdevice_attribute


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
    """Return the format of elements; an empty operator means data that is not reduced."""
    if not operator:
        return Format(type.bytes, type.exponent, type.mantissa, _NO_OPERATOR, ranks, 0, 0.0)
    return Format(
        type.bytes, type.exponent, type.mantissa, OPERATORS.index(operator), ranks,
        contents.highest(type, operator, ranks), contents.tolerance(type, operator, ranks),
    )  # fmt: skip


class RankGpu:
    """A GPU with one stream, which a rank uses.

    Parameters
    ----------
    index : int
        CUDA's index of the GPU.
    null_stream : bool
        Whether the stream is the default one.

    Attributes
    ----------
    context, stream : CUcontext, CUstream
        Primary context, and the stream.
    device : RankDevice
        Index, PCI bus ID and name of the GPU.
    capability : tuple[int, int]
        CUDA compute capability.
    multiprocessors : int
        Number of streaming multiprocessors.
    scratch : int
        Address of two words, 8 bytes apart, for synchronisation.
    """

    def __init__(self, index: int, null_stream: bool = False) -> None:
        self.handle = check(driver.cuDeviceGet, index)
        self.context = check(driver.cuDevicePrimaryCtxRetain, self.handle)
        self.use()
        self.stream = (
            driver.CUstream(0)
            if null_stream
            else check(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        )
        self.null_stream = null_stream
        self.multiprocessors = self._attribute("MULTIPROCESSOR_COUNT")
        self.capability = (
            self._attribute("COMPUTE_CAPABILITY_MAJOR"),
            self._attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        name = check(driver.cuDeviceGetName, 256, self.handle).split(b"\0")[0].decode()
        bus = [self._attribute(f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE")]
        self.device = RankDevice(index, "{:04x}:{:02x}:{:02x}".format(*bus), name)
        self._kernels: dict[str, Any] = {}
        self._events: list[Any] = []
        self._wrong = int(check(driver.cuMemAlloc, _COUNTER_BYTES))
        self.scratch = self._wrong + _SCRATCH_AT

    def _attribute(self, name: str) -> int:
        attribute = getattr(_ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute, attribute, self.handle))

    def use(self) -> None:
        """Make the context current in this thread."""
        check(driver.cuCtxSetCurrent, self.context)

    def wait(self) -> None:
        """Wait until the stream is idle, without holding the interpreter's lock."""
        self.use()
        check(driver.cuStreamSynchronize, self.stream)

    def free_memory(self) -> int:
        """Return the free memory, in bytes."""
        self.use()
        return int(check(driver.cuMemGetInfo)[0])

    def events(self, count: int) -> list[Any]:
        """Return ``count`` events, which are reused."""
        self.use()
        while len(self._events) < count:
            self._events.append(check(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DEFAULT))
        return self._events[:count]

    def _kernel(self, name: str) -> Any:
        if not self._kernels:
            module = load(_SOURCE.read_text(), "sm_{}{}".format(*self.capability))
            for each in ("fill", "compare"):
                self._kernels[each] = check(driver.cuModuleGetFunction, module, each.encode())
        return self._kernels[name]

    def _launch(self, name: str, count: int, *values: Any) -> None:
        if not count:
            return
        self.use()
        blocks = max(1, min(8 * self.multiprocessors, -(-count // _THREADS_PER_BLOCK)))
        arguments = Arguments(*values)
        check(
            driver.cuLaunchKernel, self._kernel(name), blocks, 1, 1, _THREADS_PER_BLOCK, 1, 1, 0, self.stream,
            arguments.address, 0,
        )  # fmt: skip

    def fill(self, address: int, count: int, format: Format, seed: int, rank: int) -> None:
        """Enqueue a kernel that fills ``count`` elements with the data of a rank."""
        self._launch(
            "fill", count, ctypes.c_void_p(address), ctypes.c_uint64(count), format,
            ctypes.c_uint32(seed), ctypes.c_uint32(rank),
        )  # fmt: skip

    def wrong(self, address: int, pieces: tuple[Piece, ...], format: Format, seed: int) -> int:
        """Return the number of elements that differ from the pieces of the result at ``address``."""
        self.use()
        check(driver.cuMemsetD8Async, self._wrong, 0, 8, self.stream)
        for piece in pieces:
            self._launch(
                "compare", piece.count, ctypes.c_void_p(address + piece.at * format.bytes),
                ctypes.c_uint64(piece.count), format, ctypes.c_uint32(seed),
                ctypes.c_int32(-1 if piece.source is None else piece.source), ctypes.c_uint64(piece.start),
                ctypes.c_void_p(self._wrong),
            )  # fmt: skip
        self.wait()
        found = ctypes.c_uint64()
        check(driver.cuMemcpyDtoH, ctypes.addressof(found), self._wrong, 8)
        return found.value

    def close(self) -> None:
        """Destroy stream, events and memory; the primary context is kept until the process ends."""
        self.use()
        for event in self._events:
            check(driver.cuEventDestroy, event)
        check(driver.cuMemFree, self._wrong)
        if not self.null_stream:
            check(driver.cuStreamDestroy, self.stream)
