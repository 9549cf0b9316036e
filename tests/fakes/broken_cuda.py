"""The CUDA driver with peer access broken for real, as the backend ``tests.fakes.broken_cuda``.

``FAKE_PEERS`` has faults of GPUs by their order: ``drop 0 1`` (what GPU 0 writes to the memory of GPU 1 goes
elsewhere), ``unseen 0 1`` (only flags do), ``hang 0 1`` (a kernel that writes waits forever first),
``closed 0 1`` (peer access is not enabled, so that a kernel faults).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from wirespeed.backends.gpu.gpu_driver import Arguments, narrow, pointer, wide

from .peer_gpu import VARIABLE

#: Kernel -> index of the argument that is the address it writes data to, and that of its flag.
_DATA = {"peer_store": 0, "peer_send": 0, "peer_add": 0}
_FLAGS = {"peer_ping": 0, "peer_pong": 0, "peer_send": 1}
_SCRATCH_BYTES = 2**24
#: Time that a kernel waits that never ends, in ns.
_FOREVER_NS = 600 * 10**9


def open_driver() -> Any:
    from wirespeed.backends.cuda.cuda_driver import CudaDriver

    class BrokenDriver(CudaDriver):
        name = __name__

        def __init__(self) -> None:
            super().__init__()
            texts = filter(None, os.environ.get(VARIABLE, "").split(";"))
            self.faults = {(kind, int(a), int(b)) for kind, a, b in map(str.split, texts)}
            self.order: dict[int, int] = {}  # context -> number of its GPU
            self.ranges: list[tuple[int, int, int]] = []
            self.names: dict[int, str] = {}
            self.scratch: dict[int, int] = {}
            self.streams: dict[int, int] = {}
            self.waiting: dict[int, Any] = {}
            self.current = -1
            real_open, real_use = self.open, self.use
            real_enable, real_copy = self.enable_peer, self.enqueue_copy
            real_map, real_import, real_ipc = self.map_memory, self.import_memory, self.open_allocation
            imported: set[int] = set()

            def opened(device: Any) -> Any:
                context = real_open(device)
                self.order[int(context)] = int(device)
                return context

            def use(context: Any) -> None:
                self.current = self.order[int(context)]
                real_use(context)

            def enable(context: Any) -> None:
                if ("closed", self.current, self.order[int(context)]) not in self.faults:
                    real_enable(context)

            def copy(to: int, origin: int, size: int, stream: Any) -> None:
                real_copy(self._redirected("drop", to, stream), origin, size, stream)

            def imports(exported: Any, mechanism: str) -> Any:
                memory = real_import(exported, mechanism)
                imported.add(int(memory))
                return memory

            def maps(memory: Any, size: int, devices: Sequence[Any]) -> tuple[int, Callable[[], None]]:
                address, release = real_map(memory, size, devices)
                self.ranges.append((address, size, -1 if int(memory) in imported else self.current))
                return address, release

            self.open, self.use, self.enqueue_copy = opened, use, copy
            self.enable_peer, self.map_memory, self.import_memory = enable, maps, imports

            def opens(handle: bytes) -> int:
                address = real_ipc(handle)
                self.ranges.append((address, _SCRATCH_BYTES, -1))
                return address

            self.open_allocation = opens

        def allocate(self, size: int) -> int:
            address = super().allocate(size)
            self.ranges.append((address, size, self.current))
            if self.current not in self.scratch:
                self.scratch[self.current] = super().allocate(_SCRATCH_BYTES)
            return address

        def stream(self) -> Any:
            stream = super().stream()
            self.streams[int(stream)] = self.current
            return stream

        def function(self, module: Any, name: str) -> Any:
            function = super().function(module, name)
            self.names[int(function)] = name
            if name == "peer_pong":
                self.waiting[self.current] = function
            return function

        def _concerns(self, kind: str, address: int, stream: Any) -> bool:
            device = self.streams[int(stream)]
            owner = next((o for start, size, o in self.ranges if start <= address < start + size), device)
            if owner == -1:
                return any(fault[:2] == (kind, device) for fault in self.faults)
            return (kind, device, owner) in self.faults

        def _redirected(self, kind: str, address: int, stream: Any) -> int:
            is_wrong = self._concerns(kind, address, stream)
            return self.scratch[self.streams[int(stream)]] if is_wrong else address

        def bind_launch(
            self, function: Any, blocks: int, threads: int, shared: int, stream: Any, arguments: Arguments
        ) -> Callable[[], object]:
            name, values = self.names[int(function)], list(arguments.values)
            for kind, table in (("drop", _DATA), ("drop", _FLAGS), ("unseen", _FLAGS)):
                if name in table:
                    i = table[name]
                    values[i] = pointer(self._redirected(kind, values[i].value or 0, stream))
            changed = Arguments(*values)
            launch = super().bind_launch(function, blocks, threads, shared, stream, changed)
            wait: Callable[[], object] | None = None
            never: Arguments | None = None
            if name in _DATA and self._concerns("hang", arguments.values[_DATA[name]].value or 0, stream):
                device = self.streams[int(stream)]
                own = pointer(self.scratch[device])
                never = Arguments(own, own, narrow(0x7FFFFFF0), narrow(1), wide(_FOREVER_NS), own)
                wait = super().bind_launch(self.waiting[device], 1, 1, 0, stream, never)

            def launched(kept: object = (changed, never)) -> None:
                del kept
                if wait is not None:
                    wait()
                launch()

            return launched

    return BrokenDriver()
