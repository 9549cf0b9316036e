"""Files that commands write: atomically, and never in place of a file that somebody may want to keep."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec

from ..errors import StorageError, UsageError
from ..files import MOST_LINKS, new_file, read, read_head, remove_left, umask, untrusted_link

#: File name that stands for standard output.
STDOUT = Path("-")
#: Free space required before measuring starts, in bytes: the Document of a large run.
_REQUIRED_BYTES = 8 * 2**20
#: Maximum time that a pipe may lack a reader, in s.
_PIPE_READER_S = 5.0
_PIPE_POLL_S = 0.05
#: What `link` says where the file system has no hard links.
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
#: Permissions of a new file, from which the umask takes some away.
_MODE = 0o644
#: Keys by which our files are recognised.
DOCUMENT, BASELINE = "wirespeed_schema", "wirespeed_baseline"
#: How our reports begin: HTML, Prometheus, JUnit, CSV, Markdown and text.
_REPORT = re.compile(
    rb'<!doctype html>.{,99}<meta name="generator" content="wirespeed"|# HELP wirespeed_'
    rb'|<\?xml[^>]*>\s*<testsuites name="wirespeed"|testcase,table,verdict,|# wirespeed: '
    rb"|wirespeed [0-9]+\.[0-9]+",
    re.DOTALL,
)
#: Enough of a file to recognise a report, in bytes.
_HEAD = 512


class Output:
    """A file that a command writes, once or again and again; it always is complete.

    The first writing creates it: of several processes that choose the same name, one gets it. The file
    appears with its content, so a command that is killed at any moment leaves no empty file. A writing that a
    signal interrupts can be repeated. Devices and pipes are written directly.

    Args:
        path: The file, or ``-`` for standard output.
        replace: Whether to replace a file that exists. An empty one is always replaced.
        names: Names, in the same folder, to use in place of ``path`` and of each other if they exist,
            whatever ``replace`` is; None if the user chose the name.

    Attributes:
        path: The file that was written, or will be unless another process creates it before.
        written: Whether something was written.
    """

    def __init__(self, path: Path, *, replace: bool = False, names: Iterator[Path] | None = None) -> None:
        self.path = path
        self.replace = replace
        self.written = False
        self._names = names
        #: The files that may have been written, by device and inode: a signal may have come just after it.
        self._own: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, file: str | Path | Output) -> Output:
        """The Output of a file that a caller names."""
        return file if isinstance(file, Output) else cls(Path(file))

    @classmethod
    def numbered(cls, path: Path) -> Output:
        """An Output with the first free name: ``run.json``, ``run-2.json``, ``run-3.json``, ..."""
        return cls(path, names=(path.with_name(f"{path.stem}-{n}{path.suffix}") for n in count(2)))

    @property
    def is_stream(self) -> bool:
        """Whether the target cannot be replaced: an open file, a terminal, /dev/null, a pipe."""
        if self._names is not None:
            return False
        return descriptor(self.path) is not None or self.path.is_char_device() or self.path.is_fifo()

    def check(self, force: bool = False) -> None:
        """Check, before anything is measured, that the file can be written.

        Args:
            force: Whether to replace a file that exists, here and when it is written.

        Raises:
            UsageError: If it would replace a file.
            StorageError: If the folder is missing or read-only, the disk is full, or the path is not that of
                a file.
        """
        self.replace |= force
        while self._names is not None and os.path.lexists(self.path):
            self.path = next(self._names)
        target = self._target()
        if self._names is None and self._keeps(target):  # of several names, one is taken when it is written
            raise UsageError(f"{self.path} exists; choose another name, or --force to replace it")
        if target.exists() and not os.access(target, os.W_OK):
            raise StorageError(f"cannot write {self.path}: permission denied; choose another file")
        if self.is_stream:
            return
        with _failing(self.path):
            remove_left(target.parent, f".{target.name}.")
        with _failing(self.path), tempfile.TemporaryFile(dir=target.parent) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, _REQUIRED_BYTES)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                file.write(bytes(_REQUIRED_BYTES))  # the file system cannot reserve space, so fill it
                file.flush()

    def write(self, data: bytes) -> None:
        """Write the file.

        Raises:
            StorageError: If the file cannot be written, or another process has created it; a file is left
                unchanged.
        """
        target = self._target()
        if self.is_stream:
            with _failing(self.path):
                _pour(self.path, data)
        else:
            with _failing(self.path), new_file(data, target.parent, f".{target.name}.") as new:
                while not self._placed(new, target):
                    if self._names is None:
                        raise StorageError(f"{self.path} was created by another process")
                    target = self.path = next(self._names)
        self.written = True

    def _placed(self, new: Path, target: Path) -> bool:
        """Give a new file its name; return whether no file has that name that must be kept."""
        found = _identity(target)
        if found and not (self.written or found in self._own) and (self._names or self._keeps(target)):
            return False
        new.chmod(_mode(target) if found else _MODE & ~umask())
        self._own.add(_identity(new) or (0, 0))
        if found:
            new.replace(target)
        else:
            try:
                os.link(new, target)  # unlike renaming, it replaces nothing
            except FileExistsError:
                return self._placed(new, target)
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                return self._renamed(new, target)
        new.unlink(missing_ok=True)
        return True

    def _renamed(self, new: Path, target: Path) -> bool:
        """The same on a file system without hard links, where the file is empty for a moment."""
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE))
        except FileExistsError:
            return self._placed(new, target)
        try:
            new.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return True

    def _keeps(self, target: Path) -> bool:
        """Whether the target is a file that must not be replaced."""
        return not (self.replace or self.is_stream) and target.is_file() and target.stat().st_size > 0

    def _target(self) -> Path:
        """The file that the path leads to, so that links and devices are not replaced."""
        if descriptor(self.path) is not None:
            return self.path
        if self._names is not None:  # a link of that name is not followed: the next name is taken
            with _failing(self.path):
                if link := untrusted_link(self.path.parent):
                    raise _untrusted(self.path, *link)
            return self.path
        path = self.path
        with _failing(path):
            if link := untrusted_link(path):
                raise _untrusted(path, *link)
            for _ in range(MOST_LINKS):
                if not path.is_symlink():
                    break
                path = path.parent / path.readlink()
            with contextlib.suppress(FileNotFoundError):
                if not self.is_stream and not stat.S_ISREG(self.path.stat().st_mode):
                    raise StorageError(
                        f"cannot write {self.path}: it is not a regular file; choose another file"
                    )
        return path


def _untrusted(path: Path, link: Path, why: str) -> StorageError:
    """The error for a link of another user on the way to a file."""
    subject = "it" if link == path.absolute() else link
    return StorageError(f"cannot write {path}: {subject} is a link, and {why}; choose another file")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file or link; None if there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _mode(path: Path) -> int:
    """The permissions of a file to replace; the permissions of another user's file are not kept."""
    try:
        status = path.stat()
    except FileNotFoundError:  # it was removed since it was written
        return _MODE
    return stat.S_IMODE(status.st_mode) if status.st_uid == os.geteuid() else _MODE


def check_replaceable(path: Path, key: str, force: bool = False) -> None:
    """Refuse to replace a file with content that is not of the kind that ``key`` identifies.

    Raises:
        UsageError: If the file has other content; the message names ``--force``.
    """
    if not force and _is_regular(path) and path.stat().st_size and not holds(path, key):
        kind = {DOCUMENT: "saved run", BASELINE: "baseline"}[key]
        raise UsageError(f"{path} exists and is not a {kind}; choose another name, or --force to replace it")


def holds(path: Path, key: str) -> bool:
    """Whether a file is a regular one of the kind that ``key`` identifies."""
    try:
        return _is_regular(path) and key in msgspec.json.decode(read(path), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def is_report(path: Path) -> bool:
    """Whether a file is a report that wirespeed wrote."""
    return _is_regular(path) and _REPORT.match(read_head(path, _HEAD)) is not None


def _is_regular(path: Path) -> bool:
    """Whether the target is an existing file that would be replaced."""
    return descriptor(path) is None and path.is_file()


def descriptor(path: Path) -> int | None:
    """The open file of this process that ``-``, ``/dev/stdout`` or ``/dev/fd/3`` name; else None.

    The file behind it may have no name, or one that leads to another file by now.
    """
    if path == STDOUT:
        return 1
    for _ in range(MOST_LINKS):
        if os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd" and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _pour(path: Path, data: bytes) -> None:
    number = descriptor(path)
    if number == 1:
        if sys.__stdout__ is None:  # closed by the caller
            return
        sys.__stdout__.flush()
    with os.fdopen(_opened(path) if number is None else os.dup(number), "wb") as file:
        file.write(data)


def _opened(path: Path) -> int:
    """Open a device, or a pipe, whose reader may come a moment later."""
    deadline = time.monotonic() + _PIPE_READER_S
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(_PIPE_POLL_S)
        else:
            os.set_blocking(number, True)
            return number


def _reason(path: Path, error: OSError) -> str:
    hint = {
        errno.ENOENT: "the folder does not exist; create it or choose another file",
        errno.ENOTDIR: "a part of the path is not a folder; choose another file",
        errno.EACCES: "permission denied; choose another file",
        errno.ENXIO: "no process reads it; start the reader first, or choose another file",
        errno.EROFS: "the file system is read-only; choose another file",
        errno.ENOSPC: f"the disk is full; free {_REQUIRED_BYTES // 2**20} MiB or choose another file",
        errno.EDQUOT: f"disk quota exceeded; free {_REQUIRED_BYTES // 2**20} MiB or choose another file",
    }.get(error.errno or 0, f"{error.strerror}; choose another file")
    return f"cannot write {path}: {hint}"


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(_reason(path, error)) from error
