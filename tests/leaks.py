"""What a test leaves behind, by its own fault or wirespeed's: threads, processes, sockets, memory, files.

Looked for before and after each test: with paths as texts, which takes a quarter of the time of Path.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.resource_tracker import _resource_tracker
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: How long a thread or process that is ending may take, in s; the machine may be busy.
ENDING_S = 10.0
#: Beginnings of what libraries keep open for as long as the process lives.
_OF_LIBRARIES = ("/dev/", "/proc/", "anon_inode:", sys.prefix)
#: Python's process that cleans up after others; it lives as long as this one, and so does the pipe to it.
_TRACKER = "multiprocessing.resource_tracker"
#: A library whose descriptors, opened when it is first loaded, stay until the process ends.
_MPI = "mpi4py.MPI"


def present() -> dict[str, str]:
    """Return what could be left behind at this moment: a unique key -> what it is."""
    found = {f"thread {id(one)}": f"the thread {one.name!r}" for one in threading.enumerate()}
    found |= {f"process {pid}": f"the process {pid} ({command})" for pid, command in _children()}
    found |= {f"descriptor {target}": f"an open {target}" for target in _descriptors()}
    found |= {_MPI: ""} if _MPI in sys.modules else {}
    for folder in (ROOT, tempfile.gettempdir()):
        paths = [entry.path for entry in os.scandir(folder) if entry.name.startswith("wirespeed")]
        found |= {f"file {path}": f"the file {path}" for path in paths}
    return found


def left(before: dict[str, str], *, descriptors: bool = True) -> list[str]:
    """Return what is present now and was not before; what is ending is given time to end.

    A GPU's driver keeps sockets and memory of its own; ``descriptors`` says whether these are counted.
    """
    until = time.monotonic() + ENDING_S
    is_last = False
    while more := _more(before, descriptors=descriptors):
        if is_last:
            return more
        is_last = time.monotonic() > until  # on a busy machine, what follows takes long: look again after it
        gc.collect()
        time.sleep(0.01)
    return []


def _more(before: dict[str, str], *, descriptors: bool) -> list[str]:
    """Return what is present and was not before."""
    new = {key: what for key, what in present().items() if key not in before}
    if _MPI in new or not descriptors:
        new = {key: what for key, what in new.items() if not key.startswith("descriptor") and key != _MPI}
    return list(new.values())


def _children() -> Iterator[tuple[int, str]]:
    """Yield the processes that this one has started and that have not ended, with their names."""
    for task in os.scandir("/proc/self/task"):
        with suppress(OSError):
            for pid in map(int, Path(f"{task.path}/children").read_text().split()):
                command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                if _TRACKER not in command:
                    yield pid, command


def _descriptors() -> Iterator[str]:
    """Yield the open files, sockets and memory of this process."""
    for entry in os.scandir("/proc/self/fd"):
        with suppress(OSError):
            if int(entry.name) == getattr(_resource_tracker, "_fd", None):
                continue
            target = os.readlink(entry.path)  # noqa: PTH115
            if not target.startswith(_OF_LIBRARIES):
                yield target
