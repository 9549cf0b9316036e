"""What standard output can show."""

from __future__ import annotations

import os
import shutil
import sys

_LEAST = 40


def colored() -> bool:
    """Whether standard output is a terminal that shows colour, and colour is wanted.

    Open MPI's mpirun gives each rank a terminal of its own and passes on what it writes, to a file too.
    """
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and "OMPI_COMM_WORLD_RANK" not in os.environ


def columns() -> int:
    """Return the width of the terminal, at least 40; 80 where there is none."""
    return max(_LEAST, shutil.get_terminal_size().columns)
