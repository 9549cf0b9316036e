"""The queues of an io_uring: made by system calls, because the C library has none.

Sources: ``include/uapi/linux/io_uring.h`` of Linux; the flags and their fallbacks are those of
``engines/io_uring.c`` of fio.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from contextlib import suppress
from typing import Any

import numpy as np

from ...errors import BackendError, OutOfMemory
from .calls import (
    COMPLETED,
    COMPLETION_MASK,
    COMPLETIONS,
    ENTER,
    RING,
    SUBMISSION_MASK,
    SUBMISSIONS,
    SUBMITTED,
    TAKEN,
)

#: Number of the system call ``io_uring_setup``, the same on all architectures.
_SETUP = 425
#: Flags, the most efficient ones first: COOP_TASKRUN with SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1),
#: without them (5.19), and none.
_FLAGS = (1 << 8 | 1 << 12 | 1 << 13, 1 << 8, 0)
#: A feature as old as the operations that are used (RW_CUR_POS, Linux 5.6).
_FEATURE = 1 << 3
#: Where the queues are mapped.
_SUBMISSION_QUEUE, _COMPLETION_QUEUE, _ENTRIES = 0, 0x8000000, 0x10000000
_SUBMISSION_BYTES, _COMPLETION_BYTES = 64, 16
#: Words of the parameters: number of submissions and of completions, flags, features; begin of the offsets of
#: each queue, and in them: begin, end, mask, and the array of submissions or the completions.
_WORDS, _SUBMITS, _COMPLETES, _SETTING, _FEATURES, _OF_SUBMISSIONS, _OF_COMPLETIONS = 30, 0, 1, 2, 5, 10, 20
_BEGIN, _END, _MASK, _COMPLETION_ENTRIES, _ARRAY = 0, 1, 2, 5, 6

_library = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """Make a system call.

    Raises:
        OSError: If it fails.
    """
    result = int(_library.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Ring:
    """An io_uring. Only the thread that made it may use it.

    Attributes:
        description: What ``move_by_ring`` takes.
    """

    def __init__(self, depth: int) -> None:
        """Make the queues for a number of calls at a time.

        Raises:
            BackendError: If the system refuses.
        """
        self._descriptor, self._maps = -1, list[mmap.mmap]()
        try:
            self._make(depth)
        except OSError as error:
            self.close()
            if error.errno == errno.ENOMEM:
                hint = "raise the limit of locked memory (`ulimit -l`)"
                raise OutOfMemory(f"not enough memory for the queues of io_uring; {hint}") from error
            raise BackendError(_why(error.errno or 0)) from error
        except BaseException:
            self.close()
            raise

    def _make(self, depth: int) -> None:
        for flags in _FLAGS:
            words = (ctypes.c_uint32 * _WORDS)()
            words[_SETTING] = flags
            with suppress(_Unknown):
                self._descriptor = _setup(depth, words, last=flags == _FLAGS[-1])
                break
        if not words[_FEATURES] & _FEATURE:
            raise BackendError("io_uring of this kernel is too old; it requires Linux 5.6 or later")
        submissions, completions = words[_OF_SUBMISSIONS:_OF_COMPLETIONS], words[_OF_COMPLETIONS:_WORDS]
        sizes = (
            (_SUBMISSION_QUEUE, submissions[_ARRAY] + 4 * words[_SUBMITS]),
            (_COMPLETION_QUEUE, completions[_COMPLETION_ENTRIES] + _COMPLETION_BYTES * words[_COMPLETES]),
            (_ENTRIES, _SUBMISSION_BYTES * words[_SUBMITS]),
        )
        for offset, size in sizes:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self._maps.append(mmap.mmap(self._descriptor, size, flags=flags, offset=offset))
        queue, done, entries = (ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in self._maps)
        call(ENTER, self._descriptor, 0, 0, 0, None, 0)
        order = np.frombuffer(self._maps[0], np.uint32, words[_SUBMITS], submissions[_ARRAY])
        order[:] = np.arange(len(order))
        self.description = np.zeros(8, np.int64)
        self.description[RING] = self._descriptor
        self.description[SUBMITTED] = queue + submissions[_END]
        self.description[SUBMISSION_MASK] = words[_SUBMITS] - 1
        self.description[SUBMISSIONS] = entries
        self.description[TAKEN] = done + completions[_BEGIN]
        self.description[COMPLETED] = done + completions[_END]
        self.description[COMPLETION_MASK] = words[_COMPLETES] - 1
        self.description[COMPLETIONS] = done + completions[_COMPLETION_ENTRIES]

    def close(self) -> None:
        """Release the queues; it may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        self._maps.clear()  # unmapped when no address of them is used any more
        if descriptor >= 0:
            os.close(descriptor)


class _Unknown(Exception):
    """The kernel does not know the flags."""


def _setup(depth: int, words: Any, *, last: bool) -> int:
    """Make an io_uring; return its descriptor.

    Raises:
        _Unknown: If the kernel does not know the flags, and there are others.
    """
    try:
        return call(_SETUP, depth, words)
    except OSError as error:
        if error.errno == errno.EINVAL and not last:
            raise _Unknown from error
        raise


def _why(number: int) -> str:
    """Why there is no io_uring."""
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return "io_uring is not permitted here (by the kernel, a container or kernel.io_uring_disabled)"
    return f"io_uring cannot be used here: {os.strerror(number)}"


def refused() -> str:
    """Why this process has no io_uring; empty if it has."""
    try:
        Ring(1).close()
    except BackendError as error:
        return str(error)
    return ""
