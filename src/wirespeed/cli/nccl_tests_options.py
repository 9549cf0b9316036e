"""The options of nccl-tests, and which of them each provider refuses."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.rank_groups import MASK, SPLIT
from ..errors import UsageError
from ..terminal import visible
from .common import Parser, add_machine, formatter, output_path, typed

if TYPE_CHECKING:
    from ..backends.base import CollectiveOptions
    from ..testcases.collective_ops import CollectiveOp
    from ..testcases.data_types import DataType

NCCL, MPI, SIMULATED = "nccl", "mpi", "simulated"
#: Prefix of the variables that divide the parts of alltoallv.
_TRAFFIC = "NCCL_TESTS_ALLTOALLV_"
_SCALE = "MATRIX_SCALE"
#: The default of ``--format``; it is printed line by line.
FORMAT = "nccl-tests"
SUFFIX = "_perf"
#: Default and maximum of ``-T``, in s.
_DEFAULT_TIMEOUT_S, _MAX_TIMEOUT_S = 300, 10**9
#: Maximum number of sizes of a run.
_MAX_SIZES = 10**5
#: Reasons for refused options.
_NO_GPU = "it applies only to GPUs; over MPI the data is in host memory"
_NO_LIBRARY = "it has no effect on a simulated machine"
_PROCESSES = "over MPI every rank is a process"
#: Provider -> option -> why it is not supported. An option is refused if its value is not the default.
_IMPOSSIBLE = {
    NCCL: {},
    MPI: {
        "nthreads": _PROCESSES, "ngpus": _PROCESSES, "agg_iters": "MPI cannot group operations",
        "cudagraph": _NO_GPU, "local_register": _NO_GPU, "cta_policy": _NO_GPU, "stream_null": _NO_GPU,
        "parallel_init": _NO_GPU, "memory": _NO_GPU, "device_implementation": _NO_GPU,
    },
    SIMULATED: {
        "agg_iters": _NO_LIBRARY, "blocking": _NO_LIBRARY, "local_register": _NO_LIBRARY,
        "cta_policy": _NO_LIBRARY, "stream_null": _NO_LIBRARY, "parallel_init": _NO_LIBRARY,
        "memory": _NO_LIBRARY, "unalign": _NO_LIBRARY, "mpi": _NO_LIBRARY,
        "launch": _NO_LIBRARY, "device_implementation": _NO_LIBRARY,
    },
}  # fmt: skip
#: Default and maximum of ``-V``.
_CTAS, _MAX_CTAS = 16, 128
#: Program -> what its implementations 3 and 4 with kernels of NCCL's device API use, which 1 and 2 do not.
_KERNELS = {
    "all_reduce_perf": "reduce by multicast objects of NVLink (multimem)",
    "alltoall_perf": "send over the network from the GPU (GIN)",
}


def parser(program: str) -> Parser:
    """Return the parser of nccl-tests' options and of those that wirespeed adds."""
    from ..testcases.collective_ops import OPERATIONS

    does = OPERATIONS[program.removesuffix(SUFFIX)].does
    made = Parser(
        prog=f"wirespeed {program}",
        formatter_class=formatter(),
        description=f"{program}: {does}.\nOptions, text and JSON are those of nccl-tests.\n"
        "Uses NCCL with one process per GPU; without GPUs, MPI on host memory.",
    )
    for title, options in _table():
        group = made.add_argument_group(title)
        for short, long, metavar, default, kind, does in options:
            settings: dict[str, Any] = {"default": default, "help": does}
            if isinstance(kind, tuple):
                settings |= {"choices": kind, "type": type(kind[0]), "metavar": metavar}
            elif kind is bool:
                settings["action"] = "store_true"
            else:
                settings |= {"type": kind, "metavar": metavar}
            group.add_argument(*((short,) if short else ()), long, **settings)
        if title == "ranks":
            add_machine(group)
    return made


def _table() -> tuple[tuple[str, tuple[tuple[str, str, str, Any, Any, str], ...]], ...]:
    """Return groups of options: short and long name, metavar, default, type or choices, help."""
    from ..testcases.data_types import BY_NAME, OPERATORS

    size = typed(_bytes)
    # fmt: off
    return (
        ("ranks", (
            ("-t", "--nthreads", "N", None, _count, "threads per process"),
            ("-g", "--ngpus", "N", 1, _count, "GPUs per thread (1)"),
            ("-p", "--parallel_init", "0|1", 0, _flag, "each thread initialises its own ranks (0)"),
            ("", "--launch", "HOW", "auto", ("auto", "processes", "here"),
             "without a launcher: processes (one per GPU), here (one process, as given by -t and -g), "
             "or auto (here if -t is given, else processes)"),
            ("", "--mpi", "", False, bool, "use MPI on host memory, even if there are GPUs"),
        )),
        ("sizes (K, M, G are powers of 1024)", (
            ("-b", "--minbytes", "SIZE", 32 * 2**20, size, "smallest size (32M)"),
            ("-e", "--maxbytes", "SIZE", None, size, "largest size (32M)"),
            ("-i", "--stepbytes", "SIZE", 2**20, typed(_step), "step between sizes (1M)"),
            ("-f", "--stepfactor", "N", 1, _count, "factor between sizes, instead of a step"),
        )),
        ("operation", (
            ("-o", "--op", "OP", "sum", (*OPERATORS, "all"),
             f"operator: {', '.join(OPERATORS)} or all (sum)"),
            ("-d", "--datatype", "TYPE", "float", (*BY_NAME, "all"), f"{', '.join(BY_NAME)} or all (float)"),
            ("-r", "--root", "RANK", 0, _root, "root, or all (0)"),
            ("-u", "--unalign", "N", 0, _whole, "start buffers N elements after an aligned address (0)"),
            ("-R", "--local_register", "HOW", 0, (0, 1, 2),
             "register buffers with NCCL: 0 no, 1 per rank, 2 symmetric (0)"),
            ("-x", "--cta_policy", "HOW", None, (0, 1, 2), "CTA policy: 0 default, 1 efficiency, 2 zero"),
            ("-y", "--stream_null", "0|1", 0, _flag, "use the default stream (0)"),
            ("-D", "--device_implementation", "N", 0, _whole,
             "all_reduce and alltoall with kernels of NCCL's device API: 1 one element at a time, "
             "2 vectorised; requires -R 2 (0: NCCL's own kernels)"),
            ("-V", "--device_cta_count", "N", None, _count, f"number of CTAs of these kernels ({_CTAS})"),
        )),
        ("timing", (
            ("-n", "--iters", "N", 20, _count, "iterations (20)"),
            ("-w", "--warmup_iters", "N", 1, _whole, "untimed iterations before the timed ones (1)"),
            ("-m", "--agg_iters", "N", 1, _count, "operations per iteration, in one group (1)"),
            ("-N", "--run_cycles", "N", 1, _whole, "repeat all sizes N times (1; 0: until interrupted)"),
            ("-z", "--blocking", "HOW", 0, (0, 1, 2, 3),
             "1: wait and synchronise the ranks after each operation; 2: wait after each operation; "
             "3: wait and synchronise after each iteration, untimed (0)"),
            ("-G", "--cudagraph", "N", 0, _whole,
             "capture all iterations in a CUDA graph and launch it N times (0: no graph)"),
            ("-C", "--report_cputime", "0|1", 0, _flag,
             "report the CPU time until all operations are enqueued (0)"),
            ("-a", "--average", "HOW", 1, (0, 1, 2, 3),
             "how times of ranks are combined: 0 rank 0, 1 mean, 2 minimum, 3 maximum (1)"),
            ("-I", "--per_iter_timing", "0|1", 0, _flag,
             "time each iteration, and name a straggler (0)"),
            ("-K", "--per_iter_skip", "N", 0, _whole, "ignore the first N iterations with -I (0)"),
            ("-T", "--timeout", "SECONDS", _DEFAULT_TIMEOUT_S, _whole,
             f"maximum time of one stage ({_DEFAULT_TIMEOUT_S}; 0: no limit)"),
        )),
        ("checks and output", (
            ("-c", "--check", "N", 1, _whole, "verify the data N times at each size (1)"),
            ("-M", "--memory", "0|1", 0, _flag, "report the use of GPU memory (0)"),
            ("-S", "--report_timestamps", "0|1", 0, _flag, "print a time stamp on each line (0)"),
            ("-J", "--output_file", "FILE.json", None, Path, "also write nccl-tests' JSON"),
            ("", "--output", "FILE.json", None, output_path,
             "also save the run as JSON, during the run; a folder, or - for standard output"),
            ("", "--force", "", False, bool, "replace that file even if it exists"),
            ("", "--format", "FORMAT", FORMAT, str,
             "output format: nccl-tests (line by line), table, csv, json, ..."),
        )),
    )
    # fmt: on


def parsed(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; words that belong to no option are ignored, as nccl-tests ignores them."""
    options, stray = parser.parse_known_args(argv)
    if unknown := [word for word in stray if word.startswith("-")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if stray:
        _note(f"ignored: {' '.join(stray)}")
    return options


def _note(text: str) -> None:
    print(visible(f"wirespeed: note: {text}"), file=sys.stderr)


def _whole(text: str) -> int:
    try:
        value = int(text, 16 if text[:2].lower() == "0x" else 10) if text.isascii() else -1
    except ValueError:
        value = -1
    if not 0 <= value <= 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return value


def _count(text: str) -> int:
    value = _whole(text)
    if not value:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return value


def _flag(text: str) -> int:
    value = _whole(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 0 nor 1")
    return value


def _bytes(text: str) -> int:
    """Parse a size like nccl-tests: KB, MB and GB are powers of 1024 too."""
    from ..units import parse_size

    text = text.strip()
    return parse_size(text[:-1] if text[-2:-1].upper() in tuple("KMGT") and text[-1] in "bB" else text)


def _step(text: str) -> int:
    return 0 if text.strip() == "0" else _bytes(text)


def _root(text: str) -> int | None:
    return None if text in ("all", "-1") else _whole(text)


def check(options: argparse.Namespace) -> None:
    """Refuse options that exclude each other, or leave one of them out where nccl-tests does so.

    Raises
    ------
    UsageError
        If one does; the message has the reason.
    """
    if options.maxbytes is None:
        options.maxbytes = max(options.minbytes, 32 * 2**20)
    o, file = options, options.output_file
    for name, text, there in (
        ("per_iter_timing", "-I with -G: iterations of a graph cannot be timed one by one", o.cudagraph),
        ("blocking", "-z with -G: a graph is launched as a whole, without waiting inside", o.cudagraph),
        ("per_iter_skip", f"-K must be less than -n {o.iters}", o.per_iter_skip >= o.iters),
        ("per_iter_skip", "-K requires -I 1", not o.per_iter_timing),
        ("device_cta_count", "-V requires -D 1 or -D 2", not o.device_implementation),
    ):
        if there and getattr(o, name):
            _note(f"ignored: {text}")
            setattr(o, name, 0)
    problems = {
        f"-b {o.minbytes} is more than -e {o.maxbytes}": o.minbytes > o.maxbytes,
        "-i 0 requires a factor (-f)": not o.stepbytes and o.stepfactor < 2,
        f"-V must be at most {_MAX_CTAS}": (o.device_cta_count or 0) > _MAX_CTAS,
        "-y and -G: the default stream cannot be captured": o.stream_null and o.cudagraph,
        "-J and --output are the same file": bool(file and o.output and file == o.output.path),
        f"-T must be at most {_MAX_TIMEOUT_S}; 0 sets no limit": o.timeout > _MAX_TIMEOUT_S,
    }
    for problem, there in problems.items():
        if there:
            raise UsageError(problem)


def chosen(program: str, options: argparse.Namespace) -> CollectiveOp:
    """Return the operation of a program; for unequal parts, divided as environment variables say.

    Raises
    ------
    UsageError
        If a variable is invalid, or the sizes do not fit the traffic matrix.
    """
    from ..testcases.collective_ops import OPERATIONS, Division, operation_of

    name = program.removesuffix(SUFFIX)
    if OPERATIONS[name].parts is None:
        return OPERATIONS[name]
    file = os.environ.get(f"{_TRAFFIC}MATRIX_FILE")
    if not file:
        spread = min(1.0, max(0.0, _number("SPREAD")))
        return operation_of(name, str(Division(spread)) if spread < 1 else "")
    rows = _matrix(file, _number(_SCALE))
    if options.minbytes != options.maxbytes:
        raise UsageError("a traffic matrix has one size: -b and -e must be equal")
    return operation_of(name, str(Division(matrix=rows)))


def _matrix(file: str, scale: float) -> tuple[tuple[int, ...], ...]:
    """Return the bytes from each rank to each, in the arithmetic of nccl-tests: ``long double``, truncated.

    Raises
    ------
    UsageError
        If the file is not a square matrix of numbers of 0 or more.
    """
    from numpy import longdouble

    try:
        lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines() if line.split()]
        numbers = [[float(word) for word in line] for line in lines]
        if any(number < 0 for row in numbers for number in row):
            raise ValueError("a number is less than 0")
        rows = tuple(tuple(int(longdouble(n) * longdouble(scale)) for n in row) for row in numbers)
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"{_TRAFFIC}MATRIX_FILE={file} cannot be read: {error}") from error
    if not rows or any(len(row) != len(rows) for row in rows):
        raise UsageError(f"{_TRAFFIC}MATRIX_FILE={file} must be a square matrix of bytes")
    return rows


def room_for(operation: CollectiveOp, size: int, ranks: int) -> None:
    """Refuse a size that is less than a traffic matrix requires.

    Raises
    ------
    UsageError
        If it is; the message has the required size.
    """
    needed = operation.size(operation.counts(size, 1, ranks), 1)
    if needed > size:
        raise UsageError(f"the traffic matrix requires -b and -e of at least {needed} bytes")


def _number(variable: str) -> float:
    """Return the number of 0 or more in a variable of ``alltoallv``; 1 if it is not set."""
    text = os.environ.get(_TRAFFIC + variable) or "1"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{_TRAFFIC}{variable}={text!r} is not a number of 0 or more")
    return value


def refuse(options: argparse.Namespace, parser: Parser, provider: str) -> None:
    """Refuse options that the provider does not support.

    Raises
    ------
    UsageError
        If one is set; the message has the reason.
    """
    from ..worlds.mpirun import mpirun

    for name, reason in _IMPOSSIBLE[provider].items():
        value = getattr(options, name)
        if value != parser.get_default(name) and not (name == "nthreads" and value == 1):
            found = "" if options.mpi or provider != MPI else "no GPU was found, so MPI is used; "
            start = f": start them with {mpirun('wirespeed ...')}" if reason is _PROCESSES else ""
            raise UsageError(f"--{name}: {found}{reason}{start}")


def check_kernels(program: str, options: argparse.Namespace) -> None:
    """Refuse implementations with kernels of NCCL's device API that do not exist or cannot run.

    Raises
    ------
    UsageError
        If the requested one is refused; the message has the reason.
    """
    number = options.device_implementation
    if not number:
        return
    if program not in _KERNELS:
        raise UsageError(f"-D: {program} has no kernels of NCCL's device API; {' and '.join(_KERNELS)} have")
    if number > 4:
        raise UsageError(f"-D {number} does not exist: choose 0, 1 or 2")
    if number > 2:
        raise UsageError(
            f"-D {number}: implementations 3 and 4 {_KERNELS[program]}, which is not supported; choose 1 or 2"
        )
    if options.local_register != 2:
        raise UsageError(f"-D {number} requires buffers that other GPUs can access: pass -R 2")


@dataclass(frozen=True)
class Asked:
    """The requested run, in the terms of the Session and of the Document.

    Parameters
    ----------
    operation : CollectiveOp
        The collective.
    types : tuple of DataType
        Element types.
    operators : tuple of str
        Reduction operators.
    root : int or None
        Root; None for all ranks in turn.
    sizes : tuple of int
        Sizes of the array, in bytes.
    collectives : CollectiveOptions
        How operations run and are timed.
    each : int
        Number of ranks of the collective per process.
    timestamps : list of str or None
        Time stamps of the lines printed so far, for the Document; None if not requested.
    described : dict
        The options as the Document contains them.
    """

    operation: CollectiveOp
    types: tuple[DataType, ...]
    operators: tuple[str, ...]
    root: int | None
    sizes: tuple[int, ...]
    collectives: CollectiveOptions
    each: int
    timestamps: list[str] | None
    described: dict[str, Any]

    def comparable(self) -> dict[str, object]:
        """Return the options that must be equal on all ranks, by name."""
        return {
            **{name: value for name, value in self.described.items() if not isinstance(value, list)},
            "traffic": self.operation.traffic,
            "operators": list(self.operators),
            "types": [type.name for type in self.types],
            "root": self.root,
            "each": self.each,
            "memory": self.collectives.memory,
            **{name: os.environ.get(name, "") for name in (SPLIT, MASK)},
        }


def asked(
    options: argparse.Namespace, operation: CollectiveOp, provider: str, each: int, arguments: list[str]
) -> Asked:
    """Return the requested run."""
    from ..backends.base import CollectiveOptions
    from ..backends.rank_groups import minimum
    from ..testcases.data_types import BY_NAME, OPERATORS, TYPES

    o = options
    collectives = CollectiveOptions(
        o.warmup_iters, o.check, o.average, o.agg_iters, o.blocking, o.cudagraph, bool(o.per_iter_timing),
        o.per_iter_skip, o.unalign, bool(o.memory),
    )  # fmt: skip
    timestamps: list[str] | None = [] if o.report_timestamps else None
    described = {
        "operation": operation.name,
        "threads": o.nthreads or 1,
        "gpus": o.ngpus,
        "first_size": o.minbytes,
        "last_size": o.maxbytes,
        "step": o.stepbytes,
        "factor": o.stepfactor,
        "warmup": o.warmup_iters,
        "iterations": o.iters,
        "aggregate": o.agg_iters,
        "cycles": o.run_cycles,
        "checks": o.check,
        "blocking": o.blocking,
        "graphs": o.cudagraph,
        "per_iteration": bool(o.per_iter_timing),
        "skip": o.per_iter_skip,
        "average": o.average,
        "unalign": o.unalign,
        "cpu_time": bool(o.report_cputime),
        "parallel_init": bool(o.parallel_init),
        "timeout": float(o.timeout),
        "timestamps": timestamps,
        "minimum_bandwidth": minimum(),
        "summary": re.match(r"\s*[+-]?0*[1-9]", os.environ.get(f"{_TRAFFIC}PRINT_SUMMARY", "")) is not None,
        "scale": _number(_SCALE) if operation.parts else 1.0,
        "arguments": arguments,
        **(nccl(options) if provider == NCCL else {}),
    }
    return Asked(
        operation,
        TYPES if o.datatype == "all" else (BY_NAME[o.datatype],),
        OPERATORS if o.op == "all" else (o.op,),  # ignored if the operation has none
        o.root if operation.rooted else 0,
        _sizes(o.minbytes, o.maxbytes, o.stepbytes, o.stepfactor),
        collectives,
        each,
        timestamps,
        described,
    )


def nccl(options: argparse.Namespace) -> dict[str, int]:
    """Return the options that only NCCL supports."""
    return {
        "first": _first(),
        "registration": options.local_register,
        "policy": -1 if options.cta_policy is None else options.cta_policy,
        "null_stream": options.stream_null,
        "device_implementation": options.device_implementation,
        "device_blocks": (options.device_cta_count or _CTAS) if options.device_implementation else 0,
    }


def _sizes(first: int, last: int, step: int, factor: int) -> tuple[int, ...]:
    """Return the sizes from the first to the last, in bytes."""
    if factor < 2:
        count = (last - first) // step + 1
        if count > _MAX_SIZES:
            raise UsageError(f"-b, -e and -i give {count} sizes; the maximum is {_MAX_SIZES}, or use -f")
        return tuple(range(first, last + 1, step))
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return tuple(found)


def _first() -> int:
    """Return CUDA's index of the first GPU, as set by ``NCCL_TESTS_DEVICE``; -1 if it is not set."""
    text = os.environ.get("NCCL_TESTS_DEVICE", "")
    if text and not text.isdecimal():
        raise UsageError(f"NCCL_TESTS_DEVICE={text!r} is not a GPU index")
    return int(text) if text else -1
