"""The transports between processes: shared memory, or messages."""

from __future__ import annotations

#: Transports in which both sides of a transfer take part: one sends, the other receives.
NCCL, MPI = "nccl", "mpi"
TWO_SIDED = (NCCL, MPI)
#: Transports by shared memory that reach another host.
FAR = ("fabric",)
