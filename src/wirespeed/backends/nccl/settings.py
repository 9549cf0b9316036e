"""Settings of NCCL that are not its defaults, from the environment and from its files."""

from __future__ import annotations

import re
from pathlib import Path

from ...facts import Fact, Known
from ..tree import HERE, TreePath

#: Variables that change neither transport nor speed.
_HARMLESS = ("NCCL_DEBUG", "NCCL_VERSION", "NCCL_CONF_FILE", "NCCL_TESTS")


#: Lines of a file that set something.
_LINES = re.compile(r"^[ \t]*NCCL_.*$", re.MULTILINE)


def settings(root: TreePath = HERE) -> Fact:
    """The settings of NCCL: ``NAME=value`` in the environment, ``FILE: NAME=value`` from a file.

    Args:
        root: Folder that contains ``etc``; its tree has the variables.
    """
    variables = root.tree.environment
    values = [f"{name}={value}" for name, value in sorted(variables.items()) if matters(name)]
    own = variables.get("NCCL_CONF_FILE")
    for path in ("/etc/nccl.conf", str(Path(own).absolute()) if own else "~/.nccl.conf"):
        lines = [line.strip() for line in ((root / path).read(_LINES) or "").splitlines()]
        values += [f"{path}: {line}" for line in lines if matters(line.partition("=")[0])]
    return Fact(Known.NCCL_VARIABLES, tuple(values))


def matters(name: str) -> bool:
    """Return whether a variable may change transport or speed."""
    return name.startswith("NCCL_") and not name.startswith(_HARMLESS)
