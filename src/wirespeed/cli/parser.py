"""The parser of a command: errors in one line, completion, defaults from the configuration. It suggests
what users mean who write the options of other programs, or the right word at a wrong place.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from ..errors import UsageError
from ..terminal import colored, columns, error_line, first_clause, meant
from . import configuration
from .commands import COMMANDS
from .consumers import OPTION, InvalidUsage
from .option_groups import TakesOptions

#: Options that only programs of nccl-tests have; ``-b`` is also one of nvbandwidth.
_OF_NCCL_TESTS = frozenset({"-e", "-g", "--minbytes", "--maxbytes", "--ngpus", "--nthreads", "--stepfactor"})
#: Options of nvbandwidth that `run` does not have -> the same here (``{}`` is their value).
_OF_NVBANDWIDTH = {
    "-b": "--size {}MiB", "--bufferSize": "--size {}MiB", "-i": "--samples {}",
    "--testSamples": "--samples {}",
    "-j": "--format nvbandwidth-json", "--json": "--format nvbandwidth-json", "-m": "",
    "--useMean": "", "-s": "--no-verify", "--skipVerification": "--no-verify", "-d": "--no-affinity",
    "--disableAffinity": "--no-affinity", "--loopCount": "--copies {}", "--testcasePrefixes": "--prefix {}",
}  # fmt: skip
#: A short option with a number behind it.
_ATTACHED = re.compile(r"(-[a-z])([0-9]+)", re.ASCII)
#: How similar a misspelt option is to the one that is meant, with its dashes.
_ALIKE = 0.75
#: A GPU as other programs and people write it.
_GPU = re.compile(r"(?:gpu|cuda:?)([0-9]+)", re.IGNORECASE)


def of_other_program(command: str, arguments: Sequence[str]) -> str:
    """The command line that is meant if options are those of nvbandwidth or nccl-tests; empty if none is."""
    line = shlex.join(arguments)
    arguments = [part for word in arguments for part in _apart(word)]
    names = [argument.partition("=")[0] for argument in arguments]
    sizes = [value for name, value in zip(names, [*arguments, ""][1:], strict=True) if name == "-b"]
    if not _OF_NCCL_TESTS.isdisjoint(names) or any(not size.isdecimal() for size in sizes):
        return f"options of nccl-tests need the name of its program: wirespeed all_reduce_perf {line}"
    foreign = [name for name in dict.fromkeys(names) if name in _OF_NVBANDWIDTH and name != "--json"]
    if not {"-l", "--list"}.isdisjoint(names):
        return "to list the testcases: wirespeed list, or as nvbandwidth does: wirespeed nvbandwidth -l"
    if not foreign:
        return ""
    other = f"; or of nccl-tests: wirespeed all_reduce_perf {line}" if foreign == ["-b"] else ""
    return (
        f"{', '.join(foreign)}: options of nvbandwidth need its name: wirespeed nvbandwidth {line}; "
        f"or in options of wirespeed: wirespeed {command} {_translated(arguments)}{other}"
    )


#: Options of other programs -> ours.
_OTHER_WORDS = {
    "--gpu": "--devices", "--gpus": "--devices", "--device": "--devices", "--iterations": "--samples",
    "--iters": "--samples", "--out": "--output", "--input": "FILE", "--file": "FILE",
}  # fmt: skip


def _apart(word: str) -> list[str]:
    """An option with its number apart from it: ``-b 64`` for ``-b64``."""
    found = _ATTACHED.fullmatch(word)
    return [found[1], found[2]] if found and found[1] in _OF_NVBANDWIDTH else [word]


def _translated(arguments: Sequence[str]) -> str:
    """A command line of nvbandwidth in options of `run`."""
    words, left = [], list(arguments)
    while left:
        name, sign, value = left.pop(0).partition("=")
        ours = _OF_NVBANDWIDTH.get(name)
        if ours is None:
            words.append(shlex.quote(f"{name}{sign}{value}"))
        elif "{}" not in ours:
            words.append(ours)
        else:
            value = value if sign or not left else left.pop(0)
            words.append(ours.format(shlex.quote(value)))
    return " ".join(filter(None, words))


def meant_by(words: Sequence[str], known: Collection[str] = ()) -> str:
    """`` (did you mean -t NAME?)``: the options that are meant by words that are none; empty if unknown.

    Of misspelt options, which begin with a dash, it is the nearest of the known ones.
    """
    spelled = [word.partition("=")[0] for word in words if word.startswith("-")]
    near = [_OTHER_WORDS.get(word) or next(iter(get_close_matches(word, known, 1, _ALIKE)), "")
            for word in spelled]  # fmt: skip
    options = [option for option in near if option in known]
    options += [option for word in words if not spelled and (option := _option(word))]
    return f" (did you mean {' '.join(dict.fromkeys(options))}?)" if options else ""


def _option(word: str) -> str:
    """What is meant by a word at a wrong place; empty if unknown."""
    from ..backends.simulated.machines import MACHINES
    from ..testcases.table import TABLE

    names = [case.name for case in TABLE]
    if word in names or word in {str(case.index) for case in TABLE if case.index is not None}:
        return f"-t {word}"
    if gpu := _GPU.fullmatch(word):
        return f"--devices {gpu[1]}"
    if word.startswith("simulated:") or word.partition("+")[0] in MACHINES:
        return f"--machine simulated:{word.removeprefix('simulated:')}"
    if Path(word).exists():
        return f"-f {word}" if word.endswith(".toml") else f"wirespeed check {word}"
    if word in COMMANDS:
        return f"wirespeed {word}"
    if near := get_close_matches(word, names, 1, 0.8):
        return f"-t {near[0]}"
    return f"-p {word}" if any(name.startswith(word) for name in names) else ""


#: What follows the options of a command.
_CODES = "exit codes: wirespeed --help"


class Parser(TakesOptions, argparse.ArgumentParser):
    """The parser of a command, whose errors are one line, with exit code 2.

    It completes words for shells, and reads defaults of its options from the configuration.

    Attributes:
        name: Name of the command; empty for ``wirespeed`` itself.
        does: Description of the command.
        epilog: Text after the options; where exit codes are described if it is None.
        examples: Command lines without ``wirespeed``, each with what it is for; ``-h`` shows them.
        often: The options that ``-h`` shows, separated by spaces.
        configured: Whether configuration files have its options; False for those of another program.
        elsewhere: Titles of groups of options that the help of another command describes.
        settings: Settings of ``argparse.ArgumentParser``.
    """

    def __init__(
        self, name: str, does: str = "", epilog: str | None = None, *, configured: bool = True,
        elsewhere: Collection[str] = (), examples: Mapping[str, str] = MappingProxyType({}), often: str = "",
        add_help: bool = True, **settings: Any,
    ) -> None:  # fmt: skip
        settings.setdefault("formatter_class", _formatter())
        epilog = _CODES if epilog is None and name and configured else epilog
        program = f"wirespeed {name}".strip()
        super().__init__(program, description=does, epilog=epilog, add_help=False, **settings)
        if add_help:
            self.add(
                "-h --help", "-h: examples and common options; --help: all options", action=_Help, nargs=0
            )
        self.examples, self._often = examples, often.split()
        #: Name of the command in configuration files; empty if they have none of its options.
        self.command = name if configured else ""
        self.elsewhere = elsewhere
        self._completing = False
        #: Options that precede the command line and were not parsed yet, and those that were given on it.
        self._preset = 0
        self._given: dict[str, str] = {}

    def settable(self) -> dict[str, configuration.Settable]:
        """The options that a configuration may set, by long name without dashes."""
        unset = ("--help", OPTION)
        return {
            name[2:]: configuration.Settable(action.nargs != 0, getattr(action, "by_project", False))
            for name, action in self._option_string_actions.items()
            if self.command and name.startswith("--") and name not in unset
        }

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse after the arguments of the configuration."""
        if "_ARGCOMPLETE" in os.environ:
            if not self._completing:  # the library parses what is before the word
                self._completing = True
                complete(self)
            return super().parse_known_args(args, namespace)
        words = list(sys.argv[1:] if args is None else args)
        if self.command:
            own = self.settable()
            files = configuration.files()
            for path, why in [(file.path, file.refused) for file in files if file.refused]:
                print(error_line(f"wirespeed: note: not read: {path}: {why}"), file=sys.stderr)
            applying = configuration.chosen(
                self.command, own, configuration.settings(existing=files, own=own)
            )
            preset = [argument for setting in applying for argument in setting.arguments]
            namespace = argparse.Namespace() if namespace is None else namespace
            #: Settings that changed what is measured or judged, in words.
            namespace.in_force = configuration.in_force(applying, words)
            self._preset, self._given, words = len(preset), {}, preset + words
            #: The options of the command line itself: destination -> spellings.
            namespace.given = self._given
        else:
            configuration.check_variables()
        return super().parse_known_args(words, namespace)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all arguments; suggest what is meant by those that are no options of the command."""
        options, others = self.parse_known_args(args, namespace)
        if others:
            hint = meant_by(others, self._shown_words()) if self.command else ""
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return options

    def _shown_words(self) -> list[str]:
        """The names of the options that are not hidden, and the words for arguments."""
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return [word for action in shown for word in action.option_strings or (_placeholder(action),)]

    def refuse_unused(
        self,
        options: argparse.Namespace,
        why: str,
        *names: str,
        groups: Collection[str] = (),
        but: Collection[str] = (),
    ) -> None:
        """Refuse options that were given on the command line and do nothing.

        Args:
            options: The parsed options.
            why: When they do nothing, to be read after "has no effect".
            names: Destinations of options that do nothing.
            groups: Titles of groups of options that do nothing.
            but: Destinations of options in these groups that do something.

        Raises:
            UsageError: If one of them was given.
        """
        of_groups = [group._group_actions for group in self._action_groups if group.title in groups]
        unused = {action.dest for actions in of_groups for action in actions} - {*but} | {*names}
        given = [spelled for dest, spelled in options.given.items() if dest in unused]
        if given:
            verb = "has" if len(given) == 1 else "have"
            raise UsageError(f"{', '.join(given)} {verb} no effect {why}")

    def shown_examples(self) -> str:
        """The examples as lines of a text."""
        width = max((len(line) for line in self.examples), default=0)
        lines = [f"  {f'wirespeed {line}':<{width + 10}}  {what}" for line, what in self.examples.items()]
        return "\n".join(["examples:", *lines]) if lines else ""

    def format_usage(self) -> str:
        """The usage: the arguments; the options in one word."""
        formatter = self._get_formatter()
        formatter.add_usage(*self._usage(), self._mutually_exclusive_groups)
        return formatter.format_help()

    def _usage(self) -> tuple[str | None, list[argparse.Action]]:
        """The usage, and the actions from which argparse makes it if there is none."""
        if self.usage or not (self.command or self.examples):
            return self.usage, self._actions
        words = [_positional(action) for action in self._get_positional_actions()]
        return " ".join(["%(prog)s [OPTION ...]", *words]), []

    def format_help(self) -> str:
        """The whole help."""
        formatter = self._get_formatter()
        formatter.add_usage(*self._usage(), self._mutually_exclusive_groups)
        for text in (self.description, self.shown_examples()):
            formatter.add_text(text)
        for group in (group for group in self._action_groups if group.title not in self.elsewhere):
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_brief(self) -> str:
        """The help that ``-h`` prints: what it does, examples, and a line for each common option."""
        often = [self._option_string_actions[option] for option in self._often]
        actions = [*self._get_positional_actions(), *often]
        spelled = [
            f"{(action.option_strings or [''])[0]} {_placeholder(action)}".strip() for action in actions
        ]
        formatter, width = self._get_formatter(), max(map(len, spelled), default=0) + 4
        parts = [self.format_usage().strip(), _filled(self.description or ""), self.shown_examples()]
        room = max(columns() - width, 20)
        clauses = (first_clause(formatter._expand_help(action)) for action in actions)
        lines = [
            f"  {words:<{width - 2}}{textwrap.shorten(clause, room, placeholder=' ...')}"
            for words, clause in zip(spelled, clauses, strict=True)
        ]
        parts += ["\n".join(["common options:", *lines])] if lines else []
        parts.append(f"{'all options' if self.command else 'exit codes'}: {self.prog} --help")
        return "\n\n".join(parts) + "\n"

    def error(self, message: str) -> NoReturn:
        """Print the error and a hint to ``--help``, and exit."""
        text = error_line(f"{message} (see `{self.prog} --help`)")
        print(f"{self.prog}: error: {text}", file=sys.stderr)
        raise InvalidUsage(text)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest what is meant by a value that is none of the choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = meant(str(value), choices)
        for option, other in (("--for", "--format"), ("--format", "--for")):
            known = self._option_string_actions.get(other)
            if option in action.option_strings and known and value in (known.choices or ()):
                hint = f" (did you mean {other} {value}?)"
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r}{hint}; choose from {', '.join(choices)}"
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse ``--option=--``, of which argparse makes an empty list, whatever the type."""
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected a value, not --")
        if action.option_strings:
            if self._preset:  # the options of the configuration come first, one word each
                self._preset -= 1
            else:
                self._given[action.dest] = "/".join(action.option_strings)
        return super()._get_values(action, arg_strings)


def _placeholder(action: argparse.Action) -> str:
    """The word for a value: ``FILE``; its choices if there is none; empty for a flag."""
    return str(action.metavar or "|".join(map(str, action.choices or ())))


def _positional(action: argparse.Action) -> str:
    """An argument in a usage: ``FILE``, ``[FILE]``, ``[FILE ...]`` or ``FILE ...``."""
    name = _placeholder(action)
    return {"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(str(action.nargs), name)


def _filled(text: str) -> str:
    """A text whose lines fit the terminal; indented lines and empty ones stay."""
    parts = list[str]()
    for is_kept, lines in groupby(text.splitlines(), lambda line: not line or line[0].isspace()):
        kept = list(lines)
        parts += kept if is_kept else textwrap.wrap(" ".join(kept), columns() - 1, break_on_hyphens=False)
    return "\n".join(parts)


class _Help(argparse.Action):
    """``-h`` and ``--help``: the short help, if there are examples, and the whole one."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> NoReturn:
        brief = parser.format_brief() if isinstance(parser, Parser) and parser.examples else ""
        parser._print_message(brief if brief and option_string == "-h" else parser.format_help(), sys.stdout)
        parser.exit()


def _formatter() -> type[argparse.HelpFormatter]:
    """The formatter of ``--help``: coloured on a terminal, else plain, which starts faster."""
    if not colored():
        return argparse.RawDescriptionHelpFormatter
    from rich_argparse import RawDescriptionRichHelpFormatter

    return RawDescriptionRichHelpFormatter


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of a parser for the shell, and exit."""
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options="long", validator=str.startswith)


def words_to_complete() -> tuple[list[str], str]:
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


def complete_command(commands: Sequence[str]) -> None:
    """Print the completions of the name of a command, and exit."""
    arguments = Parser("")
    arguments.add_argument("command", choices=commands)
    sys.stdout.flush()
    complete(arguments)
