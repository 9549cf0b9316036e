"""Published gates: thresholds below which operators take a node out of service, from TOML files. Whether a
run passes them, and whether they suit the machine. A pure view of a Document.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal, get_args

import msgspec

from ..document import Document
from ..errors import UsageError
from ..files import LARGEST_WRITTEN, read
from ..hardware.facts import Facts, Known
from ..hardware.topology import LinkKind, Machine
from ..measurement import Unit
from ..results.cells import Key, placed
from ..terminal import Tabular, brief, neutral, unknown_name
from ..testcases.table import TABLE
from ..thresholds.values import MEANINGLESS
from ..units import displayed, format_size, many, parse_rate, parse_size
from .replanned import renewed
from .verdict import Judgement, Verdict


class PublishedGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One threshold. It applies to machines that match all given fields.

    Attributes:
        measures: What it measures, in words.
        at_least: The lowest rate that passes, with its unit.
        source: Repository and file.
        testcases: Testcases that measure the same, with the wildcards ``*`` and ``?``.
        models: Models of GPUs, with the wildcards ``*`` and ``?``; empty for any machine.
        gpus: Number of GPUs per node; 0 for any.
        nodes: Number of nodes.
        size: Lowest size at which a lower rate is a failure. The default is the size of expected ranges.
        link: Kind of the links that limit the rate; a path without such a link does not make the gate
            impossible.
        network: Rate of the network of a node in each direction, if known.
        needs: What no testcase measures; empty if one does.
    """

    measures: str
    at_least: str
    source: str
    testcases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    size: str = "256MiB"
    link: LinkKind | None = None
    network: str = ""
    needs: str = ""


class _GateFile(msgspec.Struct, forbid_unknown_fields=True):
    read: date
    gate: tuple[PublishedGate, ...]


@dataclass(frozen=True)
class GateSet:
    """The gates of one operator or file.

    Attributes:
        name: Name of the set, or the path of the file.
        read: When the source was read.
        gates: The gates.
    """

    name: str
    read: date
    gates: tuple[PublishedGate, ...]


#: The sets that wirespeed contains; the file of each has its name.
GateSetName = Literal["aws", "azure", "dcgm", "gcp", "oci"]
_SETS = files("wirespeed.data").joinpath("gates")


def known() -> tuple[GateSetName, ...]:
    """Names of the sets that wirespeed contains."""
    names: tuple[GateSetName, ...] = get_args(GateSetName)
    return names


def load(name: str) -> GateSet:
    """Load a set of gates.

    Args:
        name: Name of a known set, or path of a TOML file.

    Returns:
        The gates.

    Raises:
        UsageError: If there is no such set or file, or an entry is invalid.
    """
    sets = ", ".join(known())
    try:
        shipped = name in known()
        text = _SETS.joinpath(f"{name}.toml").read_bytes() if shipped else read(name, LARGEST_WRITTEN)
        content = neutral(tomllib.loads(text.decode()))
        if wrong := unknown_name(content, _GateFile):
            raise ValueError(str(wrong))
        parsed = msgspec.convert(content, _GateFile)
    except OSError as error:
        raise UsageError(
            f"cannot read the thresholds {name!r}: {error.strerror}; known sets: {sets}"
        ) from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"{name} is not a valid file of thresholds: {error}; known sets: {sets}") from error
    for gate in parsed.gate:
        try:
            _refuse_unusable(gate)
        except UsageError as error:
            raise UsageError(f"{name}: the threshold {gate.measures!r}: {error}") from error
    return GateSet(name, parsed.read, parsed.gate)


def _refuse_unusable(gate: PublishedGate) -> None:
    """Refuse a gate with a value that cannot be used, or that would never be compared."""
    for rate in filter(None, (gate.at_least, gate.network)):
        parse_rate(rate)
    if not gate.at_least or not gate.source.strip():
        raise UsageError("it has no threshold or no source; add at_least and source")
    parse_size(gate.size)
    if not gate.testcases and not gate.needs:
        raise UsageError("it names no testcases; add testcases, or needs if none measures the same")
    for pattern in gate.testcases:
        if not matching([case.name for case in TABLE], pattern):
            raise UsageError(f"there is no testcase {pattern!r}; see `wirespeed list`")


#: Words of verdicts on gates, where they differ from those on values. Of a value that is below the gate, but
#: was measured with less data than the gate requires; and of a gate that does not apply.
_WORDS = {Verdict.NOT_JUDGED: "unclear", Verdict.WAIVED: "not applicable"}


@dataclass(frozen=True)
class GateResult:
    """Result of one gate.

    Attributes:
        gate: The gate.
        verdict: Fail or pass; not judged, if it says nothing about the machine; waived, if it does not apply.
        lowest: The lowest measured cell; None if there is none.
        expected: Expected range of these cells: the lowest value that passes and the typical one, in B/s.
        why: Reason why the gate is not applicable, impossible, unclear or failed without a value.
        remark: What is wrong with a gate that is possible; empty if nothing is.
        impossible: Whether no healthy machine with these links can pass, so that it is not judged.
    """

    gate: PublishedGate
    verdict: Verdict
    lowest: Judgement | None = None
    expected: tuple[float, float] | None = None
    why: str = ""
    remark: str = ""
    impossible: bool = False

    @property
    def word(self) -> str:
        """Its verdict in texts and data: fail, impossible, unclear, pass or not applicable."""
        return "impossible" if self.impossible else _WORDS.get(self.verdict, self.verdict.value)

    @property
    def rank(self) -> tuple[int, bool]:
        """Position in the order of words; the lowest is the worst."""
        return self.verdict.rank, not self.impossible

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return brief(f"GateResult {self.word}: {self.gate.measures}, at least {self.gate.at_least}{why}")


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
        return [result for result in self.results if result.verdict is Verdict.FAIL]

    @property
    def failed(self) -> int:
        """Number of failed gates."""
        return len(self.failures)

    def __repr__(self) -> str:
        counts = Counter(result.word for result in sorted(self.results, key=lambda result: result.rank))
        verdicts = ", ".join(f"{count} {word}" for word, count in counts.items())
        kind = " (simulated)" if self.simulated else ""
        return brief(f"GateComparison{kind}: {self.gates.name}; thresholds: {verdicts or 'none'}")


def compare_gates(gates: GateSet, document: Document, judgements: Sequence[Judgement]) -> GateComparison:
    """Compare a judged run with a set of gates."""
    limits = _limits(document)
    results = (_compare(gate, document, judgements, limits) for gate in gates.gates)
    return GateComparison(gates, tuple(results), document.simulated)


def unsuitable(gates: GateSet, machine: Machine) -> str:
    """Why a set of gates has none for the GPUs of a machine; empty if it has."""
    if any(not gate.models or len(_others(gate, machine)) < len(machine.gpus) for gate in gates.gates):
        return ""
    models = dict.fromkeys(model for gate in gates.gates for model in gate.models)
    there = Counter(gpu.model for gpu in machine.gpus)
    have = ", ".join(f"{n} x {model}" for model, n in there.items()) or "a machine without GPUs"
    has = f"; it has thresholds for: {', '.join(models)}" if models else ""
    return f"no threshold of {gates.name} is for {have}{has}"


def _others(gate: PublishedGate, machine: Machine) -> set[str]:
    """The GPUs of a machine that a gate is not for."""
    models = gate.models or ("*",)
    return {gpu.name for gpu in machine.gpus if not any(fnmatchcase(gpu.model, m) for m in models)}


#: For each cell the limit in B/s, with other transfers left out, and the kinds of the links that it uses. An
#: assumed limit is None: it makes no gate impossible.
_Limits = dict[Key, tuple[float | None, set[str]]]


def _limits(document: Document) -> _Limits:
    document = renewed(document)
    links = document.machine.links
    return {
        key: (
            None if any(links[i].assumed for i, *_ in cell.links) else cell.peak or cell.limit,
            {links[i].kind for i, *_ in cell.links},
        )
        for key, cell, *_ in placed(document)
    }


def _compare(
    gate: PublishedGate, document: Document, judgements: Sequence[Judgement], limits: _Limits
) -> GateResult:
    machine, threshold = document.machine, parse_rate(gate.at_least)
    others = _others(gate, machine)
    if gate.models and len(others) == len(machine.gpus):
        return GateResult(gate, Verdict.WAIVED, why="other GPUs")
    if why := _beyond_network(gate, threshold):
        return GateResult(gate, Verdict.NOT_JUDGED, why=why, impossible=True)
    if why := gate.needs or _other_size(gate, machine, len(machine.gpus) - len(others)):
        return GateResult(gate, Verdict.WAIVED, why=why)
    fitting = [
        judgement
        for judgement in judgements
        if judgement.key.column and any(fnmatchcase(judgement.key.tested, name) for name in gate.testcases)
        and judgement.unit is Unit.RATE and not {judgement.key.row, judgement.key.column} & others
        and (
            judgement.verdict is not Verdict.BUSY if judgement.value is not None
            else judgement.verdict is Verdict.FAIL
        )
    ]  # fmt: skip
    if not fitting:
        return GateResult(gate, Verdict.WAIVED, why="testcases without a value in this run")
    largest = max(judgement.key.bytes for judgement in fitting)
    enough = min(largest, parse_size(gate.size))
    fitting = [judgement for judgement in fitting if judgement.value is None or judgement.key.bytes >= enough]
    lowest = min(fitting, key=lambda judgement: judgement.value or 0.0)
    ranges = [(j.least, j.normal) for j in fitting if j.least and j.normal]
    expected = (min(least for least, _ in ranges), max(normal for _, normal in ranges)) if ranges else None
    if lowest.value is None:
        return GateResult(gate, Verdict.FAIL, lowest, expected, lowest.why)
    if why := _beyond_links(gate, threshold, fitting, limits, document):
        return GateResult(gate, Verdict.NOT_JUDGED, lowest, expected, why, impossible=True)
    remark = _remark(threshold, expected)
    if lowest.value >= threshold:
        return GateResult(gate, Verdict.PASS, lowest, expected, remark=remark)
    if largest < parse_size(gate.size):
        size = format_size(parse_size(gate.size))
        why = f"measured with {format_size(largest)}; the threshold is for {size}"
        return GateResult(gate, Verdict.NOT_JUDGED, lowest, expected, why, remark)
    return GateResult(gate, Verdict.FAIL, lowest, expected, remark=remark)


def _other_size(gate: PublishedGate, machine: Machine, gpus: int) -> str:
    """Which number of nodes or GPUs a gate is for if the run has another; empty if it fits."""
    if gate.nodes != max(1, len({rank.host for rank in machine.ranks})):
        return many(gate.nodes, "node")
    if gate.gpus and (len(machine.ranks) or gpus) != gate.gpus * gate.nodes:
        return many(gate.gpus * gate.nodes, "GPU")
    return ""


def _beyond_network(gate: PublishedGate, threshold: float) -> str:
    """Why no collective between nodes can pass a gate; empty if one can.

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
    """Why the links do not allow a cell to pass a gate; empty if they do, or if links are missing.

    The limit of NVLink counts only active links. A threshold above it says nothing about the gate if a GPU
    has inactive links, or the path has no NVLink at all.
    """
    known = [limits[judgement.key] for judgement in fitting if judgement.key in limits]
    if gate.link and not all(gate.link in kinds for _, kinds in known):
        return ""
    facts = Facts(document.facts)
    inactive = (facts.number(Known.NVLINKS_INACTIVE, gpu.name) for gpu in document.machine.gpus)
    if gate.link is LinkKind.NVLINK and any(inactive):
        return ""
    least = min((limit for limit, _ in known if limit), default=threshold)
    return f"above the limit of the links, {_rate(least)}" if threshold > least else ""


def _remark(threshold: float, expected: tuple[float, float] | None) -> str:
    """In what way a possible gate is far from the expected range; empty if it is not."""
    if expected and threshold < expected[0] * MEANINGLESS:
        return "meaningless: so low that a link at half speed would pass"
    if expected and threshold > expected[1]:
        return "this threshold is above the typical rate, so healthy machines may fail it"
    return ""


def _rate(value: float) -> str:
    scale, unit = displayed(Unit.RATE)
    return f"{value / scale:.6g} {unit}"
