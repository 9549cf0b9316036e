"""The limit of open files of a process, which is often 1024."""

from __future__ import annotations

import resource

from .base import WorldError

#: Open files other than connections with ranks: listeners, connections not admitted yet, files.
_OTHERS = 512


def allow_open_files(connections: int) -> None:
    """Raise the limit to what the connections of rank 0 require.

    Args:
        connections: Number of connections with other ranks.

    Raises:
        WorldError: If the system does not permit as many.
    """
    needed = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise WorldError(
            f"rank 0 requires {needed} open files for its connections, but may have {hard}: raise the limit "
            f"(ulimit -Hn {needed}, or LimitNOFILE= of the service that starts the job)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
