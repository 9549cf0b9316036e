"""Which nodes share a leaf switch: what Slurm's topology says."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from ...files import read

_LEAF = re.compile(r"SwitchName=(\S+)\s+Level=0\b.*?\bNodes=(\S+)")
#: An element of a list of hosts, and its parts: text, or numbers in brackets.
_ELEMENT = re.compile(r"(?:[^,\[\]]|\[[\d,-]+\])+")
_PART = re.compile(r"\[([\d,-]+)\]|([^\[]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST_NAMES = 100_000
_TIMEOUT_S = 10.0


def hosts_of(text: str) -> list[str]:
    """The names of a list of hosts of Slurm, e.g. ``rack[01-16,20],login``.

    Raises:
        UsageError: If it is not such a list, or has too many names.
    """
    elements = _ELEMENT.findall(text)
    if ",".join(elements) != text:
        raise UsageError(f"{text[:60]!r} is not a list of hosts; write e.g. node[0-15,17],login")
    names: list[str] = []
    for element in elements:
        choices = [_numbers(ranges, text) if ranges else [plain] for ranges, plain in _PART.findall(element)]
        if len(names) + math.prod(map(len, choices)) > _MOST_NAMES:
            raise _too_many(text)
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def _numbers(ranges: str, text: str) -> list[str]:
    """The numbers of brackets, with as many digits as the first of each range."""
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{part[:20]!r} in the list of hosts {text[:60]!r} is not a range such as 0-15")
        first, last = int(match[1]), int(match[2] or match[1])
        if len(numbers) + last - first >= _MOST_NAMES:
            raise _too_many(text)
        numbers += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
    return numbers


def _too_many(text: str) -> UsageError:
    return UsageError(f"the list of hosts {text[:60]!r} has more than {_MOST_NAMES} names")


def parse_topology(text: str) -> dict[str, str]:
    """Host -> its leaf switch, of what ``scontrol show topology`` prints."""
    return {host: switch for switch, hosts in _LEAF.findall(text) for host in hosts_of(hosts)}


def topology(file: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Host -> its leaf switch: of a file, or of Slurm in one of its jobs; empty if unknown.

    Args:
        file: File with the output of ``scontrol show topology``.
        environment: Environment variables of the job.

    Raises:
        UsageError: If the file cannot be read, or has no leaf switch.
    """
    if file is not None:
        try:
            blocks = parse_topology(read(Path(file)).decode(errors="replace"))
        except OSError as error:
            raise UsageError(f"--topology {file}: {error.strerror or error}") from None
        if not blocks:
            raise UsageError(
                f"{file} names no leaf switch; write what `scontrol show topology` prints: lines like "
                "SwitchName=leaf0 Level=0 Nodes=node[0-15]"
            )
        return blocks
    if "SLURM_JOB_ID" not in environment or not (scontrol := shutil.which("scontrol")):
        return {}
    try:
        answer = subprocess.run(
            [scontrol, "show", "topology"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}  # switches are then not told apart, which the report says
    return parse_topology(answer.stdout)
