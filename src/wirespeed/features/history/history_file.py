"""The history of machines: a file of SQLite with the values of all their runs. A run is one row with its
values as an array; runs of the same cells share their list, and runs with the same versions, settings and
facts share those, so a thousand runs of 400 values need some 6 MB. Values of a GPU's own memory belong to the
GPU, which may move to another machine; all others belong to the machine, with UUIDs of GPUs in place of
names, which depend on their order.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from ...document import Document, TestcaseResult
from ...errors import DocumentError, StorageError, UsageError
from ...hardware.devices import GPU
from ...hardware.facts import Known
from ...measurement import Unit
from ...results.baseline import SCHEMA as BASELINE_SCHEMA
from ...results.baseline import Baseline, BaselineCell
from ...results.cells import Key, Placed, busy_devices, model_of, placed
from ...results.settings import VOLATILE, attributes
from ...results.store import decode, encode
from ...statistics import centre
from ...tables import LARGEST, SMALLEST, Table, Whole
from ...thresholds.changes import RUNS_OF_LEVEL
from ...units import many
from .location import NAME, DamagedHistory, aside, default_file, own_file, unpacked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Version of the tables below (``PRAGMA user_version``).
SCHEMA = 1
#: The verdicts on the cells of a run of which none are known.
NOT_JUDGED: Mapping[Key, str] = MappingProxyType({})
#: What values that are not as they should be raise.
_OF_DAMAGE = (ValueError, TypeError, LookupError, OverflowError, RecursionError, AttributeError)
#: Time for which a process waits for another one that writes, in s.
_WAIT_S = 30.0
#: The statements that create the tables, as the file keeps them.
_TABLES = (
    "CREATE TABLE machine (id INTEGER PRIMARY KEY, identity TEXT UNIQUE, started TEXT, latest BLOB)",
    "CREATE TABLE layout (id INTEGER PRIMARY KEY, cells TEXT UNIQUE)",
    "CREATE TABLE setting (id INTEGER PRIMARY KEY, texts TEXT UNIQUE)",
    "CREATE TABLE run (id INTEGER PRIMARY KEY, digest TEXT UNIQUE, machine INTEGER, started TEXT,"
    " verdict TEXT,\n                  setting INTEGER, layout INTEGER, numbers BLOB, verdicts TEXT)",
    "CREATE INDEX runs ON run (machine, started)",
)
#: Maximum number of values of all runs that are looked at together: ten years of nights have 10 million.
_MOST_VALUES = 2**26


class SeriesKey(NamedTuple):
    """A cell of a history.

    Attributes:
        gpu: UUID of the GPU that it belongs to; empty if it belongs to the machine.
        testcase, table, row, column, bytes: Its place, with UUIDs in place of names of GPUs.
        unit: Unit of its values.
    """

    gpu: str
    testcase: str
    table: str
    row: str
    column: str
    bytes: int
    unit: str


class StoredRun(NamedTuple):
    """A run as the file has it."""

    machine: int
    started: str
    verdict: str
    setting: int
    layout: int
    numbers: bytes
    verdicts: str


@dataclass(frozen=True)
class PastRun:
    """A run of a history.

    Attributes:
        started: Its start, as ISO 8601 text.
        verdict: The verdict on it; empty if it was not judged.
        texts: What it was made with: versions, settings, facts, GPUs by number.
        verdicts: Each verdict but pass, and the cells that have it.
    """

    started: str
    verdict: str
    texts: Mapping[str, str]
    verdicts: Mapping[str, tuple[SeriesKey, ...]]


@dataclass(frozen=True)
class Past:
    """The runs of one machine.

    Attributes:
        latest: The latest run, without its samples.
        runs: All runs, in order of time.
        cells: The cells that any of them has.
        values: A row for each run, a column for each cell, in base units; nan without a value.
        halves: Half of the interval of each value, relative to it; nan if unknown.
    """

    latest: Document
    runs: tuple[PastRun, ...]
    cells: tuple[SeriesKey, ...]
    values: NDArray[np.float64]
    halves: NDArray[np.float64]

    def key(self, cell: SeriesKey) -> Key:
        """The place of a cell in the latest run."""
        names = {gpu.uuid: gpu.name for gpu in self.latest.machine.gpus if gpu.uuid}
        row, column = (names.get(label, label) for label in (cell.row, cell.column))
        return Key(cell.testcase, cell.table, row, column, cell.bytes)


class History:
    """A file with the history of machines, or one in memory.

    Args:
        file: The file; None for memory.
        create: Whether to create the file if it is missing.

    Raises:
        UsageError: If the file is missing, and not to be created.
        StorageError: If it cannot be used: another user's, no regular file, no history, or damaged.
    """

    def __init__(self, file: Path | None, *, create: bool = True) -> None:
        self.file, self._is_history = file, False
        target = None
        if file:
            if not create and not os.path.lexists(file):
                raise UsageError(
                    f"there is no history {file} yet: `wirespeed check` and `run` of this machine begin it"
                )
            try:
                target = own_file(file, create=create)
            except OSError as error:
                why = f"cannot use {file} as a history: {error.strerror}"
                raise StorageError(f"{why}; give --history FILE, or --history none") from error
        with self._saying():
            self._base = sqlite3.connect(  # mode=rw: SQLite creates no file
                f"{target.as_uri()}?mode=rw" if target else ":memory:",
                uri=True, timeout=_WAIT_S, isolation_level=None,
            )  # fmt: skip
        try:
            self._begin()
        except BaseException:
            self._base.close()
            raise

    def _begin(self) -> None:
        """Create the tables of a new file; refuse a file with others."""
        with self._saying(), self._transaction():
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
            known = dict(self._base.execute("SELECT sql, name FROM sqlite_master WHERE sql NOT NULL"))
            self._is_history = {"machine", "layout", "setting", "run"} <= {*known.values()}
            if known and not self._is_history:
                raise StorageError(f"{self.file} is a database, but no history; choose another file")
            if version > SCHEMA:
                raise StorageError(f"the history {self.file} is of a newer version of wirespeed; update it")
            if not version:
                for statement in _TABLES:
                    self._base.execute(statement)
                self._base.execute(f"PRAGMA user_version = {SCHEMA}")
            elif set(known) != set(_TABLES):  # such as a view, which may never end
                raise ValueError("it has other tables")

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def add(self, document: Document, verdict: str = "", of_cells: Mapping[Key, str] = NOT_JUDGED) -> bool:
        """Add a run, unless the history has it.

        Args:
            document: The run.
            verdict: The verdict on it.
            of_cells: The verdicts on its cells but pass.

        Returns:
            Whether it was added.

        Raises:
            StorageError: If the file cannot be written.
        """
        kept = [place for place in placed(document) if _counts(place, document)]
        uuids = {gpu.name: gpu.uuid for gpu in document.machine.gpus if gpu.uuid}
        cells = [_series_key(place, uuids) for place in kept]
        numbers = array("d", [place.cell.value or 0.0 for place in kept])
        halves = array("f", [_half(place) for place in kept])
        verdicts: dict[str, list[int]] = {}
        for i, place in enumerate(kept):
            if word := of_cells.get(place.key):
                verdicts.setdefault(word, []).append(i)
        digest = hashlib.sha256(encode(document)).hexdigest()
        with self._saying(), self._transaction():
            if self._base.execute("SELECT 1 FROM run WHERE digest = ?", (digest,)).fetchone():
                return False
            layout = self._id("layout", "cells", json.dumps(cells))
            setting = self._id("setting", "texts", json.dumps(_texts(document), sort_keys=True))
            machine = self._machine(document)
            self._base.execute(
                "INSERT INTO run (digest, machine, started, verdict, setting, layout, numbers, verdicts)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (digest, machine, document.started, verdict, setting, layout,
                 numbers.tobytes() + halves.tobytes(), json.dumps(verdicts)),
            )  # fmt: skip
        return True

    def check(self, identity: str) -> None:
        """Read what the history has of a machine, to find damage before it is added to.

        Raises:
            DamagedHistory: If it is damaged.
        """
        self.machines()
        with self._saying():
            wrong = (
                "SELECT count(*) FROM run WHERE started IS NULL OR started NOT GLOB '[0-9][0-9][0-9][0-9]-*'"
            )
            if count := self._base.execute(wrong).fetchone()[0]:
                raise ValueError(f"{many(count, 'run')} without a time")
        with suppress(UsageError):
            self.past(identity)

    def machines(self) -> list[str]:
        """The identities of the machines, the one with the latest run first."""
        with self._saying():
            rows = self._base.execute("SELECT identity FROM machine ORDER BY started DESC").fetchall()
            for (identity,) in rows:
                msgspec.json.decode(identity, type=Annotated[list[str], msgspec.Meta(min_length=1)])
        return [identity for (identity,) in rows]

    def past(self, identity: str, since: str = "", before: str = "9") -> Past:
        """The runs of a machine, and what its GPUs did in other machines.

        Args:
            identity: Its identity.
            since, before: Only runs that started since then, and before, as ISO 8601 texts.

        Raises:
            UsageError: If the history has no run of it.
            StorageError: If the file cannot be read.
        """
        with self._saying():
            return self._past(identity, since, min(before, _tomorrow()) if self.file else before)

    def _past(self, identity: str, since: str, before: str) -> Past:
        """The same; what is damaged raises any error of its values."""
        import numpy as np

        found = self._base.execute(
            "SELECT id, latest FROM machine WHERE identity = ?", (identity,)
        ).fetchone()
        if found is None:
            raise UsageError(f"the history has no run of {_name(identity)}")
        latest = decode(unpacked(found[1]), "the latest run")
        uuids = {gpu.uuid for gpu in latest.machine.gpus if gpu.uuid}
        layouts = {
            row: msgspec.json.decode(text, type=list[SeriesKey])
            for row, text in self._base.execute("SELECT id, cells FROM layout")
        }
        shared = [i for i, cells in layouts.items() if any(cell.gpu in uuids for cell in cells)]
        rows = [
            msgspec.convert(row, StoredRun)
            for row in self._base.execute(
                "SELECT machine, started, verdict, setting, layout, numbers, verdicts FROM run"
                " WHERE started >= ? AND started < ?"
                f" AND (machine = ? OR layout IN ({','.join('?' * len(shared))})) ORDER BY started, id",
                (since, before, found[0], *shared),
            )
        ]
        settings = {
            row: msgspec.json.decode(text, type=dict[str, str])
            for row, text in self._base.execute("SELECT id, texts FROM setting")
        }
        if not rows:
            raise UsageError(
                f"the history has no earlier run of {_name(identity)}" + f" since {since[:10]}" * bool(since)
            )
        columns: dict[SeriesKey, int] = {}
        places: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}
        for row in rows:
            own = row.machine == found[0]
            if row.layout not in layouts or row.setting not in settings:
                raise ValueError(f"the run of {row.started} has an unknown layout or setting")
            if (row.layout, own) not in places:
                cells = layouts[row.layout]
                mine = [i for i, cell in enumerate(cells) if own or cell.gpu in uuids]
                at = [columns.setdefault(cells[i], len(columns)) for i in mine]
                places[row.layout, own] = mine, at
        if len(rows) * len(columns) > _MOST_VALUES:
            raise ValueError(f"{len(rows)} runs of {len(columns)} values are too many")
        values = np.full((len(rows), len(columns)), np.nan)
        halves = np.full_like(values, np.nan)
        runs = []
        for i, row in enumerate(rows):
            mine, at = places[row.layout, row.machine == found[0]]
            cells = layouts[row.layout]
            if len(row.numbers) != 12 * len(cells):
                raise ValueError(f"the run of {row.started} has {len(row.numbers)} bytes of values")
            numbers = np.frombuffer(row.numbers, np.float64, len(cells))
            if not ((numbers >= SMALLEST) & (numbers <= LARGEST)).all():
                raise ValueError(f"the run of {row.started} has values that nothing can have")
            values[i, at] = numbers[mine]
            halves[i, at] = np.frombuffer(row.numbers, np.float32, len(cells), 8 * len(cells))[mine]
            of_words = msgspec.json.decode(row.verdicts, type=dict[str, list[Whole]])
            of_cells = {word: tuple(cells[i] for i in indices) for word, indices in of_words.items()}
            datetime.fromisoformat(row.started)
            runs.append(PastRun(row.started, row.verdict, settings[row.setting], of_cells))
        return Past(latest, tuple(runs), tuple(columns), values, halves)

    def _machine(self, document: Document) -> int:
        """The number of a run's machine; the run becomes its latest one if it is."""
        identity = identity_of(document)
        found = self._base.execute(
            "SELECT id, started FROM machine WHERE identity = ?", (identity,)
        ).fetchone()
        if found and document.started < found[1] < _tomorrow():  # else a clock was wrong
            return int(found[0])
        latest = zlib.compress(encode(_without_samples(document)))
        if found:
            self._base.execute(
                "UPDATE machine SET started = ?, latest = ? WHERE id = ?",
                (document.started, latest, found[0]),
            )
            return int(found[0])
        row = self._base.execute(
            "INSERT INTO machine (identity, started, latest) VALUES (?, ?, ?)",
            (identity, document.started, latest),
        )
        return int(row.lastrowid or 0)

    def _id(self, table: str, column: str, text: str) -> int:
        """The number of a text of a table, which is added if it is new."""
        self._base.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (text,))
        return int(self._base.execute(f"SELECT id FROM {table} WHERE {column} = ?", (text,)).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Name the file where SQLite or its content fails."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:  # locked, read-only, a full disk
            raise StorageError(f"cannot use the history {self.file}: {error}") from error
        except sqlite3.DatabaseError as error:  # not even a database, or a damaged one
            is_ours = self._is_history or (self.file is not None and self.file.name == NAME)
            raise (DamagedHistory if is_ours else StorageError)(
                f"the history {self.file} is damaged: {error}"
            ) from error
        except (*_OF_DAMAGE, DocumentError, zlib.error, msgspec.MsgspecError) as error:
            raise DamagedHistory(f"the history {self.file} is damaged: {error}") from error


def add(
    file: Path | None, document: Document, verdict: str, of_cells: Mapping[Key, str] = NOT_JUDGED
) -> None:
    """Add a run to a history file; None for the user's.

    A damaged file is kept under another name, and a new one begins with the run.

    Raises:
        DamagedHistory: If the file was damaged; the message says where it is kept.
        StorageError: If the file cannot be used.
    """
    path = file or default_file()
    try:
        with closing(History(path)) as history:
            history.check(identity_of(document))
            history.add(document, verdict, of_cells)
    except DamagedHistory as error:
        kept = aside(path)
        with closing(History(path)) as history:
            history.add(document, verdict, of_cells)
        raise DamagedHistory(f"{error}; it is kept as {kept}, and a new one begins with this run") from error


def _tomorrow() -> str:
    """A time after which no run can have started, unless a clock was wrong."""
    return (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")


def baseline_of(past: Past, document: Document) -> Baseline:
    """The past of a machine as a baseline, by which its latest run is judged.

    Args:
        past: Its runs.
        document: The run to judge.

    Raises:
        UsageError: If no value of the run was measured in three earlier runs.
    """
    import numpy as np

    entries = []
    for i, cell in enumerate(past.cells):
        values = past.values[:, i]
        known = values[~np.isnan(values)].tolist()
        if len(known) >= RUNS_OF_LEVEL:
            middle, deviation = centre(known)
            entries.append(
                BaselineCell(*past.key(cell), Unit(cell.unit), middle, deviation / middle, len(known))
            )
    if {place.key for place in placed(document)}.isdisjoint(entry.key for entry in entries):
        raise UsageError(f"the history has fewer than {RUNS_OF_LEVEL} earlier runs with values of this run")
    return Baseline(
        schema=BASELINE_SCHEMA, simulated=document.simulated,
        models={model_of(document.machine): tuple(entries)},
    )  # fmt: skip


def identity_of(document: Document) -> str:
    """Which machine a run is of: its number as an operating system, and its name."""
    numbers = {str(fact.value) for fact in document.facts if fact.name == Known.MACHINE_ID and fact.value}
    return json.dumps([document.hostname, *sorted(numbers)])


def _name(identity: str) -> str:
    return str(json.loads(identity)[0]) or "this machine"


def _counts(place: Placed, document: Document) -> bool:
    """Whether a value says something of the machine: other processes were elsewhere, and the data right."""
    cell = place.cell
    return bool(cell.value) and not cell.is_wrong and not busy_devices(place, document.machine)


def _series_key(place: Placed, uuids: Mapping[str, str]) -> SeriesKey:
    testcase, table, row, column, size = place.key
    gpus = {uuids[label] for label in (row, column) if label in uuids}
    own = gpus.pop() if len(gpus) == 1 and testcase.startswith(GPU.testcases) else ""
    return SeriesKey(own, testcase, table, uuids.get(row, row), uuids.get(column, column), size, place.unit)


def _half(place: Placed) -> float:
    value, interval = place.cell.value, place.cell.interval
    return (interval[1] - interval[0]) / 2 / value if interval and value else float("nan")


def _texts(document: Document) -> dict[str, str]:
    """What a run was made with, without what varies by itself; the GPUs by number."""
    gpus = {f"GPU {gpu.index}": f"{gpu.model} {gpu.uuid}".strip() for gpu in document.machine.gpus}
    return {name: text for name, text in attributes(document).items() if name not in VOLATILE} | gpus


def _without_samples(document: Document) -> Document:
    def shorter(table: Table) -> Table:
        return replace(table, cells=tuple(replace(cell, samples=(), rounds=()) for cell in table.cells))

    def plain(result: TestcaseResult) -> TestcaseResult:
        return replace(result, tables=tuple(map(shorter, result.tables)), readings=())

    return replace(document, testcases=tuple(map(plain, document.testcases)))
