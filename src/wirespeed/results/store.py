"""Documents on disk: checked before measuring, written atomically, read with clear errors."""

from __future__ import annotations

import contextlib
import inspect
import math
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
from ..errors import DocumentError, MachineError, NotARun, StorageError, UsageError
from ..files import LARGEST_MIB, new_file, read
from ..hardware.topology import check
from ..tables import LARGEST, SMALLEST, Table
from ..terminal import escaped, neutral_json
from ..units import MIB, many
from .output import Output

if TYPE_CHECKING:
    from ..testcases.table import Testcase

#: Maximum size of a Document, in characters: of all tables written out, with their labels at each cell, and
#: of all text without the states of the hardware. All pairs of a thousand ranks fit.
_MOST_WRITTEN, _MOST_TEXT = 2**30, 2**24
#: Characters of a cell without its labels.
_CELL_WIDTH = 32
_SUFFIX = ".json"
#: Name of standard input.
STDIN = "-"


def encode(document: Document) -> bytes:
    """The Document as indented JSON, which may be shown on a terminal."""
    return escaped(msgspec.json.format(msgspec.json.encode(document), indent=1).decode()).encode() + b"\n"


class _Head(msgspec.Struct):
    schema: int = msgspec.field(name="wirespeed_schema")


def save(document: Document, path: str | Path) -> None:
    """Write a Document atomically: ``path`` always holds a complete file.

    Args:
        document: The run to save.
        path: File to write, or ``-`` for standard output; one that exists is replaced.

    Raises:
        StorageError: If the file cannot be written; an existing file is left unchanged.
    """
    Output(Path(path), replace=True).write(encode(document))


#: What to do with a file that another program wrote.
_OTHER_TOOL = "; for a log of another tool: `wirespeed import LOG -o run.json`"


def decode(data: bytes, name: str) -> Document:
    """Decode a Document from JSON; ``name`` identifies it in errors.

    Raises:
        DocumentError: If it is not a Document (``NotARun``), or has another schema.
    """
    data = neutral_json(data)
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, MachineError):
        document = msgspec.json.decode(data, type=Document)  # usually; what fails is read again below
        if document.schema == SCHEMA:
            return _checked(document)
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError as error:
        raise NotARun(f"{name} is not a saved run of wirespeed, but other JSON{_OTHER_TOOL}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotARun(f"{name} is not a saved run of wirespeed: {error}{_OTHER_TOOL}") from error
    if head.schema > SCHEMA:
        raise DocumentError(
            f"{name} has schema {head.schema}, this version reads {SCHEMA}; use a newer wirespeed"
        )
    if head.schema < SCHEMA:
        raise DocumentError(f"{name}: schema {head.schema} is not supported: measure again")
    try:
        return _checked(msgspec.json.decode(data, type=Document))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MachineError) as error:
        raise DocumentError(f"{name} is a broken saved run of wirespeed: {error}") from error


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
                    raise msgspec.ValidationError(f"a value of {result.name} is outside of its table")
                if cell.value is not None and 0 < cell.value < SMALLEST:
                    raise msgspec.ValidationError(
                        f"a value of {result.name} is {cell.value:g}; the smallest is {SMALLEST:g}"
                    )
                if any([not 0 <= link < links for link, _, _ in cell.links]):  # noqa: C419 - much faster
                    raise msgspec.ValidationError(f"a value of {result.name} uses a link that does not exist")
    return document


def _written(result: TestcaseResult, table: Table) -> int:
    """The characters of a table that is written with one line for each cell."""
    rows, columns = table.rows.labels, table.columns.labels
    labels = sum(map(len, rows)) * len(columns) + sum(map(len, columns)) * len(rows)
    return labels + len(rows) * len(columns) * (_CELL_WIDTH + len(result.name) + len(table.key))


def _text(document: Document) -> int:
    """The size of a Document without its measured numbers and the states of the hardware."""
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

    Args:
        path: File to read.

    Returns:
        The saved run.

    Raises:
        DocumentError: If the file cannot be read, is not a Document, or has another schema.
    """
    return decode(content(str(path)), str(path))


def content(file: str) -> bytes:
    """The content of a file that a user names; ``-`` is standard input.

    Raises:
        DocumentError: If it cannot be read.
    """
    try:
        return sys.stdin.buffer.read(LARGEST_MIB * MIB) if file == "-" else read(file)
    except OSError as error:
        raise DocumentError(f"cannot read {file}: {error.strerror}") from error


def schema() -> bytes:
    """The JSON Schema of a Document, generated from its types."""
    described = msgspec.json.schema(Document)
    for definition in described["$defs"].values():  # docstrings, which only Python 3.13 and later unindents
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    described["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    described["title"] = f"wirespeed Document, schema {SCHEMA}"
    return msgspec.json.format(msgspec.json.encode(described), indent=1) + b"\n"


class Draft:
    """Save a Document while the run continues, so that even a killed process leaves results.

    Args:
        output: File to write; one that is a device or a pipe gets only the final Document.
        encoded: Returns the content of the file for a Document.
    """

    #: Maximum fraction of the time spent on saving, and the time after which the end of a testcase is saved
    #: all the same, in s.
    _MAX_TIME_FRACTION, _LATEST_S = 0.1, 0.1

    def __init__(self, output: Output, encoded: Callable[[Document], bytes] = encode) -> None:
        self._output, self._encoded = output, encoded
        self._next = math.inf if output.is_stream else -math.inf
        self._saved = -math.inf
        self._has_ended = False
        self._saving = threading.Lock()
        #: What was not saved yet, because the last saving was a moment ago.
        self._waiting: Callable[[], Document] | None = None

    def save(self, known: Callable[[], Document], *, has_ended: bool = False, always: bool = False) -> None:
        """Save the current Document; if it was saved a moment ago, ``catch_up`` does. Called from any thread.

        A full disk does not stop the run: saving the final Document reports it.

        Args:
            known: Returns the current Document.
            has_ended: Whether a testcase has ended.
            always: Whether to save even if the Document was saved a moment ago.
        """
        with self._saving:
            start = time.monotonic()
            self._has_ended |= has_ended
            due = min(self._next, self._saved + self._LATEST_S) if self._has_ended else self._next
            if self._next == math.inf or (start < due and not always):
                self._waiting = known
                return
            self._waiting, self._has_ended = None, False
            with contextlib.suppress(StorageError):
                self._output.write(self._encoded(known()))
            self._saved = time.monotonic()
            self._next = self._saved + (self._saved - start) / self._MAX_TIME_FRACTION

    def catch_up(self) -> None:
        """Save what could not be saved when it was known: the next measurement may never end."""
        if self._waiting is not None:
            self.save(self._waiting)

    def last(self, document: Document) -> None:
        """Save the final Document.

        Raises:
            StorageError: If it cannot be written.
        """
        with self._saving:
            self._next = math.inf
            self._output.write(self._encoded(document))


class Drafting(Listener):
    """Listener that saves what is known after every measurement.

    Errors do not stop the run.

    Args:
        draft: What saves it.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Save the current Document."""
        self._draft.save(known)

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Save what was measured or ended just before, also if what is measured now hangs.

        Called ten times a second. Saving after each end took a third of a simulated check.
        """
        self._draft.catch_up()

    def testcase_ended(self, document: Document, result: TestcaseResult) -> None:
        """Save the current Document as unfinished, which stays true if the process is killed."""
        unfinished = replace(document, interrupted=document.interrupted or UNFINISHED)
        self._draft.save(lambda: unfinished, has_ended=True)


class Saver(Drafting):
    """Listener that saves the Document after every measurement.

    A disk that fills up later does not stop the run: the final Document is then written to the temporary
    folder. A target that is not a file gets only the final Document.

    Attributes:
        output: File to write.
        force: Whether it may replace a file that exists.

    Raises:
        UsageError: If it would replace a file.
        StorageError: If the file cannot be written.
    """

    def __init__(self, output: Output, force: bool = False) -> None:
        output.check(force)
        self.output = output
        super().__init__(Draft(output))

    def run_ended(self, document: Document) -> None:
        """Save the final Document.

        Raises:
            StorageError: If it could not be written to the file; the message names the copy in the temporary
                folder.
        """
        try:
            self._draft.last(document)
        except StorageError as error:
            if self.output.is_stream:
                raise
            try:
                folder, name = Path(tempfile.gettempdir()), f"{self.output.path.stem}-"
                with new_file(encode(document), folder, name, ".json") as rescue:
                    pass
            except OSError:  # the first reason counts
                raise error from None
            raise StorageError(f"{error}; the results were saved to {rescue}") from error


def files_in(
    names: Sequence[str], is_log: Callable[[Path], bool] = lambda path: False
) -> tuple[list[str], list[str]]:
    """Files, and in place of each folder its ``*.json`` files and logs, also of the folders in it.

    Deeper folders and other files are left out; hidden ones are ignored.

    Args:
        names: Files and folders.
        is_log: Whether a file of a folder is the log of another tool.

    Returns:
        The files.
        What is left out of each folder, with its name.

    Raises:
        UsageError: If a folder contains no such file.
    """
    files: list[str] = []
    left_out: list[str] = []
    for name in names:
        folder = Path(name)
        if name == STDIN or not folder.is_dir():
            files.append(name)
            continue
        within: list[str] = []
        deeper = others = 0
        for path in _within(folder):
            if path.is_dir():
                deeper += path.parent != folder
            elif path.is_file() and (path.suffix == _SUFFIX or is_log(path)):
                within.append(str(path))
            else:
                others += 1
        counts = [many(deeper, "deeper folder")] * bool(deeper) + [many(others, "other file")] * bool(others)
        text = f"left out of {name}: {' and '.join(counts)}; only *.json files and logs are read"
        if not within:
            reason = f" ({text})" if counts else ""
            raise UsageError(
                f"neither the folder {name} nor the folders in it contain a saved run or log{reason}"
            )
        files += sorted(within)
        left_out += [text] if counts else []
    return files, left_out


def _within(folder: Path) -> Iterator[Path]:
    """Files and folders in a folder and in the folders in it, without hidden ones."""
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                yield path


if __name__ == "__main__":  # generates document.schema.json
    sys.stdout.buffer.write(schema())
