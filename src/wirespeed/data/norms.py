"""Published rates of models of GPUs, CPUs and NICs, each with its source, and what is usual by them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache, wraps
from importlib.resources import files
from statistics import median
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..errors import UsageError
from ..statistics import grouped
from ..units import GB, MB
from . import gpu_sheet

T = TypeVar("T")

#: Bytes per second of the units in which sources give rates.
UNITS = {
    "MB/s": MB, "GB/s": GB, "TB/s": 1e12, "MiB/s": 2.0**20, "GiB/s": 2.0**30, "Gbit/s": GB / 8,
}  # fmt: skip
#: Sources that a norm needs: one machine says nothing about others.
SOURCES = 2


class Kind(StrEnum):
    """What a source says of a rate."""

    SEEN = "seen"  # an output of a machine that its author presents as normal
    GUIDE = "guide"  # what a guide or a maintainer says is good
    LEAST = "least"  # the lowest rate that an acceptance test accepts: no observation
    OTHER = "other"  # of another path, or by another way, than the model's, as its note says: no observation


#: Kinds of rates that say what is usual.
OBSERVED = (Kind.SEEN, Kind.GUIDE)


class Path(StrEnum):
    """Kind of path, which is the name of its file."""

    HOST_GPU = "host-gpu"
    GPU_GPU = "gpu-gpu"
    GPU_MEMORY = "gpu-memory"
    COLLECTIVE = "collective"
    COLLECTIVE_NODES = "collective-nodes"
    NODE_NODE = "node-node"
    HOST_MEMORY = "host-memory"


#: Smallest fraction around the median that is usual, however close the sources are to each other. Eleven
#: checks of two hosts with two H200s each (2026-11-28) differ from their median by 0.5% between GPUs and
#: in their memory, by 5% from the host, and by 1.5% in collectives; versions of drivers and virtual machines
#: are added to that.
TOLERANCES = {
    Path.HOST_GPU: 0.07, Path.GPU_GPU: 0.03, Path.GPU_MEMORY: 0.03, Path.COLLECTIVE: 0.07,
    Path.COLLECTIVE_NODES: 0.15, Path.NODE_NODE: 0.05, Path.HOST_MEMORY: 0.15,
}  # fmt: skip


class Subject(NamedTuple):
    """What a norm is about.

    Attributes:
        path: Kind of path.
        model: Name of the data sheet of a GPU, or model of a CPU or NIC.
        method: What moves the data: ce, sm, nccl, mpi, verbs, stream or mlc.
        direction: Of copies: to_device, from_device, one_way, both_...; of memory: the kernel.
        operation: The collective, or the operation of a library.
        devices: Number of GPUs or sockets, hosts x GPUs; empty where it makes no difference.
        algorithm: NVLS, ring or tree if the source names it.
    """

    path: Path
    model: str
    method: str
    direction: str = ""
    operation: str = ""
    devices: str = ""
    algorithm: str = ""


@dataclass(frozen=True)
class PublishedRate:
    """A rate that a source gives.

    Attributes:
        subject: What it is about.
        model: The model as the source names it.
        form: Form of the GPU, or sockets and memory of the CPU.
        size: Size of the buffer or message as in the source; empty if it does not say.
        rate: The rate in B/s; of collectives the bus bandwidth.
        kind: What the source says of it.
        source: Address of the page.
        date: Year and month of the source, as far as known.
        tool: The program.
        platform: Cloud or system; empty if unknown.
        note: What explains the rate.
    """

    subject: Subject
    model: str
    form: str
    size: str
    rate: float
    kind: Kind
    source: str
    date: str
    tool: str
    platform: str
    note: str

    @property
    def publisher(self) -> str:
        """The repository or site, whose pages are not independent of each other; own pages are one source."""
        if self.source.startswith("docs/"):
            return "wirespeed"
        site = urlsplit(self.source)
        return site.netloc + "/".join(site.path.split("/")[: 5 if "/issues/" in site.path else 3])


@dataclass(frozen=True)
class Norm:
    """What is usual for a subject.

    Attributes:
        subject: What it is about.
        observations: The rates of the sources that say what is usual.
    """

    subject: Subject
    observations: tuple[PublishedRate, ...]

    @cached_property
    def expected(self) -> float:
        """The median of the observed rates, in B/s."""
        return median(one.rate for one in self.observations)

    @cached_property
    def usual(self) -> tuple[float, float]:
        """Lowest and highest usual rate, in B/s: those observed, and at least the tolerance of the path."""
        rates, least = [one.rate for one in self.observations], TOLERANCES[self.subject.path]
        return min(*rates, self.expected * (1 - least)), max(*rates, self.expected * (1 + least))

    @cached_property
    def sources(self) -> int:
        """Number of independent sources."""
        return len({one.publisher for one in self.observations})


#: The fields of a row.
HEADING = (
    "model", "form", "path", "method", "direction", "operation", "count", "size", "algorithm", "value",
    "unit", "kind", "source", "date", "tool", "platform", "note",
)  # fmt: skip
#: Paths whose model is a GPU.
_OF_GPUS = (Path.HOST_GPU, Path.GPU_GPU, Path.GPU_MEMORY, Path.COLLECTIVE, Path.COLLECTIVE_NODES)
#: Paths for which the number of devices makes a difference.
_COUNTED = (Path.COLLECTIVE, Path.COLLECTIVE_NODES, Path.HOST_MEMORY)
_KINDS = {kind.value for kind in Kind}
#: Operation of a copy within a GPU whose source counts the bytes once; the memory moves them twice.
_ONCE = "copy counted once"


def read(name: str, text: str) -> list[PublishedRate]:
    """The observations in the text of a file.

    Args:
        name: Name of the file, for errors.
        text: Comma-separated rows below the heading.

    Raises:
        UsageError: If a row has an unknown model, path, unit or kind, no rate, no source, or contradicts
            another row of the same source; it names file and row.
    """
    rows = csv.DictReader(io.StringIO(text))
    if tuple(rows.fieldnames or ()) != HEADING:
        raise UsageError(f"{name}: the first line must be {','.join(HEADING)}")
    observations: dict[PublishedRate, int] = {}
    known: dict[tuple[object, ...], float] = {}
    for row in rows:
        where = f"{name}: line {rows.line_num}"
        if None in row or None in row.values():
            raise UsageError(f"{where}: {len(HEADING)} fields are needed")
        one = _observation(row, where)
        key = (
            one.subject,
            one.model,
            one.form,
            one.size,
            one.kind,
            one.source,
            one.tool,
            one.platform,
            one.note,
        )
        if known.setdefault(key, one.rate) != one.rate:
            raise UsageError(f"{where}: another row of this source has another rate; say in the note why")
        observations[one] = rows.line_num
    return list(observations)


def _observation(row: dict[str, str], where: str) -> PublishedRate:
    """An observation of a row."""
    try:
        path = Path(row["path"])
    except ValueError:
        raise UsageError(f"{where}: unknown path {row['path']!r}; paths are {', '.join(Path)}") from None
    if row["unit"] not in UNITS:
        raise UsageError(f"{where}: unknown unit {row['unit']!r}; units are {', '.join(UNITS)}")
    if row["kind"] not in _KINDS:
        raise UsageError(f"{where}: unknown kind {row['kind']!r}; kinds are {', '.join(Kind)}")
    if not re.match(r"https?://[^/]+/|docs/results/", row["source"]):
        raise UsageError(f"{where}: a rate needs the address of its source, not {row['source']!r}")
    try:
        rate = float(row["value"]) * UNITS[row["unit"]]
    except ValueError:
        raise UsageError(f"{where}: {row['value']!r} is not a rate") from None
    rate *= 2 if row["operation"] == _ONCE else 1
    if not 0 < rate < 1e16:
        raise UsageError(f"{where}: {row['value']} {row['unit']} is not a possible rate")
    model = row["model"]
    if path in _OF_GPUS:
        sheet = gpu_sheet(model)
        if sheet is None:
            raise UsageError(f"{where}: no data sheet has the GPU {model!r} (data/gpus.toml)")
        model = sheet[0]
    elif not model:
        raise UsageError(f"{where}: a rate needs a model")
    count = row["count"] if path in _COUNTED else ""
    subject = Subject(
        path, model, row["method"], row["direction"], row["operation"] if path is not Path.GPU_MEMORY else "",
        count, row["algorithm"],
    )  # fmt: skip
    return PublishedRate(
        subject, row["model"], row["form"], row["size"], rate, Kind(row["kind"]), row["source"], row["date"],
        row["tool"], row["platform"], row["note"],
    )  # fmt: skip


@lru_cache(maxsize=1)
def observations() -> tuple[PublishedRate, ...]:
    """All observations that wirespeed contains."""
    folder = files(__package__) / "norms"
    return tuple(
        one for path in Path for one in read(f"{path}.csv", (folder / f"{path}.csv").read_text("utf-8"))
    )


def of_observations(make: Callable[[tuple[PublishedRate, ...]], T]) -> Callable[[], T]:
    """Decorate a function of all observations, so that it is called again only if they are others."""
    made: list[tuple[tuple[PublishedRate, ...], T]] = []

    @wraps(make)
    def known() -> T:
        rows = observations()
        if not made or made[0][0] is not rows:
            made[:] = [(rows, make(rows))]
        return made[0][1]

    return known


def norms_of(rows: Iterable[PublishedRate]) -> dict[Subject, Norm]:
    """The norms that observations make; the lowest accepted rates and those of other ways make none."""
    of_subject = grouped((one.subject, one) for one in rows if one.kind in OBSERVED)
    return {subject: Norm(subject, tuple(ones)) for subject, ones in of_subject.items()}


@of_observations
def norms(rows: tuple[PublishedRate, ...]) -> dict[Subject, Norm]:
    """The norms that wirespeed contains, by what they are about."""
    return norms_of(rows)
