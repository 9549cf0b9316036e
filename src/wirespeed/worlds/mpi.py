"""Processes launched by an MPI: mpirun, srun. MPI gives ranks and tells where rank 0 listens."""

from __future__ import annotations

from typing import Any, NoReturn

from .base import World, WorldError, hostname
from .rendezvous import addresses, connect, gather, listen

INSTALL = "install it with `pip install 'wirespeed[mpi]'`, or mpi4py for the MPI of this cluster"


def library() -> Any:
    """Return the module ``mpi4py.MPI``.

    Raises
    ------
    WorldError
        If mpi4py or the MPI library is missing.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise WorldError(f"MPI cannot be used: {error}; {INSTALL}") from error
    return MPI


def version(mpi: Any) -> str:
    """Return name and version of the MPI library: ``Open MPI v5.0.11``."""
    text: str = mpi.Get_library_version()
    return text.split(",")[0].split("\n")[0].strip()


def join(timeout: float) -> World:
    """Return the World of ``MPI_COMM_WORLD``.

    Raises
    ------
    WorldError
        If mpi4py is missing, or rank 0 cannot be reached by TCP.
    """
    mpi = library()
    world = mpi.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()

    def leave(code: int) -> NoReturn:
        world.Abort(code)
        raise SystemExit(code)

    launcher = f"{version(mpi)}, over TCP"
    listener = listen() if rank == 0 else None
    here = (
        [*(a for a in addresses() if not a.startswith("127.")), "127.0.0.1", hostname()],
        listener.getsockname()[1] if listener else 0,
    )
    hosts, port = world.bcast(here, 0)
    if listener:
        return gather(listener, size, launcher, timeout, leave=leave)
    ordered = hosts[::-1] if hostname() == hosts[-1] else hosts  # on its own host by the loopback
    return connect(ordered, port, rank, size, launcher, timeout, leave=leave)
