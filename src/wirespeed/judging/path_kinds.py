"""The kinds of paths that data moves along, which testcases measure each, and of which no value was judged.

The verdict on a qualification of nodes, and what to say of it first.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from ..document import Document, Status
from ..hardware.devices import GPU, NUMA, DeviceKind, added
from ..hardware.facts import Known
from ..hardware.network import MachineVertices
from ..hardware.topology import Machine
from ..measurement import Unit
from ..qualification import OF_NODE, TCP, PartKind, Qualification, SlowPart, part_name
from ..results.cells import Key, Placed
from ..statistics import grouped
from .verdict import AT, Advice, Judgement, SuspectKind, Verdict, worst


@dataclass(frozen=True)
class PathKind:
    """What data moves along.

    Attributes:
        name: Name for programs.
        title: Name for people.
        prefixes: Prefixes of the names of its testcases.
        key_figures: Testcases of its key figure; the first group that was measured counts. Empty without a
            key figure.
        device: Kind of the devices at its ends; empty if it uses all at once.
    """

    name: str
    title: str
    prefixes: tuple[str, ...] = ()
    key_figures: tuple[tuple[str, ...], ...] = ()
    device: str = ""

    def __str__(self) -> str:
        return self.title


HOST_GPU = PathKind(
    "host_gpu",
    "host ↔ GPU",
    ("host_to_device", "device_to_host", "all_to_host", "host_to_all", "host_device",
     "blocks_host_to_device", "blocks_device_to_host", "blocks_both_ways", "blocks_host_to_all",
     "blocks_all_to_host"),
    (("host_to_device_memcpy_ce", "device_to_host_memcpy_ce"),
     ("host_to_device_memcpy_sm", "device_to_host_memcpy_sm")),
    GPU.name,
)  # fmt: skip
GPU_GPU = PathKind(
    "gpu_gpu",
    "GPU ↔ GPU",
    ("device_to_device", "all_to_one", "one_to_all", "blocks_device_to_device"),
    (("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"),
     ("device_to_device_memcpy_read_sm", "device_to_device_memcpy_write_sm")),
    GPU.name,
)  # fmt: skip
GPU_MEMORY = PathKind("gpu_memory", "GPU memory", GPU.testcases, GPU.key_figures, GPU.name)
HOST_MEMORY = PathKind(
    "host_memory", "host memory", (*NUMA.testcases, "blocks_host"), NUMA.key_figures, NUMA.name
)
COLLECTIVES = PathKind(
    "collectives", "collectives", (), (("all_reduce",), ("all_gather",), ("reduce_scatter",), ("alltoall",))
)
PROCESSES = PathKind(
    "processes",
    "between processes",
    ("multinode", "message", "sharing"),
    (("multinode_device_to_device_memcpy_read_ce", "multinode_device_to_device_memcpy_write_ce"),),
    GPU.name,
)
OTHER = PathKind("other", "other")


def path_kinds() -> tuple[PathKind, ...]:
    """Return all kinds of paths, in the order in which people see them."""
    of_added = [path for kind in added() for path in _paths_of(kind)]
    return HOST_GPU, GPU_GPU, GPU_MEMORY, HOST_MEMORY, COLLECTIVES, PROCESSES, *of_added, OTHER


def _paths_of(kind: DeviceKind) -> tuple[PathKind, ...]:
    """Return the paths of a kind of device: with the host, and its memory if it executes transfers."""
    if not kind.engines:
        title = f"host ↔ {kind.words[0]}"
        return (PathKind(f"host_{kind.name}", title, kind.testcases, kind.key_figures, kind.name),)
    with_host = (f"{kind.name}_from_host", f"{kind.name}_to_host")
    prefixes = kind.testcases or (f"{kind.name}_",)
    return (
        PathKind(f"host_{kind.name}", f"host ↔ {kind.words[0]}", with_host, (with_host,), kind.name),
        PathKind(f"{kind.name}_memory", f"{kind.words[0]} memory", prefixes, kind.key_figures, kind.name),
    )


@lru_cache(maxsize=1024)
def path_kind(testcase: str, *, collective: bool = False) -> PathKind:
    """Return the kind of path of a testcase, by its name."""
    if collective:
        return COLLECTIVES
    fitting = (kind for kind in path_kinds() if kind.prefixes and testcase.startswith(kind.prefixes))
    return next(fitting, OTHER)


#: Kinds of paths of GPUs -> number of GPUs of a machine that has them.
_GPUS_OF = {HOST_GPU: 1, GPU_GPU: 2, GPU_MEMORY: 1, COLLECTIVES: 2}


def skipped(document: Document) -> Iterator[tuple[PathKind, str]]:
    """Yield the kinds of paths that the machine has, of which every testcase was skipped, with the reason."""
    by_kind = grouped(
        (path_kind(result.name, collective=result.collective is not None), result)
        for result in document.testcases
    )
    for kind, least in _GPUS_OF.items():
        results = by_kind.get(kind, [])
        if results and len(document.machine.gpus) >= least and all(
            result.status is Status.WAIVED for result in results
        ):  # fmt: skip
            yield kind, Counter(result.reason for result in results).most_common(1)[0][0]


@dataclass(frozen=True)
class Uncovered:
    """A kind of path of some devices of which no rate was judged, although a rate can be.

    Attributes:
        kind: The kind.
        devices: The devices at its ends; empty for the whole kind.
        verdict: Why not: busy, or unknown.
        why: The same in words.
        of_size: Whether larger buffers would be judged.
        of_run: The verdict on a run whose other values are as expected.
    """

    kind: PathKind
    devices: tuple[str, ...]
    verdict: Verdict
    why: str
    of_size: bool = False
    of_run: Verdict = Verdict.UNKNOWN

    def __str__(self) -> str:
        return f"{self.kind} of {', '.join(self.devices)}" if self.devices else str(self.kind)


def uncovered(
    judged: Sequence[Judgement],
    cells: Sequence[Placed],
    small: Container[Key],
    machine: Machine,
    *,
    is_log: bool = False,
) -> tuple[Uncovered, ...]:
    """Return the kinds of paths, and devices, of which no rate was judged, although a rate can be.

    A rate can be judged if only a device in use, a lack of memory or the size of the buffers prevents it. One
    that nothing on this machine limits, such as that of host memory of unknown capacity, cannot. Nobody chose
    what a log contains, or sees what it lacks: there, every kind of path with rates counts, as a whole.

    Args:
        judged: The judgements on the cells.
        cells: The cells, in the same order.
        small: The cells whose buffers are too small to judge them.
        machine: The machine.
        is_log: Whether the values are of a log of another tool.
    """
    covered: dict[tuple[PathKind, str], bool] = {}
    lost: dict[tuple[PathKind, str], list[tuple[Judgement, Placed]]] = {}
    vertices = MachineVertices(machine)

    @cache
    def kind_name(name: str) -> str:
        """The name of the kind of a device; empty for other vertices and labels."""
        return found.name if (found := vertices.kind(name)) else ""

    for judgement, measured in zip(judged, cells, strict=True):
        kind = path_kind(measured.key.testcase, collective=measured.result.collective is not None)
        if judgement.unit is not Unit.RATE or (is_log and kind == OTHER):
            continue
        ends = {end for index, *_ in measured.cell.links for end in machine.links[index].ends}
        ends |= {measured.key.row, measured.key.column}
        # A kind of path of no particular devices is one place.
        by_device = bool(kind.device) and not is_log
        for device in sorted(end for end in ends if by_device and kind_name(end) == kind.device) or [""]:
            place = kind, device
            if judgement.verdict.is_judged or (judgement.verdict is Verdict.WAIVED and judgement.value):
                covered[place] = True
            elif _is_lost(judgement, measured, small) or (
                is_log and judgement.verdict is Verdict.UNKNOWN and judgement.value is not None
            ):
                lost.setdefault(place, []).append((judgement, measured))
    groups: dict[tuple[PathKind, Verdict, str, bool], list[str]] = {}
    for (kind, device), values in lost.items():
        if (kind, device) not in covered:
            first, measured = min(values, key=lambda value: value[0].verdict.rank)
            size = measured.key in small
            key = kind, worst(one.verdict for one, _ in values), first.why or measured.result.reason, size
            groups.setdefault(key, []).append(device)
    whole = {kind for kind, _ in covered}
    return tuple(
        Uncovered(
            kind,
            tuple(filter(None, devices)) if kind in whole else (),
            verdict,
            why,
            of_size,
            Verdict.WARN if is_log else verdict,
        )
        for (kind, verdict, why, of_size), devices in groups.items()
    )


def _is_lost(judgement: Judgement, measured: Placed, small: Container[Key]) -> bool:
    """Whether a value would have been judged on an idle machine, with other buffers or more memory."""
    if judgement.verdict is Verdict.BUSY or measured.result.status is Status.NO_MEMORY:
        return judgement.verdict.is_unjudged
    return judgement.verdict is Verdict.UNKNOWN and measured.key in small


#: What to do if all rails of two nodes are slow, and no fact of them explains it. ConnectX-7 NICs of DGX
#: Sparks were seen at 13 of 200 Gbit/s although all links looked healthy (dgx-spark-playbooks, pull request
#: 108).
UNEXPLAINED = Advice(
    "measure the NICs without wirespeed; if they are as slow, switch both nodes off and on, with their power "
    "supplies",
    "ib_write_bw -q 8",
)
#: The same over TCP; ``{interface}``: network interface of a node.
_OVER_TCP = Advice(
    "measure between these addresses without wirespeed (iperf3); compare the routes, and speed and errors of "
    "the interfaces {interfaces} and of their switch ports",
    "ip route get ADDRESS; ethtool {interface}; ip -s link show {interface}",
)
#: Most slow parts, and most nodes, that a sentence names.
_NAMED = 3


def verdict_of(qualification: Qualification, interrupted: str = "") -> Verdict:
    """Whether the nodes are as they should be: fail, not judged, interrupted, warn or pass.

    Args:
        qualification: What was found.
        interrupted: Why the run ended early; empty if it did not.
    """
    if qualification.fails:
        return Verdict.FAIL
    if interrupted:
        return Verdict.INTERRUPTED
    if not qualification.compared:
        return Verdict.UNKNOWN
    return Verdict.WARN if qualification.culprits or qualification.doubts else Verdict.PASS


def first_words(document: Document, qualification: Qualification) -> tuple[str, str, Advice]:
    """The sentence, the extent and the advice of a qualification."""
    nodes, culprits = qualification.nodes, qualification.culprits
    slow = [part_name(culprit, nodes) for culprit in culprits[:_NAMED]]
    gone = [node.name for node in nodes if node.missing]
    are = "is" if len(culprits) == 1 else "are"
    what = "lossy" if all(culprit.kind is PartKind.LOSSY for culprit in culprits) else "slow"
    said = [f"{_listed(slow, len(culprits))} {are} {what}"] if slow else []
    if gone:
        said.append(f"{_listed(gone[:_NAMED], len(gone))} {'is' if len(gone) == 1 else 'are'} missing")
    if not said and document.interrupted:
        said = [f"the run ended early: {document.interrupted}"]
    elif not said and not qualification.compared:
        said = [
            "paths vary too much" if qualification.varies
            else "the directions of the only path are equally fast; what the NICs carry is unknown (--nics)"
            if qualification.is_one_pair and qualification.threshold
            else "too few nodes could be compared"
        ]  # fmt: skip
    elif not said:
        said = [", but ".join(("no node, NIC, cable or switch is slow", *qualification.doubts))]
    return "; ".join(said), qualification.usable, _advice(document, qualification)


#: Commands that show the errors of RDMA devices, and of network interfaces.
_RDMA, _INTERFACES = "rdma statistic", "ip -s link"
#: Kind of a slow part -> what to do with it, and the command that shows it on its node; ``{rail}``: index.
_REMEDIES = {
    PartKind.NODE: Advice("check the NICs, firmware and CPU load of the node", _RDMA),
    PartKind.GPU: Advice(
        "check clocks, ECC and throttle reasons of the GPU",
        "nvidia-smi -q -i {rail} -d CLOCK,ECC,PERFORMANCE",
    ),
    PartKind.HOST_LINK: Advice(
        "check slot and riser, width and generation",
        "nvidia-smi -i {rail} --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv",
    ),
    PartKind.MEMORY: AT[SuspectKind.HOST_MEMORY],
    PartKind.NIC: Advice("check cable, switch port and error counters of the NIC", _RDMA),
    PartKind.CABLE: Advice("reseat or replace the cable; check both of its ports", _RDMA),
    PartKind.LOSSY: Advice("reseat or replace the cable; check the counters of its ports", _INTERFACES),
    PartKind.LEAF: Advice("check the switch: its temperature, and the errors of its ports"),
    PartKind.TRUNK: Advice("check the uplinks of the switch: how many are up, and their errors"),
    PartKind.SPINE: Advice("check the spine switches, and how routes spread over them"),
    PartKind.PATH: Advice("measure both nodes with a third one, which shows which end is slow"),
    PartKind.ALIKE: Advice("look for what these nodes share: driver, firmware, settings, BIOS, switches"),
    PartKind.BETWEEN: Advice("check the links between the switches of these groups"),
}


def is_over_tcp(document: Document, qualification: Qualification) -> bool:
    """Whether network interfaces carried the bytes between nodes, also for a library."""
    return qualification.transport == TCP or any(f.name == Known.INTERFACE_KIND for f in document.facts)


def remedy_of(culprit: SlowPart, *, over_tcp: bool) -> Advice:
    """What to do with a slow part, and a command for its node that shows it; empty for switches and paths."""
    advice = _REMEDIES[culprit.kind]
    if over_tcp and advice.command == _RDMA:
        return Advice(advice.do, _INTERFACES)
    return Advice(advice.do, advice.command.format(rail=culprit.rail))


def unexplained(document: Document, qualification: Qualification) -> Advice:
    """What to do if no fact of two nodes explains their slow rails: all of them, or some of several."""
    slow = {culprit.rail for culprit in qualification.culprits if culprit.limited}
    every = -1 in slow or len(slow) >= qualification.nodes[0].rails
    if is_over_tcp(document, qualification):
        used = [f"{qualification.nodes[limit.node].name}: {', '.join(limit.devices)}"
                for limit in qualification.limits if limit.devices]  # fmt: skip
        first = next((limit.devices[0] for limit in qualification.limits if limit.devices), "INTERFACE")
        listed = f"({'; '.join(used[:_NAMED])})" if used else "of both nodes"
        do, command = (
            text.format(interfaces=listed, interface=first) for text in (_OVER_TCP.do, _OVER_TCP.command)
        )
        return Advice(do, command)
    return UNEXPLAINED if every else _REMEDIES[PartKind.NIC]


def next_run(document: Document, qualification: Qualification) -> str:
    """The command that measures again with other partners; start it on the nodes as before."""
    cluster = document.options.get("machine")
    machine = f" --machine {shlex.quote(cluster)}" if isinstance(cluster, str) else ""
    return f"wirespeed qualify{machine} --seed {qualification.seed + 1}"


def _advice(document: Document, qualification: Qualification) -> Advice:
    out = list(qualification.excluded)
    if out:
        return Advice(f"leave out {_listed(out[:_NAMED], len(out))}")
    if any(culprit.kind is PartKind.LOSSY for culprit in qualification.culprits):
        return Advice("check these cables and the counters of their ports", _INTERFACES)
    if any(culprit.kind is PartKind.ALIKE for culprit in qualification.culprits):
        return _REMEDIES[PartKind.ALIKE]
    if any(culprit.limited for culprit in qualification.culprits):
        return unexplained(document, qualification)
    if qualification.in_doubt:
        return Advice("measure these nodes with a third one, which shows which end of the path is slow")
    if any(culprit.kind not in OF_NODE for culprit in qualification.culprits):
        return Advice("check these switches and paths: no node by itself is slow")
    return Advice()


def _listed(names: list[str], count: int) -> str:
    """The first names, and how many follow: ``a, b and 3 more``."""
    if count > len(names):
        return f"{', '.join(names)} and {count - len(names)} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
