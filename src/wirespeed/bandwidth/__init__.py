"""One-call bandwidth measurements for the prompt, like the functions of GPUInspector.jl.

Each function measures with the same Session as the command line and returns a small result that prints as a
tree; ``result.document`` is the Document of the run.
"""

from __future__ import annotations

from .memory import (
    memory_bandwidth,
    memory_bandwidth_saxpy,
    memory_bandwidth_saxpy_scaling,
    memory_bandwidth_scaling,
    theoretical_memory_bandwidth,
)
from .pairs import (
    Transfers,
    host2device_bandwidth,
    p2p_bandwidth,
    p2p_bandwidth_all,
    p2p_bandwidth_bidirectional,
    p2p_bandwidth_bidirectional_all,
    transfer,
)
from .results import Bandwidth

__all__ = [
    "Bandwidth",
    "Transfers",
    "host2device_bandwidth",
    "memory_bandwidth",
    "memory_bandwidth_saxpy",
    "memory_bandwidth_saxpy_scaling",
    "memory_bandwidth_scaling",
    "p2p_bandwidth",
    "p2p_bandwidth_all",
    "p2p_bandwidth_bidirectional",
    "p2p_bandwidth_bidirectional_all",
    "theoretical_memory_bandwidth",
    "transfer",
]
