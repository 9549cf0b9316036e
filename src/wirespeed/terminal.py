"""Capabilities of standard output."""

from __future__ import annotations

import os
import shutil
import sys

_MIN_COLUMNS = 40


def colored() -> bool:
    """Return whether standard output is a terminal that supports colour, and colour is not disabled.

    Open MPI's mpirun gives each rank its own terminal and forwards its output, possibly to a file.
    """
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and "OMPI_COMM_WORLD_RANK" not in os.environ


def columns() -> int:
    """Return the width of the terminal, at least 40; 80 if there is no terminal."""
    return max(_MIN_COLUMNS, shutil.get_terminal_size().columns)
