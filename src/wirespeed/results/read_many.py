"""Many saved runs, read one at a time in each process; only what a report needs of each is kept."""

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
from ..errors import OutOfMemory, WirespeedError
from ..terminal import error_line
from .store import STDIN, load

T = TypeVar("T")
#: A process needs this many Documents to be worth its start, which takes about half a second.
_DOCUMENTS_PER_PROCESS, _CHUNK = 8, 4
_MOST_PROCESSES = 16


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read or judged.

    Attributes:
        file: The file.
        why: The error as text.
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
    read = partial(_read, keep=keep, load=load)
    others = [file for file in files if file != STDIN]
    cores = len(os.sched_getaffinity(0))
    processes = min(cores, _MOST_PROCESSES, len(others) // _DOCUMENTS_PER_PROCESS)
    if processes < 2:
        results = [read(file) for file in files]
    else:
        spawn = multiprocessing.get_context("spawn")  # not forked: the progress display has a thread
        with ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
            try:
                results_of_others = pool.map(read, others, chunksize=_CHUNK)
                results = [read(file) if file == STDIN else next(results_of_others) for file in files]
            except BrokenProcessPool as error:
                raise OutOfMemory(
                    "a process that read the runs was killed; free memory, or pass fewer files"
                ) from error
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
    """What is kept of a file, or why it cannot be read; its Document is gone when collections resume."""
    with no_collections():
        return _tried(file, lambda: keep(file, load("/dev/stdin" if file == STDIN else file)))


def _tried(file: str, make: Callable[[], T]) -> T | Unreadable:
    """The result of a function that reads a file, or why there is none."""
    try:
        return make()
    except WirespeedError as error:
        return Unreadable(file, str(error))
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a defect of wirespeed ends with this file, and the exit code says so
        return Unreadable(file, defect(error))


def defect(error: Exception) -> str:
    """An error of wirespeed itself, in words: its kind, and where it was raised."""
    frame = extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return error_line(f"internal error: {type(error).__name__}: {error} ({place}); please report it")


def defective(named: Sequence[tuple[str, Document]], make: Callable[[Document], object]) -> list[Unreadable]:
    """The runs of which something cannot be made, after it could not be made of all of them together."""
    tried = [_tried(file, partial(make, document)) for file, document in named]
    return [why for why in tried if isinstance(why, Unreadable)]
