"""The files that a run of nccl-tests' programs writes: its JSON and the saved run."""

from __future__ import annotations

import argparse
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StorageError, UsageError
from ..terminal import visible
from .nccl_tests_options import FORMAT

if TYPE_CHECKING:
    from ..results.output import Output


def reserve(options: argparse.Namespace) -> list[Output]:
    """Check, before anything is measured, that the files can be written; return that of the JSON.

    Like nccl-tests, an existing file is not replaced (``.0``, ``.1``... is appended to the name), and one
    that cannot be written is left out.

    Raises:
        UsageError: If the file of the Document exists.
        StorageError: If it cannot be written.
    """
    from ..results.output import Output

    if options.output:
        options.output.check(options.force)
    path: Path | None = options.output_file
    if path is None:
        return []
    file = Output(path, names=(path.with_name(f"{path.name}.{i}") for i in count()))
    try:
        file.check()
    except (StorageError, UsageError) as error:
        _say(f"# skipping json output; {path} not accessible", options)
        print(visible(f"wirespeed: note: {error}"), file=sys.stderr)
        return []
    announce(file, options)
    return [file]


def announce(file: Output, options: argparse.Namespace) -> None:
    _say(f"# Writing JSON output to {file.path}", options)


def _say(line: str, options: argparse.Namespace) -> None:
    if options.format == FORMAT:
        print(visible(line), flush=True)
