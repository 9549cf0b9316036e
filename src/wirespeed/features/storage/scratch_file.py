"""The file of a run in the user's folder: created, locked, and removed in every case. Only files with the
name, owner, mode and lock of this module are touched. The lock distinguishes the file of a killed run from
that of a run that still measures: the kernel releases it when the process ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from contextlib import suppress

from ...errors import MachineError

#: Mode of the file: only its user reads and writes it.
_MODE = 0o600
_TRIES = 16


def opened_folder(folder: str) -> int:
    """A descriptor of a folder that this user may use.

    Raises:
        MachineError: If it is no folder, or belongs to another user than this one and root.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError:
        raise MachineError(f"--storage {folder}: not a folder; name a folder of the storage") from None
    except OSError as error:
        raise MachineError(f"--storage {folder}: {error.strerror}; name a folder of the storage") from None
    owner = os.fstat(descriptor).st_uid
    if owner not in (0, os.geteuid()):
        os.close(descriptor)
        raise MachineError(
            f"--storage {folder}: the folder belongs to another user (uid {owner}); name a folder of your own"
        )
    return descriptor


def remove_stale(folder: int) -> int:
    """Remove the files that killed runs of this user left in a folder; return their number.

    Args:
        folder: Descriptor of the folder.
    """
    pattern, removed = re.compile(rf"wirespeed-storage-{os.geteuid()}-[0-9a-f]{{16}}\.tmp"), 0
    with suppress(OSError):  # a folder that may be written and not listed
        for name in os.listdir(folder):
            removed += pattern.fullmatch(name) is not None and _remove_unlocked(folder, name)
    return removed


def _remove_unlocked(folder: int, name: str) -> bool:
    """Remove a file with the name of one of a run if no run uses it; return whether it was removed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not _is_ours(found):
            return False
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:  # gone, or replaced meanwhile
        return False
    try:
        if not os.path.samestat(os.fstat(descriptor), found):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
        return True
    except OSError:  # in use, or a file system without locks
        return False
    finally:
        os.close(descriptor)


def _is_ours(found: os.stat_result) -> bool:
    own = stat.S_IFREG | _MODE, os.geteuid(), 1
    return (found.st_mode, found.st_uid, found.st_nlink) == own


class ScratchFile:
    """The file of this run, open and locked.

    Attributes:
        folder: Name of the folder.
        descriptor: Descriptor of the file.
        past_cache: Whether calls bypass the page cache (``O_DIRECT``).
    """

    __test__ = False  # pytest: not a class of tests

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._within = opened_folder(folder)
        self.descriptor = -1
        try:
            remove_stale(self._within)
            self._create()
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        """Create the file under a new name and lock it, unless another run has just removed it as stale."""
        for _ in range(_TRIES):
            self._name = f"wirespeed-storage-{os.geteuid()}-{secrets.token_hex(8)}.tmp"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                self.descriptor = os.open(self._name, flags, _MODE, dir_fd=self._within)
            except OSError as error:
                raise MachineError(
                    f"--storage {self.folder}: cannot create a file: {error.strerror}; "
                    "name a folder in which you may create files"
                ) from None
            with suppress(OSError):  # a file system without modes or locks
                os.fchmod(self.descriptor, _MODE)
            with suppress(OSError):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_there():
                break
            os.close(self.descriptor)
            self.descriptor = -1
        else:
            raise MachineError(f"--storage {self.folder}: files that are created there disappear")
        self.past_cache = self._bypass()

    def _bypass(self) -> bool:
        """Bypass the page cache if the file system can; return whether it does."""
        try:
            flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
            return False
        return True

    def _is_there(self) -> bool:
        try:
            found = os.stat(self._name, dir_fd=self._within, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.descriptor))

    def close(self) -> None:
        """Remove the file, whatever happened to it; it may be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        within, self._within = self._within, -1
        try:
            if descriptor >= 0 and within >= 0:
                with suppress(FileNotFoundError):
                    found = os.stat(self._name, dir_fd=within, follow_symlinks=False)
                    if os.path.samestat(found, os.fstat(descriptor)):
                        os.unlink(self._name, dir_fd=within)
        finally:
            for number in (descriptor, within):
                if number >= 0:
                    os.close(number)
