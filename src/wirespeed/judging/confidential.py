"""Copies with the host in confidential computing mode, each judged by the other GPUs of the
machine: encryption decides their rate, which no table gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..hardware.link_graph import MachineVertices
from ..hardware.topology import Machine
from ..measurement import Unit
from ..results.cells import Placed
from ..statistics import grouped, median
from ..thresholds.causes import CONFIDENTIAL
from ..units import GB
from .path_kinds import HOST_GPU, path_kind
from .verdict import BELOW_PEERS, Judgement, Verdict

#: Why nothing judges the copies of a single GPU.
_ALONE = "encrypted (confidential computing): a baseline, or other GPUs, would judge it"


def by_other_gpus(judged: list[Judgement], cells: Sequence[Placed], machine: Machine) -> None:
    """Judge copies between host and GPU by other GPUs, in place; nothing without encryption."""
    if not machine.confidential:
        return
    gpus = {gpu.name for gpu in MachineVertices(machine).gpus}
    alike = grouped(
        ((measured.key.testcase, measured.key.table, measured.cell.bytes), i)
        for i, measured in enumerate(cells)
        if path_kind(measured.key.testcase) == HOST_GPU and judged[i].verdict is Verdict.NOT_JUDGED
        and judged[i].value and measured.unit is Unit.RATE
    )  # fmt: skip
    for members in alike.values():
        of_gpus = {end for i in members for end in (cells[i].key.row, cells[i].key.column) if end in gpus}
        normal = median(sorted(judged[i].value or 0.0 for i in members))
        for i in members:
            if len(of_gpus) < 2:
                judged[i] = replace(judged[i], why=_ALONE)
                continue
            is_low = (judged[i].value or 0.0) < CONFIDENTIAL * normal
            judged[i] = replace(
                judged[i], verdict=Verdict.WARN if is_low else Verdict.PASS, least=CONFIDENTIAL * normal,
                normal=normal, why=BELOW_PEERS if is_low else "", basis=f"all GPUs: {normal / GB:.2f} GB/s",
            )  # fmt: skip
