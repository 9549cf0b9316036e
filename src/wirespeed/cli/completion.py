"""``wirespeed completion``: what a shell needs to complete commands, options, testcases and machines."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from ..errors import ExitCode, UsageError
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    import argcomplete

    shell = parser(name).parse_args(argv).shell
    print(argcomplete.shellcode(["wirespeed"], shell=shell))  # type: ignore[attr-defined]
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Print what a shell needs to complete the words of wirespeed's command lines.\n\n"
        '  bash: add  eval "$(wirespeed completion bash)"  to ~/.bashrc\n'
        '  zsh:  add  eval "$(wirespeed completion zsh)"  to ~/.zshrc\n'
        "  fish: wirespeed completion fish > ~/.config/fish/completions/wirespeed.fish",
    )
    arguments.add_argument("shell", choices=("bash", "zsh", "fish"))
    return arguments


def words() -> tuple[list[str], str]:
    """The arguments before the word to complete, and the word.

    Raises:
        UsageError: If the variable with the place in the line is not a number.
    """
    point = os.environ.get("COMP_POINT", "")
    if not re.fullmatch("[0-9]{1,9}", point):
        raise UsageError(f"_ARGCOMPLETE is set, but COMP_POINT is not a number: {point!r}; unset it")
    line = os.environ.setdefault("COMP_LINE", "")[: int(point)]
    try:
        before = shlex.split(line)[1:]
    except ValueError:  # an open quote
        before = line.split()[1:]
    return (before, "") if line.endswith(" ") or not before else (before[:-1], before[-1])


def top(commands: Sequence[str]) -> Parser:
    """A parser that completes the name of a command."""
    arguments = Parser("")
    arguments.add_argument("command", choices=commands)
    sys.stdout.flush()
    return arguments
