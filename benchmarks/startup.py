"""Measure the start-up time of ``--version``, ``list`` and ``--help``.

    python benchmarks/startup.py [RUNS]

Each command runs as a process, in turn with the others, after one untimed run. The exit code is 1 if a median
exceeds its goal.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

#: Command and the goal for its median, in s.
GOALS = {"--version": 0.15, "list": 0.25, "--help": 0.15}


def wall(argument: str) -> float:
    """Return the time of a command from start to exit, in s."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "wirespeed", argument], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    """Print median, minimum, maximum and goal of each command."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {argument: [] for argument in GOALS}
    for argument in GOALS:
        wall(argument)
    for _ in range(runs):
        for argument, found in times.items():
            found.append(wall(argument))
    print(f"{'command':<22}{'median':>8}{'min':>8}{'max':>8}{'goal':>8}   s, {runs} runs")
    for argument, found in times.items():
        row = (statistics.median(found), min(found), max(found), GOALS[argument])
        print(f"wirespeed {argument:<12}" + "".join(f"{value:8.3f}" for value in row))
    return int(any(statistics.median(found) > GOALS[argument] for argument, found in times.items()))


if __name__ == "__main__":
    raise SystemExit(main())
