"""The storage backend: which transfers it measures, and the files of the run."""

from __future__ import annotations

import time
from functools import cached_property

from ...backends.base import Backend
from ...backends.test_data import key_of
from ...errors import BackendError
from ...hardware.devices import STORAGE, Storage
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import (
    FILE_ENGINES,
    GPU_FILE_ENGINES,
    HOST_FILE_ENGINES,
    Engine,
    MemoryKind,
    Operation,
    Transfer,
)
from ...options import RunOptions
from .cufile import THROUGH_HOST, version
from .prepared import FilledFile, StoragePrepared, refused


class StorageBackend(Backend):
    """Backend for transfers between memory and the named folders, by the engines of files.

    Attributes:
        machine: This machine with its storage.
    """

    name = "storage"
    moves_files = True
    #: Many calls, also of storage that takes milliseconds for each.
    sample_seconds = 0.05

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._nodes = {node.name for node in machine.numa}
        self._gpus = {gpu.name: gpu for gpu in machine.gpus}
        self._devices: dict[str, Storage] = {device.name: device for device in machine.others[STORAGE.name]}
        self._files: dict[str, FilledFile] = {}
        self._drivers: dict[str, str] = {}
        self._cufile, self._ways = "", dict[str, None]()
        self._last: StoragePrepared | None = None
        self._laps, self._closed = 0, False

    def refuses_transfer(self, transfer: Transfer) -> str:
        if transfer.engine not in FILE_ENGINES or transfer.calls is None:
            return f"storage has no engine {transfer.engine}"
        kinds = {transfer.source.kind, transfer.destination.kind} - {MemoryKind.FILE}
        ends = {transfer.source.device, transfer.destination.device}
        if len(kinds) != 1 or transfer.operation is not Operation.COPY:
            return "storage is read to the memory of the host or a GPU, or written from it"
        if len(ends & self._devices.keys()) != 1 or len(ends & (self._nodes | self._gpus.keys())) != 1:
            return "only named folders of this host are measured"
        if transfer.engine not in (GPU_FILE_ENGINES if MemoryKind.DEVICE in kinds else HOST_FILE_ENGINES):
            return f"storage has no engine {transfer.engine} with this memory"
        return ""

    @cached_property
    def _without_ring(self) -> str:
        return refused()

    @cached_property
    def _without_cufile(self) -> str:
        try:
            self._cufile = version()
        except BackendError as error:
            return str(error)
        return ""

    def libraries(self) -> dict[str, str]:
        return {"cuFile": ", ".join((self._cufile, *self._ways))} if self._cufile else {}

    def _without_driver(self, name: str) -> str:
        """Why the memory of a GPU cannot be used; empty if it can."""
        from ...backends.gpu.gpu_driver import driver_of

        backend = self._gpus[name].backend
        if backend not in self._drivers:
            try:
                driver_of(backend or "host")  # of no backend: as of one without GPUs
                self._drivers[backend] = ""
            except BackendError as error:
                self._drivers[backend] = str(error)
        return self._drivers[backend]

    def refuses(self, measurement: Measurement) -> str | None:
        if not any(t.engine in FILE_ENGINES for t in measurement.transfers):
            return ""
        if len(measurement.works) > 1:
            return "storage is measured without other works"
        if any(t.engine is Engine.IO_URING for t in measurement.transfers) and self._without_ring:
            return self._without_ring
        ends = {end.device for transfer in measurement.transfers for end in transfer.ends}
        if any(t.engine is Engine.CUFILE for t in measurement.transfers) and self._without_cufile:
            return self._without_cufile
        if reason := next(filter(None, map(self._without_driver, sorted(ends & self._gpus.keys()))), ""):
            return reason
        return super().refuses(measurement)

    def prepare(self, measurement: Measurement, options: RunOptions) -> StoragePrepared:
        (transfer,) = measurement.transfers
        end = next(end for end in transfer.ends if end.kind is MemoryKind.FILE)
        device = self._devices[end.device]
        contents = self._files.get(end.device)
        if contents is None:
            contents = self._files[end.device] = FilledFile(device)
        self._laps += 1
        if gpu := next((self._gpus[end.device] for end in transfer.ends if end.device in self._gpus), None):
            from .on_gpu import CuFilePrepared, StagedPrepared

            kind = CuFilePrepared if transfer.engine is Engine.CUFILE else StagedPrepared
            prepared: StoragePrepared = kind(contents, transfer, options, self._laps, gpu)
        else:
            prepared = StoragePrepared(contents, transfer, options, self._laps)
        self._last = prepared
        half = int(transfer.destination.kind is MemoryKind.FILE)

        def goes_on() -> bool:
            self.progressed = time.monotonic()
            return not self._closed and not prepared.cancelled

        try:
            contents.fill(half, prepared.region, key_of(options.seed), goes_on)
            if way := prepared.way:
                self._ways[way] = None
            if way == THROUGH_HOST:
                self.warn(f"GPUDirect Storage is not used: cuFile moves the data of {device.name} {way}")
            elif transfer.engine is Engine.CUFILE and not way:
                self.warn(f"the log of cuFile does not say whether {device.name} uses GPUDirect Storage")
        except BaseException:
            prepared.__exit__()
            raise
        if not device.past_cache:
            self.warn(
                f"values of {device.name} are those of the page cache: {device.filesystem} does not bypass it"
            )
        return prepared

    def cancel(self) -> None:
        if self._last is not None:
            self._last.cancel()

    def close(self) -> None:
        """Remove the files."""
        self._closed = True
        self.cancel()
        for contents in self._files.values():
            contents.file.close()
