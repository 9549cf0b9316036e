"""Transfers at a rate, or with a later start: records of the model that no line has words for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from wirespeed.features.transfers.program import of_line
from wirespeed.hardware.topology import Machine
from wirespeed.options import PlanOptions
from wirespeed.testcases.table import Plan, Testcase
from wirespeed.units import parse_duration, parse_rate

_WORDS = {"rate": parse_rate, "start": parse_duration}


def paced(line: str) -> Testcase:
    """The testcase of a line whose statements, one transfer each, may end with ``rate=`` and ``start=``."""
    changes: list[dict[str, Any]] = []
    for statement in line.split(";"):
        found = re.findall(r" (rate|start)=([^\s;]+)", statement)
        changes.append({name: _WORDS[name](value) for name, value in found})
    case = of_line(re.sub(r" (rate|start)=[^\s;]+", "", line)).testcase

    def plan(machine: Machine, _: Testcase, options: PlanOptions) -> Plan:
        planned = case.plan(machine, options)
        (one,) = planned.measurements
        works = (replace(work, **change) for work, change in zip(one.works, changes, strict=True))
        return replace(planned, measurements=(replace(one, works=tuple(works)),))

    return replace(case, pattern=plan)
