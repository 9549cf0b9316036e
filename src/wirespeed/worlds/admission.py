"""Who may join a job: processes that prove, in both directions, that they know its secret. Nothing else is
read from a connection or sent on it before that, and the secret itself is never sent. ``multiprocessing`` has
a similar proof by HMAC-MD5, which some hosts forbid, and which differs between versions of Python.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..files import cache_folder, new_file
from .base import WorldError
from .channel import Channel

#: Environment variable with the secret of a job, for ranks that no launcher connects.
SECRET_VARIABLE = "WIRESPEED_JOB_SECRET"
#: Advice of errors about secrets.
SHARE_SECRET = f"set {SECRET_VARIABLE} to the same random text for all ranks (openssl rand -hex 32)"
SECRET_BYTES = 32
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_KEY_FILE = "job-key"
#: Process, user and group of the other end of a Unix socket.
_CREDENTIALS = struct.Struct("3i")


class NotAdmitted(ConnectionError):
    """The other end does not know the secret of this job."""


def admit(channel: Channel, secret: bytes, deadline: float) -> None:
    """Let the other end prove that it knows the secret, then prove the same to it; for rank 0.

    Args:
        channel: A new connection.
        secret: The secret of the job.
        deadline: Time of ``time.monotonic`` at which to give up, in s.

    Raises:
        NotAdmitted: If the proof is wrong.
        OSError, EOFError: If the other end says nothing, too much, or closes the connection.
    """
    mine = secrets.token_bytes(_NONCE_BYTES)
    channel.send_bytes(mine, deadline)
    answer = channel.receive_bytes(deadline, _NONCE_BYTES + _PROOF_BYTES)
    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"rank", mine, theirs)):
        channel.send_bytes(b"", deadline)
        raise NotAdmitted("it does not know the secret of this job")
    channel.send_bytes(_proof(secret, b"rank 0", mine, theirs), deadline)


def enter(channel: Channel, secret: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process knows the secret, and let it prove the same; as ``admit``.

    Raises:
        NotAdmitted: If either proof is wrong.
    """
    theirs = channel.receive_bytes(deadline, _NONCE_BYTES)
    mine = secrets.token_bytes(_NONCE_BYTES)
    channel.send_bytes(mine + _proof(secret, b"rank", theirs, mine), deadline)
    answer = channel.receive_bytes(deadline, _PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(secret, b"rank 0", theirs, mine)):
        raise NotAdmitted("it does not know the secret of this job")


def _proof(secret: bytes, role: bytes, leader: bytes, other: bytes) -> bytes:
    """What only those who know the secret can compute from the nonces of rank 0 and another rank."""
    return hmac.digest(secret, b"|".join((role, leader, other)), "sha256")


def same_user(sock: socket.socket) -> bool:
    """Whether the other end of a Unix socket belongs to this user or to root."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(peer)[1] in (os.geteuid(), 0)


def secret_of(environment: Mapping[str, str]) -> bytes:
    """The secret of a job whose ranks are in the environment.

    It is made from ``WIRESPEED_JOB_SECRET`` or else the user's key file, and from what identifies the job to
    torchrun or Slurm: ranks of two jobs of one user do not mix.

    Raises:
        WorldError: If there is neither the variable nor a file that only this user can read.
    """
    secret = environment.get(SECRET_VARIABLE, "").encode()
    job = [environment.get("TORCHELASTIC_RUN_ID", "")]
    if environment.get("SLURM_STEP_NUM_TASKS") == environment.get("WORLD_SIZE"):  # srun started the ranks
        job += [environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    return hmac.digest(secret or _key(), "\0".join(job).encode(), "sha256")


def _key() -> bytes:
    """The content of the user's key file, which is created at its first use."""
    path = Path(_KEY_FILE)
    try:
        path = cache_folder() / _KEY_FILE
        if not path.exists():
            _create(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(SECRET_BYTES)
    except OSError as error:
        where = error.filename or path
        raise WorldError(f"cannot use the key file {where}: {error.strerror}; {SHARE_SECRET}") from error
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise WorldError(
            f"the key file {path} must belong to this user and have mode 0600: delete it, or {SHARE_SECRET}"
        )
    if len(key) < SECRET_BYTES:
        raise WorldError(f"the key file {path} is too short: delete it, or {SHARE_SECRET}")
    return key


def _create(path: Path) -> None:
    """Create the key file complete, once, even if many ranks try at the same time."""
    with new_file(secrets.token_bytes(SECRET_BYTES), path.parent) as new:  # mode 0600
        with suppress(FileExistsError):
            path.hardlink_to(new)
        new.unlink()
