"""``wirespeed self man``: the manual page, which has the help of all commands as it is."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from ..errors import ExitCode
from ..version import __version__
from .commands import ABOUT, COMMANDS, SHOWN, functions, programs
from .parser import Parser

#: Width of the help, which man indents.
_WIDTH = 72


def main(name: str, argv: Sequence[str]) -> int:
    parser(name).parse_args(argv)
    text = page()
    if sys.stdout.isatty() and shutil.which("man"):
        return subprocess.run(["man", "-l", "-"], input=text, text=True, check=False).returncode
    sys.stdout.write(text)
    return ExitCode.PASS


def parser(name: str) -> Parser:
    return Parser(
        name,
        "Show the manual page of wirespeed and all its commands. If the output is not a terminal, print it\n"
        "in the format of man:\n\n"
        "    wirespeed self man > ~/.local/share/man/man1/wirespeed.1",
    )


def page() -> str:
    """The manual page in the format of man (roff)."""
    from .main import top_parser

    lines = [f'.TH WIRESPEED 1 "" "wirespeed {__version__}" "User Commands"']
    lines += [".SH NAME", r"wirespeed \- measure how fast data moves along every path of a machine"]
    lines += [".SH DESCRIPTION", *_help(top_parser()), ".SH COMMANDS"]
    names = [f"self {name}" if name in ABOUT else name for name in COMMANDS if name in {*SHOWN, *ABOUT}]
    for name in (*names, programs()[0]):
        of = functions(name.removeprefix("self ")).parser(name)
        lines += [rf".SS wirespeed {_escaped(name)}", *_help(of)]
    return "\n".join(lines) + "\n"


def _help(of: argparse.ArgumentParser) -> list[str]:
    """The help of a command, whose lines man neither fills nor interprets."""
    of.formatter_class = partial(argparse.RawDescriptionHelpFormatter, width=_WIDTH)
    return [".nf", *map(_escaped, of.format_help().splitlines()), ".fi"]


def _escaped(text: str) -> str:
    """A line of text as roff: in ASCII, and never a request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    ascii_ = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return rf"\&{ascii_}" if ascii_.startswith((".", "'")) else ascii_
