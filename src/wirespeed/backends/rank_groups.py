"""The environment variables and options of nccl-tests applied to the ranks of a job: their groups, the list
of settings that run, the largest size, and the required bandwidth.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..collectives.data_types import DataType
from ..collectives.operations import CollectiveOp, Setting
from ..errors import UsageError
from ..hardware.devices import Gpu
from ..units import GIB
from ..worlds.base import World
from .provider import Group

#: Memory of a GPU, in bytes, of which nccl-tests reserves 1 GiB, and the most that it reserves.
_RESERVING, _MOST_RESERVED = 16 * GIB, 4 * GIB
#: Environment variables that divide the ranks into groups.
SPLIT, MASK = "NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"


def settings(
    operation: CollectiveOp, types: Sequence[DataType], operators: Sequence[str], root: int | None, ranks: int
) -> tuple[Setting, ...]:
    """The settings in the order of nccl-tests: by type, then operator, then root.

    Args:
        operation: The collective.
        types: Element types.
        operators: Reduction operators; ignored if the operation has none and names none.
        root: Root; None for all ranks in turn. Ignored if the operation has none.
        ranks: Number of ranks.

    Raises:
        UsageError: If the root is not a rank.
    """
    if operation.names_operators:
        operators = ["" if name == operation.operator else name for name in operators]
    elif operation.operator is not None:
        operators = ("",)
    roots: Sequence[int] = (-1,)
    if operation.rooted:
        roots = range(ranks) if root is None else (root,)
        if roots[-1] >= ranks:
            raise UsageError(f"root {roots[-1]} does not exist; the ranks are 0 to {ranks - 1}")
    return tuple(Setting(operation, t, o, r) for t in types for o in operators for r in roots)


def group_of(world: World, ranks_each: int, environment: Mapping[str, str] = os.environ) -> Group:
    """The group of this process: all processes, unless ``NCCL_TESTS_SPLIT`` divides them.

    Args:
        world: The processes of the job.
        ranks_each: Number of ranks of the collective per process.
        environment: Environment variables.

    Raises:
        UsageError: If a variable is invalid.
    """
    colors = colors_of(world.size, environment)
    mine = colors[world.rank]
    return Group(mine, tuple(rank for rank, color in enumerate(colors) if color == mine), ranks_each)


def colors_of(size: int, environment: Mapping[str, str] = os.environ) -> list[int]:
    """The number of the group of each process.

    Raises:
        UsageError: If a variable is invalid.
    """
    text = environment.get(SPLIT, "")
    if MASK in environment:
        try:
            text = f"&{int(environment[MASK].strip() or '0', 16)}"
        except ValueError as error:
            raise UsageError(f"{MASK}={environment[MASK]!r} is not a hexadecimal number") from error
    return [_color(text, rank) for rank in range(size)]


def _color(text: str, rank: int) -> int:
    if not text.strip():
        return 0
    calculations: dict[str, Callable[[int, int], int]] = {
        "AND": lambda a, b: a & b, "&": lambda a, b: a & b, "OR": lambda a, b: a | b, "|": lambda a, b: a | b,
        "MOD": lambda a, b: a % b, "%": lambda a, b: a % b,
        "DIV": lambda a, b: a // b, "/": lambda a, b: a // b,
    }  # fmt: skip
    for word, calculate in calculations.items():
        if text.strip().upper().startswith(word):
            try:
                return calculate(rank, int(text.strip()[len(word) :].strip(), 0))
            except (ValueError, ZeroDivisionError):
                break
    raise UsageError(f"{SPLIT}={text!r} is invalid; use the form 'MOD 8', 'DIV 8', 'AND 0x7' or 'OR 0x7'")


def smallest(world: World) -> int:
    """The number of processes of the smallest group."""
    return min(Counter(colors_of(world.size)).values())


def largest_of_gpus(gpus: Sequence[Gpu], buffers: int) -> int:
    """The largest size of which a number of buffers fits into every GPU, in bytes; 0 if it is not known.

    It is a rule of nccl-tests, which keeps a part of the memory.
    """
    memory = min((gpu.memory_bytes for gpu in gpus), default=0)
    reserved = min(-(-memory // _RESERVING) * GIB, _MOST_RESERVED)
    return max(0, (memory - reserved - GIB) // buffers)


def minimum() -> float | None:
    """The minimum mean bus bandwidth from ``NCCL_TESTS_MIN_BW`` (in GB/s), in B/s; None if not set.

    Raises:
        UsageError: If the variable is not a number.
    """
    text = os.environ.get("NCCL_TESTS_MIN_BW")
    try:
        return float(text) * 1e9 if text else None
    except ValueError as error:
        raise UsageError(f"NCCL_TESTS_MIN_BW={text!r} is not a number of GB/s") from error
