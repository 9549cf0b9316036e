"""Documents on disk: found out before measuring, written atomically, read with one clear line."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..errors import DocumentError, StorageError
from ..listener import Filled, Listener
from .document import SCHEMA, UNFINISHED, Document, TestcaseResult
from .upgrade import upgraded

if TYPE_CHECKING:
    from ..testcases import Testcase

#: What stands for standard output in place of a file.
STDOUT = Path("-")
#: Room that must be there before measuring starts, in bytes: the Document of a large run.
_ROOM = 8 * 2**20


def encode(document: Document) -> bytes:
    """Return the Document as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def check_writable(path: Path) -> None:
    """Find out, before anything is measured, whether a Document can be written to ``path``.

    Raises
    ------
    StorageError
        If the folder is missing or cannot be written to, the path cannot be written as a file is,
        or the disk has no room.
    """
    path = _file(path)
    if path.exists() and not os.access(path, os.W_OK):
        raise StorageError(f"cannot write {path}: permission denied; choose another file")
    if _is_stream(path):
        return
    with _failing(path), tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, _ROOM)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            file.write(bytes(_ROOM))  # a file system that cannot reserve: fill it
            file.flush()


def save(document: Document, path: str | Path) -> None:
    """Write a Document so that at every moment ``path`` holds a whole one.

    Raises
    ------
    StorageError
        If it cannot be written; an older file stays as it was.
    """
    write(Path(path), encode(document))


def write(path: Path, data: bytes) -> None:
    """Write a file so that at every moment ``path`` holds a whole one; devices and pipes directly.

    Raises
    ------
    StorageError
        If it cannot be written; an older file stays as it was.
    """
    path = _file(path)
    if _is_stream(path):
        with _failing(path):
            _pour(path, data)
        return
    with _failing(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777 if path.exists() else 0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _file(path: Path) -> Path:
    """Return the file that a path leads to: a new one takes its place, not that of a link or a device."""
    if _is_stream(path):
        return path
    if path.exists() and not path.is_file():
        raise StorageError(f"cannot write {path}: it exists and is not a file; choose another file")
    return path.resolve()


def _is_stream(path: Path) -> bool:
    """Whether what is written cannot be replaced: standard output, a terminal, /dev/null, a pipe."""
    return path == STDOUT or path.is_char_device() or path.is_fifo()


def _pour(path: Path, data: bytes) -> None:
    if path != STDOUT:
        path.write_bytes(data)
    elif sys.__stdout__ is not None:  # else it was closed, and nobody wants to see it
        sys.__stdout__.flush()
        sys.__stdout__.buffer.write(data)
        sys.__stdout__.buffer.flush()


def _reason(path: Path, error: OSError) -> str:
    hint = {
        errno.ENOENT: "the folder does not exist; create it or choose another file",
        errno.ENOTDIR: "a part of the path is not a folder; choose another file",
        errno.EACCES: "permission denied; choose another file",
        errno.EROFS: "the file system is read-only; choose another file",
        errno.ENOSPC: f"the disk is full; free {_ROOM // 2**20} MiB or choose another file",
        errno.EDQUOT: f"your disk quota is spent; free {_ROOM // 2**20} MiB or choose another file",
    }.get(error.errno or 0, f"{error.strerror}; choose another file")
    return f"cannot write {path}: {hint}"


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(_reason(path, error)) from error


class _Head(msgspec.Struct):
    schema: int = msgspec.field(name="wirespeed_schema")


def decode(data: bytes, name: str) -> Document:
    """Return the Document that JSON text describes; ``name`` is what to call it in an error.

    Raises
    ------
    DocumentError
        If it is not a Document, or one of a newer schema.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{name} is not a wirespeed Document: {error}") from error
    if head.schema > SCHEMA:
        raise DocumentError(
            f"{name} has schema {head.schema}, this version reads up to {SCHEMA}: use a newer wirespeed"
        )
    try:
        return upgraded(_checked(msgspec.json.decode(data, type=Document)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{name} is a broken wirespeed Document: {error}") from error


def _checked(document: Document) -> Document:
    """Refuse cells that are outside of their tables, and links that the machine does not have."""
    links = len(document.machine.links)
    for result in document.testcases:
        for table in result.tables:
            rows, columns = len(table.rows.labels), len(table.columns.labels)
            if table.is_curve and len(table.columns.values) != columns:
                raise msgspec.ValidationError(f"a table of {result.name} has an axis of unequal lengths")
            for cell in table.cells:
                if not (0 <= cell.row < rows and 0 <= cell.column < columns):
                    raise msgspec.ValidationError(f"a cell of {result.name} is outside of its table")
                if any(x is not None and x <= 0 for x in (cell.limit, cell.peak, *(cell.expected or ()))):
                    raise msgspec.ValidationError(f"a cell of {result.name} has a limit that is none")
                if any(not 0 <= link < links for link, *_ in cell.links):
                    raise msgspec.ValidationError(f"a cell of {result.name} uses a link that is not there")
    return document


def load(path: str | Path) -> Document:
    """Read a Document.

    Raises
    ------
    DocumentError
        If the file cannot be read, is not a Document, or is of a newer schema.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    return decode(data, str(path))


def schema() -> bytes:
    """Return the JSON Schema of a Document, generated from its types."""
    described = msgspec.json.schema(Document)
    described["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    described["title"] = f"wirespeed Document, schema {SCHEMA}"
    return msgspec.json.format(msgspec.json.encode(described), indent=1) + b"\n"


class Draft:
    """A Document that is saved while more is measured, so that even a process that is killed leaves it.

    Parameters
    ----------
    path
        Where; None: nowhere. What is not a file gets the last one only.
    """

    #: Saving may take this part of the time, where there is much of it.
    _SHARE = 0.1

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._next = -math.inf if path and not _is_stream(path) else math.inf
        self._saving = threading.Lock()

    def save(self, known: Callable[[], Document], *, always: bool = False) -> None:
        """Save what is known by now, unless that was done a moment ago; for any thread, until the last one.

        A disk that is full does not end the measuring: the last Document tells of it.
        """
        with self._saving:
            start = time.monotonic()
            if self._path is None or self._next == math.inf or (start < self._next and not always):
                return
            with contextlib.suppress(StorageError):
                save(known(), self._path)
            end = time.monotonic()
            self._next = end + (end - start) / self._SHARE

    def last(self, document: Document) -> None:
        """Save the Document as it will stay.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        with self._saving:
            self._next = math.inf
            if self._path is not None:
                save(document, self._path)


class Saver(Listener):
    """Saves the Document after every measurement; a Listener.

    A disk that fills up later does not end the run: the last Document is then written to the
    temporary folder. What is not a file gets the last Document only.
    """

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self.path = path
        self._draft = Draft(path)

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Save; where that fails measuring goes on, and ``run_ended`` reports it."""
        self._draft.save(known)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Save. Until the run has ended the Document says that it did not: that is so if it is killed."""
        unfinished = replace(document, interrupted=document.interrupted or UNFINISHED)
        self._draft.save(lambda: unfinished, always=True)

    def run_ended(self, document: Document) -> None:
        """Save for the last time.

        Raises
        ------
        StorageError
            If it could be written neither to ``path`` nor to the temporary folder, or only there.
        """
        try:
            self._draft.last(document)
        except StorageError as error:
            rescue = Path(tempfile.gettempdir()) / self.path.name
            if rescue == self.path or _is_stream(self.path):
                raise
            save(document, rescue)
            raise StorageError(f"{error}; what was measured is in {rescue}") from error


if __name__ == "__main__":  # how document.schema.json is made
    import sys

    sys.stdout.buffer.write(schema())
