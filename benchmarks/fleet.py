"""Time, memory and size of the page of many nodes.

Measures simulated machines with different seeds, two drivers, of which the older one slows copies between
GPUs, and some faults; then writes the page of all as ``wirespeed report`` does. Nodes of a kind share a
few runs, with other hosts: simulating each would take longer than what is measured.

    python benchmarks/fleet.py [--nodes 500] [--machine dgx-a100-8] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.cli.main import main as command
from wirespeed.document import Document
from wirespeed.hardware.devices import Fault, FaultKind
from wirespeed.hardware.topology import LinkKind
from wirespeed.results.store import save

#: Fault of a node -> fraction of the nodes that have it.
FAULTS = {"": 0.94, "+nvlinks=6@gpu0": 0.02, "+pcie-width=8@gpu3": 0.02, "+speed@gpu2-gpu2=0.7": 0.02}
#: The older driver, the fraction of the nodes that have it, and the factor of the speed of NVLink with it.
OLD_DRIVER, SHARE_OLD, SLOWER = "575.57.08", 0.3, 0.95
#: Runs of each kind, with different seeds.
SEEDS = 8
MIB = 2**20


def kinds(machine: str, old: bool, fault: str, seeds: int) -> list[Document]:
    """Measure a kind of node."""
    made = parse(machine + fault)
    if old:
        slower = tuple(
            Fault(FaultKind.SPEED, f"{link.source}->{link.destination}", SLOWER)
            for link in made.links
            if link.kind is LinkKind.NVLINK
        )
        made = replace(made, driver=OLD_DRIVER, faults=made.faults + slower)
    return [wirespeed.run(machine=made, tier="quick", seed=seed) for seed in range(seeds)]


def make(folder: Path, nodes: int, machine: str) -> list[str]:
    """Write Documents of many nodes and return their files."""
    draw = random.Random(0)
    runs = {
        (old, fault): kinds(machine, old, fault, 2 if fault else SEEDS)
        for old in (False, True)
        for fault in FAULTS
    }
    files = []
    for i in range(nodes):
        old = draw.random() < SHARE_OLD
        fault = draw.choices(list(FAULTS), list(FAULTS.values()))[0]
        run = draw.choice(runs[old, fault])
        host = f"node{i:03}"
        where = replace(run.machine, host=host)
        files.append(str(folder / f"{host}.json"))
        save(msgspec.structs.replace(run, host=host, machine=where), files[-1])
    return files


def report(files: list[str], output: Path) -> None:
    """Write the page, and print what it took."""
    start, before = time.perf_counter(), time.process_time()
    assert command(["report", *files, "-o", str(output)]) == 0
    seconds = time.perf_counter() - start
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = sum(one.ru_utime + one.ru_stime for one in (own, others)) - before
    size = sum(Path(file).stat().st_size for file in files)
    print(f"{len(files)} Documents of {size / len(files) / MIB:.2f} MiB")
    print(f"time             {seconds:8.1f} s")
    print(f"CPU time         {used:8.1f} s, of {len(os.sched_getaffinity(0))} cores")
    print(f"memory, parent   {own.ru_maxrss / 1024:8.0f} MiB at most")
    print(f"memory, a child  {others.ru_maxrss / 1024:8.0f} MiB at most")
    print(f"page             {output.stat().st_size / MIB:8.2f} MiB")


def main() -> None:
    """Make the Documents if there are none, and report."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=500)
    arguments.add_argument("--machine", default="dgx-a100-8")
    arguments.add_argument("--folder", type=Path, help="keep the Documents and the page here, and use those")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        files = sorted(map(str, folder.glob("node*.json")))
        if len(files) != options.nodes:
            files = make(folder, options.nodes, options.machine)
        report(files, folder / "fleet.html")


if __name__ == "__main__":
    main()
