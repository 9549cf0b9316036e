"""Overrides: deviations that an operator knows and accepts, each with the reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..topology import LinkKind, Machine
from .cells import Key
from .document import Cell

#: A memory is meant where a cell takes at least this much of it: all traffic of a GPU goes through it.
_MEMORY_MATTERS = 0.2


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted deviation, of the cells for which all that is given fits.

    Parameters
    ----------
    reason
        Shown wherever it is used.
    link
        The cells that use this link: ``numa0-gpu1``, ``gpu0->gpu1``, or ``gpu1`` for all links at it.
    testcase, row, column
        Names and labels, with ``*`` and ``?`` as in a shell.
    accept
        Values from this fraction of what would else be the least are accepted, impossible ones are
        not; left out, any value is.
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
        """Whether it is meant for a cell."""
        links = set(machine.links_at(self.link))
        return (
            fnmatchcase(key.testcase, self.testcase)
            and fnmatchcase(key.row, self.row)
            and fnmatchcase(key.column, self.column)
            and (not self.link or any(
                i in links and (taken >= _MEMORY_MATTERS or machine.links[i].kind is not LinkKind.MEMORY)
                for i, taken, _ in cell.links
            ))
        )  # fmt: skip


class _File(msgspec.Struct, forbid_unknown_fields=True):
    override: tuple[Override, ...]


def load(path: str | Path) -> tuple[Override, ...]:
    """Read overrides from a TOML file.

    Raises
    ------
    UsageError
        If the file cannot be read, or an entry is not one.
    """
    try:
        found = msgspec.convert(tomllib.loads(Path(path).read_text()), _File).override
    except OSError as error:
        raise UsageError(f"cannot read the overrides {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} does not hold overrides: {error}") from error
    for entry in found:
        if not entry.reason.strip():
            raise UsageError(f"{path}: the override of {entry or 'everything'} gives no reason")
        if not str(entry):
            raise UsageError(f"{path}: an override names neither a link nor a testcase, row or column")
        if entry.accept is not None and not 0 < entry.accept < 1:
            raise UsageError(f"{path}: the override of {entry} accepts {entry.accept}; give 0 to 1")
    return found


def check_links(overrides: Sequence[Override], machine: Machine) -> None:
    """Refuse, before anything is measured, overrides of links that a machine does not have.

    Raises
    ------
    UsageError
        For the first of them.
    """
    for entry in overrides:
        if entry.link and not machine.links_at(entry.link):
            raise UsageError(
                f"the override of {entry} matches nothing: the machine has no link {entry.link!r}"
            )
