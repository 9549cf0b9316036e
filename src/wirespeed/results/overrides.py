"""Overrides: deviations that an operator accepts, each with a reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..files import LARGEST_WRITTEN, read
from ..hardware.topology import LinkKind, Machine
from ..tables import Cell
from ..terminal import neutral, unknown_name
from ..thresholds.causes import MATTERS
from .cells import Key


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted deviation. It applies to cells that match all given fields.

    Attributes:
        reason: Shown wherever the override applies.
        link: Cells that use this link: ``numa0-gpu1``, ``gpu0->gpu1``, or ``gpu1`` for all links at it.
        testcase, row, column: Names and labels, with the wildcards ``*`` and ``?``.
        accept: Accept values from this fraction of the lowest passing value, but no implausible values; if
            omitted, accept any value.
    """

    reason: str
    link: str = ""
    testcase: str = "*"
    row: str = "*"
    column: str = "*"
    accept: float | None = None

    def __str__(self) -> str:
        places = (self.link, *(p for p in (self.testcase, self.row, self.column) if p != "*"))
        return " ".join(place for place in places if place)

    def fits(self, key: Key, cell: Cell, machine: Machine) -> bool:
        """Whether a cell matches all given fields; a link must be used by it."""
        links = set(machine.links_at(self.link))
        return (
            fnmatchcase(key.testcase, self.testcase)
            and fnmatchcase(key.row, self.row)
            and fnmatchcase(key.column, self.column)
            and (not self.link or any(
                i in links and (taken >= MATTERS or machine.links[i].kind is not LinkKind.MEMORY)
                for i, taken, _ in cell.links
            ))
        )  # fmt: skip


class _OverrideFile(msgspec.Struct, forbid_unknown_fields=True):
    override: tuple[Override, ...]


def load(path: str | Path) -> tuple[Override, ...]:
    """Load overrides from a TOML file.

    Raises:
        UsageError: If the file cannot be read or an entry is invalid.
    """
    try:
        text = read(path, LARGEST_WRITTEN).decode()
        content = neutral(tomllib.loads(text))
        if wrong := unknown_name(content, _OverrideFile):
            raise ValueError(str(wrong))
        overrides = msgspec.convert(content, _OverrideFile).override
    except OSError as error:
        raise UsageError(f"cannot read the overrides {path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # also of very long numbers
        raise UsageError(f"{path} is not a valid overrides file: {error}") from error
    for entry in overrides:
        if not entry.reason.strip():
            raise UsageError(f"{path}: the override of {entry or 'everything'} has no reason; add one")
        if not str(entry):
            raise UsageError(f"{path}: an override must name a link, testcase, row or column")
        if entry.accept is not None and not 0 < entry.accept < 1:
            raise UsageError(f"{path}: the override of {entry} accepts {entry.accept}; use 0 to 1")
    return overrides


def check_links(overrides: Sequence[Override], machine: Machine) -> None:
    """Reject overrides of links that the machine does not have, before anything is measured.

    Raises:
        UsageError: For the first such override.
    """
    for entry in overrides:
        if entry.link and not machine.links_at(entry.link):
            raise UsageError(f"the override of {entry} has no effect: the machine has no link {entry.link!r}")
