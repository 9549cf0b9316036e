"""The names of nccl-tests' programs."""

from __future__ import annotations

from ...collectives.operations import OPERATIONS

#: Suffix of the names, behind the name of the collective.
SUFFIX = "_perf"


def names() -> list[str]:
    """The names of the programs, one for each collective."""
    return [f"{name}{SUFFIX}" for name in OPERATIONS]
