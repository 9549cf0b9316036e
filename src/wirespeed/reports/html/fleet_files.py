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
from ...judging.diagnosis import diagnose
from ...judging.fleet import FleetNode, node_summary
from ...results.store import load
from .. import Criteria
from .page import _no_collections

#: Maximum number of nodes whose causes are looked for: each takes about a second.
MOST_DIAGNOSED = 20
#: A process needs this many Documents to be worth its start, which takes about half a second.
_DOCUMENTS_PER_PROCESS, _CHUNK = 24, 4
_MOST_PROCESSES = 16
#: Verdicts whose low values have causes.
_SLOW = ("FAIL", "WARN")


class _Map(Protocol):
    """Reads files, in this process or in others, and returns the results in order."""

    def __call__(self, files: Sequence[str], diagnosed: bool) -> Iterator[FleetNode | str]:
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
        found = dict(zip(files, read(files, False), strict=True))
        nodes = [one for one in found.values() if isinstance(one, FleetNode)]
        slow = sorted((one for one in nodes if one.word in _SLOW), key=lambda one: one.order)
        worst = [one.file for one in slow[:MOST_DIAGNOSED]]
        found |= zip(worst, read(worst, True), strict=True)
    return (
        [one for one in found.values() if isinstance(one, FleetNode)],
        [one for one in found.values() if isinstance(one, str)],
    )


def _read(file: str, by: Criteria, diagnosed: bool) -> FleetNode | str:
    """Return the summary of a run, or why there is none."""
    try:
        with _no_collections():
            return _summary(file, by, diagnosed)
    except WirespeedError as error:
        text = str(error)
        return text if file in text else f"{file}: {text}"


def _summary(file: str, by: Criteria, diagnosed: bool) -> FleetNode:
    """Return the summary of a run; its Document is gone when collections of garbage resume."""
    document = load(file)
    check = by.judge(document)
    return node_summary(file, document, check, diagnose(document, check) if diagnosed else None)


@contextmanager
def _mapping(documents: int, by: Criteria) -> Iterator[_Map]:
    """Provide what reads files: as many processes as are worth their start."""
    cores = len(os.sched_getaffinity(0))
    processes = min(cores, _MOST_PROCESSES, documents // _DOCUMENTS_PER_PROCESS)
    if processes < 2:
        yield lambda files, diagnosed: map(partial(_read, by=by, diagnosed=diagnosed), files)
        return
    # Not forked: the progress display has a thread.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:

        def read(files: Sequence[str], diagnosed: bool) -> Iterator[FleetNode | str]:
            chunk = 1 if diagnosed else _CHUNK
            return pool.map(_read, files, repeat(by), repeat(diagnosed), chunksize=chunk)

        try:
            yield read
        except BrokenProcessPool as error:
            raise OutOfMemory(
                "a process that read the runs was killed; free memory, or pass fewer files"
            ) from error
