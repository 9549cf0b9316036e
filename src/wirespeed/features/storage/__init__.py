"""The storage backend: a file in a folder that the user named, read and written by threads. ``folder``
creates and removes the file; ``backend`` loads numpy and the C functions when measuring starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UsageError
from ...hardware.devices import STORAGE

if TYPE_CHECKING:
    from ...backends.base import Backend
    from ...hardware.topology import Machine
    from ...options import RunOptions


def connect(machine: Machine) -> Backend | None:
    """The backend for the named folders of this host; None without one, or for a simulated machine."""
    if machine.simulated or not machine.others.get(STORAGE.name):
        return None
    from .backend import StorageBackend

    return StorageBackend(machine)


def with_named(machine: Machine, options: RunOptions) -> Machine:
    """A Machine with the storage of the folder that the options name, if they name one.

    Raises:
        UsageError: If they have a size, but no folder.
        MachineError: If the folder cannot be measured.
    """
    if options.storage is not None:
        from .folder import with_folder

        return with_folder(machine, options.storage, options.storage_size)
    if options.storage_size is not None:
        raise UsageError("--storage-size needs the folder whose storage is measured: --storage DIR")
    return machine
