"""The options of nccl-tests, and which of them each provider refuses."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...backends.rank_groups import minimum
from ...cli import program_variables as environment
from ...cli.option_groups import output_path, typed
from ...cli.parser import Parser
from ...collectives.data_types import BY_NAME, OPERATORS
from ...collectives.operations import OPERATIONS, CollectiveOp, Division, operation_of
from ...collectives.options import (
    ALL,
    CTAS,
    GROUPS,
    MAX_CTAS,
    NO_LIBRARY,
    OPTIONS,
    PROCESSES,
    RANKS,
    SIMULATED,
    CollectiveOption,
    CollectiveOptions,
)
from ...errors import UsageError
from ...terminal import visible
from .programs import SUFFIX

#: Prefix of the variables that divide the parts of alltoallv.
_TRAFFIC = "NCCL_TESTS_ALLTOALLV_"
_SCALE = "MATRIX_SCALE"
#: The default of ``--format``; it is printed line by line.
FORMAT = "nccl-tests"
#: The option for the JSON, and what it does.
_JSON, _JSON_HELP = "-J,--output_file", "also write nccl-tests' JSON"
#: Maximum of ``-T``, in s.
_MAX_TIMEOUT_S = 10**9
#: Maximum number of sizes of a run.
_MAX_SIZES = 10**5
#: The default of ``--launch``.
AUTO = "auto"
#: Program -> what its implementations 3 and 4 with kernels of NCCL's device API use, which 1 and 2 do not.
_KERNELS = {
    "all_reduce_perf": "reduce by multicast objects of NVLink (multimem)",
    "alltoall_perf": "send over the network from the GPU (GIN)",
}


def parser(program: str) -> Parser:
    """The parser of nccl-tests' options and of those that wirespeed adds."""
    does = OPERATIONS[program.removesuffix(SUFFIX)].does
    arguments = Parser(
        program,
        f"{program}: {does}.\nOptions, text and JSON are those of nccl-tests.\n"
        "Uses NCCL with one process per GPU; --mpi: MPI on host memory.",
        configured=False,
    )
    for title in GROUPS:
        group = arguments.add_argument_group(title)
        for name, about in OPTIONS.items():
            if about.group == title:
                _add(group, name, about)
        if title == RANKS:
            group.add(
                "--launch HOW",
                "without a launcher: processes (one per GPU), here (one process, as given by -t and "
                "-g), or auto (here if -t is given, else processes)", default=AUTO,
                choices=(AUTO, "processes", "here"),
            )  # fmt: skip
            group.add("--mpi", "use MPI on host memory, even if there are GPUs")
            group.add_machine(environment.machine())
    group.add_argument(*_JSON.split(","), metavar="FILE.json", type=Path, help=_JSON_HELP)
    group.add(
        "--output FILE.json",
        "also save the run as JSON, during the run; a folder, or - for standard output", output_path,
    )  # fmt: skip
    group.add("--force", "replace that file even if it exists")
    group.add(
        "--format FORMAT",
        "output format: nccl-tests (line by line), table, csv, json, ...",
        default=FORMAT,
        by_project=True,
    )
    return arguments


def _add(group: argparse._ArgumentGroup, name: str, about: CollectiveOption) -> None:
    """Add an option; its value is None if it is not given."""
    assert about.parse is not None
    default = getattr(CollectiveOptions, name)
    shown = about.default or str(int(default) if isinstance(default, bool) else default)
    group.add_argument(
        *about.flags, dest=name, type=typed(about.parse), choices=about.choices or None,
        metavar=about.metavar, help=f"{about.help} ({shown})",
    )  # fmt: skip


def parsed(parser: Parser, program: str, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; words that belong to no option are ignored, as nccl-tests ignores them.

    Raises:
        SystemExit: After an unknown option: like nccl-tests, with its usage on standard output, and 0.
    """
    options, stray = parser.parse_known_args(argv)
    unknown = [word for word in stray if word.startswith("-")]
    if unknown:
        for word in unknown:
            print(visible(f"{program}: unrecognized option '{word}'"), file=sys.stderr)
        rows = (
            f"[{','.join(about.flags)} <{about.metavar}>] {about.help}"
            for about in OPTIONS.values()
            if about.flags
        )
        print(
            f"invalid option '?'\nUSAGE: {program} \n\t"
            + " \n\t".join([*rows, f"[{_JSON} <FILE.json>] {_JSON_HELP}", "[-h,--help]"])
        )
        raise SystemExit(0)
    if stray:
        _note(f"ignored: {' '.join(stray)}")
    return options


def _note(text: str) -> None:
    print(visible(f"wirespeed: note: {text}"), file=sys.stderr)


def given(program: str, options: argparse.Namespace, arguments: Sequence[str]) -> CollectiveOptions:
    """What was given on a command line and in the environment, without what nccl-tests ignores.

    Raises:
        UsageError: If options exclude each other, or a variable is invalid; the message has the reason.
    """
    operation = program.removesuffix(SUFFIX)
    o = CollectiveOptions(
        **{name: value for name in OPTIONS if (value := getattr(options, name, None)) is not None},
        operation=operation,
        first=_first(),
        minimum_bandwidth=minimum(),
        summary=re.match(r"\s*[+-]?0*[1-9]", os.environ.get(f"{_TRAFFIC}PRINT_SUMMARY", "")) is not None,
        scale=_number(_SCALE) if OPERATIONS[operation].parts else 1.0,
        arguments=tuple(arguments),
    )
    if options.last_size is None:
        o = replace(o, last_size=max(o.first_size, o.last_size))
    for name, word, known in (("type", "type", BY_NAME), ("operator", "op", OPERATORS)):
        default = getattr(CollectiveOptions, name)
        if (value := getattr(o, name)) not in (*known, ALL):
            out = sys.stdout if options.format == FORMAT else sys.stderr
            print(visible(f"invalid {word} {value}, defaulting to {default} .. "), file=out)
            o = replace(o, **{name: default})
    for name, text, there in (
        ("per_iteration", "-I with -G: iterations of a graph cannot be timed one by one", o.graphs),
        ("blocking", "-z with -G: a graph is launched as a whole, without waiting inside", o.graphs),
        ("skip", f"-K must be less than -n {o.iterations}", o.skip >= o.iterations),
        ("skip", "-K requires -I 1", not o.per_iteration),
        ("device_blocks", "-V requires -D 1 or -D 2", not o.device_implementation),
    ):
        if there and getattr(o, name):
            _note(f"ignored: {text}")
            o = replace(o, **{name: type(getattr(o, name))()})
    if o.device_implementation:
        o = replace(o, device_blocks=o.device_blocks or CTAS)
    file = options.output_file
    problems = {
        f"-b {o.first_size} is more than -e {o.last_size}": o.first_size > o.last_size,
        "-i 0 requires a factor (-f)": not o.step and o.factor < 2,
        f"-V must be at most {MAX_CTAS}": o.device_blocks > MAX_CTAS,
        "-y and -G: the default stream cannot be captured": o.null_stream and o.graphs,
        "-J and --output are the same file": bool(file and options.output and file == options.output.path),
        f"-T must be at most {_MAX_TIMEOUT_S}; 0 sets no limit": o.timeout > _MAX_TIMEOUT_S,
    }
    for problem, there in problems.items():
        if there:
            raise UsageError(problem)
    return o


def chosen(options: CollectiveOptions) -> CollectiveOp:
    """The operation; for unequal parts, divided as environment variables say.

    Raises:
        UsageError: If a variable is invalid, or the sizes do not fit the traffic matrix.
    """
    name = options.operation
    if OPERATIONS[name].parts is None:
        return OPERATIONS[name]
    file = os.environ.get(f"{_TRAFFIC}MATRIX_FILE")
    if not file:
        spread = min(1.0, max(0.0, _number("SPREAD")))
        return operation_of(name, str(Division(spread)) if spread < 1 else "")
    rows = _matrix(file, options.scale)
    if options.first_size != options.last_size:
        raise UsageError("a traffic matrix has one size: -b and -e must be equal")
    return operation_of(name, str(Division(matrix=rows)))


def _matrix(file: str, scale: float) -> tuple[tuple[int, ...], ...]:
    """The bytes from each rank to each, in the arithmetic of nccl-tests: ``long double``, truncated.

    Raises:
        UsageError: If the file is not a square matrix of numbers of 0 or more.
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

    Raises:
        UsageError: If it is; the message has the required size.
    """
    needed = operation.size(operation.counts(size, 1, ranks), 1)
    if needed > size:
        raise UsageError(f"the traffic matrix requires -b and -e of at least {needed} bytes")


def _number(variable: str) -> float:
    """The number of 0 or more in a variable of ``alltoallv``; 1 if it is not set."""
    text = os.environ.get(_TRAFFIC + variable) or "1"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{_TRAFFIC}{variable}={text!r} is not a number of 0 or more")
    return value


def refuse(collectives: CollectiveOptions, options: argparse.Namespace, provider: str) -> None:
    """Refuse options that the provider does not support.

    Raises:
        UsageError: If one is set; the message has the reason.
    """
    from ...worlds.launchers import mpirun

    for name, about in OPTIONS.items():
        reason = about.refused.get(provider)
        if reason and getattr(collectives, name) != getattr(CollectiveOptions, name):
            start = f": start them with {mpirun('wirespeed ...')}" if reason is PROCESSES else ""
            raise UsageError(f"{about.flags[-1]}: {reason}{start}")
    if provider == SIMULATED and (options.mpi or options.launch != AUTO):
        raise UsageError(f"{'--mpi' if options.mpi else '--launch'}: {NO_LIBRARY}")


def check_kernels(program: str, options: CollectiveOptions) -> None:
    """Refuse implementations with kernels of NCCL's device API that do not exist or cannot run.

    Raises:
        UsageError: If the requested one is refused; the message has the reason.
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
    if options.registration != 2:
        raise UsageError(f"-D {number} requires buffers that other GPUs can access: pass -R 2")


def sizes(options: CollectiveOptions) -> tuple[int, ...]:
    """The sizes from the first to the last, in bytes.

    Raises:
        UsageError: If there are too many.
    """
    first, last, step, factor = options.first_size, options.last_size, options.step, options.factor
    if factor < 2:
        count = (last - first) // step + 1
        if count > _MAX_SIZES:
            raise UsageError(f"-b, -e and -i give {count} sizes; the maximum is {_MAX_SIZES}, or use -f")
        return tuple(range(first, last + 1, step))
    grown = [first]
    while grown[-1] * factor <= last:
        grown.append(grown[-1] * factor)
    return tuple(grown)


def _first() -> int:
    """CUDA's index of the first GPU, as set by ``NCCL_TESTS_DEVICE``; -1 if it is not set, or -1."""
    text = os.environ.get("NCCL_TESTS_DEVICE", "")
    if not text:
        return -1
    if not re.fullmatch(r"\s*(-1|\+?\d{1,6})\s*", text, re.ASCII):
        raise UsageError(f"NCCL_TESTS_DEVICE={text!r} is not a GPU index")
    return int(text)
