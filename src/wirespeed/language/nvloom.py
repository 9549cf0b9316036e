"""CSV files of nvloom, translated to the language.

Its columns: NVIDIA/nvloom, README, "CSV testcase". A GPU is named by its rank. An engine has the name that it
has in nvloom's testcases (``getCopyType`` in ``cli/testcases.cpp``): ``tma`` since 1.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .syntax import LanguageError, Source, contents
from .toml_file import Program, program_of

_COLUMNS = (
    "measurement id", "bandwidth or latency", "source", "destination", "iterations", "source memory",
    "destination memory", "direction", "engine", "size",
)  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)", re.ASCII)
#: Engine of nvloom -> its word in the language.
_ENGINES = {"ce": "ce", "sm": "sm", "tma": "sm_bulk"}
#: How an error at a part of the text is made.
_Wrong = Callable[[str, int], LanguageError]


def load(path: str | Path, device: str = "gpu") -> Program:
    """The transfers of a CSV file of nvloom; each measurement ID is a testcase.

    Args:
        path: The file.
        device: What a number stands for: ``gpu``, or ``rank`` in a job of one process for each GPU.

    Raises:
        UsageError: If the file cannot be read or is invalid, or has something without an equivalent.
    """
    return loads(contents(path), str(path), device)


def loads(text: str, name: str = "", device: str = "gpu") -> Program:
    """The transfers of a text in the format of nvloom; parameters as in ``load``.

    Raises:
        UsageError: If it is invalid, or has something without an equivalent.
    """
    source = Source(text, name)
    transfers: dict[int, list[str]] = {}
    for number, line in enumerate(re.finditer(r"[^\n]+", text)):
        if number and line[0].strip():  # the first line is the heading
            key, transfer = _row(source, line, device)
            transfers.setdefault(key, []).append(transfer)
    return program_of(source, [(f"measurement_{key}", transfers[key]) for key in sorted(transfers)])


def _row(source: Source, line: re.Match[str], device: str) -> tuple[int, str]:
    cells, starts, at = [], [], line.start()
    for part in line[0].split(","):
        cells.append(part.strip().lower())
        starts.append(at + len(part) - len(part.lstrip()))
        at += len(part) + 1

    def wrong(message: str, column: int) -> LanguageError:
        start = min(starts[column], line.end() - 1)
        return source.error(message, start, start + max(1, len(cells[column])))

    if len(cells) < len(_COLUMNS):
        missing = _COLUMNS[len(cells)]
        raise wrong(f"the row ends before the column {missing!r}", len(cells) - 1)
    key, ends = _whole(cells, 0, wrong), [_whole(cells, column, wrong) for column in (2, 3)]
    latency = cells[1] == "latency"
    if cells[1] not in ("bandwidth", "latency"):
        raise wrong(f"{cells[1]!r} is neither bandwidth nor latency", 1)
    for column in (5,) if latency else (5, 6):
        if cells[column] != "device":
            raise wrong(f"memory of the kind {cells[column]!r} has no equivalent; only device has", column)
    copies = "" if cells[4] in ("default", "ignored") else f" copies={_whole(cells, 4, wrong) or 1}"
    origin, target = (f"{device}{number}" for number in ends)
    if latency:
        return key, f"latency {target} <- {origin}{_sized(cells, wrong, latency)}{copies}"
    if cells[7] not in ("write", "read"):
        raise wrong(f"{cells[7]!r} is neither write nor read", 7)
    if cells[8] not in _ENGINES:
        *others, last = _ENGINES
        raise wrong(f"the engine {cells[8]!r} has no equivalent; {', '.join(others)} and {last} have", 8)
    arrow = f"{origin} -> {target}" if cells[7] == "write" else f"{target} <- {origin}"
    return key, f"{arrow} {_ENGINES[cells[8]]}{_sized(cells, wrong, latency)}{copies}"


def _whole(cells: list[str], column: int, wrong: _Wrong) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", cells[column], re.ASCII):
        raise wrong(f"the {_COLUMNS[column]} {cells[column]!r} is not a whole number", column)
    return int(cells[column])


def _sized(cells: list[str], wrong: _Wrong, latency: bool) -> str:
    """The word for the size; empty for the default."""
    text = cells[9]
    if text == "default" or (latency and text == "ignored"):
        return ""
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise wrong(f"{text!r} is not a size; nvloom's sizes are bytes, or have a suffix k, m, g or t", 9)
    return f" {int(match[1]) * 1024 ** ' kmgt'.index(match[2] or ' ')}B"
