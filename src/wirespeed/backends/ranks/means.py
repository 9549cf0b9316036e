"""By what means processes share memory."""

from __future__ import annotations

from ...errors import UsageError

#: Means by which both sides of a transfer take part: one sends, the other receives.
NCCL, MPI = "nccl", "mpi"
TWO_SIDED = (NCCL, MPI)
#: What ``--share`` takes.
SHARES = ("fabric", "vmm-fd", "ipc", "shm", *TWO_SIDED)
#: Means that reach another host.
FAR = ("fabric",)


def check_share(share: str | None) -> None:
    """Refuse an unknown means.

    Raises
    ------
    UsageError
        With those that there are.
    """
    if share is not None and share not in SHARES:
        raise UsageError(f"there is no means {share!r} of sharing memory; there are {', '.join(SHARES)}")
