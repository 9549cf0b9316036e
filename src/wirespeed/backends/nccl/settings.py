"""Settings of NCCL that are not its defaults, from the environment and from its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...facts import Fact, Known

#: Variables that change neither transport nor speed.
_HARMLESS = ("NCCL_DEBUG", "NCCL_VERSION", "NCCL_CONF_FILE", "NCCL_TESTS")


def settings(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> Fact:
    """Return the settings of NCCL: ``NAME=value`` in the environment, ``FILE: NAME=value`` from a file.

    Parameters
    ----------
    root : Path
        Folder that contains ``etc``.
    environment : Mapping[str, str] or None
        The variables; None for those of this process.
    """
    variables = os.environ if environment is None else environment
    found = [f"{name}={value}" for name, value in sorted(variables.items()) if _matters(name)]
    own = variables.get("NCCL_CONF_FILE") or f"{variables.get('HOME', '')}/.nccl.conf"
    for path, shown in ((root / "etc/nccl.conf", "/etc/nccl.conf"), (Path(own), own)):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except (OSError, ValueError):
            continue
        found += [f"{shown}: {line.strip()}" for line in lines if _matters(line.strip().partition("=")[0])]
    return Fact(Known.NCCL_VARIABLES, tuple(found))


def _matters(name: str) -> bool:
    return name.startswith("NCCL_") and not name.startswith(_HARMLESS)
