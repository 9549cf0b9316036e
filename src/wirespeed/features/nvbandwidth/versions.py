"""The testcases of each version of nvbandwidth and of sailbandwidth, with their numbers and in their order.
The numbers of testcases between processes in 0.10 are derived, because its published lists end at 43; of 0.11
only two names are published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from ...errors import UnknownTestcase
from ...hardware.topology import Machine
from ...measurement import Reduce
from ...model import Access, Engine
from ...testcases import device, processes
from ...testcases.base import Pattern, Plan, PlanOptions, Testcase
from ...testcases.patterns import gpus, ranks, star
from ...testcases.selections import named_pair, only_pairs, random_pairs
from ...testcases.table import TABLE, find, missing, select

#: How the names of testcases between processes begin.
PROCESSES = "multinode_"
_MULTICAST = "requires NVLink multicast objects, which wirespeed does not create"
#: Numbers of the two testcases of broadcasts in 0.10.
_BROADCASTS = {"one_to_all": 54, "all_to_all": 55}
_SPLIT = frozenset({"host_to_device_bidirectional_memcpy_sm", "device_to_host_bidirectional_memcpy_sm"})
_LATENCIES = frozenset({"host_device_latency_sm", "device_to_device_latency_sm"})
_LOCAL = frozenset({"device_local_copy"})
#: Version -> names of the testcases of 0.10 in one process that it lacks; it has those of several processes.
_LACKING = {
    "0.4": device.LATER | _SPLIT | _LATENCIES | _LOCAL,
    "0.8": device.LATER,
    "sailbandwidth-2.2.1": device.LATER
    | {f"{PROCESSES}device_to_device_broadcast_{name}_sm" for name in _BROADCASTS}
    | {f"{PROCESSES}bisect_write_ce"},
    "0.10": frozenset[str](),
    "0.11": frozenset[str](),
}
#: The version without testcases of several processes, and that in which the sender executes two reads.
_WITHOUT_PROCESSES, _PUSHING = "0.4", "0.8"
#: Testcase of such a read -> whether the column is the sender.
_PUSHED = {"all_to_one_read_sm": True, "one_to_all_read_sm": False}
#: Major compute capability from which GPUs have the Compute Fabric Transport.
_FABRIC_TRANSPORT = 10
#: Why other pairs are not measured.
_OTHER_PAIR, _NOT_CHOSEN = "not the pair of --pair", "not one of the pairs of --targetNumPairs"


def of_nvbandwidth(version: str) -> tuple[Testcase, ...]:
    """The testcases of a version of nvbandwidth, with its numbers, in its order.

    Args:
        version: 0.4, 0.8, 0.10 or 0.11; or sailbandwidth-2.2.1.
    """
    between = (
        () if version == _WITHOUT_PROCESSES
        else sorted((*processes.TESTCASES, *_broadcasts()), key=lambda case: case.index or 0)
    )  # fmt: skip
    kept = [case for case in (*device.TESTCASES, *between) if case.name not in _LACKING[version]]
    if version == "0.11":  # its numbers after those of 0.10 in one process are not published
        unnumbered = [replace(case, index=None) for case in between]
        return (*device.TESTCASES, _COUNTED, *unnumbered, _REDUCED)
    numbered = (replace(case, index=index) for index, case in enumerate(kept))
    return tuple(_pushing(case) if version == _PUSHING else case for case in numbered)


def listed(version: str, *, several: bool) -> list[Testcase]:
    """The testcases of one process, or of several processes too."""
    return [case for case in of_nvbandwidth(version) if several or not case.name.startswith(PROCESSES)]


def selected(
    names: Sequence[str], prefixes: Sequence[str], version: str, *, several: bool, exact: bool
) -> list[Testcase]:
    """The requested testcases; by default all of this kind of job.

    Args:
        names, prefixes: Names or numbers of testcases, or how names begin; not both.
        version: As for ``of_nvbandwidth``.
        several: Whether the job has several processes.
        exact: Whether a prefix that fits no testcase is ignored, as by nvbandwidth.

    Raises:
        UnknownTestcase: If no testcase starts with a prefix that is not ignored.
    """
    known = listed(version, several=several)
    if names:
        return [_found(name, version, known, exact=exact) for name in names]
    if prefixes and exact:
        return [case for case in known if case.name.startswith(tuple(prefixes))]
    return list(select(prefixes=prefixes, table=known))


def _found(name: str, version: str, known: Sequence[Testcase], *, exact: bool) -> Testcase:
    """A testcase; if it does not exist, one that reports this when it runs.

    The name of a testcase between processes is known in one process too, where it is waived.
    """
    if number := re.fullmatch(r"\s*([+-]?\d+)", name, re.ASCII):
        absent = missing(name, f"Testcase index {name} {'out of bound' if exact else 'not found'}!")
        return next((case for case in known if case.index == int(number[1])), absent)
    table = of_nvbandwidth(version)
    try:  # those between processes are those of this version
        return find(name, table if name.startswith(PROCESSES) else (*table, *TABLE))
    except UnknownTestcase:
        return missing(name, f"Testcase {name} not found!")


def restricted(
    cases: Iterable[Testcase], pair: Sequence[str] | None, pairs: int | None, seed: int
) -> list[Testcase]:
    """Testcases of which only some pairs are measured.

    Args:
        cases: The testcases.
        pair: UUIDs of the only pair of GPUs; None for all.
        pairs: Number of random pairs of processes; None for all.
        seed: Seed of their selection.
    """
    choose = partial(random_pairs, count=pairs or 0, seed=seed)
    if pair:
        cases = [only_pairs(case, partial(named_pair, uuids=pair), _OTHER_PAIR) for case in cases]
    return [
        only_pairs(case, choose, _NOT_CHOSEN)
        if pairs is not None and case.name.startswith(PROCESSES) else case for case in cases
    ]  # fmt: skip


def _pushing(case: Testcase) -> Testcase:
    """A read between one GPU and all others, executed by the sender as in the old versions."""
    if (column := _PUSHED.get(case.name)) is None:
        return case
    sender, receivers = ("the column's GPU", "all peers") if column else ("all peers", "the column's GPU")
    return replace(
        case,
        access=Access.WRITE,
        pattern=star(gpus, column_executes=column, reduce=Reduce.WALL),
        description=f"{sender} push to {receivers} at once; total",
    )


def _broadcasts() -> tuple[Testcase, ...]:
    return tuple(
        Testcase(
            f"{PROCESSES}device_to_device_broadcast_{name}_sm",
            "kernels copy into multicast memory of all ranks; not implemented",
            _waived(_MULTICAST, several=True), "", Engine.SM, Access.WRITE, index=index,
        )
        for name, index in _BROADCASTS.items()
    )  # fmt: skip


def _waived(reason: str, *, several: bool = False) -> Pattern:
    """The pattern of a testcase that is not implemented; the more general reasons come first."""

    def pattern(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        group = ranks(machine) if several else gpus(machine)
        return Plan.waive(group.lacks(2) or _old(machine, case) or reason)

    return pattern


def _old(machine: Machine, case: Testcase) -> str:
    """Which GPU lacks the Compute Fabric Transport that a testcase requires; empty if none does."""
    if case.name not in (_COUNTED.name, _REDUCED.name):
        return ""
    for gpu in machine.gpus:
        major = gpu.compute_capability.partition(".")[0]
        if major.isdigit() and int(major) < _FABRIC_TRANSPORT:
            return f"{gpu.name} has no Compute Fabric Transport (compute capability 10.0 or later)"
    return ""


_COUNTED = Testcase(
    "device_to_device_latency_counted",
    "latency of counted writes over the Compute Fabric Transport; not implemented",
    _waived("counted writes of the Compute Fabric Transport are not implemented"),
    "", Engine.SM, Access.WRITE,
)  # fmt: skip
_REDUCED = Testcase(
    f"{PROCESSES}multicast_reduce", "reductions in the NVLink switches; not implemented",
    _waived(_MULTICAST, several=True), "", Engine.SM,
)  # fmt: skip
