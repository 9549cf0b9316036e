"""Where the file of the history is, and whose: folder, name if damaged, and which part of it is meant."""

from __future__ import annotations

import errno
import json
import os
import platform
import stat
import zlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...errors import StorageError, UsageError
from ...files import distrust, own_folder, private_folder, untrusted_link
from ...units import MIB

#: Name of the user's history, and files that SQLite reads beside it.
NAME, _BESIDE = "history.sqlite", ("-journal", "-wal", "-shm")
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Maximum size of the latest run of a machine without its samples, in bytes: that of 72 GPUs has 3 MB.
_MOST_LATEST = 64 * MIB


class DamagedHistory(StorageError):
    """A file that has a history, parts of which cannot be read."""


def default_file() -> Path:
    """The history in this user's data folder; the folder is created.

    Raises:
        StorageError: If there is no such folder, or others can write it.
    """
    base = own_folder("XDG_DATA_HOME", ".local/share")
    try:
        if base is None:
            raise OSError(0, "no home folder is known; set HOME or XDG_DATA_HOME")
        return private_folder(base / "wirespeed") / NAME
    except OSError as error:
        raise StorageError(f"no place for the history: {error.strerror}; give --history FILE") from error


def own_file(file: Path, *, create: bool) -> Path:
    """The file that a path leads to, if only this user and root can have written it.

    A new file is created with mode 0600. Nothing of one that exists is changed.

    Raises:
        OSError: If it is no such file; ``strerror`` says why.
    """
    if link := untrusted_link(file):
        raise PermissionError(errno.EPERM, f"{link[0]} is a link, and {link[1]}", str(file))
    target = Path(os.path.realpath(file))
    if create and not os.path.lexists(target):
        with suppress(FileExistsError):  # another process created it just now
            os.close(os.open(target, _CREATE, 0o600))
    for name in (target.name, *(target.name + suffix for suffix in _BESIDE)):  # SQLite reads these, too
        try:
            status = target.with_name(name).lstat()
        except FileNotFoundError:
            if name == target.name:
                raise
            continue
        if not stat.S_ISREG(status.st_mode):
            it = "it" if name == target.name else name
            raise OSError(errno.EINVAL, f"{it} is not a regular file", str(target))
        if why := distrust(status):
            raise PermissionError(errno.EPERM, why if name == target.name else f"{name}: {why}", str(target))
    return target


def aside(file: Path) -> Path:
    """Give a damaged history another name, with what SQLite has beside it, and return it."""
    path = Path(os.path.realpath(file))
    other = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}")
    try:
        for suffix in ("", *_BESIDE):  # a journal would be applied to the new file
            if os.path.lexists(f"{path}{suffix}"):
                Path(f"{path}{suffix}").rename(f"{other}{suffix}")
    except OSError as error:
        raise StorageError(f"cannot rename the damaged history {path}: {error.strerror}") from error
    return other


def unpacked(packed: bytes) -> bytes:
    """Decompressed data of a limited size.

    Raises:
        ValueError: If it would be larger, or is incomplete.
    """
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, _MOST_LATEST)
    if not unpacker.eof:
        raise ValueError(f"the latest run has more than {_MOST_LATEST // MIB} MiB, or is incomplete")
    return data


def age_ago(age: float | None) -> str:
    """The time of an age in s ago as ISO 8601 text; empty for None."""
    return (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds") if age else ""


def identity_named(known: Sequence[str], host: str | None) -> str:
    """The identity of a machine by the name of its host; without one this host, or the only one.

    Args:
        known: The identities in a history.
        host: Name of the host.

    Raises:
        UsageError: If there is no such machine, or several.
    """
    if not known:
        raise UsageError(
            "the history is empty: `wirespeed check` and `wirespeed run` of real hardware add to it"
        )
    names = {identity: str(json.loads(identity)[0]) for identity in known}
    wanted = platform.node() if host is None else host
    chosen = [identity for identity in known if names[identity] == wanted]
    chosen = chosen or (list(known) if host is None else [])
    if not chosen or (len(chosen) > 1 and host is None):
        listed = ", ".join(dict.fromkeys(names.values()))
        raise UsageError(f"choose a machine with --host: the history has {listed}")
    return chosen[0]
