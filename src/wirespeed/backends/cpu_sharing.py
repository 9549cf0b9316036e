"""Whether ranks shared a CPU while they measured. A rank that waits for a message does not give its CPU away,
so one that shares it waits for a time slice: 4 ms in place of 0.2 us. Ranks that are not bound share a CPU
where other processes occupy the rest.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Sequence

from ..worlds.base import Member

#: Number that stands for a CPU that does not matter.
NO_CPU = -1


def current_cpu() -> int:
    """The number of the CPU that this thread runs on."""
    return int(ctypes.CDLL(None).sched_getcpu())


def sharing(members: Sequence[Member], cpus: Sequence[Iterable[int]]) -> list[str]:
    """A warning for each host on which ranks shared a CPU.

    Args:
        members: The processes of the job.
        cpus: For each process, the CPUs on which its measuring threads ended a sample.
    """
    used = Counter(
        (member.host, cpu)
        for member, numbers in zip(members, cpus, strict=True)
        for cpu in set(numbers) - {NO_CPU}
    )
    return [
        f"ranks on {host} shared a CPU while they measured, so that times include waiting for it: bind "
        "each to its own (mpirun --bind-to core), start at most one per CPU, or end what occupies the others"
        for host in dict.fromkeys(host for (host, _), ranks in used.items() if ranks > 1)
    ]
