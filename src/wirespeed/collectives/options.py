"""The options of nccl-tests: one record, in which each field declares one of them completely. The command
line of ``all_reduce_perf`` and its siblings, what providers refuse, the comparison of options between ranks,
the options of a Document and the configuration in nccl-tests' JSON follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..options import Option, declared, document_options
from ..tables import Amount, Integer, Whole
from ..units import LARGEST_SIZE
from .data_types import BY_NAME, OPERATORS, TYPES, DataType

NCCL, MPI, SIMULATED = "nccl", "mpi", "simulated"
# The groups of options in ``--help``.
RANKS = "ranks"
SIZES = "sizes (K, M, G are powers of 1024)"
OPERATION = "operation"
TIMING = "timing"
CHECKS = "checks and output"
ENVIRONMENT = ""  # not options: the program and its environment variables
GROUPS = (RANKS, SIZES, OPERATION, TIMING, CHECKS)
#: All types, operators or roots; the latter as a number.
ALL, ALL_ROOTS = "all", -1
#: A size: a number of C, also hexadecimal, and a power of 1024.
_SIZE = re.compile(
    r"(0x[\da-f]+\.?[\da-f]*(?:p[-+]?\d{1,4})?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?)\s*([KMGT])?(?:i?B)?",
    re.IGNORECASE | re.ASCII,
)
#: Default and maximum number of blocks of the kernels of NCCL's device API.
CTAS, MAX_CTAS = 16, 128
#: Reasons for refused options.
_NO_GPU = "it applies only to GPUs; over MPI the data is in host memory"
NO_LIBRARY = "it has no effect on a simulated machine"
PROCESSES = "over MPI every rank is a process"
_PROCESSES = {MPI: PROCESSES}
_OF_GPUS = {MPI: _NO_GPU}
_OF_A_LIBRARY = {SIMULATED: NO_LIBRARY}
_OF_NCCL = _OF_GPUS | _OF_A_LIBRARY


@dataclass(frozen=True)
class CollectiveOption(Option):
    """The declaration of an option of nccl-tests; ``parse`` is None for those that are not parsed.

    Attributes:
        flags: Short and long name on the command line.
        json: Name in the configuration of nccl-tests' JSON; empty if it is not there.
        refused: Provider -> why it does not support another value than the default.
        only: The provider with which the Document contains the option; empty for all.
    """

    flags: tuple[str, ...] = ()
    json: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    only: str = ""


def option(value: object, flags: str, *positional: Any, **named: Any) -> Any:
    """A field with its default value and its declaration (parameters of `Option`)."""
    named["flags"] = tuple(flags.split())
    return field(default=value, metadata={"option": CollectiveOption(*positional, **named)})


def _whole(text: str) -> int:
    try:
        value = int(text, 16 if text[:2].lower() == "0x" else 10) if text.isascii() else -1
    except ValueError:
        value = -1
    if not 0 <= value <= 2**40:
        raise UsageError(f"{text!r} is not a whole number of 0 or more")
    return value


def _count(text: str) -> int:
    value = _whole(text)
    if not value:
        raise UsageError("it must be 1 or more")
    return value


def _flag(text: str) -> bool:
    value = _whole(text)
    if value > 1:
        raise UsageError(f"{text!r} is neither 0 nor 1")
    return bool(value)


def _bytes(text: str) -> int:
    """Parse a size like nccl-tests: any number of C, and powers of 1024 also with ``B``."""
    match = _SIZE.fullmatch(text.strip())
    size = 0.0
    if match:
        with suppress(OverflowError):  # a hexadecimal number of very many digits
            number = float.fromhex(match[1]) if match[1][:2].lower() == "0x" else float(match[1])
            size = number * 1024 ** " KMGT".index((match[2] or " ").upper())
    if not 1 <= size <= LARGEST_SIZE:
        raise UsageError(f"{text!r} is not a size; use e.g. 8, 64K, 1.5G, 0x100 or 1e6")
    return int(size)


def _step(text: str) -> int:
    return 0 if text.strip() == "0" else _bytes(text)


def _root(text: str) -> int:
    return ALL_ROOTS if text in (ALL, "-1") else _whole(text)


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """How collectives run, are timed and verified, in the terms of nccl-tests."""

    # The order is that of nccl-tests' JSON.
    # fmt: off
    threads: Whole = option(
        1, "-t --nthreads", "threads per process", RANKS, _count, "N", json="nthreads", refused=_PROCESSES)
    gpus: Whole = option(
        1, "-g --ngpus", "GPUs per thread", RANKS, _count, "N", json="ngpus", refused=_PROCESSES)
    first_size: Integer = option(
        32 * 2**20, "-b --minbytes", "smallest size", SIZES, _bytes, "SIZE", "32M", json="minimum_bytes")
    last_size: Integer = option(
        32 * 2**20, "-e --maxbytes", "largest size", SIZES, _bytes, "SIZE", "32M", json="maximum_bytes")
    step: Integer = option(
        2**20, "-i --stepbytes", "step between sizes", SIZES, _step, "SIZE", "1M", json="step_bytes")
    factor: Integer = option(
        1, "-f --stepfactor", "factor between sizes, instead of a step", SIZES, _count, "N",
        json="step_factor")
    warmup: Whole = option(
        1, "-w --warmup_iters", "untimed iterations before the timed ones", TIMING, _whole, "N",
        json="warmup_iters")
    iterations: Whole = option(20, "-n --iters", "iterations", TIMING, _count, "N", json="iterations")
    aggregate: Whole = option(
        1, "-m --agg_iters", "operations per iteration, in one group", TIMING, _count, "N",
        json="aggregated_iterations", refused={MPI: "MPI cannot group operations"} | _OF_A_LIBRARY)
    cycles: Whole = option(
        1, "-N --run_cycles", "repeat all sizes N times", TIMING, _whole, "N", "1; 0: until interrupted")
    checks: Whole = option(
        1, "-c --check", "verify the data N times at each size", CHECKS, _whole, "N", json="validation")
    graphs: Whole = option(
        0, "-G --cudagraph", "capture all iterations in a CUDA graph and launch it N times", TIMING, _whole,
        "N", "0: no graph", json="graph", refused=_OF_GPUS)
    blocking: Whole = option(
        0, "-z --blocking", "1: wait and synchronise the ranks after each operation; 2: wait after each "
        "operation; 3: wait and synchronise after each iteration, untimed", TIMING, int, "HOW",
        choices=(0, 1, 2, 3), json="blocking_collectives")
    cpu_time: bool = option(
        False, "-C --report_cputime", "report the CPU time until all operations are enqueued", TIMING, _flag,
        "0|1")
    average: Whole = option(
        1, "-a --average", "how times of ranks are combined: 0 rank 0, 1 mean, 2 minimum, 3 maximum", TIMING,
        int, "HOW", choices=(0, 1, 2, 3))
    per_iteration: bool = option(
        False, "-I --per_iter_timing", "time each iteration, and name a straggler", TIMING, _flag, "0|1",
        json="per_iter_timing")
    skip: Whole = option(
        0, "-K --per_iter_skip", "ignore the first N iterations with -I", TIMING, _whole, "N",
        json="per_iter_skip")
    timeout: Amount = option(
        300.0, "-T --timeout", "maximum time of one stage", TIMING, lambda text: float(_whole(text)),
        "SECONDS", "300; 0: no limit")
    parallel_init: bool = option(
        False, "-p --parallel_init", "each thread initialises its own ranks", RANKS, _flag, "0|1",
        json="parallel_init", refused=_OF_NCCL)
    operator: str = option(
        "sum", "-o --op", f"operator: {', '.join(OPERATORS)} or all", OPERATION, str, "OP", documented=False)
    type: str = option(
        "float", "-d --datatype", f"{', '.join(BY_NAME)} or all", OPERATION, str, "TYPE", documented=False)
    root: Integer = option(0, "-r --root", "root, or all", OPERATION, _root, "RANK", documented=False)
    unalign: Whole = option(
        0, "-u --unalign", "start buffers N elements after an aligned address", OPERATION, _whole, "N",
        refused=_OF_A_LIBRARY)
    registration: Whole = option(
        0, "-R --local_register", "register buffers with NCCL: 0 no, 1 per rank, 2 symmetric", OPERATION, int,
        "HOW", choices=(0, 1, 2), refused=_OF_GPUS, only=NCCL)
    policy: Integer = option(
        -1, "-x --cta_policy", "CTA policy: 0 default, 1 efficiency, 2 zero", OPERATION, int, "HOW",
        "NCCL's own", choices=(0, 1, 2), refused=_OF_NCCL, only=NCCL)
    null_stream: bool = option(
        False, "-y --stream_null", "use the default stream", OPERATION, _flag, "0|1", refused=_OF_NCCL,
        only=NCCL)
    device_implementation: Whole = option(
        0, "-D --device_implementation", "all_reduce and alltoall with kernels of NCCL's device API: "
        "1 one element at a time, 2 vectorised; requires -R 2", OPERATION, _whole, "N",
        "0: NCCL's own kernels", refused=_OF_NCCL, only=NCCL)
    device_blocks: Whole = option(
        0, "-V --device_cta_count", "number of CTAs of these kernels", OPERATION, _count, "N", f"{CTAS}",
        only=NCCL)
    memory: bool = option(
        False, "-M --memory", "report the use of GPU memory", CHECKS, _flag, "0|1", documented=False,
        refused=_OF_GPUS)
    stamped: bool = option(
        False, "-S --report_timestamps", "print a time stamp on each line", CHECKS, _flag, "0|1",
        documented=False)
    operation: str = option("", "", "name of the collective", ENVIRONMENT)
    first: Integer = option(
        -1, "", "CUDA's index of the first GPU; -1 to choose it by the local rank", ENVIRONMENT, only=NCCL)
    minimum_bandwidth: Amount | None = option(None, "", "required mean bus bandwidth, in B/s", ENVIRONMENT)
    summary: bool = option(
        False, "", "whether a line for each rank follows each line of ``alltoallv``", ENVIRONMENT)
    scale: Amount = option(
        1.0, "", "factor that the traffic matrix of ``alltoallv`` is multiplied by", ENVIRONMENT)
    arguments: tuple[str, ...] = option((), "", "command line", ENVIRONMENT, agreed=False)
    # fmt: on

    @property
    def types(self) -> tuple[DataType, ...]:
        """The element types."""
        return TYPES if self.type == ALL else (BY_NAME[self.type],)

    @property
    def operators(self) -> tuple[str, ...]:
        """The reduction operators; without meaning if the operation has none."""
        return OPERATORS if self.operator == ALL else (self.operator,)

    @property
    def operations(self) -> int:
        """Number of operations in a loop."""
        return self.iterations * self.aggregate

    def described(self, provider: str) -> dict[str, Any]:
        """The values that the Document of a run over a provider contains, by name."""
        return self._values(provider, lambda declaration: declaration.documented)

    def agreed(self, provider: str) -> dict[str, object]:
        """The values that must be equal in all processes, by name."""
        return self._values(provider, lambda declaration: declaration.agreed)

    def _values(self, provider: str, wanted: Callable[[CollectiveOption], bool]) -> dict[str, Any]:
        return {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value
            for name, declaration in OPTIONS.items()
            if wanted(declaration) and declaration.only in ("", provider)
        }


#: The options by name.
OPTIONS: dict[str, CollectiveOption] = {
    field.name: declaration
    for field, declaration in declared(CollectiveOptions)
    if isinstance(declaration, CollectiveOption)
}
document_options(CollectiveOptions)
