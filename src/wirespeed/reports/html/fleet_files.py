"""Read many saved runs, one Document at a time in each process, and keep a small summary of each."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Protocol

from ...errors import OutOfMemory, WirespeedError
from ...judging.fleet import FleetNode, node_summary
from ...results.store import load
from .. import Criteria
from .page import _no_collections

#: A process needs this many Documents to be worth its start, which takes about half a second.
_DOCUMENTS_PER_PROCESS, _CHUNK = 8, 4
_MOST_PROCESSES = 16


class _Map(Protocol):
    """Reads files, in this process or in others, and returns the results in order."""

    def __call__(self, files: Sequence[str]) -> Iterator[FleetNode | str]:
        """Read files."""
        ...


def read_nodes(files: Sequence[str], by: Criteria) -> tuple[list[FleetNode], list[str]]:
    """Return a summary of each run, and one line for each file that cannot be read or judged.

    Parameters
    ----------
    files : Sequence[str]
        Saved runs.
    by : Criteria
        What values are judged by.

    Raises
    ------
    OutOfMemory
        If a process that read Documents was killed.
    """
    with _mapping(len(files), by) as read:
        found = list(read(files))
    return (
        [one for one in found if isinstance(one, FleetNode)],
        [one for one in found if isinstance(one, str)],
    )


def _read(file: str, by: Criteria) -> FleetNode | str:
    """Return the summary of a run, or why there is none."""
    try:
        with _no_collections():
            return _summary(file, by)
    except WirespeedError as error:
        text = str(error)
        return text if file in text else f"{file}: {text}"


def _summary(file: str, by: Criteria) -> FleetNode:
    """Return the summary of a run; its Document is gone when collections of garbage resume."""
    document = load(file)
    return node_summary(file, document, by.judge(document))


@contextmanager
def _mapping(documents: int, by: Criteria) -> Iterator[_Map]:
    """Provide what reads files: as many processes as are worth their start."""
    cores = len(os.sched_getaffinity(0))
    processes = min(cores, _MOST_PROCESSES, documents // _DOCUMENTS_PER_PROCESS)
    if processes < 2:
        yield lambda files: map(partial(_read, by=by), files)
        return
    # Not forked: the progress display has a thread.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:

        def read(files: Sequence[str]) -> Iterator[FleetNode | str]:
            return pool.map(_read, files, repeat(by), chunksize=_CHUNK)

        try:
            yield read
        except BrokenProcessPool as error:
            raise OutOfMemory(
                "a process that read the runs was killed; free memory, or pass fewer files"
            ) from error
