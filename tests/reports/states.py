"""A page in each state that a reader may meet, from simulated machines and a recorded run.

The images of the documentation and the audit of accessibility show them. They are the same each time.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.faults import parse_fault
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.features.fleet.page import fleet_page
from wirespeed.hardware.topology import Machine
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.gates import load as load_gates
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.reports.html.page import page

RECORDED = Path(__file__).parents[1] / "recorded"
NVLINKS = "+nvlinks=6@gpu3"
#: Two groups of nodes: the driver of the slower one, and its speed of NVLink.
OLD_DRIVER, SLOWER = "575.57.08", 0.95


def still(document: Document, host: str = "node17", minute: int = 40) -> Document:
    """Return a run without what differs from run to run."""
    started = f"2026-11-22T09:{minute:02}:00Z"
    return replace(
        document,
        host=host,
        machine=dataclasses.replace(document.machine, host=host),
        python="3.13.5",
        command="wirespeed check",
        started=started,
        ended=started.replace(":00Z", ":31Z"),
        seconds=31.0,
        testcases=tuple(replace(one, started=started, seconds=0.5) for one in document.testcases),
        ranks=tuple(replace(rank, pid=1, host=host) for rank in document.ranks),
    )


@functools.cache
def run(
    machine: str, *testcases: str, host: str = "node17", seed: int = 0, size: str | None = None
) -> Document:
    """Measure a simulated machine; the quick tier without testcases."""
    document = wirespeed.run(testcases, machine=f"simulated:{machine}", tier="quick", seed=seed, size=size)
    return still(document, host)


def command(*words: str) -> Document:
    """Return the run that a command saves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        main([*words, "--output", str(file)])
        return still(wirespeed.load(file))


def sixteen() -> Machine:
    """Return two DGX A100s as one machine with four sockets, all GPUs on one NVSwitch."""
    one = MACHINES["dgx-a100-8"]()

    def second(name: str) -> str:
        at = re.fullmatch(r"(gpu|pcie|numa)(\d+)", name)
        return f"{at[1]}{int(at[2]) + {'gpu': 8, 'pcie': 4, 'numa': 2}[at[1]]}" if at else name

    names = tuple(f"gpu{i}" for i in range(16))
    more = [
        dataclasses.replace(gpu, index=gpu.index + 8, numa=gpu.numa + 2, uuid=gpu.uuid + "b")
        for gpu in one.gpus
    ]
    sockets = [
        dataclasses.replace(node, index=node.index + 2, cpus=tuple(cpu + 128 for cpu in node.cpus))
        for node in one.numa
    ]
    return dataclasses.replace(
        one,
        name="sixteen-gpus",
        numa=tuple(dataclasses.replace(node, distances=()) for node in (*one.numa, *sockets)),
        gpus=tuple(
            dataclasses.replace(gpu, peers=tuple(name for name in names if name != gpu.name))
            for gpu in (*one.gpus, *more)
        ),
        links=one.links
        + tuple(
            dataclasses.replace(link, source=second(link.source), destination=second(link.destination))
            for link in one.links
        ),
    )


def of_sixteen() -> str:
    """Return the page of a machine with 16 GPUs; one link is slow."""
    cases = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce",
             "device_to_device_memcpy_write_ce", "device_stream_triad", "host_stream_triad")  # fmt: skip
    machine = sixteen()
    slow = dataclasses.replace(machine, faults=(parse_fault("speed@gpu11-pcie5=0.5", machine),))
    return page([still(wirespeed.run(cases, machine=slow, samples=5))])


def checked(machine: str, gates: str) -> str:
    """Return the page of ``wirespeed check --gates``."""
    document = run(machine)
    return page([Judged(document, Criteria(gates=(load_gates(gates),)))])


def recorded() -> Document:
    """Return nvbandwidth's whole suite on two H200s, as it was recorded."""
    return wirespeed.load(RECORDED / "two-h200.json")


def compared(count: int, machine: str = "dgx-a100-8", fault: str = NVLINKS) -> str:
    """Return a comparison of several runs; the second one and every twentieth have a fault."""
    slow = dict.fromkeys(range(1, count, 20), fault) | ({4: "+speed@numa0-gpu1=0.5"} if count > 10 else {})
    runs = [run(machine + slow.get(i, ""), seed=i % 8) for i in range(count)]
    return page(runs, labels=[f"node17-week{i + 1:02}.json" for i in range(count)])


def fleet(count: int, machine: str = "dgx-a100-8") -> str:
    """Return many nodes: some have faults, and an older driver makes NVLink of every third one slower."""
    old = dataclasses.replace(
        parse(machine),
        driver=OLD_DRIVER,
        faults=parse("+".join((machine, f"speed@nvswitch={SLOWER}"))).faults,
    )
    good = [run(machine, seed=seed) for seed in range(4)]
    slower = [still(wirespeed.run(machine=old, tier="quick", seed=seed)) for seed in range(4)]
    bad = [run(machine + fault) for fault in (NVLINKS, "+speed@gpu5-pcie2=0.5", "+busy@gpu1")]
    found = [run_summary(Judged(one)) for one in (*good, *slower, *bad)]
    chosen = [i % 4 + 4 * (i % 3 == 2) for i in range(count)]
    for i in range(len(bad)):
        chosen[i * 7 % count + i * (count // 5)] = 8 + i
    return fleet_page(
        [
            dataclasses.replace(found[k], file=f"node{i:03}.json", host=f"node{i:03}")
            for i, k in enumerate(chosen)
        ]
    )


TRANSFERS = "gpu0 -> gpu1; gpu1 -> gpu0; numa0 -> gpu2; gpu3 -> numa0"
#: Name of a state -> its page.
STATES: dict[str, Callable[[], str]] = {
    "pass": lambda: page([run("dgx-a100-8")]),
    "warn": lambda: page([run("dgx-a100-8+speed@gpu2-nvswitch=0.92")]),
    "fail": lambda: page([run(f"dgx-a100-8{NVLINKS}")]),
    "fail-no-cause": lambda: page([run("dgx-a100-8+speed@gpu5-pcie2=0.5")]),
    "wrong-data": lambda: page([run("dgx-a100-8+corrupt@gpu3->gpu5")]),
    "busy": lambda: page([run("dgx-a100-8+busy@gpu1")]),
    "not-judged": lambda: page([run("dgx-a100-8", "0", "4", size="1MiB")]),
    "gates": lambda: checked(f"dgx-a100-8{NVLINKS}", "azure"),
    "no-gpu": lambda: page([run("cpu-2-sockets")]),
    "two-gpus": lambda: page([recorded()]),
    "sixteen-gpus": of_sixteen,
    "seventy-two-gpus": lambda: page([run("nvl72", "multinode_device_to_device_memcpy_read_ce")]),
    "collectives": lambda: page([command("all_reduce_perf", "--machine", "simulated:dgx-a100-8", "-g", "8",
                                         "-b", "1K", "-e", "1G", "-f", "4")]),
    "transfers": lambda: page([command("transfer", "--machine", "simulated:dgx-a100-8", TRANSFERS)]),
    "two-runs": lambda: compared(2),
    "seven-runs": lambda: compared(7),
    "fifty-runs": lambda: compared(50, "hgx-h200-2", "+nvlinks=9@gpu1"),
    "twelve-nodes": lambda: fleet(12),
    "five-hundred-nodes": lambda: fleet(500),
}  # fmt: skip
