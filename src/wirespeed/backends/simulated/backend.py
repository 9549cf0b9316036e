"""The simulated backend: Transfers share the links of a Machine in virtual time. Faults produce wrong data,
errors and hangs on demand, so that their handling can be tested without hardware.
"""

from __future__ import annotations

from collections import Counter

from ...errors import OutOfMemory
from ...hardware.devices import FaultKind
from ...hardware.durations import CONNECT_S, prepare_seconds
from ...hardware.topology import Machine
from ...measurement import Measurement
from ...model import BUFFERS, Collective, Message, Sharing
from ...options import RunOptions
from ...units import format_size
from ..base import Backend, BackendDetails, Prepared
from ..collective_backend import CollectiveBackend
from .collectives import connect
from .hardware import SimulatedHardware
from .pairs import SimulatedPair
from .prepared import SimulatedMeasurement


class SimulatedBackend(Backend):
    """Run Measurements on a machine description.

    Attributes:
        machine: The machine, with the capacities of its links, and its faults.
    """

    name = "simulated"
    sample_seconds = 1e-3
    virtual = True

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine, self.hardware = machine, SimulatedHardware(machine)
        self._collectives: CollectiveBackend | None = None

    def refuses(self, measurement: Measurement) -> str | None:
        del measurement
        return None

    def prepare(self, measurement: Measurement, options: RunOptions) -> Prepared:
        """Compute the times of a Measurement without noise."""
        self.hardware.released.clear()
        self.hardware.overhead += prepare_seconds(measurement)
        self._allocate(measurement)
        if measurement.collective:
            return self._of_collectives(measurement.collective, options).prepare(measurement, options)
        if isinstance(measurement.works[0], Message | Sharing):
            return SimulatedPair(self.hardware, measurement, options)
        return SimulatedMeasurement(self.hardware, measurement, options)

    def _allocate(self, measurement: Measurement) -> None:
        """Raise an error if the transfers need more memory than a device has, or a ``full`` fault leaves."""
        needed: Counter[str] = Counter()
        for transfer in measurement.transfers:
            sources, destinations = BUFFERS[transfer.operation]
            needed[self.machine.vertex(transfer.source)] += sources * transfer.bytes
            needed[self.machine.vertex(transfer.destination)] += destinations * transfer.bytes
        for vertex, size in needed.items():
            free = self.hardware.free_bytes(vertex)
            if size > free:
                requested = f"{format_size(size)} requested, {format_size(free)} is free"
                raise OutOfMemory(f"not enough memory on {vertex}: {requested}")

    def _of_collectives(self, run: Collective, options: RunOptions) -> CollectiveBackend:
        if self._collectives is None:
            self.hardware.overhead += CONNECT_S

            self._collectives = connect(self.machine, run.ranks, options.seed)
        return self._collectives

    def describe(self) -> BackendDetails:
        return self._collectives.describe() if self._collectives else BackendDetails()

    def now(self) -> float:
        return self.hardware.clock + (self._collectives.now() if self._collectives else 0.0)

    def elapsed(self) -> float:
        return self.now() + self.hardware.overhead

    def busy(self) -> dict[str, str]:
        """The devices with a ``busy`` or ``full`` fault: one, or all if the fault names none."""
        using = (FaultKind.BUSY, FaultKind.FULL)
        places = [fault.where for fault in self.machine.faults if fault.kind in using]
        devices = [device.name for device in (*self.machine.attached, *self.machine.numa)]
        return {d: "in use by a simulated load" for d in devices if any(p in ("", d) for p in places)}

    def cancel(self) -> None:
        self.hardware.released.set()
        if self._collectives is not None:
            self._collectives.cancel()

    def close(self) -> None:
        if self._collectives is not None:
            self._collectives.close()
