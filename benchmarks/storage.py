"""Compare reads and writes of storage with fio: same engine (threads with O_DIRECT), block size and depth.

Samples of both alternate in the same folder, on files of the same size. Prints the median rate of each and
the ratio, which should be at least 0.97. Needs `fio` (Debian: `apt install fio`).

    python -P benchmarks/storage.py DIR [--rounds 9] [--seconds 0.5] [--size 1GiB]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from wirespeed.backends import discover
from wirespeed.backends.storage.backend import StorageBackend
from wirespeed.backends.storage.folder import with_folder
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import FileCalls
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.testcases.storage import TESTCASES
from wirespeed.units import GB, KIB, MIB, format_size, parse_size

#: Minimum of the rate over that of fio.
GOAL = 0.97
#: What is compared: name of the way in fio, block size and depth.
CASES = (
    ("read", MIB, 1), ("read", MIB, 16), ("read", 16 * MIB, 4),
    ("write", MIB, 1), ("write", MIB, 16),
    ("randread", 4 * KIB, 1), ("randread", 4 * KIB, 16), ("randread", 4 * KIB, 64),
)  # fmt: skip


def measurement(machine: Machine, way: str, block: int, depth: int) -> Measurement:
    """The Measurement of wirespeed that does what fio does."""
    names = {"read": "storage_read", "write": "storage_write", "randread": "storage_random_read"}
    (case,) = (case for case in TESTCASES if case.name == names[way])
    planned = case.plan(machine, PlanOptions(size=block)).measurements
    (transfer,) = planned[0].transfers
    calls = FileCalls(block, depth, way == "randread")
    return Measurement((replace(transfer, bytes=block * depth, calls=calls),), ())


def of_fio(folder: Path, way: str, block: int, depth: int, seconds: float, size: int) -> float:
    """The rate of fio, in B/s; its file exists from the first call on."""
    command = [
        "fio", "--name=peer", f"--filename={folder / 'peer'}", f"--rw={way}", f"--bs={block}",
        f"--size={size}", f"--numjobs={depth}", "--thread", "--direct=1", "--ioengine=psync",
        f"--runtime={seconds}", "--time_based", "--group_reporting", "--output-format=json",
        f"--offset_increment={size // depth // block * block if way != 'randread' else 0}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    job = json.loads(done.stdout)["jobs"][0]["write" if way == "write" else "read"]
    return float(job["bw_bytes"])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=float, default=0.5, help="time of a sample")
    arguments.add_argument("--size", type=parse_size, default=parse_size("1GiB"))
    options = arguments.parse_args()
    if shutil.which("fio") is None:
        print("fio is not installed: apt install fio", file=sys.stderr)
        return 2
    machine = with_folder(discover(), str(options.folder.absolute()), 2 * options.size)
    backend, ratios = StorageBackend(machine), []
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for way, block, depth in CASES:
                what = measurement(machine, way, block, depth)
                with backend.prepare(what, RunOptions()) as prepared:
                    of_fio(Path(folder), way, block, depth, options.seconds, options.size)
                    copies, wall = 1, prepared.sample(1).wall
                    while wall < options.seconds / 2:
                        copies = round(copies * min(16.0, options.seconds / wall)) + 1
                        wall = prepared.sample(copies).wall
                    ours, theirs = [], []
                    for _ in range(options.rounds):
                        sample = prepared.sample(copies)
                        prepared.verify()
                        ours.append(sample.amounts[0] / sample.wall)
                        theirs.append(of_fio(Path(folder), way, block, depth, options.seconds, options.size))
                own, peer = statistics.median(ours), statistics.median(theirs)
                ratios.append(own / peer)
                print(
                    f"{way:>8} {format_size(block):>7} x {depth:<3} {own / GB:7.3f} GB/s, "
                    f"fio {peer / GB:7.3f}, ratio {own / peer:.3f}",
                    flush=True,
                )
    finally:
        backend.close()
    print(f"lowest ratio {min(ratios):.3f}, goal {GOAL}")
    return 0 if min(ratios) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
