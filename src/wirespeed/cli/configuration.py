"""Defaults of options from files and from the environment.

In order of precedence: the command line, ``WIRESPEED_…`` variables, the nearest ``wirespeed.toml`` in this
folder or one above it, and the user's ``wirespeed.toml`` in ``~/.config``. Files have a table for each
command, and ``[defaults]`` for all commands that have an option::

    [defaults]
    timeout = "2min"

    [check]
    wait-idle = "1min"

    [expect]
    gpus = 8
    memory = "1TiB"

Files are read only if nobody else can have written them. A project's file is searched in this
user's folders, and sets only how to measure and how to show the results: it may be part of a copy of a
project of somebody else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from ..caching import own_folder
from ..errors import UsageError
from ..files import distrust, read_own

NAME = "wirespeed.toml"
#: Table of the options of all commands.
DEFAULTS = "defaults"
#: Table of what each host should have: as ``--expect``, of all files, because it makes a check only stricter.
EXPECT = "expect"
_PREFIX = "WIRESPEED_"
#: Maximum size of a file, in bytes: every command reads it, and some texts take the parser quadratic time.
_LARGEST = 2**16
#: Variables that are not options: what processes of one job tell each other.
_INTERNAL = {"WIRESPEED_STARTED_BY", "WIRESPEED_CHANNELS", "WIRESPEED_JOB_SECRET"}
#: Options that a project's file may set: none reads or writes a file, leaves out devices or checks, or
#: changes what is accepted.
# fmt: off
OF_PROJECTS = frozenset({
    "all-cells", "all-engines", "blocks", "buffer", "bulk", "copies", "copy", "format", "huge-pages", "json",
    "json-lines", "local-copy", "means", "memory", "no-affinity", "over", "pageable", "parallel-pairs",
    "precision", "prefix", "processes", "repeats", "rounds", "sample-peers", "samples", "seed", "share",
    "short", "size", "sizes", "sweep", "testcase", "threads", "tier", "time", "time-budget", "timeout",
    "verbose", "virtual-memory", "wait-idle", "within",
})
# fmt: on


@dataclass(frozen=True)
class ConfigurationFile:
    """A configuration file that exists.

    Parameters
    ----------
    path : Path
        The file.
    is_project : bool
        Whether it is that of a project, not of the user.
    content : bytes
        Its content; empty if it is refused.
    refused : str
        Why it is not read; empty if it is.
    """

    path: Path
    is_project: bool
    content: bytes = b""
    refused: str = ""


@dataclass(frozen=True)
class ConfiguredOption:
    """A default of an option.

    Parameters
    ----------
    command : str
        The command, or ``defaults``.
    option : str
        Name of the option without dashes.
    values : tuple[str, ...]
        The values, as on the command line; empty for a flag.
    origin : str
        File or variable that it comes from.
    is_off : bool
        Whether a flag is not set.
    is_project : bool
        Whether it comes from a project's file.
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


def files(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> list[ConfigurationFile]:
    """The configuration files that exist, in increasing precedence.

    Raises
    ------
    UsageError
        If one is too large, or cannot be read.
    """
    home = own_folder("XDG_CONFIG_HOME", ".config", environment)
    of_user = [ConfigurationFile(home / NAME, False)] if home else []
    candidates = (*of_user, *_of_project(folder))
    return [_read(file) for file in candidates if os.path.lexists(file.path)]


def _of_project(folder: Path | None) -> list[ConfigurationFile]:
    """The nearest file in this folder or one above it, as far as these are only this user's."""
    try:
        here = folder or Path.cwd()
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
        if why:
            refused = ConfigurationFile(here / NAME, True, refused=f"of the folder, {why}")
            return [refused] if level == here else []
        if os.path.lexists(level / NAME):
            return [ConfigurationFile(level / NAME, True)]
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


def settings(
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    existing: Sequence[ConfigurationFile] | None = None,
) -> list[ConfiguredOption]:
    """All settings, in increasing precedence.

    Parameters
    ----------
    environment : Mapping[str, str]
        The variables.
    folder : Path or None
        The current folder; None for that of this process.
    existing : Sequence[ConfigurationFile] or None
        What ``files`` returned; None to look for the files.

    Raises
    ------
    UsageError
        If a file cannot be read, or contains something else than options.
    """
    read = files(environment, folder) if existing is None else existing
    options = [option for file in read if not file.refused for option in _of_file(file)]
    for variable, text in sorted(environment.items()):
        if variable.startswith(_PREFIX) and variable not in _INTERNAL:
            option = variable.removeprefix(_PREFIX).lower().replace("_", "-")
            value = {"true": True, "false": False}.get(text.lower(), text)
            if text:
                options.append(_setting(DEFAULTS, option, value, variable))
    return options


def arguments(command: str, options: Mapping[str, bool], own: Sequence[ConfiguredOption]) -> list[str]:
    """The arguments that precede a command line.

    Parameters
    ----------
    command : str
        Name of the command.
    options : Mapping[str, bool]
        Its options, without dashes -> whether they take a value.
    own : Sequence[ConfiguredOption]
        The settings.

    Raises
    ------
    UsageError
        If a setting for this command is not one of its options, a flag has a value or an option none, or a
        project's file sets an option that only the user may set.
    """
    chosen: dict[str, ConfiguredOption] = {}
    for setting in own:
        if setting.command == command and setting.option not in options:
            close = "".join(
                f" (did you mean {match!r}?)" for match in get_close_matches(setting.option, options, 1)
            )
            raise UsageError(f"{setting.origin}: {command} has no option {setting.option!r}{close}")
        if setting.command in (command, DEFAULTS) and setting.option in options:
            if bool(setting.values) is not options[setting.option]:
                wanted = "needs a value" if options[setting.option] else "is true or false"
                raise UsageError(f"{setting.origin}: {setting.option} {wanted}")
            if setting.is_project and setting.option not in OF_PROJECTS:
                raise UsageError(
                    f"{setting.origin}: a project's file cannot set {setting.option!r}; use the command "
                    f"line, or ~/.config/{NAME}"
                )
            known = chosen.get(setting.option)
            if known is None or setting.command == command or known.command == DEFAULTS:
                chosen[setting.option] = setting
    expected = [f"--{EXPECT}={rate.option}={rate.values[0]}" for rate in own if rate.command == EXPECT]
    others = [argument for setting in chosen.values() for argument in setting.arguments]
    return (expected if EXPECT in options else []) + others


#: Options that change neither what is measured nor how it is judged.
_OF_SCREENS = frozenset({
    "all-cells", "all-samples", "color", "format", "json", "json-lines", "no-save", "open", "output", "quiet",
    "timeout", "verbose",
})  # fmt: skip


def in_force(
    command: str, options: Mapping[str, bool], own: Sequence[ConfiguredOption], words: Sequence[str]
) -> tuple[str, ...]:
    """The settings that change what a command measures or judges, each with its origin, for people.

    Parameters
    ----------
    command, options, own
        As in ``arguments``.
    words : Sequence[str]
        The command line, whose options replace settings.
    """
    given = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    chosen = {
        setting.option: setting
        for level in ((DEFAULTS,), (command, EXPECT))
        for setting in own
        if setting.command in level
        and (setting.command == EXPECT or setting.option in options)
        and setting.option not in given | _OF_SCREENS
        and not setting.is_off
    }
    return tuple(
        f"{setting.option}{' = ' if setting.values else ''}{', '.join(setting.values)} ({setting.origin})"
        for setting in chosen.values()
    )


def _of_file(file: ConfigurationFile) -> Iterator[ConfiguredOption]:
    """Yield the settings of a file.

    Raises
    ------
    UsageError
        If it contains something else than options.
    """
    import tomllib

    try:
        content = tomllib.loads(file.content.decode())
    except RecursionError as error:
        raise UsageError(f"{file.path}: it is nested too deeply") from error
    except ValueError as error:  # also of characters, and of very long numbers
        raise UsageError(f"{file.path}: {error}") from error
    for command, table in content.items():
        if not isinstance(table, dict):
            raise UsageError(
                f"{file.path}: {command!r} is not in a table; write it below [{DEFAULTS}] or a command"
            )
        for option, value in table.items():
            if command == EXPECT:
                yield _expectation(option, value, file)
                continue
            yield replace(_setting(command, option, value, str(file.path)), is_project=file.is_project)


def _expectation(key: str, value: object, file: ConfigurationFile) -> ConfiguredOption:
    """Something that each host should have.

    Raises
    ------
    UsageError
        If it cannot be expected.
    """
    from ..results.inventory import parse

    if not isinstance(value, str | int) or isinstance(value, bool) or "," in str(value):
        raise UsageError(f"{file.path}: {EXPECT}.{key} must be a number or a text")
    try:
        parse(f"{key}={value}")
    except UsageError as error:
        raise UsageError(f"{file.path}: [{EXPECT}] {error}") from error
    return ConfiguredOption(EXPECT, key, (str(value),), str(file.path), is_project=file.is_project)


def _setting(command: str, option: str, value: object, origin: str) -> ConfiguredOption:
    """A setting.

    Raises
    ------
    UsageError
        If the value is neither a text, a number, true, false nor a list of texts and numbers, or the option
        protects files.
    """
    if option == "force":
        raise UsageError(f"{origin}: force can only be given on the command line")
    if isinstance(value, bool):
        return ConfiguredOption(command, option, (), origin, not value)
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, (str, int, float)) and item is not True for item in items):
        raise UsageError(f"{origin}: {command}.{option} must be a text, a number, true, false or a list")
    try:
        return ConfiguredOption(command, option, tuple(map(str, items)), origin)
    except ValueError as error:  # a number with thousands of digits, written with few
        raise UsageError(f"{origin}: {command}.{option}: {error}") from error
