"""What published rates say of a value: what GPUs of its model reached, else other GPUs over such links. A
rate is compared as a share of the line rate of the link that limits it, so that the rates of several models
say what is usual of a kind of link, where too few sources know the model itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from ..data import GpuSheet, factors, gpu_sheet, gpu_sheets, norms
from ..data.norms import OBSERVED, SOURCES, TOLERANCES, Path, PublishedRate
from ..document import Document, TestcaseResult
from ..hardware import pcie
from ..hardware.facts import OFF, ON, Facts, Known
from ..hardware.topology import LinkKind, Machine
from ..results.cells import Placed
from ..results.imported_limits import SENDRECV, directions_of, hosts_of
from ..statistics import grouped
from ..tables import BUSBW, Cell
from ..thresholds.values import (
    ALIKE_PCIE,
    DIRECTIONS,
    DIRECTIONS_AT_ONCE,
    FAR_BELOW,
    JUDGED_BYTES,
    LARGE_ARRAY,
    LARGE_OF_HOSTS,
    LEAST_MODELS,
    OTHER_MODELS,
    OTHER_RING_RANKS,
    OVER_LINE,
    RING_RANKS,
    SAME_MODEL,
    TYPICAL_OF_LINE,
)
from ..units import GB
from . import published_network as network
from .published_memory import READ, MemoryShare, memory_shares
from .published_network import has_nvls
from .unconfirmed_limits import limiting_links, slowest_possible
from .verdict import Judgement, Verdict, worst

#: Smallest buffer of an own copy that is compared, in bytes.
_LARGE_COPY = JUDGED_BYTES
#: Ranks of a host for which NCCL lets the switches reduce.
_NVLS_RANKS = 8
RING, NVLS = "ring", "NVLS"
#: Testcase -> path, method, and direction or kernel of published rates that are alike.
_LIKE = {
    **{
        f"{name}_memcpy_{method}": (Path.HOST_GPU, method, direction)
        for method in ("ce", "sm")
        for name, direction in (("host_to_device", "to_device"), ("device_to_host", "from_device"))
    },
    **{
        f"device_to_device_memcpy_{way}_{method}": (Path.GPU_GPU, method, "one_way")
        for method in ("ce", "sm")
        for way in ("read", "write")
    },
    "device_local_copy": (Path.GPU_MEMORY, "ce", "copy"),
    **{
        f"device_stream_{kernel}": (Path.GPU_MEMORY, "sm", "kernel")
        for kernel in ("copy", "scale", "add", "triad", "read")
    },
}  # fmt: skip
#: Directions of published copies between GPUs that are alike.
_ONE_WAY = ("read", "write", "one_way")


def subject_of(testcase: str) -> tuple[Path, str, str, str] | None:
    """Path, method, direction and operation of published rates of a testcase; None if it has none."""
    if testcase not in _LIKE:
        return None
    path, method, direction = _LIKE[testcase]
    operation = testcase.rpartition("_")[2] if path is Path.GPU_MEMORY else ""
    if path is Path.GPU_GPU:
        direction = "read" if "_read_" in testcase else "write"
    return path, method, operation or direction, operation


class _Like(NamedTuple):
    """What published rates are compared by: shares of the line rate of one kind of link.

    Cards of desktop machines have another kind of memory than modules, and reach more of its line rate.
    """

    path: Path
    link: LinkKind
    method: str
    how: str
    desktop: bool = False


@dataclass(frozen=True)
class Reference:
    """What published rates say of a value.

    Attributes:
        least, typical: The lowest usual and the typical value, in B/s.
        far: A value below fails, in B/s; None if only the links say what is too low.
        model: Whether the rates are of this model, not only of such links.
        sources: Number of independent sources.
        most: The highest usual rate of the model, in B/s; None if only such links are known.
        otherwise: The lowest usual rate without NVLS, in B/s, if it is assumed; else None.
        others: What the rates are of, in words, if not of this model nor of GPUs.
    """

    least: float
    typical: float
    far: float | None
    model: bool
    sources: int
    most: float | None = None
    otherwise: float | None = None
    others: str = ""


class References:
    """What published rates say of the values of one run."""

    def __init__(self, document: Document) -> None:
        self._document, self._machine = document, document.machine
        # Simulated machines are as fast as their links typically are: there are no others of their models.
        gpus = document.machine.gpus
        self._sheets = {gpu.name: gpu_sheet(gpu.model) for gpu in gpus}

    def of(self, measured: Placed) -> Reference | None:
        """What published rates say of a value; None if nothing does.

        The typical rate of a simulated machine is that of its links, by which causes are found.
        """
        found = self._found(measured)
        if found and self._document.simulated and measured.cell.expected:
            typical = measured.cell.expected[1]
            return replace(found, typical=typical, least=min(found.least, typical))
        return found

    def _found(self, measured: Placed) -> Reference | None:
        cell, limit = measured.cell, measured.cell.limit
        if measured.key.tested == READ and not measured.key.table and cell.value is not None:
            return self._of_host_memory(measured)
        if not limit or cell.value is None or not cell.expected or cell.shared:
            return None
        if _kind(self._machine, cell) is LinkKind.NETWORK and self._document.imported:
            return self._between_hosts(measured)
        limit *= slowest_possible(self._machine, cell)
        if measured.result.collective is not None:
            return self._of_collective(measured, limit)
        like = _LIKE.get(measured.key.tested)
        if like is None or measured.key.table:
            return None
        if not self._document.imported and measured.key.bytes < _LARGE_COPY:
            return None  # the time that a copy takes to start matters, which the range allows for
        sheets = {sheet[0] for end in measured.key[2:4] if (sheet := self._sheets.get(end))}
        link = _kind(self._machine, cell)
        if len(sheets) != 1 or link is None:
            return None  # no GPU, GPUs of two models, or no data sheet
        path, method, how = like
        name = sheets.pop()
        if link is LinkKind.PCIE and gpu_sheets()[name].pcie < ALIKE_PCIE:
            return None
        desktop = link is LinkKind.MEMORY and gpu_sheets()[name].desktop
        return _reference(_Like(path, link, method, how, desktop), name, limit)

    def _of_host_memory(self, measured: Placed) -> Reference | None:
        """What CPUs with such memory reach, as a share of its capacity; None if that is not known.

        In virtual machines others use the memory too, and with a quota not all cores are used.
        """
        facts, node, cell = Facts(self._document.facts), measured.key.column, measured.cell
        limit = cell.limit or facts.number(Known.MEMORY_RATE, node) or 0.0
        hypervisor, imported = facts.text(Known.HYPERVISOR), bool(self._document.imported)
        alone = hypervisor == OFF or (imported and hypervisor != ON)
        cached = not imported and measured.key.bytes < self._machine.last_cache_bytes()
        if limit <= 0 or not alone or cached or cell.shared or facts.number(Known.CPU_QUOTA) is not None:
            return None
        shares = memory_shares(self._machine.cpu, facts.text(Known.CPU_DESIGN))
        models, publishers = {share.model for share in shares}, {share.publisher for share in shares}
        if len(models) < LEAST_MODELS or len(publishers) < SOURCES:
            return None
        cores = sum(len(one.cores) for one in self._machine.numa if one.name == node)
        line = min(limit, cores * factors().core(typical=True)) if cores else limit  # few cores are slower
        found = _of_others(shares, line, OF_MEMORIES)
        return found if hypervisor == OFF else replace(found, far=None)  # of a log, tenants are not known

    def _between_hosts(self, measured: Placed) -> Reference | None:
        """What messages over such a NIC, or collectives of hosts with such NICs, reach; None if unknown.

        As within a host, it is a warning, and no failure, if the value may be that of a ring.
        """
        cell, run = measured.cell, measured.result.collective
        if run is None or run.operation == SENDRECV:
            if run is None and directions_of(measured.key.tested, measured.key.table, cell.row) != 1:
                return None
            assert cell.expected
            one = _of_others(network.shares(network.MESSAGE), cell.expected[1] / TYPICAL_OF_LINE, OF_NETWORKS)
            return one if one.sources >= SOURCES else None
        hosts = hosts_of(self._machine, self._document.ranks, run.ranks)
        sheets = {sheet for sheet in self._sheets.values() if sheet}
        if hosts is None or hosts[1] != network.HOST_GPUS or len(sheets) != 1:
            return None
        ((_, sheet),) = sheets
        if measured.key.table != BUSBW or measured.key.bytes < LARGE_OF_HOSTS:
            return None
        nics = min(self._machine.links[i].capacity or 0.0 for i in limiting_links(cell))
        found = {
            line.how: _of_others(ones, line.rate, OF_NETWORKS)
            for line in network.lines(sheet, nics, hosts[0], run.operation)
            if (ones := network.shares(line.how))
        }
        ring = found.pop(network.RING, None)
        used = algorithm(self._document, measured.result)
        if ring is None or ring.sources < SOURCES:
            return None
        if not found or (used.why and not used.is_sure):
            return ring
        (switched,) = found.values()
        return switched if used.is_sure else replace(switched, far=ring.far, otherwise=ring.least)

    def _of_collective(self, measured: Placed, limit: float) -> Reference | None:
        run = measured.result.collective
        sheets = {sheet[0] if sheet else "" for sheet in self._sheets.values()}
        of_nvlink = _kind(self._machine, measured.cell) is LinkKind.NVLINK
        if run is None or measured.key.table != BUSBW or not of_nvlink or len(sheets) != 1:
            return None
        least = RING_RANKS if run.operation == "all_reduce" else OTHER_RING_RANKS
        if run.ranks < least or run.ranks > len(self._machine.gpus) or measured.key.bytes < LARGE_ARRAY:
            return None
        name = sheets.pop()
        like = _Like(Path.COLLECTIVE, LinkKind.NVLINK, "nccl", RING)
        ring = _reference(like, name, limit)
        used = algorithm(self._document, measured.result)
        if used.name == RING and not used.lacking:
            return ring
        switched = _reference(like._replace(how=NVLS), name, limit)
        if switched is None or ring is None or used.is_sure:
            return switched
        # Without NVLS, the ring is left, which is a warning.
        return replace(switched, far=ring.least * FAR_BELOW, otherwise=ring.least)


class Algorithm(NamedTuple):
    """What reduces in an all-reduce.

    Attributes:
        name: NVLS or ring.
        why: What says so, for people; empty if NVLS is out of the question.
        assumed: Whether the run does not say so.
        lacking: Whether the switches should reduce, and do not.
    """

    name: str
    why: str = ""
    assumed: bool = False
    lacking: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether the switches do reduce."""
        return self.name == NVLS and not self.assumed


def algorithm(document: Document, result: TestcaseResult) -> Algorithm:
    """What reduces in an all-reduce: the switches (NVLS), where the run says so or NCCL does it by itself."""
    run, facts = result.collective, Facts(document.facts)
    sheets = [gpu_sheet(gpu.model) for gpu in document.machine.gpus]
    able = bool(sheets) and all(sheet and has_nvls(sheet[1]) for sheet in sheets)
    if run is None or run.operation != "all_reduce" or not able:
        return Algorithm(RING)
    settings = (*result.settings, *facts.several(Known.NCCL_VARIABLES))
    for setting in settings:
        others = "NCCL_ALGO=" in setting and NVLS not in setting.upper()
        if others or setting.endswith("NCCL_NVLS_ENABLE=0"):
            return Algorithm(RING, f"{setting.rpartition(' ')[2]} is set")
    if not document.imported and not any(one.endswith("NCCL_NVLS_ENABLE=1") for one in settings):
        return Algorithm(RING, "wirespeed sets NCCL_NVLS_ENABLE=0")
    of_all = run.ranks == _NVLS_RANKS == len(sheets)
    if state := facts.text(Known.NCCL_NVLS):
        return Algorithm(NVLS if state == ON else RING, "as NCCL's lines say", lacking=of_all and state != ON)
    if of_all:
        return Algorithm(NVLS, "assumed, because the log does not say", assumed=True)
    return Algorithm(RING)


def algorithms(document: Document) -> Iterator[str]:
    """What reduces in the all-reduces of a run whose NVLink switches could, for people."""
    for result in document.testcases:
        run = result.collective
        if run and run.ranks >= RING_RANKS and (used := algorithm(document, result)).why:
            how = "the NVLink switches reduce (NVLS)" if used.name == NVLS else "a ring, without NVLS"
            yield f"{result.name}: {how}: {used.why}"


def _kind(machine: Machine, cell: Cell) -> LinkKind | None:
    """The kind of the links that limit a value; None if there are several."""
    kinds = {machine.links[i].kind for i in limiting_links(cell)} if cell.links else set()
    return kinds.pop() if len(kinds) == 1 else None


def tightened(judgement: Judgement, reference: Reference, chance: float = 0.0) -> Judgement:
    """The judgement on a value by its links, with what published rates say of it.

    A value that others of its model reach passes. A lower one is at least a warning, and fails if it is far
    below, or too low for its links.

    Args:
        judgement: The judgement.
        reference: What published rates say.
        chance: Fraction by which few samples may be too low by chance.
    """
    value = (judgement.value or 0.0) * (1 + chance)
    if value >= reference.least:
        if judgement.is_above:
            return replace(judgement, reference=_words(reference))
        if not reference.model:  # its peers that are slow have the same typical value
            return replace(judgement, normal=reference.typical, reference=_words(reference))
        return replace(
            judgement, verdict=Verdict.PASS, why="", least=reference.least, normal=reference.typical,
            reference=_words(reference), most=reference.most,
        )  # fmt: skip
    far = reference.far is not None and value < reference.far
    verdict = worst((judgement.verdict, Verdict.FAIL if far else Verdict.WARN))
    too_low = verdict is judgement.verdict and value < (judgement.least or 0.0)  # also for the links
    if reference.otherwise is not None and value >= reference.otherwise:
        return replace(
            judgement, verdict=verdict, why=_WITHOUT_NVLS, reference=_words(reference),
            least=reference.least, normal=reference.typical,
        )  # fmt: skip
    why = (
        judgement.why
        if too_low
        else f"{'far ' if far else ''}slower than usual, compared with {_words(reference)}"
    )
    return replace(
        judgement, verdict=verdict, why=why, reference=_words(reference),
        least=max(reference.least, judgement.least or 0.0),
        normal=reference.typical,
    )  # fmt: skip


#: Copies from the host -> those to it, by the same method, and by which fraction one may be slower.
_OTHER_WAY = {
    f"host_to_device_{both}memcpy_{method}": (f"device_to_host_{both}memcpy_{method}", fraction)
    for both, fraction in (("", DIRECTIONS), ("bidirectional_", DIRECTIONS_AT_ONCE))
    for method in ("ce", "sm")
}


def by_other_direction(
    judged: Sequence[Judgement], cells: Sequence[Placed], machine: Machine
) -> Iterator[tuple[int, Judgement]]:
    """Yield the values that would pass, but are slower than the copy in the other direction, by index."""
    known = {gpu.name for gpu in machine.gpus if gpu_sheet(gpu.model)}
    found: dict[tuple[str, ...], int] = {
        (measured.key.tested, measured.key.number, *measured.key[1:4]): i
        for i, measured in enumerate(cells)
        if measured.cell.value and not measured.cell.shared and not measured.key.table
        and measured.key.column in known and _kind(machine, measured.cell) is LinkKind.PCIE
    }  # fmt: skip
    for (name, *place), i in found.items():
        opposite, fraction = _OTHER_WAY.get(name, ("", 0.0))
        other = found.get((opposite, *place))
        if other is None:
            continue
        slower, faster = sorted((i, other), key=lambda index: cells[index].cell.value or 0.0)
        low, high = (cells[index].cell.value or 0.0 for index in (slower, faster))
        if low < high * (1 - fraction) and judged[slower].verdict in (Verdict.PASS, Verdict.NOT_JUDGED):
            why = f"{1 - low / high:.0%} slower than the other direction ({cells[faster].key.testcase})"
            yield slower, replace(judged[slower], verdict=Verdict.WARN, why=why)


def _words(reference: Reference) -> str:
    return OF_MODEL if reference.model else reference.others or OF_LINKS


#: Why the value of an all-reduce is slow that a ring reaches.
_WITHOUT_NVLS = "as slow as without NVLS (the NVLink switches do not reduce): see NCCL_DEBUG=INFO"
#: What a value was compared with, in words.
OF_MODEL, OF_LINKS = "others of this model", "GPUs over such links"
OF_MEMORIES, OF_MODULES, OF_NETWORKS = (
    "CPUs with such memory",
    "modules with such links",
    "others over such NICs",
)
#: What the bus bandwidth of a collective between hosts was compared with: it mixes NVLink, NICs and the
#: algorithm, so that the rate of the NICs is only an upper bound.
OF_NICS = "the upper bound of the NICs"


def bounded_by_nics(judgement: Judgement, measured: Placed, machine: Machine) -> Judgement:
    """A collective between hosts that passes: only what the NICs carry at most is known.

    Unless it is as fast as others over such NICs, and not faster, by an algorithm that no source has used.
    """
    of_hosts = measured.result.collective is not None and _kind(machine, measured.cell) is LinkKind.NETWORK
    if not of_hosts or judgement.verdict is not Verdict.PASS:
        return judgement
    most = (judgement.normal or 0.0) * (1 + TOLERANCES[Path.COLLECTIVE_NODES])
    if judgement.reference and judgement.value is not None and judgement.value <= most:
        return judgement
    return replace(judgement, normal=None, reference=OF_NICS)


def _of_others(
    shares: Sequence[_Share | MemoryShare | network.NetworkShare], line: float, words: str
) -> Reference:
    """What other models over such links reach, as shares of the rate of the links, in B/s."""
    least = min(one.share for one in shares) * (1 - OTHER_MODELS) * line
    typical, sources = median(one.share for one in shares), {one.publisher for one in shares}
    return Reference(least, typical * line, least * FAR_BELOW, False, len(sources), others=words)


def _reference(like: _Like, name: str, limit: float) -> Reference | None:
    """What published rates say of values of a model (its data sheet's name) with a limit, in B/s."""
    rows = _shares().get(like, ())
    tolerance = TOLERANCES[like.path]
    own = [row for row in rows if row.sheet == name]
    sources = {row.publisher for row in own}
    if len(sources) >= SOURCES:
        typical = median(row.share for row in own)
        least = min(min(row.share for row in own) * (1 - SAME_MODEL), typical * (1 - tolerance))
        most = max(max(row.share for row in own) * (1 + SAME_MODEL), typical * (1 + tolerance))
        return Reference(
            least * limit, typical * limit, least * FAR_BELOW * limit, True, len(sources), most * limit
        )
    if like.link is LinkKind.C2C:  # modules differ in how many GPUs share the links of a CPU
        alike = [row for row in rows if gpu_sheets()[row.sheet].c2c == gpu_sheets()[name].c2c]
        if len({row.publisher for row in alike}) >= SOURCES:
            return _of_others(alike, limit, OF_MODULES)
        if not own:
            return None
        typical = median(row.share for row in own)
        least = min(row.share for row in own) * (1 - 2 * tolerance)
        return Reference(least * limit, typical * limit, None, False, 1)
    sources = {row.publisher for row in rows}
    if len({row.sheet for row in rows}) < LEAST_MODELS or len(sources) < SOURCES:
        return None
    return replace(_of_others(rows, limit, ""), far=None)


class _Share(NamedTuple):
    """A published rate as a share of the line rate."""

    share: float
    sheet: str
    publisher: str


@norms.of_observations
def _shares(rows: tuple[PublishedRate, ...]) -> dict[_Like, tuple[_Share, ...]]:
    """The published rates as shares of line rates, by what they are alike in."""
    found = grouped(pair for row in rows if row.kind in OBSERVED for pair in _shared(row))
    return {like: tuple(shares) for like, shares in found.items()}


def _shared(row: PublishedRate) -> Iterable[tuple[_Like, _Share]]:
    """A rate as a share, by what it is like; nothing if the link that limits it is not known."""
    subject, sheet = row.subject, gpu_sheet(row.model)
    if sheet is None:
        return
    name, known = sheet
    link: LinkKind | None = None
    lines: tuple[float, ...] = ()
    how = subject.direction
    if subject.path is Path.HOST_GPU and known.c2c:
        link, lines = LinkKind.C2C, tuple(rate * GB for rate in known.c2c)
    elif subject.path is Path.HOST_GPU and (lanes := pcie.rate(known.pcie, known.lanes)):
        link, lines = LinkKind.PCIE, (lanes[0],)
    elif subject.path is Path.GPU_MEMORY:
        link, lines = LinkKind.MEMORY, known.memory_rates
    elif subject.path in (Path.GPU_GPU, Path.COLLECTIVE) and known.switch:
        link, lines = LinkKind.NVLINK, (known.nvlinks(known.links[-1]),)
    if subject.path is Path.GPU_GPU:
        how = "one_way" if how in _ONE_WAY else how
    if subject.path is Path.GPU_MEMORY and subject.method == "sm":
        how = "kernel"  # copy, triad and read differ by less than models do
    if subject.path is Path.COLLECTIVE:
        how = _algorithm_of(row, known)
    if link is not None and lines:
        line = next((line for line in lines if row.rate <= line * (1 + OVER_LINE)), lines[-1])
        yield (
            _Like(subject.path, link, subject.method, how, link is LinkKind.MEMORY and known.desktop),
            _Share(row.rate / line, name, row.publisher),
        )


def _algorithm_of(row: PublishedRate, sheet: GpuSheet) -> str:
    """The algorithm of a published collective; empty if the source leaves it open."""
    subject = row.subject
    ranks = int(subject.devices) if subject.devices.isdigit() else 0
    least = RING_RANKS if subject.operation == "all_reduce" else OTHER_RING_RANKS
    if not least <= ranks <= _NVLS_RANKS:
        return ""
    if subject.algorithm:
        return subject.algorithm
    return RING if subject.operation != "all_reduce" or not has_nvls(sheet) else ""
