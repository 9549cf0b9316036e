"""Commands about wirespeed itself: ``help``, ``man``, ``config``, ``completion`` and ``install-names``.
``help`` shows the documentation in the terminal, ``man`` the manual page, generated from the help of all
commands, and ``config`` the defaults of options with their origins. ``completion`` prints what a shell
needs to complete words. ``install-names`` creates executables with the names of the programs that wirespeed
replaces.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, groupby
from pathlib import Path

from ..errors import EXIT_CODES, ExitCode, StorageError, UsageError
from ..files import make_folder, new_file, read_head, umask
from ..terminal import PLAIN, colored, columns, visible
from ..version import __version__
from . import configuration
from .commands import COMMANDS, executables, functions, programs
from .parser import Parser


def main_of_completion(name: str, argv: Sequence[str]) -> int:
    import argcomplete

    shell = parser_of_completion(name).parse_args(argv).shell
    print(argcomplete.shellcode(["wirespeed"], shell=shell))  # type: ignore[attr-defined]
    return ExitCode.PASS


def parser_of_completion(name: str) -> Parser:
    arguments = Parser(
        name,
        "Print what a shell needs to complete the words of wirespeed's command lines.\n\n"
        '  bash: add  eval "$(wirespeed completion bash)"  to ~/.bashrc\n'
        '  zsh:  add  eval "$(wirespeed completion zsh)"  to ~/.zshrc\n'
        "  fish: wirespeed completion fish > ~/.config/fish/completions/wirespeed.fish",
    )
    arguments.add_argument("shell", choices=("bash", "zsh", "fish"))
    return arguments


#: Pager and its options if the environment names none: colours, and no pager for less than a screen.
_PAGER, _LESS = "less", "FRX"


def main_of_help(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code; the options of other commands are not its business."""
    from ..reports import Style
    from ..reports.topics import causes, search, topic, topics
    from ..screens.documentation import found, overview, render_topic

    wanted = " ".join(parser_of_help(name).parse_args(argv).topic)
    style = Style(columns(), colored())
    if not wanted:
        _show(overview(style))
    elif page := topic(wanted):
        options = f"\nOptions: wirespeed {wanted} --help\n" if wanted in COMMANDS else ""
        _show(render_topic(page, style) + options)
    elif sections := search(wanted):
        _show(found(sections, style))
    else:
        known = [*COMMANDS, *programs(), *topics(), *causes()]
        close = "".join(f" (did you mean {match!r}?)" for match in get_close_matches(wanted, known, 1))
        raise UsageError(f"no page, cause or command {wanted!r}{close}; `wirespeed help` lists them")
    return ExitCode.PASS


def _show(text: str) -> None:
    """Print a text; if it is longer than the terminal, with the pager, as man does."""
    words = shlex.split(os.environ.get("PAGER", _PAGER))
    pager = shutil.which(words[0]) if words else None
    if not sys.stdout.isatty() or pager is None or text.count("\n") < shutil.get_terminal_size().lines:
        print(text, end="", flush=True)
        return
    environment = {"LESS": _LESS, "LESSCHARSET": "utf-8", **os.environ}
    with subprocess.Popen([pager, *words[1:]], stdin=subprocess.PIPE, env=environment) as process:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the pager
        try:
            process.communicate(text.encode(sys.stdout.encoding, PLAIN))
        finally:
            signal.signal(signal.SIGINT, handler)


def parser_of_help(name: str) -> Parser:
    from ..reports.topics import causes, topics

    listed = {"pages": topics(), "causes of doctor": causes()}
    filled = textwrap.TextWrapper(78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    arguments = Parser(
        name,
        "Show the documentation: a page, PAGE#SECTION, a cause of doctor, the options of a command, or the\n"
        "sections about a word, such as slurm, nagios, prometheus or busbw. Without a word, list the pages.",
        "\n".join(f"{kind}:\n{filled.fill(', '.join(names))}" for kind, names in listed.items()),
    )
    arguments.add(
        "topic PAGE|CAUSE|COMMAND|WORD", "what to show", nargs="*", default=[],
        completer=lambda **_: [*chain(*listed.values())],
    )  # fmt: skip
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


_FILES = (
    ("wirespeed-HOST-TIME.json", "what a run measured, in the current folder"),
    ("wirespeed.toml", "defaults of options, in this folder or one of yours above it"),
    ("~/.config/wirespeed.toml", "defaults of options of this user"),
)
_ENVIRONMENT = (
    ("WIRESPEED_OPTION", "default of --option, such as WIRESPEED_TIMEOUT=2min; wirespeed config shows all"),
    ("NO_COLOR", "no colours"),
)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def main_of_man(name: str, argv: Sequence[str]) -> int:
    parser_of_man(name).parse_args(argv)
    text = page()
    if sys.stdout.isatty() and shutil.which("man"):
        return subprocess.run(["man", "-l", "-"], input=text, text=True, check=False).returncode
    sys.stdout.write(text)
    return ExitCode.PASS


def parser_of_man(name: str) -> Parser:
    return Parser(
        name,
        "Show the manual page of wirespeed and all its commands. If the output is not a terminal, print it\n"
        "in the format of man:\n\n"
        "    wirespeed man > ~/.local/share/man/man1/wirespeed.1",
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
        lines += _command(name, row.does, functions(name).parser(name))
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
    elsewhere = getattr(of, "elsewhere", ())
    for group in (group for group in of._action_groups if group.title not in elsewhere):
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        actions = [action for action in actions if action.dest != "help"]
        if actions and group.title not in ("options", "positional arguments"):
            yield from (".PP", f".I {_escaped(group.title or '')}")
        for action in actions:
            term = _ESCAPE.sub("", formatter._format_action_invocation(action))
            yield from _item(term, formatter._expand_help(action) if action.help else "")
    if of.epilog and of.epilog != EXIT_CODES:
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


def main_of_config(name: str, argv: Sequence[str]) -> int:
    parser_of_config(name).parse_args(argv)
    files = configuration.files()
    settings = configuration.settings(existing=files)
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
        "[expect] has what each host should have, as check --expect; the strictest of all counts:\n\n"
        '    [expect]\n    gpus = 8\n    memory = "1TiB"\n\n'
        "Files that other users can write are not read. A project's file cannot set files to read or write,\n"
        "devices, or what is accepted: overrides, baselines, tolerances, unverified data.",
    )
