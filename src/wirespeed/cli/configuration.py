"""Defaults of options from files and from the environment.

In order of precedence: the command line, ``WIRESPEED_…`` variables, the nearest ``wirespeed.toml`` in this
folder or one above it, and the user's ``wirespeed.toml`` in ``~/.config``. Files have a table for each
command, and ``[defaults]`` for all commands that have an option::

    [defaults]
    timeout = "2min"

    [check]
    gates = ["azure"]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..errors import UsageError

NAME = "wirespeed.toml"
#: Table of the options of all commands.
DEFAULTS = "defaults"
_PREFIX = "WIRESPEED_"
#: Variables that are not options: what processes of one job tell each other.
_INTERNAL = {"WIRESPEED_STARTED_BY", "WIRESPEED_CHANNELS", "WIRESPEED_JOB_SECRET"}


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
    """

    command: str
    option: str
    values: tuple[str, ...]
    origin: str
    is_off: bool = False

    @property
    def arguments(self) -> list[str]:
        """The option on a command line."""
        if self.is_off:
            return []
        return [f"--{self.option}={value}" for value in self.values] or [f"--{self.option}"]


def files(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> list[Path]:
    """Return the configuration files that exist, in increasing precedence."""
    home = environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    here = folder or Path.cwd()
    nearest = next((file for one in (here, *here.parents) if (file := one / NAME).is_file()), None)
    return [file for file in (Path(home) / NAME, nearest) if file is not None and file.is_file()]


def settings(
    environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> list[ConfiguredOption]:
    """Return all settings, in increasing precedence.

    Raises
    ------
    UsageError
        If a file cannot be read, or contains something else than options.
    """
    found = [one for file in files(environment, folder) for one in _of_file(file)]
    for variable, text in sorted(environment.items()):
        if variable.startswith(_PREFIX) and variable not in _INTERNAL:
            option = variable.removeprefix(_PREFIX).lower().replace("_", "-")
            value = {"true": True, "false": False}.get(text.lower(), text)
            if text:
                found.append(_setting(DEFAULTS, option, value, variable))
    return found


def arguments(
    command: str, options: Mapping[str, bool], own: list[ConfiguredOption] | None = None
) -> list[str]:
    """Return the arguments that precede a command line.

    Parameters
    ----------
    command : str
        Name of the command.
    options : Mapping[str, bool]
        Its options, without dashes -> whether they take a value.
    own : list[ConfiguredOption] or None
        The settings; None to read them.

    Raises
    ------
    UsageError
        If a setting for this command is not one of its options, or a flag has a value or an option none.
    """
    chosen: dict[str, ConfiguredOption] = {}
    for setting in settings() if own is None else own:
        if setting.command == command and setting.option not in options:
            close = "".join(
                f" (did you mean {one!r}?)" for one in get_close_matches(setting.option, options, 1)
            )
            raise UsageError(f"{setting.origin}: {command} has no option {setting.option!r}{close}")
        if setting.command in (command, DEFAULTS) and setting.option in options:
            if bool(setting.values) is not options[setting.option]:
                wanted = "needs a value" if options[setting.option] else "is true or false"
                raise UsageError(f"{setting.origin}: {setting.option} {wanted}")
            known = chosen.get(setting.option)
            if known is None or setting.command == command or known.command == DEFAULTS:
                chosen[setting.option] = setting
    return [argument for setting in chosen.values() for argument in setting.arguments]


def _of_file(file: Path) -> Iterator[ConfiguredOption]:
    """Yield the settings of a file.

    Raises
    ------
    UsageError
        If it cannot be read, or contains something else than options.
    """
    import tomllib

    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: {error}") from error
    for command, table in content.items():
        if not isinstance(table, dict):
            raise UsageError(
                f"{file}: {command!r} is not in a table; write it below [{DEFAULTS}] or a command"
            )
        for option, value in table.items():
            yield _setting(command, option, value, str(file))


def _setting(command: str, option: str, value: object, origin: str) -> ConfiguredOption:
    """Return a setting.

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
    return ConfiguredOption(command, option, tuple(map(str, items)), origin)
