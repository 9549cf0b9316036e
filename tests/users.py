"""Other users of this machine, for tests that run as root."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

import pytest

#: A user id without an entry in passwd.
OTHER = 12345
#: System call that sets the user ids of one thread; the function of the C library changes all threads.
_SETRESUID = {"x86_64": 117, "aarch64": 147}.get(platform.machine(), -1)

needs_root = pytest.mark.skipif(os.geteuid() != 0 or _SETRESUID < 0, reason="only root can be another user")


def as_other_user(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of another user."""
    found: list[Any] = []

    def run() -> None:
        code = ctypes.CDLL(None, use_errno=True).syscall(_SETRESUID, OTHER, OTHER, OTHER)
        assert code == 0, os.strerror(ctypes.get_errno())
        found.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]
