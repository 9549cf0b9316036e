"""Recorded trees: what readers of facts read of a system, in a folder that can be examined elsewhere."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ..errors import MachineError, UsageError
from ..files import distrust, make_folder, read, untrusted_link
from ..hardware.topology import Machine, load
from ..terminal import neutral_json
from . import discover, facts
from .system_files import Tree, TreePath

#: Files of a tree besides the files of the system.
_MACHINE, _NVML, _ENVIRONMENT = "machine.json", "nvml.json", "environment.json"
#: What makes a folder the root of a system.
_PARTS = ("sys", "proc", _MACHINE)
#: Variables that readers of facts look at.
_VARIABLES = re.compile("NCCL_.*|LD_LIBRARY_PATH|container")
_MOST_LINKS = 40
#: File in each recorded folder, because archives and git forget empty folders. Readers do not see it.
_EMPTY = ".folder"


class Recorder(Tree):
    """This machine, with notes about what is read of it.

    Attributes:
        folder: As for Tree.
    """

    def __init__(self, folder: str | Path = "/") -> None:
        super().__init__(folder)
        self.answers = {}
        self._contents: dict[PurePosixPath, str | bytes | None] = {}

    def note(self, path: PurePosixPath, content: str | bytes | None) -> None:
        if content is not None or path not in self._contents:
            self._contents[path] = content

    def save(self, folder: Path) -> int:
        """Write what was noted; return the number of files.

        Raises:
            OSError: If a file cannot be written.
        """
        variables = {name: text for name, text in self.environment.items() if _VARIABLES.fullmatch(name)}
        for name, answers in ((_NVML, self.answers), (_ENVIRONMENT, variables)):
            (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(answers), indent=1) + b"\n")
        for path, content in self._contents.items():
            place = folder / self._without_links(path, folder)
            if content is None and (self.folder / path).is_dir():
                place /= _EMPTY
            make_folder(place.parent)
            place.write_bytes(content if isinstance(content, bytes) else (content or "").encode())
        return 2 + len(self._contents)

    def _without_links(self, path: PurePosixPath, folder: Path) -> PurePosixPath:
        """A path without links; the links of ``/sys``, which are relative, are made in the folder."""
        real, left = PurePosixPath(), [*reversed(path.parts)]
        for _ in range(_MOST_LINKS * len(left)):
            if not left:
                break
            part = left.pop()
            if part == "..":
                real = real.parent
                continue
            real /= part
            link = self.folder / real
            target = link.readlink() if real.parts[0] == "sys" and link.is_symlink() else Path("/")
            if not target.is_absolute():
                copy = folder / real
                make_folder(copy.parent)
                if not copy.is_symlink():
                    copy.symlink_to(target)
                left += reversed(target.parts)
                real = real.parent
        return real


def record_in(folder: str | Path, recorder: Recorder | None = None) -> int:
    """Record this machine in a folder; return the number of files.

    Raises:
        UsageError: If the folder is not empty, or cannot be written.
    """
    place = Path(folder)
    try:
        if link := untrusted_link(place):
            raise UsageError(
                f"cannot record in {place}: {link[0]} is a link, and {link[1]}; name a new folder"
            )
        make_folder(place)
        if reason := distrust(place.stat()):
            raise UsageError(f"cannot record in {place}: {reason}; name a new folder")
        if next(place.iterdir(), None) is not None:
            raise UsageError(f"the folder {place} is not empty; name a new one")
        tree = Recorder() if recorder is None else recorder
        machine = discover(tree.root)
        facts(machine, tree.root)
        gpus = tuple(replace(gpu, uuid="") for gpu in machine.gpus)  # UUIDs are private
        (place / _MACHINE).write_bytes(replace(machine, gpus=gpus).to_json())
        return 1 + tree.save(place)
    except (OSError, ValueError) as error:  # a NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot record in {place}: {why}") from error


def opened(folder: str | Path) -> TreePath:
    """The root of a recorded tree.

    Raises:
        MachineError: If the folder has neither ``sys`` nor ``proc``, or a file of the recorder is damaged.
    """
    place = Path(folder)
    if not any(os.path.lexists(place / part) for part in _PARTS):
        raise MachineError(f"{place} is not the root of a system: it contains neither sys nor proc")
    return Tree(place, _object(place / _ENVIRONMENT, str), _object(place / _NVML, Any)).root


def machine_in(root: TreePath) -> Machine:
    """The machine of a recorded tree, from its description or discovered from its files.

    Raises:
        MachineError: If the description is damaged, or is not of a real machine.
    """
    path = Path(root.tree.folder, _MACHINE)
    if not path.exists():
        return discover(root)
    machine = load(path)
    if machine.simulated:
        raise MachineError(f"{path} describes a simulated machine; nothing of it can be recorded")
    return machine


def _object(path: Path, kind: Any) -> dict[str, Any]:
    """The JSON object in a file; empty if there is no file."""
    try:
        data = neutral_json(read(path)) if os.path.lexists(path) else b"{}"
        return msgspec.json.decode(data, type=dict[str, kind])
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(f"{path} is damaged: {error}; remove it to examine the tree without it") from error
