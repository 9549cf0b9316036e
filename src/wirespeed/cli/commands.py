"""All commands: those of the core and of features, and the programs of others that wirespeed replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..features import FEATURES, Command, features

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ..features import Feature

#: Commands of the core.
_OF_CORE = {
    "check": Command(
        "check", "judge this machine or a saved run (--explain: causes and remedies)",
        measures=True, mistaken=True,
    ),
    "run": Command("run", "measure, print the results and save them", measures=True, mistaken=True),
    "compare": Command("compare", "show the significant changes between saved runs"),
    "report": Command("report", "show saved runs: text, page (-o run.html), issue (--for github)"),
    "list": Command("list", "list all testcases, and show which of them can run here"),
    "machine": Command("machine", "show the CPUs, GPUs and links of this machine"),
    "baseline": Command("baseline", "create a baseline for check from runs of good machines"),
    "help": Command("help", "show the documentation: help operate (for schedulers), help slow"),
    "self": Command("self", "show defaults, complete words, create executables", configured=False),
    "config": Command("self:config", "show the defaults of options", former="self config"),
    "completion": Command("self:completion", "print what bash, zsh or fish need", former="self completion"),
    "install-names": Command(
        "self:install_names", "create executables named as nvbandwidth and nccl-tests",
        former="self install-names",
    ),
    "doctor": Command("check:doctor", "", measures=True, mistaken=True, former="check --explain"),
    "show": Command("report", "", former="report"),
}  # fmt: skip


def _commands(features: Iterable[Feature]) -> dict[str, Command]:
    """The commands of features; their modules have full names."""
    return {
        name: row._replace(functions=feature.path(row.functions))
        for feature in features
        for name, row in feature.commands.items()
    }


#: All commands of this package.
COMMANDS = _OF_CORE | _commands(FEATURES)
#: The commands that are shown: former spellings work too.
SHOWN = {name: row for name, row in COMMANDS.items() if not row.former}
#: The commands that ``--help`` describes, and those of ``wirespeed self``.
FIRST = (
    "check", "run", "p2p", "blocks", "compare", "history", "report", "qualify", "transfer", "import", "list",
    "machine",
)  # fmt: skip
ABOUT = ("config", "completion", "install-names")
#: Commands that are programs of others, besides those of nccl-tests.
_OF_OTHERS = tuple(name for name, row in COMMANDS.items() if row.of_others)
#: Suffix of programs that were built for mpirun.
_OF_MPIRUN = "_mpi"
#: The feature whose programs are commands, and these.
_PROGRAMS = tuple((feature, feature.programs) for feature in FEATURES if feature.programs)


def programs() -> list[str]:
    """The names of programs of others that are commands, besides those of ``COMMANDS``: nccl-tests'."""
    return [name for feature, programs in _PROGRAMS for name in feature.named(programs.names)()]


def _module_of_program(name: str) -> str | None:
    """The module of the functions of such a program."""
    for feature, programs in _PROGRAMS:
        if name.endswith(programs.suffix) and name in feature.named(programs.names)():
            return feature.path(programs.module)
    return None


class CommandFunctions(NamedTuple):
    """The functions of a command.

    Attributes:
        main: Runs the command with arguments and returns its exit code.
        parser: Its parser.
    """

    main: Callable[[str, Sequence[str]], int]
    parser: Callable[[str], ArgumentParser]


def functions(command: str) -> CommandFunctions:
    """The functions of a command."""
    name, _, suffix = (module_of(command) or "").partition(":")
    module = import_module(name if "." in name else f".{name}", __package__)
    end = f"_of_{suffix}" if suffix else ""
    return CommandFunctions(getattr(module, f"main{end}"), getattr(module, f"parser{end}"))


def module_of(command: str) -> str | None:
    """The module of a command, as in ``COMMANDS``; None if there is no such command."""
    if command in COMMANDS:
        return COMMANDS[command].functions
    if module := _module_of_program(command):
        return module
    row = _commands(features()).get(command)  # slower: of other packages
    return row.functions if row else None


def called_as(name: str) -> str | None:
    """The command for which an executable with this name stands; None for ``wirespeed`` itself.

    The programs that were built for mpirun are the others here, which join the job of any launcher.
    """
    command = name.removesuffix(_OF_MPIRUN)
    if _module_of_program(command):
        return command
    return name if name in _OF_OTHERS else None


def overview() -> str:
    """All commands, for ``--help``: a line for each of the first, and the names of the others."""
    added = _commands(features()[len(FEATURES) :])  # of other packages
    more = [name for name, row in SHOWN.items() if name not in FIRST and not row.of_others]
    more.sort(key="self".__eq__)  # last
    others = ", ".join(name for name in _OF_OTHERS if SHOWN[name].does)
    lines = [f"  {name:<10} {(SHOWN | added)[name].does}" for name in (*FIRST, *added)]
    lines.append(f"more: {', '.join(more)} ({', '.join(ABOUT)})")
    lines.append(f"other programs: {others}, {programs()[0]}, ... of nccl-tests")
    return "\n".join(["commands (-h: examples, --help: all options):", *lines])


def executables() -> dict[str, str]:
    """The names of the programs of others, each with its command."""
    return {name: name for name in [*_OF_OTHERS, *programs()]} | {
        f"{name}{_OF_MPIRUN}": f"{name}{_OF_MPIRUN}" for name in programs()
    }
