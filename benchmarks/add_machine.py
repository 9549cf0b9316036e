"""Rows of norms from a saved run or the log of another tool, if it is a valid record of a good machine.

    python benchmarks/add_machine.py FILE --source ADDRESS [--date 2026-11] [--platform TEXT] [--add]

A file is refused, with the number of the rule, if one of these does not hold:

1. The source has an address, or is a page of docs/results.
2. It is a run of real hardware that was not interrupted.
3. Nothing in it is bad by its links: no warning, no failure, nothing missing.
4. All data was verified, or the log has no doubts.
5. No other process used the devices.
6. All GPUs are of one model with a data sheet.
7. The version of the tool is known, and of a run that of the driver.
8. It has a value of every path of its testcases, for all GPUs.

A row has the median over all GPUs or pairs. Without ``--add``, the rows are printed; with it, they are added
to ``src/wirespeed/data/norms``; then run ``pytest --update-golden tests/unit/test_norms.py``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import wirespeed
from wirespeed.data import gpu_sheet, norms
from wirespeed.document import Document
from wirespeed.judging.published import algorithm, subject_of
from wirespeed.judging.verdict import Verdict
from wirespeed.results.cells import placed
from wirespeed.results.store import decode
from wirespeed.statistics import grouped
from wirespeed.tables import BUSBW
from wirespeed.units import GB, format_size

FOLDER = Path(__file__).parents[1] / "src/wirespeed/data/norms"


def opened(path: Path, machine: str | None) -> Document:
    """A saved run, which may be compressed, or a log."""
    if path.suffix == ".gz":
        return decode(gzip.decompress(path.read_bytes()), path.name)
    return wirespeed.load(path) if path.suffix == ".json" else wirespeed.load_log(path, machine)


def objections(document: Document, source: str) -> Iterator[tuple[int, str]]:
    """Yield the rules that do not hold, with their numbers."""
    check = wirespeed.judge(document)
    if not re.match(r"https?://[^/]+/|docs/results/", source):
        yield 1, f"{source!r} is no address and no page of docs/results"
    if document.simulated or document.interrupted:
        yield 2, f"the run is {'simulated' if document.simulated else 'interrupted'}"
    if bad := [judgement for judgement in check.judgements if judgement.verdict.is_bad]:
        yield 3, f"{len(bad)} values are not as expected, such as {bad[0].key.testcase}: {bad[0].why}"
    if check.missing or check.defects:
        yield 3, str((*check.missing, *check.defects)[0])
    if check.doubts:
        yield 4, "; ".join(check.doubts)
    if busy := {name for result in document.testcases for name in result.busy}:
        yield 5, f"other processes used {', '.join(sorted(busy))}"
    models = {gpu.model for gpu in document.machine.gpus}
    if len(models) != 1 or not all(map(gpu_sheet, models)):
        yield 6, f"its GPUs are {', '.join(sorted(models)) or 'unknown'}"
    versions = [log.version for log in document.imported] or [document.version, document.machine.driver]
    if not all(versions):
        yield 7, "a version is not known"
    lacking = [
        key for key, cell, _, result in placed(document) if cell.value is None and not result.status.good
    ]
    if lacking or any(judgement.verdict is Verdict.INTERRUPTED for judgement in check.judgements):
        yield 8, f"{len(lacking)} values are missing"


def rows(document: Document, source: str, date: str, platform: str) -> Iterator[tuple[norms.Path, list[str]]]:
    """Yield the rows of a run with the path that they are of: a median over all devices."""
    (model,) = {re.sub(r"^(NVIDIA|Tesla) ", "", gpu.model) for gpu in document.machine.gpus}
    tool = next((f"{log.tool} {log.version}" for log in document.imported), f"wirespeed {document.version}")
    found = grouped(
        ((measured.key.testcase, measured.key.table, measured.key.bytes), measured)
        for measured in placed(document)
        if measured.cell.value and measured.cell.expected and not measured.cell.shared
    )
    largest: dict[tuple[str, str], int] = {}
    for name, table, size in found:
        largest[name, table] = max(size, largest.get((name, table), 0))
    for (name, table, size), cells in sorted(found.items()):
        run = cells[0].result.collective
        if size != largest[name, table] or (run and table != BUSBW):
            continue
        if run:
            how = algorithm(document, cells[0].result).name
            subject = (norms.Path.COLLECTIVE, "nccl", "", run.operation, str(run.ranks))
        elif (copy := subject_of(name)) and not table:
            how, (path, method, direction, operation) = "", copy
            subject = (path, method, direction, operation, "1" if path is norms.Path.GPU_MEMORY else "")
        else:
            continue
        twice = 2 if name == "device_local_copy" else 1  # it counts the bytes once
        rate = median(measured.cell.value or 0.0 for measured in cells) * twice
        path, method, direction, operation, count = subject
        note = f"driver {document.machine.driver}" if document.machine.driver else ""
        yield path, [
            model, "", path, method, direction, operation, count, format_size(size), how, f"{rate / GB:.2f}",
            "GB/s", norms.Kind.SEEN, source, date, tool, platform, note,
        ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="a saved run or a log")
    parser.add_argument("--source", required=True, help="address of the page that has it")
    parser.add_argument("--date", default=f"{datetime.now(UTC):%Y-%m}", help="year and month of the source")
    parser.add_argument("--platform", default="", help="cloud or system")
    parser.add_argument("--machine", help="machine of a log that does not name its GPUs")
    parser.add_argument("--add", action="store_true", help="add the rows to the files")
    options = parser.parse_args()
    document = opened(options.file, options.machine)
    broken = list(objections(document, options.source))
    for rule, why in broken:
        print(f"rule {rule}: {why}", file=sys.stderr)
    if broken:
        return 1
    for path, row in rows(document, options.source, options.date, options.platform):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        heading = ",".join(norms.HEADING)
        norms.read(f"{path}.csv", f"{heading}\n{text.getvalue()}")  # a row that cannot be read is refused
        if options.add:
            with (FOLDER / f"{path}.csv").open("a", encoding="utf-8") as file:
                file.write(text.getvalue())
        print(text.getvalue(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
