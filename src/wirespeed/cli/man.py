"""``wirespeed self man``: the manual page, generated from the help of all commands."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from ..errors import ExitCode
from ..version import __version__
from .commands import ABOUT, COMMANDS, SHOWN, functions, programs
from .parser import Parser

_FILES = (
    ("wirespeed-HOST-TIME.json", "what a run measured, in the current folder"),
    ("wirespeed.toml", "defaults of options, in this folder or one of yours above it"),
    ("~/.config/wirespeed.toml", "defaults of options of this user"),
)


_ENVIRONMENT = (
    (
        "WIRESPEED_OPTION",
        "default of --option, WIRESPEED_TIMEOUT=2min; wirespeed self config shows all",
    ),
    ("NO_COLOR", "no colours"),
)


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


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

    top = top_parser()
    lines = [f'.TH WIRESPEED 1 "" "wirespeed {__version__}" "User Commands"']
    lines += [".SH NAME", r"wirespeed \- measure how fast data moves along every path of a machine"]
    lines += [".SH SYNOPSIS", r".B wirespeed", "[COMMAND] [OPTION ...]"]
    lines += [".SH DESCRIPTION", *_paragraphs(top.description or ""), ".SH COMMANDS"]
    for name, row in COMMANDS.items():
        shown = f"self {name}" if name in ABOUT else name
        if name in SHOWN or name in ABOUT:
            lines += _command(shown, row.does, functions(name).parser(shown))
    names = programs()
    lines += _command(", ".join(names), "programs of nccl-tests", functions(names[0]).parser(names[0]))
    lines += [".SH EXIT STATUS", *_paragraphs(top.epilog or "")]
    for title, rows in (("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        lines += [f".SH {title}", *(line for term, does in rows for line in _item(term, does))]
    return "\n".join(lines) + "\n"


def _command(name: str, does: str, of: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the section of a command: description and options."""
    yield f".SS {_escaped(f'wirespeed {name}')}"
    yield from _paragraphs(of.description or does)
    formatter = argparse.HelpFormatter(of.prog)
    for group in of.shown_groups if isinstance(of, Parser) else of._action_groups:
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        actions = [action for action in actions if action.dest != "help"]
        if actions and group.title not in ("options", "positional arguments"):
            yield from (".PP", f".I {_escaped(group.title or '')}")
        for action in actions:
            term = _ESCAPE.sub("", formatter._format_action_invocation(action))
            yield from _item(term, formatter._expand_help(action) if action.help else "")
    if isinstance(of, Parser) and of.examples:
        yield from (".PP", *_paragraphs(of.shown_examples()))
    if of.epilog and not of.epilog.startswith("exit codes"):  # a section of its own
        yield from (".PP", *_paragraphs(of.epilog))


def _item(term: str, does: str) -> Iterator[str]:
    """Yield a term and its description."""
    yield ".TP"
    yield f".B {_escaped(term)}"
    yield _escaped(" ".join(does.split()) or " ")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs, which are filled, and indented lines, which are kept as they are."""
    for kind, lines in groupby(text.splitlines(), lambda line: "" if not line.strip() else line[0].isspace()):
        if kind == "":
            yield ".PP"
        elif kind:
            yield from (".nf", *map(_escaped, lines), ".fi")
        else:
            yield from map(_escaped, lines)


def _escaped(text: str) -> str:
    """A line of text as roff: in ASCII, and never a request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    ascii_ = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return rf"\&{ascii_}" if ascii_.startswith((".", "'")) else ascii_
