"""The GPU of a rank: context, stream, events, and the kernels that fill and compare buffers."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from ...collectives.data_types import OPERATORS, DataType
from ...collectives.operations import Piece
from .. import test_data as contents
from ..gpu.arguments import Arguments
from ..gpu.gpu_driver import GpuDriver
from ..provider import RankDevice

_SOURCE = Path(__file__).parent / "kernels" / "contents.cu"
#: Value of ``Format.operation`` for data that is not reduced.
_NO_OPERATOR = len(OPERATORS)
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
        return Format(type.bytes, type.exponent, type.mantissa, _NO_OPERATOR, ranks, 0, 0.0)
    return Format(
        type.bytes, type.exponent, type.mantissa, OPERATORS.index(operator), ranks,
        contents.highest(type, operator, ranks), contents.tolerance(type, operator, ranks),
    )  # fmt: skip


class RankGpu:
    """A GPU with one stream, which a rank uses.

    Attributes:
        driver: The driver.
        index: Position of the GPU among those of the driver.
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
