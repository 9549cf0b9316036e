"""Time, memory and lines of ``wirespeed check`` of many saved runs.

Writes Documents of simulated nodes as ``fleet.py`` does, with a truncated file among them, and judges all.

    python benchmarks/many_files.py [--nodes 500] [--machine dgx-a100-8] [--folder DIR] [--format text]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import tempfile
import time
from pathlib import Path

from fleet import MIB, make

from wirespeed.cli.check import FORMATS
from wirespeed.cli.main import main as command


def check(folder: Path, format: str) -> None:
    """Judge all files of a folder, and print what it took."""
    start, before = time.perf_counter(), time.process_time()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = command(["check", "--allow-simulated", "--format", format, str(folder)])
    seconds = time.perf_counter() - start
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = time.process_time() - before + others.ru_utime + others.ru_stime
    text = out.getvalue()
    if format == "text":
        print(text)
    print(f"{len(list(folder.glob('*.json')))} files, exit code {code}")
    print(f"time             {seconds:8.1f} s")
    print(f"CPU time         {used:8.1f} s, of {len(os.sched_getaffinity(0))} cores")
    print(f"memory, parent   {own.ru_maxrss / 1024:8.0f} MiB at most")
    print(f"memory, a child  {others.ru_maxrss / 1024:8.0f} MiB at most")
    lines = text.count("\n")
    print(f"{format:<17}{lines:8} lines, {len(text) / MIB:.2f} MiB")


def main() -> None:
    """Make the Documents if there are none, and judge them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--machine", default="dgx-a100-8")
    arguments.add_argument("--format", default=FORMATS[0], choices=FORMATS)
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
