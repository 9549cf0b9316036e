"""Compare wirespeed with nvbandwidth: wall times, the ratio of every cell, and variation between runs.

    python benchmarks/vs_nvbandwidth.py PATH_OF_NVBANDWIDTH [--runs 5] [-t TESTCASE ...] [--compat 0.8]

The programs run alternately, with their defaults, and one parser reads the text of both. The exit code is 1
if a goal is missed: at least 0.99 of the peer's median in every cell, 1.00 of its sum in every SM table,
latencies within 3 %, and the whole suite in a fifth of the peer's wall time.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

Cells = dict[tuple[str, int, int], float]


def parse(text: str) -> Cells:
    """Return the cells of nvbandwidth's text: (key of the table's SUM line, row, column) -> value."""
    cells: Cells = {}
    rows: list[list[str]] = []
    for line in text.splitlines():
        if match := re.match(r"SUM (\S+) ", line):
            for i, row in enumerate(rows):
                cells |= {(match[1], i, j): float(v) for j, v in enumerate(row) if v != "N/A"}
        elif re.fullmatch(r"\s*\S+(\s+(N/A|\d+\.\d+))+", line):
            rows.append(line.split()[1:])
        elif line.strip() and not re.fullmatch(r"[\s\d]+", line):
            rows = []
    return cells


def run(command: list[str], log: Path | None) -> tuple[float, Cells]:
    """Run a program; return its wall time in s and its cells."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    if log:
        with log.open("a") as file:
            file.write(f"$ {' '.join(command)}   # {wall:.2f} s, exit code {done.returncode}\n")
            file.write(done.stdout + done.stderr + "\n")
    if done.returncode:
        sys.exit(f"{command[0]} failed with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return wall, parse(done.stdout)


def spread(values: list[float]) -> float:
    """Return the coefficient of variation; 0 for a single value."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def main() -> int:
    """Compare both programs, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("nvbandwidth", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("-t", "--testcase", nargs="+", default=[])
    parser.add_argument("--log", type=Path, help="file to append all output to")
    parser.add_argument("--compat", default="0.10", choices=["0.10", "0.8"], help="version of nvbandwidth")
    options = parser.parse_args()
    chosen = ["-t", *options.testcase] if options.testcase else []
    programs = {
        "peer": [str(options.nvbandwidth), *chosen],
        "ours": [sys.executable, "-m", "wirespeed", "nvbandwidth", "--compat", options.compat, *chosen],
    }
    walls: dict[str, list[float]] = defaultdict(list)
    cells: dict[str, dict[tuple[str, int, int], list[float]]] = {p: defaultdict(list) for p in programs}
    for _ in range(options.runs):
        for name, command in programs.items():
            wall, found = run(command, options.log)
            walls[name].append(wall)
            for key, value in found.items():
                cells[name][key].append(value)
    missed = report(cells["peer"], cells["ours"])
    peer, ours = (statistics.median(walls[name]) for name in ("peer", "ours"))
    print(f"\nwall time, median of {options.runs}: peer {peer:.2f} s, ours {ours:.2f} s, {ours / peer:.3f}")
    if not chosen and ours > peer / 5:
        missed.append(f"the suite takes {ours / peer:.2f} of the peer's time")
    if len(options.testcase) == 1 and ours > peer:
        missed.append(f"one testcase takes {ours / peer:.2f} of the peer's time")
    for text in missed:
        print(f"missed: {text}")
    return int(bool(missed))


def report(
    peer: dict[tuple[str, int, int], list[float]], ours: dict[tuple[str, int, int], list[float]]
) -> list[str]:
    """Print a line per table, and return the missed goals."""
    missed = []
    print(f"{'table':<56}{'peer':>9}{'ours':>9}{'ratio':>7}{'lowest':>8}{'cv peer':>9}{'cv ours':>9}")
    for table in dict.fromkeys(key[0] for key in peer):
        keys = [key for key in peer if key[0] == table and key in ours]
        if not keys:
            missed.append(f"{table} is missing")
            continue
        pairs = [(statistics.median(peer[k]), statistics.median(ours[k])) for k in keys]
        total = sum(b for _, b in pairs) / sum(a for a, _ in pairs)
        ratios = [b / a for a, b in pairs]
        varies = [statistics.fmean(spread(of[k]) for k in keys) for of in (peer, ours)]
        print(
            f"{table:<56}{sum(a for a, _ in pairs):9.2f}{sum(b for _, b in pairs):9.2f}{total:7.3f}"
            f"{min(ratios):8.3f}{varies[0]:9.2%}{varies[1]:9.2%}"
        )
        if "latency" in table:
            if max(abs(r - 1) for r in ratios) > 0.03:
                missed.append(f"{table}: {total:.3f} of the peer's latency")
            continue
        if min(ratios) < 0.99:
            missed.append(f"{table}: a cell at {min(ratios):.3f}")
        if "_sm" in table and total < 1.0:
            missed.append(f"{table}: the sum at {total:.3f}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
