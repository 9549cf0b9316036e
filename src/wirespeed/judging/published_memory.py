"""What published rates say of host memory: reads by CPUs with as many channels of the same kind of memory,
as shares of its line rate. Kernels that store are not compared: with ordinary stores, which logs do not tell
from streaming ones, the memory moves a third to a half more than STREAM counts, so that the lowest published
rates are 0.42 to 0.51 of the line rate, and say no more than the range of the CPU's design.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..data import CHANNEL_BYTES, CpuSheet, cpu_sheet, cpu_sheets, norms
from ..data.norms import OBSERVED, Path, PublishedRate
from ..statistics import grouped
from ..units import MB

#: The kernel that is compared.
READ = "host_stream_read"
#: Sockets, channels in use, channels, kind and transfer rate of memory, as rows give them.
_FORM = re.compile(r"(\d+) sockets?.*?, (?:(\d+) of )?(\d+) channels.*\b(DDR\d)(?:-(\d+))?")
#: The fastest memory of kind DDR4 of servers, in millions of transfers per second.
_DDR4 = 3200


class _Memory(NamedTuple):
    """Channels of a socket, and the kind of their memory."""

    channels: int
    kind: str


class MemoryShare(NamedTuple):
    """A published rate as a share of the line rate of all sockets."""

    share: float
    model: str
    publisher: str


def memory_shares(cpu: str, design: str) -> tuple[MemoryShare, ...]:
    """The published reads of CPUs with such memory as a CPU; none if its design is not known.

    Args:
        cpu: Name of the CPU, as the kernel reports it.
        design: Vendor, family and model; empty if unknown.
    """
    found = cpu_sheet(cpu, design)
    memory = _memory(found[1]) if found else None
    return _shares().get(memory, ()) if memory else ()


@norms.of_observations
def _shares(rows: tuple[PublishedRate, ...]) -> dict[_Memory, tuple[MemoryShare, ...]]:
    """The published rates of reads by all sockets as shares of line rates.

    Of memory whose speed the source does not give, the fastest that CPUs with such memory support is assumed:
    the share may be too low, never too high.
    """
    known = ((memory, sheet.transfers[1]) for sheet in cpu_sheets().values() if (memory := _memory(sheet)))
    fastest = {memory: max(speeds) for memory, speeds in grouped(known).items()}
    found = []
    for row in rows:
        form = _FORM.match(row.form)
        if row.subject.path is not Path.HOST_MEMORY or row.kind not in OBSERVED or form is None:
            continue
        sockets, used, channels, kind, speed = form.groups()
        memory = _Memory(int(channels), kind)
        if row.subject.direction != "read" or row.subject.devices != sockets or memory not in fastest:
            continue  # of one node, which may be a part of a socket
        transfers = int(speed or fastest[memory])
        line = int(sockets) * int(used or channels) * transfers * MB * CHANNEL_BYTES
        found.append((memory, MemoryShare(row.rate / line, row.model, row.publisher)))
    return {memory: tuple(shares) for memory, shares in grouped(found).items()}


def _memory(sheet: CpuSheet) -> _Memory | None:
    """The memory of a design; None if it is not known, or is not of modules, as that of Arm and Xeon Max."""
    if not sheet.is_exact or not sheet.vendor:
        return None
    return _Memory(sheet.channels, "DDR4" if sheet.transfers[1] <= _DDR4 else "DDR5")
