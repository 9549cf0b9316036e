"""nvbandwidth's testcases between the processes of a job, one device each. Its two ``broadcast`` testcases
require NVLink multicast objects and are not implemented.
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware.devices import is_host
from ..hardware.topology import Machine
from ..measurement import Reduce
from ..model import Access, Engine
from .base import Pattern, Plan, PlanOptions, Testcase
from .patterns import bisect, pairs, pairs_both_ways, ranks, star

#: What titles call one rank and all ranks: where these own GPUs, and where they own host memory.
_GPUS, _RANKS = {"one": "GPU", "all": "All Gpus"}, {"one": "rank", "all": "all ranks"}
_LATER = {"part": "{part}", "engine": "{engine}"}
_PULL, _PUSH = "{one}(row) -> {one}(column)", "{one}(row) <- {one}(column)"
_PAIR = "{one}(row) <-> {one}(column) {part}"
_READ, _WRITE = Access.READ, Access.WRITE


def _row(name: str, title: str, access: Access, engine: Engine, pattern: Pattern, does: str) -> Testcase:
    return Testcase(f"multinode_{name}_{engine}", does, _anywhere(pattern), title, engine, access)


def _anywhere(pattern: Pattern) -> Pattern:
    """Let CPUs copy, and the title say so, where the ranks own host memory."""

    def planned(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        of_hosts = bool(machine.ranks) and is_host(machine.ranks[0].device)
        title = case.title.format_map(_LATER | (_RANKS if of_hosts else _GPUS))
        engine = Engine.CPU if of_hosts else case.engine
        plan = pattern(machine, replace(case, engine=engine, title=title), options)
        return replace(plan, tables=tuple(replace(layout, engine=engine) for layout in plan.tables))

    return planned


def _pairs(engine: Engine) -> tuple[Testcase, ...]:
    def row(name: str, arrow: str, access: Access, pattern: Pattern, does: str) -> Testcase:
        title = f"memcpy {{engine}} {arrow} bandwidth"
        return _row(f"device_to_device_{name}", title, access, engine, pattern, does)

    return (
        row("memcpy_read", _PULL, _READ, pairs(ranks), "the row's rank pulls from the column's memory"),
        row("memcpy_write", _PUSH, _WRITE, pairs(ranks), "the row's rank pushes to the column's memory"),
        row("bidirectional_memcpy_read", _PAIR, _READ, pairs_both_ways(ranks),
            "both ranks of a pair pull from each other at once; each rate and the sum"),
        row("bidirectional_memcpy_write", _PAIR, _WRITE, pairs_both_ways(ranks),
            "both ranks of a pair push to each other at once; each rate and the sum"),
    )  # fmt: skip


_STAR = star(ranks, column_executes=False, reduce=Reduce.SUM)
_TOTAL = "total bandwidth"

#: The eleven, with the numbers that they have in nvbandwidth's build for several processes.
TESTCASES = tuple(
    replace(case, index=index)
    for index, case in zip(
        (44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 56),
        (
            *_pairs(Engine.CE),
            *_pairs(Engine.SM),
            _row("device_to_device_all_to_one_write", "memcpy {engine} {all} -> {one}(column) " + _TOTAL,
                 _WRITE, Engine.SM, _STAR, "all ranks push to the column's memory at once; sum of rates"),
            _row("device_to_device_all_from_one_read", "memcpy {engine} {all} <- {one}(column) " + _TOTAL,
                 _READ, Engine.SM, _STAR, "all ranks pull from the column's memory at once; sum of rates"),
            _row("bisect_write", "Bisect benchmarking, simultaneous write {engine} BW", _WRITE, Engine.CE,
                 bisect(ranks), "every rank pushes to the rank half the job away, all at once"),
        ),
        strict=True,
    )
)  # fmt: skip
