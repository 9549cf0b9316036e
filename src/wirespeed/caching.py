"""Folder for compiled code and the user's key; in the package, nothing would remove it.

What is in it is executed, so that nobody else may be able to write there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from .files import distrust, make_folder

#: Owner of files of users that this user namespace does not have, such as root outside of a container.
_UNMAPPED = Path("/proc/sys/kernel/overflowuid")


def own_folder(variable: str, below_home: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """A base folder of the user; None if neither the variable nor a home is known.

    Args:
        variable: Variable with its path (XDG base directories); a relative path is ignored.
        below_home: Its name below the home otherwise.
        environment: The variables.
    """
    configured = Path(environment.get(variable, ""))
    if configured.is_absolute():
        return configured
    try:
        home = Path(environment.get("HOME") or Path.home())
    except RuntimeError:  # this user has no entry in passwd
        return None
    return home / below_home if home.is_absolute() else None


def cache_folder(below: str = "") -> Path:
    """This package's folder in the user's cache folder, or a folder below it; it is created.

    Raises:
        OSError: If there is none, it cannot be created, or others can write it.
    """
    base = own_folder("XDG_CACHE_HOME", ".cache")
    if base is None:
        raise FileNotFoundError(errno.ENOENT, "no home folder is known; set HOME or XDG_CACHE_HOME")
    return private_folder(base / "wirespeed" / below)


def private_folder(path: Path) -> Path:
    """Create a folder that only this user can write, unless it exists; return it without links.

    Raises:
        OSError: If it cannot be created, belongs to another user, or others can write or replace it.
    """
    folder = Path(os.path.realpath(path))
    make_folder(folder, 0o700)
    if why := distrust(folder.stat()):
        raise PermissionError(errno.EPERM, f"{why}; remove it", str(folder))
    for above in folder.parents:
        if _is_replaceable_below(above.stat()):
            raise PermissionError(errno.EPERM, f"other users can write {above}", str(folder))
    return folder


def _is_replaceable_below(status: os.stat_result) -> bool:
    """Whether other users can rename the folders in a folder."""
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and status.st_uid in (0, os.geteuid())
    if is_sticky or not distrust(status):
        return False
    try:
        is_unmapped = status.st_uid == int(_UNMAPPED.read_text())
    except (OSError, ValueError):
        is_unmapped = False
    return not is_unmapped or bool(status.st_mode & stat.S_IWOTH)


def refusal() -> str:
    """Why compiled code is not kept although there is a folder for it; empty if it is."""
    try:
        cache_folder()
    except OSError as error:  # of those of the system: such as a home that does not exist
        is_refused = error.errno == errno.EPERM
        return f"compiled code is not kept in {error.filename}: {error.strerror}" if is_refused else ""
    return ""
