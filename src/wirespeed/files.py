"""Reading the files that a user names, with a limit on their size: a device or a pipe may never end."""

from __future__ import annotations

import errno
from pathlib import Path

#: Maximum size of a file, in MiB: several times the Document of a large machine.
LARGEST_MIB = 512


def read(path: str | Path) -> bytes:
    """Return the content of a file.

    Raises
    ------
    OSError
        If it cannot be read, or is larger than 512 MiB.
    """
    chunks = []
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 - closed below
    except ValueError as error:  # a NUL, or what the file system's encoding lacks
        raise OSError(errno.EINVAL, f"not a file name: {error}", str(path)) from error
    with stream as file:
        while chunk := file.read(2**20):
            chunks.append(chunk)
            if len(chunks) > LARGEST_MIB:
                raise OSError(errno.EFBIG, f"it is larger than {LARGEST_MIB} MiB", str(path))
    return b"".join(chunks)
