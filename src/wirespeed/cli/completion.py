"""``wirespeed completion``: what a shell needs to complete commands, options, testcases and machines."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ExitCode
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
