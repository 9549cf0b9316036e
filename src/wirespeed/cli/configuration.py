"""Defaults of options from files and from the environment. The command line comes before ``WIRESPEED_…``
variables, these before the nearest ``wirespeed.toml`` in this folder or above it, and that before the user's
in ``~/.config``. Files are read only if nobody else can have written them; a project's file sets only how to
measure and to show results, because it may be part of a copy of somebody else's project.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError
from ..files import distrust, own_folder, read_own
from ..terminal import meant
from .commands import COMMANDS
from .consumers import OPTION
from .program_variables import COMPAT

NAME = "wirespeed.toml"
#: Table of the options of all commands.
DEFAULTS = "defaults"
_PREFIX = "WIRESPEED_"
#: Maximum size of a file, in bytes: every command reads it, and some texts take the parser quadratic time.
_LARGEST = 2**16
#: Variables that are not options: what processes of one job tell each other, what replaces an option of
#: the programs of others, and what tests require.
_NO_OPTIONS = frozenset(
    {
        "WIRESPEED_STARTED_BY",
        "WIRESPEED_CHANNELS",
        "WIRESPEED_JOB_SECRET",
        COMPAT,
        "WIRESPEED_REQUIRE_CHROMIUM",
        "WIRESPEED_REQUIRE_PROMTOOL",
    }
)
#: What Kubernetes sets in every container for a Service whose name begins with ``wirespeed``.
_OF_SERVICES = re.compile(
    r"WIRESPEED(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
#: Options that can only be given on the command line: one replaces files, the other must be known before
#: files and variables are read.
_ONLY_GIVEN = ("force", OPTION.removeprefix("--"))


class Settable(NamedTuple):
    """How an option can be set.

    Attributes:
        takes_value: Whether it needs a value; a flag needs none.
        by_project: Whether a project's file may set it: it neither reads nor writes a file, leaves out
            devices or checks, nor changes what is accepted.
    """

    takes_value: bool
    by_project: bool


@cache
def known_options() -> frozenset[str]:
    """The options of all commands. All commands are loaded, so ask only where one is in doubt."""
    from .commands import functions, programs

    parsers = [functions(name).parser(name) for name in (*COMMANDS, *programs())]
    return frozenset(name for parser in parsers for name in getattr(parser, "settable", dict)())


@dataclass(frozen=True)
class ConfigurationFile:
    """A configuration file that exists.

    Attributes:
        path: The file.
        is_project: Whether it is that of a project, not of the user.
        content: Its content; empty if it is refused.
        refused: Why it is not read; empty if it is.
    """

    path: Path
    is_project: bool
    content: bytes = b""
    refused: str = ""


@dataclass(frozen=True)
class ConfiguredOption:
    """A default of an option.

    Attributes:
        command: The command, or ``defaults``.
        option: Name of the option without dashes.
        values: The values, as on the command line; empty for a flag.
        origin: File or variable that it comes from.
        is_off: Whether a flag is not set.
        is_project: Whether it comes from a project's file.
    """

    command: str
    option: str
    values: tuple[str, ...]
    origin: str
    is_off: bool = False
    is_project: bool = False

    @property
    def arguments(self) -> list[str]:
        """The option on a command line."""
        if self.is_off:
            return []
        return [f"--{self.option}={value}" for value in self.values] or [f"--{self.option}"]


def files() -> list[ConfigurationFile]:
    """The configuration files that exist, in increasing precedence.

    Raises:
        UsageError: If one is too large, or cannot be read.
    """
    home = own_folder("XDG_CONFIG_HOME", ".config")
    of_user = [ConfigurationFile(home / NAME, False)] if home else []
    candidates = (*of_user, *_of_project())
    return [_read(file) for file in candidates if os.path.lexists(file.path)]


def _of_project() -> list[ConfigurationFile]:
    """The nearest file in this folder or one above it; refused if others can write to a folder there."""
    refused = ""
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        return []
    for level in (here, *here.parents):
        try:
            status = level.stat()
        except OSError:
            return []
        why = distrust(status)
        if not why and status.st_uid != os.geteuid():
            why = "it belongs to root"
        if why and not refused:
            refused = f"of the folder {level}, {why}"
        if os.path.lexists(level / NAME):
            return [ConfigurationFile(level / NAME, True, refused=refused)]
    return []


def _read(file: ConfigurationFile) -> ConfigurationFile:
    """A file with its content, or why it is not read."""
    if file.refused:
        return file
    try:
        return replace(file, content=read_own(file.path, _LARGEST))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EINVAL):  # of another user, or not a file
            return replace(file, refused=str(error.strerror))
        raise UsageError(f"{file.path}: {error.strerror}") from error


def settings(existing: Sequence[ConfigurationFile], own: Collection[str] = ()) -> list[ConfiguredOption]:
    """All settings, in increasing precedence.

    Args:
        existing: What ``files`` returned.
        own: Options of the command that asks: the other commands are not loaded to look for these.

    Raises:
        UsageError: If a file cannot be read, or contains something else than options.
    """
    options = [option for file in existing if not file.refused for option in _of_file(file, own)]
    for variable, text in sorted(os.environ.items()):
        text = text or ("none" if variable == f"{_PREFIX}HISTORY" else "")  # empty means none
        if text and (option := _option_of(variable, own)):
            value = {"true": True, "false": False}.get(text.lower(), text)
            options.append(_setting(DEFAULTS, option, value, variable, own))
    return options


def _option_of(variable: str, own: Collection[str] = ()) -> str:
    """The option that a variable is for; empty if it is for none.

    Raises:
        UsageError: If its name begins like ours, and is not known.
    """
    if not variable.startswith(_PREFIX) or variable in _NO_OPTIONS or _OF_SERVICES.fullmatch(variable):
        return ""
    option = variable.removeprefix(_PREFIX).lower().replace("_", "-")
    if option not in own and option not in _ONLY_GIVEN and option not in known_options():
        known = [*_NO_OPTIONS, *(f"{_PREFIX}{name.upper().replace('-', '_')}" for name in known_options())]
        raise UsageError(
            f"unknown variable {variable}{meant(variable, known)}; "
            f"{_PREFIX}... variables are defaults of options (wirespeed self config)"
        )
    return option


def check_variables() -> None:
    """Refuse unknown variables for programs that read only some of them.

    Raises:
        UsageError: If the name of a variable begins like ours, and is not known.
    """
    for variable, text in sorted(os.environ.items()):
        if text:
            _option_of(variable)


def chosen(
    command: str, options: Mapping[str, Settable], own: Sequence[ConfiguredOption]
) -> list[ConfiguredOption]:
    """The settings that apply to a command.

    Args:
        command: Name of the command.
        options: Its options, by name without dashes.
        own: The settings.

    Raises:
        UsageError: If a setting for this command is not one of its options, a flag has a value or an option
            none, or a project's file sets an option that only the user may set.
    """
    applying: dict[str, ConfiguredOption] = {}
    for setting in own:
        if setting.command == command and setting.option not in options:
            close = meant(setting.option, options)
            raise UsageError(f"{setting.origin}: {command} has no option {setting.option!r}{close}")
        if setting.command in (command, DEFAULTS) and setting.option in options:
            takes_value, by_project = options[setting.option]
            if bool(setting.values) is not takes_value:
                wanted = "needs a value" if takes_value else "is true or false"
                raise UsageError(f"{setting.origin}: {setting.option} {wanted}")
            if setting.is_project and not by_project:
                raise UsageError(
                    f"{setting.origin}: a project's file cannot set {setting.option!r}; use the command "
                    f"line, or ~/.config/{NAME}"
                )
            known = applying.get(setting.option)
            if known is None or setting.command == command or known.command == DEFAULTS:
                applying[setting.option] = setting
    return [*applying.values()]


#: Options that change neither what is measured nor how it is judged.
_OF_SCREENS = frozenset({
    "all-cells", "all-values", "all-samples", "color", "format", "json", "no-save",
    "output", "quiet", "timeout", "verbose",
})  # fmt: skip


def in_force(applying: Sequence[ConfiguredOption], words: Sequence[str]) -> tuple[str, ...]:
    """The settings that change what a command measures or judges, each with its origin, in words.

    Args:
        applying: What ``chosen`` returned.
        words: The command line, whose options replace settings.
    """
    given = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    return tuple(
        f"{setting.option}{' = ' if setting.values else ''}{', '.join(setting.values)} ({setting.origin})"
        for setting in applying
        if setting.option not in given | _OF_SCREENS and not setting.is_off
    )


def _of_file(file: ConfigurationFile, own: Collection[str]) -> Iterator[ConfiguredOption]:
    """Yield the settings of a file.

    Raises:
        UsageError: If it contains something else than options.
    """
    import tomllib

    try:
        content = tomllib.loads(file.content.decode())
    except RecursionError as error:
        raise UsageError(f"{file.path}: it is nested too deeply") from error
    except ValueError as error:  # also of characters, and of very long numbers
        raise UsageError(f"{file.path}: {error}") from error
    for command, table in content.items():
        if isinstance(table, dict) and command not in _tables():
            raise UsageError(
                f"{file.path}: unknown table [{command}]{meant(command, _tables())}; tables are "
                f"[{DEFAULTS}] and the commands that have options of wirespeed"
            )
        if not isinstance(table, dict):
            raise UsageError(
                f"{file.path}: {command!r} is not in a table; write it below [{DEFAULTS}] or a command"
            )
        for option, value in table.items():
            yield replace(_setting(command, option, value, str(file.path), own), is_project=file.is_project)


def _tables() -> set[str]:
    """The names of tables in a file."""
    return {DEFAULTS, *(name for name, row in COMMANDS.items() if row.configured)}


def _setting(command: str, option: str, value: object, origin: str, own: Collection[str]) -> ConfiguredOption:
    """A setting.

    Raises:
        UsageError: If the value is neither a text, a number, true, false nor a list of texts and numbers, or
            the option protects files.
    """
    if option in _ONLY_GIVEN:
        raise UsageError(f"{origin}: {option} can only be given on the command line")
    if option not in own and option not in known_options():
        has = "no command has an" if command == DEFAULTS else f"{command} has no"
        raise UsageError(f"{origin}: {has} option {option!r}{meant(option, known_options())}")
    if isinstance(value, bool):
        return ConfiguredOption(command, option, (), origin, not value)
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, (str, int, float)) and item is not True for item in items):
        raise UsageError(f"{origin}: {command}.{option} must be a text, a number, true, false or a list")
    try:
        return ConfiguredOption(command, option, tuple(map(str, items)), origin)
    except ValueError as error:  # a number with thousands of digits, written with few
        raise UsageError(f"{origin}: {command}.{option}: {error}") from error
