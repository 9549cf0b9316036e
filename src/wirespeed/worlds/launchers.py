"""How processes join a job: as the only one, started by another, with their rank in the environment, or by
MPI; and the options that Open MPI's mpirun requires on this machine.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ..errors import UsageError
from .admission import SECRET_BYTES, secret_of
from .base import RANK_VARIABLES, Member, World, WorldError, has_mpi, hostname
from .listening import Address, addresses, is_here, listen, local_name
from .rendezvous import connect, gather

#: Environment variable of processes that another process started.
STARTED = "WIRESPEED_STARTED_BY"
#: Environment variable with the descriptors of their connections to that process.
CHANNELS = "WIRESPEED_CHANNELS"
#: Maximum time for started processes to end after rank 0 has, before they are killed, in s: after success,
#: and after an error or a signal, when rank 0 has saved what was measured.
CHILDREN_END_S, CHILDREN_LEAVE_S = 5.0, 1.0
#: What starts the only process of a job without a launcher.
_ALONE = "one process"
#: Maximum number of ranks.
_MOST_RANKS = 10**6
#: The operation of prctl(2) that sets the signal of a process for the end of the thread that started it.
_PR_SET_PDEATHSIG = 1
#: Variables of a rank in the environment.
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process."""
    return present(environment) or has_mpi(environment) or promised(environment)[1] > 1


def started_by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher started this process, and no variable sets its rank."""
    return not present(environment) and has_mpi(environment)


def leads(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process will be rank 0 of its job, known before it joins."""
    names = ("RANK",) if present(environment) else RANK_VARIABLES if launched(environment) else ()
    return next((environment[name] for name in names if name in environment), "0") == "0"


def join(
    timeout: float,
    *,
    mpi: bool = False,
    processes: int = 1,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
    partial: bool = False,
) -> World:
    """Join the job and return the World of this process.

    Args:
        timeout: Maximum time for all processes to join, and for an exchange, in s.
        mpi: Whether MPI is needed even for one process.
        processes: Number of processes if no launcher started this one; the others are started with
            ``arguments``.
        partial: Whether ranks in the environment go on without others that do not join in time. MPI cannot.

    Raises:
        WorldError: If the others do not join, or a launcher promises more ranks than the job has.
    """
    if present(environment):
        world = by_environment(environment, timeout, partial=partial)
    elif mpi or started_by_mpi(environment):
        world = by_mpi(timeout, launched=started_by_mpi(environment))
    else:
        world = spawn(processes, arguments, timeout) if processes > 1 else alone()
    name, size = promised(environment)
    if size > world.size:
        world.close()
        raise WorldError(
            f"{name} promises {size} ranks, but this job has {world.size}: the launcher did not connect its "
            "processes; install mpi4py for this launcher's MPI, use `srun --mpi=pmix`, or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    return world


def present(environment: Mapping[str, str]) -> bool:
    """Whether the environment contains a rank.

    Raises:
        UsageError: If only some of the required variables are set.
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return False
    if CHANNELS in environment:
        return True
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing and environment["WORLD_SIZE"] != "1":
        raise UsageError(
            f"RANK and WORLD_SIZE are set, but not {' and '.join(missing)}: set all of {', '.join(_NEEDED)}, "
            "or none"
        )
    return not missing


def by_environment(environment: Mapping[str, str], timeout: float, *, partial: bool = False) -> World:
    """The World that the environment describes; without ranks that do not join if ``partial``.

    Raises:
        UsageError: If a number is invalid.
        WorldError: If the others do not join in time.
    """
    inherited = environment.get(CHANNELS, "")
    host, number = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    try:
        rank, size, port = int(environment["RANK"]), int(environment["WORLD_SIZE"]), int(number or 0)
        local = int(environment.get("LOCAL_RANK", "-1"))
        descriptors = [int(descriptor) for descriptor in inherited.split(",") if descriptor]
    except ValueError as error:
        raise UsageError(
            f"RANK, LOCAL_RANK, WORLD_SIZE and MASTER_PORT must be whole numbers: {error}"
        ) from error
    if not 1 <= size <= _MOST_RANKS:
        raise UsageError(f"WORLD_SIZE is {size}; it must be from 1 to {_MOST_RANKS}")
    if not 0 <= rank < size:
        raise UsageError(f"RANK is {rank}; it must be from 0 to WORLD_SIZE - 1 = {size - 1}")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise UsageError(f"MASTER_ADDR={host!r} is not the name or address of a host") from error
    launcher = "RANK and WORLD_SIZE in the environment"
    if descriptors:
        try:
            ends = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        except OSError as error:
            raise WorldError(f"{CHANNELS} is set, but its connections are not open: unset it") from error
        # If this process is stopped when rank 0 is killed, it goes on, sees its connections closed, and ends.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
        return connect([], b"", rank, size, launcher, timeout, local, ends)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun's agent listens on MASTER_PORT itself
    if not 0 < port < 2**16:
        raise UsageError(f"MASTER_PORT is {number}; the port must be from 1 to 65535")
    if size == 1:
        return gather([], b"", size, launcher, timeout, local=local)
    secret = secret_of(environment)
    if rank == 0:
        return gather(
            listen(secret, port, host), secret, size, launcher, timeout, local=local, partial=partial
        )
    near: list[Address] = [local_name(secret, port)] if is_here(host) else []
    return connect([*near, (host, port)], secret, rank, size, launcher, timeout, local, partial=partial)


def promised(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """The variable by which a launcher promises the most ranks, and their number; 1 without one."""
    promises = [("", 1)]
    for name in (
        "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS",
    ):  # fmt: skip
        if name == "SLURM_NTASKS" and "SLURM_STEP_ID" not in environment:
            continue  # the batch script of a job, not a task started by srun
        if re.fullmatch("[0-9]{1,9}", environment.get(name, "")):
            promises.append((name, int(environment[name])))
    return max(promises, key=lambda pair: pair[1])


def by_mpi(timeout: float, *, launched: bool = True) -> World:
    """The World of ``MPI_COMM_WORLD``; of this process only if no launcher started it.

    Raises:
        WorldError: If mpi4py is missing, or rank 0 cannot be reached by TCP.
    """
    from .mpi import MPI_START_S, library, limited, version

    secret, listeners, here = b"", [], ([""], 0)
    with limited(max(timeout, MPI_START_S), "start"):
        mpi = library()
        world = mpi.COMM_WORLD
        rank, size = world.Get_rank(), world.Get_size()
        if rank == 0:
            secret = secrets.token_bytes(SECRET_BYTES)
            listeners = listen(secret)
            names = [*(a for a in addresses() if not a.startswith("127.")), "127.0.0.1", hostname()]
            here = names, listeners[0].getsockname()[1]
        secret, (hosts, port) = world.bcast((secret, here), 0)

    def leave(code: int) -> NoReturn:
        if size == 1:  # no other process to end; avoids a long message of MPI
            sys.stdout.flush()
            os._exit(code)
        world.Abort(code)
        raise SystemExit(code)

    launcher = f"{version(mpi)}, over TCP" if launched else _ALONE
    if rank == 0:
        return gather(listeners, secret, size, launcher, timeout, end=leave)
    ordered = hosts[::-1] if hostname() == hosts[-1] else hosts  # on the same host, loopback first
    to: list[Address] = [local_name(secret, port), *((host, port) for host in ordered)]
    return connect(to, secret, rank, size, launcher, timeout, end=leave)


def alone() -> World:
    """The World of one process."""
    return World([Member(0, hostname(), os.getpid(), 0)], 0, _ALONE, {}, {}, 0.0)


def spawn(size: int, arguments: Sequence[str], timeout: float) -> World:
    """Start ``size - 1`` more processes with these arguments and return the World; this is rank 0.

    Raises:
        WorldError: If a process does not start in time.
    """
    children: list[subprocess.Popen[bytes]] = []
    ends: list[socket.socket] = []

    def start(rank: int) -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        theirs = [their.fileno() for _, their in pairs]
        numbers = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, STARTED: os.getpid()}
        environment = os.environ | {name: str(number) for name, number in numbers.items()}
        environment[CHANNELS] = ",".join(map(str, theirs))
        command = [sys.executable, "-P", "-m", "wirespeed", *arguments]  # -P: not from the current folder
        children.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=theirs))
        for mine, their in pairs:
            ends.append(mine)
            their.close()

    def look() -> None:
        for rank, child in enumerate(children, 1):
            if (code := child.poll()) is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                raise WorldError(f"rank {rank} (process {child.pid}) ended with {how} while starting")

    def finish(seconds: float = CHILDREN_END_S) -> None:
        """Wait for the other processes to end, which they do after rank 0; end those that do not."""
        until = time.monotonic() + seconds
        for child in children:
            try:
                child.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                child.kill()

    def leave(code: int) -> NoReturn:
        finish(CHILDREN_LEAVE_S)
        os._exit(code)

    try:
        for rank in range(1, size):
            start(rank)
        launcher = f"{size} processes started by this one"
        return gather([], b"", size, launcher, timeout, look, inherited=ends, finish=finish, end=leave)
    except BaseException as error:
        for child in children:
            child.kill()
        if isinstance(error, OSError) and len(children) < size - 1:
            raise WorldError(f"cannot start {size} processes: {error.strerror}") from error
        raise


def mpirun(command: str, ranks: int = 0) -> str:
    """How to start a command with mpirun, with the options that Open MPI requires here.

    Args:
        ranks: Number of ranks; 0 for any.
    """
    cores = len(os.sched_getaffinity(0))
    needed = []
    if os.geteuid() == 0:
        needed.append("--allow-run-as-root for root")
    if not ranks or ranks > cores:
        needed.append(f"--oversubscribe for more ranks than cores ({cores})")
    hint = f" (Open MPI needs {' and '.join(needed)})" if needed else ""
    return f"`mpirun -np {ranks or 'N'} {command}`{hint}"
