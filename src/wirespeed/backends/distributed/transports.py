"""By what means processes share memory."""

from __future__ import annotations

#: Means by which both sides of a transfer take part: one sends, the other receives.
NCCL, MPI = "nccl", "mpi"
TWO_SIDED = (NCCL, MPI)
#: Means that reach another host.
FAR = ("fabric",)
