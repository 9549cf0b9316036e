"""The files that describe a system (in ``/sys``, ``/proc``, ``/etc``), of this machine or of a recorded tree.
Readers get the root as a TreePath and see the same files in both; a recorder sees what they read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any

#: Maximum size of a file that is read, in bytes. Those of a kernel have none.
_LARGEST_BYTES = 2**24
#: Text of a device file in a recorded tree that could not be used.
_DENIED = "denied"
#: The device with the messages of the kernel; elsewhere its name may lead to a terminal.
#: Source: Documentation/admin-guide/devices.txt of Linux.
_MESSAGES_DEVICE = os.makedev(1, 11)
#: Maximum size of a message, in bytes, and maximum number of messages that are read.
_MESSAGE_BYTES, _MOST_MESSAGES = 2**13, 100_000


class Tree:
    """The files, variables and answers of libraries that describe a system.

    Args:
        folder: Folder that contains ``sys`` and ``proc``; ``/`` for this machine.
        environment: Environment variables; None for the environment of this process.
        nvml: Recorded answers of NVML; None for this machine, whose NVML is asked.

    Attributes:
        recorded: Whether it describes a recorded system, so that nothing may be asked of this one instead.
        answers: Where a recorder wants the answers of NVML.
    """

    answers: dict[str, Any] | None = None

    def __init__(
        self,
        folder: str | Path = "/",
        environment: Mapping[str, str] | None = None,
        nvml: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.recorded = nvml is not None
        self.environment = os.environ if environment is None else environment
        self.nvml = nvml

    @property
    def root(self) -> TreePath:
        """The folder itself."""
        return TreePath(self, PurePosixPath())

    def note(self, path: PurePosixPath, content: str | bytes | None) -> None:
        """Take note of what was read of a file; None if only its presence was."""

    def real(self, path: PurePosixPath) -> Path | None:
        """Where a path below the root leads to; None if out of the folder, in a circle or nowhere."""
        try:
            if path.parts[:1] == ("~",) and not self.recorded:
                return Path(path).expanduser()
            if self.folder == Path("/"):  # nothing is out of it
                return self.folder / path
            resolved = (self.folder / path).resolve(strict=True)
        # Missing, a circle of links (a RuntimeError before Python 3.13), a NUL in a name that a file gave.
        except (OSError, RuntimeError, ValueError):
            return None
        return resolved if resolved.is_relative_to(self.folder) else None


@dataclass(frozen=True, order=True)
class TreePath:
    """A file or folder of a Tree, with the few methods of a path that readers need. None of them fails.

    Attributes:
        tree: The tree.
        path: Path below the root; ``~`` is the home of the user.
    """

    tree: Tree = field(compare=False)
    path: PurePosixPath

    def __truediv__(self, name: str) -> TreePath:
        """A path below this one; of an absolute path, the one below the root."""
        return TreePath(self.tree, self.path / name.lstrip("/"))

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.name

    @property
    def parents(self) -> tuple[TreePath, ...]:
        """The folders above, the nearest first."""
        return tuple(TreePath(self.tree, path) for path in self.path.parents)

    def is_relative_to(self, other: TreePath) -> bool:
        """Whether the path is below another one, or the same."""
        return self.path.is_relative_to(other.path)

    def read(self, keep: re.Pattern[str] | None = None) -> str | None:
        """The text of a file; None if it is missing or cannot be read.

        Args:
            keep: Only what matches is read, and recorded: one match per line.
        """
        if (content := self._content()) is None:
            return None
        text = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        if keep is not None:
            text = "\n".join(match.group() for match in keep.finditer(text))
        self.tree.note(self.path, text)
        return text

    def table(self, keep: Callable[[bytes], bytes]) -> bytes | None:
        """What is kept of a binary file; None if it is missing or cannot be read.

        Args:
            keep: Returns the part of the content that is needed, and recorded; of its own result, all.
        """
        if (content := self._content()) is None:
            return None
        kept = keep(content)
        self.tree.note(self.path, kept)
        return kept

    def _content(self) -> bytes | None:
        """The bytes of a regular file that is not too large; None if there is none."""
        place = self.tree.real(self.path)
        try:
            if place is None:
                return None
            status = place.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:  # a pipe may never end
                return None
            return place.read_bytes()
        except (OSError, ValueError):  # a NUL in a name that a file gave
            return None

    def messages(self, keep: re.Pattern[str]) -> str | None:
        """What matches in the messages of the kernel, without waiting for new ones.

        None if there are none, or if only the administrator may read them.
        """
        place = self.tree.real(self.path)
        try:
            if place is None or place.stat().st_rdev != _MESSAGES_DEVICE:
                return self.read(keep)  # of a recorded tree
            with FileIO(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as log:
                text = "\n".join(
                    match.group() for message in _records(log) for match in keep.finditer(message)
                )
        except (OSError, ValueError):  # a NUL in a name that a file gave
            return None
        self.tree.note(self.path, text)
        return text

    def is_usable(self) -> bool | None:
        """Whether this process may read and write a device file; None if there is none.

        In a recorded tree, whether the process that recorded it could.
        """
        if not self.exists():
            return None
        if self.tree.recorded:
            return self.read() != _DENIED
        place = self.tree.real(self.path)
        # Access is also denied by the control group of a container or job.
        usable = place is not None and os.access(place, os.R_OK | os.W_OK)
        if not usable:
            self.tree.note(self.path, _DENIED)
        return usable

    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        place = self.tree.real(self.path)
        present = place is not None and place.exists()
        if present:
            self.tree.note(self.path, None)
        return present

    def resolve(self) -> TreePath:
        """The path without symbolic links; this path if it leads nowhere."""
        place = self.tree.real(self.path) if self.exists() else None
        if place is None:
            return self
        return TreePath(self.tree, PurePosixPath(place.resolve().relative_to(self.tree.folder)))

    def glob(self, pattern: str) -> list[TreePath]:
        """The files and folders below that match a pattern, in order; a kernel gives the names."""
        paths = [self]
        for part in pattern.split("/"):
            if not set(part) & set("*?["):
                paths = [path / part for path in paths]
            else:
                paths = [path / name for path in paths for name in path._names() if fnmatchcase(name, part)]
        return [path for path in paths if path.exists()]

    def _names(self) -> list[str]:
        place = self.tree.real(self.path)
        try:
            names = [file.name for file in place.iterdir()] if place is not None else []
        except OSError:
            return []
        return sorted(n for n in names if n.isascii() and n.isprintable() and not n.startswith("."))


def _records(log: FileIO) -> Iterator[str]:
    """Yield the messages of the kernel, the oldest first."""
    for _ in range(_MOST_MESSAGES):
        try:
            record = log.read(_MESSAGE_BYTES)
        except BrokenPipeError:  # new messages replaced the next one
            continue
        if not record:  # None if there is no other one
            return
        yield record.decode(errors="replace")


#: The root of this machine.
HERE = Tree().root
