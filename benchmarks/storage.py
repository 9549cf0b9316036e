"""Compare reads and writes of storage with fio: same engine, block size and depth, O_DIRECT.

The engines are threads (`psync` of fio) and `io_uring`; buffers are in huge pages if large enough.
Short samples of both alternate in the same folder, on files of the same size, after a pause as long as the
start of fio: a rate limiter may allow more after one.
Prints the median rate of each, and the median of the ratios of neighbouring samples, which should be at least
0.97. A load on the CPUs changes both of a pair, so that it matters little to their ratio. Needs `fio`
(Debian: `apt install fio`).

    python -P benchmarks/storage.py DIR [--rounds 21] [--seconds 0.2] [--size 1GiB] [--only io_uring read]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from wirespeed.backends import discover
from wirespeed.features.storage.backend import StorageBackend
from wirespeed.features.storage.folder import with_folder
from wirespeed.features.storage.testcases import TESTCASES
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, FileCalls
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.units import GB, KIB, MIB, format_size, parse_size

#: Minimum of the rate over that of fio.
GOAL = 0.97
#: Engine -> that of fio.
ENGINES = {Engine.IO: "psync", Engine.IO_URING: "io_uring"}
#: What is compared: name of the way in fio, block size and depth.
CASES = (
    ("read", MIB, 1), ("read", MIB, 16), ("read", 16 * MIB, 4),
    ("write", MIB, 1), ("write", MIB, 16),
    ("randread", 4 * KIB, 1), ("randread", 4 * KIB, 16), ("randread", 4 * KIB, 64),
)  # fmt: skip


def measurement(machine: Machine, engine: Engine, way: str, block: int, depth: int) -> Measurement:
    """The Measurement of wirespeed that does what fio does."""
    names = {"read": "storage_read", "write": "storage_write", "randread": "storage_random_read"}
    (case,) = (case for case in TESTCASES if case.name == names[way])
    planned = case.plan(machine, PlanOptions(size=block)).measurements
    (transfer,) = planned[0].transfers
    calls = FileCalls(block, depth, way == "randread")
    return Measurement((replace(transfer, engine=engine, bytes=block * depth, calls=calls),), ())


def of_fio(
    folder: Path, engine: Engine, way: str, block: int, depth: int, seconds: float, size: int
) -> tuple[float, float]:
    """The rate of fio in B/s, and the time that it takes besides in s; the first call makes its file."""
    began = time.monotonic()
    command = [
        "fio", "--name=peer", f"--filename={folder / 'peer'}", f"--rw={way}", f"--bs={block}",
        f"--size={size}", "--thread", "--direct=1", f"--ioengine={ENGINES[engine]}",
        f"--runtime={round(seconds * 1000)}ms", "--time_based", "--group_reporting", "--output-format=json",
    ]  # fmt: skip
    if engine is Engine.IO_URING:
        command += [f"--iodepth={depth}"]
    else:
        increment = size // depth // block * block if way != "randread" else 0
        command += [f"--numjobs={depth}", f"--offset_increment={increment}"]
    huge = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # of malloc, since glibc 2.35
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **huge})
    job = json.loads(done.stdout)["jobs"][0]["write" if way == "write" else "read"]
    return float(job["bw_bytes"]), max(0.0, time.monotonic() - began - job["runtime"] / 1000)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rounds", type=int, default=21)
    arguments.add_argument("--seconds", type=float, default=0.2, help="time of a sample")
    arguments.add_argument("--size", type=parse_size, default=parse_size("1GiB"))
    arguments.add_argument("--only", nargs="+", default=[], help="only these engines and ways of fio")
    options = arguments.parse_args()
    if shutil.which("fio") is None:
        print("fio is not installed: apt install fio", file=sys.stderr)
        return 2
    machine = with_folder(discover(), str(options.folder.absolute()), 2 * options.size)
    backend, lowest = StorageBackend(machine), float("inf")
    engines = [each for each in ENGINES if each in options.only or not {*ENGINES} & {*options.only}]
    ways = {way for way, *_ in CASES} & {*options.only} or {way for way, *_ in CASES}
    chosen = [case for case in CASES if case[0] in ways]
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for engine, (way, block, depth) in ((engine, case) for engine in engines for case in chosen):
                peer = partial(of_fio, Path(folder), engine, way, block, depth, options.seconds, options.size)
                what = measurement(machine, engine, way, block, depth)
                with backend.prepare(what, RunOptions()) as prepared:
                    _, pause = peer()
                    copies, wall = 1, prepared.sample(1).wall
                    while wall < options.seconds / 2:
                        copies = round(copies * min(16.0, options.seconds / wall)) + 1
                        wall = prepared.sample(copies).wall
                    ours, theirs = [], []
                    for _ in range(options.rounds):
                        time.sleep(pause)
                        sample = prepared.sample(copies)
                        prepared.verify()
                        ours.append(sample.amounts[0] / sample.wall)
                        rate, pause = peer()
                        theirs.append(rate)
                before = [theirs[0], *theirs]
                ratios = [a / b for near in (theirs, before) for a, b in zip(ours, near, strict=False)]
                ratio = statistics.median(ratios)
                lowest = min(lowest, ratio)
                print(
                    f"{engine:>8} {way:>8} {format_size(block):>7} x {depth:<3} "
                    f"{statistics.median(ours) / GB:7.3f} GB/s, fio {statistics.median(theirs) / GB:7.3f}, "
                    f"ratio {ratio:.3f}",
                    flush=True,
                )
    finally:
        backend.close()
    print(f"lowest ratio {lowest:.3f}, goal {GOAL}")
    return 0 if lowest >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
