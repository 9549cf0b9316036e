"""The storage backend: a file in a folder that the user named, read and written by threads. ``folder``
creates and removes the file; ``backend`` loads numpy and the C functions when measuring starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hardware.devices import STORAGE

if TYPE_CHECKING:
    from ...backends.base import Backend
    from ...hardware.topology import Machine


def connect(machine: Machine) -> Backend | None:
    """The backend for the named folders of this host; None without one, or for a simulated machine."""
    if machine.simulated or not machine.others.get(STORAGE.name):
        return None
    from .backend import StorageBackend

    return StorageBackend(machine)
