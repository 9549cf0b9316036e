"""The cores of transfers by CPUs that start together: no core works for two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import UsageError
from ..model import Engine, Executor, Transfer


def share_cores(
    transfers: Sequence[Transfer | None],
    wanted: Sequence[int],
    cores_of: Callable[[Executor], tuple[int, ...]],
    refuse: Callable[[int, str], UsageError],
) -> dict[int, tuple[int, ...]]:
    """The CPUs of the transfers that do not name theirs.

    Transfers that want a number of cores get the first free ones of their node; the others share the rest.

    Args:
        transfers: Works that start together; None for a collective.
        wanted: Number of cores that each one wants; 0 for a share.
        cores_of: Returns the cores of an executor.
        refuse: Returns the error of a transfer that gets no core.

    Returns:
        Index of a transfer -> its CPUs.

    Raises:
        UsageError: If there are not enough cores.
    """
    cpus_of: dict[int, tuple[int, ...]] = {}
    places: dict[tuple[str, int | None], list[int]] = {}
    for i, transfer in enumerate(transfers):
        if transfer is not None and transfer.engine is Engine.CPU and not transfer.executor.cpus:
            places.setdefault((transfer.executor.device, transfer.executor.rank), []).append(i)
    named = {cpu for transfer in transfers if transfer is not None for cpu in transfer.executor.cpus}
    for (device, _), indices in places.items():
        executor = next(transfer.executor for i in indices if (transfer := transfers[i]) is not None)
        cores = cores_of(executor)
        free = [cpu for cpu in cores if cpu not in named]
        for i in (i for i in indices if wanted[i]):
            if wanted[i] > len(free):
                raise refuse(i, f"{device} has {len(cores)} cores, {len(free)} of them free, not {wanted[i]}")
            cpus_of[i], free = tuple(free[: wanted[i]]), free[wanted[i] :]
        sharing = [i for i in indices if not wanted[i]]
        if len(free) < len(sharing):
            raise refuse(
                sharing[-1],
                f"{device} has {len(cores)} cores, {len(free)} of them free: too few for this line",
            )
        for place, i in enumerate(sharing):
            begin, end = (len(free) * edge // len(sharing) for edge in (place, place + 1))
            cpus_of[i] = tuple(free[begin:end])
    return cpus_of
