"""How often does the printed interval contain the value of the machine?

    python benchmarks/coverage.py "wirespeed run -t host_stream_copy -t host_latency" --runs 20
    python benchmarks/coverage.py --from FOLDER [--figure FILE.svg]

Runs a command of wirespeed in fresh processes, one after the other, and prints for each value how far it
varies from run to run, the half width of its interval, and how many intervals contain the median of all
runs. Of 20 intervals of 95 %, 19 are expected and 18 are required; the exit code is 1 if a value has fewer
than 90 %. A simulated machine gets a different ``--seed`` in each run. Prints Markdown. ``--keep FOLDER``
keeps the Documents, for ``benchmarks/compare_aa.py`` or a later ``--from``; ``--figure`` draws the intervals.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import wirespeed
from wirespeed.document import Document
from wirespeed.results.cells import Key, placed
from wirespeed.tables import Cell

#: Fraction of the intervals that must contain the median of all runs.
GOAL = 0.9


def measured(command: str, runs: int, folder: Path) -> list[float]:
    """Run a command several times, saving the Documents in a folder; return the time of each run, in s."""
    words = shlex.split(command)
    if words[0] == "wirespeed":
        words[:1] = [sys.executable, "-m", "wirespeed"]
    seconds = []
    for number in range(runs):
        seed = ["--seed", str(number)] if "simulated:" in command else []
        output = ["-o", str(folder / f"{number:03}.json"), "--force"]
        began = time.perf_counter()
        ended = subprocess.run(
            [*words, *seed, *output], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if ended.returncode:
            raise SystemExit(f"run {number} ended with {ended.returncode}: {ended.stderr[-500:]}")
        seconds.append(time.perf_counter() - began)
        print(f"\rrun {number + 1} of {runs}, {seconds[-1]:.1f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return seconds


def by_value(documents: Sequence[Document]) -> dict[Key, list[Cell]]:
    """Return the cells of all runs by their place."""
    found: dict[Key, list[Cell]] = {}
    for document in documents:
        for one in placed(document):
            if one.cell.value:
                found.setdefault(one.key, []).append(one.cell)
    return found


def contains(cell: Cell, value: float) -> bool:
    """Return whether a cell has an interval that contains a value."""
    return cell.interval is not None and cell.interval[0] <= value <= cell.interval[1]


def table(documents: Sequence[Document]) -> int:
    """Print the table; return the number of values with too few good intervals."""
    print("| value | variation from run to run (cv) | half width of the interval (median) | rounds (median) |"
          " intervals that contain the median |\n|---|---|---|---|---|")  # fmt: skip
    bad = good = total = 0
    for key, cells in by_value(documents).items():
        values = [cell.value or 0.0 for cell in cells]
        middle = statistics.median(values)
        known = [cell for cell in cells if cell.interval]
        hits = sum(contains(cell, middle) for cell in known)
        halves = [(cell.interval[1] - cell.interval[0]) / 2 / middle for cell in known if cell.interval]
        half = f"{statistics.median(halves):.2%}" if halves else "none"
        cv = f"{statistics.stdev(values) / statistics.fmean(values):.2%}" if len(values) > 1 else ""
        rounds = statistics.median(max(1, len(cell.rounds)) for cell in cells)
        place = f"{key.testcase} {key.place}"
        print(f"| {place} | {cv} | {half} | {rounds:g} | {hits} of {len(known)} |")
        bad += not known or hits < GOAL * len(known)
        good, total = good + hits, total + len(known)
    share = f", {good / total:.1%} of all intervals" if total else ""
    print(f"\n{len(documents)} runs, {bad} values below {GOAL:.0%}{share}")
    return bad


def draw(documents: Sequence[Document], path: Path) -> None:
    """Draw the interval of each value in each run, relative to the median of all runs."""
    from matplotlib.figure import Figure

    cells = {key: found for key, found in by_value(documents).items() if any(cell.interval for cell in found)}
    figure = Figure(figsize=(9, 1.0 + 1.1 * len(cells)), layout="constrained")
    every = figure.subplots(len(cells), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (key, found) in zip(every, cells.items(), strict=True):
        middle = statistics.median(cell.value or 0.0 for cell in found)
        axes.axhline(0, color="0.6", linewidth=1)
        for run, cell in enumerate(found, 1):
            if cell.interval and cell.value:
                ends = [100 * (end / middle - 1) for end in cell.interval]
                color = "tab:blue" if contains(cell, middle) else "tab:red"
                axes.plot([run, run], ends, color=color, linewidth=3, alpha=0.6, solid_capstyle="butt")
                axes.plot([run], [100 * (cell.value / middle - 1)], "o", color=color, markersize=3)
        axes.set_title(f"{key.testcase} {key.place}", fontsize="small", loc="left")
        axes.set_ylabel("%", fontsize="small")
    every[-1].set_xlabel("run; line: median of all runs; red: an interval that does not contain it")
    figure.savefig(path)


def main() -> int:
    """Run the command, or read its Documents, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("command", nargs="?", help="a command of wirespeed that measures")
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--keep", type=Path, help="folder for the Documents")
    arguments.add_argument("--from", dest="source", type=Path, help="folder with Documents of earlier runs")
    arguments.add_argument("--figure", type=Path, metavar="FILE.svg", help="draw the intervals")
    options = arguments.parse_args()
    if (options.command is None) == (options.source is None):
        arguments.error("give a command, or --from FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.source or options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.command:
            seconds = measured(options.command, options.runs, folder)
            print(f"`{options.command}`, {statistics.median(seconds):.1f} s per run\n")
        documents = [wirespeed.load(path) for path in sorted(folder.glob("*.json"))]
    if len(documents) < 2:
        raise SystemExit(f"{folder} has {len(documents)} runs; at least two are needed")
    if options.figure:
        draw(documents, options.figure)
    return int(table(documents) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
