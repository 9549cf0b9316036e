"""``wirespeed self``: the defaults of options with their origins, what a shell needs to complete words, and
executables with the names of the programs that wirespeed replaces.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ExitCode, StorageError
from ..files import make_folder, new_file, read_head, umask
from ..terminal import visible
from . import configuration
from .commands import ABOUT, COMMANDS, executables, functions
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run one of the commands about wirespeed itself."""
    if argv and argv[0] in ABOUT:
        if "_ARGCOMPLETE" in os.environ:
            os.environ["_ARGCOMPLETE"] = "3"  # the number of the word that begins its options
        return functions(argv[0]).main(f"{name} {argv[0]}", argv[1:])
    parser(name).parse_args(argv)
    return ExitCode.PASS


def parser(name: str) -> Parser:
    described = "\n".join(f"  {about:<14} {COMMANDS[about].does}" for about in ABOUT)
    arguments = Parser(
        name,
        f"Commands about wirespeed itself; each has --help:\n\n{described}",
        configured=False,
        examples={
            "self config": "where defaults come from",
            "self completion bash": "what bash needs",
            "self install-names bin": "bin/nvbandwidth, bin/all_reduce_perf, ...",
        },
    )
    arguments.add("about", "one of these", choices=ABOUT)
    return arguments


def main_of_config(name: str, argv: Sequence[str]) -> int:
    parser_of_config(name).parse_args(argv)
    files = configuration.files()
    settings = configuration.settings(files)
    for file in files:
        print(visible(f"not read {file.path}: {file.refused}" if file.refused else f"read {file.path}"))
    for setting in settings:
        value = "false" if setting.is_off else ", ".join(setting.values) or "true"
        print(visible(f"{setting.command}.{setting.option} = {value}  ({setting.origin})"))
    if not settings:
        print("no defaults are configured")
    return ExitCode.PASS


def parser_of_config(name: str) -> Parser:
    return Parser(
        name,
        "Show the defaults of options from files and from the environment. In order of precedence:\n"
        "the command line, WIRESPEED_... variables (WIRESPEED_TIMEOUT=2min), the nearest wirespeed.toml in\n"
        "your folders from this one on upwards, and ~/.config/wirespeed.toml. A file has a table for each\n"
        "command, and [defaults] for all commands that have an option:\n\n"
        '    [defaults]\n    timeout = "2min"\n\n    [check]\n    wait-idle = "1min"\n\n'
        "Files that other users can write are not read. A project's file cannot set files to read or write,\n"
        "devices, or what is accepted: overrides, baselines, tolerances, unverified data.",
    )


def main_of_completion(name: str, argv: Sequence[str]) -> int:
    import argcomplete

    shell = parser_of_completion(name).parse_args(argv).shell
    print(argcomplete.shellcode(["wirespeed"], shell=shell))  # type: ignore[attr-defined]
    return ExitCode.PASS


def parser_of_completion(name: str) -> Parser:
    arguments = Parser(
        name,
        "Print what a shell needs to complete the words of wirespeed's command lines.\n\n"
        '  bash: add  eval "$(wirespeed self completion bash)"  to ~/.bashrc\n'
        '  zsh:  add  eval "$(wirespeed self completion zsh)"  to ~/.zshrc\n'
        "  fish: wirespeed self completion fish > ~/.config/fish/completions/wirespeed.fish",
    )
    arguments.add_argument("shell", choices=("bash", "zsh", "fish"))
    return arguments


#: Second line of the files, by which they are recognised.
_MARK = "# made by wirespeed install-names"


def main_of_install_names(name: str, argv: Sequence[str]) -> int:
    names = executables()
    folder: Path = parser_of_install_names(name).parse_args(argv).folder
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
            mode = 0o755 & ~umask()
            with new_file(text.encode(), folder, f".{file.name}.", mode=mode) as new:
                new.replace(file)  # a running script reads the old file
    except OSError as error:
        raise StorageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    print(visible(f"created in {folder}: {', '.join(names)}"))
    return ExitCode.PASS


def parser_of_install_names(name: str) -> Parser:
    arguments = Parser(
        name,
        "Create executables with the names of nvbandwidth, sailbandwidth, gpudirect_p2p_overalloc and the\n"
        "programs of nccl-tests (all_reduce_perf, all_reduce_perf_mpi, ...), for scripts that call them by\n"
        "path. They run this installation of wirespeed.",
    )
    arguments.add("folder DIR", "folder; it is created if necessary", Path)
    return arguments


def _replaceable(file: Path) -> bool:
    """Whether a file does not exist, or was made by this command."""
    if not os.path.lexists(file):
        return True
    return not file.is_symlink() and read_head(file, 200).split(b"\n")[1:2] == [_MARK.encode()]
