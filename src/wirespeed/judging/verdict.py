"""What judging finds, as data: verdicts in one order, which all views and exit codes share, and culprits.

Culprits are devices, links and pairs that may be slow. Texts for people are made last. If no cause with a
remedy is known, there is advice for slow places, wrong data and busy devices, with commands that name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..errors import ExitCode
from ..hardware.network import MachineVertices
from ..hardware.topology import Link, LinkKind, Machine
from ..measurement import Unit
from ..results.cells import Key
from ..terminal import brief


class SuspectKind(StrEnum):
    """Kind of a suspect, in words for people."""

    NVLINK = "NVLink"
    PCIE = "PCIe link"
    C2C = "C2C link"
    SOCKET = "socket link"
    NETWORK = "network link"
    GPU_MEMORY = "memory of a GPU"
    HOST_MEMORY = "memory of a NUMA node"
    GPU = "GPU"
    NODE = "NUMA node"
    PCIE_SWITCH = "PCIe switch"
    SWITCH = "switch"  #: of links of another kind
    PAIR_OF_GPUS = "path between GPUs"
    PAIR_WITH_HOST = "path between a GPU and the host"
    PAIR_OF_NODES = "path between NUMA nodes"
    DEVICE_MEMORY = "memory of a device"  #: of another kind
    DEVICE = "device"
    PAIR_OF_DEVICES = "path of a device"


#: Kind of a link -> kind of the suspect.
_LINKS = {
    LinkKind.NVLINK: SuspectKind.NVLINK, LinkKind.PCIE: SuspectKind.PCIE, LinkKind.C2C: SuspectKind.C2C,
    LinkKind.SOCKET: SuspectKind.SOCKET, LinkKind.NETWORK: SuspectKind.NETWORK,
}  # fmt: skip
#: Number of GPUs at the ends -> kind of the pair.
_PAIRS = (SuspectKind.PAIR_OF_NODES, SuspectKind.PAIR_WITH_HOST, SuspectKind.PAIR_OF_GPUS)
#: Of a GPU, a NUMA node and another device.
_MEMORIES = (SuspectKind.GPU_MEMORY, SuspectKind.HOST_MEMORY, SuspectKind.DEVICE_MEMORY)
_DEVICES = (SuspectKind.GPU, SuspectKind.NODE, SuspectKind.DEVICE)


@dataclass(frozen=True)
class Suspect:
    """A device, memory, switch, link or pair that may be slow.

    Attributes:
        kind: What it is.
        ends: Its vertex; of a link or pair, both ends.
        one_way: Whether only the direction from the first to the second end is slow.
    """

    kind: SuspectKind
    ends: tuple[str, ...]
    one_way: bool = False

    @property
    def is_link(self) -> bool:
        """Whether it is one link: no device, memory, switch or pair."""
        return self.kind in _LINKS.values()

    @property
    def is_device(self) -> bool:
        """Whether it is a device or its memory: no switch, link or pair."""
        return self.kind in (*_DEVICES, *_MEMORIES)

    def __str__(self) -> str:
        """Return the text for people: ``PCIe link pcie1->gpu3``."""
        where = ("->" if self.one_way else "-").join(self.ends)
        if self.kind in _MEMORIES:
            return f"memory of {where}"
        if self.kind in (*_PAIRS, SuspectKind.PAIR_OF_DEVICES):
            return f"path {where}"
        if self.kind in _DEVICES:
            return where
        return f"{self.kind} {where}"


@dataclass(frozen=True)
class Culprit:
    """Explanation of low cells. If several suspects explain the same cells, it is one of them.

    Attributes:
        suspects: Links, devices or pairs.
        ratio: The value over what ``of`` says: the lowest share of what is expected, which is that of the key
            figures; of what its peers reach, the median.
        cells: Indices of the observations that it explains.
        of: What the ratio is relative to, for people: ``expected``, or what its peers reach.
    """

    suspects: tuple[Suspect, ...]
    ratio: float
    cells: tuple[int, ...]
    of: str = "what its peers reach"

    def __str__(self) -> str:
        return any_of(self.suspects)

    @property
    def share(self) -> str:
        """The ratio with its word: ``50% of expected``."""
        return f"{self.ratio:.0%} of {self.of}"


def of_expected(culprit: Culprit, shares: Mapping[int, float]) -> Culprit:
    """Return a culprit with its share of what is expected; without failing values, its share of its peers.

    Args:
        culprit: A culprit with its ratio to its peers.
        shares: Index of an observation that fails -> its value over the typical one.
    """
    failing = [shares[i] for i in culprit.cells if i in shares]
    return replace(culprit, ratio=min(failing), of="expected") if failing else culprit


def any_of(suspects: tuple[Suspect, ...]) -> str:
    """The suspects for people, joined by "or"."""
    return " or ".join(map(str, suspects))


class Suspects:
    """What may be slow on a machine."""

    def __init__(self, machine: Machine) -> None:
        vertices = MachineVertices(machine)
        self._is_host, self._is_other = vertices.is_node, vertices.is_other
        self._devices = {link.source for link in machine.links if link.kind is LinkKind.MEMORY}
        self._pcie = {end for link in machine.links if link.kind is LinkKind.PCIE for end in link.ends}

    def memory(self, vertex: str) -> Suspect:
        """The memory of a device as a suspect."""
        return self._among(_MEMORIES, vertex)

    def _among(self, kinds: Sequence[SuspectKind], vertex: str) -> Suspect:
        """A suspect of one of the kinds for a GPU, a NUMA node and another device."""
        return Suspect(kinds[1 if self._is_host(vertex) else 2 * self._is_other(vertex)], (vertex,))

    def link(self, link: Link) -> tuple[Suspect, Suspect]:
        """Return a link between vertices in its direction, and in both directions."""
        kind = _LINKS[link.kind]
        ends = sorted(link.ends, key=lambda end: (end not in self._devices, end))
        return Suspect(kind, link.ends, one_way=True), Suspect(kind, tuple(ends))

    def vertex(self, vertex: str) -> Suspect:
        """A device or switch as a suspect; PCIe switches have another kind than other switches."""
        if vertex in self._devices:
            return self._among(_DEVICES, vertex)
        return Suspect(SuspectKind.PCIE_SWITCH if vertex in self._pcie else SuspectKind.SWITCH, (vertex,))

    def pair(self, ends: tuple[str, str], *, one_way: bool) -> Suspect:
        """The path between two devices as a suspect; its kind follows from how many of them are GPUs."""
        gpus = sum(not self._is_host(end) for end in ends)
        kind = SuspectKind.PAIR_OF_DEVICES if any(map(self._is_other, ends)) else _PAIRS[gpus]
        return Suspect(kind, ends if one_way else tuple(sorted(ends)), one_way)


#: Domain, bus and device; nothing else of a file becomes a part of a command. Of a bridge, also the function.
_BUS_ID = re.compile(r"(?:pcie:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?")


def at_device(command: str, machine: Machine, *places: str) -> str:
    """Return a command with the first GPU among some places filled in.

    Args:
        command: The command, with ``{pci}`` and ``{gpu}`` where options of lspci and nvidia-smi go, and
            ``{address}`` for the name of the device in ``/sys/bus/pci/devices``.
        machine: The machine with the GPU. Its bus ID names the GPU, since programs number GPUs differently.
        *places: Vertices: devices, switches; or PCI addresses.

    Returns:
        The command for this GPU, or for all if no place is a GPU whose bus ID is known.
    """
    known = {gpu.name: gpu.bus_id for gpu in machine.gpus}
    known |= {f"{rank.index}/{rank.device}": rank.bus_id for rank in machine.ranks if rank.bus_id}
    devices = {place: MachineVertices(machine).of(place).device for place in places}
    matches = (_BUS_ID.fullmatch(known.get(place) or known.get(devices[place]) or place) for place in places)
    bus = next(filter(None, matches), None)
    if not bus:
        return command.format(pci="", gpu="", address="*")
    domain, device = f"{int(bus[1], 16):04x}", f"{bus[2]}{bus[3] or '.0'}"
    pci = device if domain == "0000" else f"{domain}:{device}"
    return command.format(pci=f" -s {pci}", gpu=f" -i {domain}:{device}", address=f"{domain}:{device}")


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        do: The step; empty if there is nothing to do.
        command: A command that helps, as in ``at_device``; empty if there is none.
    """

    do: str = ""
    command: str = ""


#: Kind of a suspect -> what to do.
AT = {
    SuspectKind.NVLINK: Advice(
        "reset the GPU; if it stays slow, reseat the bridge (PCIe cards) or replace the module (SXM)",
        "nvidia-smi nvlink -s{gpu}",
    ),
    SuspectKind.PCIE: Advice(
        "check slot and riser, width and generation", "sudo lspci -vv{pci} | grep LnkSta:"
    ),
    SuspectKind.C2C: Advice("check the state of its links", "nvidia-smi c2c -s{gpu}"),
    SuspectKind.SOCKET: Advice("check the BIOS settings of the links between sockets", "numactl --hardware"),
    SuspectKind.NETWORK: Advice("check cable, switch port and error counters of the NIC", "rdma statistic"),
    SuspectKind.GPU_MEMORY: Advice("check memory clock and ECC", "nvidia-smi -q{gpu} -d CLOCK,ECC"),
    SuspectKind.HOST_MEMORY: Advice("check memory modules and NUMA settings", "sudo dmidecode -t memory"),
    SuspectKind.GPU: Advice(
        "check clocks, power and temperature", "nvidia-smi -q{gpu} -d PERFORMANCE,POWER,TEMPERATURE"
    ),
    SuspectKind.NODE: Advice(
        "check clocks and power settings of the CPU, and its memory modules", "sudo dmidecode -t memory"
    ),
    SuspectKind.PCIE_SWITCH: Advice(
        "check the switch and its links: width, generation and errors", "sudo lspci -vv{pci} | grep LnkSta:"
    ),
    SuspectKind.SWITCH: Advice("check the switch and the fabric manager", "nvidia-smi nvlink -s"),
    SuspectKind.PAIR_OF_GPUS: Advice("check peer access and the route between the two", "nvidia-smi topo -m"),
    SuspectKind.PAIR_WITH_HOST: Advice(
        "check the NUMA node of the GPU and the route between the two", "nvidia-smi topo -m"
    ),
    SuspectKind.DEVICE_MEMORY: Advice("check the state and the errors of the device", "sudo dmesg | tail"),
    SuspectKind.DEVICE: Advice("check the state and the errors of the device", "sudo dmesg | tail"),
    SuspectKind.PAIR_OF_DEVICES: Advice("check the route between the two", "sudo lspci -tv"),
    SuspectKind.PAIR_OF_NODES: Advice("check the route between the two", "numactl --hardware"),
}
#: Models whose memory is that of the host: it has no ECC counters of the GPU.
_SHARED_MEMORY = ("GB10", "Jetson", "Orin", "Thor")
_OF_SHARED_MEMORY = Advice(
    "check the clocks, and what else uses the memory, which CPU and GPU share",
    "nvidia-smi -q{gpu} -d CLOCK,PERFORMANCE",
)


def advice_at(suspect: Suspect, machine: Machine) -> Advice:
    """What to do about a suspect, with the command for its place."""
    advice, places = AT[suspect.kind], {MachineVertices(machine).of(end).device for end in suspect.ends}
    models = [gpu.model for gpu in machine.gpus if gpu.name in places]
    if suspect.kind is SuspectKind.GPU_MEMORY and any(
        set(model.split()) & {*_SHARED_MEMORY} for model in models
    ):
        advice = _OF_SHARED_MEMORY
    return replace(advice, command=at_device(advice.command, machine, *suspect.ends))


BUSY = Advice("wait for idle devices, or judge anyway with --ignore-busy", "wirespeed check --wait-idle 5min")
IDLE = Advice("end the other processes, or wait for idle devices", "wirespeed check --wait-idle 5min")
LARGER = Advice("measure with larger buffers: without --size, or with more", "wirespeed check --size 512MiB")
LARGER_LOG = Advice("measure with buffers of 256 MiB or more, and import that log")
WRONG_PATH = Advice("do not use this path; replace the defective device or link")
ABOVE = Advice(
    "compare the capacities with data sheets; `wirespeed help limits` says how to correct them",
    "wirespeed machine",
)
ABOVE_MEMORY = Advice(
    "give --host-memory for all sockets of the host together: one NUMA node stands for the host of a log",
    "sudo dmidecode -t memory",
)
#: What to do about values that are faster than the machine that was assumed.
FASTER = Advice("give the machine that the log is of: --machine NAME-N or FILE", "wirespeed help import")
FASTER_NETWORK = Advice("give the NICs of each host of the log (--nics, such as 8x400G)")
#: What to do about copies between GPUs that are faster than any link of these GPUs.
IMPOSSIBLE = Advice("do not use peer access between these GPUs until its data is verified", "wirespeed p2p")
DOUBTFUL = Advice("run it again to the end, and import its whole log, with the machine that it was run on")
DIP = Advice(
    "measure this size again; if it stays slow, compare the algorithms and protocols of the library "
    "(for NCCL: NCCL_ALGO, NCCL_PROTO)"
)
NO_CAUSE = Advice("follow the steps from a low value to its cause", "wirespeed help slow")
VERIFY = Advice("measure again, and verify the data: without --no-verify, or with -c 1")
STALE = Advice("measure again, and find out why the timer or job that repeats it does not")


class Verdict(StrEnum):
    """Whether a value is as expected; the worst first."""

    IMPLAUSIBLE = "implausible"  #: above the limit of the links
    FAIL = "fail"
    WARN = "warn"
    BUSY = "busy"  #: not judged: another process used the device
    INTERRUPTED = "interrupted"  #: not judged: the run ended before its value was measured
    NOT_JUDGED = "unknown"  #: no range is known
    UNKNOWN = "unknown"  #: the same: its word in files and JSON
    PASS = "pass"
    WAIVED = "waived"  #: not possible on this machine, or accepted by an override

    @property
    def rank(self) -> int:
        """Position in the order; 0 is the worst."""
        return _RANKS[self]

    @property
    def is_bad(self) -> bool:
        """Whether it is a warning or worse."""
        return self.rank <= Verdict.WARN.rank

    @property
    def is_failure(self) -> bool:
        """Whether the value, the testcase or the run failed."""
        return self.rank <= Verdict.FAIL.rank

    @property
    def is_worse(self) -> bool:
        """Whether the value is worse than expected, not better than possible."""
        return self in (Verdict.FAIL, Verdict.WARN)

    @property
    def is_judged(self) -> bool:
        """Whether the value was compared with anything."""
        return self.is_bad or self is Verdict.PASS

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing is known of what was measured, or would have been."""
        return not self.is_judged and self is not Verdict.WAIVED

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that judges."""
        if self.is_failure:
            return ExitCode.FAIL
        if not self.is_judged:
            return ExitCode.NOT_JUDGED
        return ExitCode.WARN if self.is_bad else ExitCode.PASS

    @property
    def word(self) -> str:
        """Its word on screens."""
        return _WORDS.get(self, self.value)


_WORDS = {Verdict.UNKNOWN: "not judged", Verdict.WAIVED: "skipped"}
_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}
#: Verdicts that count only if there are no others.
_SILENT = (Verdict.BUSY, Verdict.UNKNOWN, Verdict.WAIVED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several values together: the worst.

    Values without a known range, of devices in use, and those that are waived, count only if there are no
    others; of no values nothing is known.
    """
    distinct = set(verdicts)
    return min(distinct - set(_SILENT) or distinct, key=lambda verdict: verdict.rank, default=Verdict.UNKNOWN)


#: Why values below the expected range fail, and why values that would pass get a warning.
BELOW_RANGE, BELOW_PEERS = "below the expected range", "below its peers"


@dataclass(frozen=True)
class Judgement:
    """The verdict on one cell; without row and column, on a testcase or run that failed as a whole.

    Attributes:
        key: Location of the cell.
        unit: Unit of the value.
        verdict: The verdict.
        value: Measured median in base units; None if there is none.
        limit: What the links allow, in the unit of the value.
        least: The lowest value that passes; for a latency, the highest.
        normal: The typical value.
        why: Reason if the verdict is not a pass.
        culprits: The devices or links of which one explains a low value; empty if none does.
        basis: Measurement of the same run that the range was derived from; empty if it is derived from the
            links.
        faster_than: Kind of the links whose assumed capacity the value exceeds; None if it exceeds none.
        reference: Whose published rates it was compared with, for people; empty if with none.
    """

    key: Key
    unit: Unit
    verdict: Verdict
    value: float | None = None
    limit: float | None = None
    least: float | None = None
    normal: float | None = None
    why: str = ""
    culprits: tuple[Suspect, ...] = ()
    basis: str = ""
    faster_than: LinkKind | None = None
    reference: str = ""

    def __repr__(self) -> str:
        value = "" if self.value is None else f", {self.value:.4g} {self.unit}"
        why = f": {self.explanation}" if self.explanation else ""
        return brief(f"Judgement {self.verdict}: {self.key.testcase} {self.key.place}{value}{why}")

    @property
    def explanation(self) -> str:
        """Why the verdict is not a pass, and the culprits, for people."""
        return self.why + (f": {any_of(self.culprits)}" if self.culprits else "")

    @property
    def is_above(self) -> bool:
        """Whether the value is above what its links allow, known or assumed, so that it is not slow."""
        return self.verdict is Verdict.IMPLAUSIBLE or self.faster_than is not None

    @property
    def margin(self) -> float:
        """Value over the lowest value that passes, inverted for a latency; 0 if no range is known."""
        if not self.value or not self.least:
            return 0.0
        return self.value / self.least if self.unit.more_is_better else self.least / self.value

    @property
    def severity(self) -> float:
        """By what values of one verdict are ordered: the share that all reports give, else the margin."""
        portion = share(self)
        is_share = portion is not None and self.unit.more_is_better and not self.is_above
        return portion.fraction if portion and is_share else self.margin


@dataclass(frozen=True)
class Share:
    """A value as a fraction of another one: all reports give shares in these words.

    Attributes:
        fraction: The value over ``whole``.
        of: What ``whole`` is: ``expected`` or ``limit``.
        whole: The typical value, or the limit, in the unit of the value.
    """

    fraction: float
    of: str
    whole: float

    def __str__(self) -> str:
        """Return the text for people: ``92% of expected``."""
        return f"{self.fraction:.0%} of {self.of}"


def share(judgement: Judgement) -> Share | None:
    """Return the share of what is expected; of the limit, if a value is above it or no range is known.

    None if neither is known, if only what is usual is known of the CPU, or there is no value.
    """
    if judgement.limit is None and judgement.basis:
        return None
    of, whole = "expected", judgement.normal
    if not whole or judgement.is_above:
        of, whole = "limit", judgement.limit
    return Share(judgement.value / whole, of, whole) if judgement.value is not None and whole else None
