"""The options of a run: one record, in which each field declares one option completely. Command line,
keywords and description of ``wirespeed.run``, comparison between ranks and the options of a Document follow
from it. To add an option, add a field with `option` and read it where it takes effect; fields of
`PlanOptions` change which Measurements are planned.
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from inspect import Parameter
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from .errors import UsageError
from .model import PoolLayout
from .statistics import ROUNDS, Fixed, Precise, Rule
from .units import LARGEST_SIZE, parse_duration, parse_fraction, parse_memory, parse_size, parse_sizes

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
#: Largest whole number that a Document can contain.
_MOST = 2**63 - 1
#: Sizes below this, in bytes, need a unit in a text: a small number is usually meant in MiB.
LEAST_WITHOUT_UNIT = 4096
#: One GPU or a range of them, and the maximum number of GPUs in a range.
_GPUS = re.compile(r"(?:gpu)?([0-9]{1,6})(?:-(?:gpu)?([0-9]{1,6}))?", re.ASCII | re.IGNORECASE)
_MOST_GPUS = 4096
#: How thorough a run is. Each tier contains the one before it.
Tier = Literal["quick", "standard", "full"]
TIERS: tuple[Tier, ...] = get_args(Tier)
#: Transports between processes.
Share = Literal["fabric", "vmm-fd", "ipc", "shm", "nccl", "mpi"]
SHARES: tuple[Share, ...] = get_args(Share)


class Text(Generic[T]):
    """Type of an option that a caller may also give as a text with a unit, such as ``"64MiB"``."""

    if TYPE_CHECKING:  # type checkers take the type of an argument from the second method

        def __get__(self, options: object, owner: object) -> T: ...
        def __set__(self, options: object, value: T | str) -> None: ...


class Texts(Generic[T]):
    """Type of an option that a caller may also give as a text, or as numbers and texts in any sequence."""

    if TYPE_CHECKING:

        def __get__(self, options: object, owner: object) -> T: ...
        def __set__(self, options: object, value: T | str | Sequence[int | str]) -> None: ...


def includes(tier: Tier, other: Tier) -> bool:
    """Whether a run of a tier contains the testcases of another one."""
    return TIERS.index(other) <= TIERS.index(tier)


# The groups of options in ``--help``.
WHAT = "what to measure"
STOP = "when to stop: at a precision (default), or after fixed counts (--samples, --copies)"
HOW = "how to measure"
GPU = "how GPUs copy"
JOB = "several processes (also under mpirun, srun or torchrun)"
#: The groups of all options that say what and how a run measures.
MEASURING = (WHAT, STOP, HOW, GPU, JOB)
PYTHON = ""  # not listed: from Python and in the compatible commands only
#: The stopping rule of each tier if no count, precision or time budget is given. Values that are not precise
#: within the time of a quick run vary as much with 0.3 s, and 1 s per testcase, which took a fifth longer.
RULES: dict[Tier, Precise] = {
    "quick": Precise(0.01, 0.2, 0.6, 3, rounds=1), "standard": Precise(), "full": Precise(0.005, 10.0),
}  # fmt: skip
#: Largest number of blocks of a list.
MOST_BLOCKS = 2**20
#: Error messages for numbers out of range.
_SHAPE = "blocks must be 0 or more, threads from 0 to 1024"
_PEERS = "the number of sampled peers must be 0 (all) or more, not {}"


@dataclass(frozen=True)
class Option:
    """The declaration of an option, in addition to its name, type and default value.

    Attributes:
        help: Description in one phrase that begins in lower case; for a switch, an imperative.
        group: Group of ``--help`` that lists it; empty if none does.
        parse: Converts a text, or a value from Python, to the value; raises UsageError. None for a switch.
        metavar: Name of the value in ``--help``.
        default: Description of the default, if the default value does not show it.
        documented: Whether the options of the Document contain it.
        agreed: Whether all ranks must have the same value.
        choices: The possible values; empty for any that ``parse`` accepts.
        by_project: Whether the file of a project may set it: it changes neither devices, files nor checks.
        flag: Its name on the command line, without dashes; empty for that of the field.
        former: Former names there, which work and are not shown.
    """

    help: str
    group: str
    parse: Callable[[Any], Any] | None = None
    metavar: str | None = None
    default: str = ""
    documented: bool = True
    agreed: bool = True
    choices: tuple[Any, ...] = ()
    by_project: bool = False
    flag: str = ""
    former: tuple[str, ...] = ()


def option(value: object, *about: Any, **more: Any) -> Any:
    """A field with its default value and its declaration (the parameters of `Option`)."""
    return field(default=value, metadata={"option": Option(*about, **more)})


def declared(record: type[Any]) -> Iterator[tuple[Field[Any], Option]]:
    """The options of a record: the fields and their declarations."""
    return ((entry, entry.metadata["option"]) for entry in fields(record) if "option" in entry.metadata)


def _parser(parse: Callable[[str], float]) -> Callable[[Any], float]:
    """A parser that converts texts and returns numbers unchanged."""
    return lambda value: parse(value) if isinstance(value, str) else value


def _whole(least: int = -_MOST, most: int = _MOST, wrong: str = "{} is out of range") -> Callable[[Any], int]:
    """A parser of whole numbers within a range, given as numbers or texts."""

    def parse(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else index(value)
        except (TypeError, ValueError):
            raise UsageError(f"{value!r} is not a whole number") from None
        if not least <= number <= most:
            raise UsageError(wrong.format(number))
        return number

    return parse


def _one_of(choices: tuple[str, ...], noun: str) -> Callable[[Any], str]:
    """A parser of the values of a Literal."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise UsageError(f"there is no {noun} {value!r}; choose one of {', '.join(choices)}")
        return str(value)

    return parse


def as_size(value: Any) -> int:
    if isinstance(value, str):
        size = parse_size(value)
        if value.strip().isdecimal() and size < LEAST_WITHOUT_UNIT:
            number = value.strip()
            raise UsageError(
                f"size {number} has no unit: write {number}B, or {number}MiB for nvbandwidth's -b {number}"
            )
        return size
    try:
        size = int(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{value!r} is not a size; use bytes, or a text such as 64MiB") from None
    if not 1 <= size <= LARGEST_SIZE:
        raise UsageError(f"size {size} is out of range; it must be from 1 B to 1 EiB")
    return size


def _folder(value: Any) -> str:
    """The absolute path of a folder: another current folder does not change its meaning."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageError(f"{value!r} is not the name of a folder")
    return str(Path(text).absolute())


def _sizes(value: Any) -> tuple[int, ...]:
    sizes = parse_sizes(value) if isinstance(value, str) else tuple(map(as_size, value))
    for part in value.split(",") if isinstance(value, str) and ":" not in value else ():
        as_size(part)  # as for one size, a number needs a unit
    if not sizes:
        raise UsageError("sizes is empty; give at least one size, or omit it")
    return sizes


def as_counts(value: Any) -> tuple[int, ...]:
    """Numbers of blocks, in ascending order, each once."""
    if isinstance(value, str):
        try:
            value = parse_sizes(value)
        except UsageError:
            raise UsageError(
                f"{value!r} is not a list of numbers of blocks; examples are 16:65536:x4 and 64,1000"
            ) from None
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"{value!r} is not a list of numbers of blocks; an example is (64, 1000)")
    counts = tuple(map(_whole(1, MOST_BLOCKS, f"a list has from 1 to {MOST_BLOCKS} blocks, not {{}}"), value))
    if not counts:
        raise UsageError("block_counts is empty; give at least one number, or omit it")
    return tuple(sorted(set(counts)))


def _layout(value: Any) -> PoolLayout:
    return PoolLayout(_one_of(tuple(PoolLayout), "layout of blocks")(value))


def _indices(value: Any) -> tuple[int, ...]:
    """The indices of GPUs: numbers, or a text with names and ranges, such as ``0,gpu2,4-7``."""
    if not isinstance(value, str):
        return tuple(map(_whole(), value))
    indices: list[int] = []
    for part in value.split(","):
        found = _GPUS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last < first + _MOST_GPUS:
            raise UsageError(
                f"{value!r} is not a list of GPU indices; an example is 0,2 (or gpu0,gpu2, or 0-3)"
            )
        indices += range(first, last + 1)
    return tuple(indices)


def _positive(noun: str) -> Callable[[Any], float]:
    """A parser of durations above 0, in s."""

    def parse(value: Any) -> float:
        seconds = _parser(parse_duration)(value)
        if not seconds > 0:
            raise UsageError(f"the {noun} must be more than 0 s, not {seconds:g}")
        return seconds

    return parse


_timeout, _limit = _positive("time-out"), _positive("time limit of the run")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options that change which Measurements are planned."""

    # fmt: off
    tier: Tier = option(
        "standard", "preset: how thorough the run is", WHAT, _one_of(TIERS, "preset"), choices=TIERS,
        by_project=True)
    size: Text[int | None] = option(None, "buffer size, such as 512MiB", WHAT, as_size, "SIZE",
        "depends on the testcase", by_project=True)
    blocks: int = option(0, "blocks of a copy kernel", GPU, _whole(0, wrong=_SHAPE), "N", "automatic",
        by_project=True, flag="kernel-blocks")
    block_counts: Texts[tuple[int, ...] | None] = option(None,
        "numbers of blocks of the testcases blocks_*, such as 16:65536:x4 or 64,1000", WHAT, as_counts,
        "COUNTS", "16:65536:x4", documented=False, by_project=True, flag="blocks", former=("block-counts",))
    block_layout: PoolLayout = option(PoolLayout.RANDOM,
        "which block goes where in the testcases blocks_*: random, or strided as the layers of a KV cache",
        WHAT, _layout, "LAYOUT", documented=False, choices=tuple(PoolLayout), by_project=True)
    while_computing: bool = option(
        False, "measure the testcases blocks_* also while the GPU computes", WHAT, documented=False,
        by_project=True)
    threads: int = option(0, "threads per block of a copy kernel", GPU, _whole(0, 1024, _SHAPE), "N",
        "automatic", by_project=True, flag="kernel-threads", former=("threads",))
    local_copy: bool = option(False, "measure local copies on the diagonal of tables of GPU pairs", WHAT,
        by_project=True)
    pageable: bool = option(
        False, "use pageable instead of pinned host memory in copies between host and GPU", WHAT,
        by_project=True)
    parallel_pairs: bool = option(False, "measure pairs without a common device concurrently", JOB,
        by_project=True)
    sample_peers: int = option(
        0, "measure only K columns of each row in tables of pairs", JOB, _whole(0, wrong=_PEERS), "K",
        "all", by_project=True)
    within: Text[float | None] = option(
        None, "maximum time of the run, from start to exit; what finds most is measured first", STOP,
        _limit, "TIME", "unlimited", by_project=True)
    # fmt: on

    @property
    def concurrent(self) -> bool:
        """Whether cells may be measured concurrently to save time; always if it is limited."""
        return self.parallel_pairs or self.tier == "quick" or self.within is not None

    def __post_init__(self) -> None:
        """Parse texts and check all values.

        Raises:
            UsageError: If a value is invalid.
        """
        for entry, about in declared(type(self)):
            value = getattr(self, entry.name)
            if about.parse and not (value is entry.default is None):
                object.__setattr__(self, entry.name, about.parse(value))


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlanOptions):
    """All options of a run. Numbers may be texts with units, such as ``"64MiB"``, ``"0.5%"`` and ``"5s"``."""

    if TYPE_CHECKING:  # mypy gives inherited fields of a frozen record the type of the argument
        size: Text[int | None] = option(None)
        block_counts: Texts[tuple[int, ...] | None] = option(None)
        within: Text[float | None] = option(None)

    # fmt: off
    sizes: Texts[tuple[int, ...] | None] = option(
        None, "sweep over buffer sizes, such as 4KiB:1GiB:x4 or 1MiB,3MiB; every value becomes a curve", WHAT,
        _sizes, "SIZES", documented=False, by_project=True)
    devices: Texts[tuple[int, ...] | None] = option(
        None, "use only these GPUs, such as 0,2 or gpu4-gpu7", WHAT, _indices, "0,2", "all",
        documented=False, agreed=False)
    host_memory: Text[float | None] = option(
        None, "capacity of each NUMA node's memory, if it is unknown: channels x MT/s, or a rate", WHAT,
        _parser(parse_memory), "8x4800", documented=False, agreed=False)
    storage: str | None = option(
        None, "measure the storage of this folder too, in a file that is removed at the end", WHAT, _folder,
        "DIR", "no storage", documented=False)
    storage_size: Text[int | None] = option(
        None, "maximum size of that file", WHAT, as_size, "SIZE", "4GiB, at most a tenth of what is free",
        documented=False)
    # The Document contains the stopping rule instead of these four.
    precision: Text[float | None] = option(
        None, "target relative half-width of the 95% confidence interval", STOP,
        _parser(parse_fraction), "PERCENT", "0.5%; quick: 1%", documented=False, by_project=True)
    time_budget: Text[float | None] = option(
        None, "maximum time per value", STOP, _parser(parse_duration), "TIME",
        "5s; quick: 0.2s, and 0.6s per testcase; full: 10s", documented=False, by_project=True)
    rounds: int | None = option(
        None, "measure everything in at least N rounds, each with new buffers; three or more give values a ±",
        STOP, _whole(0, wrong="the number of rounds must be 1 or more, not {}"), "N",
        f"{ROUNDS}; quick and --samples: 1", documented=False, by_project=True)
    samples: int | None = option(
        None, "take exactly N samples", STOP, _whole(), "N", "3 if only copies are given", documented=False,
        by_project=True)
    copies: int | None = option(
        None, "make exactly N copies per sample", STOP, _whole(), "N", "16 if only samples are given",
        documented=False, by_project=True)
    verify: bool = option(True, "verify the data after every sample", HOW)
    use_mean: bool = option(False, "show the mean of the samples of a value instead of their median", PYTHON)
    affinity: bool = option(True, "pin threads to cores", HOW, by_project=True)
    bulk: bool = option(
        False, "copy with SM kernels of bulk asynchronous copies if all GPUs support them", GPU,
        documented=False, by_project=True)
    virtual_memory: bool = option(
        False, "allocate device memory with cuMemCreate and cuMemMap instead of cuMemAlloc", GPU,
        by_project=True)
    all_engines: bool = option(False, "use all copy engines for a copy if that is faster", PYTHON)
    huge_pages: bool = option(
        False, "fail if the host buffers of copies between host and GPU are not in huge pages", GPU,
        by_project=True)
    timeout: Text[float] = option(
        60.0, "maximum time of one stage: preparing, measuring or verifying one value", HOW, _timeout, "TIME",
        "60s", by_project=True)
    seed: int = option(0, "random seed of data and order", HOW, _whole(), "N", by_project=True)
    share: Share | None = option(
        None, f"use only this transport between processes: {', '.join(SHARES)}", JOB,
        _one_of(SHARES, "transport"), "TRANSPORT", "the best that works for each pair", documented=False,
        choices=SHARES, by_project=True, flag="transport",
        former=("share",))
    # fmt: on

    def __post_init__(self) -> None:
        """Parse texts and check all values."""
        super().__post_init__()
        _ = self.rule

    def __repr__(self) -> str:
        """The call that makes these options."""
        changed = (entry for entry, _ in declared(type(self)) if getattr(self, entry.name) != entry.default)
        return f"RunOptions({', '.join(f'{entry.name}={getattr(self, entry.name)!r}' for entry in changed)})"

    @cached_property
    def rule(self) -> Rule:
        """The stopping rule: fixed counts if one is given, else a precision.

        Raises:
            UsageError: If counts and targets are both given, or a value is out of range.
        """
        counts, targets = (
            {name: value for name in names if (value := getattr(self, name)) is not None}
            for names in (("samples", "copies"), ("precision", "time_budget"))
        )
        if counts and targets:
            raise UsageError(
                "samples and copies cannot be combined with precision or time budget: "
                "give one kind or the other"
            )
        usual = RULES[self.tier if self.within is None else "quick"]
        if counts:
            return Fixed(**counts, rounds=1 if self.rounds is None else self.rounds)
        if targets:
            chosen = {"precision": usual.precision, "time_budget": usual.time_budget} | targets
            usual = Precise(**chosen, rounds=usual.rounds)
        return usual if self.rounds is None else replace(usual, rounds=self.rounds)


def parameters(record: type[Any]) -> str:
    """The description of the options for a docstring, as its section ``Args`` or ``Attributes`` has it."""
    lines = []
    for entry, about in declared(record):
        default = about.default or ("" if entry.default is None else str(entry.default))
        choices = f"; {' or '.join(map(repr, about.choices))}" if about.choices else ""
        text = f"{about.help[0].upper()}{about.help[1:]}{choices}{default and f' (default: {default})'}."
        lines.append(
            textwrap.fill(f"{entry.name}: {text}", 96, initial_indent="    ", subsequent_indent=" " * 8)
        )
    return "\n".join(lines)


def document_options(record: type[Any]) -> None:
    """Add the description of its options to the docstring of a record."""
    record.__doc__ = f"{inspect.getdoc(record)}\n\nAttributes:\n{parameters(record)}\n"


for _record in (PlanOptions, RunOptions):
    document_options(_record)


def takes_options(function: F) -> F:
    """Decorate a function that takes options as keywords: complete its signature and its docstring.

    The description of the options replaces a line ``...`` of the docstring, which loses its indentation, as
    the compiler of Python 3.13 and later removes it.
    """
    signature, kind = inspect.signature(function), Parameter.KEYWORD_ONLY
    own = [known for known in signature.parameters.values() if known.kind != Parameter.VAR_KEYWORD]
    keywords = [
        Parameter(entry.name, kind, default=entry.default, annotation=entry.type)
        for entry, _ in declared(RunOptions)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
    text = inspect.cleandoc(function.__doc__ or "")
    function.__doc__ = text.replace("\n    ...\n", f"\n{parameters(RunOptions)}\n", 1)
    return function


def changed(options: RunOptions, changes: Mapping[str, Any], function: Callable[..., object]) -> RunOptions:
    """Options with the keywords of a function call applied.

    Raises:
        TypeError: If there is no such option; the message suggests the nearest name.
        UsageError: If a value is invalid.
    """
    known = [entry.name for entry, _ in declared(type(options))]
    for name in (name for name in changes if name not in known):
        near = get_close_matches(name, [*known, *inspect.signature(function).parameters], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
    return replace(options, **changes) if changes else options


def documented(options: RunOptions) -> dict[str, Any]:
    """The values of options that a Document contains."""
    return {own.name: getattr(options, own.name) for own, about in declared(RunOptions) if about.documented}


def agreed(options: RunOptions) -> dict[str, object]:
    """The values of options that must be equal in all processes of a job."""
    return {
        own.name: str(getattr(options, own.name)) for own, about in declared(type(options)) if about.agreed
    }
