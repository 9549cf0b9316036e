"""Documents on disk: checked before measuring, written atomically, read with clear errors."""

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

from ..document import SCHEMA, UNFINISHED, Document, TestcaseResult
from ..driver.listener import Filled, Listener
from ..errors import DocumentError, StorageError
from .upgrade import from_schema_1, upgraded

if TYPE_CHECKING:
    from ..testcases import Testcase

#: File name that stands for standard output.
STDOUT = Path("-")
#: Free space required before measuring starts, in bytes: the Document of a large run.
_REQUIRED_BYTES = 8 * 2**20


def encode(document: Document) -> bytes:
    """Return the Document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def check_writable(path: Path) -> None:
    """Check, before anything is measured, that a Document can be written to ``path``.

    Raises
    ------
    StorageError
        If the folder is missing or read-only, the path cannot be written like a file, or the disk is full.
    """
    path = _file(path)
    if path.exists() and not os.access(path, os.W_OK):
        raise StorageError(f"cannot write {path}: permission denied; choose another file")
    if _is_stream(path):
        return
    with _failing(path), tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, _REQUIRED_BYTES)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            file.write(bytes(_REQUIRED_BYTES))  # the file system cannot reserve space, so fill it
            file.flush()


def save(document: Document, path: str | Path) -> None:
    """Write a Document atomically: ``path`` always holds a complete file.

    Parameters
    ----------
    document : Document
        The run to save.
    path : str or Path
        File to write, or ``-`` for standard output.

    Raises
    ------
    StorageError
        If the file cannot be written; an existing file is left unchanged.
    """
    write(Path(path), encode(document))


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: ``path`` always holds a complete file. Devices and pipes are written directly.

    Raises
    ------
    StorageError
        If the file cannot be written; an existing file is left unchanged.
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
    """Return the file that a path leads to, so that links and devices are not replaced."""
    if _is_stream(path):
        return path
    if path.exists() and not path.is_file():
        raise StorageError(f"cannot write {path}: it is not a regular file; choose another file")
    return path.resolve()


def _is_stream(path: Path) -> bool:
    """Return whether the target cannot be replaced: standard output, a terminal, /dev/null, a pipe."""
    return path == STDOUT or path.is_char_device() or path.is_fifo()


def _pour(path: Path, data: bytes) -> None:
    if path != STDOUT:
        path.write_bytes(data)
    elif sys.__stdout__ is not None:  # None if standard output was closed
        sys.__stdout__.flush()
        sys.__stdout__.buffer.write(data)
        sys.__stdout__.buffer.flush()


def _reason(path: Path, error: OSError) -> str:
    hint = {
        errno.ENOENT: "the folder does not exist; create it or choose another file",
        errno.ENOTDIR: "a part of the path is not a folder; choose another file",
        errno.EACCES: "permission denied; choose another file",
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


class _Head(msgspec.Struct):
    schema: int = msgspec.field(name="wirespeed_schema")


def decode(data: bytes, name: str) -> Document:
    """Decode a Document from JSON; ``name`` identifies it in errors.

    Raises
    ------
    DocumentError
        If it is not a Document, or has a newer schema.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{name} is not a wirespeed Document: {error}") from error
    if head.schema > SCHEMA:
        raise DocumentError(
            f"{name} has schema {head.schema}, this version reads up to {SCHEMA}; use a newer wirespeed"
        )
    try:
        if head.schema < SCHEMA:
            raw = from_schema_1(msgspec.json.decode(data))
            return upgraded(_checked(msgspec.convert(raw, Document)))
        return _checked(msgspec.json.decode(data, type=Document))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{name} is a broken wirespeed Document: {error}") from error


def _checked(document: Document) -> Document:
    """Reject cells outside of their tables, and links that the machine does not have."""
    links = len(document.machine.links)
    for result in document.testcases:
        for table in result.tables:
            rows, columns = len(table.rows.labels), len(table.columns.labels)
            if table.is_curve and len(table.columns.values) != columns:
                raise msgspec.ValidationError(f"a table of {result.name} has an axis with mismatched lengths")
            for cell in table.cells:
                if not (0 <= cell.row < rows and 0 <= cell.column < columns):
                    raise msgspec.ValidationError(f"a cell of {result.name} is outside of its table")
                if any(x is not None and x <= 0 for x in (cell.limit, cell.peak, *(cell.expected or ()))):
                    raise msgspec.ValidationError(f"a cell of {result.name} has an invalid limit")
                if any(not 0 <= link < links for link, *_ in cell.links):
                    raise msgspec.ValidationError(f"a cell of {result.name} uses a link that does not exist")
    return document


def load(path: str | Path) -> Document:
    """Load a Document.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    Document
        The saved run.

    Raises
    ------
    DocumentError
        If the file cannot be read, is not a Document, or has a newer schema.
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
    """Save a Document while the run continues, so that even a killed process leaves results.

    Parameters
    ----------
    path : Path or None
        File to write; None to write nothing. A target that is not a file gets only the final Document.
    """

    #: Maximum fraction of the time spent on saving.
    _MAX_TIME_FRACTION = 0.1

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._next = -math.inf if path and not _is_stream(path) else math.inf
        self._saving = threading.Lock()

    def save(self, known: Callable[[], Document], *, always: bool = False) -> None:
        """Save the current Document, unless it was saved a moment ago. May be called from any thread.

        A full disk does not stop the run: saving the final Document reports it.

        Parameters
        ----------
        known : Callable
            Returns the current Document.
        always : bool
            Whether to save even if the Document was saved a moment ago.
        """
        with self._saving:
            start = time.monotonic()
            if self._path is None or self._next == math.inf or (start < self._next and not always):
                return
            with contextlib.suppress(StorageError):
                save(known(), self._path)
            end = time.monotonic()
            self._next = end + (end - start) / self._MAX_TIME_FRACTION

    def last(self, document: Document) -> None:
        """Save the final Document.

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
    """Listener that saves the Document after every measurement.

    A disk that fills up later does not stop the run: the final Document is then written to the temporary
    folder. A target that is not a file gets only the final Document.

    Parameters
    ----------
    path : Path
        File to write.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self.path = path
        self._draft = Draft(path)

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Save the current Document. Errors do not stop the run; ``run_ended`` reports them."""
        self._draft.save(known)

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Save the current Document as unfinished, which stays true if the process is killed."""
        unfinished = replace(document, interrupted=document.interrupted or UNFINISHED)
        self._draft.save(lambda: unfinished, always=True)

    def run_ended(self, document: Document) -> None:
        """Save the final Document.

        Raises
        ------
        StorageError
            If it could not be written to ``path``; the message names the copy in the temporary folder.
        """
        try:
            self._draft.last(document)
        except StorageError as error:
            rescue = Path(tempfile.gettempdir()) / self.path.name
            if rescue == self.path or _is_stream(self.path):
                raise
            save(document, rescue)
            raise StorageError(f"{error}; the results were saved to {rescue}") from error


if __name__ == "__main__":  # generates document.schema.json
    import sys

    sys.stdout.buffer.write(schema())
