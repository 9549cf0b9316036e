"""The order of testcases in a run with a time limit: what finds most per second comes first."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Testcase

#: Testcases that together use every device and every link of a machine at least once, in the order in which
#: they run: each GPU with its host, in both directions; each pair of GPUs; GPU memory; host memory; the links
#: between NUMA nodes.
COVERING = (
    "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce",
    "device_local_copy", "host_stream_copy", "numa_to_numa_memcpy_read_cpu",
)  # fmt: skip
#: What follows them: collectives, paths that several devices share, and the other direction of execution.
_NEXT = (
    "all_reduce", "host_to_all_memcpy_ce", "all_to_host_memcpy_ce", "device_to_device_memcpy_write_ce",
    "device_stream_triad", "host_stream_triad",
)  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate((*COVERING, *_NEXT))}


def by_value(cases: Iterable[Testcase]) -> tuple[Testcase, ...]:
    """Testcases in the order of a run with a time limit; the others keep their order at the end."""
    return tuple(sorted(cases, key=lambda case: _RANKS.get(case.name, len(_RANKS))))
