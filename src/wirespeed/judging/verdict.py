"""The verdict on a value, a testcase or a run: one order, which all views and exit codes share.

The verdict on one cell.

Whether a run passes published gates, and whether the gates suit the machine. A pure view of a Document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from ..document import Document
from ..errors import UsageError
from ..hardware.facts import Facts, Known
from ..hardware.topology import LinkKind, Machine
from ..measurement import Unit
from ..results.cells import Key, placed
from ..results.published_gates import GateSet, PublishedGate
from ..terminal import Tabular, brief
from ..units import displayed, format_size, many, parse_rate, parse_size
from .culprits import Suspect, any_of
from .omissions import renewed


class Verdict(StrEnum):
    """Whether a value is as expected; the worst first."""

    IMPLAUSIBLE = "implausible"  #: above the limit of the links
    FAIL = "fail"
    WARN = "warn"
    BUSY = "busy"  #: not judged: another process used the device
    INTERRUPTED = "interrupted"  #: not judged: the run ended before its value was measured
    UNKNOWN = "unknown"  #: not judged: no range is known
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
    def word(self) -> str:
        """What people read."""
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
#: Why the value of a size gets a warning, whatever its limit is.
BELOW_NEIGHBOUR = "far slower than a neighbouring size"


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

    def __repr__(self) -> str:
        value = "" if self.value is None else f", {self.value:.4g} {self.unit}"
        why = f": {self.explanation}" if self.explanation else ""
        return brief(f"Judgement {self.verdict}: {self.key.testcase} {self.key.place}{value}{why}")

    @property
    def explanation(self) -> str:
        """Why the verdict is not a pass, and the culprits, for people."""
        return self.why + (f": {any_of(self.culprits)}" if self.culprits else "")

    @property
    def margin(self) -> float:
        """Value over the lowest value that passes, inverted for a latency; 0 if no range is known."""
        if not self.value or not self.least:
            return 0.0
        return self.value / self.least if self.unit.more_is_better else self.least / self.value


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
    if not whole or judgement.verdict is Verdict.IMPLAUSIBLE:
        of, whole = "limit", judgement.limit
    return Share(judgement.value / whole, of, whole) if judgement.value is not None and whole else None


#: A gate below this fraction of the lowest expected value is meaningless: a link at half speed passes.
MEANINGLESS = 1 / 3


class GateVerdict(StrEnum):
    """Result of the comparison with a gate."""

    FAIL = "fail"
    IMPOSSIBLE = "impossible"  #: no healthy machine with these links can pass
    UNCLEAR = "unclear"  #: below the gate, but measured with less data than the gate requires
    PASS = "pass"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class GateResult:
    """Result of one gate.

    Attributes:
        gate: The gate.
        verdict: The verdict.
        lowest: The lowest measured cell; None if there is none.
        expected: Expected range of these cells: the lowest value that passes and the typical one, in B/s.
        why: Reason why the gate is not applicable, impossible, unclear or failed without a value.
        remark: What is wrong with a gate that is possible; empty if nothing is.
    """

    gate: PublishedGate
    verdict: GateVerdict
    lowest: Judgement | None = None
    expected: tuple[float, float] | None = None
    why: str = ""
    remark: str = ""

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return brief(f"GateResult {self.verdict}: {self.gate.measures}, at least {self.gate.at_least}{why}")


@dataclass(frozen=True)
class GateComparison(Tabular):
    """A run compared with a set of gates.

    Attributes:
        gates: The gates.
        results: A result for each gate, in order.
        simulated: Whether no hardware was measured.
    """

    gates: GateSet
    results: tuple[GateResult, ...]
    simulated: bool = False

    @property
    def compared(self) -> int:
        """Number of gates that values of the run were compared with."""
        return sum(result.lowest is not None for result in self.results)

    @property
    def failures(self) -> list[GateResult]:
        """The results of the gates that the run fails, in order."""
        return [result for result in self.results if result.verdict is GateVerdict.FAIL]

    @property
    def failed(self) -> int:
        """Number of failed gates."""
        return len(self.failures)

    def __repr__(self) -> str:
        counts = Counter(result.verdict for result in self.results)
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in GateVerdict if counts[verdict])
        kind = " (simulated)" if self.simulated else ""
        return brief(f"GateComparison{kind}: {self.gates.name}; thresholds: {verdicts or 'none'}")


def compare_gates(gates: GateSet, document: Document, judgements: Sequence[Judgement]) -> GateComparison:
    """Compare a judged run with a set of gates."""
    limits = _limits(document)
    results = tuple(_compare(gate, document, judgements, limits) for gate in gates.gates)
    return GateComparison(gates, results, document.simulated)


def check_models(gates: GateSet, machines: Sequence[Machine]) -> None:
    """Refuse a set without any gate for the GPUs of some machines.

    Raises:
        UsageError: If there is no such gate.
    """
    if any(not gate.models or len(_others(gate, machine)) < len(machine.gpus)
           for gate in gates.gates for machine in machines):  # fmt: skip
        return
    models = dict.fromkeys(model for gate in gates.gates for model in gate.models)
    there = Counter(gpu.model for machine in machines for gpu in machine.gpus)
    have = ", ".join(f"{n} x {model}" for model, n in there.items()) or "a machine without GPUs"
    has = f"; it has thresholds for: {', '.join(models)}" if models else ""
    raise UsageError(f"no threshold of {gates.name} is for {have}{has}")


def _others(gate: PublishedGate, machine: Machine) -> set[str]:
    """Return the GPUs of a machine that a gate is not for."""
    models = gate.models or ("*",)
    return {gpu.name for gpu in machine.gpus if not any(fnmatchcase(gpu.model, m) for m in models)}


#: For each cell the limit in B/s, with other transfers left out, and the kinds of the links that it uses.
_Limits = dict[Key, tuple[float | None, set[str]]]


def _limits(document: Document) -> _Limits:
    document = renewed(document)
    links = document.machine.links
    return {
        measured.key: (
            measured.cell.peak or measured.cell.limit,
            {links[i].kind for i, *_ in measured.cell.links},
        )
        for measured in placed(document)
    }


def _compare(
    gate: PublishedGate, document: Document, judgements: Sequence[Judgement], limits: _Limits
) -> GateResult:
    machine, threshold = document.machine, parse_rate(gate.at_least)
    others = _others(gate, machine)
    if gate.models and len(others) == len(machine.gpus):
        return GateResult(gate, GateVerdict.NOT_APPLICABLE, why="other GPUs")
    if why := _beyond_network(gate, threshold):
        return GateResult(gate, GateVerdict.IMPOSSIBLE, why=why)
    if why := gate.needs or _other_size(gate, machine, len(machine.gpus) - len(others)):
        return GateResult(gate, GateVerdict.NOT_APPLICABLE, why=why)
    fitting = [
        judgement
        for judgement in judgements
        if judgement.key.column and any(fnmatchcase(judgement.key.testcase, name) for name in gate.testcases)
        and judgement.unit is Unit.RATE and not {judgement.key.row, judgement.key.column} & others
        and (
            judgement.verdict is not Verdict.BUSY if judgement.value is not None
            else judgement.verdict is Verdict.FAIL
        )
    ]  # fmt: skip
    if not fitting:
        return GateResult(gate, GateVerdict.NOT_APPLICABLE, why="testcases without a value in this run")
    largest = max(judgement.key.bytes for judgement in fitting)
    enough = min(largest, parse_size(gate.size))
    fitting = [judgement for judgement in fitting if judgement.value is None or judgement.key.bytes >= enough]
    lowest = min(fitting, key=lambda judgement: judgement.value or 0.0)
    ranges = [
        (judgement.least, judgement.normal) for judgement in fitting if judgement.least and judgement.normal
    ]
    expected = (min(least for least, _ in ranges), max(normal for _, normal in ranges)) if ranges else None
    if lowest.value is None:
        return GateResult(gate, GateVerdict.FAIL, lowest, expected, lowest.why)
    if why := _beyond_links(gate, threshold, fitting, limits, document):
        return GateResult(gate, GateVerdict.IMPOSSIBLE, lowest, expected, why)
    remark = _remark(threshold, expected)
    if lowest.value >= threshold:
        return GateResult(gate, GateVerdict.PASS, lowest, expected, remark=remark)
    if largest < parse_size(gate.size):
        why = (
            f"measured with {format_size(largest)}; the threshold is for {format_size(parse_size(gate.size))}"
        )
        return GateResult(gate, GateVerdict.UNCLEAR, lowest, expected, why, remark)
    return GateResult(gate, GateVerdict.FAIL, lowest, expected, remark=remark)


def _other_size(gate: PublishedGate, machine: Machine, gpus: int) -> str:
    """Return which number of nodes or GPUs a gate is for if the run has another; empty if it fits."""
    if gate.nodes != max(1, len({rank.host for rank in machine.ranks})):
        return many(gate.nodes, "node")
    if gate.gpus and (len(machine.ranks) or gpus) != gate.gpus * gate.nodes:
        return many(gate.gpus * gate.nodes, "GPU")
    return ""


def _beyond_network(gate: PublishedGate, threshold: float) -> str:
    """Return why no collective between nodes can pass a gate; empty if one can.

    A node of N sends at least the bytes that a rank of N sends, so that the bus bandwidth of n ranks is at
    most ``(n - 1) / n`` over ``(N - 1) / N`` times the rate of the network.
    """
    if not gate.network or gate.nodes < 2 or not gate.gpus:
        return ""
    ranks, network = gate.gpus * gate.nodes, parse_rate(gate.network)
    most = network * (ranks - 1) / ranks / ((gate.nodes - 1) / gate.nodes)
    if threshold <= most:
        return ""
    return f"above the {_rate(most)} that nodes with a network of {_rate(network)} can reach"


def _beyond_links(
    gate: PublishedGate, threshold: float, fitting: Sequence[Judgement], limits: _Limits, document: Document
) -> str:
    """Return why the links do not allow a cell to pass a gate; empty if they do, or if links are missing.

    The limit of NVLink counts only active links. A threshold above it says nothing about the gate if a GPU
    has inactive links, or the path has no NVLink at all.
    """
    known = [limits[judgement.key] for judgement in fitting if judgement.key in limits]
    if gate.link and not all(gate.link in kinds for _, kinds in known):
        return ""
    facts = Facts(document.facts)
    if gate.link is LinkKind.NVLINK and any(
        facts.number(Known.NVLINKS_INACTIVE, gpu.name) for gpu in document.machine.gpus
    ):
        return ""
    least = min((limit for limit, _ in known if limit), default=threshold)
    return f"above the limit of the links, {_rate(least)}" if threshold > least else ""


def _remark(threshold: float, expected: tuple[float, float] | None) -> str:
    """Return in what way a possible gate is far from the expected range; empty if it is not."""
    if expected and threshold < expected[0] * MEANINGLESS:
        return "meaningless: so low that a link at half speed would pass"
    if expected and threshold > expected[1]:
        return "this threshold is above the typical rate, so healthy machines may fail it"
    return ""


def _rate(value: float) -> str:
    scale, unit = displayed(Unit.RATE)
    return f"{value / scale:.6g} {unit}"
