"""The number of ranks of a run of nccl-tests: its lines and its command name it, the bus bandwidth allows it.
Unknown is 0, and never one: an excerpt without the lines that name the ranks has them all the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from msgspec.structs import replace as struct_replace

from ...collectives.operations import OPERATIONS
from ...document import RankInfo
from ...units import GB
from .log import FoundCollective, Halves
from .nccl_table import PRINTED

#: Number of ranks up to which the bus bandwidth determines it.
MOST_RANKS = 4096
#: Number of ranks of a communicator, which NCCL prints when it makes one and when it destroys it.
_OF_COMM = re.compile(r"NCCL INFO .*\bn[rR]anks (\d{1,6})\b")
#: Programs that start processes, and their options that name how many.
_LAUNCHER = re.compile(r"(\S*/)?(mpirun|mpiexec|srun|prterun|prun|orterun|jsrun|aprun)(\.\w+)?$")
_PROCESSES = ("-np", "--np", "-n", "--n", "--ntasks")
_NODES, _OF_NODE = ("-N", "--nodes"), ("--ntasks-per-node", "-ppn", "--ppn", "-npernode", "--npernode")
_THREADS, _GPUS = ("-t", "--nthreads"), ("-g", "--ngpus")


def of_comm(line: str) -> int:
    """The number of ranks of a communicator that a line of NCCL names; 0 if it names none."""
    match = _OF_COMM.search(line)
    return int(match[1]) if match else 0


def of_command(command: str) -> int:
    """The number of ranks that a command starts; 0 if it does not say."""
    words = command.replace("`", " ").split()
    program = next((i for i, word in enumerate(words) if "_perf" in word), len(words))
    launcher = next((i for i, word in enumerate(words[:program]) if _LAUNCHER.match(word)), None)
    own = [_option(words[program + 1 :], names) for names in (_THREADS, _GPUS)]
    if launcher is None:
        return math.prod(count or 1 for count in own) if any(own) else 0
    given = words[launcher + 1 : program]
    nodes, of_node = (_option(given, names) for names in (_NODES, _OF_NODE))
    processes = _option(given, _PROCESSES) or nodes * of_node
    return processes * math.prod(count or 1 for count in own)


def _option(words: Sequence[str], names: Sequence[str]) -> int:
    """The value of an option: ``-g 8``, ``-g8`` or ``--ngpus=8``; 0 if there is none."""
    for word, after in pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name in names:
            value = value or after
        elif name[:2] in names and name[2:].isdigit():
            value = name[2:]
        else:
            continue
        return int(value) if re.fullmatch(r"\d{1,6}", value) else 0
    return 0


def named(ranks: Sequence[RankInfo], of_process: int, in_comm: int, by_command: int) -> Iterator[int]:
    """Yield the numbers of ranks that a log names, the surest first; the bus bandwidth may contradict them.

    Args:
        ranks: The ranks that the log lists; an excerpt may lack some.
        of_process: Threads × GPUs of each process in the heading; 0 if the log lacks it.
        in_comm: Number of ranks of NCCL's largest communicator; 0 if the log does not name it.
        by_command: Number of ranks that the command starts; 0 if it is not known.
    """
    highest = max((rank.rank + 1 for rank in ranks), default=0)
    most = max(highest, of_process, in_comm)
    # One process of several may have printed the heading, so that one is not sure.
    yield from (count for count in (most, by_command) if count > 1)
    if most == highest == 1 or by_command == 1:
        yield 1


def is_whole(ranks: Sequence[RankInfo], of_process: int) -> bool:
    """Whether a log lists all ranks."""
    indices = {rank.rank for rank in ranks}
    return indices == set(range(len(indices))) and len(indices) >= max(2, of_process)


def ratio(points: Mapping[int, Halves]) -> tuple[float, float] | None:
    """Bus over algorithm bandwidth, and its largest error; None if no bandwidth is precise enough."""
    halves = [half for pair in points.values() for half in pair if half and half.algorithm > GB]
    if not halves:
        return None
    best = max(halves, key=lambda half: half.algorithm)
    value = best.bus / best.algorithm
    return value, PRINTED * (1 + value) / best.algorithm


def counts(operation: str, measured: tuple[float, float] | None, among: Iterable[int]) -> list[int]:
    """The numbers of ranks of some that explain a ratio of bandwidths; all if it is unknown."""
    if measured is None or operation not in OPERATIONS:
        return list(among)
    factor, (value, error) = OPERATIONS[operation].factor, measured
    return [count for count in among if abs(factor(count) - value) <= error]


def number(
    points: Mapping[int, Halves],
    operations: Sequence[str],
    candidates: Sequence[int],
    of_process: int,
    ranks: Sequence[RankInfo],
) -> int:
    """The number of ranks of some results: the first one named that fits, or the only one that does.

    Args:
        points: The results of each size.
        operations: Names of the operations that it may be.
        candidates: The numbers that the log names, the surest first.
        of_process: Number of ranks of each process, of which the number is a multiple; 0 if unknown.
        ranks: The ranks that the log lists.

    Returns:
        The number; 0 if it is unknown.
    """
    measured = ratio(points)
    allowed = [count for operation in operations or [""] for count in counts(operation, measured, candidates)]
    if allowed:
        return next(count for count in candidates if count in allowed)
    highest = max((rank.rank + 1 for rank in ranks), default=0)
    multiples = [i for i in range(max(1, highest), MOST_RANKS + 1) if i % max(1, of_process) == 0]
    fitting = {count for operation in operations for count in counts(operation, measured, multiples)}
    return fitting.pop() if len(fitting) == 1 else 0


def with_ranks(run: FoundCollective, count: int) -> FoundCollective:
    """A collective whose number of ranks is unknown with this number, unless its bandwidth contradicts it."""
    if run.info.ranks or not counts(run.info.operation, ratio(run.points), [count] if count else []):
        return run
    return replace(run, info=struct_replace(run.info, ranks=count))
