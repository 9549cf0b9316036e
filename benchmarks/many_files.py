"""Time, memory and lines of ``wirespeed check`` of many saved runs.

Writes Documents of simulated nodes as ``fleet.py`` does, with a truncated file among them, and judges all.

    python benchmarks/many_files.py [--nodes 500] [--machine dgx-a100-8] [--folder DIR] [--format text]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet import MIB, make

from wirespeed.screens import check_formats


def check(folder: Path, format: str) -> None:
    """Judge all files of a folder as a user does, and print what it took."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "wirespeed", "check", "--allow-simulated", "--format", format]
    done = subprocess.run([*command, str(folder)], stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    used, text = resource.getrusage(resource.RUSAGE_CHILDREN), done.stdout
    if format == "text":
        print(text)
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"{len(list(folder.glob('*.json')))} files, exit code {done.returncode}")
    print(f"time             {seconds:8.1f} s, with a load of {load:.1f} on {cores} cores")
    print(f"CPU time         {used.ru_utime + used.ru_stime:8.1f} s")
    print(f"memory           {used.ru_maxrss / 1024:8.0f} MiB at most in a process")
    lines = text.count("\n")
    print(f"{format:<17}{lines:8} lines, {len(text) / MIB:.2f} MiB")


def main() -> None:
    """Make the Documents if there are none, and judge them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--machine", default="dgx-a100-8")
    arguments.add_argument("--format", default="text", choices=check_formats())
    arguments.add_argument("--folder", type=Path, help="keep the Documents here, and use those")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if len(list(folder.glob("node*.json"))) != options.nodes:
            first = make(folder, options.nodes, options.machine)[0]
            (folder / "truncated.json").write_bytes(Path(first).read_bytes()[:100_000])
        check(folder, options.format)


if __name__ == "__main__":
    main()
