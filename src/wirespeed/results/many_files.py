"""Read many saved runs, one Document at a time in each process, and keep only what a report needs of each."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Generic, TypeVar

from ..document import Document
from ..errors import OutOfMemory, UsageError, WirespeedError
from ..results.store import load
from ..terminal import error_line
from ..units import many

T = TypeVar("T")

_SUFFIX = ".json"
#: Name of standard input.
STDIN = "-"
#: A process needs this many Documents to be worth its start, which takes about half a second.
_DOCUMENTS_PER_PROCESS, _CHUNK = 8, 4
_MOST_PROCESSES = 16


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read or judged.

    Attributes:
        file: The file.
        why: The error, for people.
    """

    file: str
    why: str

    def __str__(self) -> str:
        return self.why if self.file in self.why else f"{self.file}: {self.why}"

    @property
    def kind(self) -> str:
        """The error without the name of the file: equal for files with the same error."""
        return self.why.replace(self.file, "the file")


@dataclass(frozen=True)
class ReadRuns(Generic[T]):
    """What was kept of many files.

    Attributes:
        found: What was kept of each run, in the order of the files.
        unreadable: The other files.
    """

    found: list[T]
    unreadable: list[Unreadable]


def files_in(names: Sequence[str]) -> list[str]:
    """Files, and in place of each folder its ``*.json`` files and those of the folders in it.

    Deeper folders and other files are left out, as ``left_out`` says; hidden ones are ignored.

    Raises:
        UsageError: If a folder contains no such file.
    """
    files: list[str] = []
    for name in names:
        folder = Path(name)
        if name == STDIN or not folder.is_dir():
            files.append(name)
            continue
        within = sorted(str(path) for path in _within(folder) if path.suffix == _SUFFIX and not path.is_dir())
        if not within:
            others = "".join(f" ({text})" for text in left_out([name]))
            raise UsageError(f"the folder {name} contains no *.json file, nor do the folders in it{others}")
        files += within
    return files


def left_out(names: Sequence[str]) -> list[str]:
    """What ``files_in`` leaves out of each folder, with its name; empty if nothing."""
    texts = []
    for name in names:
        folder = Path(name)
        if name == STDIN or not folder.is_dir():
            continue
        deeper = others = 0
        for path in _within(folder):
            if path.is_dir():
                deeper += path.parent != folder
            else:
                others += path.suffix != _SUFFIX
        counts = [many(deeper, "deeper folder")] * bool(deeper) + [many(others, "other file")] * bool(others)
        if counts:
            texts.append(f"left out of {name}: {' and '.join(counts)}; only *.json files are read")
    return texts


def _within(folder: Path) -> Iterator[Path]:
    """Files and folders in a folder and in the folders in it, without hidden ones."""
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                yield path


def read_many(
    files: Sequence[str], keep: Callable[[str, Document], T], load: Callable[[str], Document] = load
) -> ReadRuns[T]:
    """Read saved runs in several processes, and go on after files that cannot be read or judged.

    Args:
        files: Saved runs; ``-`` is standard input.
        keep: Returns what is kept of a file's Document. Other processes import it by its name.
        load: Reads a file; imported in the same way.

    Raises:
        OutOfMemory: If a process that read Documents was killed.
    """
    others = [file for file in files if file != STDIN]
    with _mapping(len(others), partial(_read, keep=keep, load=load)) as read:
        results_of_others = read(others)
        results = [_read(file, keep, load) if file == STDIN else next(results_of_others) for file in files]
    return ReadRuns(
        [result for result in results if not isinstance(result, Unreadable)],
        [result for result in results if isinstance(result, Unreadable)],
    )


@contextmanager
def no_collections() -> Iterator[None]:
    """Pause the garbage collector: it would visit the cells of a large Document again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(file: str, keep: Callable[[str, Document], T], load: Callable[[str], Document]) -> T | Unreadable:
    """What is kept of a file, or why it cannot be read."""
    try:
        with no_collections():
            return _kept(file, keep, load)
    except WirespeedError as error:
        return Unreadable(file, str(error))
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a defect of wirespeed ends with this file, and the exit code says so
        return Unreadable(file, defect(error))


def defect(error: Exception) -> str:
    """An error of wirespeed itself, for people: its kind, and where it was raised."""
    frame = extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return error_line(f"internal error: {type(error).__name__}: {error} ({place}); please report it")


def defective(named: Sequence[tuple[str, Document]], make: Callable[[Document], object]) -> list[Unreadable]:
    """The runs of which something cannot be made, after it could not be made of all of them together."""
    found = []
    for file, document in named:
        try:
            make(document)
        except WirespeedError as error:
            found.append(Unreadable(file, str(error)))
        except (MemoryError, OSError):
            raise
        except Exception as error:
            found.append(Unreadable(file, defect(error)))
    return found


def _kept(file: str, keep: Callable[[str, Document], T], load: Callable[[str], Document]) -> T:
    """What is kept of a file; its Document is gone when collections of garbage resume."""
    return keep(file, load("/dev/stdin" if file == STDIN else file))


@contextmanager
def _mapping(
    documents: int, read: Callable[[str], T | Unreadable]
) -> Iterator[Callable[[Sequence[str]], Iterator[T | Unreadable]]]:
    """Provide what reads files: as many processes as are worth their start."""
    cores = len(os.sched_getaffinity(0))
    processes = min(cores, _MOST_PROCESSES, documents // _DOCUMENTS_PER_PROCESS)
    if processes < 2:
        yield lambda files: map(read, files)
        return
    # Not forked: the progress display has a thread.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield lambda files: pool.map(read, files, chunksize=_CHUNK)
        except BrokenProcessPool as error:
            raise OutOfMemory(
                "a process that read the runs was killed; free memory, or pass fewer files"
            ) from error
