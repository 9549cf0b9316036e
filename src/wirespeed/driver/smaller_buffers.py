"""Measurements with smaller buffers, for devices with little free memory."""

from __future__ import annotations

from dataclasses import replace

from ..measurement import Measurement
from ..model import Access, Engine, Transfer
from ..units import MIB, format_size

#: The smallest buffer whose copies are still long compared with their start, in bytes.
LEAST_BYTES = 16 * MIB
#: The smallest buffer that no cache of a GPU holds, for what reads and writes one memory, in bytes. The
#: largest is in a B200, with 126 MB.
LEAST_LOCAL_BYTES = 256 * MIB


def shrunk(measurement: Measurement) -> Measurement | None:
    """A Measurement with buffers of half the size; None if it would measure something else."""
    transfers = measurement.transfers
    if len(transfers) < len(measurement.works) or not all(map(_can_shrink, transfers)):
        return None
    return replace(measurement, works=tuple(replace(t, bytes=t.bytes // 2) for t in transfers))


def _can_shrink(transfer: Transfer) -> bool:
    """Whether half of a buffer is still large; caches of CPUs are too different for that."""
    local = transfer.access is Access.LOCAL
    half = transfer.bytes / 2
    return (
        not transfer.operation.is_latency
        and transfer.scattered is None
        and transfer.calls is None
        and transfer.engine is not Engine.CPU
        and half >= (LEAST_LOCAL_BYTES if local else LEAST_BYTES)
        and half % MIB == 0
    )


def smaller_buffers(planned: Measurement, measured: Measurement, reason: str) -> str:
    """The warning that smaller buffers were used, and why."""
    used, wanted = (format_size(m.transfers[0].bytes) for m in (measured, planned))
    return f"buffers of {used} in place of {wanted}: {reason}"
