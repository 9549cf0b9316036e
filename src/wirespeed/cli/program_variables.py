"""Variables that stand for options of the programs of others, for callers whose command line is fixed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from ..errors import UsageError

Name = TypeVar("Name", bound=str)

#: The version of a program whose output to have, and the machine to measure.
COMPAT, MACHINE = "WIRESPEED_COMPAT", "WIRESPEED_MACHINE"


def machine(environment: Mapping[str, str] = os.environ) -> str | None:
    """The default of ``--machine``: the variable, or this machine."""
    return environment.get(MACHINE) or None


def version(
    arguments: Sequence[str], known: Collection[Name], default: Name, others: Collection[str] = ()
) -> Name:
    """The version of the program: ``--compat``, else the variable, else the default.

    Args:
        arguments: The command line.
        known: The versions of the program.
        default: Its default.
        others: Versions of other programs, for which the variable may be.

    Raises:
        UsageError: If the variable is no version of any of these programs.
    """
    names: dict[str, Name] = {name: name for name in known}
    for i, word in enumerate(arguments):
        wanted = word.partition("=")[2] if word.startswith("--compat=") else ""
        if word == "--compat":
            wanted = (*arguments[i + 1 :], "")[0]
        if wanted in names:
            return names[wanted]
    wanted = os.environ.get(COMPAT, "")
    if wanted and wanted not in names and wanted not in others:
        raise UsageError(f"{COMPAT}={wanted}: choose one of {', '.join((*known, *others))}")
    return names.get(wanted, default)
