"""nccl-tests' text: the columns at their positions, for scripts that take them apart.

What nccl-tests does not say is on further lines that begin with ``#``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..collectives.operations import OPERATIONS
from ..collectives.types import BY_NAME
from ..results.document import Cell, Document, Status, Table, TestcaseResult
from ..units import GB, format_size, format_time
from . import Style

#: What the form is compatible with.
COMPATIBLE = "2.19.6"
_MICRO = 1e-6
#: The run is accepted that far below the bandwidth that was asked for.
_ACCEPTED = 0.9
_ITERATION_HEADS = ("i_min", "i_max", "i_p99", "i_cv%")


@dataclass(frozen=True)
class Half:
    """A result out of place or in place: s, B/s; ``wrong`` None: not checked."""

    seconds: float
    algorithm: float
    bus: float
    wrong: int | None
    iterations: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the table. ``halves`` are None where there is only a reason."""

    size: int
    count: int
    type: str
    operator: str
    root: int
    halves: tuple[Half | None, Half | None]
    reason: str = ""
    timestamp: str = ""


def settings(document: Document) -> list[list[str]]:
    """Return type, operator and root of each testcase; nothing where they are not collectives."""
    texts = document.options.get("settings")
    return [text.split("|") for text in texts] if isinstance(texts, list) else []


def row(document: Document, i: int, j: int) -> Row:
    """Return what the line of a size says: of testcase i, size j."""
    options, tables = document.options, document.testcases[i].tables
    type_name, label, root = settings(document)[i]
    operation, width = OPERATIONS[str(options["operation"])], BY_NAME[type_name].bytes
    elements = int(tables[0].columns.values[j]) // width
    counts = operation.counts(elements, width, int(str(options["ranks"])))

    def half(place: int) -> Half | None:
        checks = bool(options["checks"]) and (operation.checks_in_place or not place)
        return _half([_at(table, place, j) for table in tables[:3]], checks)

    stamps = options.get("timestamps")
    at = i * len(tables[0].columns.values) + j
    first = _at(tables[0], 0, j)
    return Row(
        operation.size(counts, width),
        counts.each,
        type_name,
        label,
        int(root),
        (half(0), half(1)),
        first.reason if first and first.value is None else "",
        stamps[at] if isinstance(stamps, list) and at < len(stamps) else "",
    )


def rows(document: Document) -> list[tuple[TestcaseResult, list[Row]]]:
    """Return all lines, by testcase."""
    return [
        (result, [row(document, i, j) for j in range(len(result.tables[0].columns.values))])
        for i, result in enumerate(document.testcases)
        if result.tables and i < len(settings(document))
    ]


def _at(table: Table, i: int, j: int) -> Cell | None:
    likely = i * len(table.columns.values) + j  # where all cells are there; there can be very many
    if likely < len(table.cells) and (table.cells[likely].row, table.cells[likely].column) == (i, j):
        return table.cells[likely]
    return next((cell for cell in table.cells if (cell.row, cell.column) == (i, j)), None)


def _half(cells: Sequence[Cell | None], checks: bool) -> Half | None:
    time, algorithm, bus = cells
    if not (time and algorithm and bus) or time.value is None:
        return None
    wrong = int(time.reason.split()[0]) if time.reason else 0
    per_iteration = time.samples
    return Half(
        time.value, algorithm.value or 0.0, bus.value or 0.0, wrong if checks else None, per_iteration
    )


def fixed(value: float, width: int) -> str:
    """Return a number in so many characters, with as many of two decimals as fit."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"[:width]


@dataclass(frozen=True)
class Spread:
    """Statistics of the times of iterations, in s; ``cv`` in percent."""

    min: float
    max: float
    mean: float
    p50: float
    p95: float
    p99: float
    deviation: float
    cv: float


def spread(times: Sequence[float]) -> Spread:
    """Return the statistics that nccl-tests shows; percentiles by the nearest rank."""
    ordered = sorted(times)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    deviation = math.sqrt(math.fsum((t - mean) ** 2 for t in ordered) / n)

    def rank(percent: int) -> float:
        return ordered[min(n - 1, -(-n * percent // 100) - 1)]

    return Spread(
        ordered[0], ordered[-1], mean, ordered[n // 2], rank(95), rank(99), deviation,
        100 * deviation / mean if mean else 0.0,
    )  # fmt: skip


def line(row: Row, options: Mapping[str, Any]) -> str:
    """Return the line of a size; a comment where nothing was measured."""
    if row.halves[0] is None:
        return f"# {row.size:>10}  {row.count:>12}  {row.type:>8}  not measured: {row.reason}\n"
    text = f"{row.size:12d}  {row.count:12d}  {row.type:>8}  {row.operator:>6}  {row.root:6d}"
    for half in row.halves:
        if half is None:
            continue
        wrong = "   N/A" if half.wrong is None else f"{half.wrong:6g}"
        text += (
            f"  {fixed(half.seconds / _MICRO, 7)}  {fixed(half.algorithm / GB, 6)}  "
            f"{fixed(half.bus / GB, 6)}  {wrong}"
        )
        if options.get("per_iteration"):
            s = spread(half.iterations[int(options["skip"]) :])
            numbers = (s.min / _MICRO, s.max / _MICRO, s.p99 / _MICRO, s.cv)
            text += "".join(f"  {fixed(number, 7)}" for number in numbers)
    return text + (f"{row.timestamp:>21}" if row.timestamp else "") + "\n"


def header(document: Document) -> str:
    """Return all that comes before the first size."""
    o = document.options
    version = nccl_version(document)
    step, kind = (o["factor"], "factor") if int(str(o["factor"])) > 1 else (o["step"], "bytes")
    lines = [
        f"# nccl-tests version {COMPATIBLE} nccl-headers={version} nccl-library={version}",
        f"# Collective test starting: {o['operation']}_perf",
        f"# nThread {o['threads']} nGpus {o['gpus']} minBytes {o['first_size']} maxBytes {o['last_size']} "
        f"step: {step}({kind}) warmup iters: {o['warmup']} iters: {o['iterations']} "
        f"agg iters: {o['aggregate']} validation: {o['checks']} graph: {o['graphs']} unalign: {o['unalign']}",
    ]
    blocking = {
        1: "each operation is waited for, then all ranks meet",
        2: "each operation is waited for",
        3: "each iteration is waited for, then all ranks meet, which does not count",
    }.get(int(str(o["blocking"])))
    if blocking:
        lines.append(f"# Blocking Enabled: {blocking}")
    if o["per_iteration"]:
        lines.append(f"# Per-Iteration Report: the slowest process of each iteration; skipped: {o['skip']}")
    if o["parallel_init"]:
        lines.append("# Parallel Init Enabled: each thread initialises its own ranks")
    if document.simulated:
        lines.append(f"# SIMULATED: no hardware was measured (machine {document.machine.name})")
    lines += [
        f"# wirespeed {document.version}: {o['ranks']} ranks of the collective in {o['processes']} "
        f"process{'es' if o['processes'] != 1 else ''} on {o['hosts']} host{'s' if o['hosts'] != 1 else ''}, "
        f"launched by: {o['launcher']}",
        f"# Transport: {o['transport']}",
        f"# Time-out: {format_time(float(str(o['timeout']))) if o['timeout'] else 'none'} for a stage (-T)",
        "#",
        "# Using devices",
    ]
    devices = o["devices"]
    lines += [f"# {text}" for text in devices] if isinstance(devices, list) else []
    return "\n".join([*lines, "#", *heads(o)]) + "\n"


def heads(options: Mapping[str, Any]) -> list[str]:
    """Return the three lines above the columns."""
    time = "cputime" if options["cpu_time"] else "time"
    wide = 4 * 9 if options["per_iteration"] else 0
    named = f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    units = f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    for _ in range(2):
        named += f"  {time:>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
        units += f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
        if wide:
            named += "".join(f"  {head:>7}" for head in _ITERATION_HEADS)
            units += "".join(f"  {unit:>7}" for unit in ("(us)", "(us)", "(us)", "(%)"))
    stamp = options["timestamps"] is not None
    above = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    each = 33 + wide
    above += f" {'out-of-place':^{each}}{'in-place':^{each}}"
    return [
        above.rstrip() + " " * 10,
        named + " " + (f"{'timestamp':>19}" if stamp else ""),
        units + " " + ("%Y-%m-%d %H:%M:%S" if stamp else ""),
    ]


def average(document: Document) -> float | None:
    """Return the mean bus bandwidth over all sizes, out of place and in place, in B/s."""
    values = [
        half.bus for _, some in rows(document) for row in some for half in row.halves if half is not None
    ]
    return math.fsum(values) / len(values) if values else None


def wrong_rows(document: Document) -> int:
    """Return how many results had wrong elements."""
    return sum(bool(half and half.wrong) for _, some in rows(document) for row in some for half in row.halves)


def fast_enough(document: Document) -> bool | None:
    """Return whether the mean is what was asked for; None where nothing was."""
    least, mean = document.options.get("minimum_bandwidth"), average(document)
    if least is None:
        return None
    return mean is not None and mean >= float(str(least)) * _ACCEPTED


def footer(document: Document) -> str:
    """Return all that comes after the last size."""
    errors, mean, passed = wrong_rows(document), average(document), fast_enough(document)
    verdict = "" if passed is None else "OK" if passed else "FAILED"
    lines = [
        f"# {'Out of bounds values':<20} : {errors} {'FAILED' if errors else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {(mean or 0.0) / GB:g} {verdict}",
        "#",
    ]
    memory = document.options.get("memory")
    if isinstance(memory, list):
        lines.append(f"# {'GPU memory usage':<20} : {' | '.join(memory)}")
    for result in document.testcases:
        lines += [f"# {result.name}: warning: {text}" for text in result.warnings]
        if result.status is not Status.PASSED:
            lines.append(f"# {result.name}: {result.status}: {result.reason}")
    if document.interrupted:
        lines.append(f"# the run ended early: {document.interrupted}")
    if document.simulated:
        lines.append("# SIMULATED: no hardware was measured")
    return (
        "\n".join([*lines, f"# Collective test concluded: {document.options['operation']}_perf", "#"]) + "\n"
    )


def nccl_version(document: Document) -> int:
    """Return NCCL's version as it numbers it; 0 where it was not used."""
    parts = document.libraries.get("nccl", "0.0.0").split(".")
    major, minor, patch = (int(part) for part in (*parts, "0", "0")[:3])
    return major * 10000 + minor * 100 + patch


def render(document: Document, style: Style) -> str:
    """Return the text of a run of collectives; of other testcases the names."""
    del style
    if not settings(document):
        names = "".join(f"# {result.name}: not a collective\n" for result in document.testcases)
        mark = "# SIMULATED: no hardware was measured\n" if document.simulated else ""
        return f"# This run has no collectives; `--format table` shows it\n{mark}{names}"
    lines = [line(row, document.options) for _, some in rows(document) for row in some]
    return header(document) + "".join(lines) + footer(document)


def memory_lines(taken: dict[str, int]) -> list[str]:
    """Return what device memory was taken for what, and the sum."""
    return [
        *(f"{name} {format_size(size)}" for name, size in taken.items()),
        f"Total {format_size(sum(taken.values()))}",
    ]
