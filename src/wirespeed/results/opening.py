"""Opening what a user names: a saved run, or a file of another tool, which features read."""

from __future__ import annotations

from pathlib import Path

from ..document import Document
from ..errors import NotARun, UsageError
from ..features import offered
from .store import content, decode


def open_run(file: str | Path, machine: str | None = None) -> Document:
    """Open what a user names: a saved run, or the log of another tool; ``-`` is standard input.

    Args:
        file: The file.
        machine: The machine of a log, as for ``load_log``.

    Raises:
        UsageError: If the file cannot be read, or is neither; if a machine is given for a saved run.
    """
    name = str(file)
    data = content(name)
    try:
        document = decode(data, name)
    except NotARun as error:
        return _of_log(name, data, machine, error)
    if machine is not None:
        raise UsageError(f"--machine is for logs of other tools: {name} is a saved run with its machine")
    return document


def _of_log(name: str, data: bytes, machine: str | None, why: NotARun) -> Document:
    """The Document of the log of another tool; raises why it is none."""
    for of_log in offered("of_log"):
        try:
            return of_log(name, data, machine, why)  # type: ignore[no-any-return]
        except NotARun as error:
            why = error
    raise why


def named(file: str, document: Document) -> tuple[str, Document]:
    """A run with its file, for `read_many`."""
    return file, document


def is_log(path: Path) -> bool:
    """Whether a file in a folder is the log of another tool."""
    return any(known(path) for known in offered("is_log"))
