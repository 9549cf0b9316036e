"""Documents on disk: checked before measuring, written atomically, read with clear errors."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..document import LARGEST, SCHEMA, SMALLEST, UNFINISHED, Document, Table, TestcaseResult
from ..driver.listener import Filled, Listener
from ..errors import DocumentError, MachineError, StorageError, UsageError
from ..files import read
from ..model import Expectation
from ..terminal import escaped
from ..topology import check
from .upgrade import from_schema_1, upgraded

if TYPE_CHECKING:
    from ..testcases import Testcase

#: File name that stands for standard output.
STDOUT = Path("-")
#: Free space required before measuring starts, in bytes: the Document of a large run.
_REQUIRED_BYTES = 8 * 2**20
#: Maximum time that a pipe may lack a reader, in s.
_PIPE_READER_S = 5.0
_PIPE_POLL_S = 0.05
#: Maximum number of symbolic links to an open file.
_MOST_LINKS = 8
#: Maximum size of a Document, in characters: of all tables written out, with their labels at each cell, and
#: of all text without the states of the hardware. All pairs of a thousand ranks fit.
_MOST_WRITTEN, _MOST_TEXT = 2**30, 2**24
#: Characters of a cell without its labels.
_CELL_WIDTH = 32
#: Keys by which our files are recognised.
DOCUMENT, BASELINE = "wirespeed_schema", "wirespeed_baseline"


def encode(document: Document) -> bytes:
    """Return the Document as indented JSON, which may be shown on a terminal."""
    return escaped(msgspec.json.format(msgspec.json.encode(document), indent=1).decode()).encode() + b"\n"


def check_writable(path: Path, force: bool = False) -> None:
    """Check, before anything is measured, that a Document can be written to ``path``.

    Parameters
    ----------
    path : Path
        File to write.
    force : bool
        Whether it may replace a file that is not a Document.

    Raises
    ------
    UsageError
        If it would replace a file that is not a Document.
    StorageError
        If the folder is missing or read-only, the path cannot be written like a file, or the disk is full.
    """
    path = _file(path)
    check_replaceable(path, DOCUMENT, force)
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


def check_replaceable(path: Path, key: str, force: bool = False) -> None:
    """Refuse to replace a file with content that is not of the kind that ``key`` identifies.

    Raises
    ------
    UsageError
        If the file has other content; the message names ``--force``.
    """
    if not force and _is_regular(path) and path.stat().st_size and not holds(path, key):
        kind = {DOCUMENT: "saved run", BASELINE: "baseline"}[key]
        raise UsageError(f"{path} exists and is not a {kind}; choose another name, or --force to replace it")


def holds(path: Path, key: str) -> bool:
    """Return whether a file is a regular one of the kind that ``key`` identifies."""
    try:
        return _is_regular(path) and key in msgspec.json.decode(read(path), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


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
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with _new_file(data, path.parent, f".{path.name}.", mode=mode) as new:
            new.replace(path)


@contextlib.contextmanager
def _new_file(data: bytes, folder: Path, prefix: str, suffix: str = "", mode: int = 0o600) -> Iterator[Path]:
    """Write a new file, under a name that nobody can predict or link; an error, also later, removes it."""
    handle, name = tempfile.mkstemp(suffix, prefix, folder)  # with O_EXCL and O_NOFOLLOW
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        yield Path(name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _file(path: Path) -> Path:
    """Return the file that a path leads to, so that links and devices are not replaced."""
    if _is_stream(path):
        return path
    with _failing(path), contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise StorageError(f"cannot write {path}: it is not a regular file; choose another file")
    return path.resolve()


def descriptor(path: Path) -> int | None:
    """Return the open file of this process that ``-``, ``/dev/stdout`` or ``/dev/fd/3`` name; else None.

    The file behind it may have no name, or one that leads to another file by now.
    """
    if path == STDOUT:
        return 1
    for _ in range(_MOST_LINKS):
        if os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd" and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _is_regular(path: Path) -> bool:
    """Return whether the target is an existing file that would be replaced."""
    return descriptor(path) is None and path.is_file()


def _is_stream(path: Path) -> bool:
    """Return whether the target cannot be replaced: an open file, a terminal, /dev/null, a pipe."""
    return descriptor(path) is not None or path.is_char_device() or path.is_fifo()


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


class _Head(msgspec.Struct):
    schema: int = msgspec.field(name="wirespeed_schema")


def decode(data: bytes, name: str) -> Document:
    """Decode a Document from JSON; ``name`` identifies it in errors.

    Raises
    ------
    DocumentError
        If it is not a Document, or has a newer schema.
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, MachineError):
        document = msgspec.json.decode(data, type=Document)  # usually; what fails is read again below
        if document.schema == SCHEMA:
            return _checked(document)
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MachineError) as error:
        raise DocumentError(f"{name} is a broken wirespeed Document: {error}") from error


def _checked(document: Document) -> Document:
    """Reject impossible machines, cells outside of their tables, missing links, and immense reports."""
    check(document.machine)
    links = len(document.machine.links)
    tables = [(result, table) for result in document.testcases for table in result.tables]
    if sum(_written(result, table) for result, table in tables) > _MOST_WRITTEN:
        raise msgspec.ValidationError("its tables have too many rows and columns, or too long labels")
    if _text(document) > _MOST_TEXT:
        raise msgspec.ValidationError("it has too much text")
    for result in document.testcases:
        for table in result.tables:
            rows, columns = len(table.rows.labels), len(table.columns.labels)
            if not all(0 <= value <= LARGEST for value in (*table.rows.values, *table.columns.values)):
                raise msgspec.ValidationError(f"a table of {result.name} has an axis with invalid values")
            if table.is_curve and len(table.columns.values) != columns:
                raise msgspec.ValidationError(f"a table of {result.name} has an axis with mismatched lengths")
            for cell in table.cells:
                if not (0 <= cell.row < rows and 0 <= cell.column < columns):
                    raise msgspec.ValidationError(f"a cell of {result.name} is outside of its table")
                if cell.value is not None and 0 < cell.value < SMALLEST:
                    raise msgspec.ValidationError(
                        f"a cell of {result.name} has the value {cell.value:g}; the smallest is {SMALLEST:g}"
                    )
                if cell.expect and not _is_possible(cell.expect):
                    raise msgspec.ValidationError(f"a cell of {result.name} has an invalid expectation")
                if any([not 0 <= link < links for link, _, _ in cell.links]):  # noqa: C419 - much faster
                    raise msgspec.ValidationError(f"a cell of {result.name} uses a link that does not exist")
    return document


def _is_possible(expect: Expectation) -> bool:
    """Return whether an expectation has only positive numbers."""
    bounds = (expect.of_limit, expect.least, expect.most)
    return all(SMALLEST <= value <= LARGEST for value in bounds if value is not None)


def _written(result: TestcaseResult, table: Table) -> int:
    """Return the characters of a table that is written with one line for each cell."""
    rows, columns = table.rows.labels, table.columns.labels
    labels = sum(map(len, rows)) * len(columns) + sum(map(len, columns)) * len(rows)
    return labels + len(rows) * len(columns) * (_CELL_WIDTH + len(result.name) + len(table.key))


def _text(document: Document) -> int:
    """Return the size of a Document without its measured numbers and the states of the hardware."""
    bare, cells = [], 0
    for result in document.testcases:
        tables = []
        for table in result.tables:
            tables.append(replace(table, cells=()))
            cells += sum(len(c.reason) + len(c.corrupted) + sum(map(len, c.means)) for c in table.cells)
        bare.append(replace(result, tables=tuple(tables), readings=(), state_before=(), state_after=()))
    return cells + len(msgspec.json.encode(replace(document, testcases=tuple(bare))))


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
        data = read(path)
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
    force : bool
        Whether it may replace a file that is not a Document.

    Raises
    ------
    UsageError
        If it would replace a file that is not a Document.
    StorageError
        If the file cannot be written.
    """

    def __init__(self, path: Path, force: bool = False) -> None:
        check_writable(path, force)
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
            if _is_stream(self.path):
                raise
            folder = Path(tempfile.gettempdir())
            try:
                with _new_file(encode(document), folder, f"{self.path.stem}-", ".json") as rescue:
                    pass
            except OSError:  # the first reason counts
                raise error from None
            raise StorageError(f"{error}; the results were saved to {rescue}") from error


if __name__ == "__main__":  # generates document.schema.json
    import sys

    sys.stdout.buffer.write(schema())
