"""A single process, and one that starts others on this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from .base import Member, World, WorldError, hostname
from .rendezvous import gather, listen

#: Environment variable of processes that another process started.
STARTED = "WIRESPEED_STARTED_BY"


def alone() -> World:
    """Return the World of one process."""
    return World([Member(0, hostname(), os.getpid(), 0)], 0, "one process", {}, {}, 0.0)


def spawn(size: int, arguments: Sequence[str], timeout: float) -> World:
    """Start ``size - 1`` more processes with these arguments and return the World; this is rank 0.

    Raises
    ------
    WorldError
        If a process does not start in time.
    """
    listener = listen(address="127.0.0.1")
    port = listener.getsockname()[1]
    children = []
    for rank in range(1, size):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            STARTED: str(os.getpid()),
        }
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "wirespeed", *arguments], env=environment, stdin=subprocess.DEVNULL
            )
        )

    def look() -> None:
        for rank, child in enumerate(children, 1):
            if child.poll() is not None:
                raise WorldError(
                    f"rank {rank} (process {child.pid}) ended with {_ended(child)} while starting"
                )

    def finish() -> None:
        """Wait for the other processes to end, which they do after rank 0; end those that do not."""
        for child in children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()

    def leave(code: int) -> NoReturn:
        finish()
        os._exit(code)

    try:
        launcher = f"{size} processes started by this one"
        return gather(listener, size, launcher, timeout, look, finish=finish, leave=leave)
    except BaseException:
        for child in children:
            child.kill()
        raise


def _ended(child: subprocess.Popen[bytes]) -> str:
    code = child.returncode
    return f"signal {-code}" if code < 0 else f"exit code {code}"
