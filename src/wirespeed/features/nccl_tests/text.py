"""nccl-tests' text output, with the columns at their positions, for scripts that parse them. Additional
information is on further lines that begin with ``#``. Lines are printed while their sizes are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...document import Document
from ...driver.listener import Filled, Listener
from ...judging.judged import Judged
from ...reports.style import Style
from ...tables import Cell, Half
from ...terminal import one_line, visible
from ...testcases.table import Testcase
from ...units import GB, MICRO, format_time
from .closing import footer, short
from .view import KEYS, Row, TestRun, View, has_collectives, row_of, short_bus, spread

if TYPE_CHECKING:
    from ...backends.collective_backend import CollectiveBackend

#: The nccl-tests version whose format this is.
COMPATIBLE = "2.19.6"
_ITERATION_HEADS = ("i_min", "i_max", "i_p99", "i_cv%")
#: The comment for ``-z``.
_BLOCKING = {
    1: "wait and barrier after each inner iteration (-m)",
    2: "wait after each inner iteration (-m), no barrier",
    3: "wait and barrier after each outer iteration (-n); time excludes barrier",
}


def fixed(value: float, width: int) -> str:
    """Format a number in a fixed width, with as many of two decimals as fit.

    Args:
        value: The number.
        width: Number of characters.

    Returns:
        The number, right-aligned; a power of ten if it is too wide.
    """
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"[:width]


def line(row: Row, options: TestRun) -> str:
    """The line for a size, or a comment if nothing was measured."""
    if row.halves[0] is None:
        return f"# {row.size:>10}  {row.count:>12}  {row.type:>8}  not measured: {row.reason}\n"
    return opening(row, options) + closing(row, options)


def opening(row: Row, options: TestRun) -> str:
    """The first part of a line, with the result out of place."""
    text = f"{row.size:12d}  {row.count:12d}  {row.type:>8}  {row.operator:>6}  {row.root:6d}"
    return text + _columns(row.halves[0], options)


def closing(row: Row, options: TestRun) -> str:
    """The rest of a line, with the result in place if there is one."""
    text = _columns(row.halves[1], options) + (f"{row.timestamp:>21}" if row.timestamp else "") + "\n"
    return text + "".join(_summary(row, half) for half in row.halves if half and row.parts)


def _columns(half: Half | None, options: TestRun) -> str:
    """The columns of a result; empty if there is none."""
    if half is None:
        return ""
    wrong = "  N/A" if half.wrong is None else f"{half.wrong:6g}"  # one less, as in nccl-tests
    text = (
        f"  {fixed(half.seconds / MICRO, 7)}  {fixed(half.algorithm / GB, 6)}  "
        f"{fixed(half.bus / GB, 6)}  {wrong}"
    )
    if options.per_iteration:
        s = spread(options.steady(half.iterations))
        numbers = (s.min / MICRO, s.max / MICRO, s.p99 / MICRO, s.cv)
        text += "".join(f"  {fixed(number, 7)}" for number in numbers)
    return text


def _summary(row: Row, half: Half) -> str:
    """Comments with the bytes and bandwidths of each rank of an all-to-all of unequal parts."""
    text = f"# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: {row.division} time_usec={half.seconds / MICRO:.2f}\n"
    for rank, (sent, received) in enumerate(row.parts):
        rate = max(sent, received) / half.seconds
        text += (
            f"#   rank={rank} send_bytes={sent} recv_bytes={received} alg_bw={rate / GB:.2f} "
            f"bus_bw={rate * (len(row.parts) - 1) / len(row.parts) / GB:.2f}\n"
        )
    return text


def header(view: View) -> str:
    """The lines before the headings: the options and the devices."""
    document, options, version = view.document, view.given, view.nccl_version
    step, kind = (options.factor, "factor") if options.factor > 1 else (options.step, "bytes")
    lines = [
        f"# nccl-tests version {COMPATIBLE} nccl-headers={version} nccl-library={version}",
        f"# Collective test starting: {options.program}",
        f"# nThread {options.threads} nGpus {options.gpus} minBytes {options.first_size} "
        f"maxBytes {options.last_size} step: {step}({kind}) warmup iters: {options.warmup} "
        f"iters: {options.iterations} agg iters: {options.aggregate} validation: {options.checks} "
        f"graph: {options.graphs} unalign: {options.unalign}",
    ]
    if blocking := _BLOCKING.get(options.blocking):
        lines.append(f"# Blocking Enabled: {blocking} ")
    if options.per_iteration:
        skipped = f"; summary skips first {options.skip} iterations" if options.skip else ""
        lines.append(f"# Per-Iteration Report: CUDA event timing; i_* uses max over process rows{skipped} ")
    if options.parallel_init:
        lines.append("# Parallel Init Enabled: threads call into NcclInitRank concurrently ")
    if document.simulated:
        lines.append(f"# SIMULATED: no hardware was measured (machine {one_line(document.machine.name)})")
    lines += [
        # No " on ": scripts take what follows it for the name of a host.
        f"# wirespeed {one_line(document.version)}: ranks: {options.ranks} processes: {options.processes} "
        f"hosts: {options.hosts} launched by: {one_line(options.launcher)}",
        f"# Time-out: {format_time(options.timeout) if options.timeout else 'none'} for a stage (-T)",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {r.rank:2d} Group {r.group:2d} Pid {r.pid:6d} on {one_line(short(r.host)):>10} "
        f"device {r.device:2d} [{one_line(short_bus(r.bus_id))}] {one_line(r.model)}"
        for r in document.ranks
    ]
    if options.reduced_to:
        lines += ["#", f"# Reducing maxBytes to {options.reduced_to} due to memory limitation"]
    return "\n".join(lines) + "\n"


def heads(options: TestRun) -> str:
    """The headings above the columns."""
    time = "cputime" if options.cpu_time else "time"
    wide = 4 * 9 if options.per_iteration else 0
    named = f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    units = f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    for _ in range(2):
        named += f"  {time:>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
        units += f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
        if wide:
            named += "".join(f"  {head:>7}" for head in _ITERATION_HEADS)
            units += "".join(f"  {unit:>7}" for unit in ("(us)", "(us)", "(us)", "(%)"))
    stamp = options.timestamps is not None
    above = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    if wide:
        more = " (+ per-iteration)"
        above += f"{'':14}out-of-place{more}{'':32}in-place{more}"
    else:
        above += f"{'':11}out-of-place{'':23}in-place{'':10}"
    named += " " + (f"{'timestamp':>19}" if stamp else "")
    units += " " + (f"{'%Y-%m-%d %H:%M:%S':>19}" if stamp else "")
    return f"#\n{above}\n{named}\n{units}\n"


def render(judged: Judged, style: Style) -> str:
    """The lines of a run of collectives; a run without any is listed by testcase."""
    document = judged.document
    if not has_collectives(document):
        names = "".join(f"# {one_line(result.name)}: not a collective\n" for result in document.testcases)
        mark = "# SIMULATED: no hardware was measured\n" if document.simulated else ""
        return f"# This run has no collectives; `--format table` shows it\n{mark}{names}"
    view = View(document)
    rows = [row for _, rows in view.rows for row in rows if row.halves[0] or view.is_complete]
    return header(view) + heads(view.given) + lines(view, rows) + footer(view)


def lines(view: View, rows: Sequence[Row]) -> str:
    """The lines of some sizes; in their place that of nccl-tests if it skips the run."""
    if view.is_skipped:
        return f"nRanks {view.given.ranks} is not a power of 2, skipping\n"
    return "".join(line(row, view.given) for row in rows)


class PrintedLines(Listener):
    """Listener that prints the header when the devices are known, and each result when it is measured.

    Attributes:
        sizes: Sizes of the array, in bytes.
        stamps: Time stamps of the lines so far, for the Document; None if not requested.
        live: Whether it prints.
    """

    def __init__(self, sizes: Sequence[int], stamps: list[str] | None, live: bool) -> None:
        self.sizes, self.stamps, self.live = sizes, stamps, live
        #: What measures; its ranks are known before they are connected.
        self.backend: CollectiveBackend | None = None
        self._document: Document | None = None
        self._begun = self._headed = False
        #: Whether a line has its first result.
        self._open = False
        self._view: View | None = None
        self._halves: dict[int, dict[str, Cell]] = {}
        self._case = -1
        self._held: list[Row] = []

    def run_started(self, document: Document, testcases: Sequence[Testcase]) -> None:
        self._document = document

    def testcase_started(self, case: Testcase, measurements: int) -> None:
        self._case += 1
        self._view = None

    def measuring(self, case: Testcase, done: int, stage: str) -> None:
        """Print the header while the ranks connect, and the headings while they warm up."""
        if not self.live or self._headed or self.backend is None or self._document is None:
            return
        details = self.backend.describe()
        if details.ranks:
            options = {**self._document.options, **details.options}
            libraries = self.backend.libraries()
            known = replace(self._document, ranks=details.ranks, options=options, libraries=libraries)
            self.begin(known)
            if self.backend.is_set_up:
                self.head(View(known))

    def measured(self, case: Testcase, cells: Sequence[Filled], known: Callable[[], Document]) -> None:
        """Print the first part of a line, and the rest when its size is measured in place too."""
        first = cells[0][1]
        j, in_place, stamp = first.column, first.row == 1, ""
        self._halves[first.row] = dict(cells)
        if in_place and self.stamps is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            self.stamps[self._case * len(self.sizes) + j :] = [stamp]
        if not self.live:
            return
        if self._view is None:
            self._view = View(known())
        info, options = self._view.document.testcases[-1].collective, self._view.given
        assert info is not None
        if not in_place:
            self._halves.pop(1, None)
        halves = [[self._halves.get(place, {}).get(key) for key in KEYS] for place in (0, 1)]
        row = row_of(case.name, info, self.sizes[j], halves, options, stamp)
        if self._open:
            self._open = False
            _write(closing(row, options))
        elif row.halves[0]:
            self.head(self._view)
            self._open = True
            _write(opening(row, options))
        elif in_place:
            self._held.append(row)
            if self._headed:
                self.head(self._view)

    def begin(self, document: Document) -> None:
        """Print the options and the devices, once."""
        if self.live and not self._begun:
            self._begun = True
            _write(header(View(document)))

    def head(self, view: View) -> None:
        """Print the headings, once, and the waiting lines; they wait because all settings may be refused."""
        self.begin(view.document)
        if not self._headed:
            self._headed = True
            _write(heads(view.given))
        if self._held or view.is_skipped:
            _write(lines(view, self._held))
        self._held.clear()

    def end(self, document: Document) -> None:
        """Print what is left, and the lines after the last size."""
        view = View(document)
        if self._open:
            _write("\n")
        self.head(view)
        _write(footer(view))


def _write(text: str) -> None:
    print(visible(text), end="", flush=True)
