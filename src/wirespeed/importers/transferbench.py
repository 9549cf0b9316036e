"""Logs of TransferBench: the transfers of tests, and the matrix of the preset ``p2p``.

Formats: ``src/TransferBench.cpp`` of ROCm/TransferBench up to 1.52; newer versions draw boxes around the same
columns. ``GB/s`` are 1e9 B/s, and count each byte once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..measurement import Unit
from ..units import GB
from .log import FoundLog, FoundTable, Tool, doubt, each, in_base, numbers, runs, scaled, text

_BAR = r"\s*[|│]\s*"
_CELLS = (
    rf"(Executor: \w{{3}} \d+|Transfer \d+|Aggregate \(CPU\)){_BAR}([\d.]+) GB/s{_BAR}([\d.]+) ms"
    rf"{_BAR}(\d{{1,18}}) bytes([\s│|].*)?$"
)
_ROW = re.compile(rf"[\s│|]*{_CELLS}")
_CUT = re.compile(r"[\s│|]*(Executor: |Transfer \d|Aggregate \(CPU\)).*[|│]")
_TEST = re.compile(r"\s*Test (\d{1,6}):")
_MATRIX = re.compile(
    r"\s*(Uni|Bi)directional copy peak bandwidth GB/s \[(Local|Remote) read / (?:Local|Remote) write\] "
    r"\(GPU-Executor: (GFX|DMA)\)"
)
_HEAD = re.compile(r"\s*SRC(?:\+EXE)?\\(?:EXE\+)?DST((\s+[CG]PU \d+)+)\s*$")
_OF_MATRIX = re.compile(r"\s*([CG]PU) (\d{1,4})\s*(->|<-|<->|min|max|sd)((\s+(N/A|[\d.]+(e[-+]\d+)?))*)\s*$")
_BYTES = re.compile(r"\s*Bytes Per Direction[ ,](\d{1,18})")
_VERSION = re.compile(r"\s*TransferBench [vV]([\w.]+)")
#: Lines with which a log of this tool begins; a bar before a row is that of a launcher.
_START = re.compile(rf"{_VERSION.pattern}|{_MATRIX.pattern}|{_CELLS}")
_KNOWN = re.compile(
    r"$|=+|-[-┬┼┴]+|[─┌└├].*|\[\w[\w -]*\]$|[A-Z0-9_]+ += |Averages|CPU->CPU|\.+$|## |[$#] |"
    r"Iter \d|StandardDev|\[WARN|<"
)
_FAILED = re.compile(r"\[ERROR\]")
#: Executor of the preset -> engine in the names of testcases.
_ENGINES = {"GFX": "sm", "DMA": "ce"}
_TOOL = "TransferBench"


def _run(lines: Sequence[str]) -> FoundLog:
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    test, size = "", 0
    tests: dict[str, dict[str, tuple[float | None, float | None]]] = {}
    matrix: re.Match[str] | None = None
    columns: list[str] = []
    rows: dict[tuple[str, str], list[float | None]] = {}
    for line in lines:
        if match := _ROW.match(line):
            _add(tests.setdefault(test, {}), match)
        elif match := _VERSION.match(line):
            log.version = text(f"v{match[1]}")
        elif match := _TEST.match(line):
            again = sum(name.partition(" ")[0] == match[1] for name in tests)
            test = f"{match[1]} again, {again}" if again else match[1]
        elif match := _BYTES.match(line):
            size = int(match[1])
        elif match := _MATRIX.match(line):
            log.tables += _matrix(log, matrix, columns, rows, size)
            matrix, columns, rows = match, [], {}
        elif matrix and (match := _HEAD.match(line)):
            columns = re.findall(r"[CG]PU \d+", match[1])
        elif matrix and columns and (match := _OF_MATRIX.match(line)):
            values = numbers(match[4]) or []
            if len(values) < len(columns):
                doubt(log, f"a row is cut: {line.strip()}")
            else:
                rows[f"{match[1]} {match[2]}", match[3]] = values
        elif _CUT.match(line) or (matrix and re.match(r"\s*[CG]PU \d+\s*(->|<-)", line)):
            doubt(log, f"a row is cut: {line.strip()}")
        elif _FAILED.match(line.strip()):
            log.failures.append(text(line))
        else:
            log.other(line.strip(), _KNOWN)
    log.tables += _matrix(log, matrix, columns, rows, size)
    for name, found in tests.items():
        log.tables.append(_transfers(name, found))
        if not any(label.startswith("Aggregate") for label in found):
            doubt(log, f"test {name} lacks its line 'Aggregate (CPU)'".replace("  ", " "))
    if not (log.tables or log.failures):
        doubt(log, "it has no transfers; of the presets, p2p is read: run TransferBench p2p")
    return log


def _add(found: dict[str, tuple[float | None, float | None]], match: re.Match[str]) -> None:
    """Note the rates of an executor, a transfer, or all of a test; of an executor also their sum."""
    label = text(match[1])
    about = text(match[5] or "").strip("│| ")
    if label.startswith("Transfer") and about:
        label = f"{label}: {about}"
    summed = re.match(r"([\d.]+) +GB/s \(sum\)", about)
    found[label] = in_base(match[2], float(GB)), in_base(summed[1], float(GB)) if summed else None


def _transfers(test: str, found: dict[str, tuple[float | None, float | None]]) -> FoundTable:
    """The table of the transfers of a test."""
    name = f"{_TOOL} test {test}".removesuffix(" test ")
    return FoundTable(
        name, tuple(found.values()), tuple(found), ("rate", "sum of its transfers"), ("transfer", "value"),
        Unit.RATE, "", name, why_not="no testcase has these transfers",
    )  # fmt: skip


def _matrix(
    log: FoundLog, match: re.Match[str] | None, columns: Sequence[str],
    rows: dict[tuple[str, str], list[float | None]], size: int,
) -> Iterator[FoundTable]:  # fmt: skip
    """Yield the tables of a matrix of the preset: copies between GPUs, and the others."""
    if match is None:
        return
    if not rows:
        doubt(log, f"it has no values of {match[0].strip()}")
        return
    both, remote, engine = match[1] == "Bi", match[2] == "Remote", _ENGINES[match[3]]
    gpus = [name for name in columns if name.startswith("GPU")]
    short = [name for name in columns if (name, "->") not in rows]
    if short:
        doubt(log, f"it has no row of {', '.join(short[:8])}")
    title = text(match[0].strip())
    taken: set[tuple[str, str]] = set()
    if not both and len(gpus) > 1 and not {*gpus} & {*short}:
        values = [_of(rows[gpu, "->"], columns, gpus) for gpu in gpus]
        if remote:  # the destination executes: it is the row of a testcase that reads
            values = [list(column) for column in zip(*values, strict=True)]
        pairs = tuple(tuple(None if i == j else v for j, v in enumerate(row)) for i, row in enumerate(values))
        names = tuple(f"gpu{i}" for i in range(len(gpus)))
        taken = {(a, b) for a in gpus for b in gpus if a != b}
        if any(value is not None for row in pairs for value in row):
            yield FoundTable(
                f"device_to_device_memcpy_{'read' if remote else 'write'}_{engine}", pairs, names, names,
                ("GPU", "GPU"), Unit.RATE, "", title, size,
            )  # fmt: skip
    labels = tuple(f"{name} {arrow}" for name, arrow in rows)
    rest = tuple(
        scaled([None if (name, column) in taken and arrow == "->" else value
                for column, value in zip(columns, values, strict=False)], float(GB))
        for (name, arrow), values in rows.items()
    )  # fmt: skip
    kind = f"{_TOOL} p2p {match[1].lower()}directional {match[3]}"
    yield FoundTable(kind, rest, labels, tuple(columns), ("source", "destination"), Unit.RATE,
                     "", title, size, "no testcase has this executor or both directions")  # fmt: skip


def _of(values: Sequence[float | None], columns: Sequence[str], wanted: Sequence[str]) -> list[float | None]:
    """The values of some columns, in B/s."""
    by_column = dict(zip(columns, values, strict=False))
    return list(scaled([by_column[name] for name in wanted], float(GB)))


#: How these logs are read.
TRANSFERBENCH = Tool(_START, each(_run, runs, _VERSION))
