"""Files that a user names, files of other users, and the folder for compiled code and keys. Reading has
a limit on the size, because a device or a pipe may never end; writing is atomic; what another user could have
written, and so must not be executed or obeyed, is recognised by owner and mode.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

#: Maximum size of a file, in MiB: several times the Document of a large machine.
LARGEST_MIB = 512
#: Maximum size of a file that people write, such as overrides, in bytes: the parser of TOML reads 1 MiB/s.
LARGEST_WRITTEN = 4 * 2**20
#: Maximum number of symbolic links to a file, as in Linux.
MOST_LINKS = 40
#: How a file is opened that must not exist, under any kind of name.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Time within which a process must write to a named pipe, and between looks at it, in s.
WRITER_S, _POLL_S = 10.0, 0.02
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read(path: str | Path, most: int | None = None) -> bytes:
    """The content of a file.

    Args:
        path: The file.
        most: Maximum size, in bytes; None for 512 MiB.

    Raises:
        OSError: If it cannot be read, or is larger.
    """
    with _opened(path) as descriptor:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        first = _of_pipe(descriptor, path) if stat.S_ISFIFO(kind) else b""
        os.set_blocking(descriptor, True)
        return first + _content(descriptor, path, LARGEST_MIB * 2**20 if most is None else most)


@contextlib.contextmanager
def _opened(path: str | Path, more: int = 0) -> Iterator[int]:
    """The descriptor of a file; opening it does not wait for a process that writes to a pipe.

    Args:
        path: The file.
        more: Further flags.

    Raises:
        OSError: If it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | more)
    except ValueError as error:  # a NUL, or what the file system's encoding lacks
        raise OSError(errno.EINVAL, f"not a file name: {error}", str(path)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _of_pipe(descriptor: int, path: str | Path) -> bytes:
    """The first bytes of a pipe, once a process writes to it; then it can be read to its end.

    Raises:
        TimeoutError: If none does.
    """
    end = time.monotonic() + WRITER_S
    while time.monotonic() < end:
        try:
            if data := os.read(descriptor, 1):
                return data
        except BlockingIOError:  # a process has it open, and has written nothing yet
            return b""
        time.sleep(_POLL_S)
    raise TimeoutError(errno.ETIMEDOUT, f"no process wrote to this pipe within {WRITER_S:.0f} s", str(path))


def _content(descriptor: int, path: str | Path, most: int) -> bytes:
    """What an open file contains; a file that is too large is not read."""
    size, total = os.fstat(descriptor).st_size, 0
    chunks: list[bytes] = []
    while max(size, total) <= most:
        chunk = os.read(descriptor, 2**20)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        total += len(chunk)
    limit = f"{most // 2**20} MiB" if most >= 2**20 else f"{most // 2**10} KiB"
    raise OSError(errno.EFBIG, f"it is larger than {limit}", str(path))


def read_head(path: Path, most: int) -> bytes:
    """The first bytes of a regular file; nothing of others, and of those that cannot be read."""
    try:
        with _opened(path) as descriptor:
            return os.read(descriptor, most) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""


def read_own(path: Path, most: int) -> bytes:
    """The content of a regular file that only this user or root can have written.

    Raises:
        PermissionError: If another user could have written it; its ``strerror`` says why.
        OSError: If it cannot be read, is larger than ``most`` bytes, or is not a regular file.
    """
    link = path.lstat()
    with _opened(path) as descriptor:
        status = os.fstat(descriptor)
        for entry in (link, status):
            if why := distrust(entry):
                raise PermissionError(errno.EPERM, why, str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return _content(descriptor, path, most)


def distrust(status: os.stat_result) -> str:
    """Why others than this user and root could have written a file or folder; empty if they cannot.

    The group of a user of whom it is the only member, which many systems have, is not others.
    """
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user ({status.st_uid})"
    if stat.S_ISLNK(status.st_mode):  # has no mode of its own
        return ""
    others = status.st_mode & _OTHERS_WRITE
    if others & stat.S_IWOTH or (others and not _is_private(status.st_gid)):
        return "other users can write it"
    return ""


def untrusted_link(path: Path) -> tuple[Path, str] | None:
    """The first link on the way to a file, or at its end, that another user made; None if there is none.

    Returns:
        The link, and why it is not trusted.

    Raises:
        OSError: If a part of the path cannot be looked at.
    """
    here, links = Path("/"), 0
    left = [*reversed(path.absolute().parts[1:])]
    while left:
        part = left.pop()
        entry = here.parent if part == ".." else here / part
        try:
            status = entry.lstat()
        except (FileNotFoundError, NotADirectoryError, ValueError):  # opening it says so
            return None
        if not stat.S_ISLNK(status.st_mode):
            here = entry
            continue
        if why := distrust(status):
            return entry, why
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        here = Path("/") if target.is_absolute() else here
        left += [*reversed(target.parts[target.is_absolute() :])]
    return None


@cache
def _is_private(group: int) -> bool:
    """Whether a group is the effective user's own, with the same name and nobody else in it."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


@contextlib.contextmanager
def new_file(
    data: bytes, folder: Path, prefix: str = "", suffix: str = "", mode: int = 0o600
) -> Iterator[Path]:
    """Write a new file, under a name that nobody can predict or link; an error, also later, removes it.

    Args:
        data: Its content.
        folder: Its folder.
        prefix, suffix: Begin and end of its name.
        mode: Its permissions, whatever the umask is.

    Raises:
        OSError: If it cannot be written.
    """
    path = folder / f"{prefix}{os.urandom(16).hex()}{suffix}"  # known before it exists, so that it can go
    try:
        with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
            yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


#: Age in s from which a new file without a lock is that of a killed process: living ones lock it immediately.
_LEFT_S = 5.0


def remove_left(folder: Path, prefix: str) -> None:
    """Remove the new files of this user that killed processes left: nothing locks them any more.

    Args:
        folder: Their folder.
        prefix: Begin of their names, as for ``new_file``.
    """
    name = re.compile(re.escape(prefix) + "[0-9a-f]{32}")
    for path in folder.iterdir():
        if not name.fullmatch(path.name):
            continue
        # An error: it is gone, in use, or on a file system without locks.
        with contextlib.suppress(OSError), _opened(path, os.O_NOFOLLOW) as descriptor:
            found = os.fstat(descriptor)
            own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if own and time.time() - found.st_mtime > _LEFT_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def umask() -> int:
    """The permissions that new files lack; setting the umask to read it would affect other threads."""
    lines = read("/proc/self/status").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith(b"Umask:")), 0o077)


def file_in_memory(name: str) -> Path:
    """A new empty file for what a library writes, until this process ends.

    Its path is not below ``/proc/self``: a program that this process starts can write to it, too.
    """
    return Path(f"/proc/{os.getpid()}/fd/{os.memfd_create(name)}")


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Create a folder, and those above it that are missing; the umask only takes permissions away.

    Raises:
        OSError: If one cannot be created.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode, exist_ok=True)


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


def cache_folder() -> Path:
    """This package's folder in the user's cache folder; it is created.

    Raises:
        OSError: If there is none, it cannot be created, or others can write it.
    """
    base = own_folder("XDG_CACHE_HOME", ".cache")
    if base is None:
        raise FileNotFoundError(errno.ENOENT, "no home folder is known; set HOME or XDG_CACHE_HOME")
    return private_folder(base / "wirespeed")


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
    except OSError as error:  # an error of the system: such as a home that does not exist
        is_refused = error.errno == errno.EPERM
        return f"compiled code is not kept in {error.filename}: {error.strerror}" if is_refused else ""
    return ""
