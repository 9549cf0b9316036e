"""Compare the time per operation with NVIDIA's nccl-tests, with the same options and the same NCCL.

    python benchmarks/vs_nccl_tests.py DIR [-g 2] [--operations all_reduce,...] [--rounds 3]

``DIR`` contains the binaries of nccl-tests (``all_reduce_perf``, ...), and those built with MPI=1 and
NAME_SUFFIX=_mpi (``all_reduce_perf_mpi``, ...), without which processes are not compared. Both programs
must load the same libnccl.so.2: put its folder on LD_LIBRARY_PATH. They run alternately. Prints the ratio,
wirespeed over nccl-tests, for each size in every mode, and for the same command line in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

#: Mode -> command of nccl-tests, and options of wirespeed. ``N`` stands for the number of GPUs.
MODES = {
    "one thread": (["PERF", "-g", "N"], ["-g", "N", "--launch", "here"]),
    "a thread per GPU": (["PERF", "-t", "N", "-g", "1"], ["-t", "N", "-g", "1"]),
    "a process per GPU": (
        ["mpirun", "-n", "N", "PERF_mpi", "-g", "1"],
        ["-g", "N", "--launch", "processes"],
    ),
    "graph": (["PERF", "-g", "N", "-G", "1"], ["-g", "N", "-G", "1", "--launch", "here"]),
    "same command line": (["PERF", "-g", "N"], ["-g", "N"]),
}
SWEEPS = (["-b", "8", "-e", "64K", "-f", "8"], ["-b", "1M", "-e", "256M", "-f", "4"])
OURS = [sys.executable, "-m", "wirespeed"]
Times = dict[int, tuple[float, float]]


def measure(command: list[str], limit: float) -> tuple[Times, float]:
    """Return size -> times of an operation in s (out of place, in place), and mean bus bandwidth in GB/s."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        environment = {"NCCL_NVLS_ENABLE": "0", **os.environ}
        done = subprocess.run(
            [*command, "-J", str(path)], capture_output=True, text=True, timeout=limit, env=environment
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = json.loads(path.read_text())
    times = {
        row["size"]: (row["out_of_place"]["time"] * 1e-6, row["in_place"]["time"] * 1e-6)
        for row in found["results"]
    }
    return times, found["average_bus_bandwidth"]["bandwidth"]


def compare(folder: Path, operation: str, mode: str, gpus: int, rounds: int, more: list[str]) -> list[str]:
    """Return the lines of a mode: for each size the medians over the rounds and their ratio."""
    words = {
        "N": str(gpus),
        "PERF": str(folder / f"{operation}_perf"),
        "PERF_mpi": str(folder / f"{operation}_perf_mpi"),
    }
    theirs, ours = ([words.get(o, o) for o in options] for options in MODES[mode])
    lines = []
    for sweep in SWEEPS:
        runs: tuple[list[Times], list[Times]] = ([], [])
        bandwidths: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for i, program in enumerate((theirs, [*OURS, f"{operation}_perf", *ours])):
                command = [*program, *sweep, *more]
                times, bandwidth = measure(command, 120)
                runs[i].append(times)
                bandwidths[i].append(bandwidth)
        for size in runs[0][0]:
            peer, own = (statistics.median(statistics.fmean(t[size]) for t in some) for some in runs)
            numbers = f"{size:>12} {peer * 1e6:>10.2f} {own * 1e6:>10.2f} {own / peer:>6.3f}"
            lines.append(f"{operation:<15} {mode:<18} {numbers}")
        ratio = statistics.median(bandwidths[1]) / statistics.median(bandwidths[0])
        lines.append(f"{operation:<15} {mode:<18} {'mean busbw':>12} {'':>10} {'':>10} {ratio:>6.3f}")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("-g", "--gpus", type=int, default=2)
    parser.add_argument("--operations", default="all_reduce")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--rounds", type=int, default=3)
    options, more = parser.parse_known_args()
    print(f"{'operation':<15} {'mode':<18} {'bytes':>12} {'theirs us':>10} {'ours us':>10} {'ratio':>6}")
    for operation in options.operations.split(","):
        for mode in options.modes.split(","):
            binary = options.folder / f"{operation}_perf_mpi"
            if "mpirun" in MODES[mode][0] and not binary.exists():
                print(f"{operation:<15} {mode:<18} not compared: {binary} is missing")
                continue
            for line in compare(options.folder, operation, mode, options.gpus, options.rounds, more):
                print(line, flush=True)


if __name__ == "__main__":
    main()
