"""``wirespeed install-names``: executables with the names of the programs that wirespeed replaces."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ExitCode, StorageError
from ..files import make_folder, new_file
from ..terminal import visible
from .commands import executables
from .parser import Parser

#: Second line of the files, by which they are recognised.
_MARK = "# made by wirespeed install-names"


def main(name: str, argv: Sequence[str]) -> int:
    names = executables()
    folder: Path = parser(name).parse_args(argv).folder
    files = {folder / name: command for name, command in names.items()}
    if foreign := [str(file) for file in files if not _replaceable(file)]:
        raise StorageError(
            f"not made by this command, so not replaced: {', '.join(foreign)}; use another folder"
        )
    try:
        make_folder(folder)
        for file, command in files.items():
            # Without -P, Python would import modules from the current folder.
            run = shlex.join([sys.executable, "-P", "-m", "wirespeed", command])
            text = f'#!/bin/sh\n{_MARK}\nexec {run} "$@"\n'
            with new_file(text.encode(), folder, f".{file.name}.", mode=0o755) as new:
                new.replace(file)  # a running script reads the old file
    except OSError as error:
        raise StorageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    print(visible(f"created in {folder}: {', '.join(names)}"))
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Create executables with the names of nvbandwidth, sailbandwidth, gpudirect_p2p_overalloc and the\n"
        "programs of nccl-tests (all_reduce_perf, all_reduce_perf_mpi, ...), for scripts that call them by\n"
        "path. They run this installation of wirespeed.",
    )
    arguments.add_argument("folder", metavar="DIR", type=Path, help="folder; it is created if necessary")
    return arguments


def _replaceable(file: Path) -> bool:
    """Whether a file does not exist, or was made by this command."""
    if not file.is_symlink() and not file.exists():
        return True
    try:
        with file.open("rb") as stream:
            return stream.read(200).split(b"\n")[1:2] == [_MARK.encode()] and not file.is_symlink()
    except OSError:
        return False
